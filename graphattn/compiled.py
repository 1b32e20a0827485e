"""Functions that Numba compiles, and their code on disk, which no change of the sources
outlives.
"""

import hashlib
import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache

_COMPILED = re.compile(r"^(from|import) .*\b(numba|llvmlite|compiled)\b", re.MULTILINE)


class KeptCode(FunctionCache):
    """Machine code of a function on disk, as long as no file with functions of its folder changes.

    Numba looks at the file of the function alone, and not at those of the functions that it calls.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = (
            self._impl.locator.get_source_stamp(),
            digest_of(Path(function.__code__.co_filename).parent),
        )
        self._cache_file = IndexDataCacheFile(self.cache_path, self._impl.filename_base, stamp)


class LostCode(NullCache):
    """Machine code of a function where no folder can be written to: the first compilation of a
    process warns.
    """

    def load_overload(self, sig: Any, target_context: Any) -> None:
        """None, as nothing is kept."""
        _warn_once()


@cache
def digest_of(folder: Path) -> str:
    """A hash of the files of a folder that hold functions for Numba."""
    sources = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    compiled_sources = [source for source in sources if _COMPILED.search(source.decode())]
    return hashlib.sha256(b"\0".join(compiled_sources)).hexdigest()


@cache
def _warn_once() -> None:
    warnings.warn(
        "no folder for compiled code can be written to: every process compiles its kernels anew, "
        "for a minute; "
        "set NUMBA_CACHE_DIR to a folder that can",
        RuntimeWarning,
        stacklevel=2,
    )


def compiled(function: Any = None, **options: Any) -> Any:
    """A decorator: the function is compiled at its first call, kept on disk, and runs without the
    GIL.

    Args:
        function: The function.
        options: Those of ``numba.njit``.
    """
    if function is None:
        return lambda decorated: compiled(decorated, **options)
    dispatcher = numba.njit(**{"nogil": True, **options})(function)
    if getattr(numba.config, "DISABLE_JIT", 0):
        return dispatcher
    try:
        dispatcher._cache = KeptCode(function)
    # a package, a home and a cache that cannot be written to, as in a container
    except RuntimeError:
        dispatcher._cache = LostCode()
    return dispatcher
