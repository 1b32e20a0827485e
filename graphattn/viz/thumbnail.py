"""A named pattern at the size of a thumbnail: its graph where the nodes live, without any text."""

import ast
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..graph.graph import AttentionGraph
from ..graph.kinds.layers import reach
from ..graphs.catalogue import Named, inputs
from ..graphs.expression import callables
from .choice import all_edges, sources_of, spread_targets
from .layouts import Layout, layout_of
from .layouts.network import NetworkLayout
from .style import HIGHLIGHTS, MARKERS, empty_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FRAME = (0.01, 0.01, 0.98, 0.98)  # of the drawing in its figure
_MOST_ARCS, _MOST_LINES = 130, 260  # that can be distinguished in a thumbnail
_MOST_HIGHLIGHTS = 2


def graph_of(named: Named) -> AttentionGraph:
    """The graph to draw: the union of heads, or what the last layer depends on."""
    graph: Any = named.graph()
    if isinstance(graph, list):
        return reach(graph)
    return graph.union()


def place_in(named: Named, graph: AttentionGraph) -> Layout:
    """The geometry named in the pattern's code, points or a grid; else one fitting the edges."""
    tree = ast.parse(named.code, mode="eval")
    geometry: dict[str, Any] = (
        _surface(tree, graph) or _points(tree, graph, named.family) or _grid(tree, graph)
    )
    if not geometry and named.family in ("mesh", "network") and graph.is_square:
        geometry = {"layout": "network"}
    return layout_of(graph, **geometry)


def thumbnail(named: Named, width: float, height: float) -> "Figure":
    """A pattern as a figure in inches: all nodes and edges, or one or two neighbourhoods.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    graph = graph_of(named)
    figure = empty_figure(None, width, height)
    figure.set_layout_engine("none")
    _draw(figure.add_axes(_FRAME), graph, place_in(named, graph))
    return figure


def _draw(ax: Any, graph: AttentionGraph, place: Layout) -> None:
    if isinstance(place, NetworkLayout):
        most = _MOST_LINES
    else:
        most = _MOST_ARCS
    if place.draws_all_edges:
        every = all_edges(graph, most)
    else:
        every = None
    place.big = 5.0
    place.small = 3.2
    place.head = 0.04
    if every is None:
        targets = spread_targets(graph, place.target_at)
    else:
        targets = []
    most = _MOST_HIGHLIGHTS
    if place.is_3d:
        most = 1
    targets = targets[:most]
    if targets:
        place.face(targets[0])
    place.ground(ax)
    ax.set(xticks=[], yticks=[], xlabel="", ylabel="")
    if every is not None:
        place.edges(ax, *every)
    for i, target in enumerate(targets):
        place.neighbourhood(ax, target, sources_of(graph, target), HIGHLIGHTS[i], MARKERS[i])


def _values(tree: ast.AST) -> Iterator[Tensor]:
    """Every tensor that the code names or cuts out of one."""
    names: dict[str, Any] = callables()
    names |= {name: getattr(inputs, name) for name in inputs.__all__} | {"torch": torch}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Subscript) and isinstance(node.ctx, ast.Load):
            try:
                value = eval(compile(ast.Expression(node), "code", "eval"), names)
            except NameError:  # bound within the code itself
                continue
            if isinstance(value, Tensor):
                yield value


def _surface(tree: ast.AST, graph: AttentionGraph) -> dict[str, Any]:
    """The mesh whose faces the code names; nodes are the vertices or faces of a ``sphere``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id.endswith("_faces"):
            name = node.id
        else:
            name = ""
        vertices = getattr(inputs, name.removesuffix("_faces"), None)
        faces = getattr(inputs, name, None)
        if vertices is None or faces is None or not graph.is_square:
            continue
        if graph.num_nodes == len(vertices):
            return {"pos": vertices, "faces": faces}
        if graph.num_nodes == len(faces):
            return {"pos": vertices[faces].mean(1)}
    return {}


def _points(tree: ast.AST, graph: AttentionGraph, family: str) -> dict[str, Any]:
    """``pos`` and ``queries``, where the code names points that fit, and ``faces`` over them."""
    tensors = list(_values(tree))
    clouds = [x for x in tensors if x.ndim == 2 and x.shape[1] in (2, 3)]
    # whole numbers may be faces
    clouds = [x for x in clouds if x.is_floating_point() or family == "points"]
    pos = next((x for x in clouds if len(x) == graph.num_sources), None)
    if pos is None:
        return {}
    fitting = {"pos": pos}
    if not graph.is_square:
        queries = next(
            (x for x in clouds if len(x) == graph.num_targets and x.shape[1] == pos.shape[1]), None
        )
        if queries is None:
            return {}
        return fitting | {"queries": queries}
    for faces in tensors:
        if (
            not faces.is_floating_point()
            and faces.ndim == 2
            and faces.shape[1] == 3
            and int(faces.max()) < len(pos)
        ):
            return fitting | {"faces": faces}
    return fitting


def _grid(tree: ast.AST, graph: AttentionGraph) -> dict[str, Any]:
    """The first size in the code, of two or three axes, that has a cell for every node."""
    for node in ast.walk(tree):
        try:
            if isinstance(node, ast.Tuple):
                size = ast.literal_eval(node)
            else:
                size = None
        except ValueError:
            continue
        if not size or not all(isinstance(side, int) for side in size) or not graph.is_square:
            continue
        if math.prod(size) == graph.num_nodes and len(size) == 2 and min(size) > 1:
            return {"size": size}
        if math.prod(size) == graph.num_nodes and len(size) == 3:
            depth, row, column = np.unravel_index(np.arange(graph.num_nodes), size)
            return {"pos": np.stack((column, depth, -row), 1)}
    return {}
