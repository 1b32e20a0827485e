"""Machine code in the making: numbers, vectors and memory that are used like Python's and become
LLVM's.

A function that is written with a :class:`Code` runs once, in Python, and leaves instructions:
``a + b`` an addition, ``array[i]`` a load, ``with code.loop(0, n) as i:`` a loop. A ``for`` of
Python leaves its body as often as Python runs it. Integers have 64 bits; places in an array count its
entries.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from llvmlite import ir

#: What may be assumed of sums and products; infinities and NaN keep their meaning.
FAST = ("reassoc", "contract", "arcp", "nsz")
LINE = 64  # bytes of a line of the caches

INT, LANE, BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)
_POINTER = ir.PointerType()
#: How entries of arrays lie in memory. LLVM's Python has no bfloat16; a bool is a byte.
_STORED: dict[torch.dtype, Any] = {
    torch.float64: ir.DoubleType(),
    torch.float32: ir.FloatType(),
    torch.float16: ir.HalfType(),
    torch.bfloat16: ir.IntType(16),
    torch.int64: INT,
    torch.int32: ir.IntType(32),
    torch.bool: BYTE,
}
_NAMES = {ir.DoubleType(): "f64", ir.FloatType(): "f32"}


def type_of(dtype: torch.dtype) -> Any:
    """The type of a float32 or float64."""
    return _STORED[dtype]


def vector_type(element: Any, lanes: int) -> Any:
    """The type of so many lanes; of one, that of a number."""
    if lanes == 1:
        return element
    return ir.VectorType(element, lanes)


def _operator(of_floats: str, of_integers: str, swapped: bool = False) -> Any:
    def operate(self: "Value", other: Any) -> "Value":
        a, b = self.alike(other)
        if swapped:
            a, b = b, a
        if self.is_float:
            return Value(self.code, getattr(self.builder, of_floats)(a, b, flags=FAST))
        return Value(self.code, getattr(self.builder, of_integers)(a, b))

    return operate


def _comparison(sign: str) -> Any:
    def compare(self: "Value", other: Any) -> "Value":
        a, b = self.alike(other)
        if not self.is_float:
            return Value(self.code, self.builder.icmp_signed(sign, a, b))
        if sign == "!=":  # true of a NaN
            return Value(self.code, self.builder.fcmp_unordered(sign, a, b))
        return Value(self.code, self.builder.fcmp_ordered(sign, a, b))

    return compare


class Value:
    """A number or a vector, as the code that gives it: the other of two may be a number of
    Python's.
    """

    def __init__(self, code: "Code", llvm_value: Any) -> None:
        self.code = code
        self.builder = code.builder
        self.ir = llvm_value

    @property
    def lanes(self) -> int:
        """Numbers of a vector, or 1."""
        return getattr(self.ir.type, "count", 1)

    @property
    def element(self) -> Any:
        """The type of one number."""
        return getattr(self.ir.type, "element", self.ir.type)

    @property
    def is_float(self) -> bool:
        """True of floating point."""
        return not isinstance(self.element, ir.IntType)

    def alike(self, other: Any) -> tuple[Any, Any]:
        """This and another as LLVM's, of the same lanes."""
        if not isinstance(other, Value):
            return self.ir, self.constant(other).ir
        lanes = max(self.lanes, other.lanes)
        return self.splat(lanes).ir, other.splat(lanes).ir

    def constant(self, x: float) -> "Value":
        """A number of Python's as one of the same type."""
        return self.code.constant(x, self.ir.type)

    def splat(self, lanes: int) -> "Value":
        """A number in every lane of a vector."""
        if self.lanes == lanes:
            return self
        vector = ir.VectorType(self.ir.type, lanes)
        first_lane = self.builder.insert_element(
            ir.Constant(vector, ir.Undefined), self.ir, ir.Constant(LANE, 0)
        )
        return Value(self.code, first_lane).pick([0] * lanes)

    def pick(self, lanes: list[int], other: "Value | None" = None) -> "Value":
        """Some lanes of a vector, or of two, side by side."""
        if other is None:
            other = self
        mask = ir.Constant(ir.VectorType(LANE, len(lanes)), lanes)
        return Value(self.code, self.builder.shuffle_vector(self.ir, other.ir, mask))

    def lane(self, i: int) -> "Value":
        """One number of a vector."""
        return Value(self.code, self.builder.extract_element(self.ir, ir.Constant(LANE, i)))

    def fold(self, join: Callable[["Value", "Value"], "Value"], until: int = 1) -> "Value":
        """Halves of a vector joined until so many lanes are left."""
        x = self
        while x.lanes > until:
            half = x.lanes // 2
            x = join(x.pick(list(range(half))), x.pick(list(range(half, x.lanes))))
        if x.lanes == 1 and isinstance(x.ir.type, ir.VectorType):
            return x.lane(0)
        return x

    def sum(self, until: int = 1) -> "Value":
        """Halves of a vector added until so many lanes are left."""
        return self.fold(lambda a, b: a + b, until)

    def to(self, element: Any) -> "Value":
        """Numbers converted to another type of floating point."""
        if self.element == element:
            return self
        target = self._like(element)
        if element == ir.DoubleType() or self.element == ir.HalfType():
            return Value(self.code, self.builder.fpext(self.ir, target))
        return Value(self.code, self.builder.fptrunc(self.ir, target))

    def bits(self, element: Any) -> "Value":
        """Bits taken for those of another type of equal width."""
        return Value(self.code, self.builder.bitcast(self.ir, self._like(element)))

    def resized(self, element: Any) -> "Value":
        """An integer with its sign in another width."""
        bits = element.width
        if self.element.width < bits:
            return Value(self.code, self.builder.sext(self.ir, self._like(element)))
        if self.element.width > bits:
            return Value(self.code, self.builder.trunc(self.ir, self._like(element)))
        return self

    def unsigned(self, element: Any) -> "Value":
        """An integer without a sign in another width."""
        return Value(self.code, self.builder.zext(self.ir, self._like(element)))

    def as_float(self, element: Any) -> "Value":
        """An integer as a float."""
        return Value(self.code, self.builder.sitofp(self.ir, self._like(element)))

    def _like(self, element: Any) -> Any:
        if isinstance(self.ir.type, ir.VectorType):
            return ir.VectorType(element, self.lanes)
        return element

    def fma(self, factor: "Value", term: "Value") -> "Value":
        """``self * factor + term``, rounded once where the machine can: whatever stands around
        it.
        """
        return self.code.intrinsic("fmuladd", self, factor, term)

    def where(self, yes: Any, no: Any) -> "Value":
        """``yes`` where a comparison is true, else ``no``; one of them may be a number of
        Python's.
        """
        if not isinstance(yes, Value):
            yes = no.constant(yes)
        a, b = yes.alike(no)
        return Value(self.code, self.builder.select(self.ir, a, b))

    def any_lane(self) -> "Value":
        """True if a comparison of vectors is true in some lane."""
        bits = self.builder.bitcast(self.ir, ir.IntType(self.lanes))
        return Value(self.code, self.builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)))

    def least(self, other: Any) -> "Value":
        """The smaller of two."""
        return (self < other).where(self, other)

    def __invert__(self) -> "Value":
        return Value(self.code, self.builder.not_(self.ir))

    __add__ = _operator("fadd", "add")
    __radd__ = _operator("fadd", "add", swapped=True)
    __sub__ = _operator("fsub", "sub")
    __rsub__ = _operator("fsub", "sub", swapped=True)
    __mul__ = _operator("fmul", "mul")
    __rmul__ = _operator("fmul", "mul", swapped=True)
    __truediv__ = _operator("fdiv", "sdiv")
    __rtruediv__ = _operator("fdiv", "sdiv", swapped=True)
    __floordiv__ = _operator("fdiv", "sdiv")
    __mod__ = _operator("frem", "srem")
    __and__ = _operator("", "and_")
    __or__ = _operator("", "or_")
    __xor__ = _operator("", "xor")
    __lshift__ = _operator("", "shl")
    __rshift__ = _operator("", "lshr")
    __lt__ = _comparison("<")
    __le__ = _comparison("<=")
    __gt__ = _comparison(">")
    __ge__ = _comparison(">=")
    __eq__ = _comparison("==")
    __ne__ = _comparison("!=")
    __hash__ = None  # type: ignore[assignment]


class Variable:
    """A number or a vector that changes: ``x.value`` is read and assigned."""

    def __init__(self, code: "Code", first: Value) -> None:
        self.code = code
        with code.builder.goto_entry_block():
            self.place = code.builder.alloca(first.ir.type)
        self.value = first

    @property
    def value(self) -> Value:
        """The last assigned value."""
        return Value(self.code, self.code.builder.load(self.place, typ=self.place.allocated_type))

    @value.setter
    def value(self, x: Value) -> None:
        self.code.builder.store(x.ir, self.place)


class Array:
    """Numbers of one dtype in memory, from an address on.

    Integers are read as 64 bits and halves as float32, and are written rounded to the nearest, to
    even. A vector may stand at any place.
    """

    def __init__(self, code: "Code", address: Any, dtype: torch.dtype) -> None:
        self.code = code
        self.builder = code.builder
        self.address = address
        self.dtype = dtype

    @property
    def is_given(self) -> Value:
        """False of an operand that is absent."""
        return Value(self.code, self.builder.icmp_unsigned("!=", self.address, _POINTER(None)))

    def only_if(self, condition: Value) -> Self:
        """The array, or no address where a condition is false."""
        address = self.builder.select(condition.ir, self.address, _POINTER(None))
        return type(self)(self.code, address, self.dtype)

    def after(self, count: Any) -> Self:
        """The array from so many entries on."""
        return type(self)(self.code, self._at(count), self.dtype)

    def after_bytes(self, count: Any) -> Self:
        """The array from so many bytes on."""
        place = self.builder.gep(self.address, [self.code.integer(count).ir], source_etype=BYTE)
        return type(self)(self.code, place, self.dtype)

    def _at(self, i: Any) -> Any:
        stored = _STORED[self.dtype]
        return self.builder.gep(self.address, [self.code.integer(i).ir], source_etype=stored)

    def read(self, i: Any, lanes: int = 1) -> Value:
        """The entry at a place, or a vector from there on."""
        kind = vector_type(_STORED[self.dtype], lanes)
        x = Value(self.code, self.builder.load(self._at(i), align=self.dtype.itemsize, typ=kind))
        if self.dtype == torch.bool:
            return x != 0
        if self.dtype == torch.float16:
            return x.to(ir.FloatType())
        if self.dtype == torch.bfloat16:
            return (x.unsigned(LANE) << 16).bits(ir.FloatType())
        if x.is_float:
            return x
        return x.resized(INT)

    def write(self, i: Any, x: Value) -> None:
        """Write an entry at a place, or a vector from there on."""
        if self.dtype == torch.bool:
            x = x.unsigned(BYTE)
        elif self.dtype == torch.bfloat16:
            # float32 as the bits of the nearest bfloat16; a NaN stays one, whatever its bits
            bits = x.bits(LANE)
            rounded = bits + ((bits >> 16) & 1) + 0x7FFF
            x = ((x != x).where(0x7FC00000, rounded) >> 16).resized(ir.IntType(16))
        elif x.is_float:
            x = x.to(_STORED[self.dtype])
        else:
            x = x.resized(_STORED[self.dtype])
        self.builder.store(x.ir, self._at(i), align=self.dtype.itemsize)

    def gather(self, places: Value) -> Value:
        """The floats at a vector of places."""
        vector = ir.Constant(vector_type(_STORED[self.dtype], places.lanes), ir.Undefined)
        for i in range(places.lanes):
            number = self.read(places.lane(i))
            vector = self.builder.insert_element(vector, number.ir, ir.Constant(LANE, i))
        return Value(self.code, vector)

    def __getitem__(self, i: Any) -> Value:
        return self.read(i)

    def __setitem__(self, i: Any, x: Value) -> None:
        self.write(i, x)

    def ask(self, i: Any = 0, bytes_ahead: int = LINE) -> None:
        """Ask for what stands from a place on, to be read or written soon."""
        start = Array(self.code, self._at(i), torch.bool)
        for offset in range(0, bytes_ahead, LINE):
            self.code.prefetch(start.after_bytes(offset).address)


class Code:
    """One function in the making."""

    def __init__(self, function: Any, vector_bytes: int, registers: int) -> None:
        self.function = function
        self.vector_bytes = vector_bytes  # of a register of the CPU
        self.registers = registers  # for vectors
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))

    def integer(self, x: Any) -> Value:
        """A number of Python's as an integer."""
        if isinstance(x, Value):
            return x
        return self.constant(x, INT)

    def constant(self, x: float, kind: Any) -> Value:
        """A number, or a vector of equal ones."""
        if isinstance(kind, ir.VectorType):
            return Value(self, ir.Constant(kind, [x] * kind.count))
        return Value(self, ir.Constant(kind, x))

    def counted(self, lanes: int) -> Value:
        """0, 1, 2 ... as a vector of integers."""
        return Value(self, ir.Constant(vector_type(INT, lanes), list(range(lanes))))

    def variable(self, first: Any) -> Variable:
        """A variable and its first value."""
        return Variable(self, self.integer(first))

    def _block(self) -> Any:
        return self.function.append_basic_block()

    @contextmanager
    def loop(self, start: Any, stop: Any, step: int = 1) -> Iterator[Value]:
        """``with code.loop(start, stop) as i:`` what is built inside runs for every ``i``."""
        b = self.builder
        start = self.integer(start)
        stop = self.integer(stop)
        before = b.block
        body = self._block()
        end = self._block()
        b.cbranch((start < stop).ir, body, end)
        b.position_at_end(body)
        count = b.phi(INT)
        count.add_incoming(start.ir, before)
        i = Value(self, count)
        yield i
        following = i + step
        count.add_incoming(following.ir, b.block)
        b.cbranch((following < stop).ir, body, end)
        b.position_at_end(end)

    @contextmanager
    def repeat(self, condition: Callable[[], Value]) -> Iterator[None]:
        """A loop: the code built inside runs as long as a condition is true."""
        b = self.builder
        test, body, end = (self._block() for _ in range(3))
        b.branch(test)
        b.position_at_end(test)
        b.cbranch(condition().ir, body, end)
        b.position_at_end(body)
        yield
        b.branch(test)
        b.position_at_end(end)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """A branch: the code built inside runs if a condition is true."""
        with self.builder.if_then(condition.ir):
            yield

    @contextmanager
    def branch(self, condition: Value) -> Iterator[tuple[Any, Any]]:
        """``with code.branch(x) as (yes, no):`` what is built ``with yes`` runs if a condition is
        true, else what is built ``with no``.
        """
        with self.builder.if_else(condition.ir) as blocks:
            yield blocks

    def vectors(self, n: Any, *lanes: int) -> Iterator[tuple[Value, int]]:
        """``for i, lanes in code.vectors(n, 8, 1):`` what is built inside runs for ``n`` entries,
        as many vectors of the first lanes as there are, then of the next.
        """
        start = self.integer(0)
        for count in lanes:
            stop = self.integer(n) & -count
            with self.loop(start, stop, count) as i:
                yield i, count
            start = stop

    def intrinsic(self, name: str, *operands: Value) -> Value:
        """One of LLVM's own functions of numbers."""
        kind = operands[0].ir.type
        suffix = _NAMES[operands[0].element]
        if isinstance(kind, ir.VectorType):
            suffix = f"v{kind.count}{suffix}"
        function = self._declared(
            f"llvm.{name}.{suffix}", ir.FunctionType(kind, [kind] * len(operands))
        )
        return Value(self, self.builder.call(function, [x.ir for x in operands]))

    def prefetch(self, address: Any) -> None:
        """Ask for the line of an address."""
        kind = ir.FunctionType(ir.VoidType(), [_POINTER, LANE, LANE, LANE])
        options = [ir.Constant(LANE, x) for x in (0, 3, 1)]
        self.builder.call(self._declared("llvm.prefetch.p0", kind), [address, *options])

    def _declared(self, name: str, kind: Any) -> Any:
        symbols = self.function.module.globals
        return symbols.get(name) or ir.Function(self.function.module, kind, name)

    def call(self, address: Value, *arguments: Value | Array) -> None:
        """Call a function by its address."""
        operands = [x.address if isinstance(x, Array) else x.ir for x in arguments]
        kind = ir.FunctionType(ir.VoidType(), [x.type for x in operands])
        pointer = self.builder.inttoptr(address.ir, kind.as_pointer())
        self.builder.call(pointer, operands)
