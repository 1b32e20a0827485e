# mypy: allow-incomplete-defs
"""Products and sums over edges in Triton, and what attention's backward makes of them.

:mod:`.softmax.triton` says how programs, nodes and edges are laid out.
"""

import triton
import triton.language as tl

from .triton import (
    by_head,
    dropout_factor,
    edge_bias,
    edge_block,
    edge_features,
    edge_row,
    expanded,
    gathered_nodes,
    node_rows,
    program_heads,
    program_rows,
    store_node_rows,
    strided_node_rows,
    tanh,
)


@triton.jit(do_not_specialize=["E", "batch", "num_rows"])
def edge_products(x, y, rows, out, E, batch, num_rows, SIZES: tl.constexpr):
    """``<x[b, t, h], y[b, s, h // GROUP]>`` of every edge."""
    b, h, on = program_heads(batch, SIZES)
    first, last = program_rows(num_rows)
    for work in range(first, last):
        node, start, count = edge_row(rows, work)
        row = strided_node_rows(x, b, node, h, on, SIZES.D, SIZES.BD, SIZES)
        for i in range(0, count, SIZES.BE):
            live, _, edge, other = edge_block(rows, start, i, count, SIZES.BE)
            mask = live[:, None] & on[None, :]
            others = gathered_nodes(y, b, other, h // SIZES.GROUP, mask, SIZES.D, SIZES.BD, SIZES)
            product = tl.sum(row[None, :, :] * others, 2)
            tl.store(out + by_head(b * E + edge, h, SIZES.H), product, mask=mask)


@triton.jit(do_not_specialize=["E", "N", "batch", "num_rows"])
def edge_sums(weights, x, removed, rows, out, acc, E, N, batch, num_rows, SIZES: tl.constexpr):
    """``sum weights[b, edge, h] * x[b, index, h // GROUP]`` over a row's edges, (B, N, H, D).

    If ``SUMMED`` the sum over a group's heads as well, ``weights[b, edge, h'] * x[b, index, h']``
    with ``h = h' // GROUP``. Edges that are ``removed`` (1 or B, E, heads) pass not even a NaN. With
    ``acc`` (B, pieces, H, D) rows are pieces of hubs.
    """
    D: tl.constexpr = SIZES.D
    BH: tl.constexpr = SIZES.BH
    BD: tl.constexpr = SIZES.BD
    b, h, on = program_heads(batch, SIZES)
    heads: tl.constexpr = SIZES.H * SIZES.GROUP if SIZES.SUMMED else SIZES.H
    first, last = program_rows(num_rows)
    for work in range(first, last):
        node, start, count = edge_row(rows, work)
        total = tl.zeros((BH, BD), SIZES.WIDE)
        for member in range(0, SIZES.GROUP if SIZES.SUMMED else 1):
            if SIZES.SUMMED:
                of_weight = h * SIZES.GROUP + member
                of_x = of_weight
            else:
                of_weight = h
                of_x = h // SIZES.GROUP
            for i in range(0, count, SIZES.BE):
                live, _, edge, other = edge_block(rows, start, i, count, SIZES.BE)
                mask = live[:, None] & on[None, :]
                at = by_head(edge, of_weight, heads)
                weight = tl.load(weights + b * E * heads + at, mask=mask, other=0.0)
                if removed is not None:
                    is_removed = tl.load(removed.data + b * removed.batch + at, mask=mask, other=1)
                    mask = mask & (is_removed == 0)
                    weight = tl.where(mask, weight, 0.0)
                others = gathered_nodes(x, b, other, of_x, mask, D, BD, SIZES)
                total += tl.sum(weight[:, :, None] * others, 0)
        if acc is not None:
            store_node_rows(acc, (b * num_rows + work) * SIZES.H * D, h * D, total, on, D, BD)
        else:
            store_node_rows(out, (b * N + node) * SIZES.H * D, h * D, total, on, D, BD)


@triton.jit
def _present(bias, b, edge, h, mask):
    """The mask without the edges that a bias of -inf removes."""
    if bias is not None:
        mask = mask & (edge_bias(bias, b, edge, h, mask) != -float("inf"))
    return mask


@triton.jit
def _given_weights(read, by_edge, by_place, mask):
    """Weights (BE, BH), by place, or of given scores in the caller's order."""
    at = by_place
    if read.key is None:
        at = by_edge
    return tl.load(read.outer.weights + at, mask=mask, other=0.0)


@triton.jit(do_not_specialize=["T", "E", "batch", "num_rows"])
def backward(
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
    """Gradients of a target and its edges, from those of output, weights, lse and feature sums.

    Two passes over the row, since a score's gradient ``p (g - delta)`` needs ``delta = sum p g`` of
    the whole row: the first leaves ``g`` in ``written.share`` (B, E, H) by place, the second the
    gradient of each product there, and sums. For a hub's piece each is a launch of its own: the
    first has ``written.delta`` (B, pieces, H), the second ``read.outer.delta``, the hub's. Weights
    ``read.outer.weights`` lie by place, or without nodes in the caller's order. ``written.attr``
    (B, blocks, E, F) adds the program's heads alone; the gradient of ``queries`` times
    ``read.weight`` is added to that of nodes. ``written.removed`` (B, E, H) by place marks edges
    that pass nothing, so that not even a NaN comes of them.
    """
    H: tl.constexpr = SIZES.H
    D: tl.constexpr = SIZES.D
    F: tl.constexpr = SIZES.F
    BE: tl.constexpr = SIZES.BE
    BH: tl.constexpr = SIZES.BH
    BF: tl.constexpr = SIZES.BF
    WIDE: tl.constexpr = SIZES.WIDE
    BD: tl.constexpr = SIZES.BD
    b, h, on = program_heads(batch, SIZES)
    first, last = program_rows(num_rows)
    for work in range(first, last):
        t, start, count = edge_row(rows, work)
        delta = tl.zeros((BH,), WIDE)
        row = (b * T + t) * H
        of_row = (b * num_rows + work) * H
        if read.value is not None:
            go = strided_node_rows(read.outer.output, b, t, h, on, SIZES.DV, SIZES.BDV, SIZES)
        if read.outer.sums is not None:
            gao = node_rows(read.outer.sums, row * F, h * F, on, F, BF, WIDE)
        if read.queries is not None:
            attr_q = node_rows(read.queries, row * F, h * F, on, F, BF, WIDE)
        if read.outer.delta is None:
            for i in range(0, count, BE):
                live, place, edge, source = edge_block(rows, start, i, count, BE)
                mask = live[:, None] & on[None, :]
                present = _present(read.bias, b, edge, h, mask)
                grad = tl.zeros((BE, BH), WIDE)
                if read.value is not None:
                    v = gathered_nodes(
                        read.value,
                        b,
                        source,
                        h // SIZES.GROUP,
                        present,
                        SIZES.DV,
                        SIZES.BDV,
                        SIZES,
                    )
                    grad = tl.sum(go[None, :, :] * v, 2)
                if read.outer.sums is not None:
                    features = edge_features(read.attr, b, edge, live, SIZES)
                    grad += tl.sum(gao[None, :, :] * features, 2)
                if read.bias is not None:
                    grad = tl.where(present, grad, 0.0)
                if read.seed is not None:
                    grad = grad * dropout_factor(
                        read.seed, b, edge[:, None], h[None, :], threshold, factor, WIDE
                    )
                by_edge = by_head(b * E + edge, h, H)
                by_place = by_head(b * E + place, h, H)
                if read.outer.alpha is not None:
                    grad += tl.load(read.outer.alpha + by_edge, mask=mask, other=0.0)
                p = _given_weights(read, by_edge, by_place, mask)
                delta += tl.sum(tl.where(mask, p * grad, 0.0), 0)
                tl.store(written.share + by_place, grad, mask=mask)
        if written.delta is not None:
            tl.store(written.delta + of_row + h, delta, mask=on)
        else:
            if read.outer.delta is not None:
                delta = tl.load(read.outer.delta + of_row + h, mask=on, other=0.0)
            else:
                tl.debug_barrier()  # other threads of the program may have written what is read here
            shift = -delta
            if read.outer.lse is not None:
                shift += tl.load(read.outer.lse + row + h, mask=on, other=0.0)
            if read.key is not None:
                q = strided_node_rows(read.query, b, t, h, on, D, BD, SIZES)
                gq = tl.zeros((BH, BD), WIDE)
            if read.queries is not None:
                g_attr_q = tl.zeros((BH, BF), WIDE)
            for i in range(0, count, BE):
                live, place, edge, source = edge_block(rows, start, i, count, BE)
                mask = live[:, None] & on[None, :]
                by_edge = by_head(b * E + edge, h, H)
                by_place = by_head(b * E + place, h, H)
                present = _present(read.bias, b, edge, h, mask)
                p = _given_weights(read, by_edge, by_place, mask)
                grad = tl.load(written.share + by_place, mask=mask, other=0.0)
                grad = p * (grad + shift[None, :])
                tl.debug_barrier()  # several threads may hold one number: all read it before one writes
                if written.bias is not None:
                    tl.store(written.bias + by_edge, grad, mask=mask)
                if read.key is not None:
                    k = gathered_nodes(read.key, b, source, h // SIZES.GROUP, present, D, BD, SIZES)
                    grad = grad * tl.full((1, 1), scale, WIDE)
                    if read.attr is not None:
                        features = edge_features(read.attr, b, edge, live, SIZES)
                    if SIZES.CAPPED:
                        product = tl.sum(q[None, :, :] * k, 2)
                        if read.queries is not None:
                            product += tl.sum(attr_q[None, :, :] * features, 2)
                        product = product * tl.full((1, 1), scale, WIDE)
                        y = tanh(product / tl.full((1, 1), softcap, WIDE)).to(WIDE)
                        grad = tl.where(mask, grad * (1.0 - y * y), 0.0)
                    if read.seed is not None:
                        p = p * dropout_factor(
                            read.seed, b, edge[:, None], h[None, :], threshold, factor, WIDE
                        )
                    if written.weights is not None:
                        tl.store(written.weights + by_place, p, mask=mask)
                    if read.attr is not None:
                        f = tl.arange(0, BF)
                        g_attr = tl.zeros((BE, BF), WIDE)
                        if read.queries is not None:
                            g_attr += tl.sum(grad[:, :, None] * attr_q[None, :, :], 1)
                            masked = tl.where(mask, grad, 0.0)
                            g_attr_q += tl.sum(masked[:, :, None] * features, 0)
                        if read.outer.sums is not None:
                            g_attr += tl.sum(p[:, :, None] * gao[None, :, :], 1)
                        blocks = tl.cdiv(H, BH)
                        of_edge = (b * blocks + tl.program_id(1) % blocks) * E + edge
                        tl.store(
                            written.attr + of_edge[:, None] * F + f[None, :],
                            g_attr,
                            mask=live[:, None] & (f < F)[None, :],
                        )
                    if written.removed is not None:
                        tl.store(written.removed + by_place, (grad == 0.0) & (p == 0.0), mask=mask)
                    gq += tl.sum(grad[:, :, None] * k, 0)
                    tl.store(written.share + by_place, grad, mask=mask)
            if read.key is not None:
                at = row
                if read.outer.delta is not None:
                    at = of_row
                if read.queries is not None:
                    store_node_rows(written.queries, at * F, h * F, g_attr_q, on, F, BF)
                    if read.outer.delta is None:
                        tl.debug_barrier()  # other threads of the program wrote what is read here
                        gq += expanded(written.queries, read.weight, row, h, on, D, BD, SIZES)
                store_node_rows(written.query, at * D, h * D, gq, on, D, BD)
