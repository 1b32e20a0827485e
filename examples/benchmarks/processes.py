"""A process for each contender: its memory is its own, and one that hangs or dies takes no other
along.
"""

import contextlib
import ctypes
import gc
import os
import pickle
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch

from graphattn.bench.machine import limit_memory
from graphattn.bench.peers import AttentionCall, Peer
from graphattn.bench.timing import Contender

SECONDS = 600.0  # for one answer, which may compile
#: What makes each library take instructions of a CPU without AVX-512.
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}


def hold_to_avx2() -> None:
    """This process, and those that it starts, do without AVX-512, where the CPU has it.

    Code that a C++ compiler made from loops without intrinsics may still contain it.
    """
    from graphattn.kernels.llvm.native import Target

    os.environ.update(AVX2)
    host = Target.of_host()
    kept = [word for word in host.features.split(",") if not word.startswith("+avx512")]
    held = host._replace(cpu="x86-64-v3", features=",".join(kept))
    Target.of_host = classmethod(lambda cls: held)  # type: ignore[method-assign,assignment]


class Remote(Contender):
    """A contender in a process of its own, which starts at once; ``peak_bytes`` is of its first
    calls, by mode.
    """

    def __init__(self, peer: Peer, problem: AttentionCall, threads: int) -> None:
        super().__init__(peer, problem, threads)
        self.peak_bytes: dict[str, int] = {}
        self.link, far = Pipe()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}\nfrom processes import "
            f"serve\nserve({far.fileno()})"
        )
        quiet = None if os.environ.get("GRAPHATTN_DEBUG") else subprocess.DEVNULL
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=(far.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=quiet,
            start_new_session=True,  # with the compilers that it starts
        )
        far.close()
        self.link.send_bytes(pickle.dumps((peer, problem, threads)))  # send() would share tensors

    def answer(self) -> dict[str, list[torch.Tensor]]:
        return self._ask("answer")

    def first(self, mode: str) -> float:
        ms, peak = self._ask("first", mode)
        if peak is not None:
            self.peak_bytes[mode] = peak
        return ms

    def turn(self, mode: str) -> float:
        return self._ask("turn", mode)

    def _ask(self, *command: str) -> Any:
        try:
            self.link.send_bytes(pickle.dumps(command))
            if not self.link.poll(SECONDS):
                self.end()
                raise TimeoutError(f"no answer within {SECONDS:g} s ({command[0]}); ended")
            ok, answer = pickle.loads(self.link.recv_bytes())
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            code = self.end()
            raise RuntimeError(
                f"its process ended with {code}{' (out of memory?)' if code == -9 else ''}"
            ) from None
        if not ok:
            raise RuntimeError(answer)
        return answer

    def end(self) -> int:
        """End the process and what it started; its exit status."""
        self.link.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()


def serve(descriptor: int) -> None:
    """The process: commands of the parent, until it goes away."""
    link = Connection(descriptor)
    if all(os.environ.get(name) == value for name, value in AVX2.items()):
        hold_to_avx2()
    contender = Contender(*pickle.loads(link.recv_bytes()))
    torch.set_num_threads(contender.threads)
    device = contender.problem.device
    limit_memory(device)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            name, *modes = pickle.loads(link.recv_bytes())
            try:
                before = _held(device) if name == "first" else None
                answer = getattr(contender, name)(*modes)
                if name == "first":
                    answer = answer, None if before is None else _peak(device) - before
                message = True, answer
            except Exception as error:  # of a library that is measured
                message = (
                    False,
                    f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}",
                )
            link.send_bytes(pickle.dumps(message))


def _held(device: str) -> int | None:
    """Bytes now, after which the peak counts: of the process on Linux, of the allocator on CUDA."""
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    try:
        ctypes.CDLL(None).malloc_trim(0)  # freed memory goes back, so that taking it again is seen
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
    except (OSError, AttributeError):
        return None
    return _status("VmRSS")


def _peak(device: str) -> int:
    return (
        torch.cuda.max_memory_allocated(device)
        if torch.device(device).type == "cuda"
        else _status("VmHWM")
    )


def _status(name: str) -> int:
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))
