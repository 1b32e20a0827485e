"""Loops that Numba compiles, and where it keeps them."""

from typing import Any

import numba
from numba.core.caching import FunctionCache


def has_folder() -> bool:
    """True if compiled code has a folder; a container may have none that can be written to."""
    try:
        FunctionCache(has_folder)
    except RuntimeError:
        return False
    return True


def compiled(function: Any) -> Any:
    """A decorator: the function is compiled at its first call, kept on disk, and runs without the GIL."""
    return numba.njit(cache=has_folder(), nogil=True)(function)
