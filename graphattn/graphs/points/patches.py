"""Patches along a space-filling curve: groups of points of equal size, found by sorting."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.forms import partition, stretch_of_order
from ..arguments import call, one_of, whole
from .clouds import device_of
from .curve_keys import Curve
from .curves import order_and_lengths


@sizable
@builder
def curve_patches(
    pos: Tensor | np.ndarray,
    patch: int,
    curve: Curve = "z",
    *,
    cell: float | None = None,
    bits: int | None = None,
    batch: Tensor | None = None,
    shrink: Literal["batch", "cloud"] = "batch",
) -> AttentionGraph:
    r"""Points along a curve, cut into patches: a point reads its patch of ``patch`` points.

    .. math::
        \mathcal{N}(t) = \{ s : bK \le r_s < (b + 1) K \}, \; b = \lfloor r_t / K \rfloor, \quad
        \text{and } \{ s : n - K \le r_s < n \} \text{ where } (b + 1) K > n

    with the rank ``r`` of a point in its cloud of ``n``. Points of the last, short patch also read
    points of the patch before it, ``K`` in total.

    Args:
        pos: (N, d) floating point coordinates, or integer cells of a grid; as for
            :func:`~graphattn.shapes.curve_order`, as are ``curve``, ``cell``, ``bits`` and
            ``batch``.
        patch: K, points that each point reads, itself included.
        curve: ``"z"``, ``"z-trans"``, ``"hilbert"`` or ``"hilbert-trans"``; layers take turns.
        cell: Side of a cell, in the units of ``pos``; as fine as ``bits`` allow by default.
        bits: Bits per axis of a cell's number.
        batch: (N,) cloud of every point, sorted; a point reads its own cloud only.
        shrink: For clouds of fewer than K points: all clouds of the ``"batch"`` get patches as
            small as the smallest cloud, or a small ``"cloud"`` becomes one patch.
    Returns:
        A rule on the device of ``pos`` of O(N) memory. For sorted points
        (``pos[curve_order(pos, ...)]``) each patch is a run of neighbours, and planning is quick.
    Raises:
        GraphError: If ``patch < 1``, a cell does not fit, a coordinate is not finite, or ``batch``
            is not sorted.
    Source:
        Wu et al. 2024 (Point Transformer V3), serialized attention; Pointcept's code pads the last
        patch with the points before it. ``shrink="batch"`` is its path without FlashAttention,
        ``"cloud"`` the one with it. *What differs:* points of one cell keep their order, which is
        undefined there; for the Hilbert orders see ``bits`` of ``curve_order``.
    Example:
        >>> print(curve_patches(torch.arange(7.0)[:, None], 3))
        AttentionGraph(curve_patches(patch=3): 7 nodes, 21 edges, density 0.429, rule)
        █ █ █ · · · ·
        █ █ █ · · · ·
        █ █ █ · · · ·
        · · · █ █ █ ·
        · · · █ █ █ ·
        · · · █ █ █ ·
        · · · · █ █ █
    """
    most = whole(patch, "patch", 1)
    one_of(shrink, "shrink", ("batch", "cloud"))
    order, count = (part.cpu() for part in order_and_lengths(pos, curve, cell, bits, batch))
    size = count.clamp(max=most)
    if shrink == "batch" and count.numel():
        size = size.amin().expand_as(count)
    start = (torch.cumsum(count, 0) - count).repeat_interleave(count)
    size = size.repeat_interleave(count)
    n = count.repeat_interleave(count)
    rank = torch.arange(order.numel()) - start
    first = torch.minimum(rank // size * size, n - size) + start
    lo = torch.empty_like(first).scatter_(0, order, first)
    hi = torch.empty_like(first).scatter_(0, order, first + size)
    name = call("curve_patches", patch=most, curve=curve, cell=cell, bits=bits, shrink=shrink)
    return AttentionGraph(stretch_of_order(lo, hi, order), name, device_of(pos))


@sizable
@builder
def octree_windows(
    pos: Tensor | np.ndarray,
    window: int,
    *,
    dilation: int = 1,
    curve: Curve = "z",
    cell: float | None = None,
    bits: int | None = None,
    batch: Tensor | None = None,
) -> AttentionGraph:
    r"""Points along a curve, cut into windows of ``window`` points ``dilation`` ranks apart.

    .. math::
        \mathcal{N}(t) = \{ s : \lfloor r_s / KD \rfloor = \lfloor r_t / KD \rfloor, \; r_s \equiv r_t \bmod D,
        \text{ same cloud} \}

    with the rank ``r`` over all clouds of the batch in sequence. The window at the end of a cloud
    is short.

    Args:
        pos: (N, d) floating point coordinates, or integer cells of a grid (octree nodes of one
            depth); as for :func:`~graphattn.shapes.curve_order`, as are ``curve``, ``cell``,
            ``bits`` and ``batch``.
        window: K, points of a window.
        dilation: D, steps along the curve between two points of a window.
        curve: ``"z"`` in the paper.
        cell: Side of a cell, in the units of ``pos``; as fine as ``bits`` allow by default.
        bits: Bits per axis of a cell's number.
        batch: (N,) cloud of every point, sorted; a point reads its own cloud only. Ranks continue
            from cloud to cloud, so that the windows of a cloud depend on the clouds before it; with
            ``disjoint_union`` they do not.
    Returns:
        A rule on the device of ``pos``: disjoint cliques, self-loops included.
    Raises:
        GraphError: If ``window`` or ``dilation`` is below 1, a cell does not fit, a coordinate is
            not finite, or ``batch`` is not sorted.
    Source:
        Wang 2023 (OctFormer): octree attention, dilated octree attention. *What differs:* its mask
        of -1e3 between the clouds of one window is no edge here.
    Example:
        >>> print(octree_windows(torch.arange(7.0)[:, None], 2, dilation=2))
        AttentionGraph(octree_windows(window=2, dilation=2): 7 nodes, 13 edges, density 0.265, rule)
        █ · █ · · · ·
        · █ · █ · · ·
        █ · █ · · · ·
        · █ · █ · · ·
        · · · · █ · █
        · · · · · █ ·
        · · · · █ · █
    """
    size = whole(window, "window", 1)
    step = whole(dilation, "dilation", 1)
    order, count = (part.cpu() for part in order_and_lengths(pos, curve, cell, bits, batch))
    rank = torch.arange(order.numel())
    n = max(1, order.numel())
    # larger ones give one window, and would overflow
    width = min(size, n)
    apart = min(step, n)
    number = torch.repeat_interleave(count)
    label = (rank // (width * apart) * apart + rank % apart) * max(1, count.numel()) + number
    name = call("octree_windows", window=size, dilation=step, curve=curve, cell=cell, bits=bits)
    return AttentionGraph(
        partition(torch.empty_like(label).scatter_(0, order, label)), name, device_of(pos)
    )
