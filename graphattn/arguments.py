"""Checks of arguments: each error names the argument, the expected and the given value, and a
remedy.
"""

import inspect
import math
import operator
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import GraphAttnError, OptionError, ShapeError

_LONGEST = 60


def shown(value: object) -> str:
    """A short form of a value for errors: the shape of a tensor, the bits of a huge number."""
    if isinstance(value, Tensor | np.ndarray):
        return (
            f"a {type(value).__name__} {tuple(value.shape)} of "
            f"{str(value.dtype).removeprefix('torch.')}"
        )
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    try:
        words = repr(value)
    except Exception:  # a repr that raises
        return f"a {type(value).__name__}"
    if len(words) <= _LONGEST:
        return words
    return f"a {type(value).__name__}"


def clipped(text: str, most: int) -> str:
    """A text of at most ``most`` characters, with dots for the rest."""
    if len(text) <= most:
        return text
    return f"{text[: most - 3]}..."


def whole(
    value: object,
    argument: str,
    least: int | None = None,
    error: type[GraphAttnError] = OptionError,
    *,
    below: int = 2**63,
) -> int:
    """``value`` as an int that fits int64; accepts numpy's and torch's integers, but not True or
    2.0.
    """
    if least is None:
        expected = "a whole number"
    else:
        expected = f"a whole number >= {least}"
    try:
        number = None if _is_bool(value) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        number = None
    if number is None or (least is not None and number < least):
        raise error(f"{argument} must be {expected}, got {shown(value)}")
    if not -below <= number < below:
        raise error(f"{argument} must be below 2**{below.bit_length() - 1}, got {shown(number)}")
    return number


def width(value: object, argument: str) -> int:
    """A number of heads or of channels."""
    return whole(value, argument, 1, below=2**31)


def number(
    value: object,
    argument: str,
    expected: str,
    fits: Callable[[float], bool],
    error: type[GraphAttnError] = OptionError,
) -> float:
    """``value`` as a float that ``fits`` accepts, else an error with ``expected``, such as "a
    number >= 1".

    Args:
        value: A number of Python or numpy, or a tensor of one number without a gradient; not True,
            not text.
        argument: Its name.
        expected: Its description in the error.
        fits: A comparison; called with NaN if ``value`` is not a number, or beyond float64.
        error: Class of the error.
    """
    result = math.nan
    if not _is_bool(value) and not isinstance(value, str | bytes | bytearray):
        with suppress(TypeError, ValueError, RuntimeError, OverflowError):
            result = math.nan if getattr(value, "requires_grad", False) else float(value)  # type: ignore[arg-type]
    if not fits(result):
        raise error(f"{argument} must be {expected}, got {shown(value)}")
    return result


def real(value: object, argument: str) -> float:
    """A finite number."""
    return number(value, argument, "a finite number", math.isfinite)


def positive(value: object, argument: str, *, finite: bool = True) -> float:
    """A number above 0."""
    # nothing equals NaN
    if finite:
        most = math.inf
    else:
        most = math.nan
    return number(
        value,
        argument,
        f"a {'finite number' if finite else 'number'} > 0",
        lambda x: x > 0 and x != most,
    )


def probability(
    value: object,
    argument: str,
    *,
    below_one: bool = False,
    error: type[GraphAttnError] = OptionError,
) -> float:
    """A number in [0, 1], or in [0, 1)."""
    expected = f"a number in [0, 1{')' if below_one else ']'}"
    return number(
        value, argument, expected, lambda x: 0 <= x < 1 or (x == 1 and not below_one), error
    )


def flag(value: object, argument: str, error: type[GraphAttnError] = OptionError) -> bool:
    """``value`` as a bool; numpy's bools are bools, numbers and tensors are not."""
    if not isinstance(value, bool | np.bool_):
        raise error(f"{argument} must be True or False, got {shown(value)}")
    return bool(value)


def text(value: object, argument: str, error: type[GraphAttnError] = OptionError) -> str:
    """Refuse anything but text."""
    if not isinstance(value, str):
        raise error(f"{argument} must be text, got {shown(value)}")
    return value


def one_of(
    value: object,
    argument: str,
    words: Collection[str],
    error: type[GraphAttnError] = OptionError,
    hint: str = "",
) -> str:
    """Refuse anything but one of the words; ``hint`` follows them in the error."""
    if not isinstance(value, str) or value not in words:
        *most, last = (f'"{word}"' for word in words)
        if most:
            either = f"{', '.join(most)} or {last}"
        else:
            either = last
        raise error(f"{argument} must be {either}{hint}, got {shown(value)}")
    return value


def device(value: object, argument: str = "device", *, numbers: bool = False) -> torch.device:
    """An available device, with its index ("cuda" becomes "cuda:0"); with ``numbers``, not meta."""
    expected = f'{argument} must be an available device, such as "cpu" or "cuda:0"'
    if not isinstance(value, str | torch.device):
        raise OptionError(f"{expected}, got {shown(value)}")
    try:
        result = torch.empty(0, device=value).device
    except (
        RuntimeError,
        AssertionError,
        NotImplementedError,
        ImportError,
        AttributeError,
    ) as error:
        raise OptionError(
            f"{expected}, got {shown(value)}: {str(error).splitlines()[0]}"
        ) from error
    if numbers and result.type == "meta":
        raise OptionError(f"{expected}, got meta, whose tensors hold no numbers")
    return result


def device_named(value: object, argument: str = "device") -> torch.device:
    """A device, available or not."""
    try:
        if isinstance(value, torch.device):
            return value
        return torch.device(text(value, argument))
    except RuntimeError as error:
        raise OptionError(
            f"{argument} must name a device, got {shown(value)}: {str(error).splitlines()[0]}"
        ) from error


def check_flags(**flags: object) -> None:
    """Refuse anything but True or False; cheap enough for every call."""
    for name, value in flags.items():
        if value is not True and value is not False:
            flag(value, name)


def dtype(value: object, argument: str = "dtype", *, floating: bool = False) -> torch.dtype:
    """A dtype of torch."""
    if not isinstance(value, torch.dtype):
        raise OptionError(
            f"{argument} must be a torch.dtype, such as torch.float32, got {shown(value)}"
        )
    if floating and not value.is_floating_point:
        raise OptionError(
            f"{argument} must be floating point, such as torch.float32, got {shown(value)}"
        )
    return value


def tensor(
    value: object, argument: str, shape: str = "", error: type[GraphAttnError] = OptionError
) -> Tensor:
    """A strided tensor; ``shape`` is the expected shape in the error, such as ``"(B, T)"``."""
    if shape:
        shape = f" {shape}"
    else:
        shape = ""
    if not isinstance(value, Tensor):
        raise error(f"{argument} must be a tensor{shape}, got {shown(value)}")
    if value.is_nested or value.layout != torch.strided:
        kind = "a nested one" if value.is_nested else value.layout
        raise error(
            f"{argument} must be a strided tensor{shape}, got {kind}; pass {argument}.to_dense()"
        )
    return value


def outside(index: Tensor, size: int) -> str:
    """The least and the largest of integers, "-1 to 7", if one is outside ``[0, size)``; else
    empty.
    """
    if index.numel():
        least, most = map(int, index.aminmax())
    else:
        least = 0
        most = -1
    if least < 0 or most >= size:
        return f"{least} to {most}"
    return ""


def floats(value: object, argument: str, shape: str, dims: int) -> Tensor:
    """Real features of at least ``ndim`` dimensions; ``shape`` describes them, such as
    ``"(..., nodes, width)"``.
    """
    result = tensor(value, argument, shape, ShapeError)
    if result.dim() < dims or not result.is_floating_point():
        raise ShapeError(f"{argument} must be floating point {shape}, got {shown(value)}")
    return result


def table(
    value: object, argument: str, expected: str, error: type[GraphAttnError] = OptionError
) -> Tensor:
    """Numbers of a list, an array or a tensor as a strided tensor on its device; ``expected``
    describes them.
    """
    if isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any()):
        raise error(
            f"{argument} must be {expected}, got a masked array; fill its mask: .filled(number)"
        )
    try:
        if isinstance(value, np.ndarray) and min(value.strides, default=0) < 0:
            value = value.copy()  # torch takes no negative strides
        if isinstance(value, Tensor):
            result = value
        else:
            result = torch.as_tensor(value, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError, NotImplementedError) as why:
        raise error(
            f"{argument} must be {expected}, got {shown(value)}: {str(why).splitlines()[0]}"
        ) from why
    return stored(result, argument, error)


def stored(value: object, argument: str, error: type[GraphAttnError] = OptionError) -> Tensor:
    """A strided tensor whose numbers can be read: not on meta, nor of a batch of
    ``torch.func.vmap``.
    """
    result = tensor(value, argument, error=error)
    if torch._C._functorch.is_batchedtensor(result):
        raise error(
            f"{argument} must hold numbers, got a batch of torch.func.vmap; call this outside it"
        )
    if result.device.type == "meta":
        raise error(
            f"{argument} is on meta, whose tensors hold no numbers; move it to another device"
        )
    return result


def integers(
    value: object, argument: str, shape: str, error: type[GraphAttnError] = OptionError
) -> Tensor:
    """Integers of a list, an array or a tensor as int64 on their device; an empty one may be of any
    type.
    """
    result = table(value, argument, f"integers {shape}", error)
    kind = str(result.dtype).removeprefix("torch.")
    if result.numel() and (not kind.startswith(("int", "uint")) or result.is_quantized):
        raise error(f"{argument} must be integers (int64) {shape}, got {kind}")
    numbers = result.to(torch.int64)
    if result.dtype == torch.uint64 and bool((numbers < 0).any()):
        raise error(f"{argument} must be below 2**63, got {int(numbers[numbers < 0][0]) + 2**64}")
    return numbers


def pair(
    value: object, argument: str, of: str, error: type[GraphAttnError] = OptionError
) -> tuple[int, int]:
    """Two sizes >= 1; ``of`` describes them, such as ``"(targets, sources)"``."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        if isinstance(value, int) and not isinstance(value, bool):
            both = f"; pass ({value}, {value})"
        else:
            both = ""
        raise error(f"{argument} must be two sizes >= 1 {of}, got {shown(value)}{both}")
    first, second = (whole(side, argument, error=error) for side in value)
    if first < 1 or second < 1:
        raise error(f"{argument} must be two sizes >= 1 {of}, got {shown(value)}")
    return first, second


def several(
    value: object, argument: str, expected: str, error: type[GraphAttnError] = OptionError
) -> list[Any]:
    """The items of an iterable; the caller checks each."""
    try:
        return list(value)  # type: ignore[call-overload]
    except (TypeError, RuntimeError, NotImplementedError):
        raise error(f"{argument} {expected}, got {shown(value)}") from None


def function(
    value: Any,
    argument: str,
    arguments: str,
    error: type[GraphAttnError] = OptionError,
    hint: str = "",
) -> Callable[..., Any]:
    """Refuse anything that cannot be called with these arguments, ``"query, key"``; ``hint`` ends
    the error.
    """
    refuse_class(value, argument, error)
    if not callable(value):
        raise error(f"{argument} must be a function {argument}({arguments}), got {shown(value)}")
    if torch.compiler.is_compiling():  # torch.compile does not trace signatures
        return value
    try:
        takes = inspect.signature(value.forward if isinstance(value, torch.nn.Module) else value)
    except (TypeError, ValueError):  # a function of C without a signature
        return value
    try:
        takes.bind(*arguments.split(", "))
    except TypeError as why:
        raise error(
            f"{argument} must accept {argument}({arguments}), got a function of "
            f"{clipped(str(takes), 120)}: {why}{hint}"
        ) from None
    return value


def refuse_class(value: object, argument: str, error: type[GraphAttnError] = OptionError) -> None:
    """Refuse a class in place of one of its objects."""
    if isinstance(value, type):
        raise error(
            f"{argument} must be an object, got a class; pass {argument}={value.__name__}(...)"
        )


def _is_bool(value: object) -> bool:
    return isinstance(value, bool) or getattr(value, "dtype", None) in (torch.bool, np.bool_)
