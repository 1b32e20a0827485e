"""One head's weights in a panel: a matrix, lines between two lists, or sources where they live."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph.graph import AttentionGraph
from .choice import MOST_SOURCES
from .mask_image import ticks
from .places import Place
from .places.base import Array, Index
from .style import GROUND, INK, TEXT, counted, fitting, quiet

_EXACT = 256  # nodes whose weights are shown pair by pair
_MOST_CELLS = 128
_NAMED = 40  # tokens of a list
_FAINT = 0.01  # of the largest weight: lines below are not drawn
_MOST_LINES = 3_000

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
    """

    graph: AttentionGraph
    alpha: Array
    names: Names
    targets: list[int] | None
    place: Place | None
    own: NDArray[np.bool_] | None = None

    @cached_property
    def _edges(self) -> tuple[Index, Index, Array]:
        source, target = self.graph.edge_index.cpu().numpy()
        alpha = self.alpha if self.own is None else np.where(self.own, self.alpha, np.nan)
        if self.targets is not None:
            kept = target == self.targets[0]
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
    def largest(self) -> float:
        """Of all weights; 0 without an edge."""
        return float(np.nan_to_num(self._edges[2]).max(initial=0.0))


def matrix(ax: Any, shown: Shown, head: int, scale: Any, edge: tuple[bool, bool]) -> list[str]:
    """Targets are rows; the largest weight of a cell where one is several pairs."""
    T, S = shown.graph.num_targets, shown.graph.num_sources
    height, width = (1 if size <= _EXACT else -(-size // _MOST_CELLS) for size in (T, S))
    cells = np.full((-(-T // height), -(-S // width)), np.nan)
    target, source, values = shown.of(head)
    np.fmax.at(cells, (target // height, source // width), values)
    box = (-0.5, S - 0.5, T - 0.5, -0.5)
    if cells.size:
        style: dict[str, Any] = {"cmap": scale.cmap, "norm": scale.norm, "interpolation": "nearest"}
        ax.imshow(np.ma.masked_invalid(cells), extent=box, aspect="equal" if 0.25 <= T / S <= 4 else "auto", **style)
    ticks(ax, T, S, (shown.names[0] if edge[0] else None, shown.names[1]))
    ax.tick_params(labelsize=TEXT - 2)
    ax.set_xlabel("source", fontsize=TEXT - 1)
    if edge[0]:
        ax.set_ylabel("target", fontsize=TEXT - 1)
    else:
        ax.tick_params(labelleft=False)
    if height == width == 1:
        return ["White where there is no edge." if shown.own is None else "White where the head has no edge."]
    return [
        f"A cell is {counted(height, 'target')} by {counted(width, 'source')}, as dark as the largest weight in it; "
        "white without an edge."
    ]


def lines(ax: Any, shown: Shown, head: int, scale: Any, edge: tuple[bool, bool]) -> list[str]:
    """Targets on the left, sources on the right, first node on top; a line for each edge."""
    from matplotlib.collections import LineCollection

    T, S = shown.graph.num_targets, shown.graph.num_sources
    target, source, values = shown.of(head)
    largest = scale.norm.vmax
    order = np.argsort(values, kind="stable")[-_MOST_LINES:]  # the heaviest on top
    order = order[values[order] >= _FAINT * largest]
    at = [-(nodes + 0.5) / max(1, size) for nodes, size in ((target, T), (source, S))]
    ends = [np.stack((np.full(len(order), x), y[order]), 1) for x, y in zip((0.0, 1.0), at, strict=True)]
    share = values[order] / largest
    drawn = LineCollection(list(np.stack(ends, 1)), colors=scale.to_rgba(values[order]), linewidths=0.4 + 2 * share)
    drawn.set_gid("lines")
    quiet(ax)
    ax.add_collection(drawn, autolim=False)
    ax.set(xlim=(-0.04, 1.04), ylim=(-1.01, 0.01))
    for x, size, names, side, first in (
        (0.0, T, shown.names[0], "left", True),
        (1.0, S, shown.names[1], "right", False),
    ):
        _list(ax, x, size, names if edge[0 if first else 1] else None, side)
    few = "Targets are on the left, sources on the right, the first on top."
    return [few, f"Weights below {_FAINT:.0%} of the largest are not drawn."]


def _list(ax: Any, x: float, size: int, names: list[str] | None, side: str) -> None:
    """A column of nodes, with their words on the outside."""
    y = -(np.arange(size) + 0.5) / max(1, size)
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
    where.neighbourhood(ax, target, source[order], scale.to_rgba(values[order]), "*")
    return sentences


#: How a panel is drawn, and its size in inches.
VIEWS: dict[str, tuple[Any, float, float]] = {
    "matrix": (matrix, 2.1, 2.3),
    "lines": (lines, 2.0, 3.4),
    "place": (place, 2.5, 2.6),
}
