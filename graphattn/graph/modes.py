"""Construction outside of torch's modes, since graphs and what is derived from them outlive the mode of a caller."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

T = TypeVar("T")
Class = TypeVar("Class", bound=type)


def not_compiled(made: Class) -> Class:
    """A class whose objects torch.compile does not make itself: it leaves its program for that, and comes back."""
    why = "a graph is a constant of a compiled program: make it outside and hand it in, or compile without fullgraph"
    made.__init__ = torch.compiler.disable(made.__init__, reason=why)  # type: ignore[misc]
    return made


@torch.compiler.disable
def without_modes(make: Callable[[], T]) -> T:
    """``make()`` without torch.compile, inference mode, torch.func, default device, fake tensors: real ones for all."""
    with (
        torch.inference_mode(False),
        torch._C._DisableFuncTorch(),
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
    ):
        return make()
