"""Modes of the caller that a kernel must respect."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..graph.modes import plain_operations_only


def are_batched(*grads: Tensor | None) -> bool:
    """True under ``torch.func.vmap`` or ``is_grads_batched=True``: gradients of several outputs."""
    return torch._C._are_functorch_transforms_active() or any(
        grad is not None and torch._C._functorch.is_legacy_batchedtensor(grad) for grad in grads
    )


def on_gpu(operator: Any, module: str, function: str) -> Callable[..., Any]:
    """Run ``operator`` on CUDA by a function of this package, imported at the first call."""

    def run(*arguments: Any) -> Any:
        return getattr(import_module(f"graphattn.kernels.{module}"), function)(*arguments)

    operator.register_kernel("cuda")(run)
    return run


def is_transformed() -> bool:
    """True in code that torch.compile, torch.func or forward-mode derivatives transform."""
    return torch.compiler.is_compiling() or plain_operations_only()


def can_read_values(x: Tensor) -> bool:
    """True if a check may read the values of ``x``.

    Not under torch.compile or torch.func, nor of a fake tensor.
    """
    return not (
        torch.compiler.is_compiling() or plain_operations_only() or isinstance(x, FakeTensor)
    )


def nothing_watches(*tensors: Tensor | None) -> bool:
    """True if an operator may bypass torch's dispatcher, which takes as long as a small call.

    Not if it is observed: under torch.compile, export, tracing, a profiler or a mode, or with
    subclasses of tensors.
    """
    return (
        not torch.compiler.is_compiling()
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._get_tracing_state() is None
        and not torch._C._autograd._profiler_enabled()
        and all(x is None or type(x) in (Tensor, torch.nn.Parameter) for x in tensors)
    )
