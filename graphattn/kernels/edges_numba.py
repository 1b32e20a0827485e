"""Fused attention over edges in Numba: rows of edges in, sums out; nothing of shape (E, H, D) is ever held.

Every function works on a range of rows, releases the GIL and is called from several threads at once
(:mod:`graphattn.kernels.threads`). Arrays are C-contiguous, of one float dtype, with one flattened batch axis:
q (B, T, H, D), k (B, S, H_kv, D), v (B, S, H_kv, D_v), both widths a multiple of eight; ``wide`` and ``wide_v`` are
tuples of ``D / 8`` and ``D_v / 8`` zeros (:mod:`graphattn.kernels.lanes` says why). ``ptr`` (T + 1,) and ``index``
(E,) are the edges grouped by target; ``edge`` (E,) says where each stands in the caller's order, which is the order of
biases and weights. A row of ``n`` edges takes ``m = padded(n)`` places of a buffer for each head.

Rows are taken a block at a time: all products, then all weights, then all sums. A loop that reads keys or values alone
keeps twice as many of them in the caches as one that turns from one to the other at every row: measured, a mesh of
degree 7 takes 0.7 and random edges with hubs 0.8 of the time. It adds in the same order.

Sums over a row are taken in pieces, and statistics in float64, so that a hub of any degree keeps the accuracy of a
dense product.
"""

from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache

from .lanes import exponentials, inner64, largest, padded, products, scaled, slopes, weighted_sum

_FAST = {"reassoc", "contract", "arcp", "nsz"}  # infinities and NaN keep their meaning


def _has_folder() -> bool:
    """Whether there is a folder for compiled code; in a container without one that can be written to, there is none."""
    try:
        FunctionCache(_has_folder)
    except RuntimeError:
        return False
    return True


_JIT: dict[str, Any] = {"nogil": True, "fastmath": _FAST, "cache": _has_folder(), "error_model": "numpy"}
PIECE = 512  # edges summed before the sum joins the row's total
SPACE = 1 << 18  # numbers of a block of rows, of all heads
NEAR = 1 << 9  # places of rows whose keys a core's own cache holds


@numba.njit(inline="always", **_JIT)
def _keep(seed, batch, place, head, p):
    """The factor of one dropped or kept weight: a hash of its place (splitmix64), whatever thread asks."""
    x = seed + np.uint64(batch) * np.uint64(0xD6E8FEB86659FD93) + np.uint64(place) * np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(head + 1) * np.uint64(0xC2B2AE3D27D4EB4F)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    uniform = np.float64(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)
    return 0.0 if uniform < p else 1.0 / (1.0 - p)


@numba.njit(**_JIT)
def _block(ptr, lo, hi, most):
    """The end of a block of rows from ``lo`` on: one row, or as many as have ``most`` places."""
    t, places = lo, 0
    while t < hi:
        places += padded(ptr[t + 1] - ptr[t])
        if places > most and t > lo:
            break
        t += 1
    return t


@numba.njit(**_JIT)
def _products_of_rows(wide, x, b, lo, hi, rows, ptr, index, scale, spare, buf, at):
    """``buf[at + h * m + i] = scale * <x[b, t, h], rows[b, index[first + i], h // group]>``; ``spare`` beyond ``n``."""
    T, H, D = x.shape[1:]
    S, kv = rows.shape[1:3]
    for t in range(lo, hi):
        first = ptr[t]
        n = ptr[t + 1] - first
        x_at = (b * T + t) * H * D
        for g in range(kv):
            for _ in range(H // kv):
                products(wide, x, x_at, rows, (b * S * kv + g) * D, kv * D, index, first, n, buf, at, scale, spare)
                x_at += D
                at += padded(n)


@numba.njit(**_JIT)
def _sums_of_rows(wide, rows, b, lo, hi, ptr, index, buf, at, out):
    """``out[b, t, h] = sum_i buf[at + h * m + i] * rows[b, index[first + i], h // group]``, in pieces."""
    T, H, D = out.shape[1:]
    S, kv = rows.shape[1:3]
    for t in range(lo, hi):
        first = ptr[t]
        n = ptr[t + 1] - first
        out_at = (b * T + t) * H * D
        for g in range(kv):
            rows_at = (b * S * kv + g) * D
            for _ in range(H // kv):
                for i in range(0, max(n, 1), PIECE):
                    some = min(n - i, PIECE)
                    weighted_sum(
                        wide, rows, rows_at, kv * D, index, first + i, some, buf, None, 0, at + i, out, out_at, i > 0
                    )
                out_at += D
                at += padded(n)


@numba.njit(**_JIT)
def _sums_of_kept(wide, rows, b, lo, hi, ptr, index, buf, at, out, removed, kept, weight):
    """:func:`_sums_of_rows` that do not touch what a removed edge leads to: ``removed[at + h * m + i]``."""
    T, H, D = out.shape[1:]
    S, kv = rows.shape[1:3]
    for t in range(lo, hi):
        first = ptr[t]
        n = ptr[t + 1] - first
        for h in range(H):
            out_at, rows_at = ((b * T + t) * H + h) * D, (b * S * kv + h // (H // kv)) * D
            count = 0
            for i in range(n):
                if not removed[at + i]:
                    kept[count], weight[count] = index[first + i], buf[at + i]
                    count += 1
            for i in range(0, max(count, 1), PIECE):
                some = min(count - i, PIECE)
                weighted_sum(wide, rows, rows_at, kv * D, kept, i, some, weight, None, 0, i, out, out_at, i > 0)
            at += padded(n)


@numba.njit(**_JIT)
def _add_features(x, b, t, attr, ab, edge, first, n, factor, buf, at):
    """``buf[at + h * m + i] += factor * <x[b, t, h], attr[ab, edge[first + i]]>``."""
    for i in range(n):
        e = edge[first + i]
        for h in range(x.shape[2]):
            a = buf.dtype.type(0)
            for f in range(x.shape[3]):
                a += x[b, t, h, f] * attr[ab, e, f]
            buf[at + h * padded(n) + i] += factor * a


@numba.njit(**_JIT)
def _sum_features(buf, at, attr, ab, edge, first, n, out, b, t):
    """``out[b, t, h] = sum_i buf[at + h * m + i] * attr[ab, edge[first + i]]``."""
    for h in range(out.shape[2]):
        for f in range(out.shape[3]):
            total = 0.0
            for i in range(n):
                total += buf[at + h * padded(n) + i] * attr[ab, edge[first + i], f]
            out[b, t, h, f] = total


@numba.njit(**_JIT)
def _cap_and_bias(buf, at, n, H, softcap, bias, bb, edge, first, removed, cap_slope):
    """Scaled products in ``buf`` become scores; ``removed`` marks edges with a bias of -inf, ``cap_slope`` the cap's.

    Returns whether any edge is removed.
    """
    one, any_removed = buf.dtype.type, False
    if softcap > 0:
        for h in range(H):
            for j in range(at + h * padded(n), at + h * padded(n) + n):
                y = one(np.tanh(buf[j] / one(softcap)))
                buf[j] = one(softcap) * y
                cap_slope[j] = one(1) - y * y
    heads = bias.shape[2]
    if heads > 0:
        for i in range(n):
            e = edge[first + i]
            for h in range(H):
                j, x = at + h * padded(n) + i, bias[bb, e, h if heads > 1 else 0]
                removed[j] = x == -np.inf
                any_removed |= removed[j]
                buf[j] = x if removed[j] else buf[j] + x
    return any_removed


@numba.njit(**_JIT)
def _softmax(buf, start, m):
    """Scores ``buf[start:start + m]`` become weights; their log-sum-exp.

    The backward calls it again: scores of -1e9 leave no room for the logarithm of their number in a stored lse.
    """
    one = buf.dtype.type
    peak = largest(buf, start, m)
    if peak == -np.inf:
        peak = one(0)
    total = exponentials(buf, start, m, peak)
    if total == 0:
        return one(-np.inf)
    scaled(buf, start, m, one(1.0 / total))
    return peak + np.log(one(total))


@numba.njit(**_JIT)
def _drop(buf, at, n, H, seed, b, first, dropout_p):
    for h in range(H):
        for i in range(n):
            buf[at + h * padded(n) + i] *= buf.dtype.type(_keep(seed, b, first + i, h, dropout_p))


@numba.njit(**_JIT)
def forward(
    wide, wide_v, lo, hi, b, q, k, v, attr, attr_q, bias, ptr, index, edge, options, seed,
    out, lse, alpha, attr_out, space,
):  # fmt: skip
    """Rows ``lo .. hi - 1`` of batch element ``b``: ``out``, ``lse``, and if they are sized ``alpha`` and ``attr_out``.

    ``options`` is (scale, softcap or 0, dropout_p); ``space`` is :func:`workspace`.
    """
    scale, softcap, dropout_p = options
    buf, cap_slope, _, removed, kept, weight = space
    one, H, F = buf.dtype.type, q.shape[2], attr.shape[2]
    bb, ab = (b if bias.shape[0] > 1 else 0), (b if attr.shape[0] > 1 else 0)
    changed = softcap > 0 or bias.shape[2] > 0
    while lo < hi:
        top, at, any_removed = _block(ptr, lo, hi, buf.shape[0] // H), 0, False
        _products_of_rows(wide, q, b, lo, top, k, ptr, index, one(scale), one(-np.inf), buf, 0)
        for t in range(lo, top):
            first = ptr[t]
            n = ptr[t + 1] - first
            m = padded(n)
            if F > 0:
                _add_features(attr_q, b, t, attr, ab, edge, first, n, one(scale), buf, at)
            if changed:
                any_removed |= _cap_and_bias(buf, at, n, H, softcap, bias, bb, edge, first, removed, cap_slope)
            for h in range(H):
                lse[b, t, h] = _softmax(buf, at + h * m, m)
            if alpha.shape[0] > 0:
                for i in range(n):
                    for h in range(H):
                        alpha[b, edge[first + i], h] = buf[at + h * m + i]
            if dropout_p > 0:
                _drop(buf, at, n, H, seed, b, first, dropout_p)
            if F > 0:
                _sum_features(buf, at, attr, ab, edge, first, n, attr_out, b, t)
            at += H * m
        if any_removed:
            _sums_of_kept(wide_v, v, b, lo, top, ptr, index, buf, 0, out, removed, kept, weight)
        else:
            _sums_of_rows(wide_v, v, b, lo, top, ptr, index, buf, 0, out)
        lo = top


@numba.njit(**_JIT)
def backward_targets(
    wide, wide_v, lo, hi, b, q, k, v, attr, attr_q, bias, ptr, index, edge, options, seed,
    lse, go, ga, gl, g_attr_out, gq, g_bias, g_attr, g_attr_q, shares, space,
):  # fmt: skip
    """What the targets of rows ``lo .. hi - 1`` and their edges are owed, given ``go`` and the like for the outputs.

    Writes ``gq`` and ``g_attr_q``; by place ``shares`` (2, B, E, H), the gradient of each product and the weight after
    dropout, from which :func:`backward_sources` needs no product; in the caller's order ``g_bias`` and ``g_attr``.
    """
    scale, softcap, dropout_p = options
    buf, cap_slope, grad, removed, kept, weight = space
    one, H, F = buf.dtype.type, q.shape[2], attr.shape[2]
    bb, ab = (b if bias.shape[0] > 1 else 0), (b if attr.shape[0] > 1 else 0)
    changed = softcap > 0 or bias.shape[2] > 0
    while lo < hi:
        top, at = _block(ptr, lo, hi, buf.shape[0] // H), 0
        _products_of_rows(wide_v, go, b, lo, top, v, ptr, index, one(1), one(0), grad, 0)
        while lo < top:  # a few rows at a time, so that their keys are still at hand for the sum
            stop, start, any_removed = _block(ptr, lo, top, NEAR), at, False
            _products_of_rows(wide, q, b, lo, stop, k, ptr, index, one(scale), one(-np.inf), buf, at)
            for t in range(lo, stop):
                first = ptr[t]
                n = ptr[t + 1] - first
                m = padded(n)
                if F > 0:
                    _add_features(attr_q, b, t, attr, ab, edge, first, n, one(scale), buf, at)
                    _add_features(g_attr_out, b, t, attr, ab, edge, first, n, one(1), grad, at)
                if changed and _cap_and_bias(buf, at, n, H, softcap, bias, bb, edge, first, removed, cap_slope):
                    any_removed = True
                if any_removed:
                    for h in range(H):
                        for j in range(at + h * m, at + h * m + n):
                            grad[j] = one(0) if removed[j] else grad[j]
                if dropout_p > 0:
                    _drop(grad, at, n, H, seed, b, first, dropout_p)
                if ga.shape[0] > 0:
                    for i in range(n):
                        for h in range(H):
                            grad[at + h * m + i] += ga[b, edge[first + i], h]
                for h in range(H):
                    _softmax(buf, at + h * m, m)
                    slopes(buf, grad, at + h * m, m, gl[b, t, h] - one(inner64(buf, grad, at + h * m, m)))
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
                    _drop(buf, at, n, H, seed, b, first, dropout_p)
                for i in range(n):
                    for h in range(H):
                        shares[0, b, first + i, h] = grad[at + h * m + i]
                        shares[1, b, first + i, h] = buf[at + h * m + i]
                if F > 0:
                    _sum_features(grad, at, attr, ab, edge, first, n, g_attr_q, b, t)
                    for i in range(n):
                        for f in range(F):
                            a = one(0)
                            for h in range(H):
                                j = at + h * m + i
                                a += grad[j] * attr_q[b, t, h, f] + buf[j] * g_attr_out[b, t, h, f]
                            g_attr[b, edge[first + i], f] = a
                at += H * m
            if any_removed:
                _sums_of_kept(wide, k, b, lo, stop, ptr, index, grad, start, gq, removed, kept, weight)
            else:
                _sums_of_rows(wide, k, b, lo, stop, ptr, index, grad, start, gq)
            lo = stop


@numba.njit(**_JIT)
def _gradients_of_sources(wide, shares, b, rows, ptr, lo, hi, target, place, biased, grad, kept, weight):
    """``grad[b, s, h // group] = sum shares[b, place, h] * rows[b, target, h]`` over the edges out of ``s``.

    If ``biased``, an edge of share 0 may be removed, and passes not even a NaN.
    """
    T, H, D = rows.shape[1:]
    S, kv = grad.shape[1:3]
    for s in range(lo, hi):
        first, stop = ptr[s], ptr[s + 1]
        for g in range(kv):
            out_at, group = ((b * S + s) * kv + g) * D, H // kv
            for j in range(group):
                h = g * group + j
                rows_at = (b * T * H + h) * D
                if biased:
                    count = 0
                    for i in range(first, stop):
                        share = shares[b, place[i], h]
                        if share != 0:
                            kept[count], weight[count] = target[i], share
                            count += 1
                    for i in range(0, max(count, 1), PIECE):
                        n, add = min(count - i, PIECE), j > 0 or i > 0
                        weighted_sum(wide, rows, rows_at, H * D, kept, i, n, weight, None, 0, i, grad, out_at, add)
                else:
                    at = b * shares.shape[1] * H + h
                    for i in range(first, max(stop, first + 1), PIECE):
                        n, add = min(stop - i, PIECE), j > 0 or i > first
                        weighted_sum(wide, rows, rows_at, H * D, target, i, n, shares, place, H, at, grad, out_at, add)


@numba.njit(**_JIT)
def backward_sources(wide, wide_v, lo, hi, b, q, go, ptr, target, place, shares, biased, gk, gv, space):
    """What the sources of rows ``lo .. hi - 1`` are owed; edges by source, ``place`` is where they stand by target."""
    kept, weight = space
    _gradients_of_sources(wide, shares[0], b, q, ptr, lo, hi, target, place, biased, gk, kept, weight)
    _gradients_of_sources(wide_v, shares[1], b, go, ptr, lo, hi, target, place, biased, gv, kept, weight)


def workspace(heads, edges, widest, rows, dtype, indices):
    """Scratch arrays of one thread for so many ``edges`` in ``rows`` rows, of at most ``widest`` edges each.

    Three buffers of a block of rows and what is removed of them; edges kept, and their weights.
    """
    size = heads * max(widest + 8, min(SPACE // heads, edges + 8 * rows))
    buffers = [np.empty(size, dtype) for _ in range(3)]
    return *buffers, np.empty(size, np.bool_), *kept_space(widest, dtype, indices)


def kept_space(widest, dtype, indices):
    """Edges kept, and their weights, of a row of at most ``widest`` edges."""
    return np.empty(widest, indices), np.empty(widest, dtype)
