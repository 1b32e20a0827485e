"""Associative memories: spins on a graph, and the modern form, cross-attention."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import check_shape, floats, positive, real
from ..errors import GraphError, OptionError, ShapeError
from ..functional import AttentionOutput, attention
from ..graph import AttentionGraph, Pattern, need_graph
from ..graph.like import GraphLike
from ..graphs import full
from ..graphs.arguments import whole
from ..kernels.plain.sums import scatter_sum
from ..nn.blocks import EVERY
from ..plans.grouped import by_target


class Hopfield(nn.Module):
    r"""Spins of -1 and 1 on a graph, flipped by their neighbours' field along weighted edges.

    .. math:: s_t \leftarrow \mathrm{sign} \sum_{s \in \mathcal{N}(t)} J_{ts} \, s_s, \qquad
              E = -\tfrac{1}{2} \sum_{s \to t} J_{ts} \, s_t s_s

    If the field is 0 (up to rounding) the spin stays. If couplings are symmetric, flipping one spin
    at a time never raises the energy, and so ends. An Ising model without an external field has one
    coupling for all edges.

    Args:
        graph: A square graph without self-loops or repeated edges; a symmetric bond is two edges.
        coupling: J, float (E,) in the graph's edge order, or one number for all edges.

    Source: Hopfield 1982, "Neural networks and physical systems with emergent collective
    computational abilities". There spins are 0 and 1; with -1 and 1 and without thresholds, as in
    Amit et al. 1985.

    Example:
        >>> import torch, graphattn as ga
        >>> ring = ga.graphs.circulant(6, (1, 5))
        >>> ising = Hopfield(ring, 1.0)
        >>> state = torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0, 1.0])
        >>> ising.energy(state), ising.settle(state)
        (tensor(-2.), tensor([1., 1., 1., 1., 1., 1.]))
    """

    coupling: Tensor

    def __init__(self, graph: AttentionGraph, coupling: Tensor | float) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        need_graph(graph, "Hopfield")
        if (
            not graph.is_square
            or graph.has_repeated_edges
            or bool((graph.source == graph.target).any())
        ):
            raise GraphError(
                f"spins need a square graph without self-loops or repeated edges, got {graph!r}; "
                "see graph.without_self_loops()"
            )
        if not isinstance(coupling, Tensor):
            coupling = torch.full(
                (graph.num_edges,), real(coupling, "coupling"), device=graph.device
            )
        floats(coupling, "coupling", "(E,), one for each edge", 1)
        check_shape(coupling, "coupling", (graph.num_edges,), "one for each edge")
        self.graph = graph
        self.register_buffer("coupling", coupling)
        ptr, index, edge, _ = by_target(graph)
        self._ptr = ptr.tolist()
        self._index = index.long()
        self._edge = edge.long()

    @classmethod
    def from_patterns(cls, patterns: Tensor, graph: AttentionGraph | None = None) -> "Hopfield":
        """A memory of patterns (P, N) of -1 and 1, by Hebb's rule on every edge.

        .. math:: J_{ts} = \\frac{1}{P} \\sum_\\mu x^\\mu_t x^\\mu_s, \\quad s \\ne t: \\qquad J = X^T X / P - I

        Raises:
            ShapeError: If patterns are not (P, N).
        """
        if graph is None:
            graph = full(patterns.shape[1]).without_self_loops()
        need_graph(graph, "Hopfield")
        _check(patterns, graph.num_nodes)
        source, target = graph.edge_index.to(patterns.device)
        values = patterns.to(torch.promote_types(patterns.dtype, torch.float32))
        return cls(graph, (values[:, target] * values[:, source]).mean(0))

    def field(self, state: Tensor) -> Tensor:
        """The field at each spin (..., N): the sum of its neighbours times their couplings."""
        _check(state, self.graph.num_nodes)
        source, target = self.graph.edge_index.to(state.device)
        dtype = torch.promote_types(
            torch.promote_types(state.dtype, self.coupling.dtype), torch.float32
        )
        return scatter_sum(
            state.to(dtype)[..., source] * self.coupling, target, self.graph.num_nodes, -1
        )

    def energy(self, state: Tensor) -> Tensor:
        """E (...) of states (..., N).

        Raises:
            GraphError: If couplings are not symmetric, so that there is no energy.
        """
        if not self.is_symmetric:
            raise GraphError("energy needs the reverse of every edge, with the same coupling")
        return -0.5 * (state * self.field(state)).sum(-1)

    @property
    def is_symmetric(self) -> bool:
        """True if every edge has its reverse, with the same coupling."""
        n, (source, target) = self.graph.num_nodes, self.graph.edge_index
        order = torch.argsort(target * n + source)
        reverse_order = torch.argsort(source * n + target)
        same = torch.equal((target * n + source)[order], (source * n + target)[reverse_order])
        return same and torch.equal(self.coupling[order], self.coupling[reverse_order])

    def step(self, state: Tensor) -> Tensor:
        """All spins (..., N) updated at once: the energy may rise, and two states may alternate."""
        _check(state, self.graph.num_nodes)
        most = scatter_sum(
            self.coupling.abs().float(), self.graph.target.to(state.device), self.graph.num_nodes, 0
        )
        return _turned(
            state, self.field(state), most, self.graph.in_degree.to(most), self.coupling.dtype
        )

    def turn(self, state: Tensor, node: int) -> Tensor:
        """One spin updated, (..., N)."""
        _check(state, self.graph.num_nodes)
        return self._turn(state, self._node(node))

    def _node(self, node: Any) -> int:
        return whole(node, "node", 0, below=self.graph.num_nodes, of=", the number of nodes")

    def _turn(self, state: Tensor, node: int) -> Tensor:
        span = slice(self._ptr[node], self._ptr[node + 1])
        coupling = self.coupling[self._edge[span]]
        dtype = torch.promote_types(torch.promote_types(state.dtype, coupling.dtype), torch.float32)
        pull = (state[..., self._index[span]].to(dtype) * coupling).sum(-1)
        degree = torch.tensor(float(span.stop - span.start), device=state.device)
        turned = state.clone()
        turned[..., node] = _turned(
            state[..., node], pull, coupling.abs().float().sum(), degree, coupling.dtype
        )
        return turned

    def settle(
        self, state: Tensor, order: Iterable[int] | None = None, max_sweeps: int = 100
    ) -> Tensor:
        """The state (..., N) after updates of single spins in ``order`` until none flips.

        Raises:
            OptionError: If spins still flip after ``max_sweeps``, as they may if couplings are not
                symmetric.
        """
        _check(state, self.graph.num_nodes)
        if order is None:
            nodes = list(range(self.graph.num_nodes))
        else:
            nodes = [self._node(node) for node in order]
        for _ in range(whole(max_sweeps, "max_sweeps", 1)):
            before = state
            for node in nodes:
                state = self._turn(state, node)
            if torch.equal(state, before):
                return state
        raise OptionError(
            f"spins still flip after max_sweeps = {max_sweeps}; raise it, or use symmetric "
            "couplings"
        )


def retrieve(
    query: Tensor,
    patterns: Tensor,
    beta: float,
    graph: AttentionGraph | Pattern = EVERY,
    *,
    steps: int = 1,
) -> Tensor:
    r"""Queries moved towards similar patterns: a modern Hopfield network, and cross-attention.

    .. math:: \xi_t \leftarrow \sum_{s \in \mathcal{N}(t)} \mathrm{softmax}_s (\beta \, \langle \xi_t, x_s \rangle) x_s

    Args:
        query: (..., T, C), the states.
        patterns: (..., S, C), the memory; keys and values at once.
        beta: Inverse temperature, > 0: the ``scale`` of :func:`graphattn.attention`. A large one
            finds one pattern, a small one means of several.
        graph: The patterns that each state may retrieve; all of them by default.
        steps: Number of steps; one is enough if patterns are well separated.

    Returns:
        (..., T, C); 0 for a state without a pattern.

    Source: Ramsauer et al. 2021, "Hopfield Networks is All You Need", equation 3.

    Example:
        >>> import torch
        >>> patterns = torch.tensor([[1.0, 1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, -1.0]])
        >>> noisy = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
        >>> retrieve(noisy, patterns, beta=4.0).round()
        tensor([[ 1.,  1.,  1., -1.]])
    """
    positive(beta, "beta")
    floats(query, "query", "(..., T, C)", 2)
    floats(patterns, "patterns", "(..., S, C)", 2)
    key = patterns.unsqueeze(-2)  # one head
    for _ in range(whole(steps, "steps", 1)):
        output = attention(query.unsqueeze(-2), key, key, graph, scale=beta)
        assert isinstance(output, Tensor)
        query = output.squeeze(-2)
    return query


def retrieval_energy(
    query: Tensor, patterns: Tensor, beta: float, graph: AttentionGraph | Pattern = EVERY
) -> Tensor:
    r"""The energy (..., T) of each state, which no step of :func:`retrieve` raises.

    .. math:: E_t = -\beta^{-1} \log \sum_{s \in \mathcal{N}(t)} e^{\beta \langle \xi_t, x_s \rangle}
              + \tfrac{1}{2} \lVert \xi_t \rVert^2 + \beta^{-1} \log |\mathcal{N}(t)|
              + \tfrac{1}{2} \max_s \lVert x_s \rVert^2

    Its gradient is the state minus the result of a step. It is never negative; infinite for a state
    without a pattern.

    Source: Ramsauer et al. 2021, equation 2, with the patterns of the graph.
    """
    beta = positive(beta, "beta")
    floats(query, "query", "(..., T, C)", 2)
    floats(patterns, "patterns", "(..., S, C)", 2)
    if isinstance(graph, GraphLike):
        graph = graph.at(query.shape[-2], patterns.shape[-2])
    need_graph(graph, "retrieval_energy")
    key = patterns.unsqueeze(-2)
    result = attention(query.unsqueeze(-2), key, key, graph, scale=beta, return_lse=True)
    assert isinstance(result, AttentionOutput)
    assert result.lse is not None
    square = patterns.square().sum(-1)
    if patterns.shape[-2]:
        largest = square.amax(-1, keepdim=True)
    else:
        largest = square.sum(-1, keepdim=True)
    count = graph.in_degree.to(query.device).clamp(min=1).to(result.lse.dtype)
    return (count.log() - result.lse.squeeze(-1)) / beta + (query.square().sum(-1) + largest) / 2


def _turned(state: Tensor, pull: Tensor, most: Tensor, degree: Tensor, of: torch.dtype) -> Tensor:
    """Updated spins, except those whose field is within the rounding of the sum of couplings."""
    rounding = (torch.finfo(of).eps + torch.finfo(pull.dtype).eps * degree) * most
    return torch.where(pull.abs() <= rounding, state, torch.sign(pull).to(state.dtype))


def _check(state: Tensor, num_nodes: int) -> None:
    check_shape(state, "states", (..., num_nodes))
    if bool((state.abs() != 1).any()):
        raise ShapeError(
            "spins must be -1 or 1; for a state with zeros pass torch.where(state > 0, 1.0, -1.0)"
        )
