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
def project(
    X, W, Y, Z, SUMS, T, tiles, batch, x_b, x_n, x_h,
    H: tl.constexpr, D: tl.constexpr, F: tl.constexpr, ALIGN: tl.constexpr, D_BLOCKS: tl.constexpr,
    F_BLOCKS: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr, BF: tl.constexpr, WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """``Y[b, t, h] = W[h] X[b, t, h]``, and in SUMS each program's share of ``sum_t X[t] Z[t]'``.

    X is (B, T, H, D), W (H, F, D), Y and Z (B, T, H, F), SUMS (B, programs of T, H, D, F). A program
    has ``tiles`` runs of BT nodes, a block of F, and for SUMS alone a block of D: with Y it walks
    all of D, so that both are asked at once where D is one block.
    """
    part = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    f = block % F_BLOCKS * BF + tl.arange(0, BF)
    block = block // F_BLOCKS
    d = block % D_BLOCKS * BD + tl.arange(0, BD)
    block = block // D_BLOCKS
    h = (block % H).to(tl.int64)
    b = (block // H + batch).to(tl.int64)
    X += (b * x_b + h * x_h) * ALIGN
    sums = tl.zeros((BD, BF), WIDE)
    for tile in range(part * tiles, (part + 1) * tiles):
        t = tile * BT + tl.arange(0, BT).to(tl.int64)
        live = t < T
        of_features = ((b * T + t) * H + h) * F
        x = _block(X, t * x_n * ALIGN, d, live, D)
        if Y is not None:
            y = _dot(x, _weights(W, h, d, f, D, F), tl.zeros((BT, BF), WIDE), WIDE, PRECISION)
            for first in range(BD, D, BD):
                columns = first + tl.arange(0, BD)
                more = _block(X, t * x_n * ALIGN, columns, live, D)
                y = _dot(more, _weights(W, h, columns, f, D, F), y, WIDE, PRECISION)
            mask = live[:, None] & (f < F)[None, :]
            tl.store(Y + of_features[:, None] + f[None, :], y, mask=mask)
        if Z is not None:
            z = _block(Z, of_features, f, live, F)
            sums = _dot(tl.trans(x), z, sums, WIDE, PRECISION)
    if Z is not None:
        at = ((b * tl.num_programs(0) + part) * H + h) * D
        tl.store(
            SUMS + (at + d)[:, None] * F + f[None, :],
            sums,
            mask=(d < D)[:, None] & (f < F)[None, :],
        )
