"""Code that Numba compiles: kept on disk, no longer than its sources are as they were."""

import pickle
import sys
import warnings
from importlib import import_module, invalidate_caches
from types import SimpleNamespace

import pytest

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
def kept(tmp_path, monkeypatch):
    """A folder of a test's own for compiled code."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "kept"))
    compiled.folder.cache_clear()
    yield tmp_path / "kept" / "compiled"
    compiled.folder.cache_clear()


@pytest.fixture
def scaled(tmp_path, monkeypatch, kept):
    """The function of a package of two files in a new process, so to say: its modules are imported
    anew.
    """
    # its stamps are whole seconds, and of one length
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def imported(factor, copy="first"):
        folder = tmp_path / copy / "kernels_of_a_test"
        folder.mkdir(exist_ok=True, parents=True)
        folder.joinpath("outer.py").write_text(OUTER.format(name=folder.name), encoding="utf-8")
        folder.joinpath("inner.py").write_text(INNER.format(factor=factor), encoding="utf-8")
        for name in [name for name in sys.modules if name.startswith(folder.name)]:
            del sys.modules[name]
        invalidate_caches()
        compiled.digest_of.cache_clear()
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(folder.parent))
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


def test_another_copy_of_the_package_finds_the_code(scaled, kept):
    assert scaled(3)(7) == 21
    other = scaled(3, "second")
    assert other(7) == 21
    assert other.stats.cache_hits
    assert other(7.5) == 22.5
    assert len(list(kept.glob("*.nbc"))) == 2  # a file for each signature
    assert not list(kept.glob("*.nbi"))


def test_a_damaged_file_is_compiled_again(scaled, kept):
    scaled(3)(7)
    for path in kept.iterdir():
        path.write_bytes(pickle.dumps(None)[:-1])
    again = scaled(3)
    assert again(7) == 21
    assert again.stats.cache_misses


def test_a_file_without_functions_for_numba_does_not_count(tmp_path):
    for name, text in (("a.py", "import numba\n"), ("b.py", "import math\n")):
        tmp_path.joinpath(name).write_text(text, encoding="utf-8")
    before = compiled.digest_of(tmp_path)
    tmp_path.joinpath("b.py").write_text("import cmath\n", encoding="utf-8")
    assert compiled.digest_of.__wrapped__(tmp_path) == before
    tmp_path.joinpath("a.py").write_text("import numba as nb\n", encoding="utf-8")
    assert compiled.digest_of.__wrapped__(tmp_path) != before


def test_without_a_folder_that_can_be_written_to_a_process_warns_once(monkeypatch):
    monkeypatch.setattr(compiled, "folder", lambda: None)
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


def test_code_lies_beside_the_package_where_a_home_cannot_be_written_to(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert "__pycache__" in str(compiled.folder.__wrapped__())
