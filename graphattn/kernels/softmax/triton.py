# mypy: allow-incomplete-defs
"""Fused attention over edges in Triton: one program for some rows of edges and some heads.

Nothing of shape (E, H, D) is held. A program walks its share of the ``num_rows``, one after the
other: of a row the edges ``start .. stop - 1`` of a target (or source) ``node``, ``BE`` at a time,
all its edges, or some of a hub's, whose sums :func:`merge` adds up. It has ``BH`` heads, and rows of
``BD`` (``BDV``, ``BF``) numbers, the powers of two from D (D_v, F) on. Nothing is atomic,
every sum has its order, and places in memory are 64-bit. A pointer that is None is a feature that
the call does not use.

Operands come as named tuples (:mod:`..cuda.launches`, :mod:`.passes`): ``rows`` are the rows of
edges, ``SIZES`` what the compiler knows. Nodes (B, N, H, D) are read with their strides, in units of
``ALIGN`` numbers; a row of D numbers is contiguous. Edges (B, E, H) are contiguous, in the caller's
order (``rows.edge`` says where an edge stands in it), or where that says so by place. Sums are in
the dtype ``WIDE``, float32 or float64; the numbers of a call are float64 on their way here. Numbers
that differ from graph to graph are no part of a tuple, where the compiler would specialise them.
"""

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    """tanh in float64, by Kahan's exp(y) - 1; a float32 logarithm has no digits near 1."""
    y = -2.0 * tl.abs(x.to(tl.float64))
    power = tl.exp(y)
    level = tl.log(tl.where(power == 0.0, 1.0, power))
    less_one = tl.where(power == 1.0, y, (power - 1.0) * y / tl.where(level == 0.0, 1.0, level))
    less_one = tl.where(power < 1e-30, -1.0, less_one)
    return tl.where(x < 0, less_one, -less_one) / (2.0 + less_one)


@triton.jit
def dropout_factor(dropout_seed, b, edge, h, threshold, factor, WIDE: tl.constexpr):
    """The dropout factors of weights, of edges and heads that broadcast: splitmix64 as on the CPU."""
    x = tl.load(dropout_seed).to(tl.uint64) + b.to(tl.uint64) * 0xD6E8FEB86659FD93
    x = x + edge.to(tl.uint64) * 0x9E3779B97F4A7C15 + (h + 1).to(tl.uint64) * 0xC2B2AE3D27D4EB4F
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x = x ^ (x >> 31)
    return tl.where((x >> 11).to(tl.int64) < threshold, 0.0, tl.full((1, 1), factor, WIDE))


@triton.jit
def program_heads(batch, SIZES: tl.constexpr):
    """A program's part of the batch and its heads, and which of these there are."""
    blocks = tl.cdiv(SIZES.H, SIZES.BH)
    b = (tl.program_id(1) // blocks + batch).to(tl.int64)
    h = tl.program_id(1) % blocks * SIZES.BH + tl.arange(0, SIZES.BH).to(tl.int64)
    return b, h, h < SIZES.H


@triton.jit
def program_rows(num_rows):
    """The first of a program's rows, and the one after its last."""
    first = tl.program_id(0).to(tl.int64) * num_rows // tl.num_programs(0)
    last = (tl.program_id(0) + 1).to(tl.int64) * num_rows // tl.num_programs(0)
    return first, last


@triton.jit
def edge_row(rows, work):
    """The node of a row of edges, its first edge and their number."""
    start = tl.load(rows.start + work).to(tl.int64)
    count = (tl.load(rows.stop + work) - start).to(tl.int32)
    return tl.load(rows.node + work).to(tl.int64), start, count


@triton.jit
def _places(start, i, count, BE: tl.constexpr):
    """Which of a row's edges ``i ..`` there are, and their places, (BE,)."""
    e = tl.arange(0, BE)
    return i + e < count, start + i + e


@triton.jit
def edge_block(rows, start, i, count, BE: tl.constexpr):
    """Which of a row's edges ``i ..`` there are, their places, numbers and other ends, (BE,)."""
    live, place = _places(start, i, count, BE)
    edge = tl.load(rows.edge + place, mask=live, other=0).to(tl.int64)
    other = tl.load(rows.other + place, mask=live, other=0).to(tl.int64)
    return live, place, edge, other


@triton.jit
def by_head(edge, h, H: tl.constexpr):
    """Places (BE, BH) of edges and heads in (B E, H)."""
    return edge[:, None] * H + h[None, :]


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
def gathered_nodes(
    x, b, node, h, mask, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SIZES: tl.constexpr
):
    """Rows (BE, BH, BLOCK) of nodes (BE,) and heads (BH,), 0 where the mask has none."""
    at = (b * x.batch + node * x.node) * SIZES.ALIGN
    return _rows(x.data, at, h * x.head * SIZES.ALIGN, mask, WIDTH, BLOCK).to(SIZES.WIDE)


@triton.jit
def node_rows(X, at, head, on, WIDTH: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """A node's rows (BH, BLOCK)."""
    d = tl.arange(0, BLOCK)
    mask = on[:, None] & (d < WIDTH)[None, :]
    return tl.load(X + at + head[:, None] + d[None, :], mask=mask, other=0.0).to(WIDE)


@triton.jit
def strided_node_rows(
    x, b, node, h, on, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SIZES: tl.constexpr
):
    """A node's rows (BH, BLOCK), read with strides."""
    at = (b * x.batch + node * x.node) * SIZES.ALIGN
    return node_rows(x.data, at, h * x.head * SIZES.ALIGN, on, WIDTH, BLOCK, SIZES.WIDE)


@triton.jit
def store_node_rows(X, at, head, x, on, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    d = tl.arange(0, BLOCK)
    tl.store(
        X + at + head[:, None] + d[None, :],
        x.to(X.dtype.element_ty),
        mask=on[:, None] & (d < WIDTH)[None, :],
    )


@triton.jit
def edge_bias(bias, b, edge, h, mask):
    """(BE, BH), -inf where there is none."""
    at = b * bias.batch + edge[:, None] * bias.node + h[None, :] * bias.head
    return tl.load(bias.data + at, mask=mask, other=-float("inf"))


@triton.jit
def edge_features(attr, b, edge, live, SIZES: tl.constexpr):
    """(BE, 1, BF)."""
    f = tl.arange(0, SIZES.BF)
    mask = live[:, None] & (f < SIZES.F)[None, :]
    at = b * attr.batch + edge[:, None] * SIZES.F + f[None, :]
    return tl.load(attr.data + at, mask=mask, other=0.0)[:, None, :]


@triton.jit
def expanded(Y, W, row, h, on, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SIZES: tl.constexpr):
    """``sum_f Y[row, h, f] W[h, f]`` (BH, BLOCK), from rows of F numbers that lie in memory.

    W (H, F, WIDTH) is read by every program, from the caches.
    """
    F: tl.constexpr = SIZES.F
    BH: tl.constexpr = SIZES.BH
    d = tl.arange(0, BLOCK)
    mask = on[:, None] & (d < WIDTH)[None, :]
    total = tl.zeros((BH, BLOCK), SIZES.WIDE)
    for f in tl.range(0, F, loop_unroll_factor=4):
        y = tl.load(Y + row * F + h * F + f, mask=on, other=0.0)
        w = tl.load(W + ((h * F + f) * WIDTH)[:, None] + d[None, :], mask=mask, other=0.0)
        total += y[:, None] * w.to(SIZES.WIDE)
    return total


@triton.jit
def store_lse(lse, at, peak, total, divisor, on):
    """The logarithm of a row's sum (BH,), -inf without an edge."""
    log = tl.log(divisor)
    tl.store(lse + at, tl.where(total == 0, -float("inf"), peak + log), mask=on)


@triton.jit(do_not_specialize=["T", "E", "batch", "num_rows"])
def forward(
    read,
    rows,
    written,
    T,
    E,
    batch,
    num_rows,
    scale: tl.float64,
    softcap: tl.float64,
    threshold: tl.int64,
    factor: tl.float64,
    SIZES: tl.constexpr,
):
    """Softmax over a row's edges of ``softcap * tanh(scale * <q, k> / softcap) + bias``, times V.

    Without ``read.query`` a score is its bias, without ``read.value`` there is no sum. Scores lie
    where weights come to lie, in ``written.alpha`` or by place in ``written.kept``, until the row's
    last edge is known. Edge features join the scores with ``read.queries``, and the sums with
    ``written.sums``, whose rows times ``read.weight`` are added to the output. With
    ``written.peak`` a row is a hub's piece, and sums go to its place.
    """
    H: tl.constexpr = SIZES.H
    F: tl.constexpr = SIZES.F
    DV: tl.constexpr = SIZES.DV
    BE: tl.constexpr = SIZES.BE
    BH: tl.constexpr = SIZES.BH
    WIDE: tl.constexpr = SIZES.WIDE
    BDV: tl.constexpr = SIZES.BDV
    BF: tl.constexpr = SIZES.BF
    b, h, on = program_heads(batch, SIZES)
    first, last = program_rows(num_rows)
    for work in range(first, last):
        t, start, count = edge_row(rows, work)
        row = (b * T + t) * H
        peak = tl.full((BH,), -float("inf"), WIDE)
        total = tl.zeros((BH,), WIDE)
        if read.query is not None:
            q = strided_node_rows(read.query, b, t, h, on, SIZES.D, SIZES.BD, SIZES)
        if read.value is not None:
            acc = tl.zeros((BH, BDV), WIDE)
        if read.queries is not None:
            attr_q = node_rows(read.queries, row * F, h * F, on, F, BF, WIDE)
        if written.sums is not None:
            attr_acc = tl.zeros((BH, BF), WIDE)
        for i in range(0, count, BE):
            live, place, edge, source = edge_block(rows, start, i, count, BE)
            here = live[:, None] & on[None, :]
            mask = here
            score = tl.zeros((BE, BH), WIDE)
            if read.bias is not None:
                bias = edge_bias(read.bias, b, edge, h, mask)
                mask = mask & (bias != -float("inf"))
            if read.query is not None:
                k = gathered_nodes(
                    read.key, b, source, h // SIZES.GROUP, mask, SIZES.D, SIZES.BD, SIZES
                )
                score = tl.sum(q[None, :, :] * k, 2)
            if read.attr is not None:
                features = edge_features(read.attr, b, edge, live, SIZES)
            if read.queries is not None:
                score += tl.sum(attr_q[None, :, :] * features, 2)
            score = score * tl.full((1, 1), scale, WIDE)
            if SIZES.CAPPED:
                cap = tl.full((1, 1), softcap, WIDE)
                score = cap * tanh(score / cap).to(WIDE)
            if read.bias is not None:
                score += bias
            score = tl.where(mask, score, -float("inf"))
            if written.kept is not None:
                tl.store(written.kept + by_head(b * E + place, h, H), score, mask=here)
            elif written.alpha is not None:
                tl.store(written.alpha + by_head(b * E + edge, h, H), score, mask=here)
            higher = tl.maximum(peak, tl.max(score, 0))
            level = tl.where(higher == -float("inf"), 0.0, higher)
            shrink = tl.exp(peak - level)
            weight = tl.exp(score - level[None, :])
            total = total * shrink + tl.sum(weight, 0)
            peak = higher
            if read.seed is not None:
                weight = weight * dropout_factor(
                    read.seed, b, edge[:, None], h[None, :], threshold, factor, WIDE
                )
            if read.value is not None:
                v = gathered_nodes(read.value, b, source, h // SIZES.GROUP, mask, DV, BDV, SIZES)
                acc = acc * shrink[:, None] + tl.sum(weight[:, :, None] * v, 0)
            if written.sums is not None:
                attr_acc = attr_acc * shrink[:, None] + tl.sum(weight[:, :, None] * features, 0)
        if written.peak is not None:
            at = (b * num_rows + work) * H
            tl.store(written.peak + at + h, peak, mask=on)
            tl.store(written.total + at + h, total, mask=on)
            if read.value is not None:
                store_node_rows(written.output, at * DV, h * DV, acc, on, DV, BDV)
            if written.sums is not None:
                store_node_rows(written.sums, at * F, h * F, attr_acc, on, F, BF)
        else:
            divisor = tl.where(total == 0, 1.0, total)
            if written.lse is not None:
                store_lse(written.lse, row + h, peak, total, divisor, on)
            if written.sums is not None:
                store_node_rows(
                    written.sums, row * F, h * F, attr_acc / divisor[:, None], on, F, BF
                )
            if read.value is not None:
                acc = acc / divisor[:, None]
                if written.sums is not None:
                    tl.debug_barrier()  # other threads of the program wrote what is read here
                    acc += expanded(written.sums, read.weight, row, h, on, DV, BDV, SIZES)
                store_node_rows(written.output, row * DV, h * DV, acc, on, DV, BDV)
            _weights(written, rows, b * E, start, count, h, on, peak, divisor, SIZES)


@triton.jit
def _weights(written, rows, first, start, count, h, on, peak, total, SIZES: tl.constexpr):
    """Scores of a row, where :func:`forward` left them, become weights."""
    if written.kept is not None or written.alpha is not None:
        level = tl.where(peak == -float("inf"), 0.0, peak)
        tl.debug_barrier()  # other threads of the program may have written what is read here
        for i in range(0, count, SIZES.BE):
            live, place = _places(start, i, count, SIZES.BE)
            mask = live[:, None] & on[None, :]
            by_place = by_head(first + place, h, SIZES.H)
            if written.alpha is not None:
                edge = tl.load(rows.edge + place, mask=live, other=0).to(tl.int64)
                by_edge = by_head(first + edge, h, SIZES.H)
            if written.kept is not None:
                score = tl.load(written.kept + by_place, mask=mask, other=0.0)
            else:
                score = tl.load(written.alpha + by_edge, mask=mask, other=0.0)
            # several threads may hold one number: all read it before one writes
            tl.debug_barrier()
            weight = tl.exp(score - level[None, :]) / total[None, :]
            if written.kept is not None:
                tl.store(written.kept + by_place, weight, mask=mask)
            if written.alpha is not None:
                tl.store(written.alpha + by_edge, weight, mask=mask)


@triton.jit(do_not_specialize=["E", "batch", "num_hubs"])
def hub_weights(rows, owner, hubs, written, E, batch, num_hubs, SIZES: tl.constexpr):
    """Scores of a piece become weights, given its hub's peak and total (B, hubs, H)."""
    work = tl.program_id(0).to(tl.int64)
    b, h, on = program_heads(batch, SIZES)
    _, start, count = edge_row(rows, work)
    at = (b * num_hubs + tl.load(owner + work).to(tl.int64)) * SIZES.H + h
    peak = tl.load(hubs.peak + at, mask=on, other=0.0)
    total = tl.load(hubs.total + at, mask=on, other=1.0)
    total = tl.where(total == 0, 1.0, total)
    _weights(written, rows, b * E, start, count, h, on, peak, total, SIZES)


@triton.jit(do_not_specialize=["N", "pieces", "batch"])
def merge(sums, features, node, first, written, N, pieces, batch, SIZES: tl.constexpr):
    """The sums (B, pieces, H, D) of a hub's pieces into ``written.output`` (B, N, H, D).

    Its pieces are ``first[hub] .. first[hub + 1] - 1``. With peak and total they are those of
    softmax: sums that belong to other peaks are scaled to the highest one. With ``features.sums``
    (B, N, H, F), its row times ``features.weight`` is added.
    """
    H: tl.constexpr = SIZES.H
    D: tl.constexpr = SIZES.D
    BE: tl.constexpr = SIZES.BE
    WIDE: tl.constexpr = SIZES.WIDE
    BH: tl.constexpr = SIZES.BH
    BD: tl.constexpr = SIZES.BD
    hub = tl.program_id(0).to(tl.int64)
    b, h, on = program_heads(batch, SIZES)
    e = tl.arange(0, BE)
    t = tl.load(node + hub).to(tl.int64)
    start = tl.load(first + hub).to(tl.int64)
    count = (tl.load(first + hub + 1) - start).to(tl.int32)
    peak = tl.full((BH,), -float("inf"), WIDE)
    total = tl.zeros((BH,), WIDE)
    if sums.peak is not None:
        for i in range(0, count, BE):
            at = by_head(b * pieces + start + i + e, h, H)
            mask = (i + e < count)[:, None] & on[None, :]
            peaks = tl.load(sums.peak + at, mask=mask, other=-float("inf"))
            peak = tl.maximum(peak, tl.max(peaks, 0))
    level = tl.where(peak == -float("inf"), 0.0, peak)
    if sums.output is not None:
        acc = tl.zeros((BH, BD), WIDE)
    for i in range(0, count, BE):
        piece = b * pieces + start + i + e
        mask = (i + e < count)[:, None] & on[None, :]
        at = by_head(piece, h, H)
        share = tl.full((BE, BH), 1.0, WIDE)
        if sums.peak is not None:
            share = tl.exp(tl.load(sums.peak + at, mask=mask, other=-float("inf")) - level[None, :])
            total += tl.sum(share * tl.load(sums.total + at, mask=mask, other=0.0), 0)
        if sums.output is not None:
            of_piece = _rows(sums.output, piece * H * D, h * D, mask, D, BD)
            acc += tl.sum(share[:, :, None] * of_piece, 0)
    divisor = tl.where(total == 0, 1.0, total)
    if written.peak is not None:
        at = (b * tl.num_programs(0) + hub) * H + h
        tl.store(written.peak + at, peak, mask=on)
        tl.store(written.total + at, total, mask=on)
    row = (b * N + t) * H
    if written.lse is not None:
        store_lse(written.lse, row + h, peak, total, divisor, on)
    if sums.output is not None:
        acc = acc / divisor[:, None]
        if features.sums is not None:
            acc += expanded(features.sums, features.weight, row, h, on, D, BD, SIZES)
        store_node_rows(written.output, row * D, h * D, acc, on, D, BD)
