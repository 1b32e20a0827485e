"""Edges as tensors: inputs of a compiled program, of which a graph would be a constant."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.advice import no_graph
from ..graph.like import GraphLike, Run
from ..graph.modes import Memo, assume_constant, keep
from ..graph.sort import Sorted, transposed
from ..operands import Block, Inputs, Outputs
from .grouped import EdgeLayout, by_source, by_target


def _moved(layout: EdgeLayout, device: torch.device, small: torch.dtype) -> tuple[Tensor, ...]:
    """The layout on a device: ``ptr`` in int64, the others in ``small``."""
    ptr, *others = layout
    return ptr.to(device, torch.int64), *(x.to(device, small) for x in others)


@assume_constant  # compiled code finds operators registered
def _register() -> None:
    from . import edge_operator  # noqa: F401


class EdgeTensors(GraphLike):
    """A graph's edges as tensors, passed in its place: inputs of a program of ``torch.compile``.

    A graph is a constant of a compiled program, and each graph compiles its own. Graphs of the same
    numbers of targets, sources and edges, such as the nearest neighbours of moving points, share
    one program if they are passed as ``EdgeTensors(graph)``, made outside it, on the graph's
    device. They run on the backend ``edges``, or on ``message_passing``.

    Args:
        graph: The graph.

    Raises:
        GraphError: If ``graph`` is something else.

    Example:
        >>> import torch, graphattn as ga
        >>> pos, x = torch.rand(50, 3), torch.rand(50, 2, 4)
        >>> edges = EdgeTensors(ga.graphs.knn(pos, k=4))
        >>> torch.equal(ga.attention(x, x, x, edges), ga.attention(x, x, x, ga.graphs.knn(pos, k=4), backend="edges"))
        True
    """

    _remedy = "pass the graph that they are of, and what comes of it to layers beside them"
    _only_backends = ("edges", "message_passing")
    _is_fixed = False
    _is_constant = False
    is_rule = False
    name = "EdgeTensors"
    _named: Callable[[], Tensor] | None = None
    #: Makes of a process's seed that of all processes which share a graph.
    seed_of_all: Callable[[Tensor], Tensor] | None = None
    #: Numbers in a larger graph of targets (T,) and of sources (S,), and how many targets it has.
    numbers: tuple[Tensor, Tensor, int] | None = None

    def __init__(self, graph: AttentionGraph) -> None:
        """The edges of a graph, by target and by source."""
        if not isinstance(graph, AttentionGraph):
            raise no_graph(graph, "graph must be an AttentionGraph")
        self._by_target = tuple(by_target(graph, graph.device))
        self._by_source = tuple(by_source(graph, graph.device))
        self.images = graph.images
        self._memo = Memo()

    @classmethod
    def of(cls, by_target: EdgeLayout, num_sources: int, device: torch.device) -> "EdgeTensors":
        """Edges by target whose sources are in any order, which every sum over a target keeps."""
        edges = cls.__new__(cls)
        ptr, source = by_target[:2]
        back = transposed(Sorted(ptr, source, source), num_sources)
        by_source = EdgeLayout(back.ptr, back.column, back.place, torch.arange(num_sources))
        if max(ptr.numel(), num_sources, source.numel()) < 2**31:
            small = torch.int32
        else:
            small = torch.int64
        edges._by_target = _moved(by_target, device, small)
        edges._by_source = _moved(by_source, device, small)
        edges._memo = Memo()
        return edges

    @classmethod
    def of_index(cls, edge_index: Tensor, num_sources: int, num_targets: int) -> "EdgeTensors":
        """The edges of an ``edge_index`` (2, E) inside a compiled program, checked when it runs."""
        _register()
        layouts = torch.ops.graphattn.edges_of_index(edge_index, num_targets, num_sources)
        edges = cls.__new__(cls)
        edges._by_target = tuple(layouts[:4])
        edges._by_source = tuple(layouts[4:])
        edges._memo = Memo()
        return edges

    @property
    def num_targets(self) -> int:
        """T."""
        return self._by_target[0].shape[0] - 1

    @property
    def num_sources(self) -> int:
        """S."""
        return self._by_source[0].shape[0] - 1

    @property
    def num_edges(self) -> int:
        """E; copies of a repeated edge count."""
        return self._by_target[2].shape[0]

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self._by_target[0].device

    @property
    def target(self) -> Tensor:
        """int64 (E,): the target of every edge, in the graph's edge order."""
        ptr, _, edge, order = self._by_target
        rows = torch.repeat_interleave(order.long(), ptr.diff(), output_size=self.num_edges)
        return torch.empty_like(rows).index_copy(0, edge.long(), rows)

    @property
    def source(self) -> Tensor:
        """int64 (E,): the source of every edge, in the same order."""
        _, source, edge, _ = self._by_target
        return torch.empty_like(edge, dtype=torch.int64).index_copy(0, edge.long(), source.long())

    @property
    def in_degree(self) -> Tensor:
        """int64 (T,): the number of edges into each target."""
        ptr, _, _, order = self._by_target
        return torch.empty_like(ptr[1:]).index_copy(0, order.long(), ptr.diff())

    @property
    def _num_target_rows(self) -> int:
        """The number of rows that :attr:`target` may name."""
        return self._by_target[0].shape[0] - 1

    @property
    def edge_index(self) -> Tensor:
        """int64 (2, E): row 0 sources, row 1 targets."""
        return torch.stack((self.source, self.target))

    @property
    def names(self) -> Tensor | None:
        """The numbers by which dropout hashes edges, by target; None for the order of biases."""
        if self._named is None:
            return None
        named = self._named
        return keep(self._memo, "names", lambda: named().to(self.device, self._by_target[2].dtype))

    def _shared_seed(self, seed: Tensor) -> Tensor:
        """The seed of dropout of all processes that share a graph."""
        if self.seed_of_all is None:
            return seed
        return self.seed_of_all(seed)

    def attend(self, run: Run, inputs: Inputs, backend: str, weights: bool, lse: bool) -> Outputs:
        """The outputs of a call, by a call of ``run`` on these edges."""
        return run(self, self._call_on_union(inputs), backend, weights, lse)

    def _call_on_union(self, inputs: Inputs) -> Inputs:
        """A call whose normalisation reads the numbers of nodes in the larger graph."""
        if self.numbers is None:
            return inputs
        if not inputs.reads_numbers:
            return inputs
        device = inputs.query.device
        make = partial(self._block, *self.numbers, device)
        return replace(inputs, blocks=(keep(self._memo, ("block", device), make),))

    def _block(
        self, targets: Tensor, sources: Tensor, num_targets: int, device: torch.device
    ) -> Block:
        target = self.target.to(device)
        source = self.source.to(device)
        return Block(
            self.num_edges,
            num_targets,
            target - targets.to(device)[target],
            source - sources.to(device)[source],
        )

    def _listed(self) -> "EdgeTensors":
        return self

    def __repr__(self) -> str:
        return (
            f"{self.name}({self.num_sources} sources -> {self.num_targets} targets, "
            f"{self.num_edges} edges)"
        )
