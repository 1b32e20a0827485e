"""Partitions of nodes among processes: slices, coordinate bisection, or given ids."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import check_finite, check_range, check_shape, integers, one_of, table
from ..errors import OptionError

WORDS = ("contiguous", "rcb")


def partition_of(
    partition: Any,
    num_nodes: int,
    processes: int,
    pos: Any = None,
    name: str = "partition",
    grid: tuple[int, ...] = (),
) -> Tensor:
    """The process that owns each node, int32 (N,): a partition by name, or one given as ids.

    Nodes of a row-major grid have coordinates.
    """
    if not isinstance(partition, str):
        ids = integers(partition, name, f"({num_nodes},)")
        check_shape(ids, name, (num_nodes,), "an owner for each node", OptionError)
        check_range(ids, name, processes, ", the processes", OptionError)
        return ids.cpu().to(torch.int32)
    one_of(partition, name, WORDS, hint=", or a process for each node")
    if partition == "contiguous":
        return contiguous(num_nodes, processes)
    if pos is None and len(grid) > 1:
        pos = torch.cartesian_prod(*map(torch.arange, grid))
    if pos is None:
        raise OptionError(f'{name}="rcb" bisects coordinates: pass pos=, or {name}="contiguous"')
    points = table(pos, "pos", f"({num_nodes}, axes)").detach().cpu().double()
    check_shape(points, "pos", (num_nodes, "axes"), error=OptionError)
    check_finite(points, "pos", "; drop their points first", OptionError)
    return rcb(points.numpy(), processes)


def contiguous(num_nodes: int, processes: int) -> Tensor:
    """Slices of consecutive nodes, whose sizes differ by one at most.

    Example:
        >>> contiguous(5, 2).tolist()
        [0, 0, 0, 1, 1]
    """
    return (torch.arange(num_nodes) * processes // max(1, num_nodes)).to(torch.int32)


def contiguous_range(num_nodes: int, process: int, processes: int) -> tuple[int, int]:
    """The first node of a process by :func:`contiguous`, and the first of the next."""
    return -(-process * num_nodes // processes), -(-(process + 1) * num_nodes // processes)


def box_of(grid: tuple[int, ...], process: int, processes: int) -> Tensor:
    """The cells of one process, ascending int64: a grid halved across its longest side."""
    sides = [(0, length) for length in grid]
    while processes > 1:
        axis = max(range(len(sides)), key=lambda a: sides[a][1] - sides[a][0])
        (lo, hi), left = sides[axis], processes // 2
        cut = lo + round((hi - lo) * left / processes)
        lower = process < left
        if lower:
            sides[axis] = (lo, cut)
            process = process
            processes = left
        else:
            sides[axis] = (cut, hi)
            process = process - left
            processes = processes - left
    cells = torch.zeros(1, dtype=torch.int64)
    for length, (lo, hi) in zip(grid, sides, strict=True):
        cells = (cells[:, None] * length + torch.arange(lo, hi)).flatten()
    return cells


def index_dtype(size: int) -> Any:
    """The numpy dtype of indices of so many points."""
    if size < 2**31:
        return np.int32
    return np.int64


def rcb(pos: Any, processes: int) -> Tensor:
    """Recursive coordinate bisection: points (N, d) halved across their box's longest side.

    Any number of processes; sizes differ by one for each halving at most. Points at the cut go to
    either side by their numbers, so that every process computes the same partition. One axis of
    positions is in memory at a time, so that ``pos`` may be a file's.

    Source: Berger and Bokhari 1987, "A Partitioning Strategy for Nonuniform Problems on
    Multiprocessors".

    Example:
        >>> rcb(np.array([[0.0], [3.0], [1.0], [2.0]]), 2).tolist()
        [0, 1, 0, 1]
    """
    part = np.zeros(len(pos), np.int32)
    todo = [(np.arange(len(pos), dtype=index_dtype(len(pos))), 0, processes)]
    while todo:
        ids, first, num_parts = todo.pop()
        if num_parts == 1 or not len(ids):
            part[ids] = first
            continue
        along = pos[ids, max(range(pos.shape[1]), key=lambda axis: np.ptp(pos[ids, axis]))]
        left = num_parts // 2
        cut = len(ids) * left // num_parts
        at = np.partition(along, cut)[cut]
        low = along < at
        ties = np.flatnonzero(along == at)
        low[ties[: cut - int(low.sum())]] = True
        todo += [(ids[low], first, left), (ids[~low], first + left, num_parts - left)]
    return torch.from_numpy(part)
