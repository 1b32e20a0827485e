"""Graphs made from other structures: hyperedges, types of nodes."""

import torch
from torch import Tensor

from ... import arguments
from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.forms import rectangle, stretches
from ...graph.listed import checked
from ..arguments import call, integers, whole


@builder
def hypergraph(
    node: Tensor,
    hyperedge: Tensor,
    num_nodes: int | None = None,
    num_hyperedges: int | None = None,
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
    if num_nodes is None:
        S = _largest(nodes)
    else:
        S = whole(num_nodes, "num_nodes")
    if num_hyperedges is None:
        T = _largest(hyperedges)
    else:
        T = whole(num_hyperedges, "num_hyperedges")
    edges = checked(torch.stack((nodes, hyperedges.to(nodes.device))), T, S, "error")
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
