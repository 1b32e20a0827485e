"""Schedules: the graphs of the layers of a model, first layer first."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import overload

from ..arguments import flag, several, whole
from ..errors import GraphError, GraphIndexError
from .advice import no_graph
from .graph import AttentionGraph
from .pattern import Pattern
from .per_head import PerHead
from .pickles import Immutable

Layer = AttentionGraph | PerHead | Pattern
_MOST_LAYERS = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class Schedule(Immutable):
    """What each layer of a model reads: a graph, graphs of heads, or a pattern for each layer, first layer first.

    Layers may change the number of nodes (pooling): the targets of a layer are the sources of the next one.

    Args:
        layers: First layer first.

    Raises:
        GraphError: If there is none, one is something else, or the nodes of two layers do not meet.

    Example:
        >>> from graphattn.graphs import cell_partition
        >>> plain, shifted = cell_partition((8, 8), (4, 4)), cell_partition((8, 8), (4, 4), shift=(2, 2))
        >>> swin = Schedule((plain, shifted)) * 3
        >>> len(swin), swin[1] is shifted
        (6, True)
        >>> swin.reach(3).num_edges == 64 * 64  # after three layers every node has heard every other
        True
    """

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        if isinstance(self.layers, Layer) or not isinstance(self.layers, Iterable):
            raise GraphError(f"Schedule takes a tuple of layers, got {type(self.layers).__name__}; one is (graph,)")
        layers = tuple(several(self.layers, "layers", "must be a tuple of layers", GraphError))
        object.__setattr__(self, "layers", layers)
        if not layers:
            raise GraphError("Schedule needs at least one layer, got none")
        for number, layer in enumerate(layers):
            if not isinstance(layer, Layer):
                raise no_graph(layer, f"layer {number} of a Schedule must be an AttentionGraph, PerHead or Pattern")
            before = layers[number - 1] if number else layer
            if isinstance(layer, Pattern) or isinstance(before, Pattern) or not number:
                continue
            if layer.num_sources != before.num_targets:
                raise GraphError(
                    f"layer {number} reads {layer.num_sources} sources, but layer {number - 1} has "
                    f"{before.num_targets} targets; the targets of a layer are the sources of the next"
                )

    @classmethod
    def of(cls, layers: "Schedule | Layer | Iterable[Layer]", num_layers: int | None = None) -> "Schedule":
        """A schedule from one graph for all layers, from a list, or from a schedule.

        Raises:
            GraphError: If it has another number of layers than ``num_layers``.
        """
        num_layers = None if num_layers is None else whole(num_layers, "num_layers", 1, GraphError)
        if num_layers is not None and num_layers > _MOST_LAYERS:
            raise GraphError(f"num_layers must be at most {_MOST_LAYERS:,}, got {num_layers}")
        if isinstance(layers, Layer):
            return cls((layers,) * (num_layers or 1))
        made = layers if isinstance(layers, Schedule) else cls(layers)  # type: ignore[arg-type]
        if num_layers is not None and len(made) != num_layers:
            raise GraphError(
                f"{num_layers} layers need as many graphs, got a schedule of {len(made)}; repeat it with schedule * n"
            )
        return made

    def __call__(self, size: int | tuple[int, ...]) -> "Schedule":
        """The schedule with its patterns in that size; graphs stay as they are."""
        return Schedule(tuple(layer(size) if isinstance(layer, Pattern) else layer for layer in self.layers))

    def unions(self) -> tuple[AttentionGraph, ...]:
        """The graph of each layer; of a layer whose heads differ, the edges that some head has.

        Raises:
            GraphError: If a layer is a pattern, whose size is open.
        """
        for number, layer in enumerate(self.layers):
            if isinstance(layer, Pattern):
                raise GraphError(f"layer {number} is {layer!r} without a size; call the schedule with one first")
        return tuple(
            layer.union() if isinstance(layer, PerHead) else layer
            for layer in self.layers
            if not isinstance(layer, Pattern)
        )

    def reach(self, num_layers: int | None = None, *, residual: bool = False) -> AttentionGraph:
        """Which source of the first layer is heard by which target after ``num_layers`` layers, all by default.

        Args:
            num_layers: Layers counted from the first.
            residual: Whether every target of a square layer also keeps what it has (a residual connection).

        Raises:
            GraphError: If the schedule has fewer layers, or a layer is a pattern without a size.
        """
        graphs = self.unions()
        flag(residual, "residual", GraphError)
        num_layers = len(graphs) if num_layers is None else whole(num_layers, "num_layers", error=GraphError)
        if not 1 <= num_layers <= len(graphs):
            raise GraphError(f"num_layers must be between 1 and {len(graphs)}, got {num_layers}")
        if residual:
            graphs = tuple(graph.with_self_loops() if graph.is_square else graph for graph in graphs)
        return reduce(lambda before, layer: layer @ before, graphs[:num_layers])

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    @overload
    def __getitem__(self, number: int) -> Layer: ...
    @overload
    def __getitem__(self, number: slice) -> "Schedule": ...
    def __getitem__(self, number: int | slice) -> "Layer | Schedule":
        if isinstance(number, slice):
            return Schedule(self.layers[number])
        number = whole(number, "the number of a layer", error=GraphError)
        if not -len(self) <= number < len(self):
            raise GraphIndexError(f"layer {number} is outside [0, {len(self)}) ({len(self)} layers)")
        return self.layers[number]

    def __add__(self, other: object) -> "Schedule":
        """This schedule's layers, then the other's."""
        if not isinstance(other, Schedule | Layer):
            return NotImplemented
        return Schedule(self.layers + Schedule.of(other).layers)

    def __mul__(self, times: int) -> "Schedule":
        """The layers again and again."""
        times = whole(times, "the number of times that a schedule is repeated", 1, GraphError)
        if times * len(self) > _MOST_LAYERS:
            raise GraphError(f"a schedule has at most {_MOST_LAYERS:,} layers, got {times} times {len(self)}")
        return Schedule(self.layers * times)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        names = ", ".join(layer.name if not isinstance(layer, PerHead) else repr(layer) for layer in self.layers[:3])
        return f"Schedule({len(self)} layers: {names}{', ...' if len(self) > 3 else ''})"

    def __str__(self) -> str:
        return "\n".join([f"Schedule of {len(self)} layers:", *(f"{i:3}  {x!r}" for i, x in enumerate(self.layers))])
