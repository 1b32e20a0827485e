"""One thread: the tensors are tiny, and two workers share two cores."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _small_graphs_have_a_dense_core(dense_core):
    """So that "parts" has two parts to add up."""
