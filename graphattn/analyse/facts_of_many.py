"""Facts about graphs that are used together: the graphs of heads, or those of the layers of a model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import GraphError
from ..graph import AttentionGraph, PerHead
from ..graph.layers import Layers, unions
from .facts_of_one import Facts, as_table
from .receptive_field import graphs_of, last_field, spread

_MOST_COLUMNS = 6
_ONE = {"graphs of heads": ("graph", "graph of heads"), "layers": ("layer", "layer")}


@dataclass(frozen=True)
class FactsOfMany:
    """What :func:`graphattn.facts` found about several graphs; it has one :class:`Facts` for each, by number.

    Args:
        kind: "graphs of heads" or "layers".
        each: The facts of each graph, in order; equal graphs share theirs.
        union: Of heads, the facts of the edges that some head has; ``None`` of layers.
        sources: How many sources of the first layer a target of the last one depends on, (least, mean, most), where
            every node keeps what it has; ``None`` of heads, or where ``left_out`` says why not.
        num_sources: Of the first layer.
        left_out: Why ``sources`` was left out, or "".
    """

    kind: str
    each: tuple[Facts, ...]
    union: Facts | None = None
    sources: tuple[int, float, int] | None = None
    num_sources: int = 0
    left_out: str = ""

    def __len__(self) -> int:
        return len(self.each)

    def __getitem__(self, number: int) -> Facts:
        return self.each[number]

    def __iter__(self) -> Iterator[Facts]:
        return iter(self.each)

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain Python values."""
        return {
            "kind": self.kind,
            "each": [facts.to_dict() for facts in self.each],
            "union": None if self.union is None else self.union.to_dict(),
            "sources_read": None
            if self.sources is None
            else dict(zip(("least", "mean", "most"), self.sources, strict=True)),
            "left_out": self.left_out,
        }

    def __str__(self) -> str:
        one, alone = _ONE[self.kind]
        places: dict[int, list[int]] = {}
        for number, facts in enumerate(self.each):
            places.setdefault(id(facts), []).append(number)
        columns = [(_numbered(one, numbers), self.each[numbers[0]]) for numbers in places.values()]
        more = len(columns) - _MOST_COLUMNS
        columns = columns[:_MOST_COLUMNS]
        if self.union is not None:
            columns.append(("union", self.union))
        lines = [f"{len(self)} {self.kind if len(self) > 1 else alone}", as_table(columns)]
        lines += [f"{more} more different: see facts(...)[number]"] * (more > 0)
        return "\n".join([*lines, *self._read()])

    def _read(self) -> list[str]:
        """What the last layer depends on."""
        if self.left_out:
            return [f"no sources read through all layers: {self.left_out}"]
        if self.sources is None:
            return []
        least, mean, most = self.sources
        spread = f"{least:,}" if least == most else f"{least:,} to {most:,}, mean {mean:,.5g},"
        after = f"after {len(self):,} layer{'s' * (len(self) != 1)}"
        return [f"{after} a target depends on {spread} of {self.num_sources:,} sources (each node keeps what it has)"]


def _numbered(one: str, numbers: list[int]) -> str:
    """``layers 0, 2, 4, ...``."""
    shown = ", ".join(map(str, numbers[:3]))
    return f"{one}{'s' * (len(numbers) > 1)} {shown}{', ...' * (len(numbers) > 3)}"


def facts_of_heads(graph: PerHead, of: Callable[[AttentionGraph, int], Facts]) -> FactsOfMany:
    """The facts of the graph of each head, and of their union."""
    graphs = (*graph.graphs, graph.union())
    *known, union = _each(graphs, of)
    return FactsOfMany("graphs of heads", tuple(known), union)


def _each(graphs: tuple[AttentionGraph, ...], of: Callable[[AttentionGraph, int], Facts]) -> tuple[Facts, ...]:
    different = dict.fromkeys(graphs)
    known = {graph: of(graph, len(different)) for graph in different}
    return tuple(known[graph] for graph in graphs)


def facts_of_layers(layers: Layers, of: Callable[[AttentionGraph, int], Facts], budget: int) -> FactsOfMany:
    """The facts of the graph of each layer, and what the last one depends on."""
    graphs = unions(layers)
    each = _each(graphs, of)
    read, left_out = None, ""
    try:
        read = spread(last_field(graphs_of(graphs, residual=True), budget))
    except GraphError as error:
        left_out = str(error)
    return FactsOfMany("layers", each, None, read, graphs[0].num_sources, left_out)
