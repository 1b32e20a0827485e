"""What is derived from a graph is made once and kept: outside of the modes that surround whoever asks first."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def outside_of_modes() -> Iterator[None]:
    """No inference mode, torch.func, default device, fake tensors or counting of operations: real tensors for all."""
    with (
        torch.inference_mode(False),
        torch._C._DisableFuncTorch(),
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
    ):
        yield
