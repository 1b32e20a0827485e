"""What the caller's surroundings ask of a kernel."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad


def plain_operations_only() -> bool:
    """Whether torch.func or forward-mode derivatives are at work, which see no inside of a kernel of ours."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """Autocast off; entering it costs as much as a small product, so it is entered only where it is on."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def can_read_values(x: Tensor) -> bool:
    """Whether a check may read the numbers in ``x``: not under torch.compile or torch.func, nor a fake one."""
    return not (torch.compiler.is_compiling() or plain_operations_only() or isinstance(x, FakeTensor))
