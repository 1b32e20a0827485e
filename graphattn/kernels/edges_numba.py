"""Fused attention over edges in Numba: rows of edges in, sums out; nothing of shape (E, H, D) is
ever held.

Every function works on a range of rows, releases the GIL and is called from several threads at once
(:mod:`graphattn.kernels.threads`). Nodes q (B, T, H, D), k (B, S, H_kv, D), v (B, S, H_kv, D_v) and
their gradients are tuples: all bytes of a tensor, and its strides of batch, node and head, in
numbers; a row of D numbers is contiguous. ``wide`` and ``wide_v`` are the
:class:`graphattn.kernels.widths.Width` of D and D_v; neither width nor dtype of nodes is in a type:
one compilation serves all whose sums have one dtype, float32 or float64, that of everything else.
``sizes`` is (H, H / H_kv).

``ptr`` (T + 1,) and ``index`` (E,) are the edges grouped by target, row ``r`` for target
``order[r]``; ``edge`` (E,) says where each stands in the caller's order, which is the order of
biases and weights. A row of ``n`` edges takes ``m = padded(n)`` places of a buffer for each head.

Rows are taken a block at a time: all products, then all weights, then all sums. A loop that reads
keys or values alone keeps twice as many of them in the caches as one that turns from one to the
other at every row: measured, a mesh of degree 7 takes 0.7 and random edges with hubs 0.8 of the
time. It adds in the same order.

Sums over a row are taken in pieces, and statistics in float64, so that a hub of any degree keeps
the accuracy of a dense product.
"""

from typing import Any

import numba
import numpy as np

from ..compiled import compiled
from .lanes import (
    FAST,
    UNWRAPPED,
    fetched,
    from_edges,
    inner64,
    padded,
    scaled,
    slopes,
    softmax,
    to_edges,
)
from .widths import products, stored, weighted_sum

_INNER: dict[str, Any] = {"nogil": True, "fastmath": FAST, "error_model": "numpy", **UNWRAPPED}
_OUTER = _INNER | {"no_cpython_wrapper": False}
PIECE = 512  # edges summed before the sum joins the row's total
SPACE = 1 << 18  # numbers of a block of rows, of all heads
SOON = 3  # rows between asking for a node and using it
NEAR = 1 << 9  # places of rows whose keys a core's own cache holds


@numba.njit(inline="always", **_INNER)
def _keep(seed, batch, edge, head, p):
    """The factor of one dropped or kept weight: a hash of its edge (splitmix64), whatever thread
    asks.
    """
    x = (
        seed
        + np.uint64(batch) * np.uint64(0xD6E8FEB86659FD93)
        + np.uint64(edge) * np.uint64(0x9E3779B97F4A7C15)
    )
    x += np.uint64(head + 1) * np.uint64(0xC2B2AE3D27D4EB4F)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    uniform = np.float64(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)
    if uniform < p:
        return 0.0
    return 1.0 / (1.0 - p)


@numba.njit(**_INNER)
def _block(ptr, lo, hi, most):
    """The end of a block of rows from ``lo`` on: one row, or as many as have ``most`` places."""
    t = lo
    places = 0
    while t < hi:
        places += padded(ptr[t + 1] - ptr[t])
        if places > most and t > lo:
            break
        t += 1
    return t


@numba.njit(inline="always", **_INNER)
def _ask_for_row(wide, x, b, order, r, heads):
    """Ask for the node of a row that comes soon; where heads are not adjacent, for its first
    head.
    """
    data, batch, node, head = x
    soon = order[min(r + SOON, len(order) - 1)]
    width = 8 * wide.eights
    fetched(
        data,
        (b * batch + soon * node) * wide.size,
        (heads * width if head == width else width) * wide.size,
    )


@numba.njit(**_INNER)
def _products_of_rows(wide, sizes, x, b, lo, hi, order, rows, ptr, index, scale, spare, buf, at):
    """``buf[at + h * m + i] = scale * <x[b, t, h], rows[b, index[first + i], h // group]>``;
    ``spare`` beyond ``n``.
    """
    H, group = sizes
    (x_data, x_batch, x_node, x_head), (data, batch, node, head) = x, rows
    for r in range(lo, hi):
        n = ptr[r + 1] - ptr[r]
        _ask_for_row(wide, x, b, order, r, H)
        products(
            wide, x_data, b * x_batch + order[r] * x_node, x_head, data, b * batch, node, head, H, group,
            index, ptr[r], n, len(index) - 1, buf, at, scale, spare,
        )  # fmt: skip
        at += H * padded(n)


@numba.njit(inline="always", **_INNER)
def _add_row(
    wide, sizes, rows, b, index, first, n, weight, place, at, edge, head, summed, sums, add
):
    """The sum over the ``n`` edges from ``first`` on, at the start of ``sums``, or added to what is
    there.

    In pieces, so that a long sum loses no digits.
    """
    H, group = sizes
    data, batch, node, rows_head = rows
    count = (H if summed is None else H // group) * 8 * wide.eights
    for i in range(0, max(n, 1), PIECE):
        if add or i > 0:
            into = count
        else:
            into = 0
        weighted_sum(
            wide, data, b * batch, node, rows_head, H, group, index, first + i, min(n - i, PIECE), len(index) - 1,
            weight, place, at if place is not None else at + i * edge, edge, head, summed, sums, into,
        )  # fmt: skip
        for j in range(into):
            sums[j] += sums[into + j]


@numba.njit(inline="always", **_INNER)
def _store_row(wide, heads, sums, out, b, row):
    data, batch, node, _ = out
    stored(wide, sums, heads * 8 * wide.eights, data, b * batch + row * node)


@numba.njit(**_INNER)
def _sums_of_rows(wide, sizes, rows, b, lo, hi, order, ptr, index, buf, at, out, sums):
    """``out[b, t, h] = sum_i buf[at + h * m + i] * rows[b, index[first + i], h // group]``."""
    H = sizes[0]
    for r in range(lo, hi):
        n = ptr[r + 1] - ptr[r]
        _add_row(
            wide, sizes, rows, b, index, ptr[r], n, buf, None, at, 1, padded(n), None, sums, False
        )
        _ask_for_row(wide, out, b, order, r, H)
        _store_row(wide, H, sums, out, b, order[r])
        at += H * padded(n)


@numba.njit(**_INNER)
def _head_of(wide, x, h):
    """The nodes' head ``h`` alone."""
    data, batch, node, head = x
    return data[h * head * wide.size :], batch, node, head


@numba.njit(**_INNER)
def _sums_of_kept(
    wide, sizes, rows, b, lo, hi, order, ptr, index, buf, at, out, sums, removed, kept, weight
):
    """:func:`_sums_of_rows` that do not touch what a removed edge leads to:
    ``removed[at + h * m + i]``.
    """
    H, group = sizes
    for r in range(lo, hi):
        first = ptr[r]
        n = ptr[r + 1] - first
        for h in range(H):
            count = 0
            for i in range(n):
                if not removed[at + i]:
                    kept[count] = index[first + i]
                    weight[count] = buf[at + i]
                    count += 1
            own = _head_of(wide, rows, h // group)
            _add_row(wide, (1, 1), own, b, kept, 0, count, weight, None, 0, 1, 0, None, sums, False)
            _store_row(wide, 1, sums, _head_of(wide, out, h), b, order[r])
            at += padded(n)


@numba.njit(**_INNER)
def _add_features(x, b, t, attr, edge, first, n, factor, buf, at):
    """``buf[at + h * m + i] += factor * <x[b, t, h], attr[b, edge[first + i]]>``."""
    if attr.shape[0] > 1:
        ab = b
    else:
        ab = 0
    for i in range(n):
        e = edge[first + i]
        for h in range(x.shape[2]):
            a = buf.dtype.type(0)
            for f in range(x.shape[3]):
                a += x[b, t, h, f] * attr[ab, e, f]
            buf[at + h * padded(n) + i] += factor * a


@numba.njit(**_INNER)
def _sum_features(buf, at, attr, edge, first, n, out, b, t):
    """``out[b, t, h] = sum_i buf[at + h * m + i] * attr[b, edge[first + i]]``."""
    if attr.shape[0] > 1:
        ab = b
    else:
        ab = 0
    for h in range(out.shape[2]):
        for f in range(out.shape[3]):
            total = 0.0
            for i in range(n):
                total += buf[at + h * padded(n) + i] * attr[ab, edge[first + i], f]
            out[b, t, h, f] = total


@numba.njit(**_INNER)
def _cap(buf, start, stop, softcap, cap_slope):
    """Scaled products become capped ones; ``cap_slope`` is the cap's slope there."""
    one = buf.dtype.type
    for j in range(start, stop):
        y = one(np.tanh(buf[j] / one(softcap)))
        buf[j] = one(softcap) * y
        cap_slope[j] = one(1) - y * y


@numba.njit(**_INNER)
def _find_removed(at, n, H, bias, b, edge, first, removed):
    """Mark the edges whose bias is -inf, and return True if there are any."""
    anything = False
    heads = bias.shape[2]
    if bias.shape[0] > 1:
        bb = b
    else:
        bb = 0
    for i in range(n):
        for h in range(H):
            j = at + h * padded(n) + i
            removed[j] = bias[bb, edge[first + i], h if heads > 1 else 0] == -np.inf
            anything |= removed[j]
    return anything


@numba.njit(**_INNER)
def _add_bias(buf, at, n, H, bias, b, edge, first, removed):
    heads = bias.shape[2]
    if bias.shape[0] > 1:
        bb = b
    else:
        bb = 0
    for i in range(n):
        for h in range(H):
            j = at + h * padded(n) + i
            x = bias[bb, edge[first + i], h if heads > 1 else 0]
            if removed[j]:
                buf[j] = x
            else:
                buf[j] = buf[j] + x


@numba.njit(**_INNER)
def _drop(buf, at, n, H, seed, b, edge, first, dropout_p):
    for h in range(H):
        for i in range(n):
            buf[at + h * padded(n) + i] *= buf.dtype.type(
                _keep(seed, b, edge[first + i], h, dropout_p)
            )


@numba.njit(**_INNER)
def _scores(
    wide, sizes, q, k, b, lo, hi, order, attr, attr_q, bias, ptr, index, edge, options, buf, cap_slope, removed, at
):  # fmt: skip
    """The scores of rows ``lo .. hi - 1`` into ``buf``, and the cap's slopes; True if an edge is
    removed.
    """
    H, (scale, softcap, _) = sizes[0], options
    one = buf.dtype.type
    any_removed = False
    _products_of_rows(
        wide, sizes, q, b, lo, hi, order, k, ptr, index, one(scale), one(-np.inf), buf, at
    )
    if attr.shape[2] == 0 and softcap == 0 and bias.shape[2] == 0:
        return False
    for r in range(lo, hi):
        first = ptr[r]
        n = ptr[r + 1] - first
        if attr.shape[2] > 0:
            _add_features(attr_q, b, order[r], attr, edge, first, n, one(scale), buf, at)
        if softcap > 0:
            for h in range(H):
                _cap(buf, at + h * padded(n), at + h * padded(n) + n, softcap, cap_slope)
        if bias.shape[2] > 0:
            any_removed |= _find_removed(at, n, H, bias, b, edge, first, removed)
            _add_bias(buf, at, n, H, bias, b, edge, first, removed)
        at += H * padded(n)
    return any_removed


@compiled(**_OUTER)
def forward(
    wide, wide_v, sizes, lo, hi, b, order, q, k, v, attr, attr_q, bias, ptr, index, edge, options, seed,
    out, lse, alpha, kept_weights, attr_out, space,
):  # fmt: skip
    """Rows ``lo .. hi - 1`` of batch element ``b``: ``out``, and if they are sized ``lse``,
    ``alpha``, ``kept_weights`` (B * E * H) by place, and ``attr_out``.

    ``options`` is (scale, softcap or 0, dropout_p); ``space`` is :func:`workspace`.
    """
    dropout_p = options[2]
    H = sizes[0]
    E = len(index)
    buf, cap_slope, _, removed, kept, weight, sums = space
    while lo < hi:
        top = _block(ptr, lo, hi, buf.shape[0] // H)
        start = at = top - top  # for a literal 0 Numba would compile functions of their own
        any_removed = _scores(
            wide, sizes, q, k, b, lo, top, order, attr, attr_q, bias, ptr, index, edge, options,
            buf, cap_slope, removed, start,
        )  # fmt: skip
        for r in range(lo, top):
            first = ptr[r]
            n = ptr[r + 1] - first
            m = padded(n)
            for h in range(H):
                peak, total = softmax(buf, at + h * m, m)
                if lse.shape[0] > 0:
                    if total != 0:
                        lse[b, order[r], h] = peak + buf.dtype.type(np.log(total))
                    else:
                        lse[b, order[r], h] = -np.inf
            if alpha.shape[0] > 0:
                for i in range(n):
                    for h in range(H):
                        alpha[b, edge[first + i], h] = buf[at + h * m + i]
            if kept_weights.shape[0] > 0:
                to_edges(buf, at, n, H, kept_weights, (b * E + first) * H)
            if dropout_p > 0:
                _drop(buf, at, n, H, seed, b, edge, first, dropout_p)
            if attr.shape[2] > 0:
                _sum_features(buf, at, attr, edge, first, n, attr_out, b, order[r])
            at += H * m
        if any_removed:
            _sums_of_kept(
                wide_v,
                sizes,
                v,
                b,
                lo,
                top,
                order,
                ptr,
                index,
                buf,
                start,
                out,
                sums,
                removed,
                kept,
                weight,
            )
        else:
            _sums_of_rows(wide_v, sizes, v, b, lo, top, order, ptr, index, buf, start, out, sums)
        lo = top


@compiled(**_OUTER)
def backward_targets(
    wide, wide_v, sizes, lo, hi, b, order, q, k, v, attr, attr_q, bias, ptr, index, edge, options, seed,
    kept_weights, go, ga, gl, g_attr_out, gq, g_bias, g_attr, g_attr_q, g_products, weights, space,
):  # fmt: skip
    """What the targets of rows ``lo .. hi - 1`` and their edges get, given ``go`` and the like for
    the outputs.

    ``kept_weights`` (B, E, H) are the forward's, by place; without them they are computed again.
    Writes ``gq`` and ``g_attr_q``; by place ``g_products`` (B, E, H), the gradient of each product,
    and if it is sized ``weights``, the weight after dropout, from which :func:`edge_sums` gives
    what the sources get; in the caller's order ``g_bias`` and ``g_attr``.
    """
    (scale, softcap, dropout_p), H, E, F = options, sizes[0], len(index), attr.shape[2]
    buf, cap_slope, grad, removed, kept, weight, sums = space
    one = buf.dtype.type
    while lo < hi:
        top = _block(ptr, lo, hi, buf.shape[0] // H)
        at = top - top  # for a literal 0 Numba would compile functions of their own
        _products_of_rows(
            wide_v, sizes, go, b, lo, top, order, v, ptr, index, one(1), one(0), grad, at
        )
        while lo < top:  # a few rows at a time, so that their keys are still at hand for the sum
            stop = _block(ptr, lo, top, NEAR)
            start = at
            any_removed = False
            if kept_weights.shape[0] == 0:
                any_removed = _scores(
                    wide, sizes, q, k, b, lo, stop, order, attr, attr_q, bias, ptr, index, edge, options,
                    buf, cap_slope, removed, at,
                )  # fmt: skip
            for r in range(lo, stop):
                first = ptr[r]
                t = order[r]
                n = ptr[r + 1] - first
                m = padded(n)
                if F > 0:
                    _add_features(g_attr_out, b, t, attr, edge, first, n, one(1), grad, at)
                if kept_weights.shape[0] > 0:
                    from_edges(kept_weights, (b * E + first) * H, n, H, buf, at)
                    if bias.shape[2] > 0:
                        any_removed |= _find_removed(at, n, H, bias, b, edge, first, removed)
                else:
                    for h in range(H):
                        # again: a stored lse has no digits for it at scores of -1e9
                        softmax(buf, at + h * m, m)
                if any_removed:
                    for h in range(H):
                        for j in range(at + h * m, at + h * m + n):
                            if removed[j]:
                                grad[j] = one(0)
                if dropout_p > 0:
                    _drop(grad, at, n, H, seed, b, edge, first, dropout_p)
                if ga.shape[0] > 0:
                    for i in range(n):
                        for h in range(H):
                            grad[at + h * m + i] += ga[b, edge[first + i], h]
                for h in range(H):
                    slopes(
                        buf,
                        grad,
                        at + h * m,
                        m,
                        gl[b, t, h] - one(inner64(buf, grad, at + h * m, m)),
                    )
                if g_bias.shape[0] > 0:
                    for i in range(n):
                        for h in range(H):
                            g_bias[b, edge[first + i], h] = grad[at + h * m + i]
                scaled(grad, at, H * m, one(scale))
                if softcap > 0:
                    for h in range(H):
                        for j in range(at + h * m, at + h * m + n):
                            grad[j] *= cap_slope[j]
                if dropout_p > 0:
                    _drop(buf, at, n, H, seed, b, edge, first, dropout_p)
                to_edges(grad, at, n, H, g_products, (b * E + first) * H)
                if weights.shape[0] > 0:
                    to_edges(buf, at, n, H, weights, (b * E + first) * H)
                if F > 0:
                    _sum_features(grad, at, attr, edge, first, n, g_attr_q, b, t)
                    for i in range(n):
                        for f in range(F):
                            a = one(0)
                            for h in range(H):
                                j = at + h * m + i
                                a += grad[j] * attr_q[b, t, h, f] + buf[j] * g_attr_out[b, t, h, f]
                            g_attr[b, edge[first + i], f] = a
                at += H * m
            if any_removed:
                _sums_of_kept(
                    wide,
                    sizes,
                    k,
                    b,
                    lo,
                    stop,
                    order,
                    ptr,
                    index,
                    grad,
                    start,
                    gq,
                    sums,
                    removed,
                    kept,
                    weight,
                )
            else:
                _sums_of_rows(wide, sizes, k, b, lo, stop, order, ptr, index, grad, start, gq, sums)
            lo = stop


@compiled(**_OUTER)
def edge_sums(
    wide, sizes, weights, b, rows, ptr, lo, hi, order, index, place, removed, summed, out, space
):
    """``out[b, r, h] = sum weights[b, place, h] * rows[b, index, h // group]`` over the edges of
    row ``r``.

    If ``summed`` is anything but None over a group as well:
    ``out[b, r, h // group] = ... * rows[b, index, h]``. Edges that are ``removed`` (1 or B, E, H),
    by ``place``, pass not even a NaN; it may have no entries.
    """
    H, group = sizes
    kept, weight, sums = space
    E = len(index)
    if removed.shape[0] > 1:
        batch = b
    else:
        batch = 0
    for r in range(lo, hi):
        first = ptr[r]
        s = order[r]
        n = ptr[r + 1] - first
        if summed is None:
            heads = H
        else:
            heads = H // group
        if removed.shape[0] == 0:
            _add_row(
                wide,
                sizes,
                rows,
                b,
                index,
                first,
                n,
                weights,
                place,
                b * E * H,
                H,
                1,
                summed,
                sums,
                False,
            )
            _ask_for_row(wide, out, b, order, r, heads)
            _store_row(wide, heads, sums, out, b, s)
            continue
        for h in range(H):
            count = 0
            for i in range(first, first + n):
                if not removed[batch, place[i], h]:
                    kept[count] = index[i]
                    weight[count] = weights[(b * E + place[i]) * H + h]
                    count += 1
            own = _head_of(wide, rows, h // group if summed is None else h)
            if summed is None:
                to = h
            else:
                to = h // group
            add = summed is not None and h % group > 0
            _add_row(wide, (1, 1), own, b, kept, 0, count, weight, None, 0, 1, 0, None, sums, add)
            if summed is None or h % group == group - 1:
                _store_row(wide, 1, sums, _head_of(wide, out, to), b, s)


@compiled(**_OUTER)
def edge_products(wide, sizes, b, x, rows, ptr, lo, hi, order, index, place, out, buf):
    """``out[b, place, h] = <x[b, r, h], rows[b, index, h // group]>`` over the edges of each row
    ``r``.
    """
    H = sizes[0]
    E = len(index)
    one = buf.dtype.type
    for r in range(lo, hi):
        n = ptr[r + 1] - ptr[r]
        m = padded(n)
        _products_of_rows(
            wide, sizes, x, b, r, r + 1, order, rows, ptr, index, one(1), one(0), buf, r - r
        )
        for i in range(n):
            at = (b * E + place[ptr[r] + i]) * H
            for h in range(H):
                out[at + h] = buf[h * m + i]


@compiled(**_OUTER)
def edge_softmax(H, b, ptr, lo, hi, order, place, score, alpha, lse, buf):
    """``alpha[b, place, h]``, the softmax of ``score`` over the edges of each row, and
    ``lse[b, r, h]``.
    """
    E = len(place)
    for r in range(lo, hi):
        n = ptr[r + 1] - ptr[r]
        m = padded(n)
        buf[: H * m] = -np.inf
        for i in range(n):
            at = (b * E + place[ptr[r] + i]) * H
            for h in range(H):
                buf[h * m + i] = score[at + h]
        for h in range(H):
            peak, total = softmax(buf, h * m, m)
            if total != 0:
                lse[b, order[r], h] = peak + buf.dtype.type(np.log(total))
            else:
                lse[b, order[r], h] = -np.inf
        for i in range(n):
            at = (b * E + place[ptr[r] + i]) * H
            for h in range(H):
                alpha[at + h] = buf[h * m + i]


@compiled(**_OUTER)
def edge_softmax_backward(H, b, ptr, lo, hi, order, place, alpha, grad, grad_lse, out, total):
    """``out = alpha (grad + grad_lse - sum alpha grad)``, the sum over the edges of each row, in
    float64.
    """
    E = len(place)
    for r in range(lo, hi):
        for h in range(H):
            total[h] = 0
        for j in range(ptr[r], ptr[r + 1]):
            at = (b * E + place[j]) * H
            for h in range(H):
                total[h] += alpha[at + h] * grad[at + h]
        for j in range(ptr[r], ptr[r + 1]):
            at = (b * E + place[j]) * H
            for h in range(H):
                shift = grad_lse[b, order[r], h] - out.dtype.type(total[h])
                out[at + h] = alpha[at + h] * (grad[at + h] + shift)


def workspace(wide, wide_v, sizes, edges, widest, rows, dtype, indices):
    """Scratch arrays of one thread for so many ``edges`` in ``rows`` rows, of at most ``widest``
    edges each.

    Three buffers of a block of rows and what is removed of them, then :func:`row_space`.
    """
    heads = sizes[0]
    size = heads * max(widest + 8, min(SPACE // heads, edges + 8 * rows))
    buffers = [np.empty(size, dtype) for _ in range(3)]
    return (
        *buffers,
        np.empty(size, np.bool_),
        *row_space(wide, wide_v, sizes, widest, dtype, indices),
    )


def row_space(wide, wide_v, sizes, widest, dtype, indices):
    """For a row of at most ``widest`` edges: those kept, their weights, and two sums."""
    sums = np.empty(2 * sizes[0] * 8 * max(wide.eights, wide_v.eights), dtype)
    return np.empty(widest, indices), np.empty(widest, dtype), sums
