"""Levels of a hierarchy that many processes share: a shard of every graph, own points' rows."""

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
    """A hierarchy of own points, each of whose graphs is a shard made by ``share``.

    A coarser point belongs to the owner of the finer point that it keeps, or of most of those that
    it reads. A cloud of the batch is a node of ``clouds``, owned in slices. The plan is that of the
    graphs between the points of a level.
    """
    _agree(shape.levels[0], processes)
    levels: list[Level] = []
    if pos is None:
        pos = shape.levels[0].pos.detach()
        batch = shape.levels[0].batch
        if batch is not None:  # clouds of a batch lie side by side for the bisection
            pos = torch.cat((pos, batch.to(pos)[:, None] * (pos.max() - pos.min() + 1)), 1)
    part = partition_of(partition, len(shape.levels[0].pos), processes.number, pos)
    for level in shape.levels:
        finer = part
        part = _owners(level, part, processes.number)
        own_nodes = torch.nonzero(part == processes.rank).flatten().to(level.pos.device)
        rows = {
            name: getattr(level, name)
            for name in ("pos", "batch", "normals", "cells", "signals", "kept")
        }
        for name, x in rows.items():
            if x is not None:
                rows[name] = x.index_select(0, own_nodes)
        if level.kept is not None:
            among = torch.cumsum(finer == processes.rank, 0) - 1  # numbers of own finer points
            rows["kept"] = among.to(own_nodes.device)[rows["kept"]]
        graphs = tuple(share(graph, part, part, plan) for graph in level.graphs)
        down = level.down
        if down is not None:
            down = share(down, part, finer)
        up = level.up
        if up is not None:
            up = share(up, finer, part)
        near = []
        for neighbours in level.near:
            graph = share(neighbours.graph, part, part)
            offset = neighbours.offset.index_select(0, graph.edges.to(neighbours.offset.device))
            near.append(CellNeighbours(graph, offset, neighbours.num_offsets))
        levels.append(Level(**rows, graphs=graphs, down=down, up=up, near=tuple(near)))
    clouds = share(shape.clouds, contiguous(shape.num_clouds, processes.number), part)
    return replace(shape, levels=tuple(levels), clouds=clouds)


def _agree(finest: Level, processes: Processes) -> None:
    """Refuse positions, normals or signals that differ between processes, as if rotated.

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
        processes.gathered([mean(x) for x in (finest.pos, finest.normals, finest.signals)])
    )
    for rank, wrong in enumerate(((every - every[0]).abs() > 1e-6).any(1).tolist()):
        if wrong:
            raise ProcessError(
                "processes must share one hierarchy, but positions, normals or signals of process "
                f"{rank} differ from those of process 0; make it of one seed or file in every "
                "process"
            )


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
