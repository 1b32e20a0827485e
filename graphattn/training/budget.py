"""Memory and time of a training before it starts, from one step on its smallest shape."""

import copy
import os
import time
from typing import Any

import torch
from torch import Tensor

from ..errors import OptionError
from ..shapes.seeded import seeded
from .data import joined
from .loop import Training

_OVER = 1.5  # what a step takes, gradients and buffers, over what it saves for its backward
_LONG = 5.0  # seconds of a first step that is not timed again


def foretold(training: Training) -> str:
    """Points, edges, memory and minutes in words.

    Raises:
        OptionError: If a batch will not fit into the memory that is free.
    """
    train, how = training.train, training.schedule
    smallest = int(train.sizes.argmin())
    batch = train.static(smallest).clone()
    batch.levels, few = [batch.levels], int(train.sizes[smallest])
    seconds, saved = _step(training, batch)
    if seconds < _LONG:
        seconds, saved = _step(training, batch)  # kernels are compiled by now
    levels = batch.levels[0]
    edges = sum(graph.num_edges for graph in levels.graphs())
    points = max(sum(int(train.sizes[each]) for each in plan) for plan in training.batches.plan())
    need = int(_OVER * saved * points / max(few, 1))
    every = float(train.sizes.sum()) * (how.epochs - len(training.history))
    minutes = seconds * every / max(few, 1) / 60
    lasts = f"{minutes:.0f} minutes" if minutes >= 1 else "a minute or less"
    words = f"a batch: up to {points:,} points, {edges * points // max(few, 1):,} edges, about {_size(need)}"
    free = _free(how.device)
    if free is not None and need > free:
        fit = max(1, int(points * free / need))
        largest = int(train.sizes.max())
        fix = f"--points {fit} fits" if fit >= largest else "a larger --grid, or a smaller --block, fits"
        raise OptionError(f"points: {words}, and {_size(free)} are free; {fix}")
    return f"{words}; all epochs: about {lasts}"


def _step(training: Training, batch: Any) -> tuple[float, int]:
    """Seconds of a forward and a backward, and the bytes that are saved between them; nothing is changed."""
    model, how = copy.deepcopy(training.model).train(), training.schedule
    held: dict[int, int] = {}

    def hold(x: Tensor) -> Tensor:
        held[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    start = time.perf_counter()
    with seeded(how.seed), torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x):
        x, levels, y = joined(batch, how.device)
        training.task.loss(model(x, levels), y).backward()  # type: ignore[arg-type]
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
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
