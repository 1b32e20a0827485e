"""A graph as a picture: its mask, and beside it the graph where its nodes live."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..arguments import check_flags
from ..errors import GraphError
from ..graph.advice import no_graph
from ..graph.graph import AttentionGraph
from ..graphs.points.curves import curve_order
from .choice import MOST_SOURCES, all_edges, can_walk, checked_targets, sources_of, spread_targets, thinned
from .colour_legends import handles_of, scales
from .colours import Colouring, colouring, values_of
from .layouts import Layout, layout_of
from .layouts.pick import names_of
from .layouts.points import Points
from .mask_image import draw_mask
from .style import (
    HIGHLIGHTS,
    INK,
    MARKERS,
    TEXT,
    counted,
    empty_figure,
    fitting,
    is_narrow,
    number,
    plain,
    titled,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NEARER = 0.6  # of the mean distance of edges from the diagonal: another order of the nodes is worth its words


def plot(
    graph: AttentionGraph,
    pos: Any = None,
    *,
    queries: Any = None,
    faces: Any = None,
    color: Any = None,
    size: tuple[int, int] | None = None,
    image: Any = None,
    tokens: Any = None,
    highlight: int | Iterable[int] | None = None,
    layout: str | None = None,
    figure: Any = None,
    caption: bool = True,
    title: bool = True,
    legend: bool = True,
) -> "Figure":
    """The mask as an image, beside the graph drawn where its nodes live.

    Every edge is drawn where there are at most 600 (arcs over a sequence: 200); otherwise only those into a few
    targets, and the caption says so.
    Nothing of size T x S is made for a large graph.

    Args:
        graph: Any graph.
        pos: (S, 2) or (S, 3), where the sources are.
        queries: (T, 2) or (T, 3), where the targets are, if they are other points than the sources.
        faces: int (F, 3), a mesh whose vertices are the nodes; needs ``pos``.
        color: Of the sources (S,) or the faces (F,): labels or amounts, or (S, 3) red, green, blue in [0, 1], as in
            :func:`plot_shape`; needs ``pos``.
        size: (height, width) of a grid, row-major. Rules over a grid know theirs.
        image: Drawn under the grid: (height, width) of grey values, or whole patches of pixels for each cell, grey or
            with a last axis of 3.
        tokens: A word per node; for two sets of nodes a pair, of the targets and of the sources. A graph does not
            know whether its sources and targets are the same nodes where there are as many: a pair, ``queries`` or
            layout "two rows" says that they are not.
        highlight: Targets (at most 6) whose in-edges are coloured; three of them where not all edges can be drawn.
            ``()`` for none.
        layout: "sequence", "two rows", "grid", "points" or "network" (a seeded spring layout); chosen if left out.
        figure: An empty matplotlib ``Figure`` or ``SubFigure`` to draw into.
        caption: Whether sentences below say what is drawn and what is left out.
        title: Whether a line above says what the graph is; in a figure narrower than 5 inches its name alone.
        legend: Whether highlighted targets, and labels of ``color``, are named; in a narrow figure below the picture.

    Returns:
        A matplotlib ``Figure``; ``figure.savefig("graph.pdf")`` writes it.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        ShapeError: If ``pos``, ``queries``, ``faces``, ``color``, ``size``, ``image`` or ``tokens`` do not fit the
            graph.
        GraphError: If ``layout`` cannot draw this graph.
        GraphIndexError: If a highlighted target does not exist.

    Example:
        >>> from graphattn.graphs import causal
        >>> figure = plot(causal(5), tokens="a b c d e".split())
        >>> [axes.get_xlabel() for axes in figure.axes]
        ['source', '']
    """
    check_flags(caption=caption, title=title, legend=legend)
    if not isinstance(graph, AttentionGraph):
        raise no_graph(graph, "graph must be an AttentionGraph")
    where: dict[str, Any] = {"queries": queries, "faces": faces, "size": size, "image": image}
    place = layout_of(graph, pos, tokens=tokens, layout=layout, **where)
    colours = None if color is None else _coloured(place, color)
    names = names_of(graph, tokens)
    every = all_edges(graph, place.most_edges) if place.draws_all_edges else None
    targets = _targets(graph, place, highlight, every is None)
    if len(targets) == 1:
        place.face(targets[0])
    near = place.close_up(targets[0], sources_of(graph, targets[0]), 0.2) if targets else None
    shown = empty_figure(figure, 9.6 if near is None else 12.4, 5.4 if isinstance(place, Points) else 4.8)
    widths = [0.7, 1.3] if isinstance(place, Points) else [1, 1.25]  # a place fills a square, a sequence a row
    widths += [] if near is None else [0.85]
    panels = shown.add_gridspec(1, len(widths), width_ratios=widths, wspace=0.12 if is_narrow(shown) else None)
    kind = "3d" if place.is_3d else None
    ordered, rows, along = _along_a_curve(graph, place, targets)
    mask = draw_mask(shown, shown.add_subplot(panels[0, 0]), ordered, rows, None if along else names) + along
    ax = shown.add_subplot(panels[0, 1], projection=kind)
    sentences = _drawing(ax, graph, place, targets, every)
    if colours is not None:
        sentences += colours.remarks
        scales(shown, [ax], [colours])
    named = [] if colours is None else handles_of(colours.labels)
    if legend and (targets or named):
        _legend(shown, ax, graph, targets, names[0], named)
    if near is not None:
        _close_up(shown.add_subplot(panels[0, 2], projection=kind), graph, place, targets[0], near)
    titled(
        shown,
        None if not title else graph.name if is_narrow(shown) else _title(graph, place),
        (mask + sentences + place.remarks()) * caption,
    )
    return shown


def _coloured(place: Layout, color: Any) -> Colouring:
    """The colours of the sources or faces, which the layout then draws."""
    if not isinstance(place, Points):
        raise GraphError('color is for layout "points", got another; give pos, too')
    faces = () if place.faces is None else (len(place.faces),)
    place.colours = colouring(values_of(color, "color", (len(place.source_at), *faces)), "color")
    return place.colours


def _along_a_curve(
    graph: AttentionGraph, place: Layout, targets: list[int]
) -> tuple[AttentionGraph, list[int], list[str]]:
    """Nodes in the order of a curve through their places, where that brings edges nearer to the diagonal of the mask.

    Returns:
        The graph so numbered, its targets, and a sentence for the caption; all as given where nothing is gained.
    """
    if not isinstance(place, Points) or graph.is_rule or graph.num_edges == 0:
        return graph, targets, []
    S, T = graph.num_sources, graph.num_targets
    both = torch.from_numpy(np.concatenate((place.source_at, place.target_at)) if place.two_sets else place.source_at)
    order = curve_order(both, curve="hilbert")
    source = order[order < S].argsort()
    target = (order[order >= S] - S).argsort() if place.two_sets else source
    ends = graph.target.cpu(), graph.source.cpu()
    away = [(t.double() / T - s.double() / S).abs().mean() for t, s in (ends, (target[ends[0]], source[ends[1]]))]
    if away[1] > _NEARER * away[0]:
        return graph, targets, []
    said = "Its rows and columns are in the order of a Hilbert curve through the points."
    made = replace(graph.relabel(targets=target.to(graph.device), sources=source.to(graph.device)), name=graph.name)
    return made, target[targets].tolist(), [said]


def _title(graph: AttentionGraph, place: Layout) -> str:
    T, S = counted(graph.num_targets, "target"), counted(graph.num_sources, "source")
    one_set = graph.is_square and not place.two_sets
    nodes = counted(graph.num_nodes, "node") if one_set else f"{S} → {T}"
    edges = f", {counted(graph.num_edges, 'edge')}, density {graph.density:.3g}" if can_walk(graph) else ""
    return f"{graph.name}: {nodes}{edges}"


def _targets(graph: AttentionGraph, place: Layout, highlight: Any, needed: bool) -> list[int]:
    if highlight is not None:
        return checked_targets(graph, highlight)
    return spread_targets(graph, place.target_at) if needed else []


def _drawing(ax: Any, graph: AttentionGraph, place: Layout, targets: list[int], every: Any) -> list[str]:
    """Nodes, edges and highlighted neighbourhoods; returns sentences for the caption."""
    sentences = place.ground(ax)
    if place.reads and (targets or every is not None):
        sentences.insert(0, place.reads)
    if every is not None:
        place.edges(ax, *every)
        if place.hides_loops and bool((every[0] == every[1]).any()):
            sentences.append("Self-loops are not drawn.")
    elif place.draws_all_edges:
        total = counted(graph.num_edges, "edge") if can_walk(graph) else "all edges"
        only = f"Of {total} only those into {counted(len(targets), 'target')} are drawn."
        sentences.append(only if targets else "Edges are not drawn.")
    cut = False
    of = {i: sources_of(graph, target) for i, target in enumerate(targets)}
    for i in sorted(of, key=lambda i: -len(of[i])):  # a hub below the others
        target, sources = targets[i], of[i]
        cut |= place.draws_all_edges and len(sources) > MOST_SOURCES
        drawn = thinned(sources) if place.draws_all_edges else sources
        place.neighbourhood(ax, target, drawn, HIGHLIGHTS[i], MARKERS[i])
    if cut:
        sentences.append(f"At most {MOST_SOURCES} per target, evenly spread.")
    return sentences


def _close_up(ax: Any, graph: AttentionGraph, place: Layout, target: int, near: Any) -> None:
    place.ground(ax, near)
    place.neighbourhood(ax, target, thinned(sources_of(graph, target)), HIGHLIGHTS[0], MARKERS[0])
    ax.set_title(f"close-up of target {number(target)}", fontsize=TEXT)


def _handle(i: int, label: str) -> Any:
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"color": HIGHLIGHTS[i], "marker": MARKERS[i], "markeredgecolor": INK, "linewidth": 1.2}
    return Line2D([], [], label=label, **style)


def _legend(
    figure: Any, ax: Any, graph: AttentionGraph, targets: list[int], names: list[str] | None, labels: list[Any]
) -> None:
    """What highlighted targets are called and read, and labels; above the drawing, or below all of a narrow figure."""
    style: dict[str, Any] = {"fontsize": TEXT, "frameon": False, "columnspacing": 1.4, "handlelength": 1.6}
    if is_narrow(figure):
        called = [f"target {number(target)}" if names is None else fitting(names[target]) for target in targets]
        handles = [*(_handle(i, name) for i, name in enumerate(called)), *labels]
        longest = max(len(handle.get_label()) for handle in handles)
        columns = max(1, int(width_of(figure) / (0.55 + 0.08 * longest)))
        figure.legend(handles=handles, ncols=columns, loc="outside lower center", **style | {"columnspacing": 0.8})
        return
    handles = []
    for i, target in enumerate(targets):
        name = f"target {number(target)}" if names is None else f"“{plain(names[target])}” ({number(target)})"
        handles.append(_handle(i, f"{name} reads {counted(len(sources_of(graph, target)), 'source')}"))
    few = 2 if targets else 4
    columns = 1 if max((len(handle.get_label()) for handle in handles), default=0) > 28 else few
    handles += labels
    ax.legend(handles=handles, ncols=columns, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, **style)
