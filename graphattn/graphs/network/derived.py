"""Graphs made from other structures: edges as nodes, hyperedges, types of nodes."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import arguments
from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.advice import no_graph
from ...graph.expression import builder
from ...graph.forms import rectangle, stretches
from ...graph.limits import refuse_over
from ...graph.listed import checked, listed
from ..arguments import call, flag, integers, whole


@builder
def line_graph(
    graph: AttentionGraph, *, directed: bool = True, non_backtracking: bool = False
) -> AttentionGraph:
    r"""The edges of a graph as nodes: an edge reads the edges that lead into it.

    .. math::
        \mathcal{N}(u \to v) = \{ w \to u \} \text{ (directed)}, \quad
        \mathcal{N}(\{u, v\}) = \{ e \ne \{u, v\} : e \cap \{u, v\} \ne \emptyset \}

    Args:
        graph: A square graph. Node i is its i-th edge, in the order of ``graph.edge_index``.
        directed: ``False`` takes a symmetric graph as undirected: node i is the i-th edge with
            source <= target, and reads the edges that share an end with it, but not itself.
        non_backtracking: ``u -> v`` does not read ``v -> u``.
    Returns:
        Listed edges by target, then by source; the sum over the nodes of in-degree times
        out-degree.
    Raises:
        GraphError: If ``graph`` is not square, or not symmetric with ``directed=False``, if
            ``non_backtracking`` is set with ``directed=False``, or the edges would take more than 4
            GiB at 32 bytes each, 134 million edges (a hub joins all pairs of its edges).
    Source:
        ``networkx.line_graph``; Chen et al. 2019 (LGNN) for the non-backtracking one, the graph of
        directed message passing on molecules.
    Example:
        >>> from graphattn.graphs import circulant
        >>> ring = circulant(4, (1, -1))  # each edge goes on, or back
        >>> line_graph(ring).num_edges, line_graph(ring, non_backtracking=True).num_edges
        (16, 8)
        >>> line_graph(ring, directed=False).equals(circulant(4, (1, -1)).relabel([0, 1, 3, 2]))
        True
    """
    if not isinstance(graph, AttentionGraph):
        raise no_graph(graph, "graph must be an AttentionGraph")
    graph._need_square("line_graph")
    directed = flag(directed, "directed")
    non_backtracking = flag(non_backtracking, "non_backtracking")
    into = graph.in_degree
    out = graph.out_degree
    if not directed:
        into = out = into + out
    refuse_over(
        32 * int((into * out).sum()),
        f"line_graph of {graph!r}",
        "take a subgraph, or drop its hubs",
    )
    source, target = graph.edge_index.cpu().numpy()
    if directed:
        joined = _incidence(source, graph.num_nodes) @ _incidence(target, graph.num_nodes).T
    else:
        if non_backtracking:
            raise GraphError(
                "non_backtracking needs directed=True: an undirected edge has no reverse"
            )
        if not graph.equals(graph.reverse()):
            raise GraphError(
                f"directed=False needs a symmetric graph, got {graph!r}; join it with "
                "graph.reverse()"
            )
        source, target = source[source <= target], target[source <= target]
        ends = _incidence(source, graph.num_nodes) + _incidence(target, graph.num_nodes)
        joined = ends @ ends.T
    reader, read = joined.nonzero()
    if not directed:
        keep = reader != read
    elif non_backtracking:
        keep = source[read] != target[reader]
    else:
        keep = np.ones(len(reader), dtype=bool)
    key = torch.sort(
        torch.from_numpy(reader[keep].astype(np.int64) * len(source) + read[keep])
    ).values
    key = key.to(graph.device)
    E = max(1, len(source))
    name = call("line_graph", graph, directed=directed, non_backtracking=non_backtracking)
    edges = listed(key // E, key % E, len(source), len(source))
    return AttentionGraph(edges, name, graph.device)


def _incidence(node: np.ndarray, num_nodes: int) -> Any:
    """The sparse matrix (edges, nodes) with a one at the node of each edge."""
    from scipy.sparse import csr_array

    return csr_array(
        (np.ones(len(node), dtype=np.int64), (np.arange(len(node)), node)),
        shape=(len(node), num_nodes),
    )


@builder
def hypergraph(
    node: Tensor, hyperedge: Tensor, num_nodes: int | None = None, num_hyperedges: int | None = None
) -> AttentionGraph:
    r"""Every hyperedge reads its nodes; in ``reverse()`` nodes read their hyperedges.

    .. math:: \mathcal{N}(h) = \{ s : s \in h \}

    Args:
        node: (M,) integers, the node of each membership.
        hyperedge: (M,) integers, its hyperedge. PyG's ``hyperedge_index`` is both:
            ``hypergraph(*hyperedge_index)``.
        num_nodes: S, one more than the largest node by default.
        num_hyperedges: T, one more than the largest hyperedge by default.
    Returns:
        Listed edges in the order given, bipartite, on the device of ``node``. ``h.reverse() @ h``
        joins the nodes that share a hyperedge.
    Raises:
        GraphIndexError: If a number is outside its range.
        GraphError: If the two differ in length, or a membership is repeated.
    Source:
        Chien et al. 2022 (AllSet): nodes to hyperedges, then hyperedges to nodes.
    Example:
        >>> h = hypergraph(torch.tensor([0, 1, 2, 2, 3]), torch.tensor([0, 0, 0, 1, 1]))
        >>> print(h)
        AttentionGraph(hypergraph([0, 1, 2, 2, ...], [0, 0, 0, 1, ...]): 4 sources -> 2 targets, 5 edges, density 0.625, listed)
        █ █ █ ·
        · · █ █
    """
    nodes = integers(node, "node")
    hyperedges = integers(hyperedge, "hyperedge")
    if nodes.numel() != hyperedges.numel():
        raise GraphError(
            f"node and hyperedge must be equally long, got {nodes.numel()} and {hyperedges.numel()}"
        )
    if num_nodes is None:
        S = _largest(nodes)
    else:
        S = whole(num_nodes, "num_nodes")
    if num_hyperedges is None:
        T = _largest(hyperedges)
    else:
        T = whole(num_hyperedges, "num_hyperedges")
    edges = checked(torch.stack((nodes, hyperedges.to(nodes.device))), T, S, "keep")
    if edges.has_repeats:
        pair = edges.edge_index[
            :, int(edges.order[1:][edges.key[1:] == edges.key[:-1]].min())
        ].tolist()
        raise GraphError(
            f"node {pair[0]} is in hyperedge {pair[1]} more than once: repeated edges; drop the "
            "copies: "
            "torch.unique(torch.stack((node, hyperedge)), dim=1)"
        )
    name = call("hypergraph", nodes, hyperedges, num_nodes=num_nodes, num_hyperedges=num_hyperedges)
    return AttentionGraph(edges, name, nodes.device)


def _largest(index: Tensor) -> int:
    if index.numel():
        return int(index.max()) + 1
    return 0


@builder
def between_types(types: Tensor, source: int, target: int) -> AttentionGraph:
    r"""Every node of one type reads every node of another.

    .. math:: \mathcal{N}(t) = \{ s : \tau_s = a \text{ and } \tau_t = b \}

    Args:
        types: (N,) integers, the type of each node.
        source: a, the type of the sources.
        target: b, the type of the targets.
    Returns:
        A rule on the device of ``types``. ``g & between_types(...)`` are the edges of g of that
        relation; :class:`graphattn.graphs.Relations` keeps several apart.
    Raises:
        GraphError: If ``types`` is not integer (N,).
    Source:
        Hu et al. 2020 (Heterogeneous Graph Transformer): edges typed by the types of their ends and
        their own.
    Example:
        >>> print(between_types(torch.tensor([0, 0, 1, 1, 1]), source=0, target=1))
        AttentionGraph(between_types([0, 0, 1, 1, ...], 0, 1): 5 nodes, 6 edges, density 0.24, rule)
        · · · · ·
        · · · · ·
        █ █ · · ·
        █ █ · · ·
        █ █ · · ·
    """
    kinds = integers(types, "types")
    a = arguments.whole(source, "source", error=GraphError)
    b = arguments.whole(target, "target", error=GraphError)
    read, reading = (stretches(torch.nonzero(kinds.cpu() == kind).flatten()) for kind in (a, b))
    N = kinds.numel()
    return AttentionGraph(
        rectangle(N, N, reading, read), call("between_types", kinds, a, b), kinds.device
    )
