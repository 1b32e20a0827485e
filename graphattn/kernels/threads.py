"""Rows distributed over threads of our own, since Numba's threading layers neither fork nor nest safely.

The kernels release the GIL, so plain Python threads run them in parallel. As many are used as torch would use, the
caller's own among them: a DataLoader worker, where torch has one thread, starts none.
"""

import itertools
import math
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import torch

CHUNKS_PER_THREAD = 4  # so that other threads take over from one that is delayed
SMALL = 1 << 15  # units of work below which a second thread costs more than it saves
LARGE = 1 << 28  # units of work of a chunk, a fraction of a second: Ctrl-C is handled between chunks

STEP = 1 << 19  # units of work worth starting one thread; the n-th waits for those before, so n * n steps for n

_pool: ThreadPoolExecutor | None = None


def _forget_pool() -> None:
    """Threads do not survive a fork; the child starts its own."""
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget_pool)


def _workers(count: int) -> ThreadPoolExecutor:
    global _pool
    if _pool is None or _pool._max_workers < count:
        _pool = ThreadPoolExecutor(count, thread_name_prefix="graphattn")
    return _pool


def threads_for(work: int) -> int:
    """The number of threads for some work: torch's number, or fewer if starting them takes longer.

    Starting one takes about 0.05 to 0.1 ms under the GIL: n threads take ``W / n + n s``, least at ``n = sqrt(W / s)``.
    """
    return 1 if work < SMALL else min(torch.get_num_threads(), max(2, math.isqrt(work // STEP)))


def share(bounds: list[int], work: int, run: Callable[..., None], space: Callable[[], tuple[Any, ...]] = tuple) -> None:
    """``run(lo, hi, *space())`` of every chunk ``bounds[i] .. bounds[i + 1]``; ``space`` is called once per thread."""
    threads = min(threads_for(work), len(bounds) - 1)
    if threads <= 1:
        own = space()
        for lo, hi in itertools.pairwise(bounds):
            run(lo, hi, *own)
        return
    chunks = iter(list(itertools.pairwise(bounds)))  # next() on it is atomic

    def drain() -> None:
        own = space()
        for lo, hi in chunks:
            run(lo, hi, *own)

    others: list[Future[None]] = []
    try:
        with suppress(RuntimeError):  # no more threads available: at exit, or by ulimit
            others += (_workers(threads - 1).submit(drain) for _ in range(threads - 1))
        drain()
    finally:
        for _ in chunks:  # after an error or Ctrl-C the other threads stop, too, at the end of their chunk
            pass
        for other in others:
            other.result()


def chunks(ptr: np.ndarray, work: int) -> list[int]:
    """Bounds of chunks of rows of about equal cost: the edges, and a little for the row itself."""
    rows = len(ptr) - 1
    if work < SMALL:
        return [0, rows]
    count = max(1, min(rows, max(threads_for(work) * CHUNKS_PER_THREAD, work // LARGE)))
    cost = ptr + 2 * np.arange(rows + 1)
    inner = np.searchsorted(cost, cost[-1] * np.arange(1, count) / count)
    return sorted({0, rows, *inner.tolist()})
