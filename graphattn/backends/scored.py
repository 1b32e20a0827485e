"""Attention in two steps, for any score and normalisation: scores of edges, then weighted sums.

The two operators of :mod:`graphattn.kernels.pairs.operator` compute product scores and all sums;
additive scores have their own operator (:mod:`graphattn.kernels.additive.operator`). Any other function
of an edge is called on blocks of edges, and again in the backward, so that nothing of shape (E, H,
D) is held.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..graph import AttentionGraph
from ..graph.modes import without_autocast
from ..kernels.plain.sums import gather
from ..operands import Inputs, Outputs
from ..plans.cache import planned
from ..plans.edge_tensors import EdgeTensors
from ..plans.grouped import by_source, by_target, ends
from .request import flat_batch, flat_batch_of_edges, with_lead

BLOCK = 1 << 17  # least edges of a block, for scores that are any function
PER_NODE = 8  # least edges per node, too: the backward of a block writes gradients of all nodes


class AdditiveForm(NamedTuple):
    """The operands of an additive score.

    Head ``g * K + k`` has ``sum_d weight[g, k, d] f(x_t[g, d] + y_s[g, d] + z_e[g, d]) + constant``.

    Several groups may share one of ``y``: ``g`` then reads number ``g // (G / G_kv)``.
    """

    x: Tensor  # (..., T, G, D)
    y: Tensor  # (..., S, G_kv, D)
    z: Tensor | None  # (..., E, G, D)
    weight: Tensor  # (G, K, D)
    slope: float  # >= 0, of the leaky ReLU f; or NaN where f is tanh
    constant: Tensor | None = None  # (G * K,)


def scored_run(graph: AttentionGraph | EdgeTensors, inputs: Inputs) -> Outputs:
    """Output, weights and, for softmax, lse."""
    lead = inputs.query.shape[:-3]
    heads = inputs.query.shape[-2]
    statistics = inputs.statistics
    target, source, *nodes = _of_nodes(graph, inputs.query.device)
    dtype = _dtype_of_nodes(inputs)
    query, key = (flat_batch(x.to(dtype)) for x in (inputs.query, inputs.key))
    bias, attr = (
        flat_batch_of_edges(x, lead, statistics) for x in (inputs.score_bias, inputs.edge_attr)
    )
    from ..kernels.pairs.operator import (  # registering operators is slow
        edge_products,
        edge_weights,
    )

    if bias is None:
        removed = None
    else:
        removed = (bias == -torch.inf).expand(-1, -1, heads)
    if inputs.score is None:
        score = edge_products(query, key, removed, *nodes)
        if attr is not None and inputs.edge_to != "value":
            features = _features(attr, inputs)
            edges = _of_edges(graph, inputs.query.device)
            feature_queries = features.feature_queries(query.to(statistics))
            score = score + edge_products(feature_queries, features.rows, removed, *edges)
        score = score * inputs.scale
    else:
        if inputs.edge_to == "value":
            score_attr = None
        else:
            score_attr = attr
        form = getattr(inputs.score, "as_additive", lambda *_: None)(query, key, score_attr)
        if form is None:
            score = _in_blocks(inputs, removed, target, source)
        else:
            score = _additive(form, dtype, query.shape[0], nodes)
    score = inputs.bounded(score, bias, removed)
    lse = None
    if inputs.normalize is None:
        alpha, lse = edge_weights(score, *nodes[:4])
        alpha = with_lead(alpha, lead)
        lse = with_lead(lse, lead)
    else:
        score = with_lead(score, lead)
        alpha = inputs.normalized(
            score, target, source.clone(), inputs.edge_attr, graph.num_targets
        )
    total = total_of(graph, inputs)
    return Outputs(total(alpha), alpha, lse, total)


def _dtype_of_nodes(inputs: Inputs) -> torch.dtype:
    """The dtype that nodes are read in: kernels on a GPU widen halves in registers."""
    if inputs.query.is_cuda:
        return inputs.query.dtype
    return inputs.statistics


def total_of(graph: AttentionGraph | EdgeTensors, inputs: Inputs) -> Callable[[Tensor], Tensor]:
    """A function from weights (..., E, H), before dropout, to the output of a call."""
    from ..kernels.pairs.operator import edge_sum

    device = inputs.query.device
    lead = inputs.query.shape[:-3]
    nodes = _of_nodes(graph, device)[2:]
    attr = flat_batch_of_edges(inputs.edge_attr, lead, inputs.statistics)
    removed = None
    if inputs.score_bias is not None:
        bias = flat_batch_of_edges(inputs.score_bias, lead, inputs.score_bias.dtype)
        removed = (bias == -torch.inf).expand(-1, -1, inputs.query.shape[-2])  # type: ignore[union-attr]
    features = None
    if attr is not None and inputs.edge_to != "key":
        features = _features(attr, inputs)
        edges = _of_edges(graph, device)
    dtype = inputs.statistics
    if features is None:  # else a second sum is added
        dtype = _dtype_of_nodes(inputs)
    value = flat_batch(inputs.value.to(dtype))

    def total(weights: Tensor) -> Tensor:
        with without_autocast(weights.device.type):
            alpha = torch.nn.functional.dropout(weights, inputs.dropout_p)
            alpha = alpha.reshape(value.shape[0], *weights.shape[-2:])
            output = edge_sum(alpha, value, value.shape[2], False, removed, *nodes)
            if features is not None:
                rows = features.rows
                summed = edge_sum(alpha, rows, rows.shape[2], False, removed, *edges)
                output = output + features.projected(summed)
            return with_lead(output, lead).to(inputs.query.dtype)

    return total


class _Features(NamedTuple):
    """Edge features as rows of sources: a query's product with one is that with its projection."""

    # (B, E, 1, F), or (B, E, H, D) where they are added to key and value without a projection
    rows: Tensor
    weight: Tensor | None  # (H, D, F)

    def feature_queries(self, query: Tensor) -> Tensor:
        """Queries of features: a query for products with the rows."""
        if self.weight is None:
            return query
        return torch.einsum("bthd,hdf->bthf", query, self.weight)

    def projected(self, summed: Tensor) -> Tensor:
        """Sums of the rows (B, T, H, F) as those of their projections (B, T, H, D)."""
        if self.weight is None:
            return summed
        return torch.einsum("bthf,hdf->bthd", summed, self.weight)


def _features(attr: Tensor, inputs: Inputs) -> _Features:
    batch = inputs.query.shape[:-3].numel()
    heads = inputs.query.shape[-2]
    attr = attr.expand(batch, *attr.shape[1:])
    if inputs.edge_weight is None:
        return _Features(attr.unflatten(-1, (heads, -1)), None)
    weight = inputs.edge_weight.to(attr.dtype)
    weight = weight.repeat_interleave(heads // max(1, weight.shape[0]), 0)
    return _Features(attr.unsqueeze(2), weight)


def _additive(form: AdditiveForm, dtype: torch.dtype, batch: int, nodes: list[Tensor]) -> Tensor:
    """Scores (B, E, H), in float32 or wider; the operands are read in ``dtype``."""
    from ..kernels.additive.operator import edge_additive

    # numbers that the score computed in float32 are not rounded
    dtype = torch.promote_types(dtype, form.x.dtype)
    x, y, weight = (a.to(dtype) for a in (form.x, form.y, form.weight))
    if form.z is None:
        z = None
    else:
        z = form.z.to(dtype).expand(batch, *form.z.shape[1:])
    total = edge_additive(x, y, z, weight, form.slope, *nodes)
    if form.constant is None:
        return total
    return total + form.constant.to(total.dtype)


def _in_blocks(inputs: Inputs, removed: Tensor | None, target: Tensor, source: Tensor) -> Tensor:
    """Scores (B, E, H) of any function; the backward computes several blocks of edges again."""
    statistics = inputs.statistics
    lead = inputs.query.shape[:-3]
    query = inputs.query.to(statistics)
    key = inputs.key.to(statistics)
    if inputs.edge_attr is None or inputs.edge_to == "value":
        attr = None
    else:
        attr = inputs.edge_attr.to(statistics)
    # A score may read the keys of other heads: an edge is dropped only if all heads lack it.
    if removed is None:
        absent_edges = None
    else:
        absent_edges = removed.all(-1)[..., None, None]
    if absent_edges is not None:
        if absent_edges.shape[0] == 1:
            absent_edges = absent_edges[0]
        else:
            absent_edges = absent_edges.reshape(*lead, *absent_edges.shape[1:])
    size = max(BLOCK, PER_NODE * max(query.shape[-3], key.shape[-3]))

    def block(query: Tensor, key: Tensor, attr: Tensor | None, start: int) -> Tensor:
        edges = slice(start, start + size)
        of_target = gather(query, target[edges], -3)
        of_source = gather(key, source[edges], -3)
        of_source = of_source.repeat_interleave(query.shape[-2] // max(1, key.shape[-2]), -2)
        if absent_edges is not None:
            of_source = of_source.masked_fill(absent_edges[..., edges, :, :], 0.0)
        if attr is not None:
            attr = attr[..., edges, :]
        assert inputs.score is not None
        return inputs.score(of_target, of_source, attr)

    starts = range(0, max(1, target.numel()), size)
    compute: Callable[..., Tensor] = block
    if len(starts) > 1:
        compute = partial(checkpoint, block, use_reentrant=False)
    scores = torch.cat([compute(query, key, attr, start) for start in starts], -2)
    return scores.reshape(lead.numel(), *scores.shape[-2:])


def _of_nodes(edges: AttentionGraph | EdgeTensors, device: torch.device) -> tuple[Tensor, ...]:
    """Target and source of each edge, int64 (E,), and the operators' edges by target and source."""
    if isinstance(edges, AttentionGraph):
        return _layout(edges, device)
    ptr, target, place, order = edges._by_source
    return (
        edges.target,
        edges.source,
        *edges._by_target,
        ptr,
        target,
        edges._by_target[2][place.long()],
        order,
    )


def _of_edges(edges: AttentionGraph | EdgeTensors, device: torch.device) -> tuple[Tensor, ...]:
    """The layout with every edge as a source of its own, which holds its features."""
    if isinstance(edges, AttentionGraph):
        return _edges_layout(edges, device)
    return _as_sources(edges._by_target, edges.target)


@planned
def _layout(graph: AttentionGraph, device: torch.device) -> tuple[Tensor, ...]:
    from ..kernels.additive import operator as edge_additive  # noqa: F401 (compiled code finds its operators registered)
    from ..kernels.pairs import operator as edge_pairs  # noqa: F401 (compiled code finds its operators registered)

    targets = by_target(graph, device)
    sources = by_source(graph, device)
    return *ends(graph, device), *targets, *sources._replace(edge=targets.edge[sources.edge.long()])


@planned
def _edges_layout(graph: AttentionGraph, device: torch.device) -> tuple[Tensor, ...]:
    return _as_sources(by_target(graph, device), ends(graph, device)[0])


def _as_sources(targets: tuple[Tensor, ...], target: Tensor) -> tuple[Tensor, ...]:
    ptr, _, edge, order = targets
    edge_ptr = torch.arange(edge.numel() + 1, device=edge.device)
    return ptr, edge, edge, order, edge_ptr, target, edge_ptr[:-1], edge_ptr[:-1]
