# mypy: allow-incomplete-defs
"""Additive scores in Triton, with gradients.

A score is ``sum_d a[g, k, d] f(x[t, g, d] + y[s, g // group, d] + z[e, g, d])``. A program has a
row's edges, ``BE`` at a time, one group and all of its width ``BD``; f is tanh if ``SMOOTH``, else
a leaky ReLU of ``slope``. Halves are widened in registers. :mod:`.softmax.triton` says how programs, nodes and edges are laid out.
"""

import triton
import triton.language as tl

from ..softmax.triton import _tanh


@triton.jit
def _row(X, at, D: tl.constexpr, BD: tl.constexpr):
    d = tl.arange(0, BD)
    return tl.load(X + at + d, mask=d < D, other=0.0)


@triton.jit
def _rows(X, at, live, D: tl.constexpr, BD: tl.constexpr):
    """Rows (BE, BD) from places ``at`` (BE,) on."""
    d = tl.arange(0, BD)
    return tl.load(X + at[:, None] + d[None, :], mask=live[:, None] & (d < D)[None, :], other=0.0)


@triton.jit
def _active(
    row,
    OTHER,
    other_at,
    Z,
    z_at,
    live,
    slope,
    SMOOTH: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
):
    """``f(row + other + z)`` (BE, BD)."""
    total = row[None, :] + _rows(OTHER, other_at, live, D, BD).to(row.dtype)
    if Z is not None:
        total += _rows(Z, z_at, live, D, BD).to(row.dtype)
    if SMOOTH:
        active = _tanh(total).to(total.dtype)
    else:
        active = tl.where(total < 0, total * tl.full((1, 1), slope, total.dtype), total)
    return active


@triton.jit
def _has_gradient(GRAD, at, live, K: tl.constexpr):
    """True for edges with a gradient (BE,); others pass nothing, not even a NaN."""
    has_gradient = live & (at < 0)
    for k in range(0, K):
        has_gradient = has_gradient | (tl.load(GRAD + at + k, mask=live, other=0.0) != 0)
    return has_gradient


@triton.jit(do_not_specialize=["E", "batch"])
def scores(
    X, Y, Z, A, NODE, START, STOP, INDEX, EDGE, OUT, E, batch, x_b, x_n, x_g, y_b, y_n, y_g, z_b, z_n, z_g,
    slope: tl.float64,
    H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, GROUP: tl.constexpr, SMOOTH: tl.constexpr, ALIGN: tl.constexpr,
    BE: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """OUT (B, E, H, K), in the caller's order."""
    work = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BE)
    b = (tl.program_id(1) // H + batch).to(tl.int64)
    g = tl.program_id(1) % H
    node = tl.load(NODE + work).to(tl.int64)
    start = tl.load(START + work).to(tl.int64)
    count = (tl.load(STOP + work) - start).to(tl.int32)
    row = _row(X, (b * x_b + node * x_n + g * x_g) * ALIGN, D, BD).to(WIDE)
    for i in range(0, count, BE):
        live = i + e < count
        edge = tl.load(EDGE + start + i + e, mask=live, other=0).to(tl.int64)
        other = tl.load(INDEX + start + i + e, mask=live, other=0).to(tl.int64)
        y_at = (b * y_b + other * y_n + g // GROUP * y_g) * ALIGN
        z_at = (b * z_b + edge * z_n + g * z_g) * ALIGN
        active = _active(row, Y, y_at, Z, z_at, live, slope, SMOOTH, D, BD)
        to = OUT + ((b * E + edge) * H + g) * K
        for k in range(0, K):
            tl.store(
                to + k, tl.sum(active * _row(A, (g * K + k) * D, D, BD)[None, :], 1), mask=live
            )


@triton.jit(do_not_specialize=["E", "N", "batch"])
def passed_back(
    OWN, OTHER, Z, A, GRAD, NODE, START, STOP, INDEX, EDGE, OUT, GZ, ACC, E, N, batch,
    own_b, own_n, own_g, other_b, other_n, other_g, z_b, z_n, z_g, slope: tl.float64,
    H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, MEMBERS: tl.constexpr, GROUP: tl.constexpr, PIECE: tl.constexpr,
    SMOOTH: tl.constexpr, ALIGN: tl.constexpr,
    BE: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The gradients from GRAD (B, E, G, K) of a row's node, for H groups, and of its edges.

    Each of a node's groups stands for ``MEMBERS`` of G, each of which reads group ``// GROUP`` of
    the other end.
    """
    work = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BE)
    d = tl.arange(0, BD)
    b = (tl.program_id(1) // H + batch).to(tl.int64)
    h = tl.program_id(1) % H
    node = tl.load(NODE + work).to(tl.int64)
    start = tl.load(START + work).to(tl.int64)
    count = (tl.load(STOP + work) - start).to(tl.int32)
    row = _row(OWN, (b * own_b + node * own_n + h * own_g) * ALIGN, D, BD).to(WIDE)
    total = tl.zeros((BD,), WIDE)
    groups: tl.constexpr = H * MEMBERS
    for member in range(0, MEMBERS):
        g = h * MEMBERS + member
        for i in range(0, count, BE):
            live = i + e < count
            edge = tl.load(EDGE + start + i + e, mask=live, other=0).to(tl.int64)
            other = tl.load(INDEX + start + i + e, mask=live, other=0).to(tl.int64)
            at = ((b * E + edge) * groups + g) * K
            has_gradient = _has_gradient(GRAD, at, live, K)
            other_at = (b * other_b + other * other_n + g // GROUP * other_g) * ALIGN
            z_at = (b * z_b + edge * z_n + g * z_g) * ALIGN
            active = _active(row, OTHER, other_at, Z, z_at, has_gradient, slope, SMOOTH, D, BD)
            passed = tl.zeros((BE, BD), WIDE)
            for k in range(0, K):
                grad = tl.load(GRAD + at + k, mask=live, other=0.0)
                passed += grad[:, None] * _row(A, (g * K + k) * D, D, BD)[None, :]
            if SMOOTH:
                passed = passed * (1.0 - active * active)
            else:
                passed = tl.where(active > 0, passed, passed * tl.full((1, 1), slope, WIDE))
            passed = tl.where(has_gradient[:, None], passed, 0.0)
            total += tl.sum(passed, 0)
            if GZ is not None:
                to = GZ + ((b * E + edge) * groups + g)[:, None] * D + d[None, :]
                tl.store(to, passed, mask=live[:, None] & (d < D)[None, :])
    if PIECE:
        tl.store(ACC + ((b * tl.num_programs(0) + work) * H + h) * D + d, total, mask=d < D)
    else:
        tl.store(OUT + ((b * N + node) * H + h) * D + d, total, mask=d < D)


@triton.jit(do_not_specialize=["E", "rows", "B", "batch"])
def to_weights(
    X, Y, Z, GRAD, NODE, START, STOP, INDEX, EDGE, OUT, E, rows, B, batch,
    x_b, x_n, x_g, y_b, y_n, y_g, z_b, z_n, z_g, slope: tl.float64,
    H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, GROUP: tl.constexpr, SMOOTH: tl.constexpr, ALIGN: tl.constexpr,
    BE: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, BK: tl.constexpr, BLOCKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A program's share of the weights' gradient, OUT (programs, B, G, K, D) in float64.

    An axis of the grid counts H blocks: G groups, of each ``BLOCKS`` times ``BK`` of the weights.
    """
    program = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    b = (tl.program_id(1) // H + batch).to(tl.int64)
    block = tl.program_id(1) % H
    g = block // BLOCKS
    k = block % BLOCKS * BK + tl.arange(0, BK)
    groups: tl.constexpr = H // BLOCKS
    step = tl.cdiv(rows, tl.num_programs(0))
    total = tl.zeros((BK, BD), tl.float64)
    for work in range(program * step, tl.minimum(rows, (program + 1) * step)):
        node = tl.load(NODE + work).to(tl.int64)
        start = tl.load(START + work).to(tl.int64)
        count = (tl.load(STOP + work) - start).to(tl.int32)
        row = _row(X, (b * x_b + node * x_n + g * x_g) * ALIGN, D, BD).to(WIDE)
        part = tl.zeros((BK, BD), WIDE)
        for i in range(0, count, BE):
            live = i + e < count
            edge = tl.load(EDGE + start + i + e, mask=live, other=0).to(tl.int64)
            other = tl.load(INDEX + start + i + e, mask=live, other=0).to(tl.int64)
            at = ((b * E + edge) * groups + g) * K
            has_gradient = _has_gradient(GRAD, at, live, K)
            y_at = (b * y_b + other * y_n + g // GROUP * y_g) * ALIGN
            z_at = (b * z_b + edge * z_n + g * z_g) * ALIGN
            active = _active(row, Y, y_at, Z, z_at, has_gradient, slope, SMOOTH, D, BD)
            active = tl.where(has_gradient[:, None], active, 0.0)
            grad = tl.load(
                GRAD + at[:, None] + k[None, :], mask=live[:, None] & (k < K)[None, :], other=0.0
            )
            part += tl.sum(grad[:, :, None] * active[:, None, :], 0)
        total += part.to(tl.float64)
    to = OUT + (((program * B + b) * groups + g) * K + k)[:, None] * D + d[None, :]
    tl.store(to, total, mask=(k < K)[:, None] & (d < D)[None, :])
