"""Workers of a benchmark, forked from a process that has imported torch, which takes each of them seconds."""

import gc
import multiprocessing
import os

from graphattn.bench import clock
from graphattn.bench.worker import serve

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torch_geometric.nn", "numba"])


class Worker:
    """As :class:`subprocess.Popen`, as far as a crew needs it."""

    def __init__(self, link, threads, device):
        self._process = CONTEXT.Process(target=_serve, args=(link, threads, device), daemon=True)
        self._process.start()
        self.pid = self._process.pid

    def wait(self):
        self._process.join()
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode


def start(crew, link):
    """In the place of ``Crew.worker``."""
    return Worker(link, crew.threads, crew.device)


def _serve(link, threads, device):
    os.setsid()
    for number in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    clock.STREAM_NUMBERS = 1 << 20
    gc.freeze()  # a worker collects before each of its measurements; not all of torch again
    serve(link.fileno(), threads, device)
