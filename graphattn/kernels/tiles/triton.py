# mypy: allow-incomplete-defs
"""Attention on tiles with compacted columns in Triton: products of gathered rows on tensor cores.

A program has the ``BT`` rows of a tile and one head. It gathers the tile's distinct columns, ``BC``
at a time, so that a row that several targets read is loaded once; which of them read it is a bit
of the column's word. Nothing is atomic, and every sum has its order. Nodes (B, N, H, D) are read
with their strides, in units of ``ALIGN`` numbers. Products are of numbers as they are stored, their
sums in the dtype ``WIDE``, float32 or float64.

Only a call with a bias or dropout looks up the edge of a bit: the bits of a row are its edges in
order, the first of which is ``tiles.edge[tiles.start[row]]``. Then that says where it stands in the
caller's order. Operands come as named tuples (:mod:`.gpu`), ``SIZES`` is what the compiler knows.
"""

import triton
import triton.language as tl

from ..softmax.triton import dropout_factor, store_lse, tanh


@triton.jit
def _gathered(x, b, node, h, mask, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SIZES: tl.constexpr):
    """Rows (n, BLOCK) of nodes (n,), 0 elsewhere."""
    at = (b * x.batch + node * x.node + h * x.head) * SIZES.ALIGN
    return _contiguous(x.data, at, mask, WIDTH, BLOCK)


@triton.jit
def _contiguous(X, at, mask, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
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
def _tile(tiles, batch, N, SIZES: tl.constexpr):
    """A program's part of the batch, its head, its rows (BT,), which there are, and its columns."""
    tile = (tl.program_id(0) // SIZES.H).to(tl.int64)
    h = (tl.program_id(0) % SIZES.H).to(tl.int64)
    b = (tl.program_id(1) + batch).to(tl.int64)
    node = tile * SIZES.BT + tl.arange(0, SIZES.BT)
    first = tl.load(tiles.ptr + tile)
    count = (tl.load(tiles.ptr + tile + 1) - first).to(tl.int32)
    return b, h, node, node < N, first, count


@triton.jit
def _columns(tiles, first, i, count, SIZES: tl.constexpr):
    """Columns (BC,), those that are some row's (BC,), and which rows have them (BT, BC)."""
    c = i + tl.arange(0, SIZES.BC)
    live = c < count
    place = tl.multiple_of(first, 16) + c
    word = tl.load(tiles.bits + place, mask=live, other=0)
    column = tl.load(tiles.column + place, mask=live, other=0).to(tl.int64)
    row = tl.arange(0, SIZES.BT).to(word.dtype)
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
def _biases(bias, b, edge, h, bit, other: tl.constexpr):
    at = b * bias.batch + edge * bias.node + h * bias.head
    return tl.load(bias.data + at, mask=bit, other=other)


@triton.jit
def _product(x, y, sums, SIZES: tl.constexpr):
    return tl.dot(x, y, sums, input_precision=SIZES.PRECISION, out_dtype=SIZES.WIDE)


@triton.jit
def _scores(x, y, scale, softcap, SIZES: tl.constexpr):
    """Scores of rows x (n, D) and y (m, D), and their slopes by the scaled product."""
    product = _product(x, tl.trans(y), None, SIZES)
    score = product * tl.full((1, 1), scale, SIZES.WIDE)
    slope = tl.full((1, 1), 1.0, SIZES.WIDE)
    if SIZES.CAPPED:
        cap = tl.full((1, 1), softcap, SIZES.WIDE)
        share = tanh(score / cap).to(SIZES.WIDE)
        score = cap * share
        slope = 1.0 - share * share
    return score, slope


@triton.jit(do_not_specialize=["T", "batch"])
def of_tiles(
    read,
    tiles,
    output,
    lse,
    T,
    batch,
    scale: tl.float64,
    softcap: tl.float64,
    threshold: tl.int64,
    factor: tl.float64,
    SIZES: tl.constexpr,
):
    """Softmax over each target's sources of ``softcap * tanh(scale * <q, k> / softcap) + bias``, times V.

    Output (B, T, H, DV) and lse (B, T, H); a target without a source has 0 and -inf.
    """
    BT: tl.constexpr = SIZES.BT
    WIDE: tl.constexpr = SIZES.WIDE
    BDV: tl.constexpr = SIZES.BDV
    b, h, t, on, first, count = _tile(tiles, batch, T, SIZES)
    q = _gathered(read.query, b, t, h, on, SIZES.D, SIZES.BD, SIZES)
    peak = tl.full((BT,), -float("inf"), WIDE)
    total = tl.zeros((BT,), WIDE)
    acc = tl.zeros((BT, BDV), WIDE)
    if tiles.edge is not None:
        place = tl.load(tiles.start + t, mask=on, other=0)
    for i in range(0, count, SIZES.BC):
        source, used, bit = _columns(tiles, first, i, count, SIZES)
        k = _gathered(read.key, b, source, h // SIZES.GROUP, used, SIZES.D, SIZES.BD, SIZES)
        v = _gathered(read.value, b, source, h // SIZES.GROUP, used, SIZES.DV, BDV, SIZES)
        score, _ = _scores(q, k, scale, softcap, SIZES)
        if tiles.edge is not None:
            edge, place = _edges(tiles.edge, place, bit)
        if read.bias is not None:
            score += _biases(read.bias, b, edge, h, bit, 0.0)
        score = tl.where(bit, score, -float("inf"))
        higher = tl.maximum(peak, tl.max(score, 1))
        level = tl.where(higher == -float("inf"), 0.0, higher)
        shrink = tl.exp(peak - level)
        weight = tl.exp(score - level[:, None])
        total = total * shrink + tl.sum(weight, 1)
        if read.seed is not None:
            weight *= dropout_factor(read.seed, b, edge, h, threshold, factor, WIDE)
        acc = _product(weight.to(v.dtype), v, acc * shrink[:, None], SIZES)
        peak = higher
    divisor = tl.where(total == 0, 1.0, total)
    row = (b * T + t) * SIZES.H + h
    store_lse(lse, row, peak, total, divisor, on)
    _stored(output, row * SIZES.DV, acc / divisor[:, None], on, SIZES.DV, BDV)


@triton.jit
def _weights(read, b, edge, h, bit, score, lse):
    """Weights of scores and which of them there are, given the lse of rows or of columns."""
    present = bit & (lse != -float("inf"))
    if read.bias is not None:
        bias = _biases(read.bias, b, edge, h, bit, -float("inf"))
        present = present & (bias != -float("inf"))
        score += bias
    return tl.where(present, tl.exp(score - lse), 0.0), present


@triton.jit(do_not_specialize=["T", "E", "batch"])
def of_targets(
    read,
    tiles,
    written,
    T,
    E,
    batch,
    scale: tl.float64,
    softcap: tl.float64,
    threshold: tl.int64,
    factor: tl.float64,
    SIZES: tl.constexpr,
):
    """The gradients of queries (B, T, H, D) and of the bias (B, E, H), from those of the results.

    ``written.delta`` (B, T, H) gets ``<go, out> - gl``, for :func:`of_sources`: a score's gradient
    is ``p (<go, v> - delta)``.
    """
    H: tl.constexpr = SIZES.H
    WIDE: tl.constexpr = SIZES.WIDE
    BT: tl.constexpr = SIZES.BT
    BD: tl.constexpr = SIZES.BD
    b, h, t, on, first, count = _tile(tiles, batch, T, SIZES)
    row = (b * T + t) * H + h
    q = _gathered(read.query, b, t, h, on, SIZES.D, BD, SIZES)
    go = _gathered(read.outer, b, t, h, on, SIZES.DV, SIZES.BDV, SIZES)
    out = _contiguous(read.output, row * SIZES.DV, on, SIZES.DV, SIZES.BDV)
    delta = tl.sum(go.to(WIDE) * out.to(WIDE), 1)
    if read.outer_lse is not None:
        delta -= tl.load(read.outer_lse + row, mask=on, other=0.0)
    tl.store(written.delta + row, delta, mask=on)
    lse = tl.load(read.lse + row, mask=on, other=0.0)
    acc = tl.zeros((BT, BD), WIDE)
    if tiles.edge is not None:
        place = tl.load(tiles.start + t, mask=on, other=0)
    for i in range(0, count, SIZES.BC):
        source, used, bit = _columns(tiles, first, i, count, SIZES)
        k = _gathered(read.key, b, source, h // SIZES.GROUP, used, SIZES.D, BD, SIZES)
        v = _gathered(read.value, b, source, h // SIZES.GROUP, used, SIZES.DV, SIZES.BDV, SIZES)
        score, slope = _scores(q, k, scale, softcap, SIZES)
        edge = None
        if tiles.edge is not None:
            edge, place = _edges(tiles.edge, place, bit)
        weight, present = _weights(read, b, edge, h, bit, score, lse[:, None])
        grad = _product(go, tl.trans(v), None, SIZES)
        if read.seed is not None:
            grad *= dropout_factor(read.seed, b, edge, h, threshold, factor, WIDE)
        grad = tl.where(present, weight * (grad - delta[:, None]), 0.0)
        if written.bias is not None:
            tl.store(written.bias + (b * E + edge) * H + h, grad, mask=bit)
        grad = tl.where(present, grad * slope, 0.0)
        acc = _product(grad.to(k.dtype), k, acc, SIZES)
    acc = acc * tl.full((1, 1), scale, WIDE)
    _stored(written.query, row * SIZES.D, acc, on, SIZES.D, BD)


@triton.jit(do_not_specialize=["T", "S", "batch"])
def of_sources(
    read,
    tiles,
    written,
    T,
    S,
    batch,
    scale: tl.float64,
    softcap: tl.float64,
    threshold: tl.int64,
    factor: tl.float64,
    SIZES: tl.constexpr,
):
    """The gradients of keys (B, S, H, D) and values (B, S, H, DV), for tiles of sources.

    ``H`` is the number of heads of keys, each of which ``GROUP`` heads of queries read, one after
    the other.
    """
    D: tl.constexpr = SIZES.D
    DV: tl.constexpr = SIZES.DV
    WIDE: tl.constexpr = SIZES.WIDE
    BT: tl.constexpr = SIZES.BT
    BD: tl.constexpr = SIZES.BD
    BDV: tl.constexpr = SIZES.BDV
    b, h, s, on, first, count = _tile(tiles, batch, S, SIZES)
    k = _gathered(read.key, b, s, h, on, D, BD, SIZES)
    v = _gathered(read.value, b, s, h, on, DV, BDV, SIZES)
    of_key = tl.zeros((BT, BD), WIDE)
    of_value = tl.zeros((BT, BDV), WIDE)
    for member in range(0, SIZES.GROUP):
        head = h * SIZES.GROUP + member
        if tiles.edge is not None:
            place = tl.load(tiles.start + s, mask=on, other=0)
        for i in range(0, count, SIZES.BC):
            t, used, bit = _columns(tiles, first, i, count, SIZES)
            q = _gathered(read.query, b, t, head, used, D, BD, SIZES)
            go = _gathered(read.outer, b, t, head, used, DV, BDV, SIZES)
            row = (b * T + t) * (SIZES.H * SIZES.GROUP) + head
            lse = tl.load(read.lse + row, mask=used, other=0.0)
            delta = tl.load(written.delta + row, mask=used, other=0.0)
            score, slope = _scores(k, q, scale, softcap, SIZES)
            edge = None
            if tiles.edge is not None:
                edge, place = _edges(tiles.edge, place, bit)
            weight, present = _weights(read, b, edge, head, bit, score, lse[None, :])
            grad = _product(v, tl.trans(go), None, SIZES)
            passed = weight
            if read.seed is not None:
                kept = dropout_factor(read.seed, b, edge, head, threshold, factor, WIDE)
                passed = weight * kept
                grad *= kept
            of_value = _product(passed.to(go.dtype), go, of_value, SIZES)
            grad = tl.where(present, weight * (grad - delta[None, :]) * slope, 0.0)
            of_key = _product(grad.to(q.dtype), q, of_key, SIZES)
    of_key = of_key * tl.full((1, 1), scale, WIDE)
    row = (b * S + s) * SIZES.H + h
    _stored(written.key, row * D, of_key, on, D, BD)
    _stored(written.value, row * DV, of_value, on, DV, BDV)
