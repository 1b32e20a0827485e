"""All facts about a graph that cost seconds at most, and for the others why they were left out."""

from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import GraphError
from ..graph import AttentionGraph
from ..graph.facts import Facts as Cheap
from ..graph.facts import facts as cheap
from .connectivity import connectivity, num_components
from .forms import need_graph
from .hops import hops
from .spectrum import spectral_gap

_SEARCHED = 1 << 26  # edges that the searches for hops may look at
_MOST_NODES = 1 << 26  # whose degrees fit in a GiB
_MOST_RUNS = 1 << 28  # intervals of sources that a walk over a rule's rows may meet; some ten seconds
_ANALYSED = 512  # nodes up to which eigenvalues are a matter of course


@dataclass(frozen=True)
class Facts(Cheap):
    """What :func:`facts` found: counts are exact Python integers; ``None`` where a fact has no meaning or was left out.

    Args:
        components: Parts without an edge between them, whichever way it points.
        strong_components: Largest sets of nodes of which each hears of each other.
        roots: Nodes that every node hears of at last; more than 0 is quasi-strong connectivity.
        acyclic: Whether no cycle is longer than a self-loop.
        hops: Layers until nothing new is heard; see :func:`graphattn.hops`.
        everything_heard: Whether every node has then heard of every node.
        spectral_gap: See :func:`graphattn.spectral_gap`.
        left_out: For each fact that was left out, why.
    """

    components: int | None = None
    strong_components: int | None = None
    roots: int | None = None
    acyclic: bool | None = None
    hops: int | None = None
    everything_heard: bool | None = None
    spectral_gap: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain Python values."""
        return asdict(self)

    def __str__(self) -> str:
        said = {name: value for name, value in asdict(self).items() if name not in ("left_out", *self.left_out)}
        width = max(map(len, said))
        lines = [f"{name.removeprefix('num_').replace('_', ' '):<{width}}  {shown(v)}" for name, v in said.items()]
        reasons: dict[str, list[str]] = {}
        for name, why in self.left_out.items():
            reasons.setdefault(why, []).append(name.replace("_", " "))
        return "\n".join([*lines, *(f"no {', '.join(names)}: {why}" for why, names in reasons.items())])


def shown(value: Any) -> str:
    """A fact as text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def facts(graph: AttentionGraph) -> Facts:
    """Everything about a graph that is known in seconds, exact; what costs more is named in ``left_out``.

    Sizes, degrees, causal, symmetric, self-loops, isolated targets and unused sources; components, cycles and roots;
    hops until everything is heard; up to 512 nodes, the spectral gap.

    Raises:
        GraphError: If it is no graph, there are more than 2**26 nodes, whose degrees alone would not fit in a GiB, or
            a rule's rows have more than 2**28 intervals of sources.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> found = facts(sliding_window(100_000, window=257))
        >>> found.acyclic, found.roots, found.hops, found.everything_heard
        (True, 1, 391, False)
    """
    need_graph(graph, "facts")
    nodes = graph.num_targets + (0 if graph.is_square else graph.num_sources)
    if nodes > _MOST_NODES:
        raise GraphError(f"facts needs the degrees of {nodes:,} nodes (limit {_MOST_NODES:,}); ask a smaller size")
    walked = graph.edges.runs_per_row * graph.num_targets if graph.is_rule else 0
    if walked > _MOST_RUNS:
        raise GraphError(
            f"facts would walk over about {walked:,} intervals of sources of {graph.name} (limit {_MOST_RUNS:,}); "
            "ask a smaller size, or num_edges and contains() of this one"
        )
    left_out: dict[str, str] = {}
    found: dict[str, Any] = {}
    if graph.is_square:
        _ask(("components", "strong_components", "roots", "acyclic"), lambda: connectivity(graph), found, left_out)
        _ask(("hops", "everything_heard"), lambda: hops(graph, _SEARCHED), found, left_out)
        if 2 <= graph.num_targets <= _ANALYSED:
            found["spectral_gap"] = spectral_gap(graph)
        elif graph.num_targets > _ANALYSED:
            left_out["spectral_gap"] = f"more than {_ANALYSED} nodes; graphattn.spectral_gap(graph) tries"
    if "components" not in found:
        left_out.pop("components", None)
        _ask(("components",), lambda: num_components(graph), found, left_out)
    return Facts(**cheap(graph).to_dict(), **found, left_out=left_out)


_IN = {"hops": "layers", "everything_heard": "everything"}  # what a fact is called in the answer it is part of


def _ask(names: tuple[str, ...], question: Any, found: dict[str, Any], left_out: dict[str, str]) -> None:
    try:
        answer = question()
    except GraphError as error:
        left_out.update(dict.fromkeys(names, str(error)))
        return
    for name in names:
        found[name] = answer if isinstance(answer, int) else getattr(answer, _IN.get(name, name))
