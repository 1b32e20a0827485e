"""Features of edges that are added to keys and to values, in a call of the operator."""

from dataclasses import replace

from torch import Tensor

from ..errors import OptionError, ShapeError
from ..graph.like import GraphLike
from ..kernels.plain.sums import gather
from ..operands import Inputs
from .check import check


def with_edge_terms(
    inputs: Inputs, graph: GraphLike, edge_key: Tensor | None, edge_value: Tensor | None
) -> Inputs:
    """The inputs of a call, whose keys and values have terms (..., E, H, D) of edges.

    A kernel reads one tensor of edges. Of two, the term of the keys is a bias,
    :math:`\\lambda \\langle q_t, e_{ts} \\rangle`.

    Raises:
        ShapeError: If a term has another shape, or values have not the width of keys.
        OptionError: If there are two terms and a softcap, which bounds the score with its term.
    """
    if edge_key is not None:
        edge_key = _of_heads("edge_key", edge_key, inputs, graph)
    if edge_value is not None:
        edge_value = _of_heads("edge_value", edge_value, inputs, graph)
    bias = inputs.score_bias
    edge_to = "value"
    term = edge_value
    if edge_value is None:
        edge_to = "key"
        term = edge_key
    elif edge_key is not None:
        if inputs.softcap is not None:
            raise OptionError(
                "softcap bounds scores with edge_key, which a call beside edge_value does not have; "
                "leave one of the three out"
            )
        of_keys = _products(inputs, graph, edge_key)
        bias = of_keys if bias is None else bias + of_keys
    operands = (inputs.query, inputs.key, inputs.value)
    numbers = (inputs.scale, inputs.softcap, inputs.dropout_p)
    return replace(check(*operands, graph, bias, *numbers, graph.of_edges(term)), edge_to=edge_to)


def _products(inputs: Inputs, graph: GraphLike, edge_key: Tensor) -> Tensor:
    """The scaled products (..., E, H) of queries and terms (..., E, H * D) of keys."""
    _, queries = graph.ends(inputs.key.flatten(-2), inputs.query.flatten(-2))
    of_edges = gather(queries, graph._of_whole.target, -2) * edge_key
    heads = inputs.query.shape[-2:]
    return inputs.scale * of_edges.unflatten(-1, heads).to(inputs.statistics).sum(-1)


def _of_heads(name: str, x: Tensor, inputs: Inputs, graph: GraphLike) -> Tensor:
    """Features (..., E, H * D) of edges, in order, from (..., E, H or H_kv, D)."""
    heads, width = inputs.query.shape[-2:]
    kv_heads = inputs.key.shape[-2]
    if inputs.value.shape[-1] != width:
        raise ShapeError(
            f"{name} needs values of the width of keys, {width}, got {inputs.value.shape[-1]}"
        )
    shape = (graph.num_edges, heads, width)
    fits = isinstance(x, Tensor) and x.dim() > 2 and x.shape[-2] in (heads, kv_heads)
    if not fits or x.shape[-1] != width:
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(f"{name} must be a tensor (..., {shape[0]}, {heads}, {width}), got {got}")
    if x.shape[-2] != heads:
        x = x.repeat_interleave(heads // kv_heads, -2)
    if x.shape[-3] != shape[0]:
        raise ShapeError(
            f"{name} must be a tensor (..., {shape[0]}, {heads}, {width}) in the graph's edge "
            f"order, got {tuple(x.shape)}"
        )
    return x.flatten(-2)
