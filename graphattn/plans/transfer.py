"""Graphs with their plans in one block of memory, for another process or another device.

A pickle of a graph leaves its plans behind, and ``to`` moves its tensors one by one. Here a value
with graphs in it, such as a hierarchy, is packed with the plans that are asked for, and its tensors
lie end to end: one copy moves all of them, and unpacking makes views.
"""

import math
import pickle
from collections.abc import Callable, Hashable, Iterable
from io import BytesIO
from itertools import chain
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.edges import Edges, Stored
from ..graph.images import Images
from ..graph.listed import Listed
from .cache import CPU

Key = Hashable
#: Derivations of a graph by key, as the graph caches them.
Derived = dict[Key, Any]

FACTS = ("num_edges", "in_degree", "out_degree", "is_causal")  # properties cached by name
ALIGNED = 128  # bytes; kernels read 16 at once
#: Blocks of memory: what moves to the device, what moves there into memory of its own, and what
#: stays on the host, such as the intervals of a rule.
PLACES = ("device", "apart", "host")


class Apart(NamedTuple):
    """A value whose tensors move into memory of their own, which outlives that of the others."""

    value: Any


class Packed(NamedTuple):
    """A value without its tensors, pickled, and their memory: a block for each of the places."""

    data: bytes
    memory: Tensor
    sizes: tuple[int, ...]

    def pin_memory(self, device: Any = None) -> "Packed":
        """A copy in pinned memory; called by torch's ``DataLoader``."""
        return self._replace(memory=self.memory.pin_memory())

    def blocks(self, device: torch.device) -> dict[str, Tensor]:
        """The memory by place; from pinned memory, a copy is queued on the current stream."""
        blocks = dict(zip(PLACES, self.memory.split(self.sizes), strict=True))
        if device != CPU:
            for place in ("device", "apart"):
                blocks[place] = blocks[place].to(device, non_blocking=True)
        return blocks


def derivable(graph: AttentionGraph) -> frozenset[Key]:
    """The keys of those cached derivations of a graph that :func:`derived` can make elsewhere."""
    keys = set()
    for key in graph._memo:
        is_call = False
        if isinstance(key, tuple) and len(key) in (2, 3):
            # a function of a graph, with its arguments if there are any, and a device
            is_call = callable(key[0]) and isinstance(key[-1], torch.device)
        if is_call or key in FACTS:
            keys.add(key)
    return frozenset(keys)


def derived(graph: AttentionGraph, keys: Iterable[Key]) -> Derived:
    """The derivations of a graph under these keys, made on the CPU."""
    results: Derived = {}
    for key in keys:
        if isinstance(key, tuple):
            make = key[0]
            arguments = key[1:-1]
            results[key] = make(graph, *chain(*arguments))
        else:
            getattr(graph, str(key))
            results[key] = graph._memo[key]
    return results


def pack(
    value: Any,
    plans: Callable[[AttentionGraph], Derived],
    device: torch.device = CPU,
    allocate: Callable[[int], Tensor] = lambda size: torch.empty(size, dtype=torch.uint8),
) -> Packed:
    """A value, its tensors and graphs on the CPU, packed for a device: :func:`unpack` makes it.

    Args:
        value: Data that pickle can write: tuples, dicts, dataclasses.
        plans: The derivations that a graph takes along, by their keys on the device.
        device: The device of the blocks.
        allocate: A function of a number of bytes to the memory, uint8.
    """
    file = BytesIO()
    packer = _Packer(file, plans, device)
    packer.dump(value)
    sizes = tuple(packer.sizes[place] for place in PLACES)
    memory = allocate(sum(sizes))
    blocks = dict(zip(PLACES, memory.split(sizes), strict=True))
    for tensor, (place, start, dtype, shape) in packer.tensors:
        _view(blocks[place], start, dtype, shape).copy_(tensor)
    return Packed(file.getvalue(), memory, sizes)


def unpack(data: bytes, blocks: dict[str, Tensor]) -> Any:
    """A value whose tensors are views of blocks."""
    return _Unpacker(data, blocks).load()


class _Packer(pickle.Pickler):
    """A pickler that leaves tensors out, and takes plans of graphs along."""

    def __init__(
        self,
        file: BytesIO,
        plans: Callable[[AttentionGraph], Derived],
        device: torch.device,
    ) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.plans = plans
        self.device = device
        self.sizes = dict.fromkeys(PLACES, 0)
        self.tensors: list[tuple[Tensor, Any]] = []
        self._names: dict[int, Any] = {}
        self._elsewhere: dict[int, str] = {}  # of tensors that are not to lie on the device
        self._alive: list[Tensor] = []  # so that an id is not used twice

    def persistent_id(self, value: Any) -> Any:
        """The place of a tensor."""
        if not isinstance(value, Tensor):
            return None
        if id(value) not in self._names:
            place = self._elsewhere.get(id(value), "device")
            start = self.sizes[place]
            name = (place, start, value.dtype, tuple(value.shape))
            self._names[id(value)] = name
            self.tensors.append((value, name))  # which also keeps it, and its id
            size = value.numel() * value.element_size()
            self.sizes[place] = start + -(-size // ALIGNED) * ALIGNED
        return self._names[id(value)]

    def reducer_override(self, value: Any) -> Any:
        """A call that makes a value again."""
        if isinstance(value, AttentionGraph):
            moved: Derived = {}
            for key, result in self.plans(value).items():
                moved[key] = result
                if isinstance(key, tuple) and key[-1] != self.device:
                    moved[key] = self._placed(result, "host")
            return _graph, (value.edges, value.name, _OnDevice(), moved)
        if isinstance(value, Listed):
            sizes = (value.num_targets, value.num_sources)
            return _listed, (*sizes, value.ends, value.has_repeats, value.images)
        if isinstance(value, Edges) and value.stored() is not None:
            return _rule, self._rule(value)
        if isinstance(value, _OnDevice):
            return torch.device, (str(self.device),)
        if isinstance(value, Apart):
            return getitem, ((self._placed(value.value, "apart"),), 0)
        return NotImplemented

    def _rule(self, edges: Edges) -> tuple[Any, ...]:
        stored: Any = edges.stored()
        runs = self._placed(tuple(stored), "host")
        facts = {name: getattr(edges, name) for name in ("num_blocks", "diagonals", "grid")}
        sizes = (edges.num_targets, edges.num_sources)
        return (*sizes, runs, edges.runs_per_row, edges.count(), facts)

    def _placed(self, value: Any, place: str) -> Any:
        """A nested tuple with other tensors of the same memory, which are to lie elsewhere."""
        if isinstance(value, Tensor):
            other = value.detach()
            self._elsewhere[id(other)] = place
            self._alive.append(other)
            return other
        if not isinstance(value, tuple):
            return value
        parts = [self._placed(part, place) for part in value]
        if hasattr(value, "_fields"):
            return type(value)(*parts)
        return tuple(parts)


class _OnDevice:
    """Stands for the device that a value is packed for."""


class _Unpacker(pickle.Unpickler):
    """An unpickler of tensors that are views of blocks of memory."""

    def __init__(self, data: bytes, blocks: dict[str, Tensor]) -> None:
        super().__init__(BytesIO(data))
        self.blocks = blocks

    def persistent_load(self, name: Any) -> Tensor:
        """The tensor of that place."""
        place, start, dtype, shape = name
        return _view(self.blocks[place], start, dtype, shape)


def _view(
    block: Tensor,
    start: int,
    dtype: torch.dtype,
    shape: tuple[int, ...],
) -> Tensor:
    size = math.prod(shape) * dtype.itemsize
    return block[start : start + size].view(dtype).view(shape)


def _graph(
    edges: Edges,
    name: str,
    device: torch.device,
    plans: Derived,
) -> AttentionGraph:
    graph = AttentionGraph(edges, name, device)
    graph._memo.update(plans)
    return graph


def _listed(
    num_targets: int,
    num_sources: int,
    ends: Tensor,
    has_repeats: bool,
    images: Images | None,
) -> Listed:
    edges = Listed(num_targets, num_sources, ends)
    edges.has_repeats = has_repeats
    edges.images = images
    return edges


def _rule(
    num_targets: int,
    num_sources: int,
    runs: tuple[Tensor, ...],
    runs_per_row: int,
    count: int,
    facts: dict[str, Any],
) -> Edges:
    """The edges of a rule by their intervals, without the functions that made them."""
    edges = Edges(num_targets, num_sources, runs_per_row=runs_per_row, count=count)
    edges._stored = Stored(*runs)
    for name, fact in facts.items():
        setattr(edges, name, fact)
    return edges
