"""One head's weights in a panel: a matrix, lines between two lists, or sources where they live."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph.graph import AttentionGraph
from .choice import MOST_SOURCES
from .layouts import Layout
from .layouts.base import Array, Index
from .mask_image import ticks
from .style import GROUND, INK, LINES, TEXT, WEIGHTS, counted, fitting, quiet

_EXACT = 256  # nodes whose weights are shown pair by pair
_MOST_CELLS = 128
_NAMED = 40  # tokens of a list
_MOST_LINES = 3_000
_GAP = 0.06  # of a list, between two sentences

Names = tuple[list[str] | None, list[str] | None]


@dataclass(frozen=True)
class Shown:
    """Weights to draw: each edge once, copies added up.

    Args:
        graph: Their graph.
        alpha: float64 (E, n) of the heads to draw, in the graph's order.
        names: Words for targets and for sources, or ``None``.
        targets: One target, whose edges alone are drawn, or ``None``.
        place: Where the nodes are, for a view that needs it.
        own: bool (E, n), the edges that each of the heads has, or ``None`` where each has all.
        rows, columns: The targets and the sources that are shown.
        b_start: The first token of a second sentence, or ``None``.
    """

    graph: AttentionGraph
    alpha: Array
    names: Names
    targets: list[int] | None
    place: Layout | None
    own: NDArray[np.bool_] | None
    rows: range
    columns: range
    b_start: int | None = None

    @cached_property
    def _edges(self) -> tuple[Index, Index, Array]:
        source, target = self.graph.edge_index.cpu().numpy()
        alpha = self.alpha if self.own is None else np.where(self.own, self.alpha, np.nan)
        kept = (_within(target, self.rows) & _within(source, self.columns)).astype(bool)
        if self.targets is not None:
            kept &= target == self.targets[0]
        source, target, alpha = source[kept], target[kept], alpha[kept]
        pairs, copy = np.unique(target * self.graph.num_sources + source, return_inverse=True)
        total = np.zeros((len(pairs), alpha.shape[1]))
        np.add.at(total, copy, alpha)
        target, source = np.divmod(pairs, max(1, self.graph.num_sources))
        return target, source, total

    def of(self, head: int) -> tuple[Index, Index, Array]:
        """``(target, source, weight)`` of the edges of a head, by target, then by source."""
        target, source, values = self._edges
        there = ~np.isnan(values[:, head])
        return target[there], source[there], values[there, head]

    @property
    def all_sources(self) -> Index:
        """int64 (n,): of the edges that some head has."""
        return self._edges[1]

    @property
    def values(self) -> Array:
        """float64 (n, heads): of the edges that some head has; NaN where a head has not."""
        return self._edges[2]

    def parted(self, nodes: range) -> bool:
        """Whether both sentences are among these nodes."""
        return self.b_start is not None and nodes.start < self.b_start < nodes.stop


def _within(node: Index, nodes: range) -> Any:
    return (nodes.start <= node) & (node < nodes.stop)


def matrix(ax: Any, shown: Shown, head: int, scale: Any, edge: tuple[bool, bool]) -> list[str]:
    """Targets are rows; the largest weight of a cell where one is several pairs."""
    rows, columns = shown.rows, shown.columns
    T, S = len(rows), len(columns)
    height, width = (1 if size <= _EXACT else -(-size // _MOST_CELLS) for size in (T, S))
    cells = np.full((-(-T // height), -(-S // width)), np.nan)
    target, source, values = shown.of(head)
    np.fmax.at(cells, ((target - rows.start) // height, (source - columns.start) // width), values)
    box = (columns.start - 0.5, columns.stop - 0.5, rows.stop - 0.5, rows.start - 0.5)
    if cells.size:
        style: dict[str, Any] = {"cmap": scale.cmap, "norm": scale.norm, "interpolation": "nearest"}
        ax.imshow(np.ma.masked_invalid(cells), extent=box, aspect="equal" if 0.25 <= T / S <= 4 else "auto", **style)
    ticks(ax, rows, columns, (shown.names[0] if edge[0] else None, shown.names[1]))
    for nodes, line in ((rows, ax.axhline), (columns, ax.axvline)):
        if shown.b_start is not None and shown.parted(nodes):
            line(shown.b_start - 0.5, color=INK, linewidth=1.2, gid="between sentences")
    ax.tick_params(labelsize=TEXT - 2)
    ax.set_xlabel("source", fontsize=TEXT - 1)
    if edge[0]:
        ax.set_ylabel("target", fontsize=TEXT - 1)
    else:
        ax.tick_params(labelleft=False)
    if height == width == 1:
        whose = "" if shown.own is None else " of the head"
        return [f"White where no edge{whose} is drawn, or its weight is NaN."]
    return [
        f"A cell is {counted(height, 'target')} by {counted(width, 'source')}, as dark as the largest weight in it; "
        "white without an edge."
    ]


def lines(ax: Any, shown: Shown, head: int, scale: Any, edge: tuple[bool, bool]) -> list[str]:
    """Targets on the left, sources on the right, first node on top; a line for each edge."""
    from matplotlib.collections import LineCollection

    target, source, values = shown.of(head)
    order = np.argsort(values, kind="stable")[-_MOST_LINES:]  # the heaviest on top
    at = [_heights(shown, nodes)[side[order] - nodes.start]
          for side, nodes in ((target, shown.rows), (source, shown.columns))]  # fmt: skip
    ends = [np.stack((np.full(len(order), x), y), 1) for x, y in zip((0.0, 1.0), at, strict=True)]
    share = np.clip(scale.norm(values[order]), 0, 1)
    drawn = LineCollection(list(np.stack(ends, 1)), colors=scale.to_rgba(values[order]), linewidths=0.5 + 2 * share)
    drawn.set_gid("lines")
    quiet(ax)
    ax.add_collection(drawn, autolim=False)
    ax.set(xlim=(-0.04, 1.04), ylim=(-1.01, 0.01))
    for x, nodes, names, side, named in (
        (0.0, shown.rows, shown.names[0], "left", edge[0]),
        (1.0, shown.columns, shown.names[1], "right", edge[1]),
    ):
        _list(ax, x, _heights(shown, nodes), [names[node] for node in nodes] if names and named else None, side)
    sentences = ["Targets are on the left, sources on the right, the first on top."]
    if len(values) > _MOST_LINES:
        sentences.append(f"Of each head at most the {_MOST_LINES:,} heaviest lines are drawn.")
    return sentences


def _heights(shown: Shown, nodes: range) -> Array:
    """Places from 0 down to -1 in a list, with a gap before the second sentence."""
    node = np.arange(nodes.start, nodes.stop)
    if shown.b_start is None or not shown.parted(nodes):
        return -(node - nodes.start + 0.5) / max(1, len(nodes))
    return -((node - nodes.start + 0.5) / len(nodes) * (1 - _GAP) + _GAP * (node >= shown.b_start))


def _list(ax: Any, x: float, y: Array, names: list[str] | None, side: str) -> None:
    """A column of nodes, with their words on the outside."""
    size = len(y)
    if size <= 4 * _NAMED:
        ax.scatter(np.full(size, x), y, s=7, color=GROUND, zorder=3)
    else:
        ax.plot([x, x], [-1, 0], color=GROUND, linewidth=2, zorder=3)
    if names is None or size > _NAMED:
        return
    style: dict[str, Any] = {"ha": "right" if side == "left" else "left", "va": "center", "color": INK}
    shift = (-6 if side == "left" else 6, 0)
    for place, name in zip(y, names, strict=True):
        ax.annotate(
            fitting(name),
            (x, place),
            shift,
            textcoords="offset points",
            fontsize=TEXT - 1,
            annotation_clip=False,
            **style,
        )


def place(ax: Any, shown: Shown, head: int, scale: Any, edge: tuple[bool, bool]) -> list[str]:
    """The sources of one target where they live."""
    where, (target,) = shown.place, shown.targets or [0]
    if where is None:
        return []
    _, source, values = shown.of(head)
    near = where.close_up(target, shown.all_sources, 0.7)
    where.face(target)
    sentences = [where.reads] * bool(where.reads) + where.ground(ax, near)
    ax.set(xlabel="", ylabel="")
    order = np.argsort(values, kind="stable")  # the heaviest on top
    if where.draws_all_edges and len(order) > MOST_SOURCES:
        order = order[-MOST_SOURCES:]
        sentences.append(f"Only the {MOST_SOURCES} heaviest of {len(source):,} sources are drawn.")
    share = np.clip(scale.norm(values[order]), 0, 1)
    where.neighbourhood(ax, target, source[order], scale.to_rgba(values[order]), "*", share)
    return sentences


#: How a panel is drawn, in which colours, and its size in inches.
VIEWS: dict[str, tuple[Any, tuple[str, ...], float, float]] = {
    "matrix": (matrix, WEIGHTS, 2.1, 2.3),
    "lines": (lines, LINES, 2.0, 3.4),
    "place": (place, WEIGHTS, 2.5, 2.6),
}
