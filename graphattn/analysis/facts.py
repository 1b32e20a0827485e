"""Facts of a graph, of graphs of heads, or of a model's layers, each found within seconds."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from math import isclose
from typing import Any, overload

from ..arguments import whole
from ..errors import GraphError
from ..graph import AttentionGraph
from ..graph.edges import Edges
from ..graph.kinds.layers import Layer, Layers, layers_of, sized_layers, unions
from ..graph.like import GraphLike, need_fixed
from ..graph.limits import refuse_over
from ..mistakes.graphs.simple import remark
from ..printed import Printed
from .bottlenecks.conductance import conductance
from .bottlenecks.connectivity import connectivity, num_components
from .bottlenecks.resistance import mean_resistance
from .bottlenecks.spectrum import spectral_gap
from .forms import looped_axes
from .paths.hops import hops, in_the_end
from .paths.receptive_field import graphs_of, last_field, spread

_BUDGET = 1 << 26
# edges of a search that cost as much as an interval of a degree, or of a component
_WALK, _CONNECT = (
    4,
    16,
)
_FREE = 1 << 22  # edges that every budget has
_ANALYSED = 512  # nodes up to which dense matrices are made: half a second
_MOST_COLUMNS = 6
_ATTRIBUTE = {"hops": "layers", "reads_everything": "everything", "reads_past": "past"}  # of Hops


@dataclass(frozen=True, repr=False)
class Facts(Printed):
    """The result of :func:`facts`.

    Counts are exact Python integers; ``None`` where a fact has no meaning or was left out.

    Args:
        causal: True if no target reads a later source (``s <= t`` on every edge).
        components: Parts without an edge between them, whichever way it points.
        strong_components: Largest sets of nodes of which each depends on each other, at last.
        roots: Nodes that every node depends on at last; more than 0 is quasi-strong connectivity.
        acyclic: True if no cycle is longer than a self-loop.
        hops: Layers until no node depends on anything new; see :func:`graphattn.analysis.hops`.
        reads_everything: True if every node then depends on every node.
        reads_past: True if the graph is causal and every node then depends on every earlier one.
        spectral_gap: See :func:`graphattn.analysis.spectral_gap`.
        conductance: Bounds of :func:`graphattn.analysis.conductance`, [lower, upper], which are the
            same where it is exact; ``None`` without an edge between two nodes.
        mean_resistance: Mean of :func:`graphattn.analysis.effective_resistance` over all pairs of
            nodes, in ohm; exact; ``None`` of a graph that is not connected, where it is infinite.
        left_out: For each fact that was left out, why.
        remark: The simpler graph that a joined one equals; "" if none is known.
    """

    num_targets: int
    num_sources: int
    num_edges: int
    density: float
    rule: bool
    full: bool
    causal: bool | None
    symmetric: bool | None
    self_loops: int | None
    isolated_targets: int
    unused_sources: int
    max_in_degree: int
    max_out_degree: int
    repeated_edges: bool
    components: int | None = None
    strong_components: int | None = None
    roots: int | None = None
    acyclic: bool | None = None
    hops: int | None = None
    reads_everything: bool | None = None
    reads_past: bool | None = None
    spectral_gap: float | None = None
    conductance: list[float] | None = None
    mean_resistance: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    remark: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain Python values."""
        return asdict(self)

    def in_full(self) -> str:
        return _table([("", self)])

    def rows(self) -> dict[str, str]:
        """The facts that are known, as text by their names in words."""
        unknown = {
            "left_out",
            "reads_everything",
            "reads_past",
            *self.left_out,
        }
        if not self.remark:
            unknown.add("remark")
        values = {name: value for name, value in asdict(self).items() if name not in unknown}
        rows: dict[str, str] = {}
        for name, value in values.items():
            rows[called(name)] = shown(value)
            if name == "hops" and value is not None:
                rows["each then depends on"] = in_the_end(
                    bool(self.reads_everything), bool(self.reads_past)
                )
        return rows


@dataclass(frozen=True, repr=False)
class FactsOfMany(Printed):
    """Facts found by :func:`facts` about several graphs: one :class:`Facts` for each, by number.

    Args:
        kind: "graphs of heads" or "layers".
        each: The facts of each graph, in order; equal graphs share theirs.
        union: Of heads, the facts of the edges that some head has; ``None`` of layers.
        sources: Sources of the first layer that a target of the last one depends on, (least, mean,
            most), where every node keeps what it has; ``None`` of heads, or where ``left_out`` says
            why not.
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
        values = asdict(self)
        sources = values.pop("sources")
        del values["num_sources"]
        if sources is not None:
            sources = dict(zip(("least", "mean", "most"), sources, strict=True))
        return values | {"sources_read": sources}

    def in_full(self) -> str:
        noun = "layer"
        if self.kind == "graphs of heads":
            noun = "graph"
        places: dict[int, list[int]] = {}
        for number, facts in enumerate(self.each):
            places.setdefault(id(facts), []).append(number)
        columns = []
        for numbers in places.values():
            named = f"{noun} {numbers[0]}"
            if len(numbers) > 1:  # layers 0, 2, 4, ...
                some = [*map(str, numbers[:3]), *["..."] * (len(numbers) > 3)]
                named = f"{noun}s {', '.join(some)}"
            columns.append((named, self.each[numbers[0]]))
        more = len(columns) - _MOST_COLUMNS
        columns = columns[:_MOST_COLUMNS]
        if self.union is not None:
            columns.append(("union", self.union))
        kind = self.kind
        if len(self) < 2:
            kind = kind.replace("s", "", 1)
        lines = [f"{len(self)} {kind}", _table(columns)]
        if more > 0:
            lines.append(f"{more} more different: see facts(...)[number]")
        if self.left_out:
            lines.append(f"no sources read through all layers: {self.left_out}")
        if self.sources is not None:
            least, mean, most = self.sources
            if least == most:
                read = f"{least:,}"
            else:
                read = f"{least:,} to {most:,}, mean {mean:,.5g},"
            plural = "s"
            if len(self) == 1:
                plural = ""
            after = f"after {len(self):,} layer{plural}"
            lines.append(
                f"{after} a target depends on {read} of {self.num_sources:,} sources (each node "
                "keeps what it has)"
            )
        return "\n".join(lines)


@overload
def facts(graph: AttentionGraph, *, size: Any = None, budget: int = _BUDGET) -> Facts: ...
@overload
def facts(graph: Any, *, size: Any = None, budget: int = _BUDGET) -> Any: ...
def facts(graph: Any, *, size: Any = None, budget: int = _BUDGET) -> Facts | FactsOfMany:
    """All exact facts about a graph that take seconds; costlier ones are named in ``left_out``.

    Sizes, degrees, causal, symmetric, self-loops, isolated targets and unused sources; components,
    cycles and roots; hops until everything, or every node's past, is read; up to 512 nodes, the
    spectral gap, conductance (above 16 nodes its bounds) and the mean resistance between two nodes.

    Args:
        graph: A graph; a :class:`PerHead`; or the layers of a model, first layer first, as a list.
        size: Of patterns, whose size is open: a number of nodes, or (height, width).
        budget: Edges that each search may look at: for hops, through layers, and, weighed, for
            parts and degrees.
    Returns:
        Facts of a graph; a :class:`FactsOfMany` of several graphs, with the facts of each, those of
        the union of heads, and how many sources the last layer depends on.
    Raises:
        GraphError: If it is no graph, or its nodes, or the intervals of sources of its rows, are
            more than ``budget / 4`` in all.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> found = facts(sliding_window(100_000, window=257, causal=True))
        >>> found.acyclic, found.roots, found.hops, found.reads_past
        (True, 1, 391, True)
    """
    budget = whole(budget, "budget", 1, GraphError)
    if isinstance(graph, list | tuple):
        return _of_layers(_sized(graph, size), budget)
    if isinstance(graph, GraphLike) and size is not None:
        graph = graph.at(size)
    need_fixed(graph, "facts needs an AttentionGraph")
    if graph.of_heads != (graph,):
        *facts_of_heads, union = _of_each((*graph.of_heads, graph.union()), budget)
        return FactsOfMany("graphs of heads", tuple(facts_of_heads), union)
    return _of_one(graph, budget, 1)


def counted(graph: AttentionGraph) -> dict[str, Any]:
    """The facts that cost one walk over the edges, and one over the reversed ones, by name."""
    into = graph.in_degree
    out = graph.out_degree
    causal = symmetric = self_loops = None
    if graph.is_square:
        causal = graph.is_causal
        symmetric = graph.is_symmetric
        self_loops = graph._num_loops()
    return {
        "num_targets": graph.num_targets,
        "num_sources": graph.num_sources,
        "num_edges": graph.num_edges,
        "density": graph.density,
        "rule": graph.is_rule,
        "full": graph.is_full,
        "causal": causal,
        "symmetric": symmetric,
        "self_loops": self_loops,
        "isolated_targets": int((into == 0).sum()),
        "unused_sources": int((out == 0).sum()),
        "max_in_degree": int(into.max()) if into.numel() else 0,
        "max_out_degree": int(out.max()) if out.numel() else 0,
        "repeated_edges": graph.has_repeated_edges,
    }


def _of_one(graph: AttentionGraph, budget: int, among: int) -> Facts:
    """The facts of one graph, among so many.

    Raises:
        GraphError: If its nodes, or the intervals of its rows, are too many for the budget.
    """
    afford = max(budget, _FREE)
    walked = among * max(graph.num_sources, graph.edges.num_runs)
    cost = _WALK * walked
    instead = f"ask a smaller size, num_edges and contains(), or facts(..., budget={cost})"
    refuse_over(cost, f"facts of {graph.name}", instead, afford, "steps")
    answers: dict[str, Any] = {}
    left_out: dict[str, str] = {}

    def ask(names: tuple[str, ...], question: Callable[[], Any]) -> None:
        try:
            answer = question()
            answers.update(
                {name: getattr(answer, _ATTRIBUTE.get(name, name), answer) for name in names}
            )
        except GraphError as error:
            left_out.update(dict.fromkeys(names, str(error)))

    connected = ("components", "strong_components", "roots", "acyclic")
    searched = tuple(_ATTRIBUTE)
    cost = among * _CONNECT * _looked_at(graph.edges)
    square = graph.is_square
    if cost > afford:
        why = f"searches would look at about {cost:,} edges (limit {afford:,}): try budget={cost}"
        unsearched: tuple[str, ...] = connected[:1]
        if square:
            unsearched = (*connected, *searched)
        left_out.update(dict.fromkeys(unsearched, why))
    else:
        if square:
            ask(connected, lambda: connectivity(graph))
            ask(searched, lambda: hops(graph, budget))
        if "components" not in answers:
            left_out.pop("components", None)
            ask(("components",), lambda: num_components(graph))
    dense: dict[str, Callable[[AttentionGraph], Any]] = {}
    if square:
        dense = {
            "spectral_gap": spectral_gap,
            "conductance": _bounds,
            "mean_resistance": mean_resistance,
        }
    for name, question in dense.items():
        if graph.num_targets > _ANALYSED:
            left_out[name] = (
                f"more than {_ANALYSED} nodes; graphattn.analysis has them of larger graphs"
            )
        elif graph.num_targets > 1:
            ask((name,), partial(question, graph))
    return Facts(**counted(graph), **answers, left_out=left_out, remark=remark(graph))


def _bounds(graph: AttentionGraph) -> list[float] | None:
    """Between which conductance lies."""
    if graph.num_edges == graph._num_loops():
        return None
    bounds = conductance(graph)
    return [bounds.lower, bounds.upper]


def _looked_at(edges: Edges) -> int:
    """Number of intervals that a question about all paths reads; of a grid, those of its axes."""
    axes = looped_axes(edges) or ()
    if axes:
        return sum(map(_looked_at, axes))
    return max(edges.num_sources, edges.num_runs)


def _of_each(graphs: tuple[AttentionGraph, ...], budget: int) -> tuple[Facts, ...]:
    different = dict.fromkeys(graphs)
    by_graph = {graph: _of_one(graph, budget, len(different)) for graph in different}
    return tuple(by_graph[graph] for graph in graphs)


def _of_layers(layers: Layers, budget: int) -> FactsOfMany:
    """The facts of the graph of each layer, and the sources that the last one depends on."""
    graphs = unions(layers)
    facts_of_layers = _of_each(graphs, budget)
    sources = None
    left_out = ""
    try:
        sources = spread(last_field(graphs_of(graphs, residual=True), budget))
    except GraphError as error:
        left_out = str(error)
    return FactsOfMany("layers", facts_of_layers, None, sources, graphs[0].num_sources, left_out)


def _sized(layers: Any, size: Any) -> tuple[Layer, ...]:
    """The layers, their patterns in that size."""
    if size is not None:
        return sized_layers(layers, size)
    graphs = layers_of(layers)
    for number, layer in enumerate(graphs):
        if layer.is_open:
            raise GraphError(
                f"facts needs the size of layer {number}, {layer!r}: pass size=N, or "
                "size=(height, width)"
            )
    return graphs


# --- as text


def called(name: str) -> str:
    """The name of a fact in words."""
    return name.removeprefix("num_").replace("_", " ")


def shown(value: Any) -> str:
    """A fact as text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        if value:
            return "yes"
        return "no"
    if isinstance(value, list):
        low, high = value
        if isclose(low, high):
            return f"{high:.3g} (exact)"
        return f"{low:.3g} to {high:.3g} (bounds)"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def _table(columns: list[tuple[str, Facts]]) -> str:
    """The facts as rows, a column for each graph, and below them the reasons of omissions."""
    tables = [facts.rows() for _, facts in columns]
    names = list(
        dict.fromkeys(name for rows in sorted(tables, key=len, reverse=True) for name in rows)
    )
    cells = [["", *names]]
    cells += [
        [title, *(rows.get(name, "-") for name in names)]
        for (title, _), rows in zip(columns, tables, strict=True)
    ]
    widths = [max(map(len, column)) for column in cells]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in zip(*cells, strict=True)]
    reasons: dict[str, list[str]] = {}
    for title, facts in columns:
        for name, why in facts.left_out.items():
            words = called(name)
            if title:
                words = f"{words} of {title}"
            reasons.setdefault(why, []).append(words)
    lines += [f"no {', '.join(names)}: {why}" for why, names in reasons.items()]
    return "\n".join(line for line in lines if line)
