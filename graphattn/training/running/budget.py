"""Memory and time of a training before it starts."""

import copy
import os
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import OptionError
from ...pyg import Data
from ...shapes import Shape
from ...shapes.seeded import seeded
from ..reading.data import Prepared, joined
from ..reading.inputs import rows_of
from .loop import TrainingState

_OVER = 1.5  # what a step takes, gradients and buffers, over what it saves for its backward
_LONG = 20.0  # seconds of a first step, in which kernels may be compiled, that is not timed again
_SHORT = 1.0  # seconds of a step that is timed on copies, too, which take little more
_COPIES = 8
_MANY = 1 << 14  # points of a part of a cloud that has more, of which memory and time are measured
_FORWARD = 0.4  # of a step, which a shape of the validation part takes


class Estimate(NamedTuple):
    """Memory and time that a training will take."""

    points: int  # of the largest batch
    edges: int  # of that batch
    bytes: int  # that a step on it holds, in a process
    minutes: float  # of all epochs
    shape: Any  # on which steps were measured
    factor: float  # from bytes saved on that shape to bytes of a batch


def foretold(training: TrainingState) -> str:
    """Points, edges, memory and minutes in words.

    Raises:
        OptionError: If a batch will not fit into the memory that is free.
    """
    estimate = estimated(training)
    free = _free(training.schedule.device)
    if free is not None and estimate.bytes > free:
        raise _too_large(training, estimate, free)
    lasts = "a minute or less"
    if estimate.minutes >= 1.5:
        lasts = f"{estimate.minutes:.0f} minutes"
    return f"{_of_a_batch(training, estimate)}; all epochs: about {lasts}"


def estimated(training: TrainingState) -> Estimate:
    """Memory and time, from steps on a small shape, or a part of it, and on copies."""
    train = training.train
    # the first quartile, as the smallest may be odd: of three points each has two neighbours
    small = int(train.sizes.argsort()[len(train.sizes) // 4])
    shape = train.static(small)
    num_points = max(1, int(train.sizes[small]))
    edges = _num_edges(shape) / num_points
    denser = 1.0
    part = _part(train, small)
    if part is not None:
        shape = part
        num_points = len(part.x)
        edges_in_part = _num_edges(part) / num_points
        if edges_in_part:
            denser = edges / edges_in_part
    seconds, saved = _step(training, shape)
    if seconds < _LONG:
        seconds, saved = _step(training, shape)  # kernels are compiled by now
    plan = training.batches.plan()
    points = max(sum(int(train.sizes[number]) for number in batch) for batch in plan)
    factor = _OVER * denser * points / num_points
    if training.schedule.shard:
        factor /= training.team.number
    copies = 1
    if denser * seconds < _SHORT:
        copies = min(points // num_points, _COPIES)
    more = seconds
    if copies >= 2:
        more, _ = _step(training, shape, copies)
    one = denser * seconds
    several = denser * more
    epoch = of_epoch(one, several, copies, len(plan), float(train.sizes.sum()) / num_points)
    begin = time.perf_counter()
    train[small]  # which is changed in training
    loading = time.perf_counter() - begin
    epoch += loading * float(train.sizes.sum()) / max(1, int(train.sizes[small]))
    shapes = float(training.val.sizes.sum()) / num_points
    epoch += _FORWARD * of_epoch(one, several, copies, 1, shapes)
    left = training.schedule.epochs - len(training.history)
    return Estimate(
        points=points,
        edges=round(edges * points),
        bytes=int(factor * saved),
        minutes=epoch / training.team.number * left / 60,
        shape=shape,
        factor=factor,
    )


def _num_edges(shape: Any) -> int:
    return sum(graph.num_edges for graph in shape.levels.graphs())


def _of_a_batch(training: TrainingState, estimate: Estimate) -> str:
    where = ""
    if training.schedule.shard and training.team.number > 1:
        where = " in a process"
    return (
        f"a batch: up to {estimate.points:,} points, {estimate.edges:,} edges, about "
        f"{_size(estimate.bytes)}{where}"
    )


def _too_large(training: TrainingState, estimate: Estimate, free: int) -> OptionError:
    """The refusal of batches that do not fit, with the options that make them fit."""
    points = max(1, int(estimate.points * free / estimate.bytes))
    fix = "a larger --grid, a smaller --block, or --shard fits"
    if points >= int(training.train.sizes.max()):
        fix = f"--points {points} fits"
    if not training.schedule.amp:
        less = int(estimate.factor * _step(training, estimate.shape, amp=True)[1])
        if less <= free:
            fix += f", and so does --amp, {_size(less)}"
        else:
            fix += f"; --amp takes {_size(less)}"
    words = _of_a_batch(training, estimate)
    return OptionError(f"points: {words}, and {_size(free)} are free; {fix}")


def _part(data: Prepared, index: int) -> Data | None:
    """A piece of a cloud that is too large to be measured whole; None of others."""
    if int(data.sizes[index]) <= _MANY:
        return None
    shape = data.folder[data.numbers[index]]
    if "face" in shape or data.inputs.simulation is not None:
        return None
    near = (shape.pos - shape.pos[0]).norm(dim=1).argsort()[:_MANY]
    tensors = {name: x[near] for name, x in rows_of(shape, len(shape.pos)).items()}
    return data.inputs(Shape(tensors), data.name(index))


def of_epoch(one: float, more: float, copies: int, batches: int, shapes: float) -> float:
    """Seconds of an epoch, where a step on a shape takes ``one`` and on ``copies`` of it ``more``.

    What a step takes whatever its size counts once a batch.
    """
    if copies > 1:
        per_shape = min(max(0.0, more - one) / (copies - 1), one)
    else:
        per_shape = one
    return batches * (one - per_shape) + shapes * per_shape


def _step(
    training: TrainingState, shape: Any, copies: int = 1, amp: bool = False
) -> tuple[float, int]:
    """Seconds of a forward and a backward on copies of a shape, and the bytes saved between them.

    Nothing is changed: the step is that of a copy of the model.
    """
    model = copy.deepcopy(training.model).train()
    schedule = training.schedule
    saved_bytes: dict[int, int] = {}

    def hold(x: Tensor) -> Tensor:
        saved_bytes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    batch = shape.clone()
    batch.levels = [shape.levels] * copies
    batch.x = torch.cat([shape.x] * copies)
    if shape.y is None:
        batch.y = None
    else:
        batch.y = torch.cat([shape.y] * copies)
    _wait(schedule.device)
    start = time.perf_counter()
    with seeded(schedule.seed), torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x):
        x, levels, y = joined(batch, schedule.device)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=amp or schedule.amp):
            output = model(x, levels)
        training.task.loss(output.to(x.dtype), y).backward()  # type: ignore[arg-type]
    _wait(schedule.device)
    return time.perf_counter() - start, sum(saved_bytes.values())


def _wait(device: str) -> None:
    """Wait until a device has computed all queued work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def _free(device: str) -> int | None:
    """Free bytes, if the system reports them; on CUDA with those that torch's cache holds."""
    if device.startswith("cuda"):
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":") for line in file)
        return int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return None


def _size(count: int) -> str:
    if count >= 1e8:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB"
