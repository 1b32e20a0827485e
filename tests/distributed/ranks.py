"""Processes of one group on gloo, forked from one that has imported torch; each file's printed
verdicts are judged.

``launch("forward.py", 3)`` runs the file in three processes that have joined a group, over the
loopback. gloo aborts now and then when a process exits, so that a test judges what was printed and
not the exit status.
"""

import datetime
import json
import os
import runpy
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).parent


def launch(files, processes, *words, **options):
    """The lines that each process printed, of one file or of several one after another."""
    return launches([(files, processes, *words)], **options)[0]


def launches(runs, first="import graphattn.training", timeout=240, group_timeout=60):
    """The lines of several launches, one after another, forked from a process that has run the code
    ``first``.
    """
    import fresh_python

    calls = [([str(HERE / file) for file in files.split()], *run) for files, *run in runs]
    code = f"import sys; sys.path.insert(0, {str(HERE)!r}); import ranks\n{first}\n"
    code += (
        f"for files, processes, *words in {calls!r}: ranks.run(files, processes, words, "
        f"{timeout}, {group_timeout})"
    )
    result = fresh_python.run(code, env={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})
    lines = result.stdout.splitlines()
    assert len(lines) >= len(runs), result.stderr
    return [json.loads(line) for line in lines[-len(runs) :]]


def verdicts(files, processes, *words, **options):
    """The verdicts, by name, that the first process printed as lines of JSON."""
    lines = launch(files, processes, *words, **options)
    told = [json.loads(line) for line in lines[0] if line.startswith("{")]
    assert told.count({"done": True}) == len(files.split()), "\n".join(map(str, lines))
    return {row["name"]: row for row in told if "name" in row}


def run(files, processes, words, timeout, group_timeout):
    """Fork the processes and print what they printed; those that outlast the timeout are ended."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        children = [
            _fork(folder, rank, files, processes, words, group_timeout) for rank in range(processes)
        ]
        deadline = time.monotonic() + timeout
        for rank, child in enumerate(children):
            while os.waitpid(child, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline:
                    with Path(folder, f"out{rank}").open("a") as out:
                        out.write("outlasted the timeout\n")
                    os.kill(child, 9)
                    os.waitpid(child, 0)
                    break
                time.sleep(0.02)
        print(
            json.dumps(
                [
                    Path(folder, f"out{rank}").read_text("utf-8").splitlines()
                    for rank in range(processes)
                ]
            )
        )


def _fork(folder, rank, files, processes, words, group_timeout):
    child = os.fork()
    if child:
        return child
    try:
        sys.stdout.flush()
        out = os.open(os.path.join(folder, f"out{rank}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1), os.dup2(out, 2)
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        limit = datetime.timedelta(seconds=group_timeout)
        where = {
            "init_method": f"file://{folder}/rendezvous",
            "rank": rank,
            "world_size": processes,
        }
        dist.init_process_group("gloo", timeout=limit, **where)
        for file in files:
            sys.argv = [file, *words]
            runpy.run_path(file, run_name="__main__")
        dist.barrier()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(0)
    return 0
