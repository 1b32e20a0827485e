"""Line graphs: the edges of a graph as nodes."""

from typing import Any

import numpy as np
import torch

from ...errors import GraphError
from ...graph import AttentionGraph, need_square
from ...graph.deferred.expression import builder
from ...graph.limits import refuse_over
from ...graph.listed import listed
from ..arguments import call


@builder
def line_graph(
    graph: AttentionGraph,
    *,
    directed: bool = True,
    non_backtracking: bool = False,
) -> AttentionGraph:
    r"""The edges of a graph as nodes: an edge reads the edges that lead into it.

    .. math::
        \mathcal{N}(u \to v) = \{ w \to u \} \text{ (directed)}, \quad
        \mathcal{N}(\{u, v\}) = \{ e \ne \{u, v\} : e \cap \{u, v\} \ne \emptyset \}

    Args:
        graph: A square graph. Node i is its i-th edge, in the order of ``graph.edge_index``.
        directed: ``False`` takes a symmetric graph as undirected: node i is the i-th edge with
            source <= target, and reads the edges that share an end with it, but not itself.
        non_backtracking: ``u -> v`` does not read ``v -> u``; in a cell that repeats, it reads an
            edge from another image of v.
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
    need_square(graph, "line_graph")
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
        graph._need_no_images("line_graph(directed=False)")
        if not graph.equals(graph.reverse()):
            raise GraphError(
                f"directed=False needs a symmetric graph, got {graph!r}; join it with "
                "graph.reverse()"
            )
        keep = source <= target  # each undirected edge once
        source = source[keep]
        target = target[keep]
        ends = _incidence(source, graph.num_nodes) + _incidence(target, graph.num_nodes)
        joined = ends @ ends.T
    reader, read = joined.nonzero()
    if not directed:
        keep = reader != read
    elif non_backtracking:
        keep = source[read] != target[reader]
        if graph.images is not None:  # a walk to another image of its start turns nowhere back
            offsets = graph.images.offsets.cpu().numpy()
            keep |= (offsets[read] + offsets[reader]).any(1)
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
