"""Trials that do what no trial should, when their process reads them."""

import contextlib
import os
import signal


def _write_everywhere(text):
    for handle in range(3, 20):  # the pipe of the answers is among them
        with contextlib.suppress(OSError):
            os.write(handle, text)


class WordlessError(Exception):
    def __str__(self):
        raise RuntimeError


def _raise(error):
    raise error


#: What is done, and the words of the failed trial that is left of it.
ACTS = {
    "killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), "status -9 (out of memory?)"),
    "wordless": (lambda: _raise(WordlessError()), "WordlessError (hostile_trials.py"),
    "wordy": (lambda: _raise(ValueError("x" * (1 << 22))), "ValueError: xxx"),
    "printing": (lambda: os.write(1, os.urandom(1 << 20)), "AttributeError"),  # read, and no trial
    "closing": (lambda: os.closerange(3, 256), "status 1"),
    "garbage": (lambda: _write_everywhere(b"\xff{\n"), "its process gave no answer"),
    "nested": (lambda: _write_everywhere(b"[" * 60_000 + b"\n"), "its process gave no answer"),
}


def act(name):
    ACTS[name][0]()


class Trial:
    """In the place of a trial and of its comparison."""

    comparison = "c"

    def __init__(self, name):
        self.name = name

    def graphs_for(self, trial):
        return None

    def __reduce__(self):
        return act, (self.name,)


class Comparison:
    """Of such trials."""

    def graphs_for(self, trial):
        return None
