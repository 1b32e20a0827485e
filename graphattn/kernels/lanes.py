"""Vector code for one row of edges, written in LLVM's own vectors: the loops that decide how fast
the kernels are.

LLVM vectorises the plain loops in :mod:`graphattn.kernels.edges_numba` badly. Offsets (``_at``) and
strides count numbers. A row of ``n`` edges owns ``padded(n)`` places in a buffer for each head,
whole vectors, and what stands in the places to spare adds nothing.

Rows of nodes are read as they are stored: any strides of nodes and heads, a width that is a
multiple of eight, float32, float64, or halves (``uint16`` holds float16, ``int16`` bfloat16), which
are widened in registers.

All heads of an edge are read before the next edge, and asked for ``AHEAD`` edges earlier: measured,
kNN in Morton order takes 0.75 and a mesh in a bad order 0.7 of the time of products and sums that
read every edge for each head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

ROW = 8  # places of a row come in vectors of as many
FOUR = 4  # numbers of a short vector
AHEAD = 24  # edges between asking for a row of nodes and reading it
FAST = {"reassoc", "contract", "arcp", "nsz"}  # infinities and NaN keep their meaning
# what Python never calls
UNWRAPPED: dict[str, Any] = {
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
}
intrinsic: Any = _intrinsic  # called without its first argument, which a type checker would miss
_I64, _I32 = ir.IntType(64), ir.IntType(32)


@njit(**UNWRAPPED)  # in place by LLVM: Numba, told to inline it, takes a second
def padded(n):
    return (n + 7) // 8 * 8


class Code:
    """An IR builder that loads, stores and multiplies vectors of one float type."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.context = context
        self.builder = builder
        self.types = dict(enumerate(signature.args))
        self.arguments = arguments
        self.halves: dict[Any, str] = {}

    def pointer(self, i: int) -> Any:
        """Where the data of the array that is argument ``i`` starts, or the pointer that it is."""
        data = self.arguments[i]
        if isinstance(self.types[i], types.Array):
            data = self.context.make_array(self.types[i])(self.context, self.builder, data).data
        if self.types[i].dtype == types.uint16:
            self.halves[data] = "float16"
        else:
            self.halves[data] = "bfloat16"
        return data

    def float_type(self, i: int) -> Any:
        return self.context.get_data_type(self.types[i].dtype)

    def size(self, pointer: Any) -> int:
        """Bytes of one entry."""
        return self.context.get_abi_sizeof(pointer.type.pointee)

    def load(self, pointer: Any, at: Any, lanes: int) -> Any:
        place = self.builder.gep(pointer, [at])
        vector = ir.VectorType(place.type.pointee, lanes)
        return self.builder.load(
            self.builder.bitcast(place, vector.as_pointer()), align=self.size(pointer)
        )

    def store(self, vector: Any, pointer: Any, at: Any) -> None:
        place = self.builder.gep(pointer, [at])
        self.builder.store(
            vector, self.builder.bitcast(place, vector.type.as_pointer()), align=self.size(pointer)
        )

    def read(self, pointer: Any, at: Any, lanes: int, kind: Any) -> Any:
        """:meth:`load` of nodes, in the float type ``kind``."""
        x = self.load(pointer, at, lanes)
        vector = ir.VectorType(kind, lanes)
        if isinstance(x.type.element, ir.IntType):
            if self.halves[pointer] == "float16":
                return self.builder.fpext(
                    self.builder.bitcast(x, ir.VectorType(ir.HalfType(), lanes)), vector
                )
            word = ir.VectorType(_I32, lanes)
            return self.builder.bitcast(
                self.builder.shl(self.builder.zext(x, word), ir.Constant(word, [16] * lanes)),
                vector,
            )
        return x

    def prefetch(self, pointer: Any, at: Any, count: int) -> None:
        """Ask for ``count`` numbers from ``at`` on."""
        b = self.builder
        byte = ir.IntType(8).as_pointer()
        size = self.size(pointer)
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0i8")
        start = b.bitcast(b.gep(pointer, [at]), byte)
        for offset in range(0, count * size, 64):
            b.call(
                function, [b.gep(start, [_int(offset)]), *(ir.Constant(_I32, x) for x in (0, 3, 1))]
            )

    def number(self, pointer: Any, at: Any) -> Any:
        """One entry; an integer as int64."""
        x = self.builder.load(self.builder.gep(pointer, [at]))
        if isinstance(x.type, ir.IntType) and x.type.width < 64:
            return self.builder.sext(x, _I64)
        return x

    def splat(self, x: Any, lanes: int) -> Any:
        vector = ir.VectorType(x.type, lanes)
        one = self.builder.insert_element(
            ir.Constant(vector, ir.Undefined), x, ir.Constant(_I32, 0)
        )
        return self.pick(one, one, [0] * lanes)

    def widened(self, x: Any) -> Any:
        """In float64."""
        double = ir.VectorType(ir.DoubleType(), x.type.count)
        if x.type == double:
            return x
        return self.builder.fpext(x, double)

    def constant(self, x: float, like: Any) -> Any:
        return ir.Constant(like, [x] * like.count)

    def pick(self, a: Any, b: Any, lanes: list[int]) -> Any:
        return self.builder.shuffle_vector(
            a, b, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes)
        )

    def loop(self, start: Any, stop: Any, step: int = 1) -> Any:
        """``with code.loop(start, stop, step) as i:`` what is built inside is run for every
        ``i``.
        """
        return _first(cgutils.for_range_slice(self.builder, start, stop, _int(step), _I64))

    def padded(self, n: Any) -> Any:
        """:func:`padded`."""
        return self.builder.and_(self.builder.add(n, _int(ROW - 1)), _int(-ROW))

    def least(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def write(self, x: Any, pointer: Any, at: Any) -> None:
        """:meth:`store` of nodes: rounded to the nearest half, to even, where these are halves."""
        lanes = x.type.count
        if isinstance(pointer.type.pointee, ir.IntType):
            half = ir.VectorType(ir.IntType(16), lanes)
            if self.halves[pointer] == "float16":
                x = self.builder.bitcast(
                    self.builder.fptrunc(x, ir.VectorType(ir.HalfType(), lanes)), half
                )
            else:
                word = ir.VectorType(_I32, lanes)
                bits = self.builder.bitcast(x, word)
                shift = ir.Constant(word, [16] * lanes)
                one = ir.Constant(word, [1] * lanes)
                odd = self.builder.and_(self.builder.lshr(bits, shift), one)
                rounded = self.builder.add(
                    self.builder.add(bits, odd), ir.Constant(word, [0x7FFF] * lanes)
                )
                nan = self.builder.fcmp_unordered("uno", x, x)  # a NaN stays one, whatever its bits
                rounded = self.builder.select(nan, ir.Constant(word, [0x7FC00000] * lanes), rounded)
                x = self.builder.trunc(self.builder.lshr(rounded, shift), half)
        self.store(x, pointer, at)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b)

    def sub(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b)

    def mul(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """``a * b + c``, rounded once where the machine can: the same whatever stands around it."""
        return self.call("fmuladd", a, b, c)

    def call(self, name: str, *given: Any) -> Any:
        vector = given[0].type
        if isinstance(vector.element, ir.FloatType):
            kind = "f32"
        else:
            kind = "f64"
        function = cgutils.get_or_insert_function(
            self.builder.module,
            ir.FunctionType(vector, [vector] * len(given)),
            f"llvm.{name}.v{vector.count}{kind}",
        )
        return self.builder.call(function, given)

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
        pairs = [
            self.add(self.pick(a, b, low), self.pick(a, b, [x + 2 for x in low]))
            for a, b in (rows[:2], rows[2:])
        ]
        low = [x for k in range(0, lanes, 4) for x in (k, k + 1, k + lanes, k + lanes + 1)]
        high = [x + 2 for x in low]
        return self.fold(
            self.add(self.pick(pairs[0], pairs[1], low), self.pick(pairs[0], pairs[1], high)),
            4,
            self.add,
        )


def _int(x: int) -> Any:
    return ir.Constant(_I64, x)


@contextmanager
def _first(loop: Any) -> Iterator[Any]:
    with loop as (i, _):
        yield i


@intrinsic
def fetched(typingctx, x, at, count):
    """Ask for ``x[at : at + count]``, to be read or written soon."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        _, at, count = arguments
        x = code.pointer(0)
        with code.loop(_int(0), count, 64 // code.size(x)) as i:
            code.prefetch(x, builder.add(at, i), 1)
        return context.get_dummy_value()

    return types.void(x, types.int64, types.int64), make


def _transposed(code: Code, rows: list[Any]) -> list[Any]:
    """Four vectors of four lanes, columns for rows."""
    low, high = (
        [code.pick(a, b, lanes) for a, b in (rows[:2], rows[2:])]
        for lanes in ([0, 4, 1, 5], [2, 6, 3, 7])
    )
    return [
        code.pick(a, b, lanes) for a, b in (low, high) for lanes in ([0, 1, 4, 5], [2, 3, 6, 7])
    ]


@intrinsic
def to_edges(typingctx, row, at, n, heads, out, out_at):
    """``out[out_at + i * heads + h] = row[at + h * m + i]`` for ``i < n``; four heads at once."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        b = builder
        _, at, n, heads, _, out_at = arguments
        row = code.pointer(0)
        out = code.pointer(4)
        m = code.padded(n)
        whole = b.and_(heads, _int(-FOUR))
        with code.loop(_int(0), n, FOUR) as i:
            start = b.add(out_at, b.mul(i, heads))
            with code.loop(_int(0), whole, FOUR) as h:
                here = [b.add(b.add(at, i), b.mul(b.add(h, _int(k)), m)) for k in range(FOUR)]
                for j, edge in enumerate(
                    _transposed(code, [code.load(row, place, FOUR) for place in here])
                ):
                    with b.if_then(b.icmp_signed("<", b.add(i, _int(j)), n)):
                        code.store(edge, out, b.add(b.add(start, h), b.mul(heads, _int(j))))
        with code.loop(whole, heads) as h, code.loop(_int(0), n) as i:
            x = code.number(row, b.add(b.add(at, i), b.mul(h, m)))
            b.store(x, b.gep(out, [b.add(b.add(out_at, h), b.mul(i, heads))]))
        return context.get_dummy_value()

    i = types.int64
    return types.void(row, i, i, i, out, i), make


@intrinsic
def from_edges(typingctx, x, x_at, n, heads, row, at):
    """``row[at + h * m + i] = x[x_at + i * heads + h]`` for ``i < n``, and 0 in the places to
    spare.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        b = builder
        _, x_at, n, heads, _, at = arguments
        x = code.pointer(0)
        row = code.pointer(4)
        m = code.padded(n)
        final = b.sub(n, _int(1))
        whole = b.and_(heads, _int(-FOUR))
        zero = ir.Constant(code.float_type(0), 0.0)
        zeros = code.constant(0.0, ir.VectorType(code.float_type(0), FOUR))
        with code.loop(_int(0), m, FOUR) as i:
            places = [b.add(i, _int(j)) for j in range(FOUR)]
            here = [b.add(x_at, b.mul(code.least(place, final), heads)) for place in places]
            used = [b.icmp_signed("<", place, n) for place in places]
            with code.loop(_int(0), whole, FOUR) as h:
                edges = [
                    b.select(use, code.load(x, b.add(e, h), FOUR), zeros)
                    for e, use in zip(here, used, strict=True)
                ]
                for k, head in enumerate(_transposed(code, edges)):
                    code.store(head, row, b.add(b.add(at, i), b.mul(b.add(h, _int(k)), m)))
        with code.loop(whole, heads) as h, code.loop(_int(0), m) as i:
            number = code.number(x, b.add(b.add(x_at, h), b.mul(code.least(i, final), heads)))
            number = b.select(b.icmp_signed("<", i, n), number, zero)
            b.store(number, b.gep(row, [b.add(b.add(at, i), b.mul(h, m))]))
        return context.get_dummy_value()

    i = types.int64
    return types.void(x, i, i, i, row, i), make


def exp32(code: Code, x: Any) -> Any:
    """The Cephes polynomial; 0 below -87, and no care above 88: scores are at most their peak."""
    builder = code.builder
    kind = x.type

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
def softmax(typingctx, row, at, m):
    """Scores ``row[at : at + m]`` become weights; their peak, and the sum of exponentials
    (float64).

    Where all are -inf, the weights, the peak and the sum are 0. A NaN may be passed over by the
    peak.
    """

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        b = builder
        _, at, m = arguments
        row = code.pointer(0)
        kind = code.float_type(0)
        double = ir.VectorType(ir.DoubleType(), ROW)

        def larger(x: Any, y: Any) -> Any:
            return b.select(b.fcmp_ordered(">", x, y), x, y)

        def vectors(body: Any) -> None:
            """``body(place, lanes)`` for two vectors of a row at once, and one that may be left."""
            whole = b.and_(m, _int(-2 * ROW))
            with code.loop(_int(0), whole, 2 * ROW) as i:
                body(b.add(at, i), 2 * ROW)
            with b.if_then(b.icmp_signed("<", whole, m)):
                body(b.add(at, whole), ROW)

        peak = cgutils.alloca_once_value(b, code.constant(float("-inf"), ir.VectorType(kind, ROW)))
        total = cgutils.alloca_once_value(b, code.constant(0.0, double))
        vectors(
            lambda here, lanes: b.store(
                larger(code.fold(code.load(row, here, lanes), ROW, larger), b.load(peak)), peak
            )
        )
        level = b.extract_element(code.fold(b.load(peak), 1, larger), ir.Constant(_I32, 0))
        level = b.select(
            b.fcmp_ordered("==", level, ir.Constant(kind, float("-inf"))),
            ir.Constant(kind, 0.0),
            level,
        )

        def exponentials(here: Any, lanes: int) -> None:
            x = code.sub(code.load(row, here, lanes), code.splat(level, lanes))
            if kind == ir.DoubleType():
                y = code.call("exp", x)
            else:
                y = exp32(code, x)
            code.store(y, row, here)
            b.store(code.add(b.load(total), code.widened(code.fold(y, ROW, code.add))), total)

        vectors(exponentials)
        sum_of_all = b.extract_element(code.fold(b.load(total), 1, code.add), ir.Constant(_I32, 0))
        empty = b.fcmp_ordered("==", sum_of_all, ir.Constant(ir.DoubleType(), 0.0))
        one = ir.Constant(ir.DoubleType(), 1.0)
        factor = b.fdiv(one, b.select(empty, one, sum_of_all))
        if kind != ir.DoubleType():
            factor = b.fptrunc(factor, kind)
        vectors(
            lambda here, lanes: code.store(
                code.mul(code.load(row, here, lanes), code.splat(factor, lanes)), row, here
            )
        )
        return context.make_tuple(b, signature.return_type, [level, sum_of_all])

    return types.Tuple((row.dtype, types.float64))(row, types.int64, types.int64), make


@intrinsic
def inner64(typingctx, a, b, at, n):
    """``sum a[i] * b[i]`` over ``at .. at + padded(n) - 1``, summed in float64."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        _, _, at, n = arguments
        a = code.pointer(0)
        b = code.pointer(1)
        double = ir.VectorType(ir.DoubleType(), ROW)
        total = cgutils.alloca_once_value(builder, code.constant(0.0, double))
        with code.loop(_int(0), n, ROW) as i:
            here = builder.add(at, i)
            y = code.mul(code.load(a, here, ROW), code.load(b, here, ROW))
            builder.store(code.add(builder.load(total), code.widened(y)), total)
        return builder.extract_element(
            code.fold(builder.load(total), 1, code.add), ir.Constant(_I32, 0)
        )

    return types.float64(a, b, types.int64, types.int64), make


@intrinsic
def slopes(typingctx, weight, grad, at, n, shift):
    """``owed = weight * (owed + shift)`` over ``at .. at + padded(n) - 1``."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = Code(context, builder, signature, arguments)
        _, _, at, n, shift = arguments
        weight = code.pointer(0)
        grad = code.pointer(1)
        shift = code.splat(shift, ROW)
        with code.loop(_int(0), n, ROW) as i:
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
        row = code.pointer(0)
        factor = code.splat(factor, ROW)
        with code.loop(_int(0), n, ROW) as i:
            here = builder.add(at, i)
            code.store(code.mul(code.load(row, here, ROW), factor), row, here)
        return context.get_dummy_value()

    return types.void(row, types.int64, types.int64, row.dtype), make
