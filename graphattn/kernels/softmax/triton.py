# mypy: allow-incomplete-defs
"""Fused attention over edges in Triton: one program for some rows of edges and some heads.

Nothing of shape (E, H, D) is held. A program walks ``each`` of the ``rows``, one after the other: of
a row the edges ``START .. STOP - 1`` of a target (or source) ``NODE``, ``BE`` at a time, all its
edges, or with ``PIECE`` some of a hub's, whose sums :func:`merge` adds up. It has ``BH`` heads, and
rows of ``BD`` (``BDV``, ``BF``) numbers, the powers of two from D (D_v, F) on. Nothing is atomic,
every sum has its order, and places in memory are 64-bit. A pointer that is None is a feature that
the call does not use.

Nodes (B, N, H, D) are read with their strides, in units of ``ALIGN`` numbers; a row of D numbers is
contiguous. Edges (B, E, H) are contiguous, in the caller's order (``EDGE`` says where an edge
stands in it), or where that says so by place. Sums are in the dtype ``WIDE``, float32 or float64;
the numbers of a call are float64 on their way here.
"""

import triton
import triton.language as tl


@triton.jit
def _tanh(x):
    """tanh in float64, by Kahan's exp(y) - 1; a float32 logarithm has no digits near 1."""
    y = -2.0 * tl.abs(x.to(tl.float64))
    power = tl.exp(y)
    level = tl.log(tl.where(power == 0.0, 1.0, power))
    less_one = tl.where(power == 1.0, y, (power - 1.0) * y / tl.where(level == 0.0, 1.0, level))
    less_one = tl.where(power < 1e-30, -1.0, less_one)
    return tl.where(x < 0, less_one, -less_one) / (2.0 + less_one)


@triton.jit
def _dropout_factor(SEED, b, edge, h, threshold, factor):
    """The dropout factors of weights, of edges and heads that broadcast: splitmix64 as on the CPU."""
    x = tl.load(SEED).to(tl.uint64) + b.to(tl.uint64) * 0xD6E8FEB86659FD93
    x = x + edge.to(tl.uint64) * 0x9E3779B97F4A7C15 + (h + 1).to(tl.uint64) * 0xC2B2AE3D27D4EB4F
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x = x ^ (x >> 31)
    return tl.where((x >> 11).to(tl.int64) < threshold, 0.0, factor)


@triton.jit
def _heads(batch, H: tl.constexpr, BH: tl.constexpr):
    """A program's part of the batch and its heads, and which of these there are."""
    blocks = tl.cdiv(H, BH)
    b = (tl.program_id(1) // blocks + batch).to(tl.int64)
    h = tl.program_id(1) % blocks * BH + tl.arange(0, BH).to(tl.int64)
    return b, h, h < H


@triton.jit
def _row(NODE, START, STOP, work):
    """The node of a row of edges, its first edge and their number."""
    start = tl.load(START + work).to(tl.int64)
    return tl.load(NODE + work).to(tl.int64), start, (tl.load(STOP + work) - start).to(tl.int32)


@triton.jit
def _rows(X, at, head, mask, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of nodes (BE, BH, BLOCK) from ``at`` (BE,) and ``head`` (BH,) on, 0 elsewhere."""
    d = tl.arange(0, BLOCK)
    mask = mask[:, :, None]
    if WIDTH != BLOCK:
        mask = mask & (d < WIDTH)[None, None, :]
    return tl.load(
        X + at[:, None, None] + head[None, :, None] + d[None, None, :], mask=mask, other=0.0
    )


@triton.jit
def _node(X, at, head, on, WIDTH: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """A node's rows (BH, BLOCK)."""
    d = tl.arange(0, BLOCK)
    mask = on[:, None] & (d < WIDTH)[None, :]
    return tl.load(X + at + head[:, None] + d[None, :], mask=mask, other=0.0).to(WIDE)


@triton.jit
def _store_node(X, at, head, x, on, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    d = tl.arange(0, BLOCK)
    tl.store(
        X + at + head[:, None] + d[None, :],
        x.to(X.dtype.element_ty),
        mask=on[:, None] & (d < WIDTH)[None, :],
    )


@triton.jit
def _bias(BIAS, b, bias_b, edge, bias_e, h, bias_h, mask):
    return tl.load(
        BIAS + b * bias_b + edge[:, None] * bias_e + h[None, :] * bias_h,
        mask=mask,
        other=-float("inf"),
    )


@triton.jit
def _features(ATTR, at, edge, live, F: tl.constexpr, BF: tl.constexpr):
    """(BE, 1, BF)."""
    f = tl.arange(0, BF)
    mask = live[:, None] & (f < F)[None, :]
    return tl.load(ATTR + at + edge[:, None] * F + f[None, :], mask=mask, other=0.0)[:, None, :]


@triton.jit
def _expanded(
    Y, W, row, h, on, D: tl.constexpr, F: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """``sum_f Y[row, h, f] W[h, f]`` (BH, BD), from rows of F numbers that lie in memory.

    W (H, F, D) is read by every program, from the caches.
    """
    d = tl.arange(0, BD)
    mask = on[:, None] & (d < D)[None, :]
    total = tl.zeros((BH, BD), WIDE)
    for f in tl.range(0, F, loop_unroll_factor=4):
        y = tl.load(Y + row * F + h * F + f, mask=on, other=0.0)
        w = tl.load(W + ((h * F + f) * D)[:, None] + d[None, :], mask=mask, other=0.0)
        total += y[:, None] * w.to(WIDE)
    return total


@triton.jit(do_not_specialize=["T", "E", "batch", "rows", "each"])
def forward(
    Q, K, V, BIAS, ATTR, ATTR_Q, WEIGHT, SEED, NODE, START, STOP, INDEX, EDGE,
    OUT, LSE, ALPHA, KEPT, ATTR_OUT, ACC, ATTR_ACC, PEAK, TOTAL,
    T, E, batch, rows, each, q_b, q_n, q_h, k_b, k_n, k_h, v_b, v_n, v_h, bias_b, bias_e, bias_h, attr_b,
    scale: tl.float64, softcap: tl.float64, threshold: tl.int64, factor: tl.float64,
    H: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, F: tl.constexpr, GROUP: tl.constexpr, CAPPED: tl.constexpr,
    PIECE: tl.constexpr, ALIGN: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, BDV: tl.constexpr,
    BF: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Softmax over a row's edges of ``softcap * tanh(scale * <q, k> / softcap) + bias``, times V.

    Without Q a score is its bias, without V there is no sum. Scores lie where weights come to lie,
    in ALPHA or by place in KEPT, until the row's last edge is known. Edge features ATTR join the
    scores with ATTR_Q, and the sums with ATTR_OUT, whose rows times WEIGHT are added to OUT.
    """
    b, h, on = _heads(batch, H, BH)
    e = tl.arange(0, BE)
    first = tl.program_id(0).to(tl.int64) * each
    for work in range(first, tl.minimum(first + each, rows)):
        t, start, count = _row(NODE, START, STOP, work)
        peak = tl.full((BH,), -float("inf"), WIDE)
        total = tl.zeros((BH,), WIDE)
        if Q is not None:
            q = _node(Q, (b * q_b + t * q_n) * ALIGN, h * q_h * ALIGN, on, D, BD, WIDE)
        if V is not None:
            acc = tl.zeros((BH, BDV), WIDE)
        SUMMED: tl.constexpr = ATTR_OUT is not None or ATTR_ACC is not None
        if ATTR_Q is not None:
            attr_q = _node(ATTR_Q, (b * T + t) * H * F, h * F, on, F, BF, WIDE)
        if SUMMED:
            attr_acc = tl.zeros((BH, BF), WIDE)
        for i in range(0, count, BE):
            live = i + e < count
            place = start + i + e
            mask = live[:, None] & on[None, :]
            edge = tl.load(EDGE + place, mask=live, other=0).to(tl.int64)
            source = tl.load(INDEX + place, mask=live, other=0).to(tl.int64)
            score = tl.zeros((BE, BH), WIDE)
            if BIAS is not None:
                bias = _bias(BIAS, b, bias_b, edge, bias_e, h, bias_h, mask)
                mask = mask & (bias != -float("inf"))
            if Q is not None:
                k = _rows(
                    K, (b * k_b + source * k_n) * ALIGN, h // GROUP * k_h * ALIGN, mask, D, BD
                ).to(WIDE)
                score = tl.sum(q[None, :, :] * k, 2)
            if ATTR is not None:
                features = _features(ATTR, b * attr_b, edge, live, F, BF)
            if ATTR_Q is not None:
                score += tl.sum(attr_q[None, :, :] * features, 2)
            score = score * tl.full((1, 1), scale, WIDE)
            if CAPPED:
                cap = tl.full((1, 1), softcap, WIDE)
                score = cap * _tanh(score / cap).to(WIDE)
            if BIAS is not None:
                score += bias
            score = tl.where(mask, score, -float("inf"))
            if KEPT is not None:
                tl.store(
                    KEPT + (b * E + place)[:, None] * H + h[None, :],
                    score,
                    mask=live[:, None] & on[None, :],
                )
            elif ALPHA is not None:
                tl.store(
                    ALPHA + (b * E + edge)[:, None] * H + h[None, :],
                    score,
                    mask=live[:, None] & on[None, :],
                )
            higher = tl.maximum(peak, tl.max(score, 0))
            level = tl.where(higher == -float("inf"), 0.0, higher)
            shrink = tl.exp(peak - level)
            weight = tl.exp(score - level[None, :])
            total = total * shrink + tl.sum(weight, 0)
            peak = higher
            if SEED is not None:
                weight = weight * _dropout_factor(
                    SEED, b, edge[:, None], h[None, :], threshold, tl.full((1, 1), factor, WIDE)
                )
            if V is not None:
                v = _rows(
                    V, (b * v_b + source * v_n) * ALIGN, h // GROUP * v_h * ALIGN, mask, DV, BDV
                ).to(WIDE)
                acc = acc * shrink[:, None] + tl.sum(weight[:, :, None] * v, 0)
            if SUMMED:
                attr_acc = attr_acc * shrink[:, None] + tl.sum(weight[:, :, None] * features, 0)
        if PIECE:
            at = (b * rows + work) * H
            tl.store(PEAK + at + h, peak, mask=on)
            tl.store(TOTAL + at + h, total, mask=on)
            if V is not None:
                _store_node(ACC, at * DV, h * DV, acc, on, DV, BDV)
            if ATTR_ACC is not None:
                _store_node(ATTR_ACC, at * F, h * F, attr_acc, on, F, BF)
        else:
            divisor = tl.where(total == 0, 1.0, total)
            if LSE is not None:
                log = tl.log(divisor)
                tl.store(
                    LSE + (b * T + t) * H + h,
                    tl.where(total == 0, -float("inf"), peak + log),
                    mask=on,
                )
            row = (b * T + t) * H
            if ATTR_OUT is not None:
                _store_node(ATTR_OUT, row * F, h * F, attr_acc / divisor[:, None], on, F, BF)
            if V is not None:
                acc = acc / divisor[:, None]
                if ATTR_OUT is not None:
                    tl.debug_barrier()  # other threads of the program wrote what is read here
                    acc += _expanded(ATTR_OUT, WEIGHT, row, h, on, DV, F, BH, BDV, WIDE)
                _store_node(OUT, row * DV, h * DV, acc, on, DV, BDV)
            _weights(ALPHA, KEPT, EDGE, b * E, start, count, h, on, peak, divisor, H, BE)


@triton.jit
def _weights(
    ALPHA, KEPT, EDGE, first, start, count, h, on, peak, total, H: tl.constexpr, BE: tl.constexpr
):
    """Scores of a row, where :func:`forward` left them, become weights."""
    if KEPT is not None or ALPHA is not None:
        e = tl.arange(0, BE)
        level = tl.where(peak == -float("inf"), 0.0, peak)
        tl.debug_barrier()  # other threads of the program may have written what is read here
        for i in range(0, count, BE):
            live = i + e < count
            mask = live[:, None] & on[None, :]
            place = first + start + i + e
            by_place = place[:, None] * H + h[None, :]
            if ALPHA is not None:
                edge = first + tl.load(EDGE + start + i + e, mask=live, other=0).to(tl.int64)
                by_edge = edge[:, None] * H + h[None, :]
            if KEPT is not None:
                score = tl.load(KEPT + by_place, mask=mask, other=0.0)
                # several threads may hold one number: all read it before one writes
                tl.debug_barrier()
                weight = tl.exp(score - level[None, :]) / total[None, :]
                tl.store(KEPT + by_place, weight, mask=mask)
                if ALPHA is not None:
                    tl.store(ALPHA + by_edge, weight, mask=mask)
            else:
                score = tl.load(ALPHA + by_edge, mask=mask, other=0.0)
                tl.debug_barrier()
                weight = tl.exp(score - level[None, :]) / total[None, :]
                tl.store(ALPHA + by_edge, weight, mask=mask)


@triton.jit(do_not_specialize=["E", "batch", "hubs"])
def hub_weights(
    ALPHA, KEPT, EDGE, START, STOP, OWNER, PEAK, TOTAL, E, batch, hubs,
    H: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr,
):  # fmt: skip
    """Scores of a piece become weights, given its hub's peak and total (B, hubs, H)."""
    work = tl.program_id(0).to(tl.int64)
    b, h, on = _heads(batch, H, BH)
    start = tl.load(START + work).to(tl.int64)
    count = (tl.load(STOP + work) - start).to(tl.int32)
    at = (b * hubs + tl.load(OWNER + work).to(tl.int64)) * H + h
    peak = tl.load(PEAK + at, mask=on, other=0.0)
    total = tl.load(TOTAL + at, mask=on, other=1.0)
    _weights(
        ALPHA, KEPT, EDGE, b * E, start, count, h, on, peak, tl.where(total == 0, 1.0, total), H, BE
    )


@triton.jit(do_not_specialize=["N", "pieces", "batch"])
def merge(
    ACC, PEAK, TOTAL, ATTR_OUT, WEIGHT, NODE, FIRST, OUT, LSE, HUB_PEAK, HUB_TOTAL, N, pieces, batch,
    H: tl.constexpr, D: tl.constexpr, F: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The sums ACC (B, pieces, H, D) of a hub's pieces into OUT (B, N, H, D).

    Its pieces are ``FIRST[hub] .. FIRST[hub + 1] - 1``.

    With PEAK and TOTAL, those of softmax: sums that belong to other peaks are scaled to the highest
    one. With ATTR_OUT (B, N, H, F), its row times WEIGHT is added.
    """
    hub = tl.program_id(0).to(tl.int64)
    b, h, on = _heads(batch, H, BH)
    e = tl.arange(0, BE)
    node = tl.load(NODE + hub).to(tl.int64)
    start = tl.load(FIRST + hub).to(tl.int64)
    count = (tl.load(FIRST + hub + 1) - start).to(tl.int32)
    peak = tl.full((BH,), -float("inf"), WIDE)
    total = tl.zeros((BH,), WIDE)
    if PEAK is not None:
        for i in range(0, count, BE):
            at = (b * pieces + start + i + e)[:, None] * H + h[None, :]
            mask = (i + e < count)[:, None] & on[None, :]
            peak = tl.maximum(peak, tl.max(tl.load(PEAK + at, mask=mask, other=-float("inf")), 0))
    level = tl.where(peak == -float("inf"), 0.0, peak)
    if ACC is not None:
        acc = tl.zeros((BH, BD), WIDE)
    for i in range(0, count, BE):
        piece = b * pieces + start + i + e
        mask = (i + e < count)[:, None] & on[None, :]
        at = piece[:, None] * H + h[None, :]
        share = tl.full((BE, BH), 1.0, WIDE)
        if PEAK is not None:
            share = tl.exp(tl.load(PEAK + at, mask=mask, other=-float("inf")) - level[None, :])
            total += tl.sum(share * tl.load(TOTAL + at, mask=mask, other=0.0), 0)
        if ACC is not None:
            acc += tl.sum(share[:, :, None] * _rows(ACC, piece * H * D, h * D, mask, D, BD), 0)
    divisor = tl.where(total == 0, 1.0, total)
    if HUB_PEAK is not None:
        at = (b * tl.num_programs(0) + hub) * H + h
        tl.store(HUB_PEAK + at, peak, mask=on)
        tl.store(HUB_TOTAL + at, total, mask=on)
    if LSE is not None:
        log = tl.log(divisor)
        tl.store(
            LSE + (b * N + node) * H + h, tl.where(total == 0, -float("inf"), peak + log), mask=on
        )
    if ACC is not None:
        row = (b * N + node) * H
        acc = acc / divisor[:, None]
        if ATTR_OUT is not None:
            acc += _expanded(ATTR_OUT, WEIGHT, row, h, on, D, F, BH, BD, WIDE)
        _store_node(OUT, row * D, h * D, acc, on, D, BD)
