"""Graphs of heads side by side: one call on them as a function of nodes of a disjoint union."""

from collections.abc import Callable

from torch import Tensor

from ..attention import attention
from ..graph import AttentionGraph, PerHead, disjoint_union


def side_by_side(graph: PerHead) -> tuple[Callable[[Tensor, Tensor, Tensor], Tensor], AttentionGraph]:
    """Attention on n graphs of heads as a function on their disjoint union, where each has its own nodes.

    Head ``h`` of copy ``i`` is head ``i * H + h`` of the call, so what the function must compute is plain attention.
    """
    n = len(graph.graphs)

    def heads_in_groups(x: Tensor) -> Tensor:  # (n * N, H, D) -> (N, n * H, D)
        return x.unflatten(0, (n, -1)).transpose(0, 1).flatten(1, 2)

    def attention_per_head(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = attention(heads_in_groups(query), heads_in_groups(key), heads_in_groups(value), graph)
        assert isinstance(output, Tensor)
        return output.unflatten(1, (n, -1)).transpose(0, 1).flatten(0, 1)

    return attention_per_head, disjoint_union(graph.graphs)
