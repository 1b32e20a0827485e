"""networkx graphs. By default their arrows are the flow of information."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..arguments import one_of
from ..errors import GraphError
from ..graph import AttentionGraph, need_graph
from ..graph.edge_index import from_edge_index

if TYPE_CHECKING:
    import networkx as nx


def from_networkx(
    G: "nx.Graph",
    *,
    arrows: str = "flow",
    sources: Iterable[Hashable] | None = None,
    targets: Iterable[Hashable] | None = None,
    duplicates: str = "error",
    name: str | None = None,
    return_nodes: bool = False,
) -> Any:
    """A graph from a networkx graph; node ``i`` is the ``i``-th of ``G.nodes``, for any labels.

    Edges come in the order of ``G.edges``. An edge of an undirected graph becomes two consecutive
    ones, in both directions (a self-loop one). Attributes of nodes and edges are not read. With
    ``arrows="flow"`` the mask is the transpose of ``nx.to_numpy_array(G)``.

    Args:
        G: A Graph, DiGraph, MultiGraph or MultiDiGraph.
        arrows: ``"flow"``: information flows along ``u -> v``, so ``u`` is the source.
            ``"attends"``: ``u`` attends to ``v``, so ``v`` is the source.
        sources: For two sets of nodes, with ``targets``: the labels of the sources, in order. Of an
            undirected edge the directions from ``sources`` to ``targets`` are used.
        targets: The labels of the targets, in order.
        duplicates: Treatment of parallel edges of a multigraph: ``"error"``, ``"keep"`` each, or
            ``"merge"`` them.
        name: The name that ``repr`` shows; that of ``G`` by default.
        return_nodes: Also return the labels, ``list(G.nodes)``.
    Returns:
        Listed edges; with ``return_nodes=True`` the pair (graph, labels).
    Raises:
        GraphError: If an edge is repeated and ``duplicates="error"``, or an edge does not lead from
            ``sources`` to ``targets``.
    Example:
        >>> import networkx as nx
        >>> graph, nodes = from_networkx(nx.DiGraph([("a", "b"), ("b", "c")]), return_nodes=True)
        >>> nodes, graph.edge_index.tolist()
        (['a', 'b', 'c'], [[0, 1], [1, 2]])
    """

    one_of(arrows, "arrows", ("flow", "attends"), GraphError)
    nodes = list(G.nodes)
    if (sources is None) != (targets is None):
        raise GraphError(
            "sources and targets must be given together; give the labels of both, or of neither"
        )
    if sources is None or targets is None:
        source_labels = nodes
        target_labels = nodes
    elif return_nodes:
        raise GraphError(
            "return_nodes excludes sources and targets, whose labels are the nodes; leave it out"
        )
    else:
        source_labels = _known(sources, G, "sources")
        target_labels = _known(targets, G, "targets")
    edges = _edges(G, arrows, source_labels, target_labels)
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    if not name:
        name = str(G.name)
    if not name:
        name = "networkx"
    S = len(source_labels)
    T = len(target_labels)
    graph = from_edge_index(index, S, T, duplicates=duplicates, name=name)
    if return_nodes:
        return (graph, nodes)
    return graph


def _known(labels: Iterable[Hashable], G: "nx.Graph", side: str) -> list[Hashable]:
    labels = list(labels)
    unknown = next((label for label in labels if label not in G), None)
    if unknown is not None:
        raise GraphError(f"{side} must be nodes of G, got {unknown!r}")
    if len(set(labels)) != len(labels):
        raise GraphError(f"{side} must be distinct, got a node twice")
    return labels


def _edges(
    G: "nx.Graph", arrows: str, sources: Sequence[Hashable], targets: Sequence[Hashable]
) -> list[tuple[int, int]]:
    """Pairs (source, target) in the order of ``G.edges``."""
    number_of_source = {label: i for i, label in enumerate(sources)}
    number_of_target = {label: i for i, label in enumerate(targets)}
    edges: list[tuple[int, int]] = []
    for ends in G.edges():
        if arrows == "attends":
            source, target = reversed(ends)
        else:
            source, target = ends
        ways = [(source, target)]
        if not G.is_directed() and source != target:
            ways.append((target, source))
        pairs = [
            (number_of_source[a], number_of_target[b])
            for a, b in ways
            if a in number_of_source and b in number_of_target
        ]
        if not pairs:
            raise GraphError(
                f"edges must lead from sources to targets, got {source!r} to {target!r}; drop it "
                "from G, exchange sources and targets, or pass the other arrows "
                '("flow" or "attends")'
            )
        edges.extend(pairs)
    return edges


def to_networkx(
    graph: AttentionGraph, *, arrows: str = "flow", nodes: Sequence[Hashable] | None = None
) -> "nx.DiGraph | nx.MultiDiGraph":
    """A networkx DiGraph with the same arrows, or a MultiDiGraph for repeated edges.

    In a cell that repeats, edges have the attribute ``offset``.

    Args:
        graph: Any graph. If it is not square, source ``i`` is the node ``("s", i)`` with
            ``bipartite=0``, and target ``j`` is ``("t", j)`` with ``bipartite=1``.
        arrows: As in :func:`from_networkx`.
        nodes: Labels of the nodes of a square graph, as :func:`from_networkx` returned them;
            ``0 .. N - 1`` by default.
    Raises:
        GraphError: If a rule's edges would take more than 4 GiB, or ``nodes`` are not N distinct
            labels.
    Example:
        >>> from graphattn.convert import from_mask
        >>> list(to_networkx(from_mask([[False, True], [False, True]])).edges)
        [(1, 0), (1, 1)]
    """
    need_graph(graph, "to_networkx")
    import networkx as nx

    one_of(arrows, "arrows", ("flow", "attends"), GraphError)
    G: Any = nx.DiGraph()
    if graph.has_repeated_edges:
        G = nx.MultiDiGraph()
    G.name = graph.name
    if graph.is_square:
        labels: list[Any] = list(range(graph.num_nodes))
        if nodes is not None:
            labels = list(nodes)
        if not len(labels) == len(set(labels)) == graph.num_nodes:
            raise GraphError(
                f"nodes must be {graph.num_nodes} distinct labels, got {len(labels)} "
                f"({len(set(labels))} distinct)"
            )
        sources: list[Any] = labels
        targets: list[Any] = labels
        G.add_nodes_from(labels)
    else:
        if nodes is not None:
            raise GraphError(
                "nodes needs a square graph, got one with two sets of nodes; use nx.relabel_nodes"
            )
        sources = [("s", i) for i in range(graph.num_sources)]
        targets = [("t", j) for j in range(graph.num_targets)]
        G.add_nodes_from(sources, bipartite=0)
        G.add_nodes_from(targets, bipartite=1)
    pairs = ((sources[s], targets[t]) for s, t in graph.edge_index.t().tolist())
    if arrows == "attends":
        pairs = ((target, source) for source, target in pairs)
    if graph.offsets is None:
        G.add_edges_from(pairs)
        return G
    for (start, end), offset in zip(pairs, graph.offsets.tolist(), strict=True):
        G.add_edge(start, end, offset=tuple(offset))
    return G
