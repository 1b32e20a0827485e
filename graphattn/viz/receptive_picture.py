"""Pictures of a receptive field: panels where the nodes live, or the layers as rows."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..analyse.receptive_field import Layers, graphs_of, receptive_field
from ..arguments import check_flags
from ..errors import GraphError
from ..graph.graph import AttentionGraph
from .choice import checked_targets, thinned
from .layer_rows import draw_rows
from .layouts import Layout, layout_of
from .layouts.pick import suggested
from .style import TEXT, counted, empty_figure, layer_shades, number, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_PANELS = 6
_IN_A_ROW = 3
_MOST_NAMED = 12  # layers in the legend


def plot_receptive_field(
    layers: Layers,
    target: int,
    pos: Any = None,
    *,
    residual: bool = False,
    faces: Any = None,
    size: tuple[int, int] | None = None,
    image: Any = None,
    tokens: Any = None,
    layout: str | None = None,
    figure: Any = None,
    caption: bool = True,
    title: bool = True,
) -> "Figure":
    """What one target depends on through the layers of a model.

    Over a grid, points or a mesh: a panel for each layer (at most 6, evenly spread), with the sources that the target
    depends on after it. Over a sequence, or where the layers change the number of nodes: the layers as rows, the
    input at the bottom, and every path from it to the target of the last layer.

    Args:
        layers: One graph, or a list of graphs, first layer first.
        target: A node of the last layer.
        pos: (N, 2) or (N, 3), where the nodes are; the same in every layer.
        residual: Whether every target of a square layer also keeps what it has (a residual connection).
        faces, size, image: As :func:`plot`.
        tokens: A word per source of the first layer, for the layers as rows.
        layout: "layers" (rows), "grid", "points" or "network"; chosen if left out.
        figure: An empty matplotlib ``Figure`` or ``SubFigure`` to draw into.
        caption: Whether sentences below say what is drawn and what is left out.
        title: Whether a line above says what is drawn.

    Returns:
        A matplotlib ``Figure``.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        GraphError: If the layers do not meet, or change the number of nodes where each needs a place.
        ShapeError: If ``pos``, ``faces``, ``size``, ``image`` or ``tokens`` do not fit the layers.
        GraphIndexError: If there is no such target.

    Example:
        >>> from graphattn.graphs import sliding_window
        >>> wavenet = [sliding_window(32, window=2, dilation=d) for d in (1, 2, 4)]
        >>> figure = plot_receptive_field(wavenet, target=31)
        >>> figure.get_suptitle()
        'target 31 depends on 8 of 32 sources through 3 layers'
    """
    check_flags(residual=residual, caption=caption, title=title)
    graphs = graphs_of(layers, residual)
    (target,) = checked_targets(graphs[-1], target, "target", 1)
    where: dict[str, Any] = {"faces": faces, "size": size, "image": image}
    if layout == "sequence":
        raise GraphError('layout "sequence" has one row; use "layers", a row for each layer')
    one_set = all(graph.is_square for graph in graphs)
    chosen = layout or (suggested(graphs[0], pos, size if image is None else (), tokens) if one_set else "layers")
    if chosen in ("layers", "sequence", "two rows") or (layout is None and chosen == "network"):
        if pos is not None or any(value is not None for value in where.values()):
            raise GraphError(
                "the layers change the number of nodes and are drawn as rows: no pos, faces, size or image"
            )
        shown = empty_figure(figure, 8.0, 1.6 + 0.8 * len(graphs))
        reached, sentences = draw_rows(shown.add_subplot(), graphs, target, tokens)
    else:
        place = _place(graphs, pos, chosen, where)
        shown, reached, sentences = _panels(figure, graphs, target, place)
    reach = f"target {number(target)} depends on {number(reached)} of {counted(graphs[0].num_sources, 'source')}"
    titled(shown, f"{reach} through {counted(len(graphs), 'layer')}" if title else None, sentences * caption)
    return shown


def _place(graphs: tuple[AttentionGraph, ...], pos: Any, layout: str, where: dict[str, Any]) -> Layout:
    if not all(graph.is_square for graph in graphs):
        sizes = [graphs[0].num_sources, *(graph.num_targets for graph in graphs)]
        raise GraphError(f'the layers have {sizes} nodes, not one set with positions; use layout "layers"')
    return layout_of(graphs[0], pos, layout=layout, **where)


def _panels(
    figure: Any, graphs: tuple[AttentionGraph, ...], target: int, place: Layout
) -> tuple["Figure", int, list[str]]:
    """A panel for each layer; gives the figure, how many sources it depends on in the end, and sentences."""
    from matplotlib.lines import Line2D

    field = receptive_field(list(graphs), targets=torch.tensor([target]))
    reached = [np.unique(graph.source.cpu().numpy()) for graph in field.graphs]
    first = np.full(graphs[0].num_sources, len(reached), dtype=np.int64)
    for layer in reversed(range(len(reached))):
        first[reached[layer]] = layer
    shown_layers = thinned(np.arange(len(graphs)), _MOST_PANELS).tolist()
    columns = 4 if len(shown_layers) == 4 else min(len(shown_layers), _IN_A_ROW)
    rows = -(-len(shown_layers) // columns)
    shown = empty_figure(figure, max(4.2, (2.4 if columns == 4 else 2.8) * columns + 1.3), 2.8 * rows + 0.9)
    colours = layer_shades(len(graphs))
    near = place.close_up(target, reached[-1], 0.5)
    place.face(target)
    for i, layer in enumerate(shown_layers):
        ax = shown.add_subplot(rows, columns, i + 1, projection="3d" if place.is_3d else None)
        remarks = place.ground(ax, near)
        if i % columns:
            ax.set_ylabel("")
        if i + columns < len(shown_layers):
            ax.set_xlabel("")
        place.field(ax, target, reached[layer], colours[first[reached[layer]]])
        ax.set_title(f"after layer {layer}: {counted(len(reached[layer]), 'source')}", fontsize=TEXT)
    named = range(len(graphs)) if len(graphs) <= _MOST_NAMED else shown_layers
    style: dict[str, Any] = {"marker": "s", "linewidth": 0, "markersize": 7, "markeredgecolor": "#7b8794"}
    handles = [Line2D([], [], color=colours[k], label=f"layer {k}", **style) for k in named]
    title = {"title": "first reached after", "title_fontsize": TEXT, "fontsize": TEXT}
    shown.legend(handles=handles, loc="outside right center", frameon=False, **title)
    left_out = len(graphs) - len(shown_layers)
    sentences = [f"{counted(left_out, 'layer')} between are not shown."] * bool(left_out)
    sentences += remarks + place.remarks() + ["Close-up of the nodes around."] * (near is not None)
    return shown, len(reached[-1]), sentences
