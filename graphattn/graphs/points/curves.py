"""Space-filling curves: orders of points in which near points are mostly adjacent."""

import numpy as np
import torch
from torch import Tensor

from ...errors import GraphError
from ..arguments import one_of, tensor, whole
from .clouds import check_axes, coordinates, device_of, length, lengths
from .curve_keys import CURVES, KEY_BITS, Curve, curve_key

_FLOAT_BITS = 52
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def curve_order(
    pos: Tensor | np.ndarray,
    curve: Curve = "z",
    *,
    cell: float | None = None,
    bits: int | None = None,
    batch: Tensor | None = None,
) -> Tensor:
    r"""The points along a space-filling curve: near points are near in ``pos[curve_order(pos)]``.

    Attention over the edges of a graph of points is faster in this order, since neighbours are near
    in memory: sort points and features before building the graph. An existing graph is reordered by
    ``graph.relabel(torch.argsort(order))``, and outputs return to the old order by
    ``out[torch.argsort(order)]``.

    Args:
        pos: (N, d) floating point coordinates, or integer cells of a grid (>= 0), which are used as
            they are.
        curve: ``"z"`` is the Morton order; ``"hilbert"`` never jumps; ``-trans`` exchanges the
            first two axes.
        cell: Side of a cell, in the units of ``pos``, counted from the smallest coordinates of each
            cloud. By default each cloud's bounding cube is cut as finely as ``bits`` allow.
        bits: Bits per axis of a cell's number, ``bits * d <= 63``; as many as fit (at most 52) by
            default.
        batch: (N,) cloud of every point, sorted; the clouds stay in order.
    Returns:
        int64 (N,) on the device of ``pos``: indices of the points in order; points of one cell keep
        theirs.
    Raises:
        GraphError: If a cell does not fit ``bits``, a coordinate is not finite, or ``batch`` is not
            sorted.
    Source:
        Morton 1966; Hilbert's curve in d dimensions by Skilling 2004. Wu et al. 2024 (Point
        Transformer V3) for the four words. *What differs:* the Hilbert order depends on the bits,
        which are those of the largest grid coordinate of the batch there; pass
        ``bits=int(grid.max()).bit_length()`` for the same one.
    Example:
        >>> grid = torch.cartesian_prod(torch.arange(2), torch.arange(4))
        >>> grid[curve_order(grid, "hilbert", bits=2)].tolist()
        [[0, 0], [1, 0], [1, 1], [0, 1], [0, 2], [0, 3], [1, 3], [1, 2]]
    """
    order, _ = order_and_lengths(pos, curve, cell, bits, batch)
    return order.to(device_of(pos))


def order_and_lengths(
    pos: object,
    curve: Curve,
    cell: float | None,
    bits: int | None,
    batch: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """:func:`curve_order`, and the number of points in each cloud that is not empty, int64 (C,)."""
    one_of(curve, "curve", CURVES)
    place, are_cells = _place(pos)
    bits = _bits(bits, place.shape[1])
    count = lengths(place, batch)
    number = torch.repeat_interleave(count)
    if not are_cells:
        hint = "pass a larger cell"
        cells = _cut(place, cell, 2.0**bits - 1, number, count.numel())
    elif cell is None:
        hint = "pass floating point pos and a cell"
        cells = place
    else:
        raise GraphError(
            "cell needs floating point pos, got integers, which are cells already; leave it out"
        )
    largest = 0
    if cells.numel():
        largest = int(cells.max())
    if largest >> bits:
        raise GraphError(
            f"bits={bits} allows cells up to {2**bits - 1}, got {largest}; {hint}, or more bits"
        )
    order = torch.argsort(curve_key(cells, curve, bits), stable=True)
    return order[torch.argsort(number[order], stable=True)], count


def _bits(bits: int | None, axes: int) -> int:
    """Bits per axis: as given, or as many as fit."""
    if axes > KEY_BITS:
        raise GraphError(
            f"a curve needs at most {KEY_BITS} axes, got {axes}; pass a few of them, such as "
            "pos[:, :3]"
        )
    most = KEY_BITS // axes
    if bits is None:
        return min(_FLOAT_BITS, most)
    # a key has KEY_BITS bits for all axes
    return whole(bits, "bits", 1, below=most + 1, of=f" on {axes} axes")


def _place(pos: object) -> tuple[Tensor, bool]:
    """Integer cells (N, d) as int64 and True, or coordinates in float64 and False."""
    if isinstance(pos, np.ndarray) and pos.dtype.kind in "iu":
        pos = torch.from_numpy(pos.astype(np.int64))
    if not isinstance(pos, Tensor) or pos.dtype not in _INTEGERS:
        return coordinates(pos, "pos"), False
    cells = tensor(pos, "pos")
    check_axes(cells, "pos")
    if bool((cells < 0).any()):
        raise GraphError(
            f"cells of a grid must be >= 0, got {int(cells.min())}; pass pos - pos.amin(0)"
        )
    return cells.to(torch.int64), True


def _cut(
    place: Tensor,
    cell: float | None,
    most: float,
    number: Tensor,
    count: int,
) -> Tensor:
    """Floating point coordinates as cells counted from the smallest of each cloud."""
    if place.shape[0] == 0:
        return place.to(torch.int64)
    where = number[:, None].expand_as(place)
    limits = place.new_zeros(count, place.shape[1])
    origin = limits.scatter_reduce(0, where, place, "amin", include_self=False)
    offset = place - origin[number]
    if cell is None:
        span = limits.scatter_reduce(0, where, offset, "amax", include_self=False).amax(1)[number]
        span = torch.where(span > 0, span, 1.0).unsqueeze(1)
        return (offset / span * most).floor().clamp(max=most).to(torch.int64)
    side = length(cell, "cell")
    return (offset / side).floor().clamp(max=2.0**62).to(torch.int64)
