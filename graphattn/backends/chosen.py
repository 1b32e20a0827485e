"""Attention along chosen edges: the graphs of all heads of all examples side by side as one graph, or a bias."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.chosen import Chosen, with_sources_moved
from .request import Inputs, Outputs


def as_one(graph: Chosen, inputs: Inputs) -> tuple[AttentionGraph, Inputs]:
    """A call of one head on the chosen edges: head ``h`` of example ``b`` has the nodes ``(b H + h) T + t``."""
    (T, H), (S, kv_heads) = inputs.query.shape[-3:-1], inputs.key.shape[-3:-1]
    query, key, value = (_one_batch(x) for x in (inputs.query, inputs.key, inputs.value))
    edges = graph.edges(query, key)
    if kv_heads != H:
        copy = torch.arange(len(query) * H, device=edges.device).repeat_interleave(T)
        edges = with_sources_moved(edges, (copy // (H // kv_heads) - copy) * S, len(query) * kv_heads * S)
    query, key, value = (x.transpose(1, 2).reshape(-1, 1, x.shape[-1]) for x in (query, key, value))
    return edges, replace(inputs, query=query, key=key, value=value)


def _one_batch(x: Tensor) -> Tensor:
    """(B, N, H, D) of (..., N, H, D)."""
    return x.reshape(math.prod(x.shape[:-3]), *x.shape[-3:])


def of_heads(outputs: Outputs, inputs: Inputs) -> Outputs:
    """The outputs of the call of :func:`as_one`, (..., T, H, D_v)."""
    *lead, T, H, _ = inputs.query.shape

    def nodes_first(x: Tensor) -> Tensor:
        return x.reshape(*lead, H, T, x.shape[-1]).transpose(-2, -3)

    lse = None if outputs.lse is None else nodes_first(outputs.lse.reshape(-1, 1)).squeeze(-1)
    return Outputs(nodes_first(outputs.output), None, lse)


def as_bias_of_edges(graph: Chosen, inputs: Inputs) -> Inputs:
    """The same call on ``graph.union()``, with a bias of -inf on the edges that are not chosen."""
    *lead, T, H, _ = inputs.query.shape
    S, may = graph.num_sources, graph.union()._listed().to(inputs.query.device)
    query, key = _one_batch(inputs.query), _one_batch(inputs.key)
    source, target = graph.edges(query, key).edge_index.to(inputs.query.device)
    copy = target // max(1, T)
    place = may.order[torch.searchsorted(may.key, target % max(1, T) * S + source % max(1, S))]
    given = inputs.score_bias
    wide = inputs.request().statistics if given is None else given.dtype
    bias = torch.full((len(query) * H, may.source.numel()), -torch.inf, dtype=wide, device=inputs.query.device)
    bias[copy, place] = 0.0
    bias = bias.reshape(*lead, H, bias.shape[-1]).transpose(-1, -2)
    return replace(inputs, score_bias=bias if given is None else torch.where(bias == 0, given, bias))


def reads_edges(inputs: Inputs, weights: bool, backend: str) -> bool:
    """True if the call needs tensors of edges, all heads at once, or a backend of dense products."""
    parts: tuple[Any, ...] = (inputs.score_bias, inputs.edge_attr, inputs.score, inputs.normalize)
    return weights or backend in ("dense", "tiles") or any(part is not None for part in parts)
