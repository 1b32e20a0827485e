"""Functions that Numba compiles, and their code on disk: once for a user, whatever copy of the
package asks, and not longer than the sources are as they were.
"""

import hashlib
import os
import pickle
import re
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, _CacheLocator
from numba.misc.appdirs import AppDirs

_COMPILED = re.compile(r"^(from|import) .*\b(numba|compiled)\b", re.MULTILINE)


@cache
def folder() -> Path | None:
    """Where code is kept: NUMBA_CACHE_DIR, the user's caches or the package; None if none of them
    can be written to.
    """
    home = AppDirs("graphattn", appauthor=False).user_cache_dir
    beside = Path(__file__).parent / "__pycache__"
    for place in (getattr(numba.config, "CACHE_DIR", ""), home, beside):
        if not place:
            continue
        path = Path(place, "compiled")
        try:
            path.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=path).close()
        except OSError:
            continue
        return path
    return None


@cache
def digest_of(sources: Path) -> str:
    """A hash of the files of a folder that hold functions for Numba, and of the compilers."""
    texts = [path.read_bytes() for path in sorted(sources.glob("*.py"))]
    compiled_texts = [text for text in texts if _COMPILED.search(text.decode())]
    compilers = f"{numba.__version__} {llvmlite.__version__}".encode()
    return hashlib.sha256(b"\0".join([compilers, *compiled_texts])).hexdigest()


class _Locator(_CacheLocator):
    """The user's folder, for a function whose sources may lie anywhere."""

    def __init__(self, function: Callable[..., Any], path: str) -> None:
        self._py_file = path
        self._line = function.__code__.co_firstlineno
        self._stamp = digest_of(Path(path).parent)

    def get_cache_path(self) -> str:
        """The folder."""
        return os.fspath(folder() or "")

    def get_source_stamp(self) -> str:
        """A hash of all that code depends on but the CPU, which is in the key of a signature."""
        return self._stamp

    def get_disambiguator(self) -> str:
        """What a file's name ends in."""
        return f"{self._line}-{self._stamp[:16]}"

    @classmethod
    def from_function(cls, function: Any, path: str) -> "_Locator | None":
        """None where there is no folder."""
        if folder() is None:
            return None
        return cls(function, path)


class _Impl(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 (as Numba has it)


class KeptCode(FunctionCache):
    """Machine code of a function on disk, a file for each signature, so that no two processes write
    one index; the last to write a file wins.

    Numba looks at the file of the function alone, and not at those of the functions that it calls.
    """

    _impl_class = _Impl

    def _file_of(self, signature: Any, codegen: Any) -> str:
        key = repr(self._index_key(signature, codegen)).encode()
        return f"{self._impl.filename_base}.{hashlib.sha256(key).hexdigest()[:24]}.nbc"

    def _load_overload(self, signature: Any, target_context: Any) -> Any:
        name = self._file_of(signature, target_context.codegen())
        try:
            data = self._cache_file._load_data(name)
        except (OSError, EOFError, pickle.UnpicklingError):
            return None
        return self._impl.rebuild(target_context, data)

    def _save_overload(self, signature: Any, data: Any) -> None:
        if self._impl.check_cachable(data):
            name = self._file_of(signature, data.codegen)
            self._cache_file._save_data(name, self._impl.reduce(data))


class LostCode(NullCache):
    """Machine code of a function where no folder can be written to: the first compilation of a
    process warns.
    """

    def load_overload(self, sig: Any, target_context: Any) -> None:
        """None, as nothing is kept."""
        _warn_once()


@cache
def _warn_once() -> None:
    warnings.warn(
        "no folder for compiled code can be written to: every process compiles curvature, farthest "
        "points and pictures anew, for seconds; set NUMBA_CACHE_DIR to a folder that can",
        RuntimeWarning,
        stacklevel=2,
    )


def compiled(function: Callable[..., Any]) -> Any:
    """A decorator: the function is compiled at its first call, kept on disk, and runs without the
    GIL.
    """
    dispatcher: Any = numba.njit(nogil=True)(function)
    if getattr(numba.config, "DISABLE_JIT", 0):
        return dispatcher
    if folder() is None:  # a package, a home and a cache that cannot be written to
        dispatcher._cache = LostCode()
    else:
        dispatcher._cache = KeptCode(function)
    return dispatcher
