"""Additive scores of rows of edges in Numba: ``sum_d a[d] f(x_t[d] + y_s[d] + z_e[d])``, and what
they pass back.

Nodes x (B, T, G, D), y (B, S, G / group, D) and edges z (B, E, G, D), if there are any, are tuples
of all numbers and the strides of batch, node and group, as in :mod:`graphattn.kernels.edges_numba`;
without edges, z is one row of zeros for all. ``sizes`` is (G, K, group, D), D a multiple of eight;
``a`` (G, K, D) and everything else of edges is flat. No width is in a type: one compilation serves
all of a dtype.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from ..compiled import compiled
from .edges_numba import _INNER, _OUTER
from .lanes import AHEAD, FOUR, ROW, Code, _int, fetched, intrinsic

PIECE = 64  # edges summed before the sum joins the row's total, in float64

# tanh in float32 as a ratio of polynomials, odd over even: the coefficients of Eigen's, right to a
# few units of the last place between -MOST and MOST, and 1 to float32 beyond.
_ODD = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
        1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)  # fmt: skip
_EVEN = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_MOST = 7.90531110763549805


def _within(code: Code, x: Any, most: float) -> Any:
    """``x`` between -most and most; a NaN stays one."""
    b = code.builder
    for sign, limit in ((">", most), ("<", -most)):
        bound = code.constant(limit, x.type)
        x = b.select(b.fcmp_ordered(sign, x, bound), bound, x)
    return x


def _tanh(code: Code, x: Any) -> Any:
    if x.type.element == ir.DoubleType():
        one, two = (code.constant(n, x.type) for n in (1.0, 2.0))
        power = code.call("exp", code.mul(two, _within(code, x, 20.0)))
        return code.sub(one, code.builder.fdiv(two, code.add(power, one)))
    x = _within(code, x, _MOST)
    square = code.mul(x, x)
    sums = []
    for coefficients in (_ODD, _EVEN):
        total = code.constant(float(np.float32(coefficients[0])), x.type)
        for c in coefficients[1:]:
            total = code.fma(total, square, code.constant(float(np.float32(c)), x.type))
        sums.append(total)
    return code.builder.fdiv(code.mul(x, sums[0]), sums[1])


def _sum_of_three(code: Code, terms: Any, i: Any, lanes: int) -> Any:
    total = code.load(terms[0][0], code.builder.add(terms[0][1], i), lanes)
    for pointer, at in terms[1:]:
        total = code.add(total, code.load(pointer, code.builder.add(at, i), lanes))
    return total


def _activation(code: Code, x: Any, slope: Any, smooth: bool) -> Any:
    if smooth:
        return _tanh(code, x)
    below = code.builder.fcmp_ordered("<", x, code.constant(0.0, x.type))
    return code.builder.select(below, code.mul(x, code.splat(slope, x.type.count)), x)


def _slope_at(code: Code, y: Any, slope: Any, smooth: bool) -> Any:
    """The activation's slope where it is ``y``."""
    one = code.constant(1.0, y.type)
    if smooth:
        return code.sub(one, code.mul(y, y))
    above = code.builder.fcmp_ordered(">", y, code.constant(0.0, y.type))
    return code.builder.select(above, one, code.splat(slope, y.type.count))


def _vectors(code: Code, slope: Any, n: Any, body: Any) -> None:
    """``body(i, lanes, smooth)`` for two vectors of ``n`` numbers at once, and one that may be
    left.

    The activation is tanh where ``slope`` is NaN.
    """
    b = code.builder
    with b.if_else(b.fcmp_unordered("uno", slope, slope)) as branches:
        for branch, smooth in zip(branches, (True, False), strict=True):
            with branch:
                whole = b.and_(n, _int(-2 * ROW))
                with code.loop(_int(0), whole, 2 * ROW) as i:
                    body(i, 2 * ROW, smooth)
                with b.if_then(b.icmp_signed("<", whole, n)):
                    body(whole, ROW, smooth)


@intrinsic
def _scored(typingctx, x, x_at, y, y_at, z, z_at, a, a_at, K, n, slope, out, out_at):
    """``out[out_at + k] = sum_i a[a_at + k n + i] f(x[x_at + i] + y[y_at + i] + z[z_at + i])`` for
    ``k < K``.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        b = builder
        a_at, K, n, slope, _, out_at = arguments[7:]
        terms = [(code.pointer(i), arguments[i + 1]) for i in (0, 2, 4)]
        a = code.pointer(6)
        out = code.pointer(11)
        kind = ir.VectorType(code.float_type(0), ROW)

        def block(k: Any, count: int) -> None:
            slots = [cgutils.alloca_once(b, kind) for _ in range(count)]
            for slot in slots:
                b.store(code.constant(0.0, kind), slot)

            def body(i: Any, lanes: int, smooth: bool) -> None:
                active = _activation(code, _sum_of_three(code, terms, i, lanes), slope, smooth)
                for j, slot in enumerate(slots):
                    at = b.add(b.add(a_at, b.mul(b.add(k, _int(j)), n)), i)
                    share = code.fold(code.mul(code.load(a, at, lanes), active), ROW, code.add)
                    b.store(code.add(share, b.load(slot)), slot)

            _vectors(code, slope, n, body)
            for j, slot in enumerate(slots):
                total = b.extract_element(
                    code.fold(b.load(slot), 1, code.add), ir.Constant(ir.IntType(32), 0)
                )
                b.store(total, b.gep(out, [b.add(out_at, b.add(k, _int(j)))]))

        whole = b.and_(K, _int(-FOUR))
        with code.loop(_int(0), whole, FOUR) as k:
            block(k, FOUR)
        with code.loop(whole, K) as k:
            block(k, 1)
        return context.get_dummy_value()

    i = types.int64
    return types.void(x, i, y, i, z, i, a, i, i, i, slope, out, i), make


@intrinsic
def _passed_back(
    typingctx, x, x_at, y, y_at, z, z_at, a, a_at, K, n, slope,
    grad, grad_at, total, total_at, grad_a, grad_z, grad_z_at,
):  # fmt: skip
    """What the scores' ``grad[grad_at + k]`` passes to their operands: added to ``total``, and
    written to ``grad_z`` and added to ``grad_a[a_at + k n + i]`` where these are not None."""
    to_weight, to_edges = (not isinstance(x, types.NoneType) for x in (grad_a, grad_z))

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        b = builder
        a_at, K, n, slope, _, grad_at, _, total_at, _, _, grad_z_at = arguments[7:]
        terms = [(code.pointer(i), arguments[i + 1]) for i in (0, 2, 4)]
        a, grad, total = (code.pointer(i) for i in (6, 11, 13))
        if to_weight:
            grad_a = code.pointer(15)
        else:
            grad_a = None
        if to_edges:
            grad_z = code.pointer(16)
        else:
            grad_z = None

        def body(i: Any, lanes: int, smooth: bool) -> None:
            active = _activation(code, _sum_of_three(code, terms, i, lanes), slope, smooth)
            passed = cgutils.alloca_once(b, active.type)
            b.store(code.constant(0.0, active.type), passed)
            with code.loop(_int(0), K) as k:
                here = b.add(b.add(a_at, b.mul(k, n)), i)
                share = code.splat(code.number(grad, b.add(grad_at, k)), lanes)
                b.store(code.fma(share, code.load(a, here, lanes), b.load(passed)), passed)
                if to_weight:
                    code.store(
                        code.fma(share, active, code.load(grad_a, here, lanes)), grad_a, here
                    )
            result = code.mul(b.load(passed), _slope_at(code, active, slope, smooth))
            place = b.add(total_at, i)
            code.store(code.add(result, code.load(total, place, lanes)), total, place)
            if to_edges:
                code.store(result, grad_z, b.add(grad_z_at, i))

        _vectors(code, slope, n, body)
        return context.get_dummy_value()

    i = types.int64
    return types.void(
        x, i, y, i, z, i, a, i, i, i, slope, grad, i, total, i, grad_a, grad_z, i
    ), make


@numba.njit(inline="always", **_INNER)
def _at(b, node, group, strides):
    """Where a row of nodes, or of edges, stands."""
    return b * strides[0] + node * strides[1] + group * strides[2]


@compiled(**_OUTER)
def scores(sizes, b, x, y, z, a, slope, order, ptr, index, edge, lo, hi, out):
    """``out`` (B, E, G, K), in the caller's order, of the edges into the targets of rows
    ``lo .. hi - 1``.
    """
    G, K, group, width = sizes
    H = G // group
    # once: not free in Numba
    (x_data, y_data, z_data), (xs, ys, zs) = (
        (x[0], y[0], z[0]),
        (x[1:], y[1:], z[1:]),
    )
    last = len(index) - 1
    for r in range(lo, hi):
        for j in range(ptr[r], ptr[r + 1]):
            fetched(y_data, _at(b, index[min(j + AHEAD, last)], 0, ys), H * width)
            to = (b * (last + 1) + edge[j]) * G * K
            for h in range(H):
                for g in range(h * group, (h + 1) * group):
                    x_at = _at(b, order[r], g, xs)
                    y_at = _at(b, index[j], h, ys)
                    z_at = _at(b, edge[j], g, zs)
                    _scored(
                        x_data,
                        x_at,
                        y_data,
                        y_at,
                        z_data,
                        z_at,
                        a,
                        g * K * width,
                        K,
                        width,
                        slope,
                        out,
                        to + g * K,
                    )


@numba.njit(inline="always", **_INNER)
def _any(grad, at, count):
    """True if an edge gets a gradient; one that does not passes nothing, not even a NaN."""
    anything = False
    for k in range(at, at + count):
        anything |= grad[k] != 0
    return anything


@compiled(**_OUTER)
def to_targets(
    sizes,
    b,
    x,
    y,
    z,
    a,
    slope,
    order,
    ptr,
    index,
    edge,
    lo,
    hi,
    grad,
    grad_x,
    grad_z,
    grad_a,
    part,
    total,
    part_a,
):
    """What ``grad`` (B, E, G, K) passes to the targets of rows ``lo .. hi - 1``, to their edges (B,
    E, G, D) if ``grad_z`` is an array, and to ``a``: added to ``grad_a`` in float64, a piece of
    edges at a time."""
    G, K, group, width = sizes
    H = G // group
    # once: not free in Numba
    (x_data, y_data, z_data), (xs, ys, zs) = (
        (x[0], y[0], z[0]),
        (x[1:], y[1:], z[1:]),
    )
    data, batch, node, head = grad_x
    last = len(index) - 1
    since = 0
    part[:] = 0
    part_a[:] = 0
    for r in range(lo, hi):
        t = order[r]
        first = ptr[r]
        stop = ptr[r + 1]
        to = b * batch + t * node
        total[:] = 0
        for start in range(first, stop, PIECE):
            end = min(start + PIECE, stop)
            for j in range(start, end):
                fetched(y_data, _at(b, index[min(j + AHEAD, last)], 0, ys), H * width)
                e = b * (last + 1) + edge[j]
                for h in range(H):
                    for g in range(h * group, (h + 1) * group):
                        place = (e * G + g) * width
                        if _any(grad, (e * G + g) * K, K):
                            x_at = _at(b, t, g, xs)
                            y_at = _at(b, index[j], h, ys)
                            z_at = _at(b, edge[j], g, zs)
                            _passed_back(
                                x_data, x_at, y_data, y_at, z_data, z_at, a, g * K * width, K, width, slope,
                                grad, (e * G + g) * K, part, g * width, part_a, grad_z, place,
                            )  # fmt: skip
                        elif grad_z is not None:
                            grad_z[place : place + width] = 0
            _move(total, part)
            since += end - start
            if since >= PIECE:
                _move(grad_a, part_a)
                since = 0
        _write(data, to, head, G, width, total)
    _move(grad_a, part_a)


@numba.njit(**_INNER)
def _move(totals, part):
    """Add what a piece came to, and begin the next."""
    for i in range(len(part)):
        totals[i] += part[i]
        part[i] = 0


@numba.njit(**_INNER)
def _write(data, at, head, heads, width, total):
    for h in range(heads):
        for i in range(width):
            data[at + h * head + i] = total[h * width + i]


@compiled(**_OUTER)
def to_sources(
    sizes, b, x, y, z, a, slope, order, ptr, target, edge, lo, hi, grad, grad_y, part, total
):
    """What ``grad`` passes to the sources of rows ``lo .. hi - 1``."""
    G, K, group, width = sizes
    H = G // group
    # once: not free in Numba
    (x_data, y_data, z_data), (xs, ys, zs) = (
        (x[0], y[0], z[0]),
        (x[1:], y[1:], z[1:]),
    )
    data, batch, node, head = grad_y
    last = len(target) - 1
    part[:] = 0
    for r in range(lo, hi):
        s = order[r]
        first = ptr[r]
        stop = ptr[r + 1]
        to = b * batch + s * node
        total[:] = 0
        for start in range(first, stop, PIECE):
            for j in range(start, min(start + PIECE, stop)):
                fetched(x_data, _at(b, target[min(j + AHEAD, last)], 0, xs), G * width)
                e = b * (last + 1) + edge[j]
                for h in range(H):
                    for g in range(h * group, (h + 1) * group):
                        if _any(grad, (e * G + g) * K, K):
                            x_at = _at(b, target[j], g, xs)
                            y_at = _at(b, s, h, ys)
                            z_at = _at(b, edge[j], g, zs)
                            _passed_back(
                                x_data, x_at, y_data, y_at, z_data, z_at, a, g * K * width, K, width, slope,
                                grad, (e * G + g) * K, part, h * width, None, None, 0,
                            )  # fmt: skip
            _move(total, part)
        _write(data, to, head, H, width, total)
