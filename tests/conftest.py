"""Lets every test import the modules that lie in tests/ itself:
``from graph_table import GRAPHS``.
"""

import os
import sys
from pathlib import Path

import pytest
import torch
from _pytest.doctest import DoctestModule

sys.path.insert(0, str(Path(__file__).parent))
# whatever this machine measured
os.environ["GRAPHATTN_CACHE"] = str(Path(__file__).parent / "no rates are kept here")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Tests have no doctests, and looking for some takes as long as importing them."""
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


@pytest.fixture(autouse=True)
def _same_torch():
    """What all of torch's calls follow is left as it was: other threads sum in another order."""
    before = _of_torch()
    yield
    assert _of_torch() == before


def _of_torch():
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


@pytest.fixture
def fresh_compiler():
    """What torch.compile learned in other tests is forgotten. torch's own flex_attention compiles
    itself, too, and fails where sizes and scales changed before."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
