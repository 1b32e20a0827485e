# mypy: allow-incomplete-defs
"""Attention on tiles with compacted columns in Triton: products of gathered rows on tensor cores.

A program has the ``BT`` rows of a tile and one head. It gathers the tile's distinct columns, ``BC``
at a time, so that a row that several targets read is loaded once; which of them read it is a bit
of the column's word. Nothing is atomic, and every sum has its order. Nodes (B, N, H, D) are read
with their strides, in units of ``ALIGN`` numbers. Products are of numbers as they are stored, their
sums in the dtype ``WIDE``, float32 or float64.

Only a call with a bias or dropout looks up the edge of a bit: the bits of a row are its edges in
order, the first of which is ``EDGE[START[row]]``. Then ``EDGE`` says where it stands in the caller's
order.
"""

import triton
import triton.language as tl

from ..softmax.triton import _dropout_factor, _tanh


@triton.jit
def _gathered(X, at, mask, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows (n, BLOCK) of nodes from ``at`` (n,) on, 0 elsewhere."""
    d = tl.arange(0, BLOCK)
    inside = mask[:, None]
    if WIDTH != BLOCK:
        inside = inside & (d < WIDTH)[None, :]
    return tl.load(X + at[:, None] + d[None, :], mask=inside, other=0.0)


@triton.jit
def _stored(X, at, x, mask, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    d = tl.arange(0, BLOCK)
    inside = mask[:, None] & (d < WIDTH)[None, :]
    tl.store(X + at[:, None] + d[None, :], x.to(X.dtype.element_ty), mask=inside)


@triton.jit
def _columns(COLUMN, BITS, first, i, count, BT: tl.constexpr, BC: tl.constexpr):
    """Columns (BC,), those that are some row's (BC,), and which rows have them (BT, BC)."""
    c = i + tl.arange(0, BC)
    live = c < count
    place = tl.multiple_of(first, 16) + c
    word = tl.load(BITS + place, mask=live, other=0)
    column = tl.load(COLUMN + place, mask=live, other=0).to(tl.int64)
    row = tl.arange(0, BT).to(word.dtype)
    bit = ((word[None, :] >> row[:, None]) & 1) != 0
    return column, word != 0, bit


@triton.jit
def _edges(EDGE, place, bit):
    """The edge of each bit (BT, BC), and the place (BT,) of the next edge of each row."""
    ones = bit.to(tl.int32)
    before = tl.cumsum(ones, 1) - ones
    edge = tl.load(EDGE + place[:, None] + before, mask=bit, other=0).to(tl.int64)
    return edge, place + tl.sum(ones, 1)


@triton.jit
def _scores(
    x, y, scale, softcap, CAPPED: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr
):
    """Scores of rows x (n, D) and y (m, D), and their slopes by the scaled product."""
    product = tl.dot(x, tl.trans(y), input_precision=PRECISION, out_dtype=WIDE)
    score = product * tl.full((1, 1), scale, WIDE)
    slope = tl.full((1, 1), 1.0, WIDE)
    if CAPPED:
        cap = tl.full((1, 1), softcap, WIDE)
        share = _tanh(score / cap).to(WIDE)
        score = cap * share
        slope = 1.0 - share * share
    return score, slope


@triton.jit(do_not_specialize=["T", "batch"])
def of_tiles(
    Q, K, V, PTR, COLUMN, BITS, BIAS, SEED, START, EDGE, OUT, LSE, T, batch, q_b, q_n, q_h, k_b, k_n, k_h, v_b, v_n, v_h,
    bias_b, bias_e, bias_h, scale: tl.float64, softcap: tl.float64, threshold: tl.int64, factor: tl.float64,
    H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, CAPPED: tl.constexpr,
    ALIGN: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr, BDV: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Softmax over each target's sources of ``softcap * tanh(scale * <q, k> / softcap) + bias``, times V.

    OUT (B, T, H, DV) and LSE (B, T, H); a target without a source has 0 and -inf.
    """
    tile = (tl.program_id(0) // H).to(tl.int64)
    h = (tl.program_id(0) % H).to(tl.int64)
    b = (tl.program_id(1) + batch).to(tl.int64)
    t = tile * BT + tl.arange(0, BT)
    on = t < T
    q = _gathered(Q, (b * q_b + t * q_n + h * q_h) * ALIGN, on, D, BD)
    first = tl.load(PTR + tile)
    count = (tl.load(PTR + tile + 1) - first).to(tl.int32)
    peak = tl.full((BT,), -float("inf"), WIDE)
    total = tl.zeros((BT,), WIDE)
    acc = tl.zeros((BT, BDV), WIDE)
    if EDGE is not None:
        place = tl.load(START + t, mask=on, other=0)
    for i in range(0, count, BC):
        source, used, bit = _columns(COLUMN, BITS, first, i, count, BT, BC)
        k = _gathered(K, (b * k_b + source * k_n + h // GROUP * k_h) * ALIGN, used, D, BD)
        v = _gathered(V, (b * v_b + source * v_n + h // GROUP * v_h) * ALIGN, used, DV, BDV)
        score, _ = _scores(q, k, scale, softcap, CAPPED, WIDE, PRECISION)
        if EDGE is not None:
            edge, place = _edges(EDGE, place, bit)
        if BIAS is not None:
            at = b * bias_b + edge * bias_e + h * bias_h
            score += tl.load(BIAS + at, mask=bit, other=0.0)
        score = tl.where(bit, score, -float("inf"))
        higher = tl.maximum(peak, tl.max(score, 1))
        level = tl.where(higher == -float("inf"), 0.0, higher)
        shrink = tl.exp(peak - level)
        weight = tl.exp(score - level[:, None])
        total = total * shrink + tl.sum(weight, 1)
        if SEED is not None:
            weight *= _dropout_factor(SEED, b, edge, h, threshold, tl.full((1, 1), factor, WIDE))
        acc = acc * shrink[:, None]
        acc = tl.dot(weight.to(v.dtype), v, acc, input_precision=PRECISION, out_dtype=WIDE)
        peak = higher
    divisor = tl.where(total == 0, 1.0, total)
    row = (b * T + t) * H + h
    tl.store(LSE + row, tl.where(total == 0, -float("inf"), peak + tl.log(divisor)), mask=on)
    _stored(OUT, row * DV, acc / divisor[:, None], on, DV, BDV)


@triton.jit(do_not_specialize=["T", "E", "batch"])
def of_targets(
    Q, K, V, PTR, COLUMN, BITS, BIAS, SEED, START, EDGE, OUT, LSE, GO, GL, GQ, G_BIAS, DELTA, T, E, batch,
    q_b, q_n, q_h, k_b, k_n, k_h, v_b, v_n, v_h, go_b, go_n, go_h,
    bias_b, bias_e, bias_h, scale: tl.float64, softcap: tl.float64, threshold: tl.int64, factor: tl.float64,
    H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, CAPPED: tl.constexpr,
    ALIGN: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr, BDV: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients GQ (B, T, H, D) and G_BIAS (B, E, H), from GO (B, T, H, DV) and GL (B, T, H).

    DELTA (B, T, H) gets ``<go, out> - gl``, for :func:`of_sources`: a score's gradient is
    ``p (<go, v> - delta)``.
    """
    tile = (tl.program_id(0) // H).to(tl.int64)
    h = (tl.program_id(0) % H).to(tl.int64)
    b = (tl.program_id(1) + batch).to(tl.int64)
    t = tile * BT + tl.arange(0, BT)
    on = t < T
    row = (b * T + t) * H + h
    q = _gathered(Q, (b * q_b + t * q_n + h * q_h) * ALIGN, on, D, BD)
    go = _gathered(GO, (b * go_b + t * go_n + h * go_h) * ALIGN, on, DV, BDV)
    out = _gathered(OUT, row * DV, on, DV, BDV)
    delta = tl.sum(go.to(WIDE) * out.to(WIDE), 1)
    if GL is not None:
        delta -= tl.load(GL + row, mask=on, other=0.0)
    tl.store(DELTA + row, delta, mask=on)
    lse = tl.load(LSE + row, mask=on, other=0.0)
    first = tl.load(PTR + tile)
    count = (tl.load(PTR + tile + 1) - first).to(tl.int32)
    acc = tl.zeros((BT, BD), WIDE)
    if EDGE is not None:
        place = tl.load(START + t, mask=on, other=0)
    for i in range(0, count, BC):
        source, used, bit = _columns(COLUMN, BITS, first, i, count, BT, BC)
        k = _gathered(K, (b * k_b + source * k_n + h // GROUP * k_h) * ALIGN, used, D, BD)
        v = _gathered(V, (b * v_b + source * v_n + h // GROUP * v_h) * ALIGN, used, DV, BDV)
        score, slope = _scores(q, k, scale, softcap, CAPPED, WIDE, PRECISION)
        present = bit & (lse != -float("inf"))[:, None]
        if EDGE is not None:
            edge, place = _edges(EDGE, place, bit)
        if BIAS is not None:
            at = b * bias_b + edge * bias_e + h * bias_h
            bias = tl.load(BIAS + at, mask=bit, other=-float("inf"))
            present = present & (bias != -float("inf"))
            score += bias
        weight = tl.where(present, tl.exp(score - lse[:, None]), 0.0)
        grad = tl.dot(go, tl.trans(v), input_precision=PRECISION, out_dtype=WIDE)
        if SEED is not None:
            grad *= _dropout_factor(SEED, b, edge, h, threshold, tl.full((1, 1), factor, WIDE))
        grad = tl.where(present, weight * (grad - delta[:, None]), 0.0)
        if G_BIAS is not None:
            tl.store(G_BIAS + (b * E + edge) * H + h, grad, mask=bit)
        grad = tl.where(present, grad * slope, 0.0)
        acc = tl.dot(grad.to(k.dtype), k, acc, input_precision=PRECISION, out_dtype=WIDE)
    acc = acc * tl.full((1, 1), scale, WIDE)
    _stored(GQ, row * D, acc, on, D, BD)


@triton.jit(do_not_specialize=["T", "S", "batch"])
def of_sources(
    Q, K, V, PTR, COLUMN, BITS, BIAS, SEED, START, EDGE, LSE, GO, DELTA, GK, GV, T, S, batch,
    q_b, q_n, q_h, k_b, k_n, k_h, v_b, v_n, v_h, go_b, go_n, go_h,
    bias_b, bias_e, bias_h, scale: tl.float64, softcap: tl.float64, threshold: tl.int64, factor: tl.float64,
    H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, CAPPED: tl.constexpr,
    ALIGN: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr, BDV: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients GK (B, S, H, D) and GV (B, S, H, DV), for tiles of sources with their targets.

    ``H`` is the number of heads of keys, each of which ``GROUP`` heads of queries read, one after
    the other.
    """
    tile = (tl.program_id(0) // H).to(tl.int64)
    h = (tl.program_id(0) % H).to(tl.int64)
    b = (tl.program_id(1) + batch).to(tl.int64)
    s = tile * BT + tl.arange(0, BT)
    on = s < S
    k = _gathered(K, (b * k_b + s * k_n + h * k_h) * ALIGN, on, D, BD)
    v = _gathered(V, (b * v_b + s * v_n + h * v_h) * ALIGN, on, DV, BDV)
    first = tl.load(PTR + tile)
    count = (tl.load(PTR + tile + 1) - first).to(tl.int32)
    of_key = tl.zeros((BT, BD), WIDE)
    of_value = tl.zeros((BT, BDV), WIDE)
    for member in range(0, GROUP):
        head = h * GROUP + member
        if EDGE is not None:
            place = tl.load(START + s, mask=on, other=0)
        for i in range(0, count, BC):
            t, used, bit = _columns(COLUMN, BITS, first, i, count, BT, BC)
            q = _gathered(Q, (b * q_b + t * q_n + head * q_h) * ALIGN, used, D, BD)
            go = _gathered(GO, (b * go_b + t * go_n + head * go_h) * ALIGN, used, DV, BDV)
            row = (b * T + t) * (H * GROUP) + head
            lse = tl.load(LSE + row, mask=used, other=0.0)
            delta = tl.load(DELTA + row, mask=used, other=0.0)
            score, slope = _scores(k, q, scale, softcap, CAPPED, WIDE, PRECISION)
            present = bit & (lse != -float("inf"))[None, :]
            if EDGE is not None:
                edge, place = _edges(EDGE, place, bit)
            if BIAS is not None:
                at = b * bias_b + edge * bias_e + head * bias_h
                bias = tl.load(BIAS + at, mask=bit, other=-float("inf"))
                present = present & (bias != -float("inf"))
                score += bias
            weight = tl.where(present, tl.exp(score - lse[None, :]), 0.0)
            grad = tl.dot(v, tl.trans(go), input_precision=PRECISION, out_dtype=WIDE)
            passed = weight
            if SEED is not None:
                dropout_factor = _dropout_factor(
                    SEED, b, edge, head, threshold, tl.full((1, 1), factor, WIDE)
                )
                passed = weight * dropout_factor
                grad *= dropout_factor
            of_value = tl.dot(
                passed.to(go.dtype), go, of_value, input_precision=PRECISION, out_dtype=WIDE
            )
            grad = tl.where(present, weight * (grad - delta[None, :]) * slope, 0.0)
            of_key = tl.dot(grad.to(q.dtype), q, of_key, input_precision=PRECISION, out_dtype=WIDE)
    of_key = of_key * tl.full((1, 1), scale, WIDE)
    row = (b * S + s) * H + h
    _stored(GK, row * D, of_key, on, D, BD)
    _stored(GV, row * DV, of_value, on, DV, BDV)
