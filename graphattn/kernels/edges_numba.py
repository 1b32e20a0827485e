"""Fused attention over edges in Numba: rows of edges in, sums out; nothing of shape (E, H, D) is ever held.

Every function works on a range of rows, releases the GIL and is called from several threads at once
(:mod:`graphattn.kernels.threads`). Arrays are C-contiguous, of one float dtype, with one flattened batch axis:
q (B, T, H, D), k (B, S, H_kv, D), v (B, S, H_kv, D_v). ``ptr`` (T + 1,) and ``index`` (E,) are the edges grouped by
target; ``edge`` (E,) says where each stands in the caller's order, which is the order of biases and weights.

Sums over a row are taken in blocks, and statistics in float64, so that a hub of any degree keeps the accuracy of a
dense product.
"""

from typing import Any

import numba
import numpy as np

_FAST = {"reassoc", "contract", "arcp", "nsz"}  # infinities and NaN keep their meaning
_JIT: dict[str, Any] = {"nogil": True, "fastmath": _FAST, "cache": True, "error_model": "numpy"}
BLOCK = 512  # edges summed before the sum joins the row's total

f32 = np.float32


@numba.njit(**_JIT)
def _exp32(row, n):  # the Cephes polynomial, written so that it vectorises; np.exp does not
    for i in range(n):
        x = row[i]
        k = np.floor(x * f32(1.4426950408889634) + f32(0.5))
        r = x - k * f32(0.693359375) - k * f32(-2.12194440e-4)
        y = f32(1.9875691500e-4) * r + f32(1.3981999507e-3)
        y = y * r + f32(8.3334519073e-3)
        y = y * r + f32(4.1665795894e-2)
        y = y * r + f32(1.6666665459e-1)
        y = y * r + f32(5.0000001201e-1)
        y = y * r * r + r + f32(1)
        power = (np.int32(max(k, f32(-126))) + np.int32(127)) << np.int32(23)
        row[i] = f32(0) if x < f32(-87) else y * np.int32(power).view(np.float32)


@numba.njit(**_JIT)
def _exp64(row, n):
    for i in range(n):
        row[i] = np.exp(row[i])


@numba.njit(**_JIT)
def _exp(row, n):
    if row.itemsize == 4:
        _exp32(row, n)
    else:
        _exp64(row, n)


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
def _products(x, b, t, rows, index, first, n, group, buf):
    """``buf[h * n + i] = <x[b, t, h], rows[b, index[first + i], h // group]>``; four edges share one read of ``x``."""
    H, D = x.shape[2], x.shape[3]
    whole = n // 4 * 4
    for i in range(0, whole, 4):
        s0, s1, s2, s3 = index[first + i], index[first + i + 1], index[first + i + 2], index[first + i + 3]
        for h in range(H):
            g, at = h // group, h * n + i
            a0 = a1 = a2 = a3 = x.dtype.type(0)
            for d in range(D):
                y = x[b, t, h, d]
                a0 += y * rows[b, s0, g, d]
                a1 += y * rows[b, s1, g, d]
                a2 += y * rows[b, s2, g, d]
                a3 += y * rows[b, s3, g, d]
            buf[at], buf[at + 1], buf[at + 2], buf[at + 3] = a0, a1, a2, a3
    for i in range(whole, n):
        s = index[first + i]
        for h in range(H):
            a = x.dtype.type(0)
            for d in range(D):
                a += x[b, t, h, d] * rows[b, s, h // group, d]
            buf[h * n + i] = a


@numba.njit(**_JIT)
def _weighted_sum(rows, b, index, first, n, group, buf, total, scratch):
    """``total[h] = sum_i buf[h * n + i] * rows[b, index[first + i], h // group]``, in blocks; both (H, D)."""
    H, D = total.shape
    for h in range(H):
        for d in range(D):
            total[h, d] = 0
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        whole = start + (stop - start) // 4 * 4
        for h in range(H):
            for d in range(D):
                scratch[h, d] = 0
        for i in range(start, whole, 4):
            s0, s1, s2, s3 = index[first + i], index[first + i + 1], index[first + i + 2], index[first + i + 3]
            for h in range(H):
                g, at = h // group, h * n + i
                p0, p1, p2, p3 = buf[at], buf[at + 1], buf[at + 2], buf[at + 3]
                for d in range(D):
                    scratch[h, d] += (p0 * rows[b, s0, g, d] + p1 * rows[b, s1, g, d]) + (
                        p2 * rows[b, s2, g, d] + p3 * rows[b, s3, g, d]
                    )
        for i in range(whole, stop):
            s = index[first + i]
            for h in range(H):
                p = buf[h * n + i]
                for d in range(D):
                    scratch[h, d] += p * rows[b, s, h // group, d]
        for h in range(H):
            for d in range(D):
                total[h, d] += scratch[h, d]


@numba.njit(**_JIT)
def _weighted_sum_of_heard(rows, b, index, first, n, group, buf, total, scratch, removed):
    """:func:`_weighted_sum` that does not touch what a removed edge leads to: ``removed[h * n + i]``."""
    H, D = total.shape
    for h in range(H):
        for d in range(D):
            total[h, d] = 0
        for start in range(0, n, BLOCK):
            for d in range(D):
                scratch[h, d] = 0
            for i in range(start, min(start + BLOCK, n)):
                if not removed[h * n + i]:
                    s, p = index[first + i], buf[h * n + i]
                    for d in range(D):
                        scratch[h, d] += p * rows[b, s, h // group, d]
            for d in range(D):
                total[h, d] += scratch[h, d]


@numba.njit(**_JIT)
def _add_features(x, b, t, attr, ab, edge, first, n, buf):
    """``buf[h * n + i] += <x[b, t, h], attr[ab, edge[first + i]]>``."""
    for i in range(n):
        e = edge[first + i]
        for h in range(x.shape[2]):
            a = buf.dtype.type(0)
            for f in range(x.shape[3]):
                a += x[b, t, h, f] * attr[ab, e, f]
            buf[h * n + i] += a


@numba.njit(**_JIT)
def _score(buf, n, H, scale, softcap, bias, bb, edge, first, removed, bent):
    """Products in ``buf`` become scores; ``removed`` marks edges with a bias of -inf, ``bent`` the cap's slope."""
    one = buf.dtype.type
    for j in range(H * n):
        buf[j] *= one(scale)
    if softcap > 0:
        for j in range(H * n):
            y = one(np.tanh(buf[j] / one(softcap)))
            buf[j] = one(softcap) * y
            bent[j] = one(1) - y * y
    heads = bias.shape[2]
    if heads > 0:
        for i in range(n):
            e = edge[first + i]
            for h in range(H):
                x = bias[bb, e, h if heads > 1 else 0]
                gone = x == -np.inf
                removed[h * n + i] = gone
                buf[h * n + i] = x if gone else buf[h * n + i] + x


@numba.njit(**_JIT)
def _softmax(buf, n, H, lse, b, t):
    """Scores in ``buf`` become weights; ``lse[b, t]`` is written."""
    one = buf.dtype.type
    for h in range(H):
        peak = one(-np.inf)
        for i in range(n):
            peak = buf[h * n + i] if buf[h * n + i] > peak else peak
        if peak == -np.inf:
            peak = one(0)
        for i in range(n):
            buf[h * n + i] -= peak
        lse[b, t, h] = peak
    _exp(buf, H * n)
    for h in range(H):
        total = 0.0
        for i in range(n):
            total += buf[h * n + i]
        if total == 0:
            lse[b, t, h] = -np.inf
            continue
        lse[b, t, h] += one(np.log(total))
        inverse = one(1.0 / total)
        for i in range(n):
            buf[h * n + i] *= inverse


@numba.njit(**_JIT)
def forward(lo, hi, b, q, k, v, attr, attr_q, bias, ptr, index, edge, options, seed, out, lse, alpha, attr_out, space):
    """Rows ``lo .. hi - 1`` of batch element ``b``: ``out``, ``lse``, and if they are sized ``alpha`` and ``attr_out``.

    ``options`` is (scale, softcap or 0, dropout_p); ``space`` is :func:`workspace`.
    """
    scale, softcap, dropout_p = options
    buf, bent, _, removed, total, scratch = space
    H, F = q.shape[2], attr.shape[2]
    group = H // k.shape[2]
    bb, ab = (b if bias.shape[0] > 1 else 0), (b if attr.shape[0] > 1 else 0)
    for t in range(lo, hi):
        first = ptr[t]
        n = ptr[t + 1] - first
        _products(q, b, t, k, index, first, n, group, buf)
        if F > 0:
            _add_features(attr_q, b, t, attr, ab, edge, first, n, buf)
        _score(buf, n, H, scale, softcap, bias, bb, edge, first, removed, bent)
        _softmax(buf, n, H, lse, b, t)
        if alpha.shape[0] > 0:
            for i in range(n):
                for h in range(H):
                    alpha[b, edge[first + i], h] = buf[h * n + i]
        if dropout_p > 0:
            for h in range(H):
                for i in range(n):
                    buf[h * n + i] *= buf.dtype.type(_keep(seed, b, first + i, h, dropout_p))
        if bias.shape[2] > 0:
            _weighted_sum_of_heard(v, b, index, first, n, group, buf, total, scratch, removed)
        else:
            _weighted_sum(v, b, index, first, n, group, buf, total, scratch)
        for h in range(H):
            for d in range(out.shape[3]):
                out[b, t, h, d] = total[h, d]
        for h in range(H):
            for f in range(F):
                sum64 = 0.0
                for i in range(n):
                    sum64 += buf[h * n + i] * attr[ab, edge[first + i], f]
                attr_out[b, t, h, f] = sum64


@numba.njit(**_JIT)
def backward_targets(
    lo, hi, b, q, k, v, attr, attr_q, bias, ptr, index, edge, options, seed,
    lse, go, ga, gl, g_attr_out, gq, g_bias, g_attr, g_attr_q, kept, owed, space, key_total, key_scratch,
):  # fmt: skip
    """What the targets of rows ``lo .. hi - 1`` and their edges are owed, given ``go`` and the like for the outputs.

    Writes ``gq`` and ``g_attr_q``; by place ``kept`` (the weight after dropout) and ``owed`` (the gradient of the
    product), from which :func:`backward_sources` needs no product; in the caller's order ``g_bias`` and ``g_attr``.
    """
    scale, softcap, dropout_p = options
    buf, bent, more, removed, _, _ = space
    H, F = q.shape[2], attr.shape[2]
    one = buf.dtype.type
    group, biased = H // k.shape[2], bias.shape[2] > 0
    bb, ab = (b if bias.shape[0] > 1 else 0), (b if attr.shape[0] > 1 else 0)
    for t in range(lo, hi):
        first = ptr[t]
        n = ptr[t + 1] - first
        _products(q, b, t, k, index, first, n, group, buf)
        _products(go, b, t, v, index, first, n, group, more)
        if F > 0:
            _add_features(attr_q, b, t, attr, ab, edge, first, n, buf)
            _add_features(g_attr_out, b, t, attr, ab, edge, first, n, more)
        _score(buf, n, H, scale, softcap, bias, bb, edge, first, removed, bent)
        for h in range(H):
            level = lse[b, t, h] if lse[b, t, h] != -np.inf else one(0)
            for i in range(n):
                buf[h * n + i] -= level
        _exp(buf, H * n)  # the weights
        if biased:
            for j in range(H * n):
                more[j] = one(0) if removed[j] else more[j]
        if dropout_p > 0:
            for h in range(H):
                for i in range(n):
                    more[h * n + i] *= one(_keep(seed, b, first + i, h, dropout_p))
        if ga.shape[0] > 0:
            for i in range(n):
                for h in range(H):
                    more[h * n + i] += ga[b, edge[first + i], h]
        for h in range(H):
            delta = 0.0
            for i in range(n):
                delta += buf[h * n + i] * more[h * n + i]
            shift = gl[b, t, h] - one(delta)
            for i in range(n):
                more[h * n + i] = buf[h * n + i] * (more[h * n + i] + shift)
        if g_bias.shape[0] > 0:
            for i in range(n):
                for h in range(H):
                    g_bias[b, edge[first + i], h] = more[h * n + i]
        for j in range(H * n):
            more[j] *= one(scale)
        if softcap > 0:
            for j in range(H * n):
                more[j] *= bent[j]
        for i in range(n):
            for h in range(H):
                owed[b, first + i, h] = more[h * n + i]
                kept[b, first + i, h] = buf[h * n + i]
        if dropout_p > 0:
            for i in range(n):
                for h in range(H):
                    kept[b, first + i, h] *= one(_keep(seed, b, first + i, h, dropout_p))
        if biased:
            _weighted_sum_of_heard(k, b, index, first, n, group, more, key_total, key_scratch, removed)
        else:
            _weighted_sum(k, b, index, first, n, group, more, key_total, key_scratch)
        for h in range(H):
            for d in range(gq.shape[3]):
                gq[b, t, h, d] = key_total[h, d]
        for h in range(H):
            for f in range(F):
                sum64 = 0.0
                for i in range(n):
                    sum64 += more[h * n + i] * attr[ab, edge[first + i], f]
                g_attr_q[b, t, h, f] = sum64
        if F > 0:
            for i in range(n):
                for f in range(F):
                    a = one(0)
                    for h in range(H):
                        a += more[h * n + i] * attr_q[b, t, h, f] + kept[b, first + i, h] * g_attr_out[b, t, h, f]
                    g_attr[b, edge[first + i], f] = a


@numba.njit(**_JIT)
def _owed_to_source(weight, b, rows, ptr, s, target, place, biased, grad, buf, removed, total, scratch):
    """``grad[b, s, h // group] = sum weight[b, place, h] * rows[b, target, h]`` over the edges out of ``s``."""
    H, D, kv = rows.shape[2], rows.shape[3], grad.shape[2]
    first = ptr[s]
    n = ptr[s + 1] - first
    for i in range(n):
        for h in range(H):
            w = weight[b, place[first + i], h]
            buf[h * n + i] = w
            removed[h * n + i] = w == 0
    if biased:  # a removed edge has weight 0, and passes not even a NaN
        _weighted_sum_of_heard(rows, b, target, first, n, 1, buf, total, scratch, removed)
    else:
        _weighted_sum(rows, b, target, first, n, 1, buf, total, scratch)
    group = H // kv
    for g in range(kv):
        for d in range(D):
            x = total[g * group, d]
            for h in range(g * group + 1, (g + 1) * group):
                x += total[h, d]
            grad[b, s, g, d] = x


@numba.njit(**_JIT)
def backward_sources(lo, hi, b, q, go, ptr, target, place, kept, owed, biased, gk, gv, space, key_total, key_scratch):
    """What the sources of rows ``lo .. hi - 1`` are owed; edges by source, ``place`` is where they stand by target."""
    buf, _, _, removed, total, scratch = space
    for s in range(lo, hi):
        _owed_to_source(owed, b, q, ptr, s, target, place, biased, gk, buf, removed, key_total, key_scratch)
        _owed_to_source(kept, b, go, ptr, s, target, place, biased, gv, buf, removed, total, scratch)


def workspace(heads, widest, width, dtype):
    """Scratch arrays of one thread: rows of ``heads * widest`` numbers, and sums of ``width`` values a head."""
    size = max(1, heads * widest)
    rows = [np.empty(size, dtype) for _ in range(3)]
    return *rows, np.empty(size, np.bool_), *(np.empty((heads, width), dtype) for _ in range(2))


@numba.njit(**_JIT)
def dropout_factors(seed, dropout_p, factors):
    """The factor of every weight by place, written into (B, E, H)."""
    for batch in range(factors.shape[0]):
        for place in range(factors.shape[1]):
            for h in range(factors.shape[2]):
                factors[batch, place, h] = _keep(seed, batch, place, h, dropout_p)
