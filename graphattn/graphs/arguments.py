"""What builders share: whole numbers checked by name, and names that read as the call that made the graph."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..errors import GraphError
from ..graph.listed import check_size

_SHOWN = 4


def whole(value: object, argument: str, least: int = 0) -> int:
    """``value`` as an int that is at least ``least``, or the error that says what came."""
    number = check_size(value, argument)
    if number < least:
        raise GraphError(f"{argument} must be at least {least}, got {number}")
    return number


def flag(value: object, argument: str) -> bool:
    """``value`` as a bool, or the error that says what came; numpy's bools are bools, numbers and tensors are not."""
    if not isinstance(value, bool | np.bool_):
        raise GraphError(f"{argument} must be True or False, got {_shown(value)}")
    return bool(value)


def word(value: object, argument: str, first: str, second: str, hint: str = "") -> None:
    """Refuse what is neither of two words."""
    if not isinstance(value, str) or value not in (first, second):
        raise GraphError(f'{argument} must be "{first}" or "{second}"{hint}, got {_shown(value)}')


def one_of(value: object, argument: str, words: tuple[str, ...]) -> None:
    """Refuse what is none of the words."""
    if not isinstance(value, str) or value not in words:
        either = " or ".join(f'"{each}"' for each in words)
        raise GraphError(f"{argument} must be {either}, got {_shown(value)}")


def number(value: object, argument: str, what: str, fits: Callable[[float], bool]) -> float:
    """``value`` as a float that ``fits`` accepts, or the error that it must be ``what``; text and bools never fit.

    Args:
        value: A number of Python or numpy, or a tensor of one.
        argument: Its name.
        what: Such as ``"a number >= 1"``.
        fits: A comparison; called with NaN where ``value`` is no number.
    """
    result = _as_float(value)
    if not fits(result):
        raise GraphError(f"{argument} must be {what}, got {_shown(value)}")
    return result


def _as_float(value: object) -> float:
    of_bools = getattr(value, "dtype", None) in (torch.bool, np.bool_)
    if of_bools or isinstance(value, bool | str | bytes | bytearray):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return math.nan


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    return f"a {type(value).__name__}" if isinstance(value, Tensor | np.ndarray) else repr(value)


def stored(tensor: Tensor, argument: str) -> Tensor:
    """``tensor`` if it stores its numbers one by one, or the error that says what came."""
    if tensor.is_nested or tensor.layout != torch.strided:
        kind = "a nested one" if tensor.is_nested else str(tensor.layout)
        raise GraphError(f"{argument} must be a strided tensor, got {kind}; pass {argument}.to_dense()")
    if tensor.device.type == "meta":
        raise GraphError(f"{argument} is on meta, whose tensors hold no numbers; build it on a device that does")
    return tensor


def integers(values: object, argument: str) -> Tensor:
    """``values`` as int64 (n,), or the error that says what came; the device stays."""
    try:
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(values, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        kind = type(values).__name__
        raise GraphError(f"{argument} must be integers of shape (n,), got a {kind}: {error}") from error
    if stored(tensor, argument).dim() != 1:
        hint = "; several sequences are one disjoint_union of their graphs" if tensor.dim() == 2 else ""
        raise GraphError(f"{argument} must have shape (n,), got {tuple(tensor.shape)}{hint}")
    if tensor.numel() == 0:
        return tensor.to(torch.int64)
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        kind = str(tensor.dtype).removeprefix("torch.")
        raise GraphError(f"{argument} must be integer (int64), got {kind}")
    return tensor.to(torch.int64)


def call(builder: str, *arguments: object, **keywords: tuple[object, object]) -> str:
    """The name of a graph: the call that makes it, without the keywords ``(value, default)`` left at their default.

    Example:
        >>> call("causal", 3, 7, align=("start", "end"))
        "causal(3, 7, align='start')"
    """
    shown = [_short(value) for value in arguments]
    shown += [f"{name}={_short(value)}" for name, (value, default) in keywords.items() if value != default]
    return f"{builder}({', '.join(shown)})"


def _short(value: object) -> str:
    if isinstance(value, Tensor):
        value = value[: _SHOWN + 1].tolist() if value.dim() == 1 else f"<{tuple(value.shape)}>"
    if isinstance(value, (list, tuple)) and len(value) > _SHOWN:
        marks = "[]" if isinstance(value, list) else "()"
        return f"{marks[0]}{', '.join(map(repr, value[:_SHOWN]))}, ...{marks[1]}"
    return value if isinstance(value, str) and value.startswith("<") else repr(value)


def axes(size: object) -> tuple[int, ...]:
    """A grid's lengths, row-major; an int is a grid of one axis."""
    lengths = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    if not lengths:
        raise GraphError("size must name at least one axis, such as (height, width), got ()")
    lengths = tuple(whole(length, "size") for length in lengths)
    if math.prod(lengths) >= 2**63:
        raise GraphError(f"size must have fewer than 2**63 nodes, got {' x '.join(map(str, lengths))}")
    return lengths


def per_axis(value: object, num_axes: int, argument: str, least: int = 0) -> tuple[int, ...]:
    """One whole number for every axis of a grid; a single number is for all of them."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * num_axes
    if len(values) != num_axes:
        raise GraphError(f"{argument} must be one number or {num_axes}, one per axis of size, got {value!r}")
    return tuple(whole(each, argument, least) for each in values)
