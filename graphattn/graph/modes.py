"""What is derived from a graph is made once and kept: outside of the modes that surround whoever asks first."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

T = TypeVar("T")


@torch.compiler.disable
def made_outside(make: Callable[[], T]) -> T:
    """``make()`` without torch.compile, inference mode, torch.func, default device, fake tensors: real ones for all."""
    with (
        torch.inference_mode(False),
        torch._C._DisableFuncTorch(),
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
    ):
        return make()
