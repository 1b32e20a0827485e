"""The workers, as their parent sees them: called one at a time, ended when they take too long."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

START = 300.0  # seconds within which a process must be able to answer at all


class LostError(Exception):
    """A peer that did not answer, or refused; the message is a reason for the report."""


class Crew:
    """A process for each peer, started on first use, restarted after it was lost."""

    def __init__(self, device: str, threads: int | None) -> None:
        self.device, self.threads = device, threads
        self._running: dict[str, tuple[subprocess.Popen[bytes], Connection]] = {}

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: Any) -> None:
        for name in list(self._running):
            self.end(name)

    def start(self, name: str) -> None:
        """Start a peer's process, if there is none; it loads its libraries while others run."""
        if name in self._running:
            return
        near, far = Pipe()
        self._running[name] = self.worker(far), near
        far.close()

    def worker(self, link: Connection) -> "subprocess.Popen[bytes]":
        """A process that answers on ``link``."""
        code = (
            f"import sys; sys.path[:] = {sys.path!r}\n"
            f"from graphattn.bench.worker import serve\nserve({link.fileno()}, {self.threads!r}, {self.device!r})"
        )
        quiet = None if os.environ.get("GRAPHATTN_DEBUG", "0") not in ("", "0") else subprocess.DEVNULL
        return subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=(link.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=quiet,
            start_new_session=True,  # with what it starts itself, so that all of it can be ended
        )

    def runs(self, name: str) -> bool:
        """Whether a peer has a process."""
        return name in self._running

    def end(self, name: str) -> None:
        """End a peer's process and its children."""
        process, link = self._running.pop(name)
        link.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill(self) -> None:
        """End all processes at once; whoever waits for one is told that it is lost."""
        for process, _ in list(self._running.values()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def ask(self, name: str, command: str, *arguments: Any, seconds: float = START) -> Any:
        """The answer of a peer.

        Raises:
            LostError: If it failed, died, or took more than ``seconds``; in the last two cases it is ended.
        """
        self.start(name)
        process, link = self._running[name]
        try:
            link.send_bytes(pickle.dumps((command, arguments)))  # send() would share tensors, which needs a key
            if not link.poll(seconds):
                self.end(name)
                raise LostError(f"no answer within {seconds:,.0f} s ({command}); ended")
            kind, answer = pickle.loads(link.recv_bytes())
        except (EOFError, BrokenPipeError, ConnectionResetError):
            code = process.wait()
            self.end(name)
            how = f"signal {-code}" if code < 0 else f"status {code}"
            raise LostError(f"its process ended with {how}{' (out of memory?)' if code == -9 else ''}") from None
        except KeyboardInterrupt:
            self.end(name)
            raise
        if kind != "done":
            raise LostError(answer)
        return answer
