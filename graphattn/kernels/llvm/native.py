"""Machine code of this process: functions written with :class:`graphattn.kernels.llvm.code.Code`,
compiled by LLVM for the CPU at their first use, in tenths of a second, and kept until the end.

Nothing is kept on disk. Compiled code takes no part in Python: it releases the GIL.
"""

import ctypes
import struct
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import get_annotations
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import torch
from llvmlite import ir
from torch import Tensor

from ...graph.modes import lru_cache
from ..arrays import Kinds, NodeRows
from .code import INT, Array, Code, Value, type_of

_lock = threading.RLock()


def once(function: Any) -> Any:
    """A decorator: the function is called once for given arguments, by one thread at a time."""
    results: dict[Any, Any] = {}

    @wraps(function)
    def call(*key: Any) -> Any:
        result = results.get(key)
        if result is not None:
            return result
        with _lock:
            if key not in results:  # else by a thread that had the lock before
                results[key] = function(*key)
            return results[key]

    return call


class Target(NamedTuple):
    """A kind of CPU."""

    triple: str
    cpu: str
    features: str

    @classmethod
    @lru_cache(None)
    def of_host(cls) -> "Target":
        """The CPU that this process runs on."""
        try:
            features = llvm.get_host_cpu_features().flatten()
        except RuntimeError:  # where LLVM cannot ask the CPU, its name says what it has
            features = ""
        return cls(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)

    @property
    def vector_bytes(self) -> int:
        """The bytes of a vector that fits one register, of which there are enough."""
        enabled = self.features.split(",")
        if "+avx512f" in enabled:
            return 64
        if "+avx" in enabled:
            return 32
        return 16

    @property
    def registers(self) -> int:
        """Registers for vectors."""
        if self.vector_bytes == 64 or self.triple.startswith(("aarch64", "arm64")):
            return 32
        return 16

    def machine(self) -> Any:
        """LLVM's machine."""
        target = llvm.Target.from_triple(self.triple)
        return target.create_target_machine(cpu=self.cpu, features=self.features, opt=3, jit=True)


class Integer(Value):
    """A parameter that is an integer."""


class Double(Value):
    """A parameter that is a float64."""


class Number(Value):
    """A parameter in the dtype of sums."""


class Function(Value):
    """A parameter that is the address of a function."""

    def __call__(self, *arguments: Any) -> None:
        """Call it."""
        words: list[Value | Array] = []
        for argument in arguments:
            if isinstance(argument, tuple):
                words += argument
            else:
                words.append(argument)
        self.code.call(self, *words)


class Places(Array):
    """A parameter that is an array of int64."""


class Indices(Array):
    """A parameter that is an array in the dtype of indices."""


class Sums(Array):
    """A parameter that is an array in the dtype of sums; its address is null if it is absent."""


class Totals(Array):
    """A parameter that is an array of float64."""


class Marks(Array):
    """A parameter that is an array of bool; its address is null if it is absent."""


class NodeRow(Array):
    """A parameter that is a row of nodes."""


class Nodes(NamedTuple):
    """A parameter that is (B, N, H, D): where it lies, and its strides of batch, node and head in
    bytes.
    """

    data: NodeRow
    batch: Value
    node: Value
    head: Value

    def of_batch(self, b: Value) -> NodeRow:
        """The first row of a batch element."""
        return self.data.after_bytes(b * self.batch)

    def row(self, b: Value, node: Value) -> NodeRow:
        """The rows of all heads of a node."""
        return self.of_batch(b).after_bytes(node * self.node)

    def of_head(self, h: Value) -> "Nodes":
        """The nodes from a head on."""
        return Nodes(self.data.after_bytes(h * self.head), self.batch, self.node, self.head)


def _dtype(kind: type, kinds: Kinds) -> torch.dtype:
    if issubclass(kind, Places):
        return torch.int64
    if issubclass(kind, Indices):
        return kinds.indices
    if issubclass(kind, Totals):
        return torch.float64
    if issubclass(kind, Marks):
        return torch.bool
    if issubclass(kind, NodeRow):
        return kinds.nodes
    return kinds.sums


def _types(kind: type, kinds: Kinds) -> list[Any]:
    """LLVM's types of a parameter; of a named tuple, those of its fields."""
    if issubclass(kind, tuple):
        return [word for field in get_annotations(kind).values() for word in _types(field, kinds)]
    if issubclass(kind, Array):
        return [ir.PointerType()]
    if issubclass(kind, Double):
        return [ir.DoubleType()]
    if issubclass(kind, Number):
        return [type_of(kinds.sums)]
    return [INT]


def _parameter(code: Code, kinds: Kinds, kind: Any, values: Iterator[Any]) -> Any:
    if issubclass(kind, tuple):
        fields = get_annotations(kind).values()
        return kind(*(_parameter(code, kinds, field, values) for field in fields))
    if issubclass(kind, Array):
        return kind(code, next(values), _dtype(kind, kinds))
    return kind(code, next(values))


class Kernel:
    """A function over rows of edges: its operands are the annotations of the class, and
    :meth:`build` leaves its code.

    The operands lie one after another in a record, eight bytes each, four for :class:`Nodes`.
    """

    def __init__(self, code: Code, kinds: Kinds, record: Array) -> None:
        self.code = code
        self.kinds = kinds
        at = 0
        for name, kind in operands_of(type(self)).items():
            values = []
            for word in _types(kind, kinds):
                place = record.after_bytes(8 * at)
                values.append(code.builder.load(place.address, typ=word))
                at += 1
            setattr(self, name, _parameter(code, kinds, kind, iter(values)))

    def build(self, lo: Value, hi: Value, space: Array) -> None:
        """Leave the code for rows ``lo .. hi - 1``; ``space`` is memory of a thread."""
        raise NotImplementedError


def operands_of(kernel: type[Kernel]) -> dict[str, type]:
    """The operands of a kernel, those of its bases first."""
    operands: dict[str, type] = {}
    for base in reversed(kernel.__mro__):
        operands |= get_annotations(base)
    return operands


class KernelOperand(NamedTuple):
    """A kind of operand: its letters in a record, and the dtype of an array."""

    letters: str
    dtype: torch.dtype | None

    @classmethod
    def of(cls, kind: type, kinds: Kinds) -> "KernelOperand":
        """The kind of an annotation of a kernel."""
        letters: dict[type, str] = {Double: "d", Nodes: "4Q"}
        dtype = None
        if issubclass(kind, Array):
            dtype = _dtype(kind, kinds)
        return cls(letters.get(kind, "Q"), dtype)


class Compiled:
    """A kernel as machine code, perhaps with the first of its operands."""

    def __init__(self, function: Any, operands: dict[str, KernelOperand], first: "Bound") -> None:
        self.function = function
        self.operands = operands  # those that are to come
        self.struct = struct.Struct("=" + "".join(x.letters for x in operands.values()))
        self.first = first

    @classmethod
    def of(cls, kernel: type[Kernel], kinds: Kinds, address: int) -> "Compiled":
        """A kernel whose code is at an address."""
        operands = {
            name: KernelOperand.of(kind, kinds) for name, kind in operands_of(kernel).items()
        }
        function = ctypes.CFUNCTYPE(
            None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
        )(address)
        return cls(function, operands, Bound(function, b"", ()))

    def begin(self, **operands: Any) -> "Compiled":
        """The kernel with its first operands, for many calls."""
        names = list(self.operands)
        first, rest = (
            {name: self.operands[name] for name in part}
            for part in (names[: len(operands)], names[len(operands) :])
        )
        begun = Compiled(self.function, first, self.first).bind(**operands)
        return Compiled(self.function, rest, begun)

    def bind(self, **operands: Any) -> "Bound":
        """A call with its operands: contiguous tensors, :class:`NodeRows`, numbers, and None for
        what is absent.

        Raises:
            TypeError: If a tensor has another dtype, as an address has none.
        """
        words: list[Any] = []
        for name, (_, dtype) in self.operands.items():
            x = operands[name]
            if x is None:
                words.append(0)
            elif dtype is not None:
                if x.dtype != dtype or not x.is_contiguous():
                    raise TypeError(f"{name} must be contiguous, of {dtype}, got {x.dtype}")
                words.append(x.data_ptr())
            elif isinstance(x, NodeRows):
                words += (x.data.data_ptr(), *x[1:])
            else:
                words.append(x)
        record = self.first.record + self.struct.pack(*words)
        return Bound(self.function, record, (self.first, operands))


class Bound(NamedTuple):
    """A kernel with the addresses of its operands, which are kept as long as it is."""

    function: Any
    record: bytes
    operands: Any

    def run(self, lo: int, hi: int, space: Tensor) -> None:
        """Rows ``lo .. hi - 1``, in memory of this thread."""
        self.function(self.record, lo, hi, space.data_ptr())


@once
def address_of(body: Callable[..., None], kinds: Kinds) -> int:
    """The address of a function ``body(code, kinds, *parameters)``, compiled at the first call."""
    return _compiled(function_ir(body, kinds, Target.of_host()))


@once
def native(kernel: type[Kernel], kinds: Kinds) -> Compiled:
    """A kernel as machine code, compiled at the first call."""
    return Compiled.of(kernel, kinds, _compiled(kernel_ir(kernel, kinds, Target.of_host())))


def function_ir(body: Callable[..., None], kinds: Kinds, target: Target) -> Any:
    """The code of a function, as LLVM's language: its parameters are annotated with their kinds."""
    parameters = list(get_annotations(body).values())[2:-1]
    words = [word for kind in parameters for word in _types(kind, kinds)]
    code = Code(_function(words), target.vector_bytes, target.registers)
    values = iter(code.function.args)
    body(code, kinds, *(_parameter(code, kinds, kind, values) for kind in parameters))
    code.builder.ret_void()
    return code.function.module


def kernel_ir(kernel: type[Kernel], kinds: Kinds, target: Target) -> Any:
    """The code of a kernel, as LLVM's language."""
    pointer = ir.PointerType()
    code = Code(_function([pointer, INT, INT, pointer]), target.vector_bytes, target.registers)
    record, lo, hi, space = code.function.args
    rows = kernel(code, kinds, Marks(code, record, torch.bool))
    rows.build(Value(code, lo), Value(code, hi), Marks(code, space, torch.bool))
    code.builder.ret_void()
    return code.function.module


def _function(words: list[Any]) -> Any:
    module = ir.Module("graphattn")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), words), "run")
    # a loop that writes zeros is no call of the C library; llvmlite knows no attribute of this name
    set.add(function.attributes, '"no-builtins"')
    return function


def optimised(source: Any, machine: Any) -> Any:
    """LLVM's module of a source, verified and optimised.

    The code has its vectors already; unrolled, it takes twice as long to compile and as long to run.
    """
    module = llvm.parse_assembly(str(source))
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def _compiled(source: Any) -> int:
    with _lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = Target.of_host().machine()
        engine = llvm.create_mcjit_compiler(optimised(source, machine), machine)
        engine.finalize_object()
        _engines.append(engine)
        return engine.get_function_address("run")


_engines: list[Any] = []  # the owners of the code


def probe() -> None:
    """Compile a function, and run it.

    Raises:
        Exception: Whatever LLVM raises where it cannot.
    """
    kinds = Kinds(torch.float32, torch.int32, torch.float32, 0)
    Target.of_host()

    def trial(code: Code, kinds: Kinds) -> None:
        total = code.variable(0)
        with code.loop(0, 3) as i:
            total.value += i

    ctypes.CFUNCTYPE(None)(address_of(trial, kinds))()
