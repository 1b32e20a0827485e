"""The one table of tolerances, and why each number is what it is.

Errors are largest absolute differences from the float64 twin, divided by a magnitude:

========== ===========================================================================================
output     the largest absolute value of the twin's output
lse        the same, but at least 1: a log-sum-exp near zero is a cancellation, not a small quantity
weights    1, since they sum to 1
gradients  the largest absolute gradient of any input (of any parameter, for parameters) in the same
           case: a gradient that cancels to zero, such as a query's with one edge per target, is
           rounding noise of the others' size
second     the same, of gradients and second derivatives together: where weights cannot change, as
           with copies of one edge, every second derivative is 0 and what is computed is noise of
           the gradients' size
========== ===========================================================================================

The bounds, for a backend's error ``e`` and the error ``d`` of plain dense torch in the same dtype:

* float64: ``e <= 1e-12``. Both sides round at 1e-16; sums over 100,000 edges in another order stay
  below 1e-13.
* narrower, outputs: ``e <= 2 d + floor``; gradients: ``e <= 3 d + floor``. A backend may round in
  other places than dense torch, not more often (the rule of FlashAttention's own tests).
* Where scores of both signs nearly cancel in a sum that they are divided by, rounding grows for any
  code. How much is measured (:mod:`.stability`; 1 for softmax of products): ``floor`` is multiplied
  by it, and 1e-12 by a 64th of it.
* ``floor`` is there because ``d`` may be small by luck: 4 eps in float32, where every intermediate
  is rounded; 1 eps in float16 and bfloat16, whose statistics are wider, so that only inputs and
  results are rounded.
* In float32 a sum of n numbers rounds as the square root of n: ``floor`` grows so from 256 edges of
  a target or source on. That of the key of a global token is as long as the text, and ``d`` is
  small where the twin adds it up in pieces (Higham and Mary 2019, "A New Approach to Probabilistic
  Rounding Error Analysis").
"""

import math

import torch
from torch import Tensor

EXACT = 1e-12
OUTPUT_FACTOR = 2.0
GRADIENT_FACTOR = 3.0
FLOOR = {torch.float32: 4.0, torch.float16: 1.0, torch.bfloat16: 1.0}  # in units of the dtype's eps
LONG = 256  # edges of a target or source up to which the floor holds
GROWTH = 64.0  # of rounding in float64, for which there is room

EXPLAINED = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}
"""Largest distance of a known mistake from a wrong output that it explains."""


def bound(
    dtype: torch.dtype,
    dense_error: float,
    *,
    gradient: bool,
    growth: float = 1.0,
    longest: int = 0,
) -> float:
    """The largest error allowed, relative to the magnitude.

    Args:
        dtype: Of the backend's tensors.
        dense_error: Of plain dense torch.
        gradient: True for gradients.
        growth: Growth of rounding of the scores.
        longest: Most edges of a target or source.

    Example:
        >>> bound(torch.float32, 1e-6, gradient=False)
        2.476837158203125e-06
    """
    if dtype == torch.float64:
        return EXACT * max(1.0, growth / GROWTH)
    if gradient:
        factor = GRADIENT_FACTOR
    else:
        factor = OUTPUT_FACTOR
    floor = FLOOR[dtype] * torch.finfo(dtype).eps * growth
    if dtype == torch.float32:
        floor *= math.sqrt(max(1.0, longest / LONG))
    return factor * dense_error + floor


def agreement(dtype: torch.dtype) -> float:
    """Largest difference of two exact results, relative to their size: sums taken in another order.

    Float32 is given an error of 16 eps for a long sum; half precision one eps, as its sums are
    wider.

    Example:
        >>> agreement(torch.float64)
        2e-12
    """
    if dtype == torch.float32:
        long_sum = 16
    else:
        long_sum = 1
    return 2 * bound(dtype, long_sum * torch.finfo(dtype).eps, gradient=False)


def size(x: Tensor) -> float:
    """The largest finite absolute value; 0.0 if there is none."""
    if x.numel():
        return float(x.abs().nan_to_num(0.0, 0.0, 0.0).max())
    return 0.0


def difference(x: Tensor, reference: Tensor) -> float:
    """The largest absolute difference, in float64.

    Equal infinities do not differ; a NaN differs infinitely.
    """
    apart = _apart(x, reference)
    if apart.numel():
        return float(apart.max())
    return 0.0


def differences(x: Tensor, reference: Tensor, axis: int) -> Tensor:
    """The largest difference at each place along an axis, float64 (n,)."""
    apart = _apart(x, reference).movedim(axis, 0).flatten(1)
    if apart.numel():
        return apart.amax(1)
    return apart.sum(1)


def _apart(x: Tensor, reference: Tensor) -> Tensor:
    x = x.double()
    reference = reference.double()
    return torch.where(x == reference, 0.0, (x - reference).abs()).nan_to_num(nan=float("inf"))
