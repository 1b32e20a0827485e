"""Rows distributed over threads of torch or of our own.

Numba's threading layers neither fork nor nest safely.

The kernels release the GIL, so several Python threads run them in parallel. As many are used as
torch would use, the caller's own among them: a DataLoader worker, where torch has one thread,
starts none. They are torch's own where that is possible: after each of its operations the threads
of its OpenMP team spin for milliseconds, and a second pool would fight them for the cores.
"""

import ctypes
import itertools
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...graph.modes import lru_cache

CHUNKS_PER_THREAD = 4  # so that other threads take over from one that is delayed
SMALL = 1 << 15  # units of work below which a second thread costs more than it saves
# units of work of a chunk, a fraction of a second: Ctrl-C is handled between chunks
LARGE = 1 << 28

# units of work worth starting one thread; the n-th waits for those before, so n * n steps for n
STEP = 1 << 19

_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_pool: ThreadPoolExecutor | None = None
_forked = False


def _forget_threads() -> None:
    """Start a new pool in a forked child, where libgomp would wait for threads of the parent."""
    global _pool, _forked
    _pool = None
    _forked = True


os.register_at_fork(after_in_child=_forget_threads)


@lru_cache(None)
def _gomp_parallel() -> Callable[..., None] | None:
    """``GOMP_parallel`` of the OpenMP library of torch's own operations, or ``None``."""
    if "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return None
    with suppress(OSError, AttributeError):  # on macOS, or of a torch that was built otherwise
        files = [str(path) for path in (Path(torch.__file__).parent / "lib").glob("libgomp*.so*")]
        # without a library of torch's own, the one that is loaded
        function: Any = ctypes.CDLL([*files, None][0]).GOMP_parallel
        function.argtypes = [_BODY, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        function.restype = None
        return function
    return None


def kind_of_threads() -> str:
    """The threads that run the kernels, as ``graphattn doctor`` shows them."""
    if _forked or _gomp_parallel() is None:
        return "a pool of threads"
    return "torch's OpenMP team"


def threads_for(work: int) -> int:
    """The number of threads for some work: torch's number, or fewer if starting them takes longer.

    Starting one takes about 0.05 to 0.1 ms under the GIL: n threads take ``W / n + n s``, least at
    ``n = sqrt(W / s)``.
    """
    if work < SMALL:
        return 1
    return min(torch.get_num_threads(), max(2, math.isqrt(work // STEP)))


def _in_pool(threads: int, drain: Callable[[], None]) -> None:
    global _pool
    others: list[Future[None]] = []
    try:
        with suppress(RuntimeError):  # no more threads available: at exit, or by ulimit
            if _pool is None or _pool._max_workers < threads - 1:
                _pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="graphattn")
            pool = _pool
            others += (pool.submit(drain) for _ in range(threads - 1))
        drain()
    finally:
        for other in others:
            other.result()


def _in_team(parallel: Callable[..., None], threads: int, drain: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def body(_: Any) -> None:
        try:
            drain()
        except BaseException as error:  # no exception crosses frames of C: it waits for the team
            errors.append(error)

    with _late_interrupts(body, errors):
        parallel(_BODY(body), None, threads, 0)
    if errors:
        raise errors[0]


@contextmanager
def _late_interrupts(body: Callable[..., None], errors: list[BaseException]) -> Iterator[None]:
    """Raise in the main thread what a signal raised in a callback; Python only prints it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        # Python 3.13 names it there
        is_of_body = unraisable.object is body or repr(body) in (unraisable.err_msg or "")
        if is_of_body and unraisable.exc_value is not None:
            errors.append(unraisable.exc_value)
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def share(
    bounds: list[int],
    work: int,
    run: Callable[..., None],
    space: Callable[[], tuple[Any, ...]] = tuple,
) -> None:
    """``run(lo, hi, *space())`` of every chunk ``bounds[i] .. bounds[i + 1]``.

    ``space`` is called once per thread.
    """
    threads = min(threads_for(work), len(bounds) - 1)
    if threads <= 1:
        thread_space = space()
        for lo, hi in itertools.pairwise(bounds):
            run(lo, hi, *thread_space)
        return
    chunks = iter(list(itertools.pairwise(bounds)))  # next() on it is atomic

    def drain() -> None:
        try:
            thread_space = space()
            for lo, hi in chunks:
                run(lo, hi, *thread_space)
        finally:
            # after an error or Ctrl-C the other threads stop, too, at the end of their chunk
            for _ in chunks:
                pass

    # Fewer threads than the team has are a pool: a team that changes its size starts and ends
    # threads each time.
    if _forked or threads < torch.get_num_threads():
        parallel = None
    else:
        parallel = _gomp_parallel()
    if parallel is None:
        _in_pool(threads, drain)
    else:
        _in_team(parallel, threads, drain)


def chunks(ptr: Tensor, work: int) -> list[int]:
    """Bounds of chunks of rows of about equal cost: the edges, and a little for the row itself."""
    rows = ptr.numel() - 1
    if work < SMALL:
        return [0, rows]
    count = max(1, min(rows, max(threads_for(work) * CHUNKS_PER_THREAD, work // LARGE)))
    cost = ptr.numpy() + 2 * np.arange(rows + 1)
    inner = np.searchsorted(cost, cost[-1] * np.arange(1, count) / count)
    return sorted({0, rows, *inner.tolist()})
