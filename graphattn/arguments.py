"""Checks of arguments: each error names the argument, what was expected, what came, a remedy."""

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import GraphAttnError, GraphIndexError, OptionError, ShapeError

_LONGEST = 60
# torch's errors for a device that is missing
_NO_DEVICE = (RuntimeError, AssertionError, NotImplementedError, ImportError, AttributeError)


def shown(value: object) -> str:
    """A short form of a value for errors: the shape of a tensor."""
    if isinstance(value, Tensor | np.ndarray):
        kind = str(value.dtype).removeprefix("torch.")
        return f"a {type(value).__name__} {tuple(value.shape)} of {kind}"
    words = repr(value)
    if len(words) <= _LONGEST:
        return words
    return f"a {type(value).__name__}"


def clipped(text: str, most: int) -> str:
    """A text of at most ``most`` characters, with dots for the rest."""
    if len(text) <= most:
        return text
    return f"{text[: most - 3]}..."


def short_name(name: str) -> str:
    """A graph's name in at most 72 characters: cut once, between words, with its last call."""
    if len(name) <= 72:
        return name
    end = name[-24:]
    ends = [end[part.start() :] for part in re.finditer(r" [|&@-] |, |\.(?=\w)|\)", end)]
    end = min(ends, key=_unopened, default="")
    head = re.split(r"\.\.\.(?![\],)])", name[: 69 - len(end)])[0]
    return re.sub(r"(?<=\W)\w+$", "", head) + "..." + end


def _unopened(text: str) -> int:
    """Number of brackets that a text closes and does not open."""
    return text.count(")") + text.count("]") - text.count("(") - text.count("[")


def whole(
    value: object,
    argument: str,
    least: int | None = None,
    error: type[GraphAttnError] = OptionError,
    *,
    below: int = 2**63,
    of: str = "",
) -> int:
    """``value`` as an int in [least, below); accepts numpy's and torch's integers, but not 2.0.

    ``of`` follows ``below`` in the error and says what it is: ``", the number of nodes"``. Counts
    of more nodes than torch can number would be wrong.
    """
    expected = "a whole number"
    floor: float = -math.inf
    if least is not None:
        expected = f"a whole number >= {least}"
        floor = least
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except (TypeError, RuntimeError):
        number = None
    if number is None or number < floor:
        raise error(f"{argument} must be {expected}, got {shown(value)}")
    if number >= below:
        raise error(f"{argument} must be below {below:,}{of}, got {shown(number)}")
    return number


def width(value: object, argument: str) -> int:
    """A number of heads or of channels."""
    return whole(value, argument, 1)


def number(
    value: object,
    argument: str,
    expected: str,
    fits: Callable[[float], bool],
    error: type[GraphAttnError] = OptionError,
) -> float:
    """``value`` as a float that ``fits`` accepts, else an error with ``expected``.

    Args:
        value: A number of Python or numpy, or a tensor of one number without a gradient.
        argument: Its name.
        expected: Its description in the error.
        fits: A comparison; called with NaN if ``value`` is not a number.
        error: Class of the error.
    """
    result = math.nan
    if not getattr(value, "requires_grad", False):  # float() would drop the gradient
        with suppress(TypeError, ValueError, RuntimeError):
            result = float(value)  # type: ignore[arg-type]
    if not fits(result):
        raise error(f"{argument} must be {expected}, got {shown(value)}")
    return result


def real(value: object, argument: str) -> float:
    """A finite number."""
    return number(value, argument, "a finite number", math.isfinite)


def positive(value: object, argument: str, *, finite: bool = True) -> float:
    """A number above 0."""
    if finite:
        return number(value, argument, "a finite number > 0", lambda x: 0 < x < math.inf)
    return number(value, argument, "a number > 0", lambda x: x > 0)


def probability(
    value: object,
    argument: str,
    *,
    below_one: bool = False,
    error: type[GraphAttnError] = OptionError,
) -> float:
    """A number in [0, 1], or in [0, 1)."""
    if below_one:
        return number(value, argument, "a number in [0, 1)", lambda x: 0 <= x < 1, error)
    return number(value, argument, "a number in [0, 1]", lambda x: 0 <= x <= 1, error)


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
        *others, last = (f'"{word}"' for word in words)
        expected = last
        if others:
            expected = f"{', '.join(others)} or {last}"
        raise error(f"{argument} must be {expected}{hint}, got {shown(value)}")
    return value


def device(value: object, argument: str = "device", *, numbers: bool = False) -> torch.device:
    """An available device, with its index ("cuda" becomes "cuda:0"); with ``numbers``, not meta."""
    expected = f'{argument} must be an available device, such as "cpu" or "cuda:0"'
    if not isinstance(value, str | torch.device):
        raise OptionError(f"{expected}, got {shown(value)}")
    try:
        result = torch.empty(0, device=value).device
    except _NO_DEVICE as error:
        reason = str(error).splitlines()[0]
        raise OptionError(f"{expected}, got {shown(value)}: {reason}") from error
    if numbers and result.type == "meta":
        raise OptionError(f"{expected}, got meta, whose tensors hold no numbers")
    return result


def check_flags(**flags: object) -> None:
    """Refuse anything but True or False; cheap enough for every call."""
    for name, value in flags.items():
        if type(value) is not bool:
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
    """A tensor; ``shape`` is the expected shape in the error, such as ``"(B, T)"``."""
    if not isinstance(value, Tensor):
        raise error(f"{argument} must be a tensor {shape}".rstrip() + f", got {shown(value)}")
    return value


def check_shape(
    value: Any,
    argument: str,
    shape: tuple[Any, ...],
    hint: str = "",
    error: type[GraphAttnError] = ShapeError,
) -> None:
    """Refuse what is no tensor of this shape; ``hint`` ends the error.

    A letter is a dimension of any size, ``...`` at an end any number of dimensions.
    """
    sizes = tuple(getattr(value, "shape", ()))
    named = [n for n in shape if n is not ...]
    fits = isinstance(value, Tensor)
    fits &= len(sizes) == len(named) or len(sizes) > len(named) < len(shape)
    if shape and shape[0] is ...:
        named = named[::-1]
        sizes = sizes[::-1]
    pairs = zip(sizes, named, strict=False)
    if not fits or any(size != n for size, n in pairs if not isinstance(n, str)):
        words = ", ".join(map(str, shape)).replace("Ellipsis", "...")
        if len(shape) == 1:
            words += ","
        expected = "have shape"
        if not isinstance(value, Tensor):
            expected = "be a tensor"
        message = f"{argument} must {expected} ({words}), got {shown(value)}"
        if hint:
            message += f"; {hint}"
        raise error(message)


def check_range(
    index: Tensor,
    argument: str,
    size: int,
    of: str = "",
    error: type[GraphAttnError] = GraphIndexError,
    *,
    first: int = 0,
) -> None:
    """Refuse integers outside ``[first, size)``; ``of`` follows this in the error."""
    if not index.numel():
        return
    least, most = map(int, index.aminmax())
    if least < first or most >= size:
        raise error(f"{argument} must be in [{first}, {size}){of}, got {least} to {most}")


def check_finite(
    value: Tensor, argument: str, hint: str = "", error: type[GraphAttnError] = ShapeError
) -> None:
    """Refuse NaN and infinities; ``hint`` ends the error."""
    if not bool(value.isfinite().all()):
        raise error(f"{argument} must be finite, got NaN or infinity{hint}")


def floats(value: object, argument: str, shape: str, dims: int) -> Tensor:
    """Real features of at least ``dims`` dimensions; ``shape`` describes them in the error."""
    result = tensor(value, argument, shape, ShapeError)
    if result.dim() < dims or not result.is_floating_point():
        raise ShapeError(f"{argument} must be floating point {shape}, got {shown(value)}")
    return result


def table(
    value: object, argument: str, expected: str, error: type[GraphAttnError] = OptionError
) -> Tensor:
    """A list, an array or a tensor as a strided tensor; ``expected`` describes it in the error."""
    if np.ma.is_masked(value):
        raise error(
            f"{argument} must be {expected}, got a masked array; fill its mask: .filled(number)"
        )
    if isinstance(value, np.ndarray) and min(value.strides, default=0) < 0:
        value = value.copy()  # torch takes no negative strides
    if isinstance(value, Tensor):
        return value
    try:
        return torch.as_tensor(value, device="cpu")
    except (TypeError, ValueError, RuntimeError) as why:
        raise error(
            f"{argument} must be {expected}, got {shown(value)}: {str(why).splitlines()[0]}"
        ) from why


def integers(
    value: object, argument: str, shape: str, error: type[GraphAttnError] = OptionError
) -> Tensor:
    """Integers of a list, an array or a tensor as int64; an empty one may have any type."""
    result = table(value, argument, f"integers {shape}", error)
    kind = str(result.dtype).removeprefix("torch.")
    if result.numel() and not kind.startswith(("int", "uint")):  # quantized ones are qint8
        raise error(f"{argument} must be integers (int64) {shape}, got {kind}")
    return result.to(torch.int64)


def pair(
    value: object, argument: str, of: str, error: type[GraphAttnError] = OptionError
) -> tuple[int, int]:
    """Two sizes >= 1; ``of`` describes them, such as ``"(targets, sources)"``."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise error(f"{argument} must be two sizes >= 1 {of}, got {shown(value)}")
    first, second = (whole(side, f"a side of {argument}", 1, error) for side in value)
    return first, second


def several(
    value: object, argument: str, expected: str, error: type[GraphAttnError] = OptionError
) -> list[Any]:
    """The items of an iterable; the caller checks each."""
    if not isinstance(value, Iterable):
        raise error(f"{argument} {expected}, got {shown(value)}")
    return list(value)


def for_each(
    value: Any,
    argument: str,
    number: int,
    of: str,
    error: type[GraphAttnError] = OptionError,
) -> list[Any]:
    """A value for each of ``number`` things ``of`` a kind, from one for all or a list of them."""
    if not isinstance(value, list | tuple):
        return [value] * number
    if len(value) != number:
        raise error(
            f"{argument} must be one, or {number}, one for each {of}, got {len(value)}: "
            f"{shown(value)}"
        )
    return list(value)


def function(
    value: Any,
    argument: str,
    arguments: str,
    error: type[GraphAttnError] = OptionError,
    hint: str = "",
) -> Callable[..., Any]:
    """Refuse what cannot be called; ``hint`` ends the error."""
    if not callable(value):
        raise error(
            f"{argument} must be a function {argument}({arguments}), got {shown(value)}{hint}"
        )
    return value
