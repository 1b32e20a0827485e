"""Locks of folders: one process at a time, and none that was forked by it."""

import os
import signal
import sys
import time

import pytest
import torch

from graphattn.errors import OptionError
from graphattn.io import locks
from graphattn.io.locks import locked
from graphattn.study.records import held

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")


def forked(action):
    """The number of a child that does something and then waits to be killed."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
            os.write(told, b"1")
            time.sleep(60)
        finally:
            os._exit(1)
    os.close(told)
    assert os.read(ready, 1) == b"1"
    os.close(ready)
    return child


def kill(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_folder_is_held_against_other_processes_until_its_end(tmp_path):
    kept = []

    def hold():
        kept.append(locked(tmp_path, "mine"))
        kept[0].__enter__()

    child = forked(hold)
    with pytest.raises(OptionError, match="taken"), locked(tmp_path, "taken"):
        pass
    kill(child)
    with locked(tmp_path, "taken") as has_locks:
        assert has_locks


@pytest.mark.parametrize(
    "hold", [lambda folder: locked(folder, "taken"), held], ids=["training", "study"]
)
def test_a_child_that_outlives_its_parent_holds_nothing(tmp_path, hold):
    with hold(tmp_path):
        child = forked(lambda: None)
    try:
        with hold(tmp_path):
            assert len(locks._handles) == 1
    finally:
        kill(child)
    assert not locks._handles


def test_a_child_that_leaves_the_block_closes_no_file_of_its_own(tmp_path):
    with locked(tmp_path, "taken"):
        child = os.fork()
        if child == 0:
            mine = os.open(tmp_path, os.O_RDONLY)  # the number that the lock had
    if child == 0:
        os.fstat(mine)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_workers_of_a_loader_hold_nothing(tmp_path):
    with locked(tmp_path, "taken"):
        loader = iter(torch.utils.data.DataLoader(range(4), num_workers=1))
        next(loader)
    with locked(tmp_path, "taken"):
        next(loader)
