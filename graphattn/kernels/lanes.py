"""Vector code for one row of edges, written in LLVM's own vectors: the loops that decide how fast the kernels are.

LLVM vectorises the plain loops in :mod:`graphattn.kernels.edges_numba` badly: a width known only when called costs a
check for overlap and a remainder loop in every dot product. Here the width is part of the type: ``wide`` is a tuple of
``D / 8`` zeros, so that Numba compiles one kernel for each width. Offsets (``_at``) and strides count numbers. A row of
``n`` edges owns ``padded(n)`` places in a buffer, whole vectors, and what stands in the places to spare adds nothing.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

ROW = 8  # places of a row come in vectors of as many
_FLAGS = ("reassoc", "contract", "nsz")  # infinities and NaN keep their meaning
intrinsic: Any = _intrinsic  # called without its first argument, which a type checker would miss
_I64, _I32 = ir.IntType(64), ir.IntType(32)


@njit(inline="always")
def padded(n):
    return (n + 7) // 8 * 8


class Code:
    """An IR builder that loads, stores and multiplies vectors of one float type."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.context, self.builder, self.types = context, builder, dict(enumerate(signature.args))
        self.arguments = arguments

    def pointer(self, i: int) -> Any:
        """Where the data of the array that is argument ``i`` starts."""
        return self.context.make_array(self.types[i])(self.context, self.builder, self.arguments[i]).data

    def float_type(self, i: int) -> Any:
        return self.context.get_data_type(self.types[i].dtype)

    def load(self, pointer: Any, at: Any, lanes: int) -> Any:
        place = self.builder.gep(pointer, [at])
        vector = ir.VectorType(place.type.pointee, lanes)
        return self.builder.load(self.builder.bitcast(place, vector.as_pointer()), align=4)

    def store(self, vector: Any, pointer: Any, at: Any) -> None:
        place = self.builder.gep(pointer, [at])
        self.builder.store(vector, self.builder.bitcast(place, vector.type.as_pointer()), align=4)

    def number(self, pointer: Any, at: Any) -> Any:
        """One entry; an integer as int64."""
        x = self.builder.load(self.builder.gep(pointer, [at]))
        return self.builder.sext(x, _I64) if isinstance(x.type, ir.IntType) and x.type.width < 64 else x

    def splat(self, x: Any, lanes: int) -> Any:
        vector = ir.VectorType(x.type, lanes)
        one = self.builder.insert_element(ir.Constant(vector, ir.Undefined), x, ir.Constant(_I32, 0))
        return self.pick(one, one, [0] * lanes)

    def widened(self, x: Any) -> Any:
        """In float64."""
        double = ir.VectorType(ir.DoubleType(), x.type.count)
        return x if x.type == double else self.builder.fpext(x, double)

    def constant(self, x: float, like: Any) -> Any:
        return ir.Constant(like, [x] * like.count)

    def pick(self, a: Any, b: Any, lanes: list[int]) -> Any:
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes))

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_FLAGS)

    def sub(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b, flags=_FLAGS)

    def mul(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=_FLAGS)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.add(self.mul(a, b), c)

    def call(self, name: str, x: Any) -> Any:
        kind = "f32" if isinstance(x.type.element, ir.FloatType) else "f64"
        function = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(x.type, [x.type]), f"llvm.{name}.v{x.type.count}{kind}"
        )
        return self.builder.call(function, [x])

    def fold(self, x: Any, until: int, join: Any) -> Any:
        """Halves of ``x`` joined until ``until`` lanes are left."""
        while x.type.count > until:
            half = x.type.count // 2
            x = join(*(self.pick(x, x, list(range(start, start + half))) for start in (0, half)))
        return x

    def sum_of_each(self, rows: list[Any]) -> Any:
        """The sums of four vectors as one of four lanes."""
        lanes = rows[0].type.count
        low = [x for k in range(0, lanes, 4) for x in (k, k + lanes, k + 1, k + lanes + 1)]
        pairs = [self.add(self.pick(a, b, low), self.pick(a, b, [x + 2 for x in low])) for a, b in (rows[:2], rows[2:])]
        low = [x for k in range(0, lanes, 4) for x in (k, k + 1, k + lanes, k + lanes + 1)]
        high = [x + 2 for x in low]
        return self.fold(self.add(self.pick(pairs[0], pairs[1], low), self.pick(pairs[0], pairs[1], high)), 4, self.add)


def _int(x: int) -> Any:
    return ir.Constant(_I64, x)


def _lanes(width: int) -> int:
    return 16 if width % 16 == 0 else 8


@intrinsic
def products(typingctx, wide, x, x_at, rows, rows_at, stride, index, first, n, out, out_at, scale, spare):
    """``out[i] = scale * <x, rows[index[first + i]]>`` for ``i < n``; ``spare`` in the places to spare."""
    width = 8 * wide.count

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        _, _, x_at, _, rows_at, stride, _, first, n, _, out_at, scale, spare = arguments
        x, rows, index, out = (code.pointer(i) for i in (1, 3, 6, 9))
        lanes, pieces = _lanes(width), width // _lanes(width)
        chunks = [code.load(x, builder.add(x_at, _int(c * lanes)), lanes) for c in range(pieces)]
        factor = code.splat(scale, ROW)

        def eight(i: Any, places: list[Any]) -> Any:
            sums = []
            for place in places:
                source = code.number(index, builder.add(first, place))
                at = builder.add(rows_at, builder.mul(source, stride))
                total = None
                for c in range(pieces):
                    row = code.load(rows, builder.add(at, _int(c * lanes)), lanes)
                    total = code.mul(chunks[c], row) if total is None else code.fma(chunks[c], row, total)
                sums.append(code.fold(total, 8, code.add))
            all_sums = code.pick(code.sum_of_each(sums[:4]), code.sum_of_each(sums[4:]), list(range(8)))
            return code.mul(all_sums, factor)

        whole = builder.and_(n, _int(-ROW))
        with cgutils.for_range_slice(builder, _int(0), whole, _int(ROW), _I64) as (i, _):
            code.store(eight(i, [builder.add(i, _int(j)) for j in range(ROW)]), out, builder.add(out_at, i))
        with builder.if_then(builder.icmp_signed("<", whole, n)):  # repeat the last edge, and keep none of it
            last = builder.sub(n, _int(1))
            places = [builder.add(whole, _int(j)) for j in range(ROW)]
            result = eight(whole, [builder.select(builder.icmp_signed("<", p, n), p, last) for p in places])
            count = ir.Constant(ir.VectorType(_I64, ROW), list(range(ROW)))
            used = builder.icmp_signed("<", count, code.splat(builder.sub(n, whole), ROW))
            code.store(builder.select(used, result, code.splat(spare, ROW)), out, builder.add(out_at, whole))
        return context.get_dummy_value()

    return types.void(wide, x, types.int64, rows, types.int64, types.int64, index, types.int64, types.int64,
                      out, types.int64, out.dtype, out.dtype), make  # fmt: skip


@intrinsic
def weighted_sum(
    typingctx, wide, rows, rows_at, stride, index, first, n, weight, place, weight_stride, weight_at, out, out_at, more
):
    """``out = sum_i weight[i] * rows[index[first + i]]``, added to what is there if ``more``.

    ``weight[i]`` stands at ``weight_at + i``, or with a ``place`` at ``weight_at + place[first + i] * weight_stride``.
    """
    width = 8 * wide.count
    far = not isinstance(place, types.NoneType)

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        _, _, rows_at, stride, _, first, n, _, _, weight_stride, weight_at, _, out_at, more = arguments
        rows, index, weight, out = (code.pointer(i) for i in (1, 4, 7, 11))
        where = code.pointer(8) if far else None
        lanes = _lanes(width)
        at_once = max(c for c in range(1, 9) if (width // lanes) % c == 0)
        vector = ir.VectorType(code.float_type(1), lanes)

        def edge(i: Any, start: int, totals: list[Any]) -> None:
            here = builder.add(first, i)
            source = code.number(index, here)
            own = builder.mul(code.number(where, here), weight_stride) if far else i
            factor = code.splat(code.number(weight, builder.add(weight_at, own)), lanes)
            at = builder.add(rows_at, builder.mul(source, stride))
            for c, total in enumerate(totals):
                row = code.load(rows, builder.add(at, _int(start + c * lanes)), lanes)
                builder.store(code.fma(factor, row, builder.load(total)), total)

        for start in range(0, width, at_once * lanes):
            even, odd = ([cgutils.alloca_once(builder, vector) for _ in range(at_once)] for _ in range(2))
            for total in (*even, *odd):
                builder.store(code.constant(0.0, vector), total)
            whole = builder.and_(n, _int(-2))
            with cgutils.for_range_slice(builder, _int(0), whole, _int(2), _I64) as (i, _):
                edge(i, start, even)
                edge(builder.add(i, _int(1)), start, odd)
            with builder.if_then(builder.icmp_signed("<", whole, n)):
                edge(whole, start, even)
            for c in range(at_once):
                at = builder.add(out_at, _int(start + c * lanes))
                total = code.add(builder.load(even[c]), builder.load(odd[c]))
                slot = cgutils.alloca_once_value(builder, total)
                with builder.if_then(more):
                    builder.store(code.add(total, code.load(out, at, lanes)), slot)
                code.store(builder.load(slot), out, at)
        return context.get_dummy_value()

    i = types.int64
    return types.void(wide, rows, i, i, index, i, i, weight, place, i, i, out, i, types.boolean), make


@intrinsic
def largest(typingctx, row, at, n):
    """The largest of ``row[at : at + padded(n)]``; a NaN may be passed over."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        _, at, n = arguments
        row, vector = code.pointer(0), ir.VectorType(code.float_type(0), ROW)

        def larger(a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        peak = cgutils.alloca_once_value(builder, code.constant(float("-inf"), vector))
        with cgutils.for_range_slice(builder, _int(0), n, _int(ROW), _I64) as (i, _):
            builder.store(larger(code.load(row, builder.add(at, i), ROW), builder.load(peak)), peak)
        return builder.extract_element(code.fold(builder.load(peak), 1, larger), ir.Constant(_I32, 0))

    return row.dtype(row, types.int64, types.int64), make


def exp32(code: Code, x: Any) -> Any:
    """The Cephes polynomial; 0 below -87, and no care above 88: scores are at most their peak."""
    builder, kind = code.builder, x.type

    def number(value: float) -> Any:
        return code.constant(float(np.float32(value)), kind)

    k = code.call("floor", code.fma(x, number(1.4426950408889634), number(0.5)))
    r = code.fma(k, number(-0.693359375), x)
    r = code.fma(k, number(2.12194440e-4), r)
    y = number(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        y = code.fma(y, r, number(c))
    y = code.add(code.fma(code.mul(y, r), r, r), number(1.0))
    whole = ir.VectorType(_I32, kind.count)
    k = builder.select(builder.fcmp_ordered(">", k, number(-126)), k, number(-126))
    power = builder.add(builder.fptosi(k, whole), ir.Constant(whole, [127] * kind.count))
    power = builder.bitcast(builder.shl(power, ir.Constant(whole, [23] * kind.count)), kind)
    return builder.select(builder.fcmp_ordered("<", x, number(-87)), number(0), code.mul(y, power))


@intrinsic
def exponentials(typingctx, row, at, n, level):
    """``row[at : at + padded(n)]`` becomes ``exp(. - level)``; the sum, in float64."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        _, at, n, level = arguments
        row, double = code.pointer(0), ir.VectorType(ir.DoubleType(), ROW)
        total = cgutils.alloca_once_value(builder, code.constant(0.0, double))
        shift = code.splat(level, ROW)
        with cgutils.for_range_slice(builder, _int(0), n, _int(ROW), _I64) as (i, _):
            here = builder.add(at, i)
            x = code.sub(code.load(row, here, ROW), shift)
            y = code.call("exp", x) if x.type == double else exp32(code, x)
            code.store(y, row, here)
            builder.store(code.add(builder.load(total), code.widened(y)), total)
        return builder.extract_element(code.fold(builder.load(total), 1, code.add), ir.Constant(_I32, 0))

    return types.float64(row, types.int64, types.int64, row.dtype), make


@intrinsic
def inner64(typingctx, a, b, at, n):
    """``sum a[i] * b[i]`` over ``at .. at + padded(n) - 1``, summed in float64."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        _, _, at, n = arguments
        a, b, double = code.pointer(0), code.pointer(1), ir.VectorType(ir.DoubleType(), ROW)
        total = cgutils.alloca_once_value(builder, code.constant(0.0, double))
        with cgutils.for_range_slice(builder, _int(0), n, _int(ROW), _I64) as (i, _):
            here = builder.add(at, i)
            y = code.mul(code.load(a, here, ROW), code.load(b, here, ROW))
            builder.store(code.add(builder.load(total), code.widened(y)), total)
        return builder.extract_element(code.fold(builder.load(total), 1, code.add), ir.Constant(_I32, 0))

    return types.float64(a, b, types.int64, types.int64), make


@intrinsic
def slopes(typingctx, weight, grad, at, n, shift):
    """``owed = weight * (owed + shift)`` over ``at .. at + padded(n) - 1``."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        _, _, at, n, shift = arguments
        weight, grad, shift = code.pointer(0), code.pointer(1), code.splat(shift, ROW)
        with cgutils.for_range_slice(builder, _int(0), n, _int(ROW), _I64) as (i, _):
            here = builder.add(at, i)
            y = code.mul(code.load(weight, here, ROW), code.add(code.load(grad, here, ROW), shift))
            code.store(y, grad, here)
        return context.get_dummy_value()

    return types.void(weight, grad, types.int64, types.int64, grad.dtype), make


@intrinsic
def scaled(typingctx, row, at, n, factor):
    """``row[at : at + padded(n)] *= factor``."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        _, at, n, factor = arguments
        row, factor = code.pointer(0), code.splat(factor, ROW)
        with cgutils.for_range_slice(builder, _int(0), n, _int(ROW), _I64) as (i, _):
            here = builder.add(at, i)
            code.store(code.mul(code.load(row, here, ROW), factor), row, here)
        return context.get_dummy_value()

    return types.void(row, types.int64, types.int64, row.dtype), make
