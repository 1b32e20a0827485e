"""Calls of a module from the same random state each time; what it holds is put back afterwards."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import GraphAttnError, ShapeError


@contextmanager
def left_as_it_was(module: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Puts back torch's random state, and the modes and buffers of the modules."""
    parts = [part for known in _modules(module) for part in known.modules()]
    modes = [part.training for part in parts]
    buffers = [dict(part._buffers) for part in parts]
    copies = [(buffer, buffer.clone()) for some in buffers for buffer in some.values() if buffer is not None]
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        for part, mode, before in zip(parts, modes, buffers, strict=True):
            part.training = mode
            part._buffers.update(before)
        for buffer, copy in copies:
            if not same(buffer, copy).all():
                buffer.copy_(copy)


def _modules(function: Any) -> list[torch.nn.Module]:
    """The modules that a function is, is bound to, or refers to by name."""
    function = inspect.unwrap(function)
    inside = [function, getattr(function, "__self__", None)]
    if isinstance(function, partial):
        return [*_modules(function.func), *(one for part in function.args for one in _modules(part))]
    if inspect.isfunction(function):
        seen = inspect.getclosurevars(function)
        inside += [*seen.nonlocals.values(), *seen.globals.values()]
    return [one for one in inside if isinstance(one, torch.nn.Module)]


class SeededModule:
    """Calls a module from the same random state each time."""

    def __init__(self, module: Callable[[Tensor], Tensor], seed: int) -> None:
        self.module, self.seed = module, seed

    def __call__(self, x: Tensor, draw: int) -> Tensor:
        torch.manual_seed(self.seed + draw)
        output = self.module(x)
        if not isinstance(output, Tensor) or output.ndim < 2:
            kind = f"shape {list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise ShapeError(f"module must give a tensor (..., T, C), got {kind}; wrap it: lambda x: module(x)[0]")
        return output

    def check(self, x: Tensor, expected: Tensor) -> None:
        """Raise a GraphAttnError unless the answer to the same ``x`` is the same."""
        again = self(x, 0)
        if again.shape != expected.shape or not same(again, expected).all():
            raise GraphAttnError(
                "module gives two answers to the same x from the same random state of torch: it is random by other "
                "means or stateful (a cache, a counter), and what it depends on cannot be measured; call .eval() on "
                "it, or pass a deterministic function"
            )


def same(a: Tensor, b: Tensor) -> Tensor:
    """Where two tensors are equal, or both NaN."""
    return (a == b) | (a.isnan() & b.isnan())
