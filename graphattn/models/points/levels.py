"""Shared parts of models of points: stages of blocks on levels, pooling, unpooling, outputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import check_shape, for_each, one_of, several, whole, width
from ...errors import GraphError, OptionError, ShapeError
from ...graph import AttentionGraph
from ...graph.advice import no_graph
from ...graphs import Hierarchy
from ...graphs.points.hierarchy import Level
from ...nn import inverse_distance_interpolate, pool

READOUTS = ("node", "shape")
#: A block of a stage: ``block(x, level, number)``; pooling: ``down(x, fine, coarse)``; unpooling:
#: ``up(x, skip, fine, coarse)``.
Part = Callable[..., nn.Module]


class Levels(nn.Module):
    """A stage of blocks on each level, with pooling and unpooling between them.

    Args:
        widths: C of each level, the finest first.
        depths: Number of blocks of each level on the way down.
        back: Number of blocks of each level but the coarsest on the way up.
        block: ``block(width)`` makes a block, ``block(x, level, number)``; or a list, one for each
            level.
        down: ``down(fine width, coarse width)`` makes a pooling module, ``down(x, fine, coarse)``.
        up: ``up(coarse width, fine width, width)`` makes an unpooling module,
            ``up(x, skip, fine, coarse)``.
        back_widths: C of each level but the coarsest on the way up; ``widths`` by default.
        readout: "node", an output for each of the finest points, or "shape", one for each cloud,
            from the coarsest.
    """

    def __init__(
        self,
        widths: list[int],
        depths: list[int],
        back: list[int],
        *,
        block: Part | Sequence[Part],
        down: Part,
        up: Part,
        readout: str,
        back_widths: list[int] | None = None,
    ) -> None:
        super().__init__()
        self.widths = widths
        self.readout = one_of(readout, "readout", READOUTS)
        blocks: Any
        if callable(block):
            blocks = [block] * len(widths)
        else:
            blocks = block
        self.stages = nn.ModuleList(map(_stage, blocks, widths, depths))
        self.downs = nn.ModuleList(down(fine, coarse) for fine, coarse in pairwise(widths))
        if back_widths is None:
            back_widths = widths[:-1]
        after = [*back_widths, widths[-1]]
        if readout == "node":
            steps = list(zip(after, widths, after[1:], back, strict=False))
        else:
            steps = []
        self.ups = nn.ModuleList(up(coarse, fine, C) for C, fine, coarse, _ in steps)
        self.back = nn.ModuleList(
            _stage(make, C, depth) for make, (C, _, _, depth) in zip(blocks, steps, strict=False)
        )
        if readout == "node":
            self.out_dim = after[0]
        else:
            self.out_dim = widths[-1]

    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Features (..., N, C) of the finest points; of the coarsest for outputs of clouds."""
        skips = self.encoded(x, shape)
        x = skips[-1]
        for number in reversed(range(len(self.ups))):
            fine = shape.levels[number]
            coarse = shape.levels[number + 1]
            x = self.back[number](self.ups[number](x, skips[number], fine, coarse), fine)
        return x

    def encoded(self, x: Tensor, shape: Hierarchy) -> list[Tensor]:
        """Features of each level's points on the way down, the finest first."""
        skips = []
        for number, (level, stage) in enumerate(zip(shape.levels, self.stages, strict=True)):
            if number:
                x = self.downs[number - 1](x, shape.levels[number - 1], level)
            x = stage(x, level)
            skips.append(x)
        return skips

    def of_call(self, x: Any, shape: Any, builder: str = "") -> Hierarchy:
        """The hierarchy of one call, by :func:`levels_checked`."""
        return levels_checked(x, shape, len(self.widths), builder)


@dataclass(frozen=True, eq=False)
class LevelOfCall(Level):
    """A level during one call of a model.

    Attributes:
        geometry: Features of edges by graph, level of its targets and names, computed once for all
            blocks.
    """

    geometry: dict[tuple[AttentionGraph, Level | None, tuple[str, ...]], Tensor] = field(
        default_factory=dict
    )


def levels_checked(x: Any, shape: Any, num_levels: int, builder: str = "") -> Hierarchy:
    """The hierarchy of one call, which must have ``num_levels`` levels on the same points.

    ``builder`` is the call that makes one, for messages; :func:`ga.graphs.hierarchy` by default.
    """
    if not builder:
        ratios = ["", ", ratio=0.25", f", ratio=(0.25,) * {num_levels - 1}"]
        builder = f"ga.graphs.hierarchy(pos, batch{ratios[min(num_levels, 3) - 1]})"
    if not isinstance(shape, Hierarchy):
        raise no_graph(shape, f"shape must be a Hierarchy, such as {builder}")
    if len(shape.levels) != num_levels:
        raise ShapeError(
            f"the model has {num_levels} levels, but the hierarchy {len(shape.levels)}; pass "
            f"{builder}"
        )
    num_points = len(shape.levels[0].pos)
    check_shape(x, "x", (..., num_points, "C"), "a row for each point")  # more would be left out
    return replace(shape, levels=tuple(LevelOfCall(**vars(level)) for level in shape.levels))


def refuse_shards(shape: Hierarchy, words: str) -> None:
    """Refuse levels that several processes share."""
    if shape.levels[-1].graphs[0].positions is not None:
        raise GraphError(
            f"shape must be a whole hierarchy, got one of a process's own points: {words}"
        )


class Down(nn.Module):
    """The maximum or the mean of a coarser point's neighbours, each through a dense layer."""

    def __init__(
        self, fine: int, coarse: int, dense: Part = nn.Linear, reduction: str = "max"
    ) -> None:
        super().__init__()
        self.dense = dense(fine, coarse)
        self.reduction = reduction

    def forward(self, x: Tensor, fine: Level, coarse: Level) -> Tensor:
        assert coarse.down is not None
        return pool(self.dense(x), coarse.down, self.reduction)


class Up(nn.Module):
    """The sum of a finer point's features and its interpolated coarse ones, each projected."""

    def __init__(self, coarse: int, fine: int, after: int, dense: Part = nn.Linear) -> None:
        super().__init__()
        self.dense = dense(coarse, after)
        self.own = dense(fine, after)

    def forward(self, x: Tensor, skip: Tensor, fine: Level, coarse: Level) -> Tensor:
        assert coarse.up is not None
        return self.own(skip) + inverse_distance_interpolate(
            self.dense(x), coarse.up, coarse.pos, fine.pos
        )


class _Stage(nn.ModuleList):
    """Blocks of a level, each on the level's next graph."""

    def forward(self, x: Tensor, level: Level) -> Tensor:
        for number, block in enumerate(self):
            x = block(x, level, number)
        return x


def _stage(block: Part, embed_dim: int, depth: int) -> _Stage:
    return _Stage(block(embed_dim) for _ in range(depth))


def sizes(values: object, name: str, count: int | None = None, least: int = 1) -> list[int]:
    """Whole numbers, one for each level; a single one is for all of them."""
    if count is None:
        values = several(values, name, "must be whole numbers, one for each level")
        count = len(values)
    result = [whole(value, name, least) for value in for_each(values, name, count, "level")]
    if not result:
        raise OptionError(f"{name} must have at least one, got none")
    if least:
        return [width(value, name) for value in result]
    return result


def heads_of(widths: Sequence[int], channels: int, name: str) -> None:
    """Refuse widths that are not multiples of a number of channels."""
    for C in widths:
        if C % channels:
            raise OptionError(f"widths must be multiples of {name}={channels}, got {C}")


def of_clouds(x: Tensor, shape: Hierarchy, *reductions: str) -> Tensor:
    """The "mean" or "max" over the coarsest points of each cloud, or both, (..., B, C)."""
    return torch.cat([pool(x, shape.clouds, word) for word in reductions], -1)


def carried(x: Tensor, coarse: Level) -> Tensor:
    """Features of the coarser level: of the points that it keeps, or means of its cells."""
    if coarse.kept is not None:
        return x.index_select(-2, coarse.kept)
    assert coarse.down is not None
    return pool(x, coarse.down, "mean")
