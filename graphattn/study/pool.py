"""Trials as processes: as many as there are cores, each with one thread."""

import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from .comparison import Comparison, Trial
from .worker import tried

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class Worker:
    """A process, started on its first task, and again after it died."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def ask(self, task: dict[str, str]) -> dict[str, Any]:
        """The answer; of a process that died, that it failed."""
        process = self.process = self.process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = ""
        if line.endswith("\n"):  # else it was killed while it wrote
            return json.loads(line)
        status = process.wait()
        self.process = None
        why = " (out of memory?)" * (status == -9)
        return {"state": "failed", "error": f"its process ended with status {status}{why}"}

    def _start(self) -> "subprocess.Popen[str]":
        code = f"import sys; sys.path[:] = {sys.path!r}\nfrom graphattn.study.worker import serve\nserve()"
        quiet = None if os.environ.get("GRAPHATTN_DEBUG", "0") not in ("", "0") else subprocess.DEVNULL
        return subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=quiet,
            text=True,
            env=os.environ | _ONE_THREAD,
            start_new_session=True,  # Ctrl-C is the parent's to answer
        )

    def end(self) -> None:
        """Kill it."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    comparisons: dict[str, Comparison],
    trials: Sequence[Trial],
    done: Callable[[Trial, dict[str, Any]], None],
    processes: int,
) -> None:
    """Run trials, and tell of each as it ends, in this thread.

    Comparisons are written once, to a folder that workers read; of trials only those at work are, so that memory does
    not grow with their number.

    Args:
        comparisons: By name.
        trials: In their order.
        done: Called with each and its answer.
        processes: How many; 0 is this process, one trial after the other.
    """
    if processes == 0:
        for trial in trials:
            done(trial, tried(comparisons[trial.comparison], comparisons[trial.comparison].graphs_for(trial), trial))
        return
    workers = [Worker() for _ in range(min(processes, len(trials)))]
    free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    for worker in workers:
        free.put(worker)
    with tempfile.TemporaryDirectory(prefix="graphattn-study-") as folder:
        at = {name: Path(folder, f"{number}.pkl") for number, name in enumerate(comparisons)}
        for name in {trial.comparison for trial in trials}:
            at[name].write_bytes(pickle.dumps(comparisons[name]))

        def one(number: int, trial: Trial) -> tuple[Trial, dict[str, Any]]:
            worker, path = free.get(), Path(folder, f"trial-{number}.pkl")
            try:
                path.write_bytes(pickle.dumps((comparisons[trial.comparison].graphs_for(trial), trial)))
                return trial, worker.ask({"comparison": str(at[trial.comparison]), "trial": str(path)})
            finally:
                path.unlink(missing_ok=True)
                free.put(worker)

        waiting, running = list(enumerate(trials))[::-1], set[Future[Any]]()
        executor = ThreadPoolExecutor(max(1, len(workers)))
        try:
            while waiting or running:
                while waiting and len(running) < len(workers):
                    running.add(executor.submit(one, *waiting.pop()))
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for each in ended:
                    done(*each.result())
        finally:
            for worker in workers:
                worker.end()
            executor.shutdown(wait=True, cancel_futures=True)
