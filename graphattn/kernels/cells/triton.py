# mypy: allow-incomplete-defs
"""Convolutions of cells in Triton: a product for each offset, whose rows are gathered inside it."""

import triton
import triton.language as tl


@triton.jit
def _block(X, row, column, live, WIDTH: tl.constexpr):
    """A matrix of rows and columns that broadcast, 0 outside."""
    return tl.load(X + row * WIDTH + column, mask=live & (column < WIDTH), other=0.0)


@triton.jit(do_not_specialize=["T", "N"])
def products(x, weight, table, out, T, N, SIZES: tl.constexpr):
    """``sum_k weight[k] x[b, table[k, t]]`` of a block of targets; an entry below 0 is no source.

    x (B, N, C), weight (K, O, C), table (K, T), out (B, T, O).
    """
    O: tl.constexpr = SIZES.O
    ROWS: tl.constexpr = SIZES.ROWS
    BO: tl.constexpr = SIZES.BO
    t = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    b = tl.program_id(2).to(tl.int64)
    acc = tl.zeros((ROWS, BO), SIZES.WIDE)
    for k in range(0, SIZES.K):
        source = tl.load(table + k * T.to(tl.int64) + t, mask=t < T, other=-1).to(tl.int64)
        if tl.max(source, 0) >= 0:
            for first in range(0, SIZES.C, SIZES.BC):
                c = first + tl.arange(0, SIZES.BC)
                row = (b * N + source)[:, None]
                rows = _block(x, row, c[None, :], (source >= 0)[:, None], SIZES.C)
                weights = _block(
                    weight, (k * O + o)[None, :], c[:, None], (o < O)[None, :], SIZES.C
                )
                acc = tl.dot(
                    rows, weights, acc, input_precision=SIZES.PRECISION, out_dtype=SIZES.WIDE
                )
    to = out + (b * T + t)[:, None] * O + o[None, :]
    tl.store(to, acc, mask=(t < T)[:, None] & (o < O)[None, :])


@triton.jit(do_not_specialize=["B", "T", "N"])
def outer(y, x, target, source, ptr, out, B, T, N, SIZES: tl.constexpr):
    """``sum y[b, t] x[b, s]'`` over a share of the edges of an offset and all b.

    y (B, T, O), x (B, N, C); edges ``ptr[k] .. ptr[k + 1] - 1`` are those of offset k; out (shares,
    K, O, C).
    """
    C: tl.constexpr = SIZES.C
    O: tl.constexpr = SIZES.O
    BE: tl.constexpr = SIZES.ROWS
    BO: tl.constexpr = SIZES.BO
    BC: tl.constexpr = SIZES.BC
    k = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(C, BC)
    o = tl.program_id(1) // blocks * BO + tl.arange(0, BO)
    c = tl.program_id(1) % blocks * BC + tl.arange(0, BC)
    share = tl.program_id(2).to(tl.int64)
    start = tl.load(ptr + k)
    stop = tl.load(ptr + k + 1)
    size = tl.cdiv(tl.cdiv(stop - start, tl.num_programs(2)), BE) * BE
    first = start + share * size
    count = (tl.minimum(first + size, stop) - first).to(tl.int32)
    e = tl.arange(0, BE)
    acc = tl.zeros((BO, BC), SIZES.WIDE)
    for b in range(0, B):
        for i in range(0, count, BE):
            live = i + e < count
            t = tl.load(target + first + i + e, mask=live, other=0).to(tl.int64)
            s = tl.load(source + first + i + e, mask=live, other=0).to(tl.int64)
            of_targets = (b * T.to(tl.int64) + t)[None, :]
            of_sources = (b * N.to(tl.int64) + s)[:, None]
            acc = tl.dot(
                _block(y, of_targets, o[:, None], live[None, :], O),
                _block(x, of_sources, c[None, :], live[:, None], C),
                acc,
                input_precision=SIZES.PRECISION,
                out_dtype=SIZES.WIDE,
            )
    at = (share * tl.num_programs(0) + k) * O * C
    tl.store(out + at + o[:, None] * C + c[None, :], acc, mask=(o < O)[:, None] & (c < C)[None, :])
