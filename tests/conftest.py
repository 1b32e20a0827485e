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


@pytest.fixture
def fresh_compiler():
    """What torch.compile learned in other tests is forgotten. torch's own flex_attention compiles
    itself, too, and fails where sizes and scales changed before."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
