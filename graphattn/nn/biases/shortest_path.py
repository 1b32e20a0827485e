"""The bias of Graphormer: by the number of edges of another graph between a source and a target."""

from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import width
from ...errors import GraphError
from ...graph import AttentionGraph, PerExample
from ...graph.graph import need_graph
from ...graph.like import GraphLike
from ...plans.whole import csr_by_source
from .constant import of_edges
from .table import EdgeTypeBias

_AT_ONCE = 256  # sources whose paths are searched together


class ShortestPathBias(nn.Module):
    r"""A learned bias for each length of the shortest path from source to target, as in Graphormer.

    .. math:: b_{ts} = \mathrm{table}[\min(d(s, t), d_{\max})], \qquad
              b_{ts} = \mathrm{table}[d_{\max} + 1] \text{ if no path leads from } s \text{ to } t

    The layer reads along one graph (in Graphormer a full one) and paths run along another, the
    molecule's bonds.

    Args:
        num_heads: H.
        max_distance: The longest path with a row of its own; longer ones share it.

    Attributes:
        table: An :class:`EdgeTypeBias` of ``max_distance + 2`` rows; the last is for unreachable
            pairs.

    Source: Ying et al. 2021, section 3.1.2, equation 6. Their virtual node has a bias of its own: a
    row of an :class:`EdgeTypeBias`.

    Example:
        >>> import graphattn as ga
        >>> molecule = ga.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=4)
        >>> graph, bias = ga.graphs.full(4), ShortestPathBias(num_heads=2)
        >>> bias.lengths(graph, molecule).view(4, 4)
        tensor([[ 0,  1,  2, -1],
                [ 1,  0,  1, -1],
                [ 2,  1,  0, -1],
                [-1, -1, -1,  0]])
        >>> layer = ga.nn.GraphAttention(embed_dim=8, num_heads=2)
        >>> layer(torch.randn(4, 8), graph, score_bias=bias(graph, molecule)).shape
        torch.Size([4, 8])
    """

    def __init__(self, num_heads: int, max_distance: int = 20) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.max_distance = width(max_distance, "max_distance")
        self.table = EdgeTypeBias(self.max_distance + 2, num_heads)

    def forward(self, graph: GraphLike, along: AttentionGraph | PerExample) -> Tensor:
        """Biases (E, H) in the edge order of ``graph``.

        Args:
            graph: The graph of the layer, square, or one for each example.
            along: The edges that paths follow, from source to target, between the same nodes; an
                undirected one is two. Of examples, one for each, or one for all. Lengths are cached
                with ``graph``, so that one graph object serves many calls.

        Raises:
            GraphError: If a graph is not square, or their nodes differ.
        """
        length = self._cached_lengths(graph, along)
        rows = torch.where(length < 0, self.max_distance + 1, length.clamp(max=self.max_distance))
        return self.table.rows(rows)

    def lengths(self, graph: GraphLike, along: AttentionGraph | PerExample) -> Tensor:
        """The length of the shortest path for each edge of ``graph``, int64 (E,); -1 without a
        path; a copy.
        """
        return self._cached_lengths(graph, along).clone()

    def _cached_lengths(self, graph: GraphLike, along: Any) -> Tensor:
        if isinstance(graph, PerExample):
            bonds = (along,) * len(graph)
            if isinstance(along, PerExample):
                bonds = along.graphs
            if len(graph) != len(bonds):
                raise GraphError(
                    f"along must have a graph for each of {len(graph)} examples, got {len(bonds)}"
                )
            pairs = zip(graph.graphs, bonds, strict=True)
            return torch.cat([self._cached_lengths(*pair) for pair in pairs])
        need_graph(along, "along")
        return of_edges(graph, _lengths, along, device=self.table.weight.device)

    def extra_repr(self) -> str:
        return f"max_distance={self.max_distance}"


def _lengths(graph: AttentionGraph, along: AttentionGraph) -> Tensor:
    sizes = {graph.num_targets, graph.num_sources, along.num_targets, along.num_sources}
    if len(sizes) > 1:
        raise GraphError(
            f"graph and along must be square, of the same nodes; got {graph.num_sources} sources "
            "and "
            f"{graph.num_targets} targets, along which paths run between {along.num_sources} and "
            f"{along.num_targets}"
        )
    return _between(csr_by_source(along), graph.source.cpu(), graph.target.cpu()).to(graph.device)


def _between(matrix: Any, source: Tensor, target: Tensor) -> Tensor:
    """Lengths of shortest paths from each of ``source`` to each of ``target``, -1 without a path.

    Nodes are ordered by connected components, so that a batch of small graphs costs no more than
    its graphs.
    """
    from scipy.sparse.csgraph import connected_components, dijkstra  # slow to import

    num_nodes = matrix.shape[0]
    steps = torch.full_like(source, -1)
    part = torch.from_numpy(connected_components(matrix, connection="weak")[1]).to(torch.int64)
    part, order = torch.sort(part, stable=True)
    size = torch.bincount(part)
    # of its component, in the new order
    stop = size.cumsum(0)[part]
    start = (size.cumsum(0) - size)[part]
    matrix = matrix[order.numpy()][:, order.numpy()]
    place = torch.argsort(order)
    source = place[source]
    target = place[target]
    source, edge = torch.sort(source)
    for first in range(0, num_nodes, _AT_ONCE):
        last = min(first + _AT_ONCE, num_nodes)
        low, high = torch.searchsorted(source, torch.tensor([first, last])).tolist()
        chunk_edges = edge[low:high]
        far = target[edge[low:high]]
        left = int(start[first])
        right = int(stop[last - 1])
        inside = (far >= left) & (far < right)
        if not bool(inside.any()):
            continue
        rows = range(first - left, last - left)
        distance = torch.from_numpy(
            dijkstra(matrix[left:right, left:right], unweighted=True, indices=rows)
        )
        length = distance[source[low:high][inside] - first, far[inside] - left]
        steps[chunk_edges[inside]] = torch.where(length.isinf(), -1.0, length).to(torch.int64)
    return steps
