"""Edges and far-apart points as transforms of PyG, whose own versions need pyg-lib."""

from typing import Any

import torch

from ..errors import GraphError, ShapeError
from ..graph import Pattern
from ..graphs.points.sampling.farthest import farthest_points
from ..pyg import BaseTransform
from .augment import before_joined, keep_rows, of_faces

_OF_CELLS = ("knn", "radius")  # builders that read images


class AddEdges(BaseTransform):
    """``edge_index`` of a recipe: which points each reads.

    Of a shape without faces, a recipe of faces reads its lines. Of a shape with ``cell`` (and
    ``pbc``), ``radius`` and ``knn`` read the images in the cell that repeats, and the shape gets
    ``offsets`` (E, 3) beside ``edge_index``; :func:`graphattn.from_pyg` makes the graph of both,
    also of a ``Batch``. A ``Batch`` has what its first shape has: atoms (``z``) without a cell get
    one of zeros, so that they can stand beside crystals.

    Args:
        recipe: ``ga.graphs.knn(..., k=16)``, ``radius(..., r=0.1)``, ``mesh_vertices(...)``, ...

    Raises:
        GraphError: If it is no recipe, the shape lacks what it needs, or shapes without ``z`` come
            with and without a cell.

    Example:
        >>> import torch, graphattn as ga
        >>> from torch_geometric.data import Data
        >>> AddEdges(ga.graphs.knn(..., k=2))(Data(pos=torch.rand(5, 3)))
        Data(pos=[5, 3], edge_index=[2, 10])
    """

    def __init__(self, recipe: Pattern) -> None:
        if not isinstance(recipe, Pattern):
            raise GraphError(
                f"recipe must be open in its positions, such as knn(..., k=16), got {recipe!r}"
            )
        self.recipe = recipe
        self._kinds: set[bool] = set()

    def forward(self, data: Any) -> Any:
        """The shape with edges; of a batch, each cloud has its own."""
        faces = None
        if "face" in data:
            faces = data.face.T
        elif "edge_index" in data:  # lines of a curve or a tree
            faces = data.edge_index.T
        graph = self.recipe(data.pos, data.get("batch"), faces=faces, **cell_of(data))
        data.edge_index = graph.edge_index
        if "batch" in data:
            if graph.offsets is not None:
                data.offsets = graph.offsets
            return data
        reads_cells = self.recipe.expression.function in _OF_CELLS
        is_of_atoms = "z" in data and reads_cells
        axes = data.pos.shape[1]
        if graph.offsets is not None:
            data.offsets = graph.offsets
            if data.get("pbc") is None:
                data.pbc = torch.ones(axes, dtype=torch.bool, device=data.pos.device)
        elif is_of_atoms:
            data.offsets = graph.edge_index.new_zeros(graph.num_edges, axes)
            data.cell = data.pos.new_zeros(axes, axes)
            data.pbc = torch.zeros(axes, dtype=torch.bool, device=data.pos.device)
        self._kinds.add(is_of_atoms or graph.offsets is not None)
        if len(self._kinds) > 1:
            raise GraphError(
                f"{self!r} met shapes with a cell and others without, of which a Batch would keep "
                "what the first has; give the others cell=torch.zeros(3, 3) and pbc=[False] * 3"
            )
        return data

    def __repr__(self) -> str:
        return f"AddEdges({self.recipe.name})"


def cell_of(data: Any) -> dict[str, Any]:
    """``cell`` and ``pbc`` of a shape, or of the shapes of a batch, as a recipe takes them."""
    cell = data.get("cell")
    if cell is None:
        return {}
    axes = data.pos.shape[-1]
    if cell.dim() == 2 and len(cell) != axes:  # a Batch of plain Data
        cell = cell.unflatten(0, (-1, axes))
    pbc = data.get("pbc")
    if pbc is not None:
        pbc = pbc.reshape(-1, axes)
    return {"cell": cell, "pbc": pbc}


class KeepFarthest(BaseTransform):
    """Points far from each other, by :func:`graphattn.shapes.farthest_points` from the outermost.

    Every tensor with a row for each point keeps the same rows, and faces go with what they carry.

    Args:
        count: Points to keep, of a shape that has as many; this or ``ratio``.
        ratio: The part to keep, in (0, 1].

    Raises:
        GraphError: If neither or both are given, or one is out of range.
        ShapeError: If the shape has edges, which would name other points, or is a batch of several.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> KeepFarthest(2)(Data(pos=torch.tensor([[0.0], [1], [9]]), y=torch.tensor([3, 4, 5]))).y.tolist()
        [5, 3]
    """

    def __init__(self, count: int | None = None, ratio: float | None = None) -> None:
        if (count is None) == (ratio is None):
            raise GraphError(
                "KeepFarthest needs count (points) or ratio (a part of them), one of the two"
            )
        self.count = count
        self.ratio = ratio

    def forward(self, data: Any) -> Any:
        """The shape with fewer points."""
        before_joined("KeepFarthest", data)
        if "edge_index" in data:
            raise ShapeError(
                "KeepFarthest: a shape with edge_index; choose points before its edges are made"
            )
        if "face" in data:
            for name in ("face", *of_faces(data)):
                del data[name]
        size = len(data.pos)
        if self.count is None:
            count = None
        else:
            count = min(self.count, size)
        keep = farthest_points(data.pos, count, ratio=self.ratio, start="outermost")
        keep_rows(data, keep)
        return data
