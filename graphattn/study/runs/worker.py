"""The child process of trials: one thread, one trial at a time, a line of JSON for each."""

import json
import os
import pickle
import queue
import traceback
from functools import lru_cache
from pathlib import Path
from threading import Thread
from typing import Any, TextIO

_MOST_WORDS = 2_000  # characters kept of an error


@lru_cache(maxsize=2)
def _unpickled(path: str) -> Any:
    return pickle.loads(Path(path).read_bytes())


def run_trial(comparison: Any, graphs: Any, trial: Any) -> dict[str, Any]:
    """The numbers of a trial, on one thread; a trial that fails is recorded as a result."""
    import torch

    from ..trial import train

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        return train(comparison, graphs, trial)
    except Exception as error:
        return failed(error)
    finally:
        torch.set_num_threads(threads)


def failed(error: Exception) -> dict[str, Any]:
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
    """Answer tasks ``{"comparison": path, "trial": path}`` from stdin until it is closed.

    It ends in the middle of a trial too, as no process remains to record the result.
    """
    answers = os.fdopen(os.dup(1), "w")
    tasks = queue.SimpleQueue[str]()
    Thread(target=_listen, args=(os.fdopen(os.dup(0)), tasks), daemon=True).start()
    os.dup2(2, 1)  # what libraries print is no answer
    from ...bench.machine import limit_memory

    limit_memory("cpu")
    while True:
        task = json.loads(tasks.get())
        try:
            graphs, trial = pickle.loads(Path(task["trial"]).read_bytes())
            answer = run_trial(_unpickled(task["comparison"]), graphs, trial)
        except Exception as error:  # what the comparison is made of cannot be imported here
            answer = failed(error)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _listen(stdin: TextIO, tasks: "queue.SimpleQueue[str]") -> None:
    for line in stdin:
        tasks.put(line)
    os._exit(1)
