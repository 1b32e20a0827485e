"""What every test of attention runs with."""

import pytest


@pytest.fixture(autouse=True)
def _small_graphs_have_a_dense_core(dense_core):
    """So that "parts" has two parts to add up."""
