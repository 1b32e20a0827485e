"""Pictures of graphs: the mask beside the nodes in place; edge values; receptive fields."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
import torch

from ..arguments import check_flags
from ..errors import GraphError, OptionError
from ..graph.advice import no_graph
from ..graph.graph import AttentionGraph
from ..graph.like import GraphLike
from ..graphs.points.curves import curve_order
from ..printed import counted
from .choice import (
    MOST_SOURCES,
    all_edges,
    can_walk,
    checked_targets,
    sources_of,
    spread_targets,
    thinned,
)
from .colours import Colouring, colouring, values_of
from .edge_weights import may_be_weights, values_on, weights_in
from .layouts import Layout, layout_of
from .layouts.network import NetworkLayout
from .layouts.pick import names_of
from .layouts.points import Points
from .mask_image import draw_mask
from .receptive_picture import draw_field
from .style import (
    HIGHLIGHTS,
    INK,
    MARKERS,
    TEXT,
    Style,
    Words,
    empty_figure,
    fitting,
    handles_of,
    is_narrow,
    number,
    plain,
    scales,
    width_of,
)
from .values_picture import draw_values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# of the mean distance of edges from the diagonal: another order of the nodes is worth its words
_NEARER = 0.6


class PlotOptions(TypedDict, total=False):
    """Arguments of :func:`plot` for a place of nodes, and for the words of a picture."""

    queries: Any
    faces: Any
    size: tuple[int, int] | None
    image: Any
    layout: str | None
    caption: bool
    title: bool
    legend: bool


def plot(
    graph: Any,
    pos: Any = None,
    *,
    values: Any = None,
    target: int | None = None,
    heads: int | Iterable[int] | str | None = None,
    view: str | None = None,
    relative: bool | None = None,
    color: Any = None,
    tokens: Any = None,
    highlight: int | Iterable[int] | None = None,
    figure: Any = None,
    **options: Unpack[PlotOptions],
) -> "Figure":
    """A graph, the values on its edges, or what a target depends on through layers.

    *A graph*: its mask as an image, beside the graph drawn where its nodes live. Every edge is
    drawn where there are at most 600 (arcs over a sequence: 200); otherwise only those into a few
    targets, and the caption says so. A head points from what is read to who reads; a straight line
    that runs both ways has none. Nothing of size T x S is made for a large graph.

    *Values*: a panel for each head, on one scale.

    *Layers*, a list of graphs with ``target=``; layer 0 is the first of the list, as in every report
    of this package. Over a grid, points or a mesh a panel for each layer (at most 6, evenly
    spread), with the sources that the target depends on after it. Over a sequence, or where the
    layers change the number of nodes: the layers as rows, the input at the bottom, and every path
    from it to the target of the last layer. A residual connection is a self-loop:
    ``graph.with_self_loops()``.

    Args:
        graph: Any graph; or weights, which hold theirs: an :class:`EdgeWeights`, all that
            ``attention`` or a layer gives with ``return_weights=True``, or a tensor (H, T, S), as
            ``outputs.attentions[layer][0]`` of transformers; of a batch, one element. Or a list of
            graphs.
        pos: (S, 2) or (S, 3), where the sources are.
        values: (E,) or (E, H), a number for each edge of ``graph``, or for each edge and head, in
            the graph's order; or its weights.
        target: The one target whose values are drawn, or which depends on what is drawn of layers.
            Of values every target by default, in view "place" one in its midst.
        heads: Which heads, by number, or "mean"; by default the first 12.
        view: "matrix": values as a picture, targets are rows, white where there is no edge.
            "lines": a list of targets beside a list of sources, a line for each edge, more opaque
            and wider with its value. "place": one target's sources where they live; as colours of a
            mesh or of many points, else as dots and lines. By default "place" where ``target``,
            ``pos`` or another argument of a place is given, else "matrix".
        relative: True where the largest value drawn is the darkest, as by default in view "place";
            False where 1 is, so that pictures compare.
        queries: (T, 2) or (T, 3), where the targets are, if they are other points than the sources.
        faces: int (F, 3), a mesh whose vertices are the nodes; needs ``pos``.
        color: Of the sources (S,) or the faces (F,): labels or amounts, or (S, 3) red, green, blue
            in [0, 1], as in :func:`plot_shape`; needs ``pos``.
        size: (height, width) of a grid, row-major. Rules over a grid have theirs, and global tokens
            before it (:meth:`AttentionGraph.with_global_tokens`) are drawn above it.
        image: Drawn under the grid: (height, width) of grey values, or whole patches of pixels for
            each cell, grey or with a last axis of 3.
        tokens: A word per node; for two sets of nodes a pair, of the targets and of the sources. A
            graph does not say if its sources and targets are the same nodes where there are as
            many: a pair, ``queries`` or layout "two rows" says that they are not.
        highlight: Targets (at most 6) whose in-edges are coloured; three of them where not all
            edges can be drawn. ``()`` for none.
        layout: "sequence", "two rows", "grid", "points" or "network" (a seeded spring layout), of
            layers also "layers" (rows); chosen if left out.
        figure: An empty matplotlib ``Figure`` or ``SubFigure`` to draw into. Panels of one graph
            stand below each other where it is taller than wide.
        caption: Sentences below, by default: what is drawn and what is left out.
        title: A line above, by default: what is drawn; in a figure narrower than 5 inches the graph's name
            alone.
        legend: Names of highlighted targets, labels and layers, and the scale of values, by
            default; in a narrow figure below the picture.

    Returns:
        A matplotlib ``Figure``; ``figure.savefig("graph.pdf")`` writes it.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        ShapeError: If ``values``, ``pos``, ``queries``, ``faces``, ``color``, ``size``, ``image``
            or ``tokens`` do not fit the graph, or there is no such head.
        GraphError: If ``layout`` cannot draw this graph, or layers do not meet.
        GraphIndexError: If a target does not exist.
        OptionError: If an argument is not for this kind of picture.

    Source: Vig (2019), "A Multiscale Visualization of Attention in the Transformer Model": view
    "lines".

    Example:
        >>> import torch, graphattn as ga
        >>> graph, x = ga.graphs.causal(5), torch.randn(5, 3, 4)
        >>> [axes.get_xlabel() for axes in plot(graph, tokens="a b c d e".split()).axes]
        ['source', '']
        >>> weights = ga.attention(x, x, x, graph, return_weights=True).weights
        >>> plot(graph, values=weights, target=4).get_suptitle()
        'target 4 reads 5 sources: 3 heads'
        >>> plot([ga.graphs.sliding_window(32, window=2, causal=True, dilation=d) for d in (1, 2, 4)], target=31).get_suptitle()
        'target 31 depends on 8 of 32 sources through 3 layers'
    """
    where: dict[str, Any] = {"pos": pos, **options}
    flags = {name: where.pop(name) for name in Words._fields if name in where}
    check_flags(relative=True if relative is None else relative, **flags)
    words = Words(**flags)
    where = {name: value for name, value in where.items() if value is not None}
    unknown = where.keys() - PlotOptions.__annotations__.keys() - {"pos"}
    if unknown:
        raise TypeError(f"plot() got an unexpected keyword argument {min(unknown)!r}")
    value_options = {"target": target, "heads": heads, "view": view, "relative": relative}
    marks = {"color": color, "highlight": highlight}
    is_graph = isinstance(graph, AttentionGraph)
    if is_graph and values is None:
        _refuse(value_options, "edges with values, values=")
        return _draw_graph(graph, where, tokens, color, highlight, figure, words)
    if (
        isinstance(graph, list | tuple)
        and graph
        and all(isinstance(layer, GraphLike) and layer._is_fixed for layer in graph)
    ):
        heads_only = {name: value for name, value in value_options.items() if name != "target"}
        _refuse(
            {"values": values, **heads_only, **marks, "queries": where.get("queries")}, "one graph"
        )
        return draw_field(list(graph), target, where, tokens, figure, words)
    if not is_graph and (values is not None or not may_be_weights(graph)):
        raise no_graph(graph, "graph must be an AttentionGraph, its weights or a list of graphs")
    _refuse(marks, "a graph without values")
    if values is None:
        weights = weights_in(graph)
        quantity = "attention weight"
    else:
        weights, quantity = values_on(graph, values)
    return draw_values(
        weights, quantity, view, target, heads, relative, where, tokens, figure, words
    )


def _refuse(arguments: dict[str, Any], where: str) -> None:
    names = [name for name, value in arguments.items() if value is not None]
    if names:
        raise OptionError(f"{', '.join(names)}: only for {where}; leave out")


def _draw_graph(
    graph: AttentionGraph,
    where: dict[str, Any],
    tokens: Any,
    color: Any,
    highlight: Any,
    figure: Any,
    words: Words,
) -> "Figure":
    place = layout_of(graph, tokens=tokens, **where)
    if color is None:
        colours = None
    else:
        colours = _coloured(place, color)
    names = names_of(graph, tokens)
    if place.draws_all_edges:
        every = all_edges(graph, place.most_edges)
    else:
        every = None
    if highlight is not None:
        targets = checked_targets(graph, highlight)
    elif every is None:
        targets = spread_targets(graph, place.target_at)
    else:
        targets = []
    if len(targets) == 1:
        place.face(targets[0])
    if targets:
        near = place.close_up(targets[0], sources_of(graph, targets[0]), 0.2)
    else:
        near = None
    width = 12.4
    if near is None:
        width = 9.6
    height = 4.8
    if isinstance(place, Points):
        height = 5.4
    shown = empty_figure(figure, width, height)
    panels = _panels(shown, isinstance(place, Points), near is not None)
    ordered, rows, along = _along_a_curve(graph, place, targets)
    left = shown.add_subplot(panels[0])
    if along:
        mask = draw_mask(shown, left, ordered, rows, None) + along
        left.set_xlabel("source: rank on the curve", fontsize=TEXT)
        left.set_ylabel("target: rank on the curve", fontsize=TEXT)
    else:
        mask = draw_mask(shown, left, ordered, rows, names)
    ax = shown.add_subplot(panels[1])
    sentences = _drawing(ax, graph, place, targets, every)
    if colours is not None:
        sentences += colours.remarks
        scales(shown, [ax], [colours])
    if colours is None:
        named = []
    else:
        named = handles_of(colours.labels)
    below = 0
    if words.legend and (targets or named):
        below = _legend(shown, ax, graph, targets, names[0], named)
    if near is not None:
        target = targets[0]
        close_up = shown.add_subplot(panels[2])
        place.ground(close_up, near)
        sources = thinned(sources_of(graph, target))
        place.neighbourhood(close_up, target, sources, HIGHLIGHTS[0], MARKERS[0])
        close_up.set_title(f"close-up of target {number(target)}", fontsize=TEXT)
    if is_narrow(shown):
        title = graph.name
    else:
        title = _title(graph, place)
    words.put(shown, title, mask + sentences + place.remarks(), below)
    return shown


def _panels(figure: Any, square: bool, close_up: bool) -> list[Any]:
    """Places of the mask, the drawing and its close-up: side by side, or below each other in a
    figure that is taller than wide.
    """
    # a place fills a square, a sequence a row
    if square:
        shares = [0.7, 1.3]
    else:
        shares = [1, 1.25]
    if close_up:
        shares.append(0.85)
    if figure.bbox.height > figure.bbox.width:
        return list(figure.add_gridspec(len(shares), 1))
    gap = None
    if is_narrow(figure):
        gap = 0.12
    return list(figure.add_gridspec(1, len(shares), width_ratios=shares, wspace=gap))


def _coloured(place: Layout, color: Any) -> Colouring:
    """The colours of the sources or faces, which the layout then draws."""
    if not isinstance(place, Points):
        raise GraphError('color is for layout "points", got another; give pos, too')
    counts: tuple[int, ...] = (len(place.source_at),)
    if place.faces is not None:
        counts = (len(place.source_at), len(place.faces))
    place.colours = colouring(values_of(color, "color", counts), "color")
    return place.colours


def _along_a_curve(
    graph: AttentionGraph, place: Layout, targets: list[int]
) -> tuple[AttentionGraph, list[int], list[str]]:
    """Nodes ordered along a curve through their places, if that brings edges to the diagonal.

    Returns:
        The graph so numbered, its targets, and a sentence for the caption; all as given where
        nothing is gained.
    """
    if not isinstance(place, Points) or graph.is_rule or graph.num_edges == 0:
        return graph, targets, []
    S = graph.num_sources
    T = graph.num_targets
    places = torch.from_numpy(
        np.concatenate((place.source_at, place.target_at)) if place.two_sets else place.source_at
    )
    order = curve_order(places, curve="hilbert")
    source = order[order < S].argsort()
    if place.two_sets:
        target = (order[order >= S] - S).argsort()
    else:
        target = source
    ends = graph.target.cpu(), graph.source.cpu()
    away = [
        (t.double() / T - s.double() / S).abs().mean()
        for t, s in (ends, (target[ends[0]], source[ends[1]]))
    ]
    if away[1] > _NEARER * away[0]:
        return graph, targets, []
    through = "the points"
    if isinstance(place, NetworkLayout):
        through = "the places drawn"
    sentence = f"Its rows and columns are in the order of a Hilbert curve through {through}."
    reordered = replace(
        graph.relabel(targets=target.to(graph.device), sources=source.to(graph.device)),
        name=graph.name,
    )
    return reordered, target[targets].tolist(), [sentence]


def _title(graph: AttentionGraph, place: Layout) -> str:
    T = counted(graph.num_targets, "target")
    S = counted(graph.num_sources, "source")
    one_set = graph.is_square and not place.two_sets
    if one_set:
        nodes = counted(graph.num_nodes, "node")
    else:
        nodes = f"{S} → {T}"
    if can_walk(graph):
        edges = f", {counted(graph.num_edges, 'edge')}, density {graph.density:.3g}"
    else:
        edges = ""
    return f"{graph.name}: {nodes}{edges}"


def _drawing(
    ax: Any, graph: AttentionGraph, place: Layout, targets: list[int], every: Any
) -> list[str]:
    """Nodes, edges and highlighted neighbourhoods; returns sentences for the caption."""
    sentences = place.ground(ax)
    if place.reads and (targets or every is not None):
        sentences.insert(0, place.reads)
    if every is not None:
        sentences += place.edges(ax, *every)
        if place.hides_loops and bool((every[0] == every[1]).any()):
            sentences.append("Self-loops are not drawn.")
    elif place.draws_all_edges:
        if can_walk(graph):
            total = counted(graph.num_edges, "edge")
        else:
            total = "all edges"
        only = f"Of {total} only those into {counted(len(targets), 'target')} are drawn."
        if targets:
            sentences.append(only)
        else:
            sentences.append("Edges are not drawn.")
    cut = False
    of = {i: sources_of(graph, target) for i, target in enumerate(targets)}
    for i in sorted(of, key=lambda i: -len(of[i])):  # a hub below the others
        target = targets[i]
        sources = of[i]
        cut |= place.draws_all_edges and len(sources) > MOST_SOURCES
        if place.draws_all_edges:
            drawn = thinned(sources)
        else:
            drawn = sources
        place.neighbourhood(ax, target, drawn, HIGHLIGHTS[i], MARKERS[i])
    if cut:
        sentences.append(f"At most {MOST_SOURCES} per target, evenly spread.")
    return sentences


def _handle(i: int, label: str) -> Any:
    from matplotlib.lines import Line2D

    style: Style = {
        "color": HIGHLIGHTS[i],
        "marker": MARKERS[i],
        "markeredgecolor": INK,
        "linewidth": 1.2,
    }
    return Line2D([], [], label=label, **style)


def _legend(
    figure: Any,
    ax: Any,
    graph: AttentionGraph,
    targets: list[int],
    names: list[str] | None,
    labels: list[Any],
) -> int:
    """Names of highlighted targets and labels, above the drawing or below a narrow figure.

    Returns:
        Rows of names below the figure.
    """
    style: Style = {
        "fontsize": TEXT,
        "frameon": False,
        "columnspacing": 1.4,
        "handlelength": 1.6,
    }
    narrow = is_narrow(figure)
    handles = []
    for i, target in enumerate(targets):
        name = f"target {number(target)}"
        if names is not None:
            if narrow:
                name = fitting(names[target])
            else:
                name = f"“{plain(names[target])}” ({number(target)})"
        if narrow:
            reads = ""
        else:
            reads = f" reads {counted(len(sources_of(graph, target)), 'source')}"
        handles.append(_handle(i, name + reads))
    longest = max(len(handle.get_label()) for handle in [*handles, *labels])
    if narrow:
        columns = max(1, int(width_of(figure) / (0.55 + 0.08 * longest)))
        figure.legend(
            handles=handles + labels,
            ncols=columns,
            loc="outside lower center",
            **style | {"columnspacing": 0.8},
        )
        return -(-len(handles + labels) // columns)
    if handles and longest > 28:
        columns = 1
    elif targets:
        columns = 2
    else:
        columns = 4
    handles += labels
    ax.legend(
        handles=handles,
        ncols=columns,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
        **style,
    )
    return 0
