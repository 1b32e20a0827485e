"""Graphs per head: one call split into several, each on the heads that share a graph, and joined
again.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ..graph import AttentionGraph, PerHead
from ..graph.modes import constant_result
from .request import Inputs, Outputs


def split(graph: PerHead, inputs: Inputs) -> Iterator[tuple[AttentionGraph, Inputs]]:
    """Each graph with its heads of the query, and their heads of key and value."""
    heads = inputs.query.shape[-2]
    kv_heads = inputs.key.shape[-2]
    weight = inputs.edge_weight
    for number, part, first, last in graph.groups(heads):
        chosen = heads_read(first, last, heads, kv_heads)
        attr = _of_edges(graph, number, inputs.edge_attr, slice(None))
        # added to the value as it is: H * D numbers, head after head
        if attr is not None and weight is None:
            attr = attr.unflatten(-1, (heads, -1))[..., first:last, :].flatten(-2)
        yield (
            part,
            replace(
                inputs,
                query=inputs.query[..., first:last, :],
                key=inputs.key[..., chosen, :],
                value=inputs.value[..., chosen, :],
                score_bias=_of_edges(graph, number, inputs.score_bias, slice(first, last)),
                edge_attr=attr,
                edge_weight=None if weight is None else weight[chosen],
            ),
        )


def heads_read(first: int, last: int, heads: int, kv_heads: int) -> list[int]:
    """The heads of key and value of the query's heads ``[first, last)``: one for each, or fewer
    where groups of equal size share one."""
    share = max(1, heads // max(1, kv_heads))
    read = range(first // share, -(-last // share))
    even = len(read) == 1 or (first % share == 0 and last % share == 0)
    if even:
        return list(read)
    return [head // share for head in range(first, last)]


def _of_edges(graph: PerHead, number: int, x: Tensor | None, heads: slice) -> Tensor | None:
    if x is None:
        return None
    return x.index_select(-2, _in_union(graph, number)[0].to(x.device))[
        ..., heads if x.shape[-1] > 1 else slice(None)
    ]


@constant_result  # in a tuple: torch.compile accepts a bare tensor from one call only
def _in_union(graph: PerHead, number: int) -> tuple[Tensor]:
    return (graph.in_union(number),)


def join(graph: PerHead, results: list[Outputs], heads: int) -> Outputs:
    """The outputs of the calls of :func:`split` as one; weights are in the edge order of
    ``graph.union()``.
    """
    output = torch.cat([result.output for result in results], -2)
    lse = [result.lse for result in results if result.lse is not None]
    alpha = None
    if all(result.alpha is not None for result in results):
        wide = [result.alpha for result in results if result.alpha is not None]
        numbers = [group.number for group in graph.groups(heads)]
        alpha = torch.cat(
            [_spread(graph, number, x) for number, x in zip(numbers, wide, strict=True)], -1
        )

    def total(weights: Tensor) -> Tensor:
        parts = []
        for (number, _, first, last), result in zip(graph.groups(heads), results, strict=True):
            own = _of_edges(graph, number, weights, slice(first, last))
            assert own is not None
            assert result.total is not None
            parts.append(result.total(own))
        return torch.cat(parts, -2)

    if any(result.total is None for result in results):
        return Outputs(output, alpha, torch.cat(lse, -1) if lse else None)
    return Outputs(output, alpha, torch.cat(lse, -1) if lse else None, total)


def _spread(graph: PerHead, number: int, alpha: Tensor) -> Tensor:
    """Weights (..., E_part, h) as (..., E, h), 0 on the edges of other heads."""
    empty = alpha.new_zeros(*alpha.shape[:-2], graph.num_edges, alpha.shape[-1])
    return empty.index_copy(-2, _in_union(graph, number)[0].to(alpha.device), alpha)


def as_bias(graph: PerHead, inputs: Inputs) -> Inputs:
    """The same call on ``graph.union()``, with a bias of -inf on the edges that a head lacks."""
    heads = inputs.query.shape[-2]
    given = inputs.score_bias
    if given is None:
        wide = inputs.request().statistics
    else:
        wide = given.dtype
    bias = torch.full((graph.num_edges, heads), -torch.inf, dtype=wide, device=inputs.query.device)
    for number, _, first, last in graph.groups(heads):
        bias[_in_union(graph, number)[0].to(bias.device), first:last] = 0.0
    return replace(
        inputs, score_bias=bias if given is None else torch.where(bias == 0, given, bias)
    )
