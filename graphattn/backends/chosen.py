"""Attention along chosen edges: the graphs of all heads of all examples side by side as one graph,
or a bias.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.chosen import Chosen, with_sources_moved
from ..kernels.modes import plain_operations_only
from .request import Inputs, Outputs


def as_one(graph: Chosen, inputs: Inputs) -> tuple[AttentionGraph, Inputs]:
    """A call of one head on the chosen edges: head ``h`` of example ``b`` has the nodes
    ``(b H + h) T + t``.
    """
    (T, H), (S, kv_heads) = inputs.query.shape[-3:-1], inputs.key.shape[-3:-1]
    query, key, value = (_one_batch(x) for x in (inputs.query, inputs.key, inputs.value))
    edges = graph.edges(query, key)
    if kv_heads != H:
        copy = torch.arange(len(query) * H, device=edges.device).repeat_interleave(T)
        edges = with_sources_moved(
            edges, (copy // (H // kv_heads) - copy) * S, len(query) * kv_heads * S
        )
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

    if outputs.lse is None:
        lse = None
    else:
        lse = nodes_first(outputs.lse.reshape(-1, 1)).squeeze(-1)
    return Outputs(nodes_first(outputs.output), None, lse)


def as_bias_of_edges(graph: Chosen, inputs: Inputs) -> Inputs:
    """The same call on ``graph.union()``, with a bias of -inf on the edges that are not chosen."""
    if plain_operations_only():
        choose = _Choice.apply
    else:
        choose = chosen_edges
    is_chosen = choose(graph, inputs.query, inputs.key)
    bias = inputs.score_bias
    if bias is None:
        bias = inputs.query.new_zeros((), dtype=inputs.request().statistics)
    return replace(inputs, score_bias=bias.where(is_chosen, -torch.inf))


def chosen_edges(graph: Chosen, query: Tensor, key: Tensor) -> Tensor:
    """True where an edge of ``graph.union()`` is chosen, bool (..., E, H)."""
    *lead, T, H, _ = query.shape
    S = graph.num_sources
    may = graph.union()._listed().to(query.device)
    source, target = graph.edges(_one_batch(query), _one_batch(key)).edge_index.to(query.device)
    place = may.order[torch.searchsorted(may.key, target % max(1, T) * S + source % max(1, S))]
    is_chosen = torch.zeros(
        math.prod(lead) * H, may.source.numel(), dtype=torch.bool, device=query.device
    )
    is_chosen[target // max(1, T), place] = True
    return is_chosen.reshape(*lead, H, is_chosen.shape[-1]).transpose(-1, -2)


class _Choice(torch.autograd.Function):
    """:func:`chosen_edges` under ``torch.func``: numbers are read outside its transforms, and pass
    no gradient.
    """

    @staticmethod
    def forward(graph: Chosen, query: Tensor, key: Tensor) -> Tensor:
        return chosen_edges(graph, query, key)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        return None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        return None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], graph: Chosen, *operands: Tensor
    ) -> tuple[Tensor, int]:
        query, key = (
            x.movedim(dim, 0) if dim is not None else x.expand(info.batch_size, *x.shape)
            for x, dim in zip(operands, in_dims[1:], strict=True)
        )
        return _Choice.apply(graph, query, key), 0


def reads_edges(inputs: Inputs, weights: bool, backend: str) -> bool:
    """True if the call needs tensors of edges, all heads at once, a backend of dense products, or
    is transformed.
    """
    parts: tuple[Any, ...] = (inputs.score_bias, inputs.edge_attr, inputs.score, inputs.normalize)
    if plain_operations_only() or weights or backend in ("dense", "tiles"):
        return True
    return any(part is not None for part in parts)
