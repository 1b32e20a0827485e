"""The biases of Graphormer: by the path along another graph between a source and a target."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import check_shape, width
from ...errors import GraphError, ShapeError
from ...graph import AttentionGraph, PerExample, need_nodes
from ...graph.graph import need_graph
from ...graph.like import GraphLike
from ...graph.part_biases import places_of
from ...plans.whole import csr_by_source
from .constant import of_edges
from .table import EdgeTypeBias, rows_of

_AT_ONCE = 256  # sources whose paths are searched together


class ShortestPathBias(nn.Module):
    r"""A learned bias for each length of the shortest path from source to target, as in Graphormer,
    and for the edges on it.

    .. math:: b_{ts} = \mathrm{table}[\min(d(s, t), d_{\max})]
              + \frac{1}{N} \sum_{n=1}^{N} W_n \, a_{e_n}, \qquad N = \min(d(s, t), \mathrm{max\_edges})

    The layer reads along one graph (in Graphormer a full one) and paths run along another, the
    molecule's bonds, whose features a are those of the edges :math:`e_1, e_2, ...` of the path, counted from the target.

    Args:
        num_heads: H.
        max_distance: The longest path with a row of its own; longer ones share it.
        edge_dim: F, width of the features of ``along``'s edges; none by default.
        max_edges: Edges of a path that are read, from the target on.
        virtual_node: True if node 0 of the layer's graph is none of ``along``, whose node ``i`` is
            ``i + 1``: its edges share a row.

    Attributes:
        table: An :class:`EdgeTypeBias` of ``max_distance + 2`` rows, and one more with a virtual
            node: for unreachable pairs, and for the virtual node.
        weight: (max_edges, F, H), with ``edge_dim``.

    Source: Ying et al. 2021, sections 3.1.2 and 3.1.3, equations 6 and 7, and their code: of
    several shortest paths that by nodes of low numbers (Floyd-Warshall), and W of a dense matrix for each place.

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

    def __init__(
        self,
        num_heads: int,
        max_distance: int = 20,
        *,
        edge_dim: int | None = None,
        max_edges: int = 5,
        virtual_node: bool = False,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.max_distance = width(max_distance, "max_distance")
        self.virtual_node = virtual_node
        self.table = EdgeTypeBias(self.max_distance + 2 + virtual_node, num_heads)
        self.max_edges = width(max_edges, "max_edges")
        self.weight: nn.Parameter | None = None
        if edge_dim is not None:
            size = (self.max_edges, width(edge_dim, "edge_dim"), num_heads)
            self.weight = nn.Parameter(nn.init.trunc_normal_(torch.empty(size), std=0.02))

    def forward(
        self,
        graph: GraphLike,
        along: AttentionGraph | PerExample,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Biases (E, H) in the edge order of ``graph``.

        Args:
            graph: The graph of the layer, square, or one for each example.
            along: The edges that paths follow, from source to target, between the same nodes; an
                undirected one is two. Of examples, one for each, or one for all. Lengths are cached
                with ``graph``, so that one graph object serves many calls.
            edge_attr: Features (E_along, F) of the edges of ``along``, in its order, example after
                example; with ``edge_dim``.

        Raises:
            GraphError: If a graph is not square, or their nodes differ.
            ShapeError: If features have another shape.
        """
        if edge_attr is not None and self.weight is None:
            raise ShapeError(
                "edge_attr has features of paths, and this bias no weights of them; pass edge_dim="
            )
        length = self._of_examples(graph, along, _lengths)
        rows = torch.where(length < 0, self.max_distance - length, length)
        rows = torch.where(length < 0, rows, length.clamp(max=self.max_distance))
        bias = self.table.rows(rows)
        if self.weight is None:
            return bias
        return bias + self._of_paths(graph, along, edge_attr, length)

    def lengths(self, graph: GraphLike, along: AttentionGraph | PerExample) -> Tensor:
        """The length of the shortest path for each edge of ``graph``, int64 (E,); -1 without a
        path, -2 of the virtual node; a copy.
        """
        return self._of_examples(graph, along, _lengths).clone()

    def paths(self, graph: GraphLike, along: AttentionGraph | PerExample) -> Tensor:
        """The numbers of ``along``'s edges on each path, int64 (E, max_edges), from the target on;
        -1 beyond its end; a copy.
        """
        return self._of_examples(graph, along, _paths, self.max_edges).clone()

    def _of_examples(self, graph: GraphLike, along: Any, make: Any, *arguments: int) -> Tensor:
        """Numbers of edges, cached for each example; those of edges count on."""
        options = (self.virtual_node, *arguments)
        device = self.table.weight.device
        if not isinstance(graph, PerExample):
            need_graph(along, "along")
            return of_edges(graph, make, along, *options, device=device)
        bonds = (along,) * len(graph)
        if isinstance(along, PerExample):
            bonds = along.graphs
        if len(bonds) != len(graph):
            raise GraphError(
                f"along must have {len(graph)} graphs, one for each example, got {len(bonds)}"
            )
        parts = []
        first = 0
        for one, bond in zip(graph.graphs, bonds, strict=True):
            need_graph(bond, "along")
            numbers = of_edges(one, make, bond, *options, device=device)
            if arguments:
                numbers = torch.where(numbers < 0, numbers, numbers + first)
            parts.append(numbers)
            if isinstance(along, PerExample):
                first += bond.num_edges
        return torch.cat(parts)

    def _of_paths(self, graph: GraphLike, along: Any, edge_attr: Any, length: Tensor) -> Tensor:
        """The means (E, H) of the products of features on each path."""
        assert self.weight is not None
        paths = self._of_examples(graph, along, _paths, self.max_edges)
        shape = (along.num_edges, self.weight.shape[1])
        check_shape(edge_attr, "edge_attr", shape, "a row for each edge of along")
        products = torch.einsum("ef,nfh->neh", edge_attr, self.weight)
        products = nn.functional.pad(products, (0, 0, 0, 1))  # a row of zeros beyond a path's end
        place = torch.where(paths < 0, shape[0], paths)
        place = place + (shape[0] + 1) * torch.arange(len(self.weight), device=place.device)
        total = rows_of(products.flatten(0, 1), place).sum(-2)
        return total / length.clamp(1, len(self.weight))[:, None]

    def extra_repr(self) -> str:
        text = f"max_distance={self.max_distance}"
        if self.weight is not None:
            text += f", edge_dim={self.weight.shape[1]}, max_edges={self.weight.shape[0]}"
        if self.virtual_node:
            text += ", virtual_node=True"
        return text


def _ends(
    graph: AttentionGraph,
    along: AttentionGraph,
    virtual: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The sources and targets of a graph's edges as nodes of ``along``, and which edges have both."""
    n = along.num_targets
    need_nodes(along, "along", n, n)
    argument = f"graph, of the nodes of along{' beside the virtual one' * virtual},"
    need_nodes(graph, argument, n + virtual, n + virtual)
    source = graph.source.cpu() - int(virtual)
    target = graph.target.cpu() - int(virtual)
    (inner,) = torch.nonzero((source >= 0) & (target >= 0), as_tuple=True)
    return source[inner], target[inner], inner


def _lengths(graph: AttentionGraph, along: AttentionGraph, virtual: bool) -> Tensor:
    source, target, inner = _ends(graph, along, virtual)
    lengths = torch.full((graph.num_edges,), -2)
    lengths[inner] = _between(csr_by_source(along), source, target)
    return lengths.to(graph.device)


def _paths(graph: AttentionGraph, along: AttentionGraph, virtual: bool, most: int) -> Tensor:
    source, target, inner = _ends(graph, along, virtual)
    paths = torch.full((graph.num_edges, most), -1)
    before = _before(csr_by_source(along), source, target)
    place = target
    for step in range(most):
        previous = before(place)
        number, is_edge = places_of(along, place.to(along.device), previous.to(along.device))
        is_edge = is_edge.cpu() & (previous >= 0)
        paths[inner, step] = torch.where(is_edge, number.cpu(), -1)
        place = torch.where(is_edge, previous, place)
    return paths.to(graph.device)


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


def _before(matrix: Any, source: Tensor, target: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from nodes on the paths from each ``source`` to each ``target`` to those before
    them; -1 before the source, and without a path.
    """
    from scipy.sparse.csgraph import connected_components, floyd_warshall  # slow to import

    part = torch.from_numpy(connected_components(matrix, connection="weak")[1]).to(torch.int64)
    order = torch.argsort(part, stable=True)
    size = torch.bincount(part)
    stop = size.cumsum(0)
    place = torch.argsort(order) - (stop - size)[part]  # of its component
    area = (size * size).cumsum(0) - size * size
    tables = []
    for first, last in zip((stop - size).tolist(), stop.tolist(), strict=True):
        nodes = order[first:last].numpy()
        alone = matrix[nodes][:, nodes]
        _, before = floyd_warshall(alone, unweighted=True, return_predecessors=True)
        known = torch.from_numpy(before).to(torch.int64)
        tables.append(torch.where(known < 0, -1, order[first:last][known.clamp(min=0)]).flatten())
    table = torch.cat([*tables, torch.full((1,), -1)])

    def of_nodes(node: Tensor) -> Tensor:
        component = part[source]
        row = area[component] + place[source] * size[component]
        is_joined = component == part[node]
        return table[torch.where(is_joined, row + place[node], len(table) - 1)]

    return of_nodes
