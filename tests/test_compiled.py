"""Code that Numba compiles: kept on disk, no longer than its sources are as they were."""

import sys
import warnings
from importlib import import_module, invalidate_caches
from types import SimpleNamespace

import pytest
from numba.core import caching

from graphattn import compiled

OUTER = """
from graphattn.compiled import compiled
from {name}.inner import factor

@compiled
def scaled(x):
    return factor() * x
"""
INNER = """
from numba import njit

@njit
def factor():
    return {factor}
"""


@pytest.fixture
def scaled(tmp_path, monkeypatch):
    """The function of a package of two files in a new process, so to say: its modules are imported
    anew.
    """
    monkeypatch.syspath_prepend(str(tmp_path))
    # its stamps are whole seconds, and of one length
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder = tmp_path / f"kernels_{tmp_path.name}"
    folder.mkdir()
    folder.joinpath("outer.py").write_text(OUTER.format(name=folder.name))

    def imported(factor):
        folder.joinpath("inner.py").write_text(INNER.format(factor=factor))
        for name in [name for name in sys.modules if name.startswith(folder.name)]:
            del sys.modules[name]
        invalidate_caches()
        compiled.digest_of.cache_clear()
        return import_module(f"{folder.name}.outer").scaled

    yield imported
    compiled.digest_of.cache_clear()


def test_code_on_disk_does_not_outlive_a_change_of_what_it_calls(scaled):
    first = scaled(3)
    assert first(7) == 21
    assert first.stats.cache_misses
    second = scaled(3)
    assert second(7) == 21
    assert second.stats.cache_hits
    changed = scaled(5)
    assert changed(7) == 35
    assert changed.stats.cache_misses


def test_every_kernel_is_kept_under_the_sources_of_its_folder():
    from graphattn.kernels import additive_numba, edges_numba

    kept = [
        f
        for module in (additive_numba, edges_numba)
        for f in vars(module).values()
        if hasattr(f, "_cache")
    ]
    stamps = {
        f._cache._cache_file._source_stamp[1]
        for f in kept
        if isinstance(f._cache, compiled.KeptCode)
    }
    assert len(stamps) == 1


def test_a_file_without_functions_for_numba_does_not_count(tmp_path):
    for name, text in (("a.py", "import numba\n"), ("b.py", "import math\n")):
        tmp_path.joinpath(name).write_text(text)
    before = compiled.digest_of(tmp_path)
    tmp_path.joinpath("b.py").write_text("import cmath\n")
    assert compiled.digest_of.__wrapped__(tmp_path) == before
    tmp_path.joinpath("a.py").write_text("import numba as nb\n")
    assert compiled.digest_of.__wrapped__(tmp_path) != before


def test_without_a_folder_that_can_be_written_to_a_process_warns_once(monkeypatch):
    """Numba refuses to cache where a package and a home cannot be written to."""
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    compiled._warn_once.cache_clear()
    functions = [compiled.compiled(lambda x, n=n: x + n) for n in (2, 3)]
    assert functions[0].stats.cache_path is None
    with pytest.warns(RuntimeWarning, match="set NUMBA_CACHE_DIR to a folder") as said:
        assert functions[0](5) == 7
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert functions[1](5) == 8
        assert functions[0](5.0) == 7.0
    compiled._warn_once.cache_clear()


def test_a_compiler_that_is_switched_off_leaves_python(monkeypatch):
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    plain = compiled.compiled(lambda x: SimpleNamespace(x=x))
    assert plain(2).x == 2
