"""Products and sums of a block of targets with a stretch of sources: the parts of the block kernel.

A block has ``VECTORS`` vectors of targets, of ``lanes`` numbers each. What belongs to its targets is
turned, (width, block): vectors of one number of every target. Keys and values of one head are packed,
(S, stride), and each of their numbers is read into every lane; they are not turned. Scores and
weights are (sources, block). A part works on the first ``vectors`` of the block from its operands
on, so that a stretch that only some of the targets read costs less.

``masks`` (n,) int64 tell for each source of a stretch which targets of the block read it, a bit each
from ``shift`` on; without an address all do.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from llvmlite import ir

from ...plans.pieces import VECTORS
from ..llvm.code import LANE, Code, Value, Variable, type_of, vector_type
from ..llvm.native import Indices, Integer, Marks, NodeRow, Number, Places, Sums
from ..llvm.vectors import exp2, tanh

SOON = 16  # rows before a row is read, it is asked for


class Part(NamedTuple):
    """The key of a part as machine code."""

    sums: torch.dtype
    nodes: torch.dtype
    vectors: int = VECTORS
    masked: bool = False  # True if sums leave out, by masks, what may be NaN
    biased: bool = False  # True if scores may have a bias
    sigmoid: bool = False  # True if weights are sigmoids of scores
    indices: torch.dtype = torch.int32


class Bias(NamedTuple):
    """Biases of a block: entry ``targets[i] - sources[s]`` of a table for target ``i`` and source
    ``s``; without places of targets these are ``i``.
    """

    table: Sums  # absent without a bias
    sources: Indices
    targets: Indices


class Shape(NamedTuple):
    """Lanes of a vector, targets of a block, and sources whose sums are in registers at once."""

    lanes: int
    targets: int
    rows: int

    @classmethod
    def of(cls, vector_bytes: int, registers: int, number_bytes: int) -> "Shape":
        """The shape for a CPU: rows of three vectors in all registers but some for operands."""
        lanes = vector_bytes // number_bytes
        rows = 4
        if registers >= 32:
            rows = 8
        return cls(lanes, lanes * VECTORS, rows)


def shape_of(code: Code, kinds: Any) -> Shape:
    """The shape for the code of a kernel."""
    return Shape.of(code.vector_bytes, code.registers, kinds.sums.itemsize)


def zeros(code: Code, kinds: Any, lanes: int) -> Value:
    """A vector of zeros."""
    return code.constant(0.0, vector_type(type_of(kinds.sums), lanes))


def _readers(mask: Value, shift: Value, lanes: int) -> Value:
    """The lanes of a vector whose targets read a source."""
    word = (mask >> shift).resized(LANE).splat(lanes)
    bits = ir.Constant(ir.VectorType(LANE, lanes), [1 << i for i in range(lanes)])
    return (word & Value(mask.code, bits)) != 0


def larger(x: Value, y: Value) -> Value:
    """The larger of two; the second where the first is NaN."""
    return (x > y).where(x, y)


# --- packing


def _turned(rows: list[Value]) -> list[Value]:
    """As many vectors as each has lanes, columns for rows."""
    lanes = len(rows)
    step = 1
    while step < lanes:
        low = [j if j & step == 0 else lanes + j - step for j in range(lanes)]
        high = [j + step if j & step == 0 else lanes + j for j in range(lanes)]
        columns = list(rows)
        for i in range(lanes):
            if i & step == 0:
                columns[i] = rows[i].pick(low, rows[i + step])
                columns[i + step] = rows[i].pick(high, rows[i + step])
        rows = columns
        step *= 2
    return rows


class _Finite:
    """A sum that is NaN once a NaN or an infinity has been seen."""

    def __init__(self, code: Code, kinds: Any, lanes: int) -> None:
        self.code = code
        self.vector = code.variable(zeros(code, kinds, lanes))
        self.number = code.variable(code.constant(0.0, type_of(kinds.sums)))

    def see(self, x: Value) -> None:
        """Look at a vector or a number."""
        total = self.vector
        if x.lanes == 1:
            total = self.number
        total.value = x.fma(x.constant(0.0), total.value)

    def report(self, broken: Marks) -> None:
        """Set a mark if something was not finite."""
        total = self.vector.value.sum() + self.number.value
        with self.code.when(total != 0.0):
            broken[0] = self.code.constant(1, ir.IntType(1))


def pack_targets(
    code: Code, kinds: Any, x: NodeRow, node: Integer, order: Indices, n: Integer, depth: Integer,
    factor: Number, to: Sums, broken: Marks,
) -> None:  # fmt: skip
    """``to[d, i] = factor * x[order[i], d]`` for ``i < n``, and 0 for the other targets of a block."""
    lanes, block, _ = shape_of(code, kinds)
    finite = _Finite(code, kinds, lanes)
    by = factor.splat(lanes)
    zero = zeros(code, kinds, lanes)
    whole = depth & -lanes
    with code.loop(0, block, lanes) as first:
        rows = [x.after_bytes(order[(first + i).least(n - 1)] * node) for i in range(lanes)]
        with code.loop(0, whole, lanes) as d:
            values = []
            for i, row in enumerate(rows):
                value = (first + i < n).where(row.read(d, lanes), zero)
                finite.see(value)
                values.append(value * by)
            for i, column in enumerate(_turned(values)):
                to.write((d + i) * block + first, column)
        with code.loop(whole, depth) as d:
            for i, row in enumerate(rows):
                number = (first + i < n).where(row[d], 0.0)
                finite.see(number)
                to[d * block + first + i] = number * factor
    finite.report(broken)


def unpack_targets(
    code: Code, kinds: Any, x: Sums, factor: Sums, order: Indices, n: Integer, depth: Integer,
    to: NodeRow, node: Integer,
) -> None:  # fmt: skip
    """``to[order[i], d] = factor[i] * x[d, i]`` for ``i < n``."""
    lanes, block, _ = shape_of(code, kinds)
    whole = depth & -lanes
    with code.loop(0, n, lanes) as first:
        by = factor.read(first, lanes)
        rows = [to.after_bytes(order[(first + i).least(n - 1)] * node) for i in range(lanes)]
        with code.loop(0, whole, lanes) as d:
            columns = [x.read((d + i) * block + first, lanes) * by for i in range(lanes)]
            for i, value in enumerate(_turned(columns)):
                with code.when(first + i < n):
                    rows[i].write(d, value)
        with code.loop(whole, depth) as d:
            for i, row in enumerate(rows):
                with code.when(first + i < n):
                    row[d] = x[d * block + first + i] * factor[first + i]


def pack_rows(
    code: Code, kinds: Any, x: NodeRow, node: Integer, order: Indices, n: Integer, depth: Integer,
    stride: Integer, factor: Number, to: Sums, broken: Marks,
) -> None:  # fmt: skip
    """``to[i, d] = factor * x[order[i], d]``, and 0 for ``d`` from ``depth`` to ``stride``."""
    lanes, _, _ = shape_of(code, kinds)
    finite = _Finite(code, kinds, lanes)
    by = factor.splat(lanes)
    whole = depth & -lanes
    with code.loop(0, n) as i:
        row = x.after_bytes(order[i] * node)
        next_row = x.after_bytes(order[(i + SOON).least(n - 1)] * node)
        out = to.after(i * stride)
        with code.loop(0, whole, lanes) as d:
            next_row.ask(d)
            value = row.read(d, lanes)
            finite.see(value)
            out.write(d, value * by)
        with code.loop(whole, depth) as d:
            number = row[d]
            finite.see(number)
            out[d] = number * factor
        with code.loop(depth, stride) as d:
            out[d] = code.constant(0.0, type_of(kinds.sums))
    finite.report(broken)


def unpack_rows(
    code: Code, kinds: Any, x: Sums, stride: Integer, order: Indices, n: Integer, depth: Integer,
    to: NodeRow, node: Integer,
) -> None:  # fmt: skip
    """``to[order[i], d] = x[i, d]``."""
    lanes, _, _ = shape_of(code, kinds)
    with code.loop(0, n) as i:
        row = to.after_bytes(order[i] * node)
        for d, count in code.vectors(depth, lanes, 1):
            row.write(d, x.read(i * stride + d, count))


# --- products and sums


def _grid(code: Code, first: Value, rows: int, columns: int) -> list[list[Variable]]:
    return [[code.variable(first) for _ in range(columns)] for _ in range(rows)]


def _each(grid: list[list[Any]]) -> Iterator[tuple[int, int, Any]]:
    for j, row in enumerate(grid):
        for v, x in enumerate(row):
            yield j, v, x


def scores(
    code: Code, kinds: Any, turned: Sums, rows: Sums, stride: Integer, depth: Integer, n: Integer,
    masks: Places, shift: Integer, to: Sums, peaks: Sums, bias: Bias,
) -> None:  # fmt: skip
    """``to[s, i] = sum_d rows[s, d] * turned[d, i]`` and the bias, -inf where a mask is 0; peaks
    rise to them.

    The rows of the last tile are those before its end, some of which are computed twice.
    """
    lanes, block, tile = shape_of(code, kinds)
    zero = zeros(code, kinds, lanes)
    highest = [code.variable(peaks.read(v * lanes, lanes)) for v in range(kinds.vectors)]
    last = n - 1
    with code.loop(0, n, tile) as start:
        first = start.least(n - tile)
        first = (first < 0).where(0, first)
        numbers = [(first + j).least(last) for j in range(tile)]
        sources = [rows.after(number * stride) for number in numbers]
        sums = _grid(code, zero, tile, kinds.vectors)
        with code.loop(0, depth) as d:
            of_targets = [turned.read(d * block + v * lanes, lanes) for v in range(kinds.vectors)]
            for j, source in enumerate(sources):
                x = source[d].splat(lanes)
                for v, y in enumerate(of_targets):
                    sums[j][v].value = x.fma(y, sums[j][v].value)
        if kinds.biased:
            with code.when(bias.table.is_given):
                _add_biases(bias, numbers, sums)
        with code.when(masks.is_given):
            for j, v, total in _each(sums):
                reads = _readers(masks[numbers[j]], shift + v * lanes, lanes)
                total.value = reads.where(total.value, float("-inf"))
        for j, v, total in _each(sums):
            to.write(numbers[j] * block + v * lanes, total.value)
            highest[v].value = larger(total.value, highest[v].value)
    for v, peak in enumerate(highest):
        peaks.write(v * lanes, peak.value)


def _add_biases(bias: Bias, numbers: list[Value], sums: list[list[Variable]]) -> None:
    """Add the biases of some sources to their sums."""
    lanes = sums[0][0].value.lanes
    places = [bias.sources[number] for number in numbers]
    with bias.table.code.branch(bias.targets.is_given) as (given, absent):
        with given:
            for j, v, total in _each(sums):
                targets = bias.targets.read(v * lanes, lanes)
                total.value += bias.table.gather(targets - places[j])
        with absent:
            for j, v, total in _each(sums):
                total.value += bias.table.read(v * lanes - places[j], lanes)


def capped(x: Value, slope: Value) -> Value:
    """``tanh(slope * x)``; an edge that is absent stays so."""
    return (x == float("-inf")).where(x, tanh(slope.splat(x.lanes) * x))


def _weight(kinds: Any, x: Value) -> Value:
    """``2**x``, or ``1 / (1 + 2**-x)``."""
    if not kinds.sigmoid:
        return exp2(x)
    is_low = x < 0.0
    power = exp2(is_low.where(x, 0.0 - x))
    return is_low.where(power, 1.0) / (1.0 + power)


def weigh(
    code: Code, kinds: Any, x: Sums, n: Integer, levels: Sums, rate: Number, slope: Number,
    totals: Sums,
) -> None:  # fmt: skip
    """``x[s, i] = 2**(rate * (x[s, i] - levels[i]))``, added to the totals, or its sigmoid; capped
    before, unless the slope is 0.
    """
    lanes, block, _ = shape_of(code, kinds)
    level = [levels.read(v * lanes, lanes) for v in range(kinds.vectors)]
    zero = zeros(code, kinds, lanes)
    sums = [code.variable(zero) for _ in range(kinds.vectors)]
    by = rate.splat(lanes)
    with code.when(slope != 0.0), code.loop(0, n) as s:
        for v in range(kinds.vectors):
            place = s * block + v * lanes
            x.write(place, capped(x.read(place, lanes), slope))
    with code.loop(0, n) as s:
        for v, total in enumerate(sums):
            place = s * block + v * lanes
            weight = _weight(kinds, (x.read(place, lanes) - level[v]) * by)
            x.write(place, weight)
            if not kinds.sigmoid:
                total.value += weight
    for v, total in enumerate(sums):
        totals.write(v * lanes, totals.read(v * lanes, lanes) + total.value)


def sums(
    code: Code, kinds: Any, weights: Sums, rows: Sums, stride: Integer, width: Integer, n: Integer,
    masks: Places, shift: Integer, to: Sums,
) -> None:  # fmt: skip
    """``to[d, i] += sum_s weights[s, i] * rows[s, d]`` for ``d < width``, a multiple of the tile.

    The sum of a stretch joins the total at its end, so that a long sum loses no digits.
    """
    for is_masked in _with_masks(code, kinds, masks):
        _sums(code, kinds, weights, rows, stride, width, n, masks, shift, to, is_masked)


def _with_masks(code: Code, kinds: Any, masks: Places) -> Iterator[bool]:
    """``for is_masked in _with_masks(...)``: code for a stretch with masks, and for one without, of
    which one runs; where nothing is to be left out, for one alone.
    """
    if not kinds.masked:
        yield False
        return
    with code.branch(masks.is_given) as (given, absent):
        with given:
            yield True
        with absent:
            yield False


def _sums(
    code: Code, kinds: Any, weights: Sums, rows: Sums, stride: Value, width: Value, n: Value,
    masks: Places, shift: Value, to: Sums, is_masked: bool,
) -> None:  # fmt: skip
    lanes, block, tile = shape_of(code, kinds)
    zero = zeros(code, kinds, lanes)
    with code.loop(0, width, tile) as d:
        totals = _grid(code, zero, tile, kinds.vectors)
        columns = rows.after(d)
        with code.loop(0, n) as s:
            weight = [weights.read(s * block + v * lanes, lanes) for v in range(kinds.vectors)]
            source = columns.after(s * stride)
            reads: list[Value | None] = [None] * kinds.vectors
            if is_masked:
                mask = masks[s]
                reads = [_readers(mask, shift + v * lanes, lanes) for v in range(kinds.vectors)]
            for j in range(tile):
                x = source[j].splat(lanes)
                for v, factor in enumerate(weight):
                    totals[j][v].value = _added(x, factor, totals[j][v].value, reads[v])
        for j, v, total in _each(totals):
            place = (d + j) * block + v * lanes
            to.write(place, to.read(place, lanes) + total.value)


def _added(x: Value, factor: Value, total: Value, is_read: Value | None) -> Value:
    result = x.fma(factor, total)
    if is_read is None:
        return result
    return is_read.where(result, total)


def slopes(
    code: Code, kinds: Any, x: Sums, grads: Sums, n: Integer, levels: Sums, factors: Sums,
    deltas: Sums, rate: Number, slope: Number,
) -> None:  # fmt: skip
    """Scores ``x`` become weights, ``factor * 2**(rate * (x - level))``, and gradients of weights
    those of scores, ``weight * (grad - delta)``, under a cap those of what it caps.
    """
    lanes, block, _ = shape_of(code, kinds)
    vectors = range(kinds.vectors)
    level, factor, delta = (
        [numbers.read(v * lanes, lanes) for v in vectors] for numbers in (levels, factors, deltas)
    )
    by = rate.splat(lanes)
    with code.branch(slope == 0.0) as branches:
        for branch, is_capped in zip(branches, (False, True), strict=True):
            with branch, code.loop(0, n) as s:
                for v in vectors:
                    place = s * block + v * lanes
                    score = x.read(place, lanes)
                    if is_capped:
                        score = capped(score, slope)
                    weight = _weight(kinds, (score - level[v]) * by) * factor[v]
                    x.write(place, weight)
                    grad = weight * (grads.read(place, lanes) - delta[v])
                    if kinds.sigmoid:
                        grad = grad * (1.0 - weight)
                    if is_capped:
                        grad = grad * (1.0 - score * score)
                    grads.write(place, (weight == 0.0).where(0.0, grad))


def table_sums(
    code: Code, kinds: Any, grads: Sums, n: Integer, masks: Places, shift: Integer, bias: Bias,
) -> None:  # fmt: skip
    """Add gradients of scores ``grads[s, i]`` to those of the biases; pairs that a mask leaves out
    become 0.
    """
    lanes, block, _ = shape_of(code, kinds)
    table = bias.table
    vectors = range(0, kinds.vectors * lanes, lanes)
    for is_masked in _with_masks(code, kinds, masks):
        with code.loop(0, n) as s:
            place = bias.sources[s]
            for v in vectors:
                if is_masked:
                    reads = _readers(masks[s], shift + v, lanes)
                    grad = grads.read(s * block + v, lanes)
                    grads.write(s * block + v, reads.where(grad, 0.0))
            with code.branch(bias.targets.is_given) as (given, absent):
                with given, code.loop(0, kinds.vectors * lanes) as i:
                    at = bias.targets[i] - place
                    table[at] += grads[s * block + i]
                with absent:
                    for v in vectors:
                        total = table.read(v - place, lanes)
                        grad = grads.read(s * block + v, lanes)
                        table.write(v - place, total + grad)


def outer(
    code: Code, kinds: Any, weights: Sums, rows: Sums, stride: Integer, targets: Integer,
    n: Integer, masks: Places, shift: Integer, to: Sums,
) -> None:  # fmt: skip
    """``to[s, d] += sum_i weights[s, i] * rows[i, d]`` over targets ``i``; ``d < stride``, whole
    vectors.
    """
    lanes, _, _ = shape_of(code, kinds)
    for is_masked in _with_masks(code, kinds, masks):
        start = code.integer(0)
        for count in (3, 2, 1):
            vectors = (stride - start) // (lanes * count)
            stop = start + vectors * (lanes * count)
            with code.loop(start, stop, lanes * count) as d:
                _outer(
                    code, kinds, weights, rows.after(d), stride, targets, n, masks, shift,
                    to.after(d), count, is_masked,
                )  # fmt: skip
            start = stop


def _outer(
    code: Code, kinds: Any, weights: Sums, rows: Sums, stride: Value, targets: Value, n: Value,
    masks: Places, shift: Value, to: Sums, count: int, is_masked: bool,
) -> None:  # fmt: skip
    lanes, block, tile = shape_of(code, kinds)
    zero = zeros(code, kinds, lanes)
    with code.loop(0, n, tile) as s:
        numbers = [(s + j).least(n - 1) for j in range(tile)]
        of_sources = [weights.after(number * block) for number in numbers]
        totals = _grid(code, zero, tile, count)
        with code.loop(0, targets) as i:
            target = rows.after(i * stride)
            values = [target.read(c * lanes, lanes) for c in range(count)]
            for j, source in enumerate(of_sources):
                factor = source[i].splat(lanes)
                reads = None
                if is_masked:
                    reads = ((masks[numbers[j]] >> (shift + i)) & 1) != 0
                for c, value in enumerate(values):
                    totals[j][c].value = _added(factor, value, totals[j][c].value, reads)
        for j in range(tile):
            with code.when(s + j < n):
                for c in range(count):
                    place = (s + j) * stride + c * lanes
                    to.write(place, to.read(place, lanes) + totals[j][c].value)
