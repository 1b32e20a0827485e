"""Features of edges that are added to keys and to values, or scored, in a call of the operator."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import OptionError, ShapeError
from ..graph.like import GraphLike
from ..kernels.plain.sums import gather
from ..operands import Inputs, of_every_edge
from .inputs import inputs_of


def with_score(
    inputs: Inputs, graph: GraphLike, score: Callable[..., Tensor], scale: float | None
) -> Inputs:
    """The inputs of a call with a score of its own, which reads its ``edge_attr`` if it has one.

    Raises:
        OptionError: If there is a scale, too.
    """
    if scale is not None:
        raise OptionError(
            f"scale={scale} requires the dot product; a score has its own factor "
            "(from_score_mod(..., scale=))"
        )
    if not callable(score):
        raise OptionError(f"score must be a function score(query, key, edge_attr), got {score!r}")
    features = getattr(score, "edge_attr", None)
    check_graph = getattr(score, "check_graph", None)
    if check_graph is not None:
        check_graph(graph)
    if features is not None:
        inputs = _with_term(inputs, graph, features.to(inputs.query.device), "key")
    return replace(inputs, score=partial(_checked, score), edge_to="key")


def _checked(
    score: Callable[..., Tensor], query: Tensor, key: Tensor, edge_attr: Tensor | None
) -> Tensor:
    return of_every_edge("score", score(query, key, edge_attr), query[..., 0])


def with_edge_terms(
    inputs: Inputs, graph: GraphLike, edge_key: Tensor | None, edge_value: Tensor | None
) -> Inputs:
    """The inputs of a call, whose keys and values have terms (..., E, H, H_kv or 1, D) of edges.

    A kernel reads one tensor of edges, for both if they are one. Of two, the term of the keys is a bias,
    :math:`\\lambda \\langle q_t, e_{ts} \\rangle`.

    Raises:
        ShapeError: If a term has another shape, or values have not the width of keys.
        OptionError: If there are two terms and a softcap, which bounds the score with its term.
    """
    inputs = inputs.with_tensors(graph.union())
    if edge_key is edge_value and edge_key is not None:
        term = _of_heads("edge_key", edge_key, inputs, graph)
        return _with_term(inputs, graph, term, "both")
    if edge_key is not None:
        edge_key = _of_heads("edge_key", edge_key, inputs, graph)
    if edge_value is not None:
        edge_value = _of_heads("edge_value", edge_value, inputs, graph)
    if edge_value is None:
        return _with_term(inputs, graph, edge_key, "key")
    if edge_key is None:
        return _with_term(inputs, graph, edge_value, "value")
    if inputs.softcap is not None:
        raise OptionError(
            "softcap bounds scores with edge_key, which a call beside edge_value does not have; "
            "leave one of the three out"
        )
    inputs = _with_term(inputs, graph, edge_key, "key")
    bias = _products(inputs, graph)
    if inputs.score_bias is not None:
        bias = bias + inputs.score_bias
    return _with_term(replace(inputs, score_bias=bias), graph, edge_value, "value")


def _with_term(
    inputs: Inputs,
    graph: GraphLike,
    term: Tensor | None,
    edge_to: str,
) -> Inputs:
    """The inputs with one term (..., E, H * D), whose leading dimensions query, key and value take.

    The bias, which is checked, stays as it is.
    """
    operands = (inputs.query, inputs.key, inputs.value)
    numbers = (inputs.scale, inputs.softcap, inputs.dropout_p)
    checked = inputs_of(*operands, graph, None, *numbers, term)
    return replace(checked, score_bias=inputs.score_bias, edge_to=edge_to)


def _products(
    inputs: Inputs,
    graph: GraphLike,
) -> Tensor:
    """The scaled products (..., E, H) of queries and terms (..., E, H * D) of keys."""
    assert inputs.edge_attr is not None
    heads = inputs.query.shape[-2:]
    terms = inputs.edge_attr.unflatten(-1, heads)
    if inputs.score_bias is not None:  # whose -inf removes edges, with a NaN in their terms
        removed = inputs.score_bias == -torch.inf
        terms = terms.masked_fill(removed.unsqueeze(-1), 0.0)
    _, queries = graph.ends(inputs.key.flatten(-2), inputs.query.flatten(-2))
    of_edges = graph.of_edges(gather(queries, graph.union().target, -2)).unflatten(-1, heads)
    return inputs.scale * (of_edges * terms).to(inputs.statistics).sum(-1)


def _of_heads(
    name: str,
    x: Any,
    inputs: Inputs,
    graph: GraphLike,
) -> Tensor:
    """Features (..., E, H * D) of edges, in order, from (..., E, H, H_kv or 1, D)."""
    heads, width = inputs.query.shape[-2:]
    if inputs.value.shape[-1] != width:
        raise ShapeError(
            f"{name} needs values of the width of keys, {width}, got {inputs.value.shape[-1]}"
        )
    shape = None
    if isinstance(x, Tensor):
        shape = tuple(x.shape)
        if x.dim() > 2 and x.shape[-2] in (1, heads, inputs.key.shape[-2]) and x.shape[-1] == width:
            if x.shape[-2] != heads:
                x = x.repeat_interleave(heads // x.shape[-2], -2)
            x = graph.of_edges(x.flatten(-2))
            if x.shape[-2] == graph.num_edges:
                return x
    got = shape or type(x).__name__
    raise ShapeError(
        f"{name} must be a tensor (..., {graph.num_edges}, {heads}, {width}) in the graph's edge "
        f"order, got {got}"
    )
