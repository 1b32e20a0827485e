"""Graphs that are gone leave nothing in the caches: on a GPU their memory would fill it, step by
step."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from weak_caches import CACHES, GRAPHS_MADE, kept

import graphattn
from graphattn.kernels.cuda import row_work

HERE = Path(__file__).parent
WEAK = re.compile(r"\bweakref\b|\bStorageWeakRef\b|\bWeakKeyDictionary\b|\bWeakValueDictionary\b")


@pytest.mark.slow
def test_graphs_that_are_gone_leave_no_entry_in_any_weak_keyed_cache():
    assert set(kept(torch.device("cpu")).values()) == {0}


def test_every_file_with_weak_references_is_in_the_table_of_caches():
    package = Path(graphattn.__file__).parent
    files = [
        path for path in package.rglob("*.py") if WEAK.search(path.read_text(encoding="utf-8"))
    ]
    assert {path.relative_to(package).as_posix() for path in files} == set(CACHES)


def test_a_schedule_ends_with_any_of_its_tensors():
    row_work._schedules.clear()
    ptr, order = torch.arange(12), torch.arange(11)
    row_work.schedule(ptr, order)
    row_work.schedule(ptr, order)
    assert len(row_work._live(row_work._schedules)) == 1
    row_work.schedule(ptr[1:], order[1:])
    assert len(row_work._live(row_work._schedules)) == 2
    del order
    assert len(row_work._live(row_work._schedules)) == 0


ON_THE_DEVICE = """
import no_device, torch
print("the device is built")
from weak_caches import kept
print(kept(torch.device("cuda", 0)))
"""


@pytest.mark.slow
def test_graphs_that_are_gone_leave_no_entry_on_the_device_that_is_not_there(tmp_path):
    paths = os.pathsep.join((str(HERE.parents[1]), str(HERE.parent), str(HERE)))
    env = {**os.environ, "NO_DEVICE": str(tmp_path), "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", ON_THE_DEVICE], capture_output=True, text=True, env=env
    )
    if "the device is built" not in done.stdout:
        pytest.skip(f"no compiler for torch's headers: {done.stderr[-300:]}")
    counts = {cache.__name__: 0 for caches in CACHES.values() for cache in caches}
    assert done.stdout.splitlines()[-1] == str(counts), done.stdout + done.stderr
    assert GRAPHS_MADE == 200
