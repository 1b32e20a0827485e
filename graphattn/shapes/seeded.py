"""Seeded random numbers of torch, NumPy and Python, with the state before restored after."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Draw from ``seed`` inside, unless it is ``None``; PyG's transforms draw from all three."""
    if seed is None:
        yield
        return
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002 (PyG draws from it)
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])
