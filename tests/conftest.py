"""Lets every test import the modules that lie in tests/ itself: ``from graph_table import GRAPHS``."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
os.environ["GRAPHATTN_CACHE"] = str(Path(__file__).parent / "no rates are kept here")  # whatever this machine measured


@pytest.fixture
def one_thread():
    """For many small tensors: a second thread only waits, and at length when the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def dense_core(monkeypatch):
    """Edges are said to be dear, so that even on small graphs tiles take up what a few rows have in common."""
    monkeypatch.setattr("graphattn.plans.parts.EDGE", 40)
