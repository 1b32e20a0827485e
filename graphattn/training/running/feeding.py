"""Batches of a training, and the process or device that makes each part of them.

====================  ============================================================================
a worker              shapes, changed and turned; the hierarchy of a batch; the plans of its graphs;
                      all of that packed into one block of shared memory
a thread, for CUDA    that block in pinned memory
the training process  the order of the shapes; views of the block; for CUDA its copy, on a stream of
                      its own while the step before runs
the device            what the model computes
====================  ============================================================================

Without workers the training process makes everything; the numbers are the same to the last bit. A
plan is an arrangement of a graph's edges for a backend. The plans that a step needs are read off
the graphs that it ran on: so the first batch is made in the training process, and workers start
then.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from ...errors import OptionError, ProcessError
from ...graph import AttentionGraph
from ...graphs import Hierarchy
from ...kernels.cuda.row_work import cut, keep
from ...plans.grouped import by_source, by_target
from ...plans.transfer import Apart, Key, Packed, derivable, derived, pack, unpack
from ...pyg import Batch as Joined
from ...shapes.batches import Draw, without_interrupts
from ..reading.data import Prepared, joined
from .signals import leave_to_parent

_SHARED = "/dev/shm"  # memory that processes share, on Linux


class Batch(NamedTuple):
    """Shapes of a step on their device: features, levels and labels."""

    x: Tensor
    levels: Hierarchy
    y: Tensor | None


class Ordered(NamedTuple):
    """A batch that a worker is to make: its shapes, and the plans needed of each graph."""

    shapes: list[Draw]
    plans: tuple[frozenset[Key], ...]


class Feed:
    """Batches of shapes on the device of a model; each iteration is an epoch.

    Args:
        data: The shapes.
        order: The shapes of the batches of an epoch, in the :class:`~graphattn.shapes.PointBatches`
            that this is the loader of.
        workers: Processes that make batches; 0 is this one.
        device: Device of the batches.
    """

    def __init__(
        self, data: Prepared, order: Iterable[list[Draw]], workers: int, device: torch.device | str
    ) -> None:
        self.workers = workers
        self.device = torch.device(device)
        self.orders = _Orders(order)
        self.making = _Making(data, workers, self.device)
        self.loader: DataLoader[Any] | None = None
        self.stream: Any = None
        if self.device.type == "cuda":
            self.stream = torch.cuda.Stream(self.device)

    def __iter__(self) -> Iterator[Batch]:
        self.orders.begin()
        for item in self._items():
            batch = self._unpacked(item)
            yield batch
            self.orders.learn(batch.levels)

    def _items(self) -> Iterator[Batch | Packed]:
        """Batches of this process, then packed ones of workers."""
        if self.loader is None:
            for (ordered,) in self.orders:
                yield self.making[ordered]
                if self.workers:
                    break
            if not self.workers:
                return
            self.loader = DataLoader(
                self.making,
                batch_sampler=self.orders,
                collate_fn=_one,
                num_workers=self.workers,
                persistent_workers=True,
                worker_init_fn=self.making.begin,
                pin_memory=self.stream is not None,
            )
        with without_interrupts():  # Ctrl-C reaches workers, too, and is this process's to answer
            batches = iter(self.loader)
        try:
            yield from batches
        except RuntimeError as error:
            if "exited unexpectedly" not in str(error):  # torch's words of a worker that is gone
                raise
            raise ProcessError(
                f"one of {self.workers} workers was killed while it made a batch, often because "
                "memory ran out; take fewer workers or points a batch, and resume the run"
            ) from error

    def _unpacked(self, item: Batch | Packed) -> Batch:
        """A batch on the device, which computes nothing before the copy has ended."""
        if isinstance(item, Batch):
            return item
        if self.stream is None:
            blocks = item.blocks(self.device)
        else:
            with torch.cuda.stream(self.stream):
                blocks = item.blocks(self.device)
            step = torch.cuda.current_stream(self.device)
            step.wait_stream(self.stream)
            for place in ("device", "apart"):
                blocks[place].record_stream(step)  # not to be overwritten before the step has ended
        batch, schedules = unpack(item.data, blocks)
        for ptr, order, schedule in schedules:
            keep(ptr, order, schedule)
        return batch


class _Orders:
    """Orders of an epoch, one for each batch."""

    def __init__(self, order: Iterable[list[Draw]]) -> None:
        self.order = order
        self.coming: Iterator[list[Draw]] = iter(())
        self.plans: tuple[frozenset[Key], ...] = ()

    def begin(self) -> None:
        """Begin an epoch at its first batch."""
        self.coming = iter(self.order)

    def __iter__(self) -> Iterator[list[Ordered]]:
        for shapes in self.coming:
            yield [Ordered(shapes, self.plans)]

    def learn(self, levels: Hierarchy) -> None:
        """Order from now on the plans that this step derived of its graphs."""
        keys = [derivable(graph) for graph in _graphs(levels)]
        if not self.plans:
            self.plans = (frozenset(),) * len(keys)
        self.plans = tuple(old | new for old, new in zip(self.plans, keys, strict=True))


class _Making(Dataset):
    """Batches by their orders, in a worker or the training process."""

    def __init__(self, data: Prepared, workers: int, device: torch.device) -> None:
        self.data = data
        self.workers = workers
        self.device = device

    def begin(self, worker: int) -> None:
        """Take this worker's share of the memory for shapes."""
        leave_to_parent()
        self.data.share_memory(self.workers)

    def __getitem__(self, ordered: Ordered) -> Batch | Packed:
        shapes = Joined.from_data_list([self.data[number] for number in ordered.shapes])
        batch = Batch(*joined(shapes, "cpu"))
        if self.device.type == "cpu" and get_worker_info() is None:
            return batch
        plans = {}
        schedules = []
        if self.device.type == "cuda":
            for level in batch.levels.levels:
                _ = [near.tables for near in level.near]  # cached, and sent along
        for graph, keys in zip(_graphs(batch.levels), ordered.plans, strict=False):
            graph_plans = plans[graph] = derived(graph, keys)
            if self.device.type == "cuda":
                for key, rows in graph_plans.items():
                    if not isinstance(key, tuple) or key[0] not in (by_target, by_source):
                        continue
                    if key[-1].type == "cuda":
                        # in the memory of its layout it would keep that alive, and itself
                        work = Apart(cut(rows.ptr, rows.order))
                        schedules.append((rows.ptr, rows.order, work))
        value = (batch, schedules)
        return pack(value, lambda graph: plans.get(graph, {}), self.device, _memory)


def _one(batches: list[Any]) -> Any:
    (batch,) = batches
    return batch


def _graphs(levels: Hierarchy) -> list[AttentionGraph]:
    """The graphs of a hierarchy, always in the same order."""
    of_cells = [near.graph for level in levels.levels for near in level.near]
    return [*levels.graphs(), *of_cells, levels.clouds]


def _memory(size: int) -> Tensor:
    """Memory that a worker shares with the training process; in that process itself, pinned."""
    if get_worker_info() is None:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    if os.path.isdir(_SHARED):
        disk = os.statvfs(_SHARED)
        free = disk.f_bavail * disk.f_frsize
        if size > free:  # it would end the worker without a word
            raise OptionError(
                f"workers must share a batch of {size:,} bytes, and {free:,} are free in "
                f"{_SHARED}; give it more (docker run --shm-size), or take fewer points or workers"
            )
    storage = torch.UntypedStorage._new_shared(size)
    return torch.empty(0, dtype=torch.uint8).set_(storage)
