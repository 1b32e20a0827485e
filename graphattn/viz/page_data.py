"""Contents of a page: sets of nodes with colours and graphs between them, as base64."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np

from ..errors import GraphError
from ..graph.advice import no_graph
from ..graph.graph import AttentionGraph
from ..graph.limits import refuse_over
from ..graphs.points.hierarchy import Hierarchy
from ..printed import counted
from .camera import Camera
from .colours import Array, Colouring, colouring, error_of, plainly, values_of
from .creases import lit
from .edge_weights import by_edge, weights_in
from .layouts.base import Index
from .object_image import radius_of
from .shape_picture import named

Json = dict[str, Any]
"""Values by name, as the script of the page reads them."""
_MOST_BYTES = 80 << 20  # of edges in the page, before base64
_PAGE = 600  # pixels of the ball, in which dots are sized
_TOP = 65535  # the top of the scale
_NO_COLOURS = ("pos", "face", "normal", "edge_index", "edge_attr", "batch", "ptr")


@dataclass
class PageNodes:
    """A set of nodes: places (N, 2) or (N, 3), faces (F, 3) over them, and what may colour them."""

    at: Array
    faces: Index = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    colours: list[Colouring] = field(default_factory=list)


@dataclass(frozen=True)
class PageEdges:
    """A graph between two sets of nodes, by number, with or without weights; or no graph."""

    name: str | None
    graph: AttentionGraph | None = None
    weights: Any = None
    sets: tuple[int, int] = (0, 0)


def graphs_in(graphs_or_weights: Any) -> list[PageEdges]:
    """The graphs or weights, each with a name: one, a list of layers, or a dictionary."""
    if isinstance(graphs_or_weights, Mapping):
        named = [(str(name), item) for name, item in graphs_or_weights.items()]
    elif isinstance(graphs_or_weights, list) and graphs_or_weights:
        named = [(f"layer {i}", item) for i, item in enumerate(graphs_or_weights)]
    else:
        named = [("", graphs_or_weights)]
    entries = []
    for name, item in named:
        if isinstance(item, AttentionGraph):
            weights = None
        else:
            weights = weights_in(item)
        if weights is None:
            graph = item
        else:
            graph = weights.graph
        if not isinstance(graph, AttentionGraph):
            raise no_graph(graph, "to_html shows an AttentionGraph or its weights")
        of_edges = None
        if weights is not None:
            of_edges = by_edge(weights)
        entries.append(PageEdges(name or graph.name, graph, of_edges))
    sizes = {
        (item.graph.num_sources, item.graph.num_targets)
        for item in entries
        if item.graph is not None
    }
    if len(sizes) != 1:
        raise GraphError(
            f"layers of one page must have the same sources and targets, got {sorted(sizes)}"
        )
    return entries


def levels_in(hierarchy: Hierarchy, first: PageNodes) -> tuple[list[PageNodes], list[PageEdges]]:
    """The levels of a hierarchy as sets of nodes, and its graphs; the finest level is ``first``."""
    sets = [first]
    graphs = []
    for i, level in enumerate(hierarchy.levels):
        if i:
            if level.kept is None:
                nodes = None
            else:
                nodes = level.kept.cpu().numpy()
            if nodes is None:
                colourings = []
            else:
                colourings = [
                    replace(colours, rgb=colours.rgb[nodes])
                    for colours in sets[-1].colours
                    if len(colours.rgb) == len(sets[-1].at)
                ]
            sets.append(PageNodes(level.pos.cpu().double().numpy(), colours=colourings))
        graphs += [
            PageEdges(f"level {i}: {graph.name}", graph, None, (i, i)) for graph in level.graphs
        ]
        graphs += [PageEdges(f"level {i - 1} to {i}", level.down, None, (i - 1, i))] * (
            level.down is not None
        )
        graphs += [PageEdges(f"level {i} to {i - 1}", level.up, None, (i, i - 1))] * (
            level.up is not None
        )
    return sets, graphs


def colours_in(
    shape: Any, color: Any, prediction: Any, names: Any, counts: tuple[int, ...]
) -> list[Colouring]:
    """Colourings of a shape: the requested ones, or all, and prediction and error."""
    properties = _requested(shape, color, counts)
    true_name = next((name for name in ("y", *properties) if name in properties), None)
    truth = None
    if true_name is not None:
        truth = values_of(properties[true_name], true_name, counts)
    labels: str | None = "y"
    if prediction is not None or isinstance(color, str):
        labels = true_name
    predicted = []
    if prediction is not None:
        guess = values_of(prediction, "prediction", counts)
        predicted.append(colouring(guess, "prediction", names))
        if truth is not None and truth.ndim == 1:
            predicted.append(error_of(truth, guess))
    colourings = [
        colouring(values_of(value, name, counts), name, names if name == labels else None)
        for name, value in properties.items()
    ]
    return colourings + predicted


def _requested(shape: Any, color: Any, counts: tuple[int, ...]) -> Json:
    has: Json = {}
    if hasattr(shape, "keys"):
        has = {name: shape[name] for name in shape.keys()}  # noqa: SIM118 (no mapping)
    if isinstance(color, str):
        return {color: named(shape, color)}
    if color is not None:
        if isinstance(color, Mapping):
            return dict(color)
        return {"color": color}
    fits = {
        name: value
        for name, value in has.items()
        if name not in _NO_COLOURS and getattr(value, "ndim", 0) in (1, 2)
        and len(value) in counts and len(value) > 1
        and (value.ndim == 1 or value.shape[1] == 1 or name == "color")
    }  # fmt: skip
    return dict(
        sorted(fits.items(), key=lambda pair: ({"color": 0, "y": 1}.get(pair[0], 2), pair[0]))
    )


def packed(
    sets: list[PageNodes],
    graphs: list[PageEdges],
    down: bool,
    camera: tuple[float, float],
    smooth: float,
    box: Array | None = None,
) -> Json:
    """The whole content of the page.

    Args:
        sets: The sets of nodes.
        graphs: The graphs between them.
        down: True if the second axis runs downwards, as of a grid.
        camera: Elevation and azimuth of the eye at first, degrees.
        smooth: The largest angle of an edge that is no crease, degrees.
        box: (sides, 2, d), both ends of each side of a cell that repeats.
    """
    edges = sum(entry.graph.num_edges for entry in graphs if entry.graph is not None)
    size = sum(
        entry.graph.num_edges * (4 + 2 * (0 if entry.weights is None else entry.weights.shape[1]))
        for entry in graphs
        if entry.graph is not None
    )
    refuse_over(
        size, f"a page of {counted(edges, 'edge')}", "show a subgraph, or fewer heads", _MOST_BYTES
    )
    flat = sets[0].at.shape[1] < 3
    if flat:
        turn = np.eye(3)
    else:
        turn = Camera(*camera, np.zeros(3), 1.0).turn
    corners = []
    if box is not None:
        corners = [PageNodes(box.reshape(-1, box.shape[2]))]
    places = _in_unit_ball([*sets, *corners], down)
    ends: list[float] = []
    if box is not None:
        ends = np.round(places[-1], 5).flatten().tolist()
    return {
        "flat": flat,
        "camera": camera,
        "sets": [_set(at, nodes, turn, smooth) for at, nodes in zip(places, sets, strict=False)],
        "box": ends,
        "graphs": [_edges(entry) for entry in graphs],
    }


def _set(at: Array, nodes: PageNodes, turn: Array, smooth: float) -> Json:
    """Places on a grid of 65,536 cells; vertices are nodes, one per side of a crease."""
    shade = lit(at, nodes.faces, smooth)
    only = len(nodes.colours) == 1
    projected = _PAGE / 2 * (1 + (at @ turn.T)[:, :2])
    return {
        "at": _packed(np.rint((at.T + 1) / 2 * _TOP), "<u2"),
        "room": 4 * radius_of(projected, (_PAGE, _PAGE)) / _PAGE,
        "faces": _packed(shade.corner, "<u4"),
        "node": _packed(shade.node, "<u4"),
        "normal": _packed(np.rint(127 * shade.normal.T), "i1"),
        "colors": [
            {"name": colours.name, **_colours(colours.rgb), "legend": _legend(colours, only)}
            for colours in nodes.colours
        ]
        or [{"name": "", **_colours(plainly(len(at)).rgb), "legend": ""}],
    }


def _colours(rgb: Array) -> Json:
    """Bytes of red, green and blue, or indices of a palette for up to 256 colours."""
    red, green, blue = np.rint(255 * rgb).astype(np.int64).T
    codes, number = np.unique((red << 16) + (green << 8) + blue, return_inverse=True)
    if len(codes) > 256:
        return {"rgb": _packed(np.stack((red, green, blue)), "u1"), "palette": None}
    return {
        "rgb": _packed(number, "u1"),
        "palette": np.stack((codes >> 16, codes >> 8 & 255, codes & 255), 1).tolist(),
    }


def _edges(entry: PageEdges) -> Json:
    """Edges by target, then by source; weights rounded."""
    sides = {"name": entry.name, "from": entry.sets[0], "to": entry.sets[1]}
    if entry.graph is None:
        empty = _packed(np.empty(0), "<u4")
        return {**sides, "heads": 0, "ptr": empty, "source": empty, "weight": None, "top": 1.0}
    source, target = entry.graph.edge_index.cpu().numpy()
    order = np.lexsort((source, target))
    ptr = np.concatenate(([0], np.cumsum(np.bincount(target, minlength=entry.graph.num_targets))))
    if entry.weights is None:
        weight = None
    else:
        weight = np.nan_to_num(entry.weights.cpu().double().numpy()[order])
    # above 1 without a softmax
    if weight is None:
        top = 1.0
        parts = None
    else:
        top = max(1.0, float(weight.max(initial=0.0)))
        parts = np.rint(weight / top * _TOP).clip(0, _TOP)
    return {
        **sides,
        "heads": 0 if weight is None else weight.shape[1],
        "ptr": _packed(ptr, "<u4"),
        "source": _packed(source[order], "<u4"),
        "weight": None if parts is None else _packed(parts, "<u2"),
        "top": top,
    }


def _in_unit_ball(sets: list[PageNodes], down: bool) -> list[Array]:
    """Places in three axes, x to the right and y up, centred and scaled together."""
    sides = []
    for nodes in sets:
        at = np.concatenate((nodes.at, np.zeros((len(nodes.at), 3 - nodes.at.shape[1]))), 1)
        sign = 1.0
        if down:
            sign = -1.0
        sides.append(at * [1.0, sign, 1.0])
    every = np.concatenate(sides)
    if len(every) == 0:
        return sides
    centre = (every.min(0) + every.max(0)) / 2
    radius = float(np.linalg.norm(every - centre, axis=1).max()) or 1.0
    return [(at - centre) / radius for at in sides]


def _legend(colours: Colouring, named: bool) -> str:
    """Labels to switch on and off, or a scale, in HTML; after their name if the page lists none."""
    names: dict[str, list[str]] = {}
    for label, shade in colours.labels[:16]:
        names.setdefault(shade, []).append(label)
    words = "".join(_switch(", ".join(labels), shade) for shade, labels in names.items())
    if len(colours.labels) > 16:
        words += f" and {len(colours.labels) - 16} more"
    if colours.scale is not None:
        low, high, steps = colours.scale
        ramp = f"linear-gradient(90deg,{','.join(steps)})"
        words = f'{low:.3g}<i class="scale" style="background:{ramp}"></i>{high:.3g}'
    name = f"{escape(colours.name)}: " * bool(named and colours.name and words)
    return name + words + "".join(f" {escape(remark)}" for remark in colours.remarks)


def _switch(name: str, shade: str) -> str:
    """A box to tick for the labels of a colour, whose value is the colour in bytes."""
    value = [int(shade[at : at + 2], 16) for at in (1, 3, 5)]
    box = f'<input type="checkbox" checked value="{value}">'
    return f'<label>{box}<i style="background:{shade}"></i>{escape(name)}</label>'


def _packed(array: np.ndarray, dtype: str) -> str:
    """Deflated, the first byte of every number first: that of its size varies little."""
    contiguous = np.ascontiguousarray(array, dtype=dtype)
    planes = contiguous.reshape(-1, 1).view(np.uint8).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()
