"""Cells of finite elements: a vertex reads the vertices at the other ends of its cells' edges."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...arguments import check_range, check_shape, integers
from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.limits import refuse_over
from ..arguments import call, flag, whole
from .rings import ring

#: Edges of each kind of first order, by the numbers of their ends in a row, in VTK's order.
_FIRST = {
    "vertex": "",
    "line": "01",
    "triangle": "01 12 20",
    "quad": "01 12 23 30",
    "tetra": "01 12 20 03 13 23",
    "hexahedron": "01 12 23 30 45 56 67 74 04 15 26 37",
    "wedge": "01 12 20 34 45 53 03 14 25",
    "pyramid": "01 12 23 30 04 14 24 34",
}
#: Kinds with a vertex in the middle of every edge: the corners come first, then these in the order
#: of the edges.
_SECOND = {
    "line3": "line",
    "triangle6": "triangle",
    "quad8": "quad",
    "tetra10": "tetra",
    "hexahedron20": "hexahedron",
    "wedge15": "wedge",
    "pyramid13": "pyramid",
}
#: Kinds with vertices inside faces or cells, too: these come last, each joined to those listed.
_CENTRED: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "triangle7": ("triangle6", [(3, 4, 5)]),
    "quad9": ("quad8", [(4, 5, 6, 7)]),
    "hexahedron24": (
        "hexahedron20",
        [(11, 16, 15, 19), (9, 17, 13, 18), (8, 16, 12, 17), (10, 18, 14, 19)],
    ),
    "hexahedron27": (
        "hexahedron20",
        [
            (11, 16, 15, 19),
            (9, 17, 13, 18),
            (8, 16, 12, 17),
            (10, 18, 14, 19),
            (8, 9, 10, 11),
            (12, 13, 14, 15),
            (20, 21, 22, 23, 24, 25),
        ],
    ),
    "wedge18": ("wedge15", [(6, 12, 9, 13), (7, 13, 10, 14), (8, 14, 11, 12)]),
    "pyramid14": ("pyramid13", [(5, 6, 7, 8)]),
}
KINDS = (*_FIRST, *_SECOND, *_CENTRED, "polygon")


@sizable
@builder
def mesh_cells(
    cells: Sequence[tuple[str, Tensor]] | Mapping[str, Tensor],
    num_vertices: int | None = None,
    hops: int = 1,
    *,
    self_loops: bool = False,
) -> AttentionGraph:
    r"""Every vertex of a mesh of cells reads the vertices within ``hops`` edges of cells of it.

    .. math:: \mathcal{N}(t) = \{ s \ne t : \text{a path of at most } h \text{ edges of cells joins } s \text{ and } t \}

    Args:
        cells: Kinds and tables (C, n) of vertex numbers, as meshio has them: a list of pairs,
            ``mesh.cells`` or ``mesh.cells_dict``. Kinds are ``line, triangle, quad, tetra,
            hexahedron, wedge, pyramid``, their elements of second order (``triangle6, triangle7,
            quad8, quad9, tetra10, hexahedron20, hexahedron24, hexahedron27, wedge15, wedge18,
            pyramid13, pyramid14, line3``) and ``polygon``, all in VTK's order, mixed as they come.
            A ``vertex`` has no edge. ``...`` gives a recipe, called with ``faces=cells``.
        num_vertices: Number of vertices; one more than the largest number in ``cells`` by default.
        hops: h, the longest path.
        self_loops: True lets a vertex read itself, too, for layers without a residual connection.
    Returns:
        Listed edges by target and then by source; symmetric. An edge that several cells share is an
        edge once in each direction. In elements of second order the middle of an edge is joined to
        its two ends, the centre of a face to the middles of its edges, and the centre of a cell to
        the centres of its faces.
    Raises:
        GraphIndexError: If a cell names a vertex outside ``[0, num_vertices)``; the block is named.
        GraphError: If a kind is unknown, a table has another number of columns than its kind, or
            ``hops < 1``.
    Source:
        Kinds and their order are meshio's, which are VTK's. Pfaff et al. 2021 (MeshGraphNets) read
        along the edges of cells. *What differs* from PyG's ``FaceToEdge``, which joins all four
        corners of a quad.
    Example:
        >>> cells = [("quad", torch.tensor([[0, 1, 2, 3]])), ("triangle", torch.tensor([[1, 4, 2]]))]
        >>> print(mesh_cells(cells))
        AttentionGraph(mesh_cells(): 5 nodes, 12 edges, density 0.48, listed)
        · █ · █ ·
        █ · █ · █
        · █ · █ █
        █ · █ · ·
        · █ █ · ·
    """
    hops = whole(hops, "hops", 1)
    self_loops = flag(self_loops, "self_loops")
    blocks, size = cell_tables(cells, num_vertices)
    refuse_over(64 * size, f"a mesh of {size:,} vertices", "number the vertices without gaps")
    device = torch.device("cpu")
    ends = torch.zeros(2, 0, dtype=torch.int64)
    if blocks:
        device = blocks[0][1].device
        ends = torch.cat([_edges(kind, corners.cpu()) for kind, corners in blocks], 1)
    step = torch.cat((ends[0], ends[1])), torch.cat((ends[1], ends[0]))
    name = call("mesh_cells", hops=hops, self_loops=self_loops)
    return ring(step, size, hops, self_loops, name, device)


def cell_tables(
    cells: Any, num_vertices: int | None = None
) -> tuple[list[tuple[str, Tensor]], int]:
    """The kind and the table, int64 (C, n), of each block, and the number of vertices.

    Raises:
        GraphError: As :func:`mesh_cells`.
    """
    blocks = []
    if isinstance(cells, Mapping):
        cells = list(cells.items())
    for number, block in enumerate(cells):
        if hasattr(block, "type") and hasattr(block, "data"):  # a CellBlock of meshio
            block = (block.type, block.data)
        if len(block) != 2 or not isinstance(block[0], str):
            raise GraphError(
                "cells must be pairs of a kind and a table, such as [('tetra', table)], got a "
                f"{type(block).__name__} in place {number}; faces alone are of mesh_vertices"
            )
        kind = block[0]
        if kind not in KINDS:
            raise GraphError(f"cells must be of the kinds {', '.join(KINDS)}, got {kind!r}")
        where = f"cells[{number}] ({kind})"
        rows = integers(block[1], where, "(C, n)", GraphError)
        check_shape(rows, where, ("C", _num_corners(kind, rows)), error=GraphError)
        blocks.append((kind, rows))
    return blocks, _size(blocks, num_vertices)


def _num_corners(kind: str, rows: Tensor) -> int:
    if kind == "polygon":
        return max(3, rows.shape[-1])
    if kind == "vertex":
        return 1
    return 1 + max(max(pair) for pair in _pairs(kind))


def _pairs(kind: str) -> list[tuple[int, int]]:
    """The edges of a kind: the numbers of their ends in a row."""
    if kind in _FIRST:
        return [(int(pair[0]), int(pair[1])) for pair in _FIRST[kind].split()]
    if kind in _SECOND:
        whole_edges = _pairs(_SECOND[kind])
        corners = 1 + max(map(max, whole_edges))
        halves = enumerate(whole_edges, corners)
        return [(end, middle) for middle, pair in halves for end in pair]
    outer, centres = _CENTRED[kind]
    pairs = _pairs(outer)
    first = 1 + max(map(max, pairs))
    return pairs + [(end, centre) for centre, ends in enumerate(centres, first) for end in ends]


def _edges(kind: str, corners: Tensor) -> Tensor:
    """The ends (2, E) of the edges of every cell."""
    if kind == "polygon":
        return torch.stack((corners, corners.roll(-1, 1))).flatten(1)
    pairs = torch.tensor(_pairs(kind), dtype=torch.int64).reshape(-1, 2)
    return corners[:, pairs].permute(2, 0, 1).flatten(1)


def _size(blocks: list[tuple[str, Tensor]], num_vertices: int | None) -> int:
    """The number of vertices, none of which a cell may lie outside."""
    size = 1 + max((int(rows.max()) for _, rows in blocks if rows.numel()), default=-1)
    if num_vertices is not None:
        size = whole(num_vertices, "num_vertices", 0)
    for number, (kind, rows) in enumerate(blocks):
        check_range(rows, f"cells[{number}] ({kind})", size, ", vertices counted from 0")
    return size
