"""Positional encodings of the nodes of a graph, to be added to their features: PyG's transforms."""

import numpy as np
import torch
from torch import Tensor

from ..graph import AttentionGraph, need_graph, need_nodes, need_square
from ..graph.like import GraphLike
from ..graph.limits import refuse_over
from ..graph.modes import outside_modes, without_autocast
from ..graphs.arguments import whole
from ..plans.edge_tensors import EdgeTensors
from ..pyg import AddLaplacianEigenvectorPE, AddRandomWalkPE, Data


def random_walk_pe(graph: AttentionGraph, walk_length: int) -> Tensor:
    r"""The probability that a random walk returns to its start after 1, 2, ..., ``walk_length``
    steps.

    .. math:: p_{n, k} = (R^k)_{nn}, \qquad R_{st} = 1 / \mathrm{outdegree}(s) \text{ if } s \to t

    Args:
        graph: A square graph without repeated edges; walks follow its edges, self-loops included.
        walk_length: k, steps.

    Returns:
        (N, walk_length), float32 as PyG has it, on the graph's device.

    Raises:
        GraphError: If the graph is not square or repeats an edge.

    Source: Dwivedi et al. 2022 (RWPE), by PyG's ``AddRandomWalkPE``. Theirs is
    undirected.

    Example:
        >>> from graphattn.graphs import sliding_window
        >>> path = sliding_window(3, 3, causal=False).without_self_loops()
        >>> random_walk_pe(path, 4)
        tensor([[0.0000, 0.5000, 0.0000, 0.5000],
                [0.0000, 1.0000, 0.0000, 1.0000],
                [0.0000, 0.5000, 0.0000, 0.5000]])
    """
    walk_length = whole(walk_length, "walk_length", 1)
    data = _data(graph)
    if data.num_nodes == 0:
        return torch.zeros(0, walk_length, device=graph.device)
    with without_autocast(graph.device.type):
        return AddRandomWalkPE(walk_length, attr_name="pe")(data).pe


def relative_walk_pe(
    along: AttentionGraph, steps: int, graph: AttentionGraph | EdgeTensors
) -> Tensor:
    r"""The probabilities that walks of 0, 1, ..., ``steps - 1`` steps lead from target to source,
    for each edge.

    .. math:: p_{ts} = (I, M, M^2, \dots, M^{K-1})_{ts}, \qquad M_{ts} = 1 / \mathrm{outdegree}(t) \text{ if } t \to s

    Args:
        along: A square graph without repeated edges, whose edges the walks follow: the data's.
        steps: K.
        graph: The graph of attention, of the same nodes, such as ``ga.graphs.full(N)``; or a shard
            of one.

    Returns:
        (E, K), float64, in the edge order of ``graph``: features of its edges, for layers with
        ``edge_dim=K``.

    Raises:
        GraphError: If a graph is not square, ``along`` repeats an edge, or their nodes differ.

    Source: Ma et al. 2023 (GRIT), section 3.1 (RRWP). *What differs:* theirs are of all pairs.

    Example:
        >>> from graphattn.graphs import full, sliding_window
        >>> path = sliding_window(3, 3, causal=False).without_self_loops()
        >>> relative_walk_pe(path, 3, full(3))[:3]  # from the first node to all
        tensor([[1.0000, 0.0000, 0.5000],
                [0.0000, 1.0000, 0.0000],
                [0.0000, 0.0000, 0.5000]], dtype=torch.float64)
    """
    steps = whole(steps, "steps", 1)
    data = _data(along)
    if isinstance(graph, GraphLike):
        graph = graph._whole_graph
    need_graph(graph, "relative_walk_pe")
    need_nodes(graph, "graph, as along,", data.num_nodes, data.num_nodes)
    refuse_over(
        8 * data.num_nodes**2, f"walks between {data.num_nodes:,} nodes", "use smaller batches"
    )
    degree = along.out_degree.clamp(min=1).double()
    size = (data.num_nodes, data.num_nodes)
    step = torch.sparse_coo_tensor(
        along.edge_index, 1 / degree[along.source], size, check_invariants=False
    )
    place = graph.target, graph.source
    power = torch.eye(data.num_nodes, dtype=torch.float64, device=along.device)
    result = [power[place]]
    for _ in range(steps - 1):
        power = torch.sparse.mm(step, power)
        result.append(power[place])
    return torch.stack(result, 1)


@outside_modes
def laplacian_eigenvector_pe(graph: AttentionGraph, k: int) -> Tensor:
    r"""The eigenvectors of the normalised Laplacian with the smallest eigenvalues, without the
    first.

    .. math:: L = I - D^{-1/2} A D^{-1/2}

    of the graph with symmetric edges and without self-loops.

    The sign of an eigenvector is arbitrary. Here the entry largest in magnitude (the first of
    equals) is positive, so that a graph gives the same numbers every time; relabelling nodes may
    flip a sign. Networks should not depend on it: flip signs at random in training,
    ``pe * (2 * torch.randint(2, (k,)) - 1)``. For equal eigenvalues any rotation of their
    eigenvectors is as valid, as is any mixture of the first ones of the components of a graph.

    Args:
        graph: A square graph without repeated edges.
        k: Number of eigenvectors, below the number of nodes.

    Returns:
        (N, k), float32, each column of length 1, on the graph's device.

    Raises:
        GraphError: If the graph is not square or repeats an edge, or has too few nodes.

    Source: Dwivedi et al. 2023, "Benchmarking Graph Neural Networks" (LapPE), by PyG's
    ``AddLaplacianEigenvectorPE``, whose signs are random.

    Example:
        >>> from graphattn.graphs import sliding_window
        >>> laplacian_eigenvector_pe(sliding_window(3, 3, causal=False), 1).abs().round(decimals=4)
        tensor([[0.7071],
                [0.0000],
                [0.7071]])
    """
    k = whole(k, "k", 1)
    data = _data(graph, both_ways=True)
    # eigenvectors, too
    data.edge_weight = torch.ones(data.num_edges, dtype=torch.float64, device=graph.device)
    n = data.num_nodes
    whole(k, "k", 1, below=n, of=", the number of nodes")
    start = np.random.default_rng(0).standard_normal(n)  # for ARPACK, which is random by default
    transform = AddLaplacianEigenvectorPE(k, attr_name="pe", is_undirected=True, v0=start)
    device = graph.device
    if k == n - 1:  # all of them, more than ARPACK computes
        transform.SPARSE_THRESHOLD = n + 1
    with torch.random.fork_rng(devices=[]):
        pe = transform(data.cpu()).pe
    top = pe.abs() >= pe.abs().amax(0) * (1 - 1e-4)
    sign = pe.gather(0, top.to(torch.int8).argmax(0, keepdim=True)).sign()
    return (pe * sign).float().to(device)


def eigenvectors_of_each(graph: AttentionGraph, k: int, sizes: tuple[int, ...]) -> Tensor:
    """The first eigenvectors (N, k) of each graph of a batch, padded with zeros for a small one."""
    result = torch.zeros(graph.num_nodes, k, device=graph.device)
    first = 0
    for size in sizes:
        few = min(k, size - 1)
        if few > 0:
            if size == graph.num_nodes:
                piece = graph
            else:
                piece = graph.subgraph(range(first, first + size))
            result[first : first + size, :few] = laplacian_eigenvector_pe(piece, few)
        first += size
    return result


def with_random_signs(vectors: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Eigenvectors (N, k) times a sign for each graph of a batch and each of its k."""
    sign = torch.randint(2, (len(sizes), vectors.shape[1]), device=vectors.device) * 2 - 1
    return vectors * torch.repeat_interleave(sign, torch.tensor(sizes, device=sign.device), 0)


def _data(graph: AttentionGraph, both_ways: bool = False) -> Data:
    need_square(graph, "an encoding of walks")
    graph._need_set("an encoding of walks")
    if both_ways:
        edges = graph | graph.reverse()
    else:
        edges = graph
    return Data(edge_index=edges.edge_index, num_nodes=graph.num_nodes)
