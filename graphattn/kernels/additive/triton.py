# mypy: allow-incomplete-defs
"""Additive scores in Triton, with gradients.

A score is ``sum_d a[g, k, d] f(x[t, g, d] + y[s, g // group, d] + z[e, g, d])``. A program has a
row's edges, ``BE`` at a time, one group and all of its width ``BD``; f is tanh if ``SMOOTH``, else
a leaky ReLU of ``slope``. Halves are widened in registers. :mod:`.softmax.triton` says
how programs, nodes and edges are laid out.
"""

import triton
import triton.language as tl

from ..softmax.triton import edge_block, edge_row, program_rows, tanh


@triton.jit
def _numbers(X, at, SIZES: tl.constexpr):
    d = tl.arange(0, SIZES.BD)
    return tl.load(X + at + d, mask=d < SIZES.D, other=0.0)


@triton.jit
def _own(x, b, node, g, SIZES: tl.constexpr):
    """A node's row (BD,) of a group."""
    at = (b * x.batch + node * x.node + g * x.head) * SIZES.ALIGN
    return _numbers(x.data, at, SIZES).to(SIZES.WIDE)


@triton.jit
def _gathered(x, b, node, g, live, SIZES: tl.constexpr):
    """Rows (BE, BD) of nodes or edges (BE,)."""
    d = tl.arange(0, SIZES.BD)
    at = (b * x.batch + node * x.node + g * x.head) * SIZES.ALIGN
    mask = live[:, None] & (d < SIZES.D)[None, :]
    return tl.load(x.data + at[:, None] + d[None, :], mask=mask, other=0.0).to(SIZES.WIDE)


@triton.jit
def _active(row, nodes, b, other, edge, g, live, slope, SIZES: tl.constexpr):
    """``f(row + other + z)`` (BE, BD)."""
    total = row[None, :] + _gathered(nodes.other, b, other, g // SIZES.GROUP, live, SIZES)
    if nodes.edges is not None:
        total += _gathered(nodes.edges, b, edge, g, live, SIZES)
    if SIZES.SMOOTH:
        active = tanh(total).to(SIZES.WIDE)
    else:
        active = tl.where(total < 0, total * tl.full((1, 1), slope, SIZES.WIDE), total)
    return active


@triton.jit
def _has_gradient(grad, at, live, K: tl.constexpr):
    """True for edges with a gradient (BE,); others pass nothing, not even a NaN."""
    has_gradient = live & (at < 0)
    for k in range(0, K):
        has_gradient = has_gradient | (tl.load(grad + at + k, mask=live, other=0.0) != 0)
    return has_gradient


@triton.jit(do_not_specialize=["E", "batch"])
def scores(nodes, rows, out, E, batch, slope: tl.float64, SIZES: tl.constexpr):
    """``out`` (B, E, H, K), in the caller's order."""
    H: tl.constexpr = SIZES.H
    K: tl.constexpr = SIZES.K
    work = tl.program_id(0).to(tl.int64)
    b = (tl.program_id(1) // H + batch).to(tl.int64)
    g = tl.program_id(1) % H
    node, start, count = edge_row(rows, work)
    row = _own(nodes.own, b, node, g, SIZES)
    for i in range(0, count, SIZES.BE):
        live, _, edge, other = edge_block(rows, start, i, count, SIZES.BE)
        active = _active(row, nodes, b, other, edge, g, live, slope, SIZES)
        to = out + ((b * E + edge) * H + g) * K
        for k in range(0, K):
            weight = _numbers(nodes.weight, (g * K + k) * SIZES.D, SIZES)
            tl.store(to + k, tl.sum(active * weight[None, :], 1), mask=live)


@triton.jit(do_not_specialize=["E", "N", "batch"])
def passed_back(
    nodes, grad, rows, out, of_edges, acc, E, N, batch, slope: tl.float64, SIZES: tl.constexpr
):
    """The gradients from ``grad`` (B, E, G, K) of a row's node, for H groups, and of its edges.

    Each of a node's groups stands for ``MEMBERS`` of G, each of which reads group ``// GROUP`` of
    the other end. With ``acc`` (B, pieces, H, D) rows are pieces of hubs.
    """
    H: tl.constexpr = SIZES.H
    K: tl.constexpr = SIZES.K
    D: tl.constexpr = SIZES.D
    WIDE: tl.constexpr = SIZES.WIDE
    BD: tl.constexpr = SIZES.BD
    BE: tl.constexpr = SIZES.BE
    work = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BD)
    b = (tl.program_id(1) // H + batch).to(tl.int64)
    h = tl.program_id(1) % H
    node, start, count = edge_row(rows, work)
    row = _own(nodes.own, b, node, h, SIZES)
    total = tl.zeros((BD,), WIDE)
    groups: tl.constexpr = H * SIZES.MEMBERS
    for member in range(0, SIZES.MEMBERS):
        g = h * SIZES.MEMBERS + member
        for i in range(0, count, BE):
            live, _, edge, other = edge_block(rows, start, i, count, BE)
            at = ((b * E + edge) * groups + g) * K
            has_gradient = _has_gradient(grad, at, live, K)
            active = _active(row, nodes, b, other, edge, g, has_gradient, slope, SIZES)
            passed = tl.zeros((BE, BD), WIDE)
            for k in range(0, K):
                weight = _numbers(nodes.weight, (g * K + k) * D, SIZES)
                of_edge = tl.load(grad + at + k, mask=live, other=0.0)
                passed += of_edge[:, None] * weight[None, :]
            if SIZES.SMOOTH:
                passed = passed * (1.0 - active * active)
            else:
                passed = tl.where(active > 0, passed, passed * tl.full((1, 1), slope, WIDE))
            passed = tl.where(has_gradient[:, None], passed, 0.0)
            total += tl.sum(passed, 0)
            if of_edges is not None:
                to = of_edges + ((b * E + edge) * groups + g)[:, None] * D + d[None, :]
                tl.store(to, passed, mask=live[:, None] & (d < D)[None, :])
    if acc is not None:
        tl.store(acc + ((b * tl.num_programs(0) + work) * H + h) * D + d, total, mask=d < D)
    else:
        tl.store(out + ((b * N + node) * H + h) * D + d, total, mask=d < D)


@triton.jit(do_not_specialize=["E", "num_rows", "B", "batch"])
def to_weights(
    nodes, grad, rows, out, E, num_rows, B, batch, slope: tl.float64, SIZES: tl.constexpr
):
    """A program's share of the weights' gradient, ``out`` (programs, B, G, K, D) in float64.

    An axis of the grid counts H blocks: G groups, of each ``BLOCKS`` times ``BK`` of the weights.
    """
    H: tl.constexpr = SIZES.H
    K: tl.constexpr = SIZES.K
    D: tl.constexpr = SIZES.D
    BK: tl.constexpr = SIZES.BK
    BD: tl.constexpr = SIZES.BD
    program = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BD)
    b = (tl.program_id(1) // H + batch).to(tl.int64)
    block = tl.program_id(1) % H
    g = block // SIZES.BLOCKS
    k = block % SIZES.BLOCKS * BK + tl.arange(0, BK)
    groups: tl.constexpr = H // SIZES.BLOCKS
    total = tl.zeros((BK, BD), tl.float64)
    first, last = program_rows(num_rows)
    for work in range(first, last):
        node, start, count = edge_row(rows, work)
        row = _own(nodes.own, b, node, g, SIZES)
        part = tl.zeros((BK, BD), SIZES.WIDE)
        for i in range(0, count, SIZES.BE):
            live, _, edge, other = edge_block(rows, start, i, count, SIZES.BE)
            at = ((b * E + edge) * groups + g) * K
            has_gradient = _has_gradient(grad, at, live, K)
            active = _active(row, nodes, b, other, edge, g, has_gradient, slope, SIZES)
            active = tl.where(has_gradient[:, None], active, 0.0)
            of_edge = tl.load(
                grad + at[:, None] + k[None, :], mask=live[:, None] & (k < K)[None, :], other=0.0
            )
            part += tl.sum(of_edge[:, :, None] * active[:, None, :], 0)
        total += part.to(tl.float64)
    to = out + (((program * B + b) * groups + g) * K + k)[:, None] * D + d[None, :]
    tl.store(to, total, mask=(k < K)[:, None] & (d < D)[None, :])
