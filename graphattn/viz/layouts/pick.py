"""Choice of the geometry of a picture: the caller's, or the one that the edges suggest."""

from typing import Any

import numpy as np
import torch

from ...arguments import (
    check_finite,
    check_range,
    check_shape,
    integers,
    one_of,
    several,
    shown,
    table,
)
from ...errors import GraphError, ShapeError
from ...graph.deferred.expression import SIGNS, Expression
from ...graph.graph import AttentionGraph, need_square
from ...graph.runs import nonempty
from ..box import box_of
from ..choice import can_walk
from ..colours import Array, Index
from .base import Layout, Names
from .grid import Grid
from .network import NetworkLayout
from .points import Points
from .sequence import Sequence
from .surface import Surface
from .two_rows import TwoRows

LAYOUTS = ("sequence", "two rows", "grid", "points", "network")
_AUTO_NETWORK = 200
_MOST_NODES = 1 << 24  # a place for each is kept
_SAME_NODES = (*SIGNS, "reverse", "k_hop", "with_self_loops", "without_self_loops")


def layout_of(
    graph: AttentionGraph,
    pos: Any = None,
    *,
    queries: Any = None,
    faces: Any = None,
    size: tuple[int, int] | None = None,
    image: Any = None,
    tokens: Any = None,
    layout: str | None = None,
) -> Layout:
    """The geometry of a picture; arguments as :func:`graphattn.viz.plot`."""
    nodes = max(graph.num_targets, graph.num_sources)
    if nodes > _MOST_NODES:
        raise GraphError(
            f"a picture places each node, at most {_MOST_NODES:,}; got {nodes:,}: draw a smaller "
            "graph of the same rule"
        )
    two_sets = is_pair(graph, tokens)
    layout = layout or suggested(graph, pos, size if image is None else (), tokens)
    one_of(layout, "layout", LAYOUTS, GraphError)
    of_points = {"pos": pos, "queries": queries, "faces": faces}
    of_grids = {"size": size, "image": image}
    for required, arguments in (("points", of_points), ("grid", of_grids)):
        for argument, value in arguments.items():
            if value is not None and layout != required:
                raise GraphError(
                    f'{argument} is for layout "{required}", got layout "{layout}"; '
                    "leave one of them out"
                )
    if layout == "points":
        if pos is None:
            raise GraphError('layout "points" needs pos, the positions of the nodes')
        return _points(graph, pos, queries, faces, two_sets)
    if layout == "two rows":
        return TwoRows(graph.num_targets, graph.num_sources, names_of(graph, tokens))
    need_square(graph, f'layout "{layout}"')
    if two_sets:
        raise GraphError(
            f'layout "{layout}" has one set of nodes, and tokens name two; use "two rows", or one '
            "list"
        )
    names = names_of(graph, tokens)[0]
    if layout == "grid":
        return _grid(graph, size, image)
    if layout == "network":
        return NetworkLayout(graph, names)
    back, ahead = _reach(graph)
    line = Sequence(graph.num_nodes, names, back, ahead)
    if len(graph.edges.grid) > 2:
        line.cells = graph.edges.grid
    else:
        line.cells = ()
    return line


def suggested(graph: AttentionGraph, pos: Any, size: Any, tokens: Any) -> str:
    """The layout where the caller names none; ``size`` is anything but ``None`` for a grid."""
    if pos is not None:
        return "points"
    if size is not None:
        return "grid"
    if graph.is_square and tokens is None and len(grid_of(graph)[0]) == 2:
        return "grid"
    if not graph.is_square or is_pair(graph, tokens):
        return "two rows"
    tangled = (
        not graph.is_rule
        and graph.num_nodes <= _AUTO_NETWORK
        and tokens is None
        and _reach(graph)[1] > 0
    )
    if tangled:
        return "network"
    return "sequence"


def grid_of(graph: AttentionGraph) -> tuple[tuple[int, ...], int]:
    """The axes of the grid of a graph, and the number of global tokens before it; () if unknown."""
    if graph.edges.grid or graph.expression is None:
        return graph.edges.grid, 0
    return _grid_behind_tokens(graph.expression)


def _grid_behind_tokens(call: Expression) -> tuple[tuple[int, ...], int]:
    if call.function == "with_global_tokens":
        inner, number = call.args
        if isinstance(inner, Expression):
            inner = inner.build()
        axes, before = grid_of(inner)
        return axes, before + number
    if call.function in _SAME_NODES:
        for operand in call.calls():
            axes, before = _grid_behind_tokens(operand)
            if axes:
                return axes, before
    return (), 0


def _reach(graph: AttentionGraph) -> tuple[int, int]:
    """Distances that targets read back and ahead, in nodes; all nodes where these are costly."""
    if not can_walk(graph):
        return graph.num_nodes, graph.num_nodes
    back = ahead = 0
    for first, _, chunk in graph.edges.chunks():
        row, lo, hi = nonempty(chunk)
        if row.numel():
            back = max(back, int((row + first - lo).max()))
            ahead = max(ahead, int((hi - 1 - row - first).max()))
    return back, ahead


def is_pair(graph: AttentionGraph, tokens: Any) -> bool:
    """True if ``tokens`` is a pair: sources and targets are two sets, even where T = S."""
    if tokens is None or not isinstance(tokens, list | tuple) or len(tokens) != 2:
        return False
    return not graph.is_square or all(
        names is None or isinstance(names, list | tuple) for names in tokens
    )


def names_of(graph: AttentionGraph, tokens: Any) -> Names:
    """``(target names, source names)`` from one list for a square graph, or from two lists."""
    if tokens is None:
        return None, None
    expected = "must be the names of the nodes, or a pair (target tokens, source tokens)"
    if not isinstance(tokens, list | tuple):
        tokens = several(tokens, "tokens", expected, ShapeError)
    if is_pair(graph, tokens):
        pair = tokens
    else:
        pair = (tokens, tokens)
    shown_names = []
    for names, count, side in zip(
        pair, (graph.num_targets, graph.num_sources), ("targets", "sources"), strict=True
    ):
        if names is not None:
            names = [str(name) for name in several(names, "tokens", expected, ShapeError)]
            if len(names) != count:
                raise ShapeError(
                    f"tokens must name all {count} {side}, or be a pair (target tokens, source "
                    f"tokens), got {len(names)}"
                )
        shown_names.append(names)
    return shown_names[0], shown_names[1]


def _grid(graph: AttentionGraph, size: Any, image: Any) -> Grid:
    grid, tokens = grid_of(graph)
    if size is None and len(grid) == 2:
        size = grid
    if image is not None:
        image = table(image, "image", "numbers (height, width) or (height, width, 3)", ShapeError)
        image = _real(image, "image").numpy()
        if size is None:
            size = image.shape[:2]
        grey = image.ndim == 2
        fits = all(n and n % side == 0 for n, side in zip(image.shape, size, strict=False))
        if not (fits and (grey or (image.ndim == 3 and image.shape[2] == 3))):
            raise ShapeError(
                f"image must be (height, width) = {tuple(size)}, got {image.shape}; whole patches "
                "of pixels for each cell do as well, grey or with a last axis of 3 (red, green, "
                "blue in [0, 1])"
            )
    are_integers = isinstance(size, list | tuple | torch.Size) and all(
        isinstance(n, int | np.integer) for n in size
    )
    cells = graph.num_nodes - tokens
    if not are_integers or len(size) != 2 or min(size) < 0 or size[0] * size[1] != cells:
        raise ShapeError(
            f"size must be (height, width) with height * width = {cells} nodes, got {shown(size)}"
        )
    return Grid((int(size[0]), int(size[1])), image, tokens)


def _real(values: torch.Tensor, argument: str) -> torch.Tensor:
    if values.is_complex():
        raise ShapeError(f"{argument} must be real numbers, got {values.dtype}")
    return values.detach().cpu().double()


def _array(points: Any, count: int, argument: str, axes: tuple[int, ...] = (2, 3)) -> Array:
    expected = " or ".join(f"({count}, {number})" for number in axes)
    values = _real(table(points, argument, f"numbers {expected}", ShapeError), argument)
    if values.shape not in [(count, number) for number in axes]:
        raise ShapeError(f"{argument} must have shape {expected}, got {tuple(values.shape)}")
    check_finite(values, argument)
    return values.numpy()


def _points(graph: AttentionGraph, pos: Any, queries: Any, faces: Any, two_sets: bool) -> Points:
    if queries is None and (two_sets or not graph.is_square):
        raise GraphError(
            f"pos gives positions of the {graph.num_sources} sources; "
            f"pass queries, those of the {graph.num_targets} targets"
        )
    source_at = _array(pos, graph.num_sources, "pos")
    target_at = None
    if queries is not None:
        target_at = _array(queries, graph.num_targets, "queries", source_at.shape[1:])
    place = _with_faces(source_at, target_at, faces)
    place.box = _fitting(box_of(None, graph), place)
    if place.box is not None and graph.images is not None:
        leads = graph.images.offsets.any(0)
        place.lattice = (graph.images.cells[0] * leads[:, None]).cpu().numpy()
    return place


def points_of(pos: torch.Tensor, faces: Any, box: Array | None = None) -> Points:
    """Points or a mesh without a graph, in the box of a cell that repeats."""
    place = _with_faces(_array(pos, len(pos), "pos"), None, faces)
    place.box = _fitting(box, place)
    return place


def _fitting(box: Array | None, place: Points) -> Array | None:
    """A box with the axes of the points."""
    if box is None or box.shape[2] != place.source_at.shape[1]:
        return None
    return box


def _with_faces(source_at: Array, target_at: Array | None, faces: Any) -> Points:
    if faces is None:
        over = None
    else:
        over = _faces(faces, len(source_at))
    if over is not None and source_at.shape[1] == 3:
        return Surface(source_at, target_at, over)
    return Points(source_at, target_at, over)


def _faces(faces: Any, count: int) -> Index:
    triangles = integers(faces, "faces", "of shape (F, 3)", ShapeError)
    check_shape(triangles, "faces", ("F", 3), "of PyG's data pass data.face.t()")
    check_range(triangles, "faces", count, ", the vertices", ShapeError)
    return triangles.cpu().numpy()
