"""Tensors as plain data: few numbers as a list, many as base64 of little-endian bytes."""

import base64
import binascii
import math
import reprlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import GraphError, LoaderError

_FEW = 64  # most numbers that are written as a list
_MOST_AXES = 8
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
}
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fault(
    where: str, expected: str, got: Any, fix: str = "load what graphattn saved, unchanged"
) -> LoaderError:
    """The error for data that is not a saved graph."""
    try:
        if isinstance(got, str):
            shown = got[:200]
        else:
            shown = reprlib.repr(got)
    except ValueError:  # an integer of more digits than Python prints
        shown = f"a {type(got).__name__}"
    return LoaderError(f"{where}: expected {expected}, got {shown}. Try: {fix}.")


def has_keys(plain: Any, keys: set[str]) -> bool:
    """True for a dictionary of exactly these keys."""
    return isinstance(plain, dict) and plain.keys() == keys


def is_list(plain: Any, length: int) -> bool:
    """True for a list of this length."""
    return isinstance(plain, list) and len(plain) == length


def is_text(plain: Any, longest: int) -> bool:
    """True for a text of at most ``longest`` characters."""
    return isinstance(plain, str) and len(plain) <= longest


def is_index(plain: Any, size: int) -> bool:
    """True for an integer in ``[0, size)``, and not for True or 1.0."""
    return type(plain) is int and 0 <= plain < size


def tensor_to_plain(x: Tensor) -> dict[str, Any]:
    """``{"dtype", "shape", "data"}``.

    Raises:
        GraphError: If its dtype is not bool, integer or floating point.
    """
    kind = str(x.dtype).removeprefix("torch.")
    if kind not in _DTYPES:
        raise GraphError(
            f"a tensor of {kind} cannot be saved; convert it to one of {', '.join(_DTYPES)}"
        )
    x = x.detach().cpu().contiguous()
    plain = {"dtype": kind, "shape": list(x.shape)}
    if x.numel() <= _FEW and bool(torch.isfinite(x).all()):
        return {**plain, "data": x.flatten().tolist()}
    bits = x.view(_BITS[x.itemsize]).numpy()
    return {**plain, "data": base64.b64encode(bits.astype(f"<i{x.itemsize}").tobytes()).decode()}


def tensor_from_plain(plain: Any, where: str) -> Tensor:
    """The tensor.

    Raises:
        LoaderError: If the data is not a tensor, or its shape and its numbers disagree.
    """
    if not has_keys(plain, {"dtype", "shape", "data"}):
        raise fault(where, "a tensor: dtype, shape and data", plain)
    kind = plain["dtype"]
    shape = plain["shape"]
    data = plain["data"]
    if not isinstance(kind, str) or kind not in _DTYPES:
        raise fault(where, f"dtype to be one of {', '.join(_DTYPES)}", kind)
    if not _is_shape(shape):
        raise fault(where, "shape to be a list of sizes", shape)
    if isinstance(data, str):
        return _from_bytes(data, _DTYPES[kind], shape, where)
    number_types: tuple[type, ...] = (int,)
    if kind == "bool":
        number_types = (bool,)
    elif _DTYPES[kind].is_floating_point:
        number_types = (int, float)
    if not isinstance(data, list) or not all(type(number) in number_types for number in data):
        raise fault(where, f"data of {kind} as a list or in base64", data)
    _check_count(len(data), shape, where)
    try:
        x = torch.tensor(data, dtype=_DTYPES[kind], device="cpu").reshape(shape)
    except (RuntimeError, OverflowError, ValueError) as error:
        raise fault(where, f"numbers of {kind}", str(error)) from None
    if not bool(torch.isfinite(x).all()):
        raise fault(where, f"finite numbers of {kind} (others are saved in base64)", data)
    return x


def _is_shape(plain: Any) -> bool:
    if not isinstance(plain, list) or len(plain) > _MOST_AXES:
        return False
    return all(type(side) is int and side >= 0 for side in plain)


def _from_bytes(text: str, dtype: torch.dtype, shape: list[int], where: str) -> Tensor:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise fault(where, "base64", text[:40]) from None
    size = dtype.itemsize
    if len(data) % size:
        raise fault(where, f"numbers of {size} bytes", f"{len(data)} bytes")
    _check_count(len(data) // size, shape, where)
    bits = torch.from_numpy(np.frombuffer(data, f"<i{size}").astype(f"i{size}")).reshape(shape)
    if dtype == torch.bool:
        return bits != 0
    return bits.view(dtype)


def _check_count(count: int, shape: list[int], where: str) -> None:
    if count != math.prod(shape):
        raise fault(where, f"{math.prod(shape)} numbers, of shape {tuple(shape)}", f"{count}")
