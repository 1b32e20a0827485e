"""The protocol of an object passed as a graph: all that a call of attention asks of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..operands import Inputs, Outputs
from .advice import no_graph
from .images import Images

Pair = tuple[Tensor, Tensor]
#: Attention along edges: ``run(edges, inputs, backend, weights, lse)``.
Run = Callable[[Any, Inputs, str, bool, bool], Outputs]


class Group(NamedTuple):
    """Heads ``[first, last)`` read along ``graph``, which is ``graphs[number]``."""

    number: int
    graph: Any
    first: int
    last: int


class GraphLike:
    """A graph, one for each head or example, a pattern, a choice by content, edges as tensors.

    A subclass defines what differs from a plain graph, beside its sizes (``num_targets``,
    ``num_sources``, ``num_edges``), ``device``, ``is_rule``, ``name`` and ``_memo``, a dict where
    calls keep what they derive. It is :class:`Immutable` and ``@not_compiled``.
    """

    #: How to make an :class:`AttentionGraph` of it, where only a graph will do.
    _remedy: ClassVar[str] = ""
    #: True if it has no size, or no positions, yet.
    is_open: bool = False
    #: True if every call reads the same edges, known before.
    _is_fixed: bool = True
    #: True if its edges are constants of a compiled program, and tensors that are inputs if not.
    _is_constant: ClassVar[bool] = True
    #: The only backends that run it; all of them if empty.
    _only_backends: ClassVar[tuple[str, ...]] = ()
    #: The image of its source that each edge reads, in a cell that repeats.
    images: Images | None = None

    if TYPE_CHECKING:

        @property
        def num_targets(self) -> int: ...
        @property
        def num_sources(self) -> int: ...
        @property
        def num_edges(self) -> int: ...
        @property
        def target(self) -> Tensor: ...
        @property
        def source(self) -> Tensor: ...
        @property
        def device(self) -> torch.device: ...
        @property
        def is_rule(self) -> bool: ...

    def at(self, size: int | tuple[int, ...], num_sources: int | None = None) -> Any:
        """Itself, or what a pattern is at a size; also under torch.compile."""
        return self

    def _sized_for(
        self,
        query: Tensor,
        key: Tensor,
        past: int = 0,
        dropped: int = 0,
    ) -> Any:
        """Itself, or a pattern's graph for rows (..., nodes, heads, width) and ``past`` cached."""
        return self

    def _sized_for_step(
        self, num_targets: int, num_sources: int, past: int = 0, dropped: int = 0
    ) -> Any:
        """Itself, or a pattern's graph of new targets on cached and new sources."""
        return self

    def attend(
        self,
        run: Run,
        inputs: Inputs,
        backend: str,
        weights: bool,
        lse: bool,
    ) -> Outputs:
        """The outputs of a call, by calls of ``run`` on edges."""
        return run(self, inputs, backend, weights, lse)

    def union(self) -> Any:
        """One graph of all edges that a call may read, whose order is that of tensors of edges."""
        return self

    def _call_on_union(self, inputs: Inputs) -> Inputs:
        """A call on :meth:`union`, with a bias of -inf on edges that it does not read."""
        return inputs

    def _outputs_from_union(self, outputs: Outputs) -> Outputs:
        """The outputs of a call from those of :meth:`_call_on_union`."""
        return outputs

    def _rows_on_union(self, x: Tensor) -> Tensor:
        """Rows (..., T, C) of targets as those of :meth:`union`."""
        return x

    def of_edges(self, x: Any) -> Any:
        """A tensor of edges (..., E, F) whose leading dimensions broadcast with those of nodes."""
        return x

    @property
    def _edges_per_example(self) -> int | None:
        """E_b, the number of edges of each example; ``None`` if they share a graph or differ."""
        return None

    def _spread_to_edges(self, x: Tensor) -> Tensor:
        """Numbers (...) of examples at their edges, (..., 1) or (..., E)."""
        return x.unsqueeze(-1)

    @property
    def _example_graphs(self) -> tuple[Any, ...]:
        """The graphs of the examples of a batch, in order; itself if they share one."""
        return (self,)

    @property
    def of_heads(self) -> tuple[Any, ...]:
        """The graphs of equal groups of heads, in order."""
        return (self,)

    def groups(self, num_heads: int) -> list[Group]:
        """The graphs with their heads."""
        return [Group(0, self, 0, num_heads)]

    def _map_graphs(self, make: Callable[[Any], Any]) -> Any:
        """``make`` of the graph, or graphs per head of those that it makes of each."""
        return make(self)

    # --- the share of one process; a whole graph changes nothing

    @property
    def positions(self) -> tuple[Tensor, Tensor] | None:
        """The indices of targets and of sources in a larger graph, of which this is a part."""
        return None

    @property
    def _whole_graph(self) -> Any:
        """The edges of :meth:`union`, in their order, between the nodes of the larger graph."""
        return self.union()

    @property
    def _num_target_rows(self) -> int:
        """The number of rows that targets of edges index: T, or more in a share by heads."""
        return self.num_targets

    def ends(self, of_sources: Tensor, of_targets: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that sources and targets of edges index, from those of the nodes."""
        return of_sources, of_targets

    def _own_targets(self, x: Tensor, dim: int = -2) -> Tensor:
        """The rows of own targets among those that targets of edges index."""
        return x

    def _shared_seed(self, seed: Tensor) -> Tensor:
        """The seed of dropout of all processes that share a graph."""
        return seed

    def projected(
        self,
        query: Callable[[], Tensor],
        keys: Callable[[Tensor, Tensor], Pair],
        key: Tensor,
        value: Tensor,
        numbers: Callable[[], int],
    ) -> tuple[Any, Tensor, Pair]:
        """The edges, the queries, and the keys and values of rows (..., S, C) of sources.

        A shard may send rows of sources while queries are computed: features, or keys and values
        where these are ``numbers()`` numbers and fewer.
        """
        return self, query(), keys(key, value)


def need_fixed(graph: Any, argument: str) -> None:
    """Raise a GraphError with advice unless ``graph`` is a graph, or graphs of heads."""
    if not isinstance(graph, GraphLike) or not graph._is_fixed:
        raise no_graph(graph, argument)
    if graph._example_graphs != (graph,):
        raise no_graph(graph, argument)


def sized(graph: Any, query: Tensor, key: Tensor, past: int = 0) -> Any:
    """:meth:`GraphLike._sized_for`; what is no graph stays as it is, for a check to refuse."""
    if isinstance(graph, GraphLike):
        return graph._sized_for(query, key, past)
    return graph
