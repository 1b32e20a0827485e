"""Signals that end a training: SIGINT, SIGTERM and SIGUSR1, after a step whose state is saved."""

import os
import select
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import Interrupted

#: Seconds from a signal to an end without a new state; torchrun kills 30 s after its own.
GRACE = 20.0
#: Seconds in which a signal counts once: a terminal and torchrun, or SLURM and torchrun, both send.
_TOGETHER = 1.0
_DONE = b"\0"  # no signal has this number
_NAMES = ("SIGINT", "SIGTERM", "SIGUSR1")
_FREE = (signal.SIG_DFL, signal.default_int_handler)  # the handlers of a plain process


class Signals:
    """The signals sent to a training: the first ends it after a step, the next one at once.

    Attributes:
        number: Number of the first signal; 0 before.
        stepping: True while a signal waits for the end of a step; else it raises at once.
    """

    def __init__(self, run: Path | None = None) -> None:
        self.number = 0
        self.stepping = False
        self.command = "resume the run"
        if run is not None:
            self.command = f"graphattn train --resume {shlex.quote(str(run))}"

    @contextmanager
    def steps(self) -> Iterator[None]:
        """Let signals wait for the end of a step inside."""
        self.stepping = True
        try:
            yield
        finally:
            self.stepping = False
        if self.number:
            raise self.error("after its last step")

    def error(self, where: str) -> BaseException:
        """The end of this process: a KeyboardInterrupt of SIGINT, else with status 128 and more."""
        number = self.number or signal.SIGTERM  # another process was sent it
        words = self._words(number, where)
        if number == signal.SIGINT:
            return KeyboardInterrupt(words)
        return Interrupted(number, words)

    def _words(self, number: int, where: str) -> str:
        return f"interrupted by {signal.Signals(number).name} {where}; go on with: {self.command}"

    def handle(self, number: int, frame: object) -> None:
        """Python's handler of the signals."""
        if self.number:
            return  # the thread counts them
        self.number = number
        if not self.stepping:
            raise self.error("between steps")

    def watch(self, end: socket.socket, handled: list[int]) -> None:
        """End the process at a later signal, or where no step ends; a thread's, as a step may hang.

        Args:
            end: Gives a byte for each signal, even while this process waits in a collective.
            handled: Numbers of the signals to act on.
        """
        first = 0.0
        with end:
            while True:
                left = None
                if first:
                    left = max(0.0, first + GRACE - time.monotonic())
                if not select.select([end], [], [], left)[0]:
                    self._exit(f"without a step's end in {GRACE:g} s, so its last state stands")
                number = end.recv(1)
                if number == _DONE:
                    return
                if number[0] not in handled:
                    continue
                now = time.monotonic()
                if not first:
                    first = now
                elif now - first > _TOGETHER:
                    self._exit("twice, so its last state stands")

    def _exit(self, where: str) -> None:
        number = self.number or signal.SIGTERM
        if sys.stderr is not None:
            print(self._words(number, where), file=sys.stderr, flush=True)
        os._exit(128 + number)


@contextmanager
def signals(run: Path) -> Iterator[Signals]:
    """The signals of a training in this folder, of those without another handler."""
    state = Signals(run)
    numbers = [int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) in _FREE]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    if not numbers:
        yield state
        return
    start, end = socket.socketpair()
    start.setblocking(False)
    before = {number: signal.signal(number, state.handle) for number in numbers}
    wakeup = signal.set_wakeup_fd(start.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=state.watch, args=(end, numbers), daemon=True).start()
    try:
        yield state
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        start.send(_DONE)  # workers hold copies of the socket, so that closing it has no effect
        start.close()


def leave_to_parent() -> None:
    """Let a worker outlive signals to all processes of a job: its parent ends it after a step."""
    if not hasattr(signal, "sigwaitinfo"):  # Windows, macOS
        return
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    threading.Thread(target=_end_by_parent, daemon=True).start()


def _end_by_parent() -> None:
    """End a worker at SIGTERM of its parent, which joins it then, and of no other process."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
