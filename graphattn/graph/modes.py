"""Code outside torch's modes: functions that torch.compile does not trace, and cached objects.

``torch.compiler.disable`` and ``torch.compiler.assume_constant_result`` import torch's compiler,
which takes seconds; ``not_followed`` and ``constant_result`` do the same, and import it only during
a compilation.
"""

import functools
from collections.abc import Callable, Hashable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

_MISSING = object()
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
    """A class decorator: torch.compile breaks the graph where an object is constructed.

    It hashes an object of a frozen dataclass by its fields, even without ``eq``, unless it takes
    the class for another one.
    """
    object_class.__dataclass_params__.frozen = False  # type: ignore[attr-defined]
    object_class.__init__ = not_followed(object_class.__init__, _WHY)  # type: ignore[misc]
    return object_class


def plain_operations_only() -> bool:
    """True under torch.func or forward-mode derivatives, which cannot differentiate kernels of ours."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def unwrapped(x: Any) -> Any:
    """A tensor out of the wrappers of ``torch.func.grad`` and its like; anything else as it is."""
    while isinstance(x, torch.Tensor) and torch._C._functorch.is_gradtrackingtensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """A context without autocast, entered only if it is on: it costs as much as a small product."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


@contextmanager
def _default_switches() -> Iterator[None]:
    """float32 by default, any algorithm, no autocast and no tracing by ``torch.jit``.

    Switches of the process are left alone where they are at their defaults.
    """
    dtype = torch.get_default_dtype()
    determinism = torch.get_deterministic_debug_mode()
    trace = torch._C._get_tracing_state()
    if trace is not None:  # inside an operator torch takes no state, not even none
        torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
    if dtype != torch.float32:
        torch.set_default_dtype(torch.float32)
    if determinism:
        torch.set_deterministic_debug_mode(0)
    try:
        with without_autocast("cpu"), without_autocast(torch._C._get_accelerator().type):
            yield
    finally:
        if trace is not None:
            torch._C._set_tracing_state(trace)  # type: ignore[attr-defined]
        if dtype != torch.float32:
            torch.set_default_dtype(dtype)
        if determinism:
            torch.set_deterministic_debug_mode(determinism)


@partial(not_followed, reason=_WHY)
def without_modes(make: Callable[[], T]) -> T:
    """``make()`` outside every mode of the caller, as at the start of a program."""
    with (
        torch.inference_mode(False),
        torch._C._DisableFuncTorch(),
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
        _default_switches(),
    ):
        return make()


def outside_modes(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator: a function of numbers, whose result has no gradient, by :func:`without_modes`."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> T:
        values = [unwrapped(value) for value in args]
        named = {name: unwrapped(value) for name, value in options.items()}
        return without_modes(lambda: function(*values, **named))

    return call


# --- caches


def keep(
    values: MutableMapping[Any, Any],
    key: Any,
    make: Callable[[], T],
    most: int | None = None,
) -> T:
    """``values[key]``, or ``make()``, which is kept there; of more than ``most`` the oldest go.

    Every cache of the package is made of this function or of :func:`without_modes`, so that what it
    holds does not depend on who asked first.
    """
    value: T = values.get(key, _MISSING)
    if value is not _MISSING:
        return value
    value = without_modes(make)
    if most is not None:
        for oldest in list(values)[: max(0, len(values) + 1 - most)]:
            values.pop(oldest, None)  # another thread may have dropped it
    values[key] = value
    return value


class Memo(dict[Hashable, Any]):
    """Values that an object keeps by :func:`keep`; its copies and pickles begin without them."""

    def __reduce__(self) -> Any:
        return type(self), ()


def cached_property(make: Callable[[Any], T]) -> functools.cached_property[T]:
    """``functools.cached_property`` outside the modes of the first caller."""

    @wraps(make)
    def outside(owner: Any) -> T:
        return without_modes(partial(make, owner))

    return functools.cached_property(outside)


def lru_cache(
    most: int | None,
) -> Callable[[Callable[..., T]], "functools._lru_cache_wrapper[T]"]:
    """``functools.lru_cache`` outside the modes of the first caller."""

    def cached(make: Callable[..., T]) -> "functools._lru_cache_wrapper[T]":
        @functools.lru_cache(most)
        @wraps(make)
        def outside(*args: Any, **options: Any) -> T:
            return without_modes(partial(make, *args, **options))

        return outside

    return cached
