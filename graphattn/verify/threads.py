"""The number of torch's threads while something is verified."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[int]:
    """So many threads inside; yields how many there were, and brings them back.

    Thousands of runs on tensors of a few kilobytes take a tenth of the processor time with one: a second only waits.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield before
    finally:
        torch.set_num_threads(before)
