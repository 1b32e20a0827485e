"""Dropout of weights by a hash of the edge: splitmix64, the same on every device."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def dropout_of(dropout_p: float) -> tuple[int, float]:
    """The hash of 53 bits below which a weight is dropped, and the factor of the others."""
    factor = 0.0
    if dropout_p < 1:
        factor = 1.0 / (1.0 - dropout_p)
    return math.ceil(dropout_p * 2**53), factor


def signed(word: int) -> int:
    """A word of 64 bits as a signed integer; products and sums wrap."""
    if word >> 63:
        return word - (1 << 64)
    return word


def dropout_factors(
    like: Tensor, edge: Tensor, dropout_p: float, seed: Tensor | None
) -> Tensor | float:
    """Dropout factors of the kernels for weights ``like`` (B, E, H).

    They are splitmix64 of ``edge``, in torch's integers.
    """
    if dropout_p <= 0:
        return 1.0
    # vmap(randomness="different")
    if seed is not None and torch._C._functorch.is_batchedtensor(seed):
        return F.dropout(torch.ones_like(like), dropout_p)
    batch, head = (torch.arange(like.shape[axis], device=like.device) for axis in (0, 2))
    x = batch[:, None, None] * signed(0xD6E8FEB86659FD93)
    x = x + edge[:, None] * signed(0x9E3779B97F4A7C15)
    x = x + (head + 1) * signed(0xC2B2AE3D27D4EB4F)
    if seed is not None:
        x = x + int(seed)
    x = (x ^ _shifted(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * signed(0x94D049BB133111EB)
    uniform = _shifted(x ^ _shifted(x, 31), 11).double() / 2**53
    _, kept_factor = dropout_of(dropout_p)
    return ((uniform >= dropout_p).double() * kept_factor).to(like.dtype)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """``x`` shifted to the right, filled with zeros."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
