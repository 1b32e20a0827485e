"""Memory and time of a training before it starts, from steps on its smallest shape, or a part of
it, and on copies.
"""

import copy
import os
import time
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..errors import OptionError
from ..shapes import Shape
from ..shapes.seeded import seeded
from .data import Prepared, joined
from .inputs import rows_of
from .loop import Training

_OVER = 1.5  # what a step takes, gradients and buffers, over what it saves for its backward
_LONG = 20.0  # seconds of a first step, in which kernels may be compiled, that is not timed again
_SHORT = 1.0  # seconds of a step that is timed on copies, too, which take little more
_COPIES = 8
_MANY = 1 << 14  # points of a part of a cloud that has more, of which memory and time are measured
_FORWARD = 0.4  # of a step, which a shape of the validation part takes


def foretold(training: Training) -> str:
    """Points, edges, memory and minutes in words.

    Raises:
        OptionError: If a batch will not fit into the memory that is free.
    """
    train = training.train
    how = training.schedule
    smallest = int(train.sizes.argmin())
    shape = train.static(smallest)
    few = max(1, int(train.sizes[smallest]))
    plan = training.batches.plan()
    edges = sum(graph.num_edges for graph in shape.levels.graphs()) / few
    points = max(sum(int(train.sizes[each]) for each in batch) for batch in plan)
    part = _part(training.train, smallest)
    if part is not None:
        shape = part
        few = len(part.x)
    seconds, saved = _step(training, shape)
    if seconds < _LONG:
        seconds, saved = _step(training, shape)  # kernels are compiled by now
    if part is None:
        denser = 1.0
    else:
        denser = edges / (sum(graph.num_edges for graph in part.levels.graphs()) / few)
    seconds = denser * seconds
    saved = int(denser * saved)
    need = int(_OVER * saved * points / few / (training.team.number if how.shard else 1))
    if seconds < _SHORT:
        copies = min(points // few, _COPIES)
    else:
        copies = 1
    if copies < 2:
        more = seconds
    else:
        more = denser * _step(training, shape, copies)[0]
    epoch = of_epoch(seconds, more, copies, len(plan), float(train.sizes.sum()) / few)
    start = time.perf_counter()
    train[smallest]  # which is changed in training
    epoch += (
        (time.perf_counter() - start)
        * float(train.sizes.sum())
        / max(1, int(train.sizes[smallest]))
    )
    epoch += _FORWARD * of_epoch(seconds, more, copies, 1, float(training.val.sizes.sum()) / few)
    minutes = epoch / training.team.number * (how.epochs - len(training.history)) / 60
    if minutes >= 1.5:
        lasts = f"{minutes:.0f} minutes"
    else:
        lasts = "a minute or less"
    if how.shard and training.team.number > 1:
        where = " in a process"
    else:
        where = ""
    words = (
        f"a batch: up to {points:,} points, {round(edges * points):,} edges, about "
        f"{_size(need)}{where}"
    )
    free = _free(how.device)
    if free is not None and need > free:
        fit = max(1, int(points * free / need))
        largest = int(train.sizes.max())
        if fit >= largest:
            fix = f"--points {fit} fits"
        else:
            fix = "a larger --grid, a smaller --block, or --shard fits"
        if not how.amp:
            less = int(need * _step(training, shape, amp=True)[1] * denser / saved)
            fix += (
                f", and so does --amp, {_size(less)}"
                if less <= free
                else f"; --amp takes {_size(less)}"
            )
        raise OptionError(f"points: {words}, and {_size(free)} are free; {fix}")
    return f"{words}; all epochs: about {lasts}"


def _part(data: Prepared, index: int) -> Data | None:
    """A piece of a cloud that is too large to be measured whole; None of others."""
    if int(data.sizes[index]) <= _MANY:
        return None
    shape = data.folder[data.numbers[index]]
    if "face" in shape:
        return None
    near = (shape.pos - shape.pos[0]).norm(dim=1).argsort()[:_MANY]
    own = {name: x[near] for name, x in rows_of(shape, len(shape.pos)).items()}
    return data.inputs(Shape(own), data.name(index))


def of_epoch(one: float, more: float, copies: int, batches: int, shapes: float) -> float:
    """Seconds of an epoch, where a step on a shape takes ``one`` and on ``copies`` of it ``more``.

    What a step takes whatever its size counts once a batch.
    """
    if copies > 1:
        each = min(max(0.0, more - one) / (copies - 1), one)
    else:
        each = one
    return batches * (one - each) + shapes * each


def _step(training: Training, shape: Any, copies: int = 1, amp: bool = False) -> tuple[float, int]:
    """Seconds of a forward and a backward of copies of a shape, and the bytes that are saved
    between them; nothing is changed.
    """
    model = copy.deepcopy(training.model).train()
    how = training.schedule
    held: dict[int, int] = {}

    def hold(x: Tensor) -> Tensor:
        held[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    batch = shape.clone()
    batch.levels = [shape.levels] * copies
    batch.x = torch.cat([shape.x] * copies)
    if shape.y is None:
        batch.y = None
    else:
        batch.y = torch.cat([shape.y] * copies)
    start = time.perf_counter()
    with seeded(how.seed), torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x):
        x, levels, y = joined(batch, how.device)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=amp or how.amp):
            output = model(x, levels)
        training.task.loss(output.to(x.dtype), y).backward()  # type: ignore[arg-type]
    return time.perf_counter() - start, sum(held.values())


def _free(device: str) -> int | None:
    """Bytes that are free, where the system says so."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            told = dict(line.split(":") for line in file)
        return int(told["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return None


def _size(count: int) -> str:
    if count >= 1e8:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB"
