"""Facts about one graph that cost seconds at most; the others are left out, with the reason."""

from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import GraphError
from ..graph import AttentionGraph
from ..graph.edges import Edges
from ..graph.facts import Facts as Cheap
from ..graph.facts import facts as cheap
from ..graph.simple import remark
from .connectivity import connectivity, num_components
from .forms import looped_axes
from .hops import hops, in_the_end
from .spectrum import spectral_gap

_WALK, _CONNECT = 4, 16  # edges that a search looks at while degrees walk over an interval; while parts are sought
_FREE = 1 << 22  # of which there are always so many
_ANALYSED = 512  # nodes up to which eigenvalues are a matter of course


@dataclass(frozen=True)
class Facts(Cheap):
    """What :func:`facts` found: counts are exact Python integers; ``None`` where a fact has no meaning or was left out.

    Args:
        components: Parts without an edge between them, whichever way it points.
        strong_components: Largest sets of nodes of which each depends on each other, at last.
        roots: Nodes that every node depends on at last; more than 0 is quasi-strong connectivity.
        acyclic: Whether no cycle is longer than a self-loop.
        hops: Layers until no node depends on anything new; see :func:`graphattn.analyse.hops`.
        reads_everything: Whether every node then depends on every node.
        reads_past: Whether the graph is causal and every node then depends on every earlier one.
        spectral_gap: See :func:`graphattn.analyse.spectral_gap`.
        left_out: For each fact that was left out, why.
        remark: Which simpler graph a joined one equals; "" if none is known.
    """

    components: int | None = None
    strong_components: int | None = None
    roots: int | None = None
    acyclic: bool | None = None
    hops: int | None = None
    reads_everything: bool | None = None
    reads_past: bool | None = None
    spectral_gap: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    remark: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain Python values."""
        return asdict(self)

    def __str__(self) -> str:
        return as_table([("", self)])

    def _rows(self) -> dict[str, str]:
        """What is known, in words, by what it is called."""
        left_out = ("left_out", "reads_everything", "reads_past", *self.left_out, *["remark"] * (not self.remark))
        rows: dict[str, str] = {}
        for name, value in asdict(self).items():
            if name not in left_out:
                rows[called(name)] = shown(value)
            if name == "hops" and value is not None:
                rows["each then depends on"] = in_the_end(bool(self.reads_everything), bool(self.reads_past))
        return rows


def called(name: str) -> str:
    """The name of a fact in words."""
    return name.removeprefix("num_").replace("_", " ")


def as_table(columns: list[tuple[str, Facts]]) -> str:
    """The facts as rows, a column for each graph, and below why some are left out."""
    known = [facts._rows() for _, facts in columns]
    names = list(dict.fromkeys(name for rows in sorted(known, key=len, reverse=True) for name in rows))
    width = max(map(len, names))
    cells = [[title, *(rows.get(name, "-") for name in names)] for (title, _), rows in zip(columns, known, strict=True)]
    wide = [max(map(len, column)) for column in cells]
    lines = [
        f"{name:<{width}}  {'  '.join(f'{column[row]:<{w}}' for column, w in zip(cells, wide, strict=True))}".rstrip()
        for row, name in enumerate(["", *names])
    ]
    return "\n".join([*(line for line in lines if line), *_together(columns)])


def _together(columns: list[tuple[str, Facts]]) -> list[str]:
    """What was left out, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for title, facts in columns:
        for name, why in facts.left_out.items():
            reasons.setdefault(why, []).append(called(name) + f" of {title}" * bool(title))
    return [f"no {', '.join(names)}: {why}" for why, names in reasons.items()]


def shown(value: Any) -> str:
    """A fact as text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def facts_of_one(graph: AttentionGraph, budget: int, among: int = 1) -> Facts:
    """Everything about one graph, among so many, that is known in seconds.

    Raises:
        GraphError: If its nodes, or the intervals of its rows, are too many for the budget.
    """
    afford, walked = max(budget, _FREE), among * max(graph.num_sources, graph.edges.num_runs)
    if _WALK * walked > afford:
        others = " and others" * (among > 1)
        raise GraphError(
            f"facts would walk over about {walked:,} intervals of sources of {graph.name}{others} (limit "
            f"{afford // _WALK:,}); ask a smaller size, num_edges and contains() of this one, or "
            f"facts(..., budget={_WALK * walked})"
        )
    left_out: dict[str, str] = {}
    answers: dict[str, Any] = {}
    connected, searched = ("components", "strong_components", "roots", "acyclic"), tuple(_IN)
    names = (*connected, *searched) if graph.is_square else connected[:1]
    cost = among * _CONNECT * _looked_at(graph.edges)
    if cost > afford:
        why = f"searches would look at about {cost:,} edges (limit {afford:,}): try budget={cost}"
        left_out.update(dict.fromkeys(names, why))
    elif graph.is_square:
        _ask(connected, lambda: connectivity(graph), answers, left_out)
        _ask(searched, lambda: hops(graph, budget), answers, left_out)
    if "components" not in answers and cost <= afford:
        left_out.pop("components", None)
        _ask(("components",), lambda: num_components(graph), answers, left_out)
    if graph.is_square and 2 <= graph.num_targets <= _ANALYSED:
        answers["spectral_gap"] = spectral_gap(graph)
    elif graph.is_square and graph.num_targets > _ANALYSED:
        left_out["spectral_gap"] = f"more than {_ANALYSED} nodes; graphattn.analyse.spectral_gap(graph) tries"
    return Facts(**cheap(graph).to_dict(), **answers, left_out=left_out, remark=remark(graph))


def _looked_at(edges: Edges) -> int:
    """Intervals that a question about all ways looks at; of a grid those of its axes, where these answer."""
    axes = looped_axes(edges) or ()
    return sum(map(_looked_at, axes)) if axes else max(edges.num_sources, edges.num_runs)


_IN = {
    "hops": "layers",
    "reads_everything": "everything",
    "reads_past": "past",
}  # what a fact is called in the answer it is part of


def _ask(names: tuple[str, ...], question: Any, answers: dict[str, Any], left_out: dict[str, str]) -> None:
    try:
        answer = question()
    except GraphError as error:
        left_out.update(dict.fromkeys(names, str(error)))
        return
    for name in names:
        answers[name] = answer if isinstance(answer, int) else getattr(answer, _IN.get(name, name))
