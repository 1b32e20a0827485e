"""Tensors as plain data: few numbers as a list, many as base64 of little-endian bytes."""

import base64
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import GraphError

_FEW = 64  # most numbers that are written as a list
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
}
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fields(plain: dict[str, Any], *names: str, optional: tuple[str, ...] = ()) -> list[Any]:
    """The values of these keys; an error for any other key."""
    others = plain.keys() - {*names, *optional}
    if others:
        raise KeyError(f"unknown keys: {sorted(map(str, others))}")
    return [plain[name] for name in names]


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


def tensor_from_plain(plain: dict[str, Any]) -> Tensor:
    """The tensor; Python's, numpy's and torch's errors for anything else."""
    kind, shape, data = fields(plain, "dtype", "shape", "data")
    dtype = _DTYPES[kind]
    if isinstance(data, str):
        size = dtype.itemsize
        bits = np.frombuffer(base64.b64decode(data, validate=True), f"<i{size}")
        x = torch.from_numpy(bits.astype(f"i{size}")).reshape(shape)
        if dtype == torch.bool:
            return x != 0
        return x.view(dtype)
    x = torch.tensor(data, dtype=dtype, device="cpu")
    if x.tolist() != data:  # cut off, or infinite
        raise ValueError(f"numbers that are not of {kind}")
    return x.reshape(shape)
