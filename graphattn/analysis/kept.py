"""A graph and its control: which properties are the same, and how far the others differ."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..arguments import whole
from ..errors import GraphError
from ..graph import AttentionGraph, need_graph
from ..graphs.of_graphs.controls import WITHIN
from ..printed import Printed
from .bottlenecks.undirected import undirected
from .paths.receptive_field import receptive_field


@dataclass(frozen=True)
class KeptProperty:
    """A property of a graph and of its control.

    Args:
        kept: True if it is the same in both; of reach and clustering, within 5 %.
        before: Its value in the graph; ``None`` of a property without a number.
        after: Its value in the control.
    """

    kept: bool
    before: float | None = None
    after: float | None = None


@dataclass(frozen=True, repr=False)
class Kept(Printed):
    """The result of :func:`kept`.

    Args:
        properties: By name: in-degrees, out-degrees, self-loops, symmetry, "no later source",
            reach and clustering; symmetry and "no later source" where the graph has them.
        edges: Share of the graph's edges that are the control's, self-loops apart; ``None``
            without such an edge.
        layers: Layers that reach is of.
    """

    properties: dict[str, KeptProperty]
    edges: float | None
    layers: int

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the properties that are kept."""
        return tuple(name for name, item in self.properties.items() if item.kept)

    def to_dict(self) -> dict[str, Any]:
        """The properties as plain Python values."""
        return asdict(self)

    def in_full(self) -> str:
        rows = [self._row(name, item) for name, item in self.properties.items()]
        if self.edges is not None:
            rows.append(("edges in common", f"{self.edges:.0%}", ""))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines)

    def _row(self, name: str, item: KeptProperty) -> tuple[str, str, str]:
        answer = "other"
        if item.kept:
            answer = "kept"
        if name == "reach":
            name = f"reach, {self.layers} layers"
        if item.before is None:
            return name, answer, ""
        return name, answer, f"{item.before:.3g} -> {item.after:.3g}"


def kept(graph: AttentionGraph, control: AttentionGraph, *, layers: int = 2) -> Kept:
    """The properties that a control has in common with its graph, and how far the others differ.

    Args:
        graph: The graph, square.
        control: A graph of as many nodes, such as
            :func:`graphattn.graphs.degree_matched_random` draws.
        layers: Number of layers, after which the nodes that a node depends on are counted, where it
            keeps what it has: its reach, in the mean.
    Returns:
        :class:`Kept`, printed as a table. Reach and clustering count as kept within 5 %.
        Clustering is the mean share of a node's neighbours, by an edge of either direction, that
        are neighbours; 0 of a node with fewer than two, as networkx has it.
    Raises:
        GraphError: If one of them is no square graph, their sizes differ, or one is too large.
    Example:
        >>> from graphattn.graphs import degree_matched_random, sliding_window
        >>> window = sliding_window(64, 7, causal=False)
        >>> print(kept(window, degree_matched_random(window, layers=2)))
        in-degrees       kept
        out-degrees      kept
        self-loops       kept
        symmetry         kept
        reach, 2 layers  kept  12.3 -> 12.8
        clustering       kept  0.623 -> 0.626
        edges in common  6%
    """
    for name, value in (("graph", graph), ("control", control)):
        need_graph(value, f"{name} of kept")
        value._need_no_images("kept")
    layers = whole(layers, "layers", 1)
    sizes = {graph.num_targets, graph.num_sources, control.num_targets, control.num_sources}
    if len(sizes) > 1:
        raise GraphError(
            f"graph and control must be square and of one size, got {graph!r} and {control!r}"
        )
    properties = compared(graph, control, layers)
    properties["clustering"] = _near(_clustering(graph), _clustering(control))
    # share of the graph's edges that are the control's, self-loops apart
    others = graph.num_edges - graph._num_loops()
    if others == 0:
        share = None
    else:
        common = graph & control
        share = (common.num_edges - common._num_loops()) / others
    return Kept(properties, share, layers)


def compared(
    graph: AttentionGraph, control: AttentionGraph, layers: int
) -> dict[str, KeptProperty]:
    """All properties of :class:`Kept` but clustering, by name, of two graphs of one size."""
    properties = {
        "in-degrees": KeptProperty(torch.equal(graph.in_degree, control.in_degree)),
        "out-degrees": KeptProperty(torch.equal(graph.out_degree, control.out_degree)),
        "self-loops": KeptProperty(has_same_loops(graph, control)),
    }
    if graph.is_symmetric:
        properties["symmetry"] = KeptProperty(control.is_symmetric)
    if graph.is_causal:
        properties["no later source"] = KeptProperty(control.is_causal)
    properties["reach"] = _near(_mean_reach(graph, layers), _mean_reach(control, layers))
    return properties


def _mean_reach(graph: AttentionGraph, layers: int) -> float:
    """Nodes that a node depends on, in the mean."""
    return float(receptive_field([graph] * layers, residual=True).sizes[-1].double().mean())


def _near(before: float, after: float) -> KeptProperty:
    return KeptProperty(abs(after - before) <= WITHIN * before, before, after)


def has_same_loops(graph: AttentionGraph, control: AttentionGraph) -> bool:
    """True if the same nodes of both graphs read themselves."""
    node = torch.arange(graph.num_nodes)
    return torch.equal(graph.contains(node, node), control.contains(node, node))


def _clustering(graph: AttentionGraph) -> float:
    """Mean share of a node's neighbours that are neighbours."""
    matrix = undirected(graph, "clustering").astype(bool).astype("int64")
    degree = matrix.sum(axis=1)
    closed = (matrix @ matrix).multiply(matrix).sum(axis=1)
    pairs = degree * (degree - 1)
    return float((closed / pairs.clip(1)).mean())
