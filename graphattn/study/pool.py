"""Trials as processes: as many as there are cores, each with one thread."""

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import traceback
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from threading import Thread
from typing import Any, TextIO

from .comparison import Comparison, Trial
from .records import Entry, writing

_MOST_WORDS = 2_000  # characters kept of an error


@lru_cache(maxsize=2)
def _unpickled(path: str) -> Any:
    return pickle.loads(Path(path).read_bytes())


def run_trial(comparison: Any, graphs: Any, trial: Any) -> Entry:
    """The numbers of a trial, on one thread; a trial that fails is recorded as a result."""
    import torch

    from .train import train

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        return train(comparison, graphs, trial)
    except Exception as error:
        return failed(error)
    finally:
        torch.set_num_threads(threads)


def failed(error: Exception) -> Entry:
    """A record of what went wrong, and where."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    try:
        text = str(error)[:_MOST_WORDS]
    except Exception:
        text = ""
    if text:
        words = f"{type(error).__name__}: {text}"
    else:
        words = type(error).__name__
    return {"state": "failed", "error": f"{words} ({Path(where.filename).name}:{where.lineno})"}


def serve() -> None:
    """Answer tasks from stdin until it is closed: ``{"comparison": path, "trial": pickle}``.

    It ends in the middle of a trial too, as no process remains to record the result.
    """
    answers = os.fdopen(os.dup(1), "w")
    tasks = queue.SimpleQueue[str]()
    Thread(target=_listen, args=(os.fdopen(os.dup(0)), tasks), daemon=True).start()
    os.dup2(2, 1)  # what libraries print is no answer
    from ..bench.machine import limit_memory

    limit_memory("cpu")
    while True:
        task = json.loads(tasks.get())
        try:
            graphs, trial = pickle.loads(b64decode(task["trial"]))
            answer = run_trial(_unpickled(task["comparison"]), graphs, trial)
        except Exception as error:  # what the comparison is made of cannot be imported here
            answer = failed(error)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _listen(stdin: TextIO, tasks: "queue.SimpleQueue[str]") -> None:
    for line in stdin:
        tasks.put(line)
    os._exit(1)


_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
_ENDING = 10.0  # seconds until a process that closed its pipe has ended


class Worker:
    """A process, started on its first task, and again after it died or was killed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, task: dict[str, str]) -> Entry:
        """The answer to a task, or a failed trial if the process died or wrote something else."""
        process = self.process = self.process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = b""
        if line.endswith(b"\n"):  # else it was killed while it wrote
            with contextlib.suppress(ValueError, RecursionError):
                answer = json.loads(line)
                if isinstance(answer, dict):
                    return answer
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0 if line else _ENDING)
        status = process.poll()
        self.end()
        ended = f"its process ended with status {status}" + " (out of memory?)" * (status == -9)
        if status is None:
            ended = "its process gave no answer"
        return {"state": "failed", "error": ended}

    def _start(self) -> "subprocess.Popen[bytes]":
        code = (
            f"import sys; sys.path[:] = {sys.path!r}\nfrom graphattn.study.pool import serve"
            "\nserve()"
        )
        if os.environ.get("GRAPHATTN_DEBUG", "0") not in ("", "0"):
            quiet = None
        else:
            quiet = subprocess.DEVNULL
        return subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=quiet,
            env=os.environ | _ONE_THREAD,
            # Ctrl-C is the parent's to answer; children of the process end with it
            start_new_session=True,
        )

    def end(self) -> None:
        """Kill the process and its children."""
        process, self.process = self.process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()


def run_all(
    comparisons: dict[str, Comparison],
    trials: Sequence[Trial],
    done: Callable[[Trial, Entry], None],
    processes: int,
) -> None:
    """Run trials, and report each as it ends, in this thread.

    Comparisons are written once, to a folder that workers read; of trials only those at work are
    pickled, so that memory does not grow with their number.

    Args:
        comparisons: By name.
        trials: In their order.
        done: Called with each and its answer.
        processes: How many; 0 is this process, one trial after the other.
    """
    if processes == 0:
        for trial in trials:
            comparison = comparisons[trial.comparison]
            done(trial, run_trial(comparison, comparison.graphs_for(trial), trial))
        return
    workers = [Worker() for _ in range(min(processes, len(trials)))]
    free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    for worker in workers:
        free.put(worker)
    with contextlib.ExitStack() as stack:
        with writing(Path(tempfile.gettempdir())):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="graphattn-study-"))
        at = {name: Path(folder, f"{number}.pkl") for number, name in enumerate(comparisons)}
        for name in {trial.comparison for trial in trials}:
            with writing(Path(folder)):
                at[name].write_bytes(pickle.dumps(comparisons[name]))

        def run_one(trial: Trial) -> tuple[Trial, Entry]:
            content = pickle.dumps((comparisons[trial.comparison].graphs_for(trial), trial))
            task = {"comparison": str(at[trial.comparison]), "trial": b64encode(content).decode()}
            worker = free.get()
            try:
                return trial, worker.ask(task)
            finally:
                free.put(worker)

        executor = ThreadPoolExecutor(len(workers))
        try:
            for future in as_completed([executor.submit(run_one, trial) for trial in trials]):
                done(*future.result())
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.end()
            executor.shutdown()
