"""Values of edges by head, on one scale: matrices, lines between lists, or in place."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arguments import one_of, several, whole
from ..errors import OptionError, ShapeError
from ..graph.graph import AttentionGraph
from ..graph.modes import cached_property
from ..printed import counted
from .choice import MOST_SOURCES, all_edges, checked_targets, spread_targets
from .edge_weights import by_edge
from .layouts import Layout, layout_of
from .layouts.base import Array, Index, Names
from .layouts.network import NetworkLayout
from .layouts.pick import names_of
from .layouts.points import Points
from .mask_image import ticks
from .style import (
    FAINT,
    GROUND,
    HEAT,
    INK,
    LINES,
    TEXT,
    WEIGHTS,
    Style,
    Words,
    empty_figure,
    fitting,
    is_narrow,
    number,
    quiet,
    weight_bar,
    weight_scale,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_HEADS = 12
_IN_A_ROW = 4
_EXACT = 256  # nodes whose weights are shown pair by pair
_MOST_CELLS = 128
_NAMED = 40  # tokens of a list
_MOST_LINES = 3_000


@dataclass(frozen=True)
class Shown:
    """Values to draw: each edge once, copies added up.

    Args:
        graph: Their graph.
        alpha: float64 (E, n), a column for each panel, in the graph's order; NaN where a head has
            no such edge.
        names: Words for targets and for sources, or ``None``.
        target: The target whose edges alone are drawn, or ``None``.
        place: Where the nodes are, for a view that needs it.
        has_heads: True where heads have graphs of their own.
    """

    graph: AttentionGraph
    alpha: Array
    names: Names
    target: int | None
    place: Layout | None
    has_heads: bool

    @cached_property
    def edges(self) -> tuple[Index, Index, Array]:
        """``(target, source, values)``, by target, then by source; ``values`` is (n, panels)."""
        source, target = self.graph.edge_index.cpu().numpy()
        if self.has_heads:
            mask = ~np.isnan(self.alpha).all(1)
        else:
            mask = np.ones(len(source), dtype=bool)
        if self.target is not None:
            mask &= target == self.target
        source = source[mask]
        target = target[mask]
        alpha = self.alpha[mask]
        pairs, copy = np.unique(target * self.graph.num_sources + source, return_inverse=True)
        total = np.zeros((len(pairs), alpha.shape[1]))
        np.add.at(total, copy, alpha)
        target, source = np.divmod(pairs, max(1, self.graph.num_sources))
        return target, source, total

    def of(self, panel: int) -> tuple[Index, Index, Array]:
        """``(target, source, value)`` of the edges of a panel."""
        target, source, values = self.edges
        there = ~np.isnan(values[:, panel])
        return target[there], source[there], values[there, panel]


def draw_values(
    weights: Any,
    quantity: str,
    view: str | None,
    target: Any,
    heads: Any,
    relative: bool | None,
    where: dict[str, Any],
    tokens: Any,
    figure: Any,
    words: Words,
) -> "Figure":
    """The picture of :func:`plot` for values of edges; ``where`` has the arguments of a place."""
    view = _view(view, target, where)
    graph, (names, alpha, left_out) = weights.graph, _panels(weights, heads)
    if view == "place":
        place = layout_of(graph, tokens=tokens, **where)
    else:
        place = None
    if relative is None:
        relative = place is not None
    if target is None and place is not None:
        # a target that reads something, well inside the picture
        if graph.num_targets == 0:
            raise OptionError(
                'view "place" shows what one target reads, and the graph has no targets'
            )
        target = next(iter(spread_targets(graph, place.target_at)), 0)
    elif target is not None:
        (target,) = checked_targets(graph, target, "target", 1)
    has_heads = getattr(weights, "heads", None) is not None
    shown = Shown(graph, alpha, names_of(graph, tokens), target, place, has_heads)
    rows = -(-len(names) // _IN_A_ROW)
    columns = min(len(names), _IN_A_ROW)
    draw, colours, width, height = _VIEWS[view]
    if isinstance(place, Points) and place.paints(len(shown.edges[0])):
        colours = HEAT
    if place and len(names) == 1:
        size = (6.4, 4.8)
    else:
        size = (max(4.2, width * columns + 1.3), height * rows + 0.9)
    canvas = empty_figure(figure, *size)
    scale, on_scale = weight_scale(shown.edges[2], relative, colours)
    panels = []
    remarks = []
    for i, name in enumerate(names):
        ax = canvas.add_subplot(rows, columns, i + 1)
        ax.set_title(name, fontsize=TEXT)
        # of the row of panels
        edge = (
            i % columns == 0,
            i % columns == columns - 1 or i == len(names) - 1,
        )
        remarks += draw(ax, shown, i, scale, edge)
        panels.append(ax)
    remarks += on_scale
    if place is not None:
        remarks += place.remarks()
    if left_out:
        remarks.append(f"{counted(left_out, 'head')} more; choose them with heads=.")
    shrink = 0.5
    if rows == 1:
        shrink = 0.8
    beside: Style = {"shrink": shrink, "pad": 0.02, "aspect": 25}
    below: Style = {"location": "bottom", "shrink": 0.7, "pad": 0.04, "aspect": 30}
    if words.legend:
        if relative:
            label = f"{quantity}, up to the largest drawn"
        else:
            label = quantity
        options = beside
        if is_narrow(canvas):
            options = below
        weight_bar(canvas, scale, panels, label, **options)
    words.put(canvas, _title(shown, len(names)), list(dict.fromkeys(remarks)))
    if place is not None and len(names) == 1:
        _, source, values = shown.of(0)
        place.label(panels[0], target, source[np.argsort(-abs(values), kind="stable")])
    return canvas


def _title(shown: Shown, panels: int) -> str:
    heads = f": {counted(panels, 'head')}" * (panels > 1)
    if shown.target is None:
        return f"{shown.graph.name}{heads}"
    words = shown.names[0]
    target = number(shown.target)
    if words is None:
        named = f"target {target}"
    else:
        named = f"“{words[shown.target]}” (target {target})"
    return f"{named} reads {counted(len(shown.edges[1]), 'source')}{heads}"


def _view(view: Any, target: Any, where: dict[str, Any]) -> str:
    """The view given, or the one that the other arguments are for."""
    if view is None:
        if target is None and not where:
            return "matrix"
        return "place"
    one_of(view, "view", _VIEWS)
    if where and view != "place":
        raise OptionError(f'{", ".join(where)}: for view "place" alone, got view "{view}"')
    return str(view)


def _panels(weights: Any, heads: int | Iterable[int] | str | None) -> tuple[list[str], Array, int]:
    """A name and a column of values for each panel, and how many heads there are beside these."""
    alpha = by_edge(weights).double().cpu().numpy()
    if getattr(weights, "heads", None) is not None:
        present = weights.present().cpu().numpy()
    else:
        present = None
    count = alpha.shape[1]
    if isinstance(heads, str):
        one_of(heads, "heads", ("mean",))
        mean = alpha.mean(1, keepdims=True)
        label = ""
        if count > 1:
            label = f"mean over {count} heads"
        names = [label]
        values = mean
        if present is not None:
            values = np.where(present.any(1, keepdims=True), mean, np.nan)
        return names, values, 0
    if heads is None:
        chosen = list(range(min(count, _MOST_HEADS)))
    else:
        chosen = _numbers(heads, count)
    if not 0 < len(chosen) <= _MOST_HEADS:
        raise OptionError(
            f'heads must be "mean", or 1 to {_MOST_HEADS} numbers below {count}, got {len(chosen)}'
        )
    if present is None:
        values = alpha
    else:
        values = np.where(present, alpha, np.nan)
    names = [""] * len(chosen)
    if count > 1:
        names = [f"head {head}" for head in chosen]
    hidden = 0
    if heads is None:
        hidden = count - len(chosen)
    return names, values[:, chosen], hidden


def _numbers(heads: Any, count: int) -> list[int]:
    one = isinstance(heads, int) or getattr(heads, "ndim", 1) == 0
    expected = f'must be "mean", a number below {count}, or a list of them'
    chosen = [
        whole(head, "heads") for head in ([heads] if one else several(heads, "heads", expected))
    ]
    for head in chosen:
        if not 0 <= head < count:
            raise ShapeError(f"head must be in [0, {count}), got {head}")
    return chosen


def _matrix(ax: Any, shown: Shown, panel: int, scale: Any, edge: tuple[bool, bool]) -> list[str]:
    """Targets are rows; the value farthest from 0 of a cell where one is several pairs."""
    T = shown.graph.num_targets
    S = shown.graph.num_sources
    height, width = (1 if size <= _EXACT else -(-size // _MOST_CELLS) for size in (T, S))
    cells = np.full((-(-T // height), -(-S // width)), np.nan)
    target, source, values = shown.of(panel)
    order = np.argsort(abs(values), kind="stable")
    # the last, farthest from 0, stays
    cells[target[order] // height, source[order] // width] = values[order]
    if cells.size:
        style: Style = {"cmap": scale.cmap, "norm": scale.norm, "interpolation": "nearest"}
        box = (-0.5, S - 0.5, T - 0.5, -0.5)
        aspect = "auto"
        if 0.25 <= T / S <= 4:
            aspect = "equal"
        ax.imshow(
            np.ma.masked_invalid(cells),
            extent=box,
            aspect=aspect,
            **style,
        )
    row_label = None
    if edge[0]:
        row_label = shown.names[0]
    ticks(ax, T, S, (row_label, shown.names[1]))
    ax.tick_params(labelsize=TEXT - 2)
    ax.set_xlabel("source", fontsize=TEXT - 1)
    if edge[0]:
        ax.set_ylabel("target", fontsize=TEXT - 1)
    else:
        ax.tick_params(labelleft=False)
    if height == width == 1:
        if shown.has_heads:
            whose = " of the head"
        else:
            whose = ""
        return [f"White where no edge{whose} is drawn, or its value is NaN."]
    return [
        f"A cell is {counted(height, 'target')} by {counted(width, 'source')}, with the value in "
        "it farthest from 0; white without an edge."
    ]


def _lines(ax: Any, shown: Shown, panel: int, scale: Any, edge: tuple[bool, bool]) -> list[str]:
    """Targets on the left, sources on the right, first node on top; a line for each edge."""
    from matplotlib.collections import LineCollection

    target, source, values = shown.of(panel)
    order = np.argsort(abs(values), kind="stable")[-_MOST_LINES:]  # the heaviest on top
    sides = ((0.0, target, shown.graph.num_targets), (1.0, source, shown.graph.num_sources))
    ends = [
        np.stack((np.full(len(order), x), _heights(size)[nodes[order]]), 1)
        for x, nodes, size in sides
    ]
    share = np.clip(abs(values[order]) / scale.norm.vmax, 0, 1)
    drawn = LineCollection(
        list(np.stack(ends, 1)), colors=scale.to_rgba(values[order]), linewidths=0.5 + 2 * share
    )
    drawn.set_gid("lines")
    quiet(ax)
    ax.add_collection(drawn, autolim=False)
    ax.set(xlim=(-0.04, 1.04), ylim=(-1.01, 0.01))
    for (x, _, size), names, named in zip(sides, shown.names, edge, strict=True):
        labels = None
        if named:
            labels = names
        _list(ax, x, _heights(size), labels)
    sentences = ["Targets are on the left, sources on the right, the first on top."]
    if len(values) > _MOST_LINES:
        sentences.append(f"Of each head at most the {_MOST_LINES:,} heaviest lines are drawn.")
    return sentences


def _heights(size: int) -> Array:
    """Places from 0 down to -1 in a list."""
    return -(np.arange(size) + 0.5) / max(1, size)


def _list(ax: Any, x: float, y: Array, names: list[str] | None) -> None:
    """A column of nodes, with their words on the outside."""
    if len(y) <= 4 * _NAMED:
        ax.scatter(np.full(len(y), x), y, s=7, color=GROUND, zorder=3)
    else:
        ax.plot([x, x], [-1, 0], color=GROUND, linewidth=2, zorder=3)
    if names is None or len(y) > _NAMED:
        return
    align = "right"
    if x:
        align = "left"
    style: Style = {
        "ha": align,
        "va": "center",
        "color": INK,
        "fontsize": TEXT - 1,
    }
    offset = -6
    if x:
        offset = 6
    style |= {
        "xytext": (offset, 0),
        "textcoords": "offset points",
        "annotation_clip": False,
    }
    for place, name in zip(y, names, strict=True):
        ax.annotate(fitting(name), (x, place), **style)


def _place(ax: Any, shown: Shown, panel: int, scale: Any, edge: tuple[bool, bool]) -> list[str]:
    """The sources of one target where they live."""
    place = shown.place
    target = shown.target
    assert place is not None
    assert target is not None
    _, source, values = shown.of(panel)
    near = place.close_up(target, shown.edges[1], 0.7)
    place.face(target)
    painted = isinstance(place, Points) and place.paints(len(shown.edges[1]))
    if isinstance(place, Points):
        if painted:
            place.colours = place.painted(source, scale.to_rgba(values)[:, :3])
        else:
            place.colours = None
    sentences = [place.reads] * bool(place.reads) + place.ground(ax, near)
    if shown.alpha.shape[1] > 1:
        ax.set(xlabel="", ylabel="")
    if isinstance(place, NetworkLayout):
        every = all_edges(shown.graph)
    else:
        every = None
    if every is not None:
        place._lines(ax, place.paths(*every), FAINT, 0.7, "edges")
    order = np.argsort(abs(values), kind="stable")  # the heaviest on top
    if painted:
        if len(order) <= MOST_SOURCES:
            place.field(ax, target, source[order], scale.to_rgba(values[order]))
        else:
            place.mark_target(ax, target, "white", "*")
        return sentences + ["What is grey is not read."] * (len(order) < shown.graph.num_sources)
    if place.draws_all_edges and len(order) > MOST_SOURCES:
        order = order[-MOST_SOURCES:]
        sentences.append(
            f"Only the {MOST_SOURCES} heaviest of {number(len(source))} sources are drawn."
        )
    share = np.clip(abs(values[order]) / scale.norm.vmax, 0, 1)
    place.neighbourhood(ax, target, source[order], scale.to_rgba(values[order]), "*", share)
    return sentences


#: How a panel is drawn, in which colours, and its size in inches.
_VIEWS: dict[str, tuple[Any, tuple[str, ...], float, float]] = {
    "matrix": (_matrix, WEIGHTS, 2.1, 2.3),
    "lines": (_lines, LINES, 2.0, 3.4),
    "place": (_place, WEIGHTS, 2.5, 2.6),
}
