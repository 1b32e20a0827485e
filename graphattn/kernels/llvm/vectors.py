"""Functions of vectors, and the softmax of one row of edges: code for :mod:`.softmax.cpu` and
:mod:`.additive.cpu`.

No function of a library is called, so that results are the same bits wherever the CPU is the same.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir

from .code import INT, LANE, Array, Value, type_of, vector_type
from .node_rows import FOUR, ROW, padded

DOUBLE = ir.DoubleType()
TWICE = 2 * ROW  # two vectors of a row at once
# exp in float32 as a polynomial, exp and log in float64 as ratios of them: the coefficients of
# Cephes, right to a unit of the last place
_EXP32 = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
          5.0000001201e-1)  # fmt: skip
#: exp2 between -1/2 and 1/2: in float32 the polynomial of least error, in float64 the series
_EXP2 = (1.534581243e-4, 1.339993090e-3, 9.618489072e-3, 5.550328642e-2, 2.402264625e-1,
         6.931471825e-1, 1.0)  # fmt: skip
_EXP2_64 = tuple(math.log(2.0) ** k / math.factorial(k) for k in reversed(range(14)))
_ODD64 = (1.26177193074810590878e-4, 3.02994407707441961300e-2, 9.99999999999999999910e-1)
_EVEN64 = (3.00198505138664455042e-6, 2.52448340349684104192e-3, 2.27265548208155028766e-1, 2.0)
_LOG = (1.01875663804580931796e-4, 4.97494994976747001425e-1, 4.70579119878881725854,
        1.44989225341610930846e1, 1.79368678507819816313e1, 7.70838733755885391666)  # fmt: skip
_LOG_BELOW = (1.0, 1.12873587189167450590e1, 4.52279145837532221105e1, 8.29875266912776603211e1,
              7.11544750618563894466e1, 2.31251620126765340583e1)  # fmt: skip
# tanh in float32 as a ratio of polynomials, odd over even: the coefficients of Eigen's, right to a
# few units of the last place between -MOST and MOST, and 1 to float32 beyond
_ODD = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
        1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)  # fmt: skip
_EVEN = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_MOST = 7.90531110763549805


def _constant(x: Value, c: float) -> Value:
    """A number in the type of ``x``, rounded to it."""
    if x.element == DOUBLE:
        return x.constant(c)
    return x.constant(float(np.float32(c)))


def _polynomial(x: Value, coefficients: tuple[float, ...]) -> Value:
    """The highest power first."""
    total = _constant(x, coefficients[0])
    for c in coefficients[1:]:
        total = total.fma(x, _constant(x, c))
    return total


def exp(x: Value) -> Value:
    """0 where it would be less than the smallest normal number, and no care far above 0: scores are
    at most their peak.
    """
    if x.element == DOUBLE:
        return _scaled_exp(x, -708.0, _ratio, (6.93145751953125e-1, 1.42860682030941723212e-6))
    return _scaled_exp(x, -87.0, _cubic, (0.693359375, -2.12194440e-4))


def _scaled_exp(x: Value, least: float, exp_near_0: Any, log_2: tuple[float, float]) -> Value:
    """``2**k * exp(r)`` with ``x = k log(2) + r``; the logarithm comes as two numbers, so that
    ``k`` times the first is exact.
    """
    inside = (x < least).where(least, x)
    k = x.code.intrinsic("floor", _constant(x, 1.4426950408889634).fma(inside, _constant(x, 0.5)))
    r = k.fma(_constant(x, -log_2[0]), inside)
    r = k.fma(_constant(x, -log_2[1]), r)
    digits = 52 if x.element == DOUBLE else 23
    word = INT if x.element == DOUBLE else LANE
    # the last digits of a number of this size count ones; the rest is shifted out
    bias = (1 << (word.width - digits - 2)) - 1
    power = (k + _constant(x, 1.5 * 2.0**digits + bias)).bits(word) << digits
    return (x < least).where(0.0, exp_near_0(r) * power.bits(x.element))


def exp2(x: Value) -> Value:
    """The power of 2; 0 where it would be less than the smallest normal number, and no care far
    above 0.
    """
    least = -126.0
    digits = 23
    word = LANE
    series: tuple[float, ...] = _EXP2
    if x.element == DOUBLE:
        least = -1022.0
        digits = 52
        word = INT
        series = _EXP2_64
    inside = (x < least).where(least, x)
    k = x.code.intrinsic("rint", inside)
    bias = (1 << (word.width - digits - 2)) - 1
    power = (k + _constant(x, 1.5 * 2.0**digits + bias)).bits(word) << digits
    return (x < least).where(0.0, _polynomial(inside - k, series) * power.bits(x.element))


def _cubic(r: Value) -> Value:
    return (_polynomial(r, _EXP32) * r).fma(r, r) + 1.0


def _ratio(r: Value) -> Value:
    square = r * r
    odd = r * _polynomial(square, _ODD64)
    return 1.0 + 2.0 * odd / (_polynomial(square, _EVEN64) - odd)


def log(x: Value) -> Value:
    """The logarithm of a float64 that is at least the smallest normal number."""
    bits = x.bits(INT)
    exponent = ((bits >> 52) - 1022).as_float(DOUBLE)
    half = ((bits & ((1 << 52) - 1)) | (1022 << 52)).bits(DOUBLE)
    is_low = half < 0.5**0.5
    exponent = is_low.where(exponent - 1.0, exponent)
    z = is_low.where(2.0 * half, half) - 1.0  # x = 2**exponent * (1 + z)
    square = z * z
    y = z * square * _polynomial(z, _LOG) / _polynomial(z, _LOG_BELOW)
    y = z + (y - exponent * 2.121944400546905827679e-4 - 0.5 * square) + exponent * 0.693359375
    return (x == x).where(y, x)


def _within(x: Value, most: float) -> Value:
    """``x`` between -most and most; a NaN stays one."""
    x = (x > most).where(most, x)
    return (x < -most).where(-most, x)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent."""
    if x.element == DOUBLE:
        return 1.0 - 2.0 / (exp(2.0 * _within(x, 20.0)) + 1.0)
    x = _within(x, _MOST)
    square = x * x
    return x * _polynomial(square, _ODD) / _polynomial(square, _EVEN)


def _larger(x: Value, y: Value) -> Value:
    return (x > y).where(x, y)


def softmax(row: Array, m: Value) -> tuple[Value, Value]:
    """Scores ``row[:m]`` become weights; their peak, and the sum of exponentials in float64.

    Where all are -inf, the weights, the peak and the sum are 0. A NaN may be passed over by the
    peak. ``m`` is padded.
    """
    code = row.code
    kind = type_of(row.dtype)
    peak = code.variable(code.constant(float("-inf"), vector_type(kind, ROW)))
    total = code.variable(code.constant(0.0, vector_type(DOUBLE, ROW)))

    for i, lanes in code.vectors(m, TWICE, ROW):
        peak.value = _larger(row.read(i, lanes).fold(_larger, ROW), peak.value)
    level = peak.value.fold(_larger)
    level = (level == float("-inf")).where(0.0, level)
    for i, lanes in code.vectors(m, TWICE, ROW):
        y = exp(row.read(i, lanes) - level)
        row.write(i, y)
        total.value += y.sum(ROW).to(DOUBLE)
    sum_of_all = total.value.sum()
    factor = (1.0 / (sum_of_all == 0.0).where(1.0, sum_of_all)).to(kind)
    scale(row, m, factor)
    return level, sum_of_all


def scale(row: Array, m: Value, factor: Value) -> None:
    """``row[:m] *= factor``; ``m`` is padded."""

    for i, lanes in row.code.vectors(m, TWICE, ROW):
        row.write(i, row.read(i, lanes) * factor)


def inner(a: Array, b: Array, m: Value) -> Value:
    """``sum a[i] * b[i]`` over ``i < m``, summed in float64; ``m`` is padded."""
    code = a.code
    total = code.variable(code.constant(0.0, vector_type(DOUBLE, ROW)))
    with code.loop(0, m, ROW) as i:
        total.value += (a.read(i, ROW) * b.read(i, ROW)).to(DOUBLE)
    return total.value.sum()


def dot(a: Array, b: Array, n: Value) -> Value:
    """``sum a[i] * b[i]`` over ``i < n``."""
    code = a.code
    kind = type_of(a.dtype)
    total = {
        lanes: code.variable(code.constant(0.0, vector_type(kind, lanes))) for lanes in (ROW, 1)
    }
    for i, lanes in code.vectors(n, ROW, 1):
        total[lanes].value = a.read(i, lanes).fma(b.read(i, lanes), total[lanes].value)
    return total[ROW].value.sum() + total[1].value


def slopes(weight: Array, grad: Array, m: Value, shift: Value) -> None:
    """``grad[:m] = weight * (grad + shift)``; ``m`` is padded."""
    with weight.code.loop(0, m, ROW) as i:
        grad.write(i, weight.read(i, ROW) * (grad.read(i, ROW) + shift))


def _transposed(rows: list[Value]) -> list[Value]:
    """Four vectors of four lanes, columns for rows."""
    low, high = (
        [a.pick(lanes, b) for a, b in (rows[:2], rows[2:])]
        for lanes in ([0, 4, 1, 5], [2, 6, 3, 7])
    )
    return [a.pick(lanes, b) for a, b in (low, high) for lanes in ([0, 1, 4, 5], [2, 3, 6, 7])]


def to_edges(row: Array, n: Value, heads: Value, out: Array) -> None:
    """``out[i * heads + h] = row[h * padded(n) + i]`` for ``i < n``; four heads at once."""
    code = row.code
    m = padded(n)
    four = heads & -FOUR
    with code.loop(0, n, FOUR) as i, code.loop(0, four, FOUR) as h:
        columns = [row.read((h + k) * m + i, FOUR) for k in range(FOUR)]
        for j, edge in enumerate(_transposed(columns)):
            with code.when(i + j < n):
                out.write((i + j) * heads + h, edge)
    with code.loop(four, heads) as h, code.loop(0, n) as i:
        out[i * heads + h] = row[h * m + i]


def from_edges(x: Array, n: Value, heads: Value, row: Array) -> None:
    """``row[h * padded(n) + i] = x[i * heads + h]`` for ``i < n``, and 0 in the places to spare."""
    code = row.code
    m = padded(n)
    four = heads & -FOUR
    final = n - 1
    with code.loop(0, m, FOUR) as i, code.loop(0, four, FOUR) as h:
        edges = []
        for j in range(FOUR):
            edge = x.read((i + j).least(final) * heads + h, FOUR)
            edges.append((i + j < n).where(edge, 0.0))
        for k, column in enumerate(_transposed(edges)):
            row.write((h + k) * m + i, column)
    with code.loop(four, heads) as h, code.loop(0, m) as i:
        row[h * m + i] = (i < n).where(x[i.least(final) * heads + h], 0.0)
