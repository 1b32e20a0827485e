"""Levels that no recipe makes: cells for models that want one point in each, and random graphs of the same degrees."""

from dataclasses import replace
from typing import Any

from numpy.random import default_rng
from torch import Tensor, nn, unique

from ..graphs import Hierarchy, clusters, degree_matched_random, serialized_hierarchy
from ..graphs.points.hierarchy import Level
from ..nn import pool


def with_cells(pos: Tensor, sides: tuple[float, ...], patch: int) -> Hierarchy:
    """The points of a cloud (N, 3), and above them the levels of its cells, whose sides double from the first on."""
    grid = ((pos - pos.amin(0)) / sides[0]).floor().long()
    cells, ids = unique(grid, dim=0, return_inverse=True)
    down = clusters(ids, len(cells))
    finest, *others = serialized_hierarchy(pool(pos, down, "mean"), cells=cells, levels=len(sides), patch=patch).levels
    return Hierarchy((Level(pos, None, ()), replace(finest, down=down, up=down.reverse()), *others))


class OnCells(nn.Module):
    """A model of cells for points: a cell carries the mean of its points, and they get its answer."""

    def __init__(self, model: nn.Module, readout: str) -> None:
        super().__init__()
        self.model, self.readout = model, readout

    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Answers for points (N, out), or for B shapes (B, out)."""
        _, finest, *others = shape.levels
        assert finest.down is not None
        cells = Hierarchy((replace(finest, down=None, up=None), *others), shape.num_clouds)
        y = self.model(pool(x, finest.down, "mean"), cells)
        return y if self.readout == "shape" or finest.up is None else pool(y, finest.up, "mean")


def redrawn(shape: Hierarchy, seed: int) -> Hierarchy:
    """The same levels with random graphs of the same in-degrees, within a level and between levels."""
    draw = default_rng(seed)

    def other(graph: Any) -> Any:
        return None if graph is None else degree_matched_random(graph, seed=int(draw.integers(1 << 31)))

    def drawn(level: Level) -> Level:
        return replace(level, graphs=tuple(map(other, level.graphs)), down=other(level.down), up=other(level.up))

    return replace(shape, levels=tuple(map(drawn, shape.levels)))
