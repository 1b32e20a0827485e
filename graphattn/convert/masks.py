"""Dense masks, in each community's polarity. Here ``mask[t, s]`` True is an edge, as in SDPA."""

import math
from typing import Any

import torch
from torch import Tensor

from ..arguments import check_shape, one_of, table, whole
from ..arguments import dtype as checked_dtype
from ..errors import GraphError
from ..graph import AttentionGraph, PerExample, need_graph
from ..graph.kinds.per_head import one_or_heads
from ..graph.limits import refuse_over
from ..graph.listed import checked

KINDS = ("bool", "additive", "mha")


def from_mask(
    mask: Any, kind: str = "bool", *, heads: int | None = None, name: str | None = None
) -> Any:
    """A graph from a dense mask whose rows are targets (queries), as in torch's SDPA.

    The other layout, a networkx adjacency, is ``mask.T``.

    Args:
        mask: (T, S), a tensor or an array; of the examples of a batch (B, T, S) or (B, 1, T, S),
            as transformers makes it; of examples and heads (B, H, T, S). SDPA takes three dimensions
            for (H, T, S): pass ``mask[None]``. The key padding mask (B, S) of
            ``nn.MultiheadAttention`` is ``mask[:, None, None].expand(B, 1, T, S)``, as a table of
            two dimensions is (T, S).
        kind: ``"bool"``: True at (t, s) means that ``t`` may read ``s``. ``"mha"``: True means that
            it may *not*, as in ``nn.MultiheadAttention``. ``"additive"``: floats that are added to
            the scores, 0 an edge, -inf none; so is the lowest number of the dtype, which
            transformers writes for -inf, in a row that has an edge.
        heads: H of a mask (B H, T, S), the three dimensions of ``nn.MultiheadAttention``; to be
            given there.
        name: The name that ``repr`` shows.
    Returns:
        Listed edges by target, then by source, on the mask's device: one graph; a
        :class:`~graphattn.PerExample` if B > 1; a :class:`~graphattn.PerHead`, for all examples or
        in each, if heads differ. Equal masks become one graph.
    Raises:
        GraphError: If the mask is of another kind (numbers may be weights, counts or a bias; the
            message has advice for each). An additive mask of other numbers is refused with the
            first of them: a finite bias belongs to ``score_bias``, and -1e9 is not -inf (a row full
            of it has equal weights, not 0).
    Example:
        >>> print(from_mask(torch.ones(2, 3).tril().bool()))
        AttentionGraph(mask: 3 sources -> 2 targets, 3 edges, density 0.5, listed, unread sources: 1)
        █ · ·
        █ █ ·
        >>> from_mask([[False, True], [False, False]], "mha").equals(from_mask([[True, False], [True, True]]))
        True
        >>> from_mask([[0.0, float("-inf")], [0.0, 0.0]], "additive").num_edges
        3
        >>> from_mask(torch.rand(5, 2, 3) < 0.5)
        PerExample(mask[b=0], mask[b=1], mask[b=2], 2 more: 5 examples of 3 sources -> 2 targets)
    """
    one_of(kind, "kind", KINDS, GraphError)
    if kind == "additive":
        edge = _of_additive(mask)
        default = "additive_mask"
    elif kind == "mha":
        edge = ~_bool(_masks(mask, "mask"), "mask")
        default = "mha_mask"
    else:
        edge = _bool(_masks(mask, "mask"), "mask")
        default = "mask"
    if not name:
        name = default
    if edge.dim() == 2:
        return _graph(edge, name)
    if heads is not None:
        heads = whole(heads, "heads", 1, GraphError)
        if edge.dim() != 3 or edge.shape[0] % heads:
            raise GraphError(
                f"mask must be (B H, T, S) with heads={heads}, got {tuple(edge.shape)}; leave heads out"
            )
        edge = edge.unflatten(0, (-1, heads))
    elif edge.dim() == 3 and kind == "mha":
        raise GraphError(
            f"mask has three dimensions, {tuple(edge.shape)}, which nn.MultiheadAttention takes as "
            "(B H, T, S): pass heads=H; of examples alone, (B, T, S), pass mask[:, None]"
        )
    elif edge.dim() == 3:
        edge = edge.unsqueeze(1)
    return _of_several(edge, name)


def _of_additive(mask: Any) -> Tensor:
    values = _masks(mask, "mask")
    if not values.is_floating_point():
        raise GraphError(
            f"mask must be floating point, 0 or -inf, got {_kind(values)}; a bool mask is "
            'kind="bool"'
        )
    edge = values == 0
    lowest = (values == _lowest(values)) & edge.any(-1, keepdim=True)
    bad = torch.nonzero(~(edge | lowest | (values == -torch.inf)))
    if bad.numel():
        place = bad[0].tolist()
        raise GraphError(
            f"mask must hold only 0 (edge) and -inf (none), got {values[tuple(place)].item()} at "
            f"{place} ({len(bad)} such values); for a finite bias use from_mask for the edges "
            "and score_bias for the numbers, and for a stand-in for -inf use "
            "from_mask(mask > threshold)"
        )
    return edge


def to_mask(
    graph: AttentionGraph, kind: str = "bool", dtype: torch.dtype = torch.float32
) -> Tensor:
    """The dense mask (T, S) of a graph for other implementations of attention.

    Args:
        graph: The graph.
        kind: ``"bool"``: True where ``s -> t`` is an edge, ``attn_mask`` of
            ``scaled_dot_product_attention``. ``"mha"``: True where there is none, ``attn_mask`` of
            ``nn.MultiheadAttention``, which returns NaN for a target without sources, where this
            library returns 0. ``"additive"``: 0 on an edge, log n on one with n copies, -inf
            elsewhere.
        dtype: Dtype of an additive mask.
    Raises:
        GraphError: If it would take more than 4 GiB, edges are repeated (only an additive mask can
            count copies), or ``dtype`` is not floating point.
    Example:
        >>> graph = from_mask([[True, False], [True, True]])
        >>> to_mask(graph).long()
        tensor([[1, 0],
                [1, 1]])
        >>> to_mask(graph, "additive")
        tensor([[0., -inf],
                [0., 0.]])
    """
    need_graph(graph, "to_mask")
    one_of(kind, "kind", KINDS, GraphError)
    if kind != "additive":
        _no_copies(
            graph,
            "a bool mask",
            'to_mask(graph, "additive") holds the logarithm of the number of copies',
        )
        if kind == "mha":
            return ~graph.mask()
        return graph.mask()
    if checked_dtype(dtype, floating=True).itemsize < 2:
        raise GraphError(
            f"dtype must have at least 16 bits, got {str(dtype).removeprefix('torch.')}"
        )
    T = graph.num_targets
    S = graph.num_sources
    refuse_over(
        8 * T * S, f"an additive mask of {T:,} x {S:,}", "use a bool mask, or keep the edges"
    )
    if not graph.has_repeated_edges:
        return torch.zeros(T, S, dtype=dtype, device=graph.device).masked_fill_(
            ~graph.mask(), -torch.inf
        )
    copies = torch.bincount(graph.target * S + graph.source, minlength=T * S).view(T, S)
    return copies.double().log().to(dtype)


def _graph(mask: Tensor, name: str) -> AttentionGraph:
    target, source = torch.nonzero(mask, as_tuple=True)
    return AttentionGraph(checked(torch.stack((source, target)), *mask.shape), name, mask.device)


def _of_several(masks: Tensor, name: str) -> Any:
    """The graphs of masks (B, H, T, S); those of equal masks are one object."""
    B, H = masks.shape[:2]
    alike: dict[tuple[int, int], list[AttentionGraph]] = {}
    graphs = []
    for number, mask in enumerate(masks.flatten(0, 1)):
        graph = _graph(mask, f"{name}[{_label(number, B, H)}]")
        source, target = graph.edge_index
        candidates = alike.setdefault((source.numel(), int((source * (target + 1)).sum())), [])
        for other in candidates:
            if torch.equal(other.edge_index, graph.edge_index):
                graph = other
                break
        else:
            candidates.append(graph)
        graphs.append(graph)
    examples = [one_or_heads(graphs[first : first + H]) for first in range(0, B * H, H)]
    if B == 1:
        return examples[0]
    return PerExample(tuple(examples))


def _label(number: int, B: int, H: int) -> str:
    b, h = divmod(number, H)
    if H == 1:
        return f"b={b}"
    if B == 1:
        return f"h={h}"
    return f"b={b}, h={h}"


def _no_copies(graph: AttentionGraph, subject: str, instead: str) -> None:
    if graph.has_repeated_edges:
        raise GraphError(
            f"{subject} cannot count copies, and {graph!r} repeats edges; {instead}, or take "
            "graph | graph"
        )


def _lowest(values: Tensor) -> float:
    """-inf, or the lowest number of a floating-point dtype, which transformers writes for it."""
    if values.is_floating_point():
        return torch.finfo(values.dtype).min
    return -torch.inf


def _kind(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


def _masks(mask: Any, argument: str) -> Tensor:
    """The mask of one graph, or of examples, or of examples and heads, as a tensor."""
    values = table(mask, argument, "a tensor (T, S)", GraphError)
    if values.dim() > 2 and math.prod(values.shape[:-2]) == 1:
        values = values.reshape(values.shape[-2:])
    if not 2 <= values.dim() <= 4:
        raise GraphError(
            f"{argument} must have shape (T, S), targets x sources, (B, T, S) or (B, H, T, S), got "
            f"{tuple(values.shape)}"
        )
    if 0 in values.shape[:-2]:
        raise GraphError(
            f"{argument} must have an example and a head, got none in {tuple(values.shape)}"
        )
    return values.detach()


def bool_mask(mask: Any, argument: str) -> Tensor:
    """The mask (T, S) of one graph."""
    values = _masks(mask, argument)
    check_shape(values, argument, ("T", "S"), f"pass one of them, {argument}[b, h]", GraphError)
    return _bool(values, argument)


def _bool(values: Tensor, argument: str) -> Tensor:
    if values.numel() == 0 or values.dtype == torch.bool:
        return values.bool()
    got = f"{_kind(values)}{_advice(values)}"
    raise GraphError(f"{argument} must be bool, True where there is an edge, got {got}")


def _advice(values: Tensor) -> str:
    """Advice by the probable meaning of numbers in a mask."""
    if not (values.is_floating_point() or values.is_complex()):
        values = values.to(torch.int64)
    suspects = [(values.isnan(), "NaN", "replace it before making a mask")]
    if not values.is_complex():
        additive = 'a mask that is added to scores is kind="additive"'
        comparison = "pass (mask > 0) or (mask != 0), whichever means an edge"
        suspects.append((values <= _lowest(values), "-inf", additive))
        suspects.append((values < 0, "a negative number", comparison))
    for suspect, noun, remedy in suspects:
        where = torch.nonzero(suspect)
        if where.numel():
            return f" with {noun} at {where[0].tolist()}; {remedy}"
    return "; pass (mask != 0) if all numbers but 0 are edges; weights belong to score_bias"
