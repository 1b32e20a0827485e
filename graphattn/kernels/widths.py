"""Products and sums of rows of nodes: the only code of the edge kernels that depends on their width
and their dtype.

Numba compiles :mod:`graphattn.kernels.edges_numba` once for each dtype of sums, in seconds, and
keeps it on disk. What is here is compiled for each width and dtype at its first use, in a tenth of
a second, by LLVM alone; the kernels hand it bytes, and call it by address.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu_options import FastMathOptions
from numba.core.fastmathpass import rewrite_module
from numba.core.registry import cpu_target
from numba.core.typing import signature
from numba.np.numpy_support import from_dtype

from .lanes import _I64, AHEAD, FAST, FOUR, Code, _int, intrinsic

BYTES = 64  # of a vector, where the width allows it
AT_ONCE = 8  # vectors of a row of nodes that are held in registers


class Width(NamedTuple):
    """Rows of nodes for the kernels: groups of eight numbers, bytes of a number, and addresses of
    code.

    ``near`` sums by weights that lie one after another, ``far`` by weights in the order of edges,
    and ``summed`` over the heads of a group as well. ``stored`` writes rows.
    """

    eights: int
    size: int
    products: int
    near: int
    far: int
    summed: int
    stored: int


_made: dict[tuple[Any, ...], tuple[Width, Any]] = {}  # and the library that holds the code


def code_of_width(*key: Any) -> Width:
    """The code for rows of nodes, compiled if it is not there.

    Args:
        key: The number of groups of eight in a row, and the dtypes of nodes, of sums and of indices
            of edges.
    """
    return (_made.get(key) or _compiled(*key))[0]


@global_compiler_lock
def _compiled(eights: int, nodes: np.dtype, sums: np.dtype, index: np.dtype) -> tuple[Width, Any]:
    if (eights, nodes, sums, index) in _made:  # by a thread that had the lock before
        return _made[eights, nodes, sums, index]
    context = cpu_target.target_context
    i = types.int64
    row, number, total, place = (types.CPointer(from_dtype(x)) for x in (nodes, sums, sums, index))
    made: dict[str, Any] = {
        "products": (
            _products,
            (row, i, i, row, i, i, i, i, i, place, i, i, i, total, i, total.dtype, total.dtype),
        ),
    }
    sum_of = (row, i, i, i, i, i, place, i, i, i, number)
    for name, far in (("near", False), ("far", True), ("summed", True)):
        made[name] = (
            partial(_weighted_sum, which=name),
            (*sum_of, *((place,) if far else ()), i, i, i, total, i),
        )
    made["stored"] = (_stored, (total, i, row, i))
    key = f"{eights}_{nodes}_{sums}_{index}"
    library = context.codegen().create_library(f"graphattn_{key}")
    module = library.create_ir_module(f"graphattn_{key}")
    for name, (body, kinds) in made.items():
        kind = ir.FunctionType(ir.VoidType(), [context.get_value_type(x) for x in kinds])
        function = ir.Function(module, kind, f"graphattn_{name}_{key}")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        body(Code(context, builder, signature(types.void, *kinds), function.args), eights)
        builder.ret_void()
    rewrite_module(module, FastMathOptions(FAST))
    library.add_ir_module(module)
    library.finalize()
    addresses = (library.get_pointer_to_function(f"graphattn_{name}_{key}") for name in made)
    _made[eights, nodes, sums, index] = Width(eights, nodes.itemsize, *addresses), library
    return _made[eights, nodes, sums, index]


def _call(context: Any, builder: Any, signature: Any, arguments: Any, which: str) -> Any:
    """Code that calls one of the functions of a :class:`Width`, the first argument; of arrays it
    gets the data.
    """
    given = []
    for kind, x in zip(signature.args[1:], arguments[1:], strict=True):
        if isinstance(kind, types.Array):
            given.append(context.make_array(kind)(context, builder, x).data)
        elif not isinstance(kind, types.NoneType | types.Boolean):
            given.append(x)
    kind = ir.FunctionType(ir.VoidType(), [x.type for x in given]).as_pointer()
    address = builder.extract_value(arguments[0], Width._fields.index(which))
    builder.call(builder.inttoptr(address, kind), given)
    return context.get_dummy_value()


@intrinsic
def products(
    typingctx, wide, x, x_at, x_head, rows, rows_at, rows_node, rows_head, heads, group, index, first, n, last,
    out, out_at, scale, spare,
):  # fmt: skip
    """``out[h * m + i] = scale * <x[h], rows[index[first + i], h // group]>`` for ``i < n``,
    ``m = padded(n)``.

    The places to spare get ``spare``; ``last`` is the last edge there is.
    """
    i = types.int64
    kinds = wide, x, i, i, rows, i, i, i, i, i, index, i, i, i, out, i, out.dtype, out.dtype
    return types.void(*kinds), partial(_call, which="products")


@intrinsic
def weighted_sum(
    typingctx, wide, rows, rows_at, rows_node, rows_head, heads, group, index, first, n, last,
    weight, place, weight_at, weight_edge, weight_head, summed, total, total_at,
):  # fmt: skip
    """``total[h] = sum_i weight(i, h) * rows[index[first + i], h // group]``, with ``total``
    (heads, width).

    If ``summed`` is anything but None the sum is over a group, too:
    ``total[h // group] = ... * rows[index[first + i], h]``. A weight stands at
    ``weight_at + i * weight_edge + h * weight_head``, with ``place[first + i]`` for ``i`` if there
    is one.
    """
    far, over_groups = (not isinstance(x, types.NoneType) for x in (place, summed))
    if over_groups:
        which = "summed"
    elif far:
        which = "far"
    else:
        which = "near"
    i = types.int64
    kinds = wide, rows, i, i, i, i, i, index, i, i, i, weight, place, i, i, i, summed, total, i
    return types.void(*kinds), partial(_call, which=which)


@intrinsic
def stored(typingctx, wide, total, count, out, out_at):
    """``out[out_at + i] = total[i]`` for ``i < count``, a multiple of eight; rounded where ``out``
    holds halves.
    """
    return types.void(wide, total, types.int64, out, types.int64), partial(_call, which="stored")


def _shape(eights: int, kind: Any) -> tuple[int, int, int]:
    """Numbers of a vector, vectors of a row of one head, and heads whose vectors fit into the
    registers together.
    """
    lanes = BYTES // (8 if isinstance(kind, ir.DoubleType) else 4)
    if 8 * eights % lanes != 0:
        lanes = 8
    pieces = 8 * eights // lanes
    return lanes, pieces, next((heads for heads in (4, 2) if heads * pieces <= AT_ONCE), 1)


def _blocks(code: Code, heads: Any, group: Any, adjacent: Any, most: int, body: Any) -> None:
    """``body(h, g, count)`` for all heads, ``count`` at once from head ``h`` on; ``g`` is the group
    of ``h``.

    As many as ``most`` where each has a group of its own, and these are ``adjacent``; otherwise one
    by one.
    """
    b = code.builder
    start = _int(0)
    if most > 1:
        together = b.and_(b.icmp_signed("==", group, _int(1)), adjacent)
        start = b.select(together, b.and_(heads, _int(-most)), _int(0))
        with code.loop(_int(0), start, most) as h:
            body(h, h, most)
    with code.loop(start, heads) as h:
        body(h, b.sdiv(h, group), 1)


def _products(code: Code, eights: int) -> None:
    b = code.builder
    _, x_at, x_head, _, rows_at, rows_node, rows_head, heads, group = code.arguments[:9]
    _, first, n, last, _, out_at, scale, spare = code.arguments[9:]
    x, rows, index, out = (code.pointer(i) for i in (0, 3, 9, 13))
    kind = code.float_type(13)
    lanes, pieces, most = _shape(eights, kind)
    width = lanes * pieces
    factor = code.splat(scale, FOUR)
    spares = code.splat(spare, FOUR)
    lane = ir.Constant(ir.VectorType(_I64, FOUR), list(range(FOUR)))
    m = code.padded(n)
    final = b.add(first, b.sub(n, _int(1)))

    def block(h: Any, g: Any, count: int) -> None:
        own = [b.add(x_at, b.mul(b.add(h, _int(k)), x_head)) for k in range(count)]
        mine = [
            [code.read(x, b.add(at, _int(c * lanes)), lanes, kind) for c in range(pieces)]
            for at in own
        ]
        start = b.add(rows_at, b.mul(g, rows_head))
        to = [b.add(out_at, b.mul(b.add(h, _int(k)), m)) for k in range(count)]
        with code.loop(_int(0), n, FOUR) as i:
            sums: list[list[Any]] = [[] for _ in range(count)]
            for j in range(FOUR):
                here = b.add(first, b.add(i, _int(j)))
                at = b.add(start, b.mul(code.number(index, code.least(here, final)), rows_node))
                there = code.least(b.add(here, _int(AHEAD)), last)
                code.prefetch(
                    rows, b.add(start, b.mul(code.number(index, there), rows_node)), count * width
                )
                for k in range(count):
                    total = None
                    for c in range(pieces):
                        row = code.read(rows, b.add(at, _int(k * width + c * lanes)), lanes, kind)
                        if total is None:
                            total = code.mul(mine[k][c], row)
                        else:
                            total = code.fma(mine[k][c], row, total)
                    sums[k].append(total)
            used = b.icmp_signed("<", lane, code.splat(b.sub(n, i), FOUR))
            for k in range(count):
                result = b.select(used, code.mul(code.sum_of_each(sums[k]), factor), spares)
                code.store(result, out, b.add(to[k], i))
        whole = b.and_(b.add(n, _int(FOUR - 1)), _int(-FOUR))
        with b.if_then(b.icmp_signed("<", whole, m)):
            for k in range(count):
                code.store(spares, out, b.add(to[k], whole))

    _blocks(code, heads, group, b.icmp_signed("==", rows_head, _int(width)), most, block)


def _weighted_sum(code: Code, eights: int, which: str) -> None:
    b = code.builder
    far = which != "near"
    over_groups = which == "summed"
    _, rows_at, rows_node, rows_head, heads, group, _, first, n, last = code.arguments[:10]
    weight_at, weight_edge, weight_head, _, total_at = code.arguments[-5:]
    rows, index, weight, total = (code.pointer(i) for i in (0, 6, 10, len(code.arguments) - 2))
    if far:
        where = code.pointer(11)
    else:
        where = None
    kind = code.float_type(len(code.arguments) - 2)
    lanes, pieces, most = _shape(eights, kind)
    width = lanes * pieces
    vector = ir.VectorType(kind, lanes)

    def block(h: Any, g: Any, count: int) -> None:
        start = b.add(rows_at, b.mul(h if over_groups else g, rows_head))
        to = b.add(total_at, b.mul(g if over_groups else h, _int(width)))
        weights = b.add(weight_at, b.mul(h, weight_head))
        more = b.icmp_signed("<", b.mul(g, group), h)  # not the first of its group
        at_once = next(
            c for c in range(min(AT_ONCE, count * pieces), 0, -1) if count * pieces % c == 0
        )
        for lowest in range(0, count * pieces, at_once):
            slots = [cgutils.alloca_once(b, vector) for _ in range(at_once)]
            for slot in slots:
                b.store(code.constant(0.0, vector), slot)

            def edge(i: Any, lowest: int, slots: list[Any]) -> None:
                here = b.add(first, i)
                there = code.least(b.add(here, _int(AHEAD)), last)
                at, soon = (
                    b.add(start, b.mul(code.number(index, e), rows_node)) for e in (here, there)
                )
                code.prefetch(rows, b.add(soon, _int(lowest * lanes)), len(slots) * lanes)
                own = b.add(weights, b.mul(code.number(where, here) if far else i, weight_edge))
                if far and lowest == 0:
                    next_weight = b.add(weights, b.mul(code.number(where, there), weight_edge))
                    code.prefetch(weight, next_weight, 1)
                factors: dict[int, Any] = {}
                for c, slot in enumerate(slots, lowest):
                    k = c // pieces
                    if k not in factors:
                        factors[k] = code.splat(
                            code.number(weight, b.add(own, b.mul(weight_head, _int(k)))), lanes
                        )
                    row = code.read(rows, b.add(at, _int(c * lanes)), lanes, kind)
                    b.store(code.fma(factors[k], row, b.load(slot)), slot)

            with code.loop(_int(0), n) as i:
                edge(i, lowest, slots)
            for c, slot in enumerate(slots, lowest):
                place = b.add(to, _int(c * lanes))
                result = b.load(slot)
                if over_groups:
                    before = code.load(total, place, lanes)
                    result = b.select(more, code.add(before, result), result)
                code.store(result, total, place)

    _blocks(code, heads, group, b.icmp_signed("==", rows_head, _int(width)), most, block)


def _stored(code: Code, eights: int) -> None:
    _, count, _, out_at = code.arguments
    total = code.pointer(0)
    out = code.pointer(2)
    with code.loop(_int(0), count, 8) as i:
        code.write(code.load(total, i, 8), out, code.builder.add(out_at, i))
