# mypy: allow-incomplete-defs
"""Products and sums over edges in Triton, and what attention's backward makes of them.

:mod:`.softmax.triton` says how programs, nodes and edges are laid out.
"""

import triton
import triton.language as tl

from .triton import (
    _bias,
    _dropout_factor,
    _expanded,
    _features,
    _heads,
    _node,
    _row,
    _rows,
    _store_node,
    _tanh,
)


@triton.jit(do_not_specialize=["E", "batch", "rows", "each"])
def edge_products(
    X, Y, NODE, START, STOP, INDEX, EDGE, OUT, E, batch, rows, each, x_b, x_n, x_h, y_b, y_n, y_h,
    H: tl.constexpr, D: tl.constexpr, GROUP: tl.constexpr, ALIGN: tl.constexpr,
    BE: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """``<x[b, t, h], y[b, s, h // GROUP]>`` of every edge."""
    b, h, on = _heads(batch, H, BH)
    e = tl.arange(0, BE)
    first = tl.program_id(0).to(tl.int64) * each
    for work in range(first, tl.minimum(first + each, rows)):
        node, start, count = _row(NODE, START, STOP, work)
        x = _node(X, (b * x_b + node * x_n) * ALIGN, h * x_h * ALIGN, on, D, BD, WIDE)
        for i in range(0, count, BE):
            live = i + e < count
            mask = live[:, None] & on[None, :]
            edge = tl.load(EDGE + start + i + e, mask=live, other=0).to(tl.int64)
            other = tl.load(INDEX + start + i + e, mask=live, other=0).to(tl.int64)
            y = _rows(Y, (b * y_b + other * y_n) * ALIGN, h // GROUP * y_h * ALIGN, mask, D, BD).to(
                WIDE
            )
            tl.store(
                OUT + (b * E + edge)[:, None] * H + h[None, :],
                tl.sum(x[None, :, :] * y, 2),
                mask=mask,
            )


@triton.jit(do_not_specialize=["E", "N", "batch", "rows", "each"])
def edge_sums(
    WEIGHT, X, REMOVED, NODE, START, STOP, INDEX, EDGE, OUT, ACC, E, N, batch, rows, each, x_b, x_n, x_h, removed_b,
    H: tl.constexpr, D: tl.constexpr, GROUP: tl.constexpr, SUMMED: tl.constexpr, PIECE: tl.constexpr,
    ALIGN: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """``sum WEIGHT[b, edge, h] * x[b, index, h // GROUP]`` over a row's edges, (B, N, H, D).

    If ``SUMMED`` the sum over a group's heads as well, ``WEIGHT[b, edge, h'] * x[b, index, h']``
    with ``h = h' // GROUP``. Edges that are REMOVED (1 or B, E, heads) pass not even a NaN.
    """
    b, h, on = _heads(batch, H, BH)
    e = tl.arange(0, BE)
    first = tl.program_id(0).to(tl.int64) * each
    for work in range(first, tl.minimum(first + each, rows)):
        node, start, count = _row(NODE, START, STOP, work)
        acc = tl.zeros((BH, BD), WIDE)
        heads: tl.constexpr = H * GROUP if SUMMED else H
        for member in range(0, GROUP if SUMMED else 1):
            if SUMMED:
                of_weight = h * GROUP + member
                of_x = of_weight
            else:
                of_weight = h
                of_x = h // GROUP
            for i in range(0, count, BE):
                live = i + e < count
                mask = live[:, None] & on[None, :]
                edge = tl.load(EDGE + start + i + e, mask=live, other=0).to(tl.int64)
                other = tl.load(INDEX + start + i + e, mask=live, other=0).to(tl.int64)
                at = edge[:, None] * heads + of_weight[None, :]
                weight = tl.load(WEIGHT + b * E * heads + at, mask=mask, other=0.0)
                if REMOVED is not None:
                    mask = mask & (tl.load(REMOVED + b * removed_b + at, mask=mask, other=1) == 0)
                    weight = tl.where(mask, weight, 0.0)
                x = _rows(X, (b * x_b + other * x_n) * ALIGN, of_x * x_h * ALIGN, mask, D, BD).to(
                    WIDE
                )
                acc += tl.sum(weight[:, :, None] * x, 0)
        if PIECE:
            _store_node(ACC, (b * rows + work) * H * D, h * D, acc, on, D, BD)
        else:
            _store_node(OUT, (b * N + node) * H * D, h * D, acc, on, D, BD)


@triton.jit(do_not_specialize=["T", "E", "batch", "hubs", "rows", "each"])
def backward(
    Q, K, V, BIAS, ATTR, ATTR_Q, PROJECTION, SEED, NODE, START, STOP, INDEX, EDGE,
    P, GO, GA, GL, GAO, GQ, G_BIAS, G_ATTR, G_ATTR_Q, SHARE, WEIGHT, REMOVED, GQ_ACC, G_ATTR_ACC, DELTA, OWNER,
    T, E, batch, rows, each, hubs, q_b, q_n, q_h, k_b, k_n, k_h, v_b, v_n, v_h, go_b, go_n, go_h,
    bias_b, bias_e, bias_h, attr_b, attr_batches,
    scale: tl.float64, softcap: tl.float64, threshold: tl.int64, factor: tl.float64,
    H: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, F: tl.constexpr, GROUP: tl.constexpr, CAPPED: tl.constexpr,
    FIRST: tl.constexpr, SECOND: tl.constexpr, BY_EDGE: tl.constexpr,
    ALIGN: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, BDV: tl.constexpr, BF: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Gradients of a target and its edges, from those of output, weights, lse and feature sums.

    Two passes over the row, since a score's gradient ``p (g - delta)`` needs ``delta = sum p g`` of
    the whole row: the FIRST leaves ``g`` in SHARE (B, E, H) by place, the SECOND the gradient of
    each product there, and sums. For a hub's piece each is a launch of its own, and DELTA (B,
    pieces or hubs, H) goes between them; OWNER is a piece's hub. P lies by place, or ``BY_EDGE`` in
    the caller's order. G_ATTR (blocks, B, E, F) adds the program's heads alone. ATTR_Q and GAO are
    there if edge features join scores, and sums; G_ATTR_Q times PROJECTION is added to GQ. REMOVED
    (B, E, H) by place marks edges that pass nothing, so that not even a NaN comes of them.
    """
    b, h, on = _heads(batch, H, BH)
    e = tl.arange(0, BE)
    first = tl.program_id(0).to(tl.int64) * each
    for work in range(first, tl.minimum(first + each, rows)):
        t, start, count = _row(NODE, START, STOP, work)
        delta = tl.zeros((BH,), WIDE)
        row = (b * T + t) * H + h
        if V is not None:
            go = _node(GO, (b * go_b + t * go_n) * ALIGN, h * go_h * ALIGN, on, DV, BDV, WIDE)
        if GAO is not None:
            gao = _node(GAO, (b * T + t) * H * F, h * F, on, F, BF, WIDE)
        if ATTR_Q is not None:
            attr_q = _node(ATTR_Q, (b * T + t) * H * F, h * F, on, F, BF, WIDE)
        if FIRST:
            for i in range(0, count, BE):
                live = i + e < count
                place = start + i + e
                mask = live[:, None] & on[None, :]
                edge = tl.load(EDGE + place, mask=live, other=0).to(tl.int64)
                source = tl.load(INDEX + place, mask=live, other=0).to(tl.int64)
                present = mask
                if BIAS is not None:
                    present = mask & (
                        _bias(BIAS, b, bias_b, edge, bias_e, h, bias_h, mask) != -float("inf")
                    )
                grad = tl.zeros((BE, BH), WIDE)
                if V is not None:
                    v = _rows(
                        V,
                        (b * v_b + source * v_n) * ALIGN,
                        h // GROUP * v_h * ALIGN,
                        present,
                        DV,
                        BDV,
                    ).to(WIDE)
                    grad = tl.sum(go[None, :, :] * v, 2)
                if GAO is not None:
                    grad += tl.sum(
                        gao[None, :, :] * _features(ATTR, b * attr_b, edge, live, F, BF), 2
                    )
                if BIAS is not None:
                    grad = tl.where(present, grad, 0.0)
                if SEED is not None:
                    grad = grad * _dropout_factor(
                        SEED, b, edge[:, None], h[None, :], threshold, tl.full((1, 1), factor, WIDE)
                    )
                by_edge = (b * E + edge)[:, None] * H + h[None, :]
                by_place = (b * E + place)[:, None] * H + h[None, :]
                if GA is not None:
                    grad += tl.load(GA + by_edge, mask=mask, other=0.0)
                p = tl.load(P + (by_edge if BY_EDGE else by_place), mask=mask, other=0.0)
                delta += tl.sum(tl.where(mask, p * grad, 0.0), 0)
                tl.store(SHARE + by_place, grad, mask=mask)
        if FIRST and not SECOND:
            tl.store(DELTA + (b * rows + work) * H + h, delta, mask=on)
        if SECOND:
            if FIRST:
                tl.debug_barrier()  # other threads of the program may have written what is read here
            else:
                delta = tl.load(
                    DELTA + (b * hubs + tl.load(OWNER + work).to(tl.int64)) * H + h,
                    mask=on,
                    other=0.0,
                )
            shift = -delta
            if GL is not None:
                shift += tl.load(GL + row, mask=on, other=0.0)
            if K is not None:
                q = _node(Q, (b * q_b + t * q_n) * ALIGN, h * q_h * ALIGN, on, D, BD, WIDE)
                gq = tl.zeros((BH, BD), WIDE)
            if ATTR_Q is not None:
                g_attr_q = tl.zeros((BH, BF), WIDE)
            for i in range(0, count, BE):
                live = i + e < count
                place = start + i + e
                mask = live[:, None] & on[None, :]
                edge = tl.load(EDGE + place, mask=live, other=0).to(tl.int64)
                by_edge = (b * E + edge)[:, None] * H + h[None, :]
                by_place = (b * E + place)[:, None] * H + h[None, :]
                present = mask
                if BIAS is not None:
                    present = mask & (
                        _bias(BIAS, b, bias_b, edge, bias_e, h, bias_h, mask) != -float("inf")
                    )
                p = tl.load(P + (by_edge if BY_EDGE else by_place), mask=mask, other=0.0)
                grad = p * (tl.load(SHARE + by_place, mask=mask, other=0.0) + shift[None, :])
                tl.debug_barrier()  # several threads may hold one number: all read it before one writes
                if G_BIAS is not None:
                    tl.store(G_BIAS + by_edge, grad, mask=mask)
                if K is not None:
                    source = tl.load(INDEX + place, mask=live, other=0).to(tl.int64)
                    k = _rows(
                        K,
                        (b * k_b + source * k_n) * ALIGN,
                        h // GROUP * k_h * ALIGN,
                        present,
                        D,
                        BD,
                    ).to(WIDE)
                    grad = grad * tl.full((1, 1), scale, WIDE)
                    if ATTR is not None:
                        features = _features(ATTR, b * attr_b, edge, live, F, BF)
                    if CAPPED:
                        product = tl.sum(q[None, :, :] * k, 2)
                        if ATTR_Q is not None:
                            product += tl.sum(attr_q[None, :, :] * features, 2)
                        y = _tanh(
                            product * tl.full((1, 1), scale, WIDE) / tl.full((1, 1), softcap, WIDE)
                        ).to(WIDE)
                        grad = tl.where(mask, grad * (1.0 - y * y), 0.0)
                    if SEED is not None:
                        p = p * _dropout_factor(
                            SEED,
                            b,
                            edge[:, None],
                            h[None, :],
                            threshold,
                            tl.full((1, 1), factor, WIDE),
                        )
                    if WEIGHT is not None:
                        tl.store(WEIGHT + by_place, p, mask=mask)
                    if ATTR is not None:
                        f = tl.arange(0, BF)
                        g_attr = tl.zeros((BE, BF), WIDE)
                        if ATTR_Q is not None:
                            g_attr += tl.sum(grad[:, :, None] * attr_q[None, :, :], 1)
                            masked = tl.where(mask, grad, 0.0)
                            g_attr_q += tl.sum(masked[:, :, None] * features, 0)
                        if GAO is not None:
                            g_attr += tl.sum(p[:, :, None] * gao[None, :, :], 1)
                        at = (tl.program_id(1) % tl.cdiv(H, BH) * attr_batches + b) * E + edge
                        tl.store(
                            G_ATTR + at[:, None] * F + f[None, :],
                            g_attr,
                            mask=live[:, None] & (f < F)[None, :],
                        )
                    if REMOVED is not None:
                        tl.store(REMOVED + by_place, (grad == 0.0) & (p == 0.0), mask=mask)
                    gq += tl.sum(grad[:, :, None] * k, 0)
                    tl.store(SHARE + by_place, grad, mask=mask)
            if K is not None:
                at = (b * rows + work) * H
                row = (b * T + t) * H
                if ATTR_Q is not None:
                    if FIRST:
                        _store_node(G_ATTR_Q, row * F, h * F, g_attr_q, on, F, BF)
                        tl.debug_barrier()  # other threads of the program wrote what is read here
                        gq += _expanded(G_ATTR_Q, PROJECTION, row, h, on, D, F, BH, BD, WIDE)
                    else:
                        _store_node(G_ATTR_ACC, at * F, h * F, g_attr_q, on, F, BF)
                if FIRST:
                    _store_node(GQ, row * D, h * D, gq, on, D, BD)
                else:
                    _store_node(GQ_ACC, at * D, h * D, gq, on, D, BD)
