"""Code outside torch's modes: functions that torch.compile does not trace, and cached objects.

``torch.compiler.disable`` and ``torch.compiler.assume_constant_result`` import torch's compiler,
which takes seconds; ``not_followed`` and ``constant_result`` do the same, and import it only during
a compilation.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from ctypes import cast, py_object
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from .immutable import Immutable

P = ParamSpec("P")
T = TypeVar("T")
Class = TypeVar("Class", bound=type)

_WHY = (
    "a graph is a constant of a compiled program: make it outside and pass it in, or compile "
    "without fullgraph"
)


def assume_constant(function: Callable[P, T]) -> Callable[P, T]:
    """``torch.compiler.assume_constant_result``."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def constant_result(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator: the result of a function, which may take graphs, is a constant of a program.

    Not every version of torch passes objects to a marked function: it receives the address of the
    graph instead, and the program is guarded by it.
    """

    @assume_constant
    def constant(graphs: tuple[int, ...], *args: Any, **options: Any) -> T:
        operands = [
            cast(at, py_object).value if at else arg for at, arg in zip(graphs, args, strict=True)
        ]
        return function(*operands, **options)

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        if not torch.compiler.is_compiling():
            return function(*args, **options)
        graphs = tuple([id(x) if isinstance(x, Immutable) else 0 for x in args])
        return constant(
            graphs, *[None if at else x for at, x in zip(graphs, args, strict=True)], **options
        )

    return call


class _Disabled:
    """Functions wrapped by ``torch.compiler.disable``.

    As attributes, so that torch.compile notices a new one.
    """


@assume_constant
def _disable(name: str, function: Callable[..., Any], reason: str | None) -> None:
    if not hasattr(_Disabled, name):
        setattr(_Disabled, name, torch.compiler.disable(function, reason=reason))


def not_followed(function: Callable[P, T], reason: str | None = None) -> Callable[P, T]:
    """A decorator: torch.compile breaks the graph at a call, as with ``torch.compiler.disable``."""
    name = f"{function.__module__}.{function.__qualname__}".replace(".", "_")

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        if not torch.compiler.is_compiling():
            return function(*args, **options)
        _disable(name, function, reason)
        result: T = getattr(_Disabled, name)(*args, **options)
        return result

    return call


def not_compiled(object_class: Class) -> Class:
    """A class decorator: torch.compile breaks the graph where an object is constructed."""
    object_class.__init__ = not_followed(object_class.__init__, _WHY)  # type: ignore[misc]
    return object_class


def plain_operations_only() -> bool:
    """True under torch.func or forward-mode derivatives, which cannot differentiate kernels of ours."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """A context without autocast, entered only if it is on: it costs as much as a small product."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


@partial(not_followed, reason=_WHY)
def without_modes(make: Callable[[], T]) -> T:
    """``make()`` without torch.compile, inference mode, torch.func, devices or fake tensors."""
    with (
        torch.inference_mode(False),
        torch._C._DisableFuncTorch(),
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
    ):
        return make()
