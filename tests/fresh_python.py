"""Python processes that have not seen graphattn: forked from one that has imported torch, which
takes seconds.

The parent imports torch and PyG, starts no thread, and waits; each :func:`run` is a child of its
own.
"""

import atexit
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

ROOT = Path(__file__).parent.parent
_parents = {}


def run(code=None, *words, file=None, module=None, env=None, cwd=ROOT, expect=None):
    """Run code, a file or a module with ``words`` as its arguments; returns a
    :class:`subprocess.CompletedProcess`.

    ``env`` is put over this process's own; what torch reads when it is imported cannot be changed
    so. ``expect`` is the exit status that is asserted.
    """
    parent = _parents.get(os.getpid())
    if parent is None or parent.poll() is not None:
        parent = _parents[os.getpid()] = subprocess.Popen(
            [sys.executable, "-u", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(parent.kill)
    with tempfile.TemporaryDirectory() as folder:
        what = {"code": code, "file": None if file is None else str(file), "module": module}
        task = {
            **what,
            "words": words,
            "env": env or {},
            "cwd": str(cwd),
            "folder": folder,
            "path": sys.path,
        }
        parent.stdin.write(json.dumps(task) + "\n")
        parent.stdin.flush()
        status = int(parent.stdout.readline())
        out, err = (Path(folder, name).read_text("utf-8") for name in ("out", "err"))
    assert expect is None or status == expect, out + err
    return subprocess.CompletedProcess([code or file or module, *words], status, out, err)


def _serve():
    import torch
    import torch_geometric.nn  # noqa: F401

    torch.arange(2)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _child(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _child(task):
    """Never returns."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(os.path.join(task["folder"], name), os.O_WRONLY | os.O_CREAT), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, encoding="utf-8") for number in (1, 2))
    os.chdir(task["cwd"])
    os.environ.update(task["env"])
    sys.path[:], sys.argv = task["path"], [task["file"] or "-c", *task["words"]]
    status = 0
    try:
        if task["code"] is not None:
            scope = sys.modules["__main__"].__dict__
            exec(compile(task["code"], "<string>", "exec"), scope)
        elif task["file"] is not None:
            sys.path.insert(
                0, str(Path(task["file"]).parent if Path(task["file"]).is_file() else task["file"])
            )
            runpy.run_path(task["file"], run_name="__main__")
        else:
            runpy.run_module(task["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    try:
        import threading

        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    _serve()
