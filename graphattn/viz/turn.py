"""A graph in space as one HTML file to turn, with targets to choose and sources by head."""

import json
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch

from ..errors import GraphError, OptionError
from ..graph.graph import AttentionGraph
from ..graphs.points.hierarchy import Hierarchy
from ..io.writing import save_page
from .box import box_of
from .choice import checked_targets
from .creases import SMOOTH, checked_smooth
from .layouts import Layout, layout_of
from .layouts.grid import Grid
from .layouts.pick import points_of
from .layouts.points import Points
from .page_data import PageEdges, PageNodes, colours_in, graphs_in, levels_in, packed
from .shape_picture import called, geometry_of


def to_html(
    graph_or_weights: Any,
    path: str | Path,
    pos: Any = None,
    *,
    color: Any = None,
    prediction: Any = None,
    names: Any = None,
    queries: Any = None,
    faces: Any = None,
    size: tuple[int, int] | None = None,
    target: int | None = None,
    smooth: float | bool = SMOOTH,
    title: str | None = None,
) -> Path:
    """Write a page that shows a graph in space: turn it, choose a target, and its sources light up.

    One file that needs no network and no other file, drawn by WebGL: a million points or 200,000
    faces turn. Colours are those of :func:`plot_shape`; the reader switches between them, between
    layers or levels, and between heads, and ticks which labels are drawn, those of the same colour
    together. Places are kept to 1/65536 of the size of the whole; a point takes some 10 bytes.

    Args:
        graph_or_weights: A graph, or its :class:`EdgeWeights` (or what attention gave with
            ``return_weights=True``), without a batch, or a tensor of weights (H, T, S); the page
            then offers every head and their mean, rounded to 1/65535; on a mesh they are its
            colours. The darkest is the largest of the target's, or 1, as the reader chooses. A list
            of these are layers over the same nodes, and a dictionary has their names. A hierarchy
            shows its levels and the graphs between them. A shape or positions alone are shown
            without a graph.
        path: Where the page is written.
        pos: (S, 2) or (S, 3), where the sources are; or a shape, whose faces and properties are
            taken, too. Without it a grid is laid out by its cells, a small listed graph as a
            network.
        color: What colours the nodes: the name of a property of the shape, values as of
            :func:`plot_shape`, or a dictionary of such values by name. By default all that the
            shape has for each node or face.
        prediction: (N,) or (F,), switched with the truth, which is ``y`` or the first colour, and
            with its error.
        names: Names of the labels, a list or a dictionary by number: of ``y``, of the truth where
            there is a prediction, or of the one property that ``color`` names.
        queries: (T, 2) or (T, 3), where the targets are, if they are other points than the sources.
        faces: int (F, 3), a mesh whose vertices are the nodes; needs ``pos``.
        size: (height, width) of a grid, row-major. Rules over a grid have theirs.
        target: Chosen at first.
        smooth: Of a mesh, as of :func:`plot_shape`.
        title: What the page is called; by default the graph's name, or that of the file and its
            number of points.

    Returns:
        ``path``.

    Raises:
        OptionError: If ``path`` cannot be written.
        ShapeError: If ``pos``, ``queries``, ``faces``, ``size`` or the weights do not fit the
            graph.
        GraphError: If the nodes have no place, or the page would hold more than 48 MiB of edges.
        GraphIndexError: If there is no such target.

    Example:
        >>> import tempfile, torch, graphattn as ga
        >>> pos = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = to_html(ga.graphs.knn(pos, k=4), f"{folder}/graph.html", pos, target=7)
        ...     path.stat().st_size > 10_000
        True
    """
    text = page_of(
        graph_or_weights,
        pos,
        color=color,
        prediction=prediction,
        names=names,
        queries=queries,
        faces=faces,
        size=size,
        target=target,
        smooth=smooth,
        title=title,
    )
    save_page(path, text)
    return Path(path)


def page_of(
    graph_or_weights: Any,
    pos: Any = None,
    *,
    color: Any = None,
    prediction: Any = None,
    names: Any = None,
    queries: Any = None,
    faces: Any = None,
    size: tuple[int, int] | None = None,
    target: int | None = None,
    smooth: float | bool = SMOOTH,
    title: str | None = None,
) -> str:
    """The page of :func:`to_html` as text."""
    alone = (
        pos is None and not isinstance(graph_or_weights, Hierarchy) and _is_shape(graph_or_weights)
    )
    if alone:
        shape = graph_or_weights
    else:
        shape = pos
    if shape is not None and _is_shape(shape):
        pos, shape_faces = geometry_of(shape)
        if faces is None:
            faces = shape_faces
    if alone:
        place: Layout = points_of(pos, faces, box_of(shape))
        graphs = [PageEdges(None)]
    elif isinstance(graph_or_weights, Hierarchy):
        if pos is None:
            pos = graph_or_weights.levels[0].pos
        place = layout_of(graph_or_weights.levels[0].graphs[0], pos, faces=faces)
        graphs = []
    else:
        graphs = graphs_in(graph_or_weights)
        place = layout_of(_first(graphs), pos, queries=queries, faces=faces, size=size)
    if place.source_at.shape[1] == 1:
        raise GraphError("to_html needs pos, where the nodes are in space; for a sequence use plot")
    sets = [PageNodes(place.source_at)]
    if isinstance(place, Points) and place.faces is not None:
        sets = [PageNodes(place.source_at, place.faces)]
    counts: tuple[int, ...] = (len(sets[0].at),)
    if len(sets[0].faces):
        counts = (len(sets[0].at), len(sets[0].faces))
    sets[0].colours = colours_in(shape, color, prediction, names, counts)
    if isinstance(graph_or_weights, Hierarchy):
        sets, graphs = levels_in(graph_or_weights, sets[0])
    elif place.two_sets:
        sets.append(PageNodes(place.target_at))
        graphs = [replace(entry, sets=(0, 1)) for entry in graphs]
    if isinstance(place, Points) and place.is_3d:
        camera = place.best_camera
    else:
        camera = (90.0, -90.0)
    box = None
    if isinstance(place, Points):
        box = place.box
    data = packed(sets, graphs, isinstance(place, Grid), camera, checked_smooth(smooth), box)
    data["target"] = -1
    if target is not None:
        if alone:
            raise OptionError("target is of a graph, and there is none; leave it out")
        data["target"] = checked_targets(_first(graphs), target, "target", 1)[0]
    if alone:
        name = called(shape, len(sets[0].at), len(sets[0].faces))
    else:
        if isinstance(graph_or_weights, Hierarchy):
            name = repr(graph_or_weights)
        else:
            name = _first(graphs).name
    if title is None:
        title = name
    if alone:
        legend = ""
    else:
        legend = (
            "Click a node to see what it reads: it is the orange square, its sources are dots, "
            "larger and darker with their weight; on a mesh weights are colours."
        )
        if place.two_sets:
            legend += " Open squares are targets."
    return Template(_file("turn.html")).substitute(
        title=escape(title),
        legend=legend,
        data=json.dumps(data).replace("<", "\\u003c"),
        paint=_file("paint.js"),
        script=_file("turn.js"),
    )


def _is_shape(value: Any) -> bool:
    """True of PyG's ``Data`` and the like, and of positions (N, 2) or (N, 3)."""
    if hasattr(value, "pos") and hasattr(value, "keys"):
        return True
    return (
        isinstance(value, torch.Tensor | np.ndarray)
        and value.ndim == 2
        and value.shape[1] in (2, 3)
    )


def _first(graphs: list[PageEdges]) -> AttentionGraph:
    graph = graphs[0].graph
    assert graph is not None
    return graph


def _file(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")
