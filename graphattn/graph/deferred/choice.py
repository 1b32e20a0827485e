"""Edges chosen by a call, as one call of one head, or as a mask of the possible edges.

Node ``(b H + h) T + t`` is target ``t`` of head ``h`` in example ``b``.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...operands import Inputs, Outputs
from .. import runs as _runs
from ..edges import Edges
from ..graph import AttentionGraph
from ..listed import listed
from ..part_biases import PartBiases, places_of

_MOST_UNPLANNED = 1 << 26  # 1 GiB of edges, of which a backend may refuse to make a list
#: The edges that queries (B, T, H, D) and keys (B, S, H_kv, D) choose.
Choose = Callable[[Tensor, Tensor], AttentionGraph]


class EdgesOfCall(AttentionGraph):
    """Edges that one call runs on: the search for another backend's plan takes longer than it saves."""

    _only_backends = ("edges", "message_passing")


def as_one_head(
    choose: Choose,
    union: Callable[[], AttentionGraph],
    inputs: Inputs,
) -> tuple[AttentionGraph, Inputs]:
    """The chosen edges, and the call whose nodes are those of all heads of all examples.

    A score bias of the edges of ``union``, all that may be chosen, becomes one of the chosen edges.
    """
    T, heads = inputs.query.shape[-3:-1]
    S, kv_heads = inputs.key.shape[-3:-1]
    query, key, value = (one_batch(x) for x in (inputs.query, inputs.key, inputs.value))
    edges = choose(query, key)
    if inputs.score_bias is not None:
        parts: Any = inputs.score_bias
        if not isinstance(parts, PartBiases):
            parts = PartBiases({union(): parts})
        lead = inputs.query.shape[:-3]
        inputs = replace(inputs, score_bias=_bias_of(edges, parts, lead, heads))
    if kv_heads != heads:
        copy = torch.arange(len(query) * heads, device=edges.device).repeat_interleave(T)
        by = (copy // (heads // kv_heads) - copy) * S
        edges = with_sources_moved(edges, by, len(query) * kv_heads * S)
    query, key, value = (x.transpose(1, 2).reshape(-1, 1, x.shape[-1]) for x in (query, key, value))
    if edges.device.type == "cpu" and edges.num_edges <= _MOST_UNPLANNED:
        edges = EdgesOfCall(edges.edges, edges.name, edges.device)
    return edges, replace(inputs, query=query, key=key, value=value)


def _bias_of(
    edges: AttentionGraph,
    parts: PartBiases,
    lead: torch.Size,
    heads: int,
) -> Tensor:
    """The bias (E', 1) of the edges of a call from those of parts of all that may be chosen."""
    source, target = edges.edge_index
    total: Tensor | None = None
    for part, bias in parts.parts.items():
        copy = target // max(1, part.num_targets)
        S = max(1, part.num_sources)
        places, found = places_of(part, target - copy * part.num_targets, source % S)
        at = (copy // heads * part.num_edges + places) * heads + copy % heads
        (read,) = torch.nonzero(found, as_tuple=True)
        flat = bias.expand(*lead, part.num_edges, heads).reshape(-1)
        nothing = flat.new_zeros(edges.num_edges)
        numbers = nothing.index_copy(0, read, flat.index_select(0, at[read]))
        if total is None:
            total = numbers
        else:
            total = total + numbers
    assert total is not None
    return total[:, None]


def of_all_heads(outputs: Outputs, inputs: Inputs) -> Outputs:
    """The outputs (..., T, H, D_v) of a call from those of :func:`as_one_head`."""
    *lead, T, heads, _ = inputs.query.shape

    def nodes_first(x: Tensor) -> Tensor:
        return x.reshape(*lead, heads, T, x.shape[-1]).transpose(-2, -3)

    lse = outputs.lse
    if lse is not None:
        lse = nodes_first(lse.reshape(-1, 1)).squeeze(-1)
    return Outputs(nodes_first(outputs.output), None, lse)


def one_batch(x: Tensor) -> Tensor:
    """(B, N, H, D) of (..., N, H, D)."""
    return x.reshape(math.prod(x.shape[:-3]), *x.shape[-3:])


def chosen_edges(choose: Choose, union: AttentionGraph, query: Tensor, key: Tensor) -> Tensor:
    """True where an edge of ``union``, which may be chosen, is chosen: bool (..., E, H)."""
    *lead, T, heads, _ = query.shape
    source, target = choose(one_batch(query), one_batch(key)).edge_index.to(query.device)
    shape = (math.prod(lead) * heads, union.num_edges)
    is_chosen = torch.zeros(shape, dtype=torch.bool, device=query.device)
    sizes = (max(1, union.num_targets), max(1, union.num_sources))
    is_chosen[target // max(1, T), places_of(union, target % sizes[0], source % sizes[1])[0]] = True
    return is_chosen.reshape(*lead, heads, is_chosen.shape[-1]).transpose(-1, -2)


class TransformedChoice(torch.autograd.Function):
    """:func:`chosen_edges` under ``torch.func``, outside whose transforms it runs; no gradient."""

    @staticmethod
    def forward(choose: Choose, union: AttentionGraph, query: Tensor, key: Tensor) -> Tensor:
        return chosen_edges(choose, union, query, key)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None, None]:
        return None, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        return None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        choose: Choose,
        union: AttentionGraph,
        *operands: Tensor,
    ) -> tuple[Tensor, int]:
        batched = []
        for x, dim in zip(operands, in_dims[2:], strict=True):
            if dim is None:
                batched.append(x.expand(info.batch_size, *x.shape))
            else:
                batched.append(x.movedim(dim, 0))
        return TransformedChoice.apply(choose, union, *batched), 0


def with_sources_moved(graph: AttentionGraph, by: Tensor, num_sources: int) -> AttentionGraph:
    """The graph whose target ``t`` reads the source ``s + by[t]`` in place of ``s``."""
    T = graph.num_targets
    name = graph.name
    if not graph.is_rule:
        source, target = graph.edge_index
        edges: Edges = listed(
            target, source + by[target], T, num_sources, has_repeats=graph.has_repeated_edges
        )
        return AttentionGraph(edges, name, graph.device)
    rows = graph.edges.rows(torch.arange(T))
    by = by.cpu()
    moved = _runs.Runs(rows.row, rows.lo + by[rows.row], rows.hi + by[rows.row])
    edges = Edges(T, num_sources, lambda target: _runs.chosen(moved, target))
    return AttentionGraph(edges, name, graph.device)
