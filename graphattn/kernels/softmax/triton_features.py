# mypy: allow-incomplete-defs
"""Projections of edge features in Triton, on the tensor cores: one head of a run of nodes a program.

``<q, W a> = <W' q, a>``: a kernel over edges multiplies features ``a`` of F numbers by the queries
``W' q``, and sums them by weight, ``W sum p a = sum p W a``; nothing of D numbers an edge exists.
Halves are multiplied as halves, and float32 in three products of tf32; all sums are WIDE.
"""

import triton
import triton.language as tl


@triton.jit
def _dot(x, y, sums, WIDE: tl.constexpr, PRECISION: tl.constexpr):
    """``sums + x @ y``, of the dtypes that come if they are one."""
    if x.dtype != y.dtype:
        x = x.to(WIDE)
        y = y.to(WIDE)
    return tl.dot(x, y, sums, input_precision=PRECISION, out_dtype=WIDE)


@triton.jit
def _block(X, rows, columns, live, WIDTH: tl.constexpr):
    """A matrix at ``rows`` and ``columns``, 0 outside."""
    mask = live[:, None] & (columns < WIDTH)[None, :]
    return tl.load(X + rows[:, None] + columns[None, :], mask=mask, other=0.0)


@triton.jit
def _weights(W, h, d, f, D: tl.constexpr, F: tl.constexpr):
    """A head's weights at ``d`` and ``f``, 0 outside."""
    mask = (d < D)[:, None] & (f < F)[None, :]
    return tl.load(W + (h * F + f)[None, :] * D + d[:, None], mask=mask, other=0.0)


@triton.jit(do_not_specialize=["T", "tiles", "batch"])
def project(x, weight, y, z, sums, T, tiles, batch, SIZES: tl.constexpr):
    """``y[b, t, h] = weight[h] x[b, t, h]``, and in sums each program's ``sum_t x[t] z[t]'``.

    x is (B, T, H, D), weight (H, F, D), y and z (B, T, H, F), sums (B, programs of T, H, D, F). A
    program has ``tiles`` runs of BT nodes, a block of F, and for sums alone a block of D: with y it
    walks all of D, so that both are asked at once where D is one block.
    """
    H: tl.constexpr = SIZES.H
    D: tl.constexpr = SIZES.D
    F: tl.constexpr = SIZES.F
    BD: tl.constexpr = SIZES.BD
    BF: tl.constexpr = SIZES.BF
    WIDE: tl.constexpr = SIZES.WIDE
    PRECISION: tl.constexpr = SIZES.PRECISION
    BT: tl.constexpr = SIZES.BT
    part = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    f = block % SIZES.F_BLOCKS * BF + tl.arange(0, BF)
    block = block // SIZES.F_BLOCKS
    d = block % SIZES.D_BLOCKS * BD + tl.arange(0, BD)
    block = block // SIZES.D_BLOCKS
    h = (block % H).to(tl.int64)
    b = (block // H + batch).to(tl.int64)
    nodes = x.data + (b * x.batch + h * x.head) * SIZES.ALIGN
    total = tl.zeros((BD, BF), WIDE)
    for tile in range(part * tiles, (part + 1) * tiles):
        t = tile * BT + tl.arange(0, BT).to(tl.int64)
        live = t < T
        of_features = ((b * T + t) * H + h) * F
        row = t * x.node * SIZES.ALIGN
        first_block = _block(nodes, row, d, live, D)
        if y is not None:
            product = tl.zeros((BT, BF), WIDE)
            product = _dot(first_block, _weights(weight, h, d, f, D, F), product, WIDE, PRECISION)
            for first in range(BD, D, BD):
                columns = first + tl.arange(0, BD)
                more = _block(nodes, row, columns, live, D)
                product = _dot(
                    more, _weights(weight, h, columns, f, D, F), product, WIDE, PRECISION
                )
            mask = live[:, None] & (f < F)[None, :]
            tl.store(y + of_features[:, None] + f[None, :], product, mask=mask)
        if z is not None:
            features = _block(z, of_features, f, live, F)
            total = _dot(tl.trans(first_block), features, total, WIDE, PRECISION)
    if z is not None:
        at = ((b * tl.num_programs(0) + part) * H + h) * D
        tl.store(
            sums + (at + d)[:, None] * F + f[None, :],
            total,
            mask=(d < D)[:, None] & (f < F)[None, :],
        )
