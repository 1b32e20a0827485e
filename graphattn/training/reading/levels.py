"""Levels that no recipe makes: grid cells with one point each, and degree-matched random graphs."""

import math
from dataclasses import replace
from typing import Any

from numpy.random import default_rng
from torch import Tensor, argsort, empty_like, from_numpy, nn, unique

from ...graphs import (
    Hierarchy,
    clusters,
    containing,
    radius,
    serialized_hierarchy,
)
from ...graphs.expression import from_expression
from ...graphs.mesh.icosphere import icosphere_mesh
from ...graphs.of_graphs.controls import rewiring
from ...graphs.points.hierarchy import CellNeighbours, Level
from ...nn import pool

_REACH = 1.6  # radius in which an icosahedron's vertex reads; half of it with each refinement


def with_cells(pos: Tensor, sides: tuple[float, ...], patch: int) -> Hierarchy:
    """A hierarchy of a cloud (N, 3) and, above it, of cells whose sides double."""
    grid = ((pos - pos.amin(0)) / sides[0]).floor().long()
    cells, ids = unique(grid, dim=0, return_inverse=True)
    down = clusters(ids, len(cells))
    finest, *others = serialized_hierarchy(
        pool(pos, down, "mean"), cells=cells, levels=len(sides), patch=patch
    ).levels
    return Hierarchy((Level(pos, None, ()), replace(finest, down=down, up=down.reverse()), *others))


def on_icosphere(text: str) -> dict[str, Any]:
    """Points of a coarse level, and graphs to and from them, of ``icosphere(3)``; else nothing."""
    graph: Any = from_expression(text)
    made = graph.expression
    if made is None or made.is_open or made.function != "icosphere":
        return {}
    refinements = round(math.log2((graph.num_targets - 2) / 10) / 2)
    mesh = icosphere_mesh(refinements)
    return {
        "coarse": (mesh.pos, graph),
        "down": radius(..., _REACH / 2**refinements),
        "up": containing(..., mesh.faces),
    }


class OnCells(nn.Module):
    """A model of cells applied to points: a cell holds their mean, and they get its output."""

    def __init__(self, model: nn.Module, readout: str) -> None:
        super().__init__()
        self.model = model
        self.readout = readout

    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Answers for points (N, out), or for B shapes (B, out)."""
        _, finest, *others = shape.levels
        assert finest.down is not None
        cells = replace(shape, levels=(replace(finest, down=None, up=None), *others))
        y = self.model(pool(x, finest.down, "mean"), cells)
        if self.readout == "shape" or finest.up is None:
            return y
        return pool(y, finest.up, "mean")


def redrawn(shape: Hierarchy, seed: int) -> Hierarchy:
    """Levels with random graphs of the same in-degrees, within a level and between levels.

    Cells keep their points. Of the cells around each, that a convolution reads, a cell stays at its
    own offset, and each of the others has one of the drawn cells.
    """
    draw = default_rng(seed)

    def other(graph: Any) -> Any:
        if graph is None:
            return None
        return rewiring(graph, int(draw.integers(1 << 31)), keep="in-degrees")

    def around(near: CellNeighbours) -> CellNeighbours:
        old = near.graph
        new = other(near.graph)
        order = from_numpy(draw.permutation(old.num_edges))
        order = order[argsort(old.target[order], stable=True)]  # by target, as the new edges are
        is_loop = old.source == old.target
        offset = empty_like(near.offset)
        offset[new.source == new.target] = near.offset[order[is_loop[order]]]
        offset[new.source != new.target] = near.offset[order[~is_loop[order]]]
        return CellNeighbours(new, offset, near.num_offsets)

    def drawn(level: Level, finer: Level | None) -> Level:
        # their points, which read nothing of each other
        of_cells = finer is not None and not finer.graphs
        if of_cells:
            between = {}
        else:
            between = {"down": other(level.down), "up": other(level.up)}
        return replace(
            level,
            graphs=tuple(map(other, level.graphs)),
            near=tuple(map(around, level.near)),
            **between,
        )

    return replace(shape, levels=tuple(map(drawn, shape.levels, (None, *shape.levels))))
