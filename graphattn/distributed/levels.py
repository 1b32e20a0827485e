"""Levels of a hierarchy that many processes share: a shard of every graph, with the rows of own
points.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import ProcessError
from ..graphs import Hierarchy
from ..graphs.points.hierarchy import CellNeighbours, Level
from .exchange import Processes
from .partition import contiguous, partition_of


def shared(
    shape: Hierarchy,
    processes: Processes,
    partition: Any,
    pos: Any,
    plan: str,
    share: Callable[..., Any],
) -> Hierarchy:
    """A hierarchy of own points, whose graphs are
    ``share(graph, owners of targets, owners of sources, plan)``.

    A coarser point belongs to the owner of the finer point that it keeps, or of most of those that
    it reads. A cloud of the batch is a node of ``clouds``, owned in slices. The plan is that of the
    graphs between the points of a level.
    """
    _agree(shape.levels[0], processes)
    levels: list[Level] = []
    part = partition_of(
        partition, len(shape.levels[0].pos), processes.number, _pos(shape) if pos is None else pos
    )
    for level in shape.levels:
        finer = part
        part = _owners(level, part, processes.number)
        own = torch.nonzero(part == processes.rank).flatten().to(level.pos.device)
        rows = {
            name: getattr(level, name)
            for name in ("pos", "batch", "normals", "cells", "signals", "kept")
        }
        rows = {name: x if x is None else x.index_select(0, own) for name, x in rows.items()}
        if level.kept is not None:
            among = torch.cumsum(finer == processes.rank, 0) - 1  # numbers of own finer points
            rows["kept"] = among.to(own.device)[rows["kept"]]
        graphs = tuple(share(graph, part, part, plan) for graph in level.graphs)
        if level.down is None:
            down = level.down
        else:
            down = share(level.down, part, finer)
        if level.up is None:
            up = level.up
        else:
            up = share(level.up, finer, part)
        near = tuple(_near(each, share(each.graph, part, part)) for each in level.near)
        levels.append(Level(**rows, graphs=graphs, down=down, up=up, near=near))
    clouds = share(shape.clouds, contiguous(shape.num_clouds, processes.number), part)
    return replace(shape, levels=tuple(levels), clouds=clouds)


def _agree(finest: Level, processes: Processes) -> None:
    """Refuse points of other positions, normals or signals than the others': graphs are those of
    turned points, too.

    They are compared by weighted means, as machines may round differently.

    Raises:
        ProcessError: If they differ.
    """

    def mean(x: Tensor | None) -> float:
        if x is None:
            x = torch.zeros(1)
        else:
            x = x.detach().double().flatten()
        weights = torch.arange(x.numel(), device=x.device).cos()
        return float((x * weights).sum() / x.abs().sum().clamp(min=1e-300))

    every = torch.tensor(
        processes.told([mean(x) for x in (finest.pos, finest.normals, finest.signals)])
    )
    for rank, wrong in enumerate(((every - every[0]).abs() > 1e-6).any(1).tolist()):
        if wrong:
            raise ProcessError(
                "processes must share one hierarchy, but positions, normals or signals of "
                f"process {rank} differ from "
                "those of process 0; make it of one seed or file in every process"
            )


def _pos(shape: Hierarchy) -> Tensor:
    """Positions that bisection cuts: clouds of a batch lie side by side."""
    pos = shape.levels[0].pos.detach()
    batch = shape.levels[0].batch
    if batch is None:
        return pos
    return torch.cat((pos, batch.to(pos)[:, None] * (pos.max() - pos.min() + 1)), 1)


def _owners(level: Level, finer: Tensor, processes: int) -> Tensor:
    """The owner of each point of a level, int32 (N,), from those of the finer level's points."""
    if level.down is None:
        return finer
    if level.kept is not None:
        return finer[level.kept.cpu()]
    target = level.down.target.cpu()
    source = level.down.source.cpu()
    read = torch.zeros(level.down.num_targets, processes, dtype=torch.int32)
    read.index_put_(
        (target, finer[source].long()), torch.ones((), dtype=torch.int32), accumulate=True
    )
    return read.argmax(1).to(torch.int32)


def _near(near: CellNeighbours, graph: Any) -> CellNeighbours:
    """The neighbours of own cells."""
    return CellNeighbours(
        graph, near.offset.index_select(0, graph.edges.to(near.offset.device)), near.num_offsets
    )
