"""The edge operators on a GPU, as :mod:`.softmax.operator` and :mod:`.pairs.operator` compute them on the CPU.

Only the first call on a graph waits for the device (:mod:`.row_work`).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..arrays import dtype_of_sums
from ..cuda.launches import (
    constants_of,
    contiguous_rows,
    dropout_of,
    launch_rows,
    room_for,
    strides_of,
    walk_rows,
    word_of,
)
from ..cuda.row_work import LONG, Hubs, Work, schedule
from . import triton as triton_softmax
from . import triton_sums
from .call import SoftmaxCall


class GpuCall(SoftmaxCall):
    """The operands of ``edge_attention`` and its backward, as the kernels of a GPU take them."""

    @property
    def features(self) -> int:
        """F, or 0 without edge features."""
        if self.attr is None:
            return 0
        return self.attr.shape[-1]

    def numbers(self) -> tuple[float, float, int, float]:
        """scale, softcap, below which hash a weight is dropped, and the factor of the others."""
        return self.scale, self.softcap, *dropout_of(self.dropout_p)

    def word(self) -> Tensor | None:
        """The seed, on the device."""
        return word_of(self.query, self.dropout_p, self.seed)

    def edge_operands(self) -> tuple[tuple[Tensor | None, ...], tuple[int, ...]]:
        """Bias and features in their own dtypes; strides of bias and of a batch's features."""
        B, _, E, H = self.sizes
        bias = self.bias
        attr = self.attr
        strides: tuple[int, ...] = (0, 0, 0)
        feature_stride = 0
        if bias is not None:
            bias = bias.detach()
            strides = bias.expand(B, E, H).stride()
        if attr is not None:
            attr = attr.detach().contiguous()
            if len(attr) > 1:
                feature_stride = E * self.features
        return (bias, attr), (*strides, feature_stride)


class Projected(NamedTuple):
    """The projection of edge features, and the products of it and the nodes."""

    weight: Tensor | None = None  # (H, F, D), contiguous
    queries: Tensor | None = None  # (B, T, H, F), if features join the scores
    sums: Tensor | None = None  # (B, T, H, F) by weight, or their gradients, if they join the sums


def softmax_pass(
    call: GpuCall,
    output: Tensor | None,
    lse: Tensor | None,
    alpha: Tensor | None,
    kept_weights: Tensor | None,
    projected: Projected,
    *,
    products: bool = True,
) -> None:
    """Softmax, written to outputs that are not None; without ``products`` a score is its bias."""
    sums = projected.sums
    (B, T, E, H), dtype = call.sizes, dtype_of_sums(call.query)
    F = call.features
    if products:
        D = call.query.shape[-1]
    else:
        D = 0
    if output is None:
        DV = 0
    else:
        DV = output.shape[-1]
    q, k, v = (contiguous_rows(x) for x in (call.query, call.key, call.value))
    operands, strides = call.edge_operands()
    nodes = (q if products else None, k, None if output is None else v)
    read = (*nodes, *operands, projected.queries, projected.weight, call.word())
    align, of_nodes = strides_of(q, k, v)
    constants = constants_of(dtype, H, D=D, DV=DV, F=F) | {
        "GROUP": H // max(1, k.shape[2]),
        "CAPPED": call.softcap > 0,
    }

    def launch(work: Work, written: tuple[Tensor | None, ...], piece: bool) -> None:
        arguments = (*read, *work[1:], call.source, call.edge, *written, T, E)
        after = (*of_nodes, *strides, *call.numbers())
        walk_rows(
            triton_softmax.forward,
            work,
            B,
            arguments,
            after,
            constants | {"PIECE": piece, "ALIGN": align},
        )

    work = schedule(call.ptr, call.order)
    for part in work.whole_rows:
        launch(part, (output, lse, alpha, kept_weights, sums, None, None, None, None), False)
    if work.hubs is None:
        return
    pieces, owner, node, _ = work.hubs
    acc, attr_acc = (room_for(x, q, B, len(owner), H, n) for x, n in ((output, DV), (sums, F)))
    peak, total, hub_peak, hub_total = (
        room_for(q, q, B, n, H) for n in (len(owner),) * 2 + (len(node),) * 2
    )
    launch(pieces, (None, None, alpha, kept_weights, None, acc, attr_acc, peak, total), True)
    if sums is not None:
        merge_hubs(work.hubs, attr_acc, peak, total, sums, T=T)
    results = (output, lse, hub_peak, hub_total)
    merge_hubs(work.hubs, acc, peak, total, *results, T=T, rows=sums, weight=projected.weight)
    if alpha is not None or kept_weights is not None:
        arguments = (alpha, kept_weights, call.edge, *pieces[2:], owner, hub_peak, hub_total, E)
        constants = {name: constants[name] for name in ("H", "BE", "BH", "num_warps")}
        launch_rows(triton_softmax.hub_weights, pieces, B, arguments, (len(node),), constants)


class Gradients(NamedTuple):
    """Memory for the gradients of a pass over targets; None for those that are not needed."""

    query: Tensor | None = None
    bias: Tensor | None = None
    attr: Tensor | None = None
    queries: Tensor | None = None  # of the features, (B, T, H, F)


def score_gradients(
    call: GpuCall,
    p: Tensor,
    grad_output: Tensor | None,
    side: tuple[Tensor | None, Tensor | None],
    written: Gradients,
    share: Tensor,
    weight: Tensor | None,
    removed: Tensor | None,
    projected: Projected,
    *,
    products: bool = True,
) -> None:
    """The gradient of each product into ``share``, and those of targets and edges into ``written``.

    ``side`` are the gradients of weights and lse. Without ``products`` scores are given, and so are
    weights ``p`` in the caller's order.
    """
    (B, T, E, H), dtype = call.sizes, dtype_of_sums(call.query)
    F = call.features
    if products:
        D = call.query.shape[-1]
        DV = call.value.shape[-1]
    else:
        D = 0
        DV = 0
    q, k, v = (contiguous_rows(x) for x in (call.query, call.key, call.value))
    if grad_output is None:
        go = v
    else:
        go = contiguous_rows(grad_output)
    operands, strides = call.edge_operands()
    constants = constants_of(dtype, H, D=D, DV=DV, F=F) | {
        "GROUP": H // max(1, k.shape[2]),
        "CAPPED": call.softcap > 0,
    }
    align, of_nodes = strides_of(q, k, v, go)
    constants |= {"BY_EDGE": not products, "ALIGN": align}
    blocks = -(-H // constants["BH"])
    of_heads = written.attr
    if blocks > 1:
        of_heads = room_for(written.attr, q, blocks, B, E, F)
    nodes = (q, k, v) if products else (None,) * 3
    read = (*nodes, *operands, projected.queries, projected.weight, call.word())
    rest = (p, go if products else None, *side, projected.sums)

    def launch(
        work: Work, of_pieces: tuple[Tensor | None, ...], hubs: int, first: bool, second: bool
    ) -> None:
        results = (written.query, written.bias, of_heads, written.queries, share, weight, removed)
        arguments = (*read, *work[1:], call.source, call.edge, *rest, *results, *of_pieces, T, E)
        after = (hubs, *of_nodes, *strides, B, *call.numbers())
        passes = {"FIRST": first, "SECOND": second}
        walk_rows(triton_sums.backward, work, B, arguments, after, constants | passes)

    work = schedule(call.ptr, call.order)
    for part in work.whole_rows:
        launch(part, (None,) * 4, 0, True, True)
    if work.hubs is not None:
        pieces, owner, node, _ = work.hubs
        delta, of_hubs = (room_for(q, q, B, n, H) for n in (len(owner), len(node)))
        query_acc, attr_acc = (
            room_for(x, q, B, len(owner), H, n)
            for x, n in ((written.query, D), (written.queries, F))
        )
        launch(pieces, (None, None, delta, None), len(node), True, False)
        places = torch.arange(len(node), device=q.device)
        merge_hubs(
            work.hubs._replace(node=places),
            delta.unsqueeze(-1),
            None,
            None,
            of_hubs.unsqueeze(-1),
            T=len(node),
        )
        launch(pieces, (query_acc, attr_acc, of_hubs, owner), len(node), False, True)
        if attr_acc is not None:
            merge_hubs(work.hubs, attr_acc, None, None, written.queries, T=T)
        if query_acc is not None:
            of_features = {"rows": written.queries, "weight": projected.weight}
            merge_hubs(work.hubs, query_acc, None, None, written.query, T=T, **of_features)
    if of_heads is not None and of_heads is not written.attr:
        assert written.attr is not None
        written.attr.copy_(of_heads.sum(0))


def merge_hubs(
    hubs: Hubs,
    acc: Tensor | None,
    peak: Tensor | None,
    total: Tensor | None,
    out: Tensor | None,
    lse: Tensor | None = None,
    hub_peak: Tensor | None = None,
    hub_total: Tensor | None = None,
    *,
    T: int,
    rows: Tensor | None = None,
    weight: Tensor | None = None,
) -> None:
    """Merge the pieces of hubs into their nodes, and add ``rows`` (B, T, H, F) by ``weight``."""
    like = acc if acc is not None else peak
    assert like is not None
    constants = constants_of(like.dtype, like.shape[2], D=like.shape[3] if acc is not None else 0)
    constants["F"] = 0 if rows is None else rows.shape[3]
    work = Work(LONG, hubs.node, hubs.first, hubs.first)
    arguments = (
        acc,
        peak,
        total,
        rows,
        weight,
        hubs.node,
        hubs.first,
        out,
        lse,
        hub_peak,
        hub_total,
        T,
        len(hubs.owner),
    )
    launch_rows(triton_softmax.merge, work, like.shape[0], arguments, (), constants)


def edge_products(x: Tensor, y: Tensor, removed: Tensor | None, *layout: Tensor) -> Tensor:
    """``graphattn::edge_products``."""
    (ptr, index, edge, order), (B, _, H, D) = layout[:4], x.shape
    dtype = dtype_of_sums(x)
    out = x.new_empty(B, edge.numel(), H, dtype=dtype)
    rows = contiguous_rows(x)
    others = contiguous_rows(y)
    align, strides = strides_of(rows, others)
    constants = constants_of(dtype, H, D=D) | {"GROUP": H // max(1, y.shape[2]), "ALIGN": align}
    work = schedule(ptr, order)
    for part in (*work.whole_rows, *(() if work.hubs is None else work.hubs[:1])):
        arguments = (rows, others, *part[1:], index, edge, out, edge.numel())
        walk_rows(triton_sums.edge_products, part, B, arguments, strides, constants)
    return out


def edge_sum(
    weight: Tensor,
    x: Tensor,
    groups: int,
    to_sources: bool,
    removed: Tensor | None,
    *layout: Tensor,
) -> Tensor:
    """``graphattn::edge_sum``."""
    if to_sources:
        rows = layout[4:]
    else:
        rows = layout[:4]
    out = x.new_empty(
        x.shape[0], rows[0].numel() - 1, groups if to_sources else weight.shape[2], x.shape[-1]
    )
    sums_pass(weight, x, groups, to_sources, removed, rows, out)
    return out


def sums_pass(
    weight: Tensor,
    x: Tensor,
    groups: int,
    summed: bool,
    removed: Tensor | None,
    layout: tuple[Tensor | None, ...],
    out: Tensor,
) -> None:
    ptr, index, edge, order = layout
    assert ptr is not None
    assert order is not None
    (B, E, heads), dtype, (N, H, D) = weight.shape, dtype_of_sums(x), out.shape[1:]
    if heads == 0 or x.shape[1] == 0:  # nothing to read
        out.zero_()
        return
    weight = weight.detach().contiguous()
    rows = contiguous_rows(x)
    removed_b = 0
    if removed is not None:
        if len(removed) > 1:
            removed_b = E * heads
        removed = removed.expand(-1, -1, heads).contiguous().view(torch.uint8)
    align, strides = strides_of(rows)
    constants = constants_of(dtype, H, D=D) | {
        "GROUP": heads // max(1, groups),
        "SUMMED": summed,
        "ALIGN": align,
    }

    def launch(work: Work, written: tuple[Tensor | None, ...], piece: bool) -> None:
        arguments = (weight, rows, removed, *work[1:], index, edge, *written, E, N)
        walk_rows(
            triton_sums.edge_sums,
            work,
            B,
            arguments,
            (*strides, removed_b),
            constants | {"PIECE": piece},
        )

    work = schedule(ptr, order)
    for part in work.whole_rows:
        launch(part, (out, None), False)
    if work.hubs is not None:
        acc = x.new_empty((B, len(work.hubs.owner), H, D), dtype=dtype)
        launch(work.hubs.pieces, (None, acc), True)
        merge_hubs(work.hubs, acc, None, None, out, T=N)


def edge_weights(score: Tensor, *layout: Tensor) -> tuple[Tensor, Tensor]:
    """``graphattn::edge_weights``: a softmax whose scores are all bias."""
    alpha = torch.empty_like(score, memory_format=torch.contiguous_format)
    lse = score.new_empty(score.shape[0], layout[3].numel(), score.shape[2])
    softmax_pass(
        _of_scores(score, layout, score.detach()),
        None,
        lse,
        alpha,
        None,
        Projected(),
        products=False,
    )
    return alpha, lse


def edge_weights_backward(alpha: Tensor, grad: Tensor, grad_lse: Tensor, *layout: Tensor) -> Tensor:
    """``graphattn::edge_weights_backward``."""
    result = torch.empty_like(alpha)
    side = (grad.contiguous(), grad_lse.contiguous())
    share = torch.empty_like(alpha)
    call = _of_scores(alpha, layout, None)
    written = Gradients(bias=result)
    rest = (share, None, None, Projected())
    score_gradients(call, alpha.contiguous(), None, side, written, *rest, products=False)
    return result


def _of_scores(score: Tensor, layout: tuple[Tensor, ...], bias: Tensor | None) -> GpuCall:
    """A call without nodes, whose scores are its bias."""
    nodes = score.new_empty(score.shape[0], layout[3].numel(), score.shape[2], 0)
    ptr, index, edge, order = layout
    sources = (None, None, None, None)
    return GpuCall(
        nodes,
        nodes,
        nodes,
        bias,
        None,
        None,
        ptr,
        index,
        edge,
        order,
        *sources,
        1.0,
        0.0,
        0.0,
        "both",
        None,
    )


def probe(device: torch.device) -> None:
    """Run the smallest call on a device; its errors are raised."""
    ptr = torch.tensor([0, 1], device=device)
    layout = (ptr, ptr[:1].int(), ptr[:1].int(), ptr[:1].int())
    alpha, _ = edge_weights(torch.zeros(1, 1, 1, device=device), *layout)
    if float(alpha) != 1.0:
        raise RuntimeError(f"one edge got a weight of {float(alpha)}")
