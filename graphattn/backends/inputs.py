"""Arguments of attention as inputs of a backend: shapes, dtypes, devices and ranges are checked."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import GraphError, OptionError, ShapeError
from ..graph import AttentionGraph, Chosen
from ..graph.advice import no_graph, of_other_size
from ..graph.like import GraphLike
from ..graph.part_biases import PartBiases
from ..operands import Inputs
from ..plans.cache import known
from .place_bias import PlaceBias, by_place, is_made

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_NUMBERS = frozenset((float, int, type(None)))


def inputs_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: GraphLike,
    score_bias: Tensor | dict[GraphLike, Tensor | None] | Callable[..., Any] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    edge_attr: Tensor | None = None,
    edge_weight: Tensor | None = None,
    score: Callable[..., Tensor] | None = None,
    normalize: Callable[..., Tensor] | None = None,
) -> Inputs:
    """The arguments of :func:`attention` as inputs for a backend; an error if they do not fit.

    ``edge_weight`` (H_kv, D, F) times ``edge_attr`` (..., E, F) is added to the key and to the
    value of each edge. ``score`` and ``normalize`` come from the layer.
    """
    if not isinstance(graph, GraphLike) or graph.is_open:
        raise no_graph(graph, "graph must be an AttentionGraph")
    if torch._C._is_any_autocast_enabled():
        query, key, value = _under_autocast(query, key, value)
    operands = (query, key, value)
    numbers = (scale, softcap, dropout_p)
    read = partial(_of_nodes, *operands, graph, *numbers)
    facts = _facts(*operands, *numbers)
    if facts is None:
        lead, scale, softcap = read()
    else:
        lead, scale, softcap = known(graph, "checked calls", facts, read)
    bias: Any = None
    if score_bias is not None or edge_attr is not None:
        lead, bias = _of_edges(operands, graph, score_bias, edge_attr, edge_weight)
    if lead is not None:
        query, key, value = (
            x if x.shape[:-3] == lead else x.expand(*lead, *x.shape[-3:])
            for x in (query, key, value)
        )
    return Inputs(
        query,
        key,
        value,
        scale,
        softcap,
        bias,
        dropout_p,
        edge_attr,
        edge_weight,
        score,
        normalize,
    )


def _of_edges(
    operands: tuple[Tensor, Tensor, Tensor],
    graph: GraphLike,
    score_bias: Any,
    edge_attr: Tensor | None,
    edge_weight: Tensor | None,
) -> tuple[torch.Size, Any]:
    """The leading dimensions of operands with tensors of edges, and the bias (..., E, H or 1)."""
    query = operands[0]
    biases: list[Tensor] = []
    if is_made(score_bias):
        score_bias = by_place(score_bias, graph)
    if isinstance(score_bias, dict):
        parts = biases_of_parts(score_bias, query, graph)
        biases += parts.parts.values()
        score_bias = parts
        if not (isinstance(graph, Chosen) and parts.parts):
            score_bias = parts.on(graph.union())
    elif isinstance(score_bias, PlaceBias):
        if not score_bias.fits(query):
            bias_of_edges(score_bias.on(graph.union()), query, graph)  # says what does not
    elif score_bias is not None:
        score_bias = bias_of_edges(graph.of_edges(score_bias), query, graph)
        _check_copies("score_bias", score_bias, operands, graph)
        biases.append(score_bias)
    if edge_attr is not None:
        _check_storage("edge_attr", edge_attr, query)
        _check_copies("edge_attr", edge_attr, operands, graph)
    if edge_weight is not None:
        _check_storage("edge_weight", edge_weight, query)
    return _common_lead(*operands, *biases, edge_attr), score_bias


def _kind(x: Tensor) -> tuple[Any, ...]:
    return x.shape, x.dtype, x.device, x.layout


def _facts(query: Tensor, key: Tensor, value: Tensor, *numbers: Any) -> tuple[Any, ...] | None:
    """The kind of a call, under which its graph caches the check.

    The next call of a kind costs one look-up. ``None`` if an operand may be invalid or symbolic.
    """
    if torch.compiler.is_compiling() or not type(query) is type(key) is type(value) is Tensor:
        return None
    if not _NUMBERS.issuperset(map(type, numbers)):
        return None
    try:
        return _kind(query), _kind(key), _kind(value), numbers
    except RuntimeError:  # a nested tensor has no shape
        return None


def _of_nodes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: GraphLike,
    scale: float | None,
    softcap: float | None,
    dropout_p: float,
) -> tuple[torch.Size | None, float, float | None]:
    """The leading dimensions (None if all operands have them), the scale and the softcap."""
    _check_tensors(query, key, value, graph)
    check_numbers(scale, softcap, dropout_p)
    lead = _common_lead(query, key, value)
    # torch's integers end at 2**63
    if softcap is not None:
        softcap = float(softcap)
    if scale is not None:
        scale = float(scale)
    else:
        scale = max(query.shape[-1], 1) ** -0.5
    if query.shape[:-3] == key.shape[:-3] == value.shape[:-3]:
        return None, scale, softcap
    return lead, scale, softcap


def check_numbers(scale: float | None, softcap: float | None, dropout_p: float) -> None:
    """Refuse a scale that is not finite, a softcap not above 0, a dropout outside [0, 1]."""
    numbers: dict[str, Any] = {"scale": scale, "softcap": softcap, "dropout_p": dropout_p}
    # None means a default, which needs no check
    if scale is None:
        numbers["scale"] = 1.0
    if softcap is None:
        numbers["softcap"] = 1.0
    for name, number in numbers.items():
        if isinstance(number, Tensor):  # float() would drop its gradient
            raise OptionError(f"{name} must be a number; multiply the query by a learned factor")
    if not -math.inf < numbers["scale"] < math.inf:
        raise OptionError(f"scale must be finite, got {scale}")
    if not 0 < numbers["softcap"] < math.inf:
        raise OptionError(f"softcap must be finite and > 0, got {softcap}; None means no cap")
    if not 0.0 <= dropout_p <= 1.0:
        raise OptionError(f"dropout_p must be in [0, 1], got {dropout_p}")


def _check_storage(name: str, x: Tensor, query: Tensor) -> None:
    """Refuse a tensor on another device than the query, whose memory a kernel would read."""
    if x.device != query.device:
        raise ShapeError(f"{name} is on {x.device} and query on {query.device}; move one of them")


def _under_autocast(*operands: Any) -> tuple[Any, ...]:
    """Query, key and value cast as autocast does for SDPA: all but float64 in its dtype."""
    query = operands[0]
    if not isinstance(query, Tensor):
        return operands
    device = query.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return operands
    cast: list[Any] = []
    for x in operands:
        if isinstance(x, Tensor) and x.device.type == device and x.dtype in FLOATS[:3]:
            cast.append(x.to(torch.get_autocast_dtype(device)))
        else:
            cast.append(x)
    return tuple(cast)


def _check_tensors(query: Tensor, key: Tensor, value: Tensor, graph: GraphLike) -> None:
    sides = (
        ("query", query, graph.num_targets, "targets"),
        ("key", key, graph.num_sources, "sources"),
    )
    for name, x, size, side in (*sides, ("value", value, graph.num_sources, "sources")):
        _check_storage(name, x, query)
        if x.dim() < 3:
            raise ShapeError(
                f"{name} must have shape (..., {side}, heads, width), got {tuple(x.shape)}"
            )
        if x.shape[-3] != size:
            raise ShapeError(
                f"{name} has {x.shape[-3]} nodes (shape {tuple(x.shape)}), but the graph has "
                f"{size} {side}; tensors are node-first: (..., nodes, heads, width)"
                f"{_heads_first(name, x, size)}{of_other_size(graph, x.shape[-3])}"
            )
        if x.dtype not in FLOATS or x.dtype != query.dtype:
            raise ShapeError(
                "query, key and value must be of one dtype, float16, bfloat16, float32 or float64 "
                f"(autocast keeps float64), got {name} of {x.dtype} and query of {query.dtype}"
            )
    if not graph.is_rule and graph.device != query.device:
        raise GraphError(
            f"the graph is on {graph.device} and query on {query.device}; use "
            "graph.to(query.device)"
        )
    if query.device.type == "meta":
        raise ShapeError(
            "query is on meta, whose tensors hold no numbers; move it to another device"
        )
    heads = query.shape[-2]
    kv_heads = key.shape[-2]
    if key.shape[-1] != query.shape[-1]:
        raise ShapeError(
            f"key and query must have the same width, got {key.shape[-1]} and {query.shape[-1]}"
        )
    if value.shape[-2] != kv_heads:
        raise ShapeError(
            f"value must have as many heads as key, got {value.shape[-2]} and {kv_heads}"
        )
    if heads != kv_heads * (heads // max(1, kv_heads)):
        raise ShapeError(
            f"the heads of query must be a multiple of those of key and value, got {heads} and "
            f"{kv_heads}"
        )


def _heads_first(name: str, x: Tensor, size: int) -> str:
    """Advice for rows as SDPA takes them, (..., heads, nodes, width)."""
    if x.shape[-2] != size:
        return ""
    axes = "-3, -2"
    if x.dim() == 4:
        axes = "1, 2"
    return (
        f". Heads first, as for torch's SDPA? Then pass {name}.transpose({axes}), and transpose "
        "the output back"
    )


def _common_lead(query: Tensor, key: Tensor, value: Tensor, *of_edges: Tensor | None) -> torch.Size:
    leads = [query.shape[:-3], key.shape[:-3], value.shape[:-3]]
    leads += [x.shape[:-2] for x in of_edges if x is not None]
    # one by one: torch.compile makes a constant of a size that is hashed
    if all(lead == leads[0] for lead in leads):
        return leads[0]
    try:
        # broadcast_shapes imports sympy: seconds
        first, *_ = torch.broadcast_tensors(*(query.new_empty(()).expand(lead) for lead in leads))
        return first.shape
    except RuntimeError:
        shapes = ", ".join(str(tuple(lead)) for lead in leads)
        raise ShapeError(
            "the leading dimensions of query, key, value (and of score_bias and edge_attr) do "
            f"not broadcast: {shapes}"
        ) from None


def biases_of_parts(
    score_bias: dict[GraphLike, Tensor | None],
    query: Tensor,
    graph: GraphLike,
) -> PartBiases:
    """The biases of parts of a graph, or an error for those that do not fit it."""
    union = graph.union()
    if not isinstance(union, AttentionGraph):
        raise ShapeError(
            f"score_bias as a dict has biases of parts of an AttentionGraph, got {graph!r}"
        )
    parts = {}
    for part, bias in score_bias.items():
        numbers: Any = bias
        if callable(bias):
            numbers = bias(part)
        if numbers is not None:
            parts[part.union()] = bias_of_edges(part.of_edges(numbers), query, part)
    return PartBiases(parts).within(union)


def bias_of_edges(score_bias: Tensor, query: Tensor, graph: GraphLike) -> Tensor:
    """The bias as (..., E, H or 1), or an error if it does not fit."""
    E = graph.num_edges
    heads = query.shape[-2]
    if not score_bias.is_floating_point():
        raise ShapeError(
            f"score_bias must be floating point, got {score_bias.dtype}; to mask edges, pass "
            "graph & from_mask(mask)"
        )
    _check_storage("score_bias", score_bias, query)
    shape = tuple(score_bias.shape)
    if shape == (E,):
        return score_bias.unsqueeze(-1)
    pairs = (graph.num_targets, graph.num_sources)
    is_matrix = shape[-2:] == pairs and (len(shape) == 2 or shape[-3] in (1, heads))
    if shape[-2:] in ((E, 1), (E, heads)):
        if is_matrix and graph.num_sources == 1 and score_bias.numel() > E:
            raise ShapeError(
                f"score_bias {shape} is a matrix (..., {heads}, {E}, 1) of all pairs or numbers "
                f"(..., {E}, 1) of {E} edges: pass graph.edge_values(score_bias) of a matrix, or "
                f"numbers (..., {E}, {heads}) of each head"
            )
        return score_bias
    if is_matrix:
        if isinstance(graph, AttentionGraph) and graph._lists_all_pairs:
            numbers = graph.edge_values(score_bias)
            if len(shape) == 2:
                return numbers.unsqueeze(-1)
            return numbers
        raise ShapeError(
            f"score_bias must be of the {E} edges, got a matrix of all {pairs} pairs; pass "
            "graph.edge_values(score_bias)"
        )
    shapes = f"({E},), ({E}, {heads}) or (..., {E}, {heads})"
    of_one = graph._edges_per_example
    if of_one is not None:
        B = len(graph._example_graphs)
        shapes = f"({E},), ({E}, {heads}), (..., {E}, {heads}) or ({B}, {of_one}, {heads})"
    raise ShapeError(
        f"score_bias must have shape {shapes} for {E} edges and {heads} heads, in the graph's edge "
        f"order; got {shape}"
    )


def _check_copies(name: str, x: Tensor, operands: tuple[Tensor, ...], graph: GraphLike) -> None:
    """Refuse the edges of all examples once for each example, whose outputs would be B x B."""
    B = len(graph._example_graphs)
    copies = x.shape[:-3]
    if not copies or copies[-1] != B or graph._example_graphs == (graph,):
        return
    if x.dim() - 2 > max(operand.dim() - 3 for operand in operands):
        raise ShapeError(
            f"{name} must hold the edges of example after example, (E, F), (..., {B}, E_b, F) of as "
            f"many edges each, or (..., E, F) for leading dimensions before the {B} examples; got "
            f"all {x.shape[-2]} edges for each of {B}"
        )
