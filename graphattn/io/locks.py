"""Locks of folders that one process at a time writes to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import OptionError

_handles: set[int] = set()


def _close_in_child() -> None:
    """Close the locks of a forked process, which may outlive its parent by seconds."""
    for handle in _handles:
        os.close(handle)
    _handles.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[bool]:
    """Lock a folder or a file for this process, where the file system has locks.

    Args:
        path: What is locked.
        refusal: The error's words.
    Yields:
        False on Windows, which has no such locks.
    Raises:
        OptionError: If another process holds it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield False
        return
    handle = os.open(path, os.O_RDONLY)
    _handles.add(handle)
    try:
        with suppress(OSError):  # of a file system without locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OptionError(refusal) from None
        yield True
    finally:
        if handle in _handles:  # not in a process that was forked
            _handles.remove(handle)
            os.close(handle)
