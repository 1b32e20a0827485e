"""The child process of trials: one thread, one trial at a time, a line of JSON for each."""

import json
import os
import pickle
import sys
import traceback
from functools import lru_cache
from pathlib import Path
from typing import Any


@lru_cache(maxsize=2)
def _unpickled(path: str) -> Any:
    return pickle.loads(Path(path).read_bytes())


def tried(comparison: Any, graphs: Any, trial: Any) -> dict[str, Any]:
    """The numbers of a trial, on one thread; a trial that fails is a result: it is kept and shown."""
    import torch

    from .trial import train

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        return train(comparison, graphs, trial)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return {"state": "failed", "error": f"{told} ({Path(where.filename).name}:{where.lineno})"}
    finally:
        torch.set_num_threads(threads)


def serve() -> None:
    """Answer tasks ``{"comparison": path, "trial": path}`` from stdin until it is closed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    from ..bench.clock import limit_memory

    limit_memory("cpu")
    for line in sys.stdin:
        task = json.loads(line)
        graphs, trial = pickle.loads(Path(task["trial"]).read_bytes())
        answers.write(json.dumps(tried(_unpickled(task["comparison"]), graphs, trial)) + "\n")
        answers.flush()
