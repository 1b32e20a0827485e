"""A process that imports everything once and forks a child for each job, before CUDA is touched.

A job is a JSON line on its input: what to do, and the environment of the child. What the child says
is a JSON line on the output, and so is how it ended. So an import, 26 s of CPU on the machine with
a GPU, is paid for once, and a CUDA error, a crash or a hang costs the child that it was in.

    python tests/gpu/fork_server.py --direct '{"do": "cases", ...}'    # the same without a fork, for tools around it
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT / folder) for folder in (".", "tests", "tests/gpu", "examples/benchmarks")]
#: Exit status after a CUDA error, which spoils all that would follow in the process.
LOST_CONTEXT = 3


def main() -> int:
    """Serve until the input ends."""
    sys.path[:0] = PATHS
    os.environ.setdefault(
        "PYTORCH_NVML_BASED_CUDA_CHECK", "1"
    )  # that a GPU is there is found without touching it
    start = time.perf_counter()
    import gpu_jobs

    say({"ready": round(time.perf_counter() - start, 2), **gpu_jobs.imported()})
    jobs: dict[str, Callable[..., None]] = gpu_jobs.JOBS
    if sys.argv[1:2] == ["--direct"]:
        return done(jobs, json.loads(sys.argv[2]))
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            os._exit(done(jobs, job))
        _, status = os.waitpid(child, 0)
        say({"ended": os.waitstatus_to_exitcode(status)})
    return 0


def done(jobs: dict[str, Callable[..., None]], job: dict[str, Any]) -> int:
    """The exit status of a job."""
    os.environ.update(job.pop("env", {}))
    say({"pid": os.getpid()})
    try:
        jobs[job.pop("do")](say, **job)
    except Exception as error:
        say({"raised": "".join(traceback.format_exception(error))[-2000:]})
        return LOST_CONTEXT
    sys.stdout.flush()
    return 0


def say(answer: dict[str, Any]) -> None:
    """One line, whole, whatever else a library prints."""
    os.write(1, ("\n" + json.dumps(answer, default=str) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
