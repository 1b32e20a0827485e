# mypy: allow-incomplete-defs
"""Convolutions of cells in Triton: a product for each offset, whose rows are gathered inside it."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["T", "N"])
def products(
    X, WEIGHT, TABLE, OUT, T, N,
    K: tl.constexpr, C: tl.constexpr, O: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr, BO: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``sum_k WEIGHT[k] x[b, TABLE[k, t]]`` of a block of targets; an entry below 0 is no source.

    X (B, N, C), WEIGHT (K, O, C), TABLE (K, T), OUT (B, T, O).
    """
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    b = tl.program_id(2).to(tl.int64)
    acc = tl.zeros((BT, BO), WIDE)
    for k in range(0, K):
        source = tl.load(TABLE + k * T.to(tl.int64) + t, mask=t < T, other=-1).to(tl.int64)
        if tl.max(source, 0) >= 0:
            for first in range(0, C, BC):
                c = first + tl.arange(0, BC)
                x = tl.load(
                    X + (b * N + source)[:, None] * C + c[None, :],
                    mask=(source >= 0)[:, None] & (c < C)[None, :],
                    other=0.0,
                )
                weight = tl.load(
                    WEIGHT + (k * O + o)[None, :] * C + c[:, None],
                    mask=(o < O)[None, :] & (c < C)[:, None],
                    other=0.0,
                )
                acc = tl.dot(x, weight, acc, input_precision=PRECISION, out_dtype=WIDE)
    tl.store(
        OUT + (b * T + t)[:, None] * O + o[None, :], acc, mask=(t < T)[:, None] & (o < O)[None, :]
    )


@triton.jit(do_not_specialize=["B", "T", "N"])
def outer(
    Y, X, TARGET, SOURCE, PTR, OUT, B, T, N,
    C: tl.constexpr, O: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr, BO: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``sum y[b, t] x[b, s]'`` over a share of the edges of an offset and all b.

    Y (B, T, O), X (B, N, C); edges ``PTR[k] .. PTR[k + 1] - 1`` are those of offset k; OUT (shares,
    K, O, C).
    """
    k = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(C, BC)
    o = tl.program_id(1) // blocks * BO + tl.arange(0, BO)
    c = tl.program_id(1) % blocks * BC + tl.arange(0, BC)
    share = tl.program_id(2).to(tl.int64)
    start = tl.load(PTR + k)
    stop = tl.load(PTR + k + 1)
    size = tl.cdiv(tl.cdiv(stop - start, tl.num_programs(2)), BE) * BE
    first = start + share * size
    count = (tl.minimum(first + size, stop) - first).to(tl.int32)
    e = tl.arange(0, BE)
    acc = tl.zeros((BO, BC), WIDE)
    for b in range(0, B):
        for i in range(0, count, BE):
            live = i + e < count
            target = tl.load(TARGET + first + i + e, mask=live, other=0).to(tl.int64)
            source = tl.load(SOURCE + first + i + e, mask=live, other=0).to(tl.int64)
            y = tl.load(
                Y + (b * T.to(tl.int64) + target)[None, :] * O + o[:, None],
                mask=live[None, :] & (o < O)[:, None],
                other=0.0,
            )
            x = tl.load(
                X + (b * N.to(tl.int64) + source)[:, None] * C + c[None, :],
                mask=live[:, None] & (c < C)[None, :],
                other=0.0,
            )
            acc = tl.dot(y, x, acc, input_precision=PRECISION, out_dtype=WIDE)
    at = (share * tl.num_programs(0) + k) * O * C
    tl.store(OUT + at + o[:, None] * C + c[None, :], acc, mask=(o < O)[:, None] & (c < C)[None, :])
