"""Pictures of a receptive field: panels where the nodes live, or the layers as rows."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..analysis.paths.receptive_field import Layers, graphs_of, receptive_field
from ..errors import GraphError, OptionError
from ..graph.graph import AttentionGraph
from ..printed import counted
from .choice import checked_targets, thinned
from .layer_rows import draw_rows
from .layouts import Layout, layout_of
from .layouts.pick import suggested
from .style import TEXT, Style, Words, empty_figure, layer_shades, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_PANELS = 6
_IN_A_ROW = 3
_MOST_NAMED = 12  # layers in the legend


def draw_field(
    layers: Layers, target: Any, where: dict[str, Any], tokens: Any, figure: Any, words: Words
) -> "Figure":
    """The picture of :func:`plot` of several layers; ``where`` has the arguments of a place."""
    graphs = graphs_of(layers)
    if target is None:
        raise OptionError("layers are drawn with what one target depends on; give target=")
    (target,) = checked_targets(graphs[-1], target, "target", 1)
    layout = where.get("layout")
    if layout == "sequence":
        raise GraphError('layout "sequence" has one row; use "layers", a row for each layer')
    one_set = all(graph.is_square for graph in graphs)
    pos = where.get("pos")
    size = where.get("size", where.get("image"))
    chosen = layout or (suggested(graphs[0], pos, size, tokens) if one_set else "layers")
    if chosen in ("layers", "sequence", "two rows") or (layout is None and chosen == "network"):
        if where.keys() - {"layout"}:
            raise GraphError(
                "the layers change the number of nodes and are drawn as rows: no pos, faces, size "
                "or image"
            )
        shown = empty_figure(figure, 8.0, 1.6 + 0.8 * len(graphs))
        reached, sentences = draw_rows(shown.add_subplot(), graphs, target, tokens)
    elif not one_set:
        sizes = [graphs[0].num_sources, *(graph.num_targets for graph in graphs)]
        raise GraphError(
            f'the layers have {sizes} nodes, not one set with positions; use layout "layers"'
        )
    else:
        place = layout_of(graphs[0], **where | {"layout": chosen})
        shown, reached, sentences = _panels(figure, graphs, target, place, words.legend)
    reach = (
        f"target {number(target)} depends on {number(reached)} of "
        f"{counted(graphs[0].num_sources, 'source')}"
    )
    words.put(shown, f"{reach} through {counted(len(graphs), 'layer')}", sentences)
    return shown


def _panels(
    figure: Any, graphs: tuple[AttentionGraph, ...], target: int, place: Layout, legend: bool
) -> tuple["Figure", int, list[str]]:
    """A panel for each layer; returns the figure, the number of sources, and sentences."""
    from matplotlib.lines import Line2D

    field = receptive_field(list(graphs), targets=torch.tensor([target]))
    reached = [np.unique(graph.source.cpu().numpy()) for graph in field.graphs]
    first = np.full(graphs[0].num_sources, len(reached), dtype=np.int64)
    for layer in reversed(range(len(reached))):
        first[reached[layer]] = layer
    shown_layers = thinned(np.arange(len(graphs)), _MOST_PANELS).tolist()
    if len(shown_layers) == 4:
        columns = 4
    else:
        columns = min(len(shown_layers), _IN_A_ROW)
    rows = -(-len(shown_layers) // columns)
    panel_width = 2.8
    if columns == 4:
        panel_width = 2.4
    shown = empty_figure(figure, max(4.2, panel_width * columns + 1.3), 2.8 * rows + 0.9)
    colours = layer_shades(len(graphs))
    near = place.close_up(target, reached[-1], 0.5)
    place.face(target)
    for i, layer in enumerate(shown_layers):
        ax = shown.add_subplot(rows, columns, i + 1)
        remarks = place.ground(ax, near)
        if i % columns:
            ax.set_ylabel("")
        if i + columns < len(shown_layers):
            ax.set_xlabel("")
        place.field(ax, target, reached[layer], colours[first[reached[layer]]])
        ax.set_title(
            f"after layer {layer}: {counted(len(reached[layer]), 'source')}", fontsize=TEXT
        )
    left_out = len(graphs) - len(shown_layers)
    sentences = [f"{counted(left_out, 'layer')} between are not shown."] * bool(left_out)
    sentences += remarks + place.remarks() + ["Close-up of the nodes around."] * (near is not None)
    if not legend:
        return shown, len(reached[-1]), sentences
    if len(graphs) <= _MOST_NAMED:
        named = range(len(graphs))
    else:
        named = shown_layers
    style: Style = {
        "marker": "s",
        "linewidth": 0,
        "markersize": 7,
        "markeredgecolor": "#7b8794",
    }
    handles = [Line2D([], [], color=colours[k], label=f"layer {k}", **style) for k in named]
    title = {"title": "first reached after", "title_fontsize": TEXT, "fontsize": TEXT}
    shown.legend(handles=handles, loc="outside right center", frameon=False, **title)
    return shown, len(reached[-1]), sentences
