"""Products and sums of rows of nodes: the only code of the edge kernels that depends on their width
and their dtype.

Rows are read as they are stored: any strides of nodes and heads, a width that is a multiple of
eight, float32, float64, or halves, which are widened in registers. Strides count bytes. A row of
``n`` edges owns ``padded(n)`` places in a buffer for each head, whole vectors.

All heads of an edge are read before the next edge, and asked for ``AHEAD`` edges earlier: measured,
kNN in Morton order takes 0.75 and a mesh in a bad order 0.7 of the time of products and sums that
read every edge for each head. Asked for 64 edges earlier, rows of 512 bytes take 0.8 of that again on
kNN, and rows of 1,024 bytes 1.1.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from .code import Code, Value, type_of, vector_type
from .native import Indices, Integer, Kinds, NodeRow, Number, Sums

ROW = 8  # places of a row come in vectors of as many
FOUR = 4  # numbers of a short vector
AHEAD = 24  # edges between asking for a row of nodes and reading it
FAR_AHEAD = 64  # the same of rows of at most SMALL bytes, of which a core's first cache holds more
SMALL = 512
AT_ONCE = 8  # vectors of a row of nodes that are held in registers


def padded(n: Any) -> Any:
    """Places of a row of ``n`` edges."""
    return (n + (ROW - 1)) & -ROW


def _edges_ahead(row_bytes: Value) -> Value:
    """Edges between asking for a row of all heads and reading it."""
    return (row_bytes <= SMALL).where(FAR_AHEAD, row_bytes.constant(AHEAD))


class _Shape(NamedTuple):
    """Numbers of a vector, vectors of a row of one head, and heads whose vectors fit into the
    registers together.
    """

    lanes: int
    pieces: int
    heads: int

    @classmethod
    def of(cls, code: Code, kinds: Kinds) -> "_Shape":
        """The shape for a CPU and a width."""
        width = 8 * kinds.eights
        lanes = max(FOUR, code.vector_bytes // kinds.sums.itemsize)
        while width % lanes:
            lanes //= 2
        pieces = width // lanes
        for heads in (4, 2):
            if heads * pieces <= AT_ONCE:
                return cls(lanes, pieces, heads)
        return cls(lanes, pieces, 1)


def _blocks(
    code: Code, heads: Value, group: Value, adjacent: Value, most: int
) -> Iterator[tuple[Value, Value, int]]:
    """``for h, g, count in _blocks(...)``: all heads, ``count`` at once from head ``h`` on; ``g`` is
    the group of ``h``.

    As many as ``most`` where each has a group of its own, and these are ``adjacent``; otherwise one
    by one.
    """
    start = code.integer(0)
    if most > 1:
        start = ((group == 1) & adjacent).where(heads & -most, start)
        with code.loop(0, start, most) as h:
            yield h, h, most
    with code.loop(start, heads) as h:
        yield h, h // group, 1


class Gathered(NamedTuple):
    """Rows ``indices[i]`` of all heads for ``i < n``, with bytes from node to node and from head to
    head; a ``group`` of heads shares one. ``last`` is the last edge there is.
    """

    rows: NodeRow
    node: Value
    head: Value
    heads: Value
    group: Value
    indices: Indices
    n: Value
    last: Value


def products(
    code: Code,
    kinds: Kinds,
    x: NodeRow,
    x_head: Integer,
    gathered: Gathered,
    out: Sums,
    scale: Number,
    spare: Number,
) -> None:
    """``out[h * padded(n) + i] = scale * <x[h], rows[indices[i], h // group]>`` for ``i < n``.

    The places to spare get ``spare``.
    """
    rows, rows_node, rows_head, heads, group, indices, n, last = gathered
    lanes, pieces, most = _Shape.of(code, kinds)
    width = lanes * pieces
    size = width * kinds.nodes.itemsize
    m = padded(n)
    spares = spare.splat(FOUR)
    ahead = _edges_ahead(heads * size)

    for h, g, count in _blocks(code, heads, group, rows_head == size, most):
        x_vectors = [
            [x.after_bytes((h + k) * x_head).read(c * lanes, lanes) for c in range(pieces)]
            for k in range(count)
        ]
        start = rows.after_bytes(g * rows_head)
        to = [out.after((h + k) * m) for k in range(count)]
        with code.loop(0, n, FOUR) as i:
            sums: list[list[Value]] = [[] for _ in range(count)]
            for j in range(FOUR):
                source = start.after_bytes(indices[(i + j).least(n - 1)] * rows_node)
                soon = (i + j + ahead).least(last)
                start.after_bytes(indices[soon] * rows_node).ask(0, count * size)
                for k in range(count):
                    row = [source.read(k * width + c * lanes, lanes) for c in range(pieces)]
                    total = x_vectors[k][0] * row[0]
                    for c in range(1, pieces):
                        total = x_vectors[k][c].fma(row[c], total)
                    sums[k].append(total)
            used = code.counted(FOUR) < n - i
            for k in range(count):
                to[k].write(i, used.where(_sum_of_each(sums[k]) * scale, spares))
        written = (n + (FOUR - 1)) & -FOUR
        with code.when(written < m):
            for k in range(count):
                to[k].write(written, spares)


def _sum_of_each(rows: list[Value]) -> Value:
    """The sums of four vectors as one of four lanes."""
    lanes = rows[0].lanes
    even = [x for k in range(0, lanes, 4) for x in (k, k + lanes, k + 1, k + lanes + 1)]
    pairs = [a.pick(even, b) + a.pick([x + 2 for x in even], b) for a, b in (rows[:2], rows[2:])]
    low = [x for k in range(0, lanes, 4) for x in (k, k + 1, k + lanes, k + lanes + 1)]
    total = pairs[0].pick(low, pairs[1]) + pairs[0].pick([x + 2 for x in low], pairs[1])
    return total.sum(until=4)


class _Weights(NamedTuple):
    """Weights of a sum: at ``i * edge + h * head``, or with ``place[i]`` for ``i`` if there is
    one.
    """

    values: Sums
    edge: Value
    head: Value
    place: Indices | None = None

    def of_edge(self, i: Value, h: Value) -> Any:
        """Weights of an edge, from a head on."""
        if self.place is not None:
            i = self.place[i]
        return self.values.after(i * self.edge + h * self.head)


def sum_near(
    code: Code,
    kinds: Kinds,
    gathered: Gathered,
    weight: Sums,
    weight_edge: Integer,
    weight_head: Integer,
    total: Sums,
) -> None:
    """``total[h] = sum_i weight[i, h] * rows[indices[i], h // group]``, (heads, width)."""
    weights = _Weights(weight, weight_edge, weight_head)
    _weighted_sum(code, kinds, gathered, weights, total, False)


def sum_far(
    code: Code, kinds: Kinds, gathered: Gathered, weight: Sums, place: Indices, total: Sums
) -> None:
    """:func:`sum_near` of weights (edges, heads) in another order: ``weight[place[i], h]``."""
    weights = _Weights(weight, gathered.heads, code.integer(1), place)
    _weighted_sum(code, kinds, gathered, weights, total, False)


def sum_over_groups(
    code: Code, kinds: Kinds, gathered: Gathered, weight: Sums, place: Indices, total: Sums
) -> None:
    """``total[g] = sum_i sum_h weight[place[i], h] * rows[indices[i], h]`` over the heads of a
    group.
    """
    weights = _Weights(weight, gathered.heads, code.integer(1), place)
    _weighted_sum(code, kinds, gathered, weights, total, True)


def _weighted_sum(
    code: Code,
    kinds: Kinds,
    gathered: Gathered,
    weights: _Weights,
    total: Sums,
    over_groups: bool,
) -> None:
    heads = gathered.heads
    group = gathered.group
    lanes, pieces, most = _Shape.of(code, kinds)
    width = lanes * pieces
    size = kinds.nodes.itemsize
    zero = code.constant(0.0, vector_type(type_of(kinds.sums), lanes))
    ahead = _edges_ahead(heads * (width * size))

    adjacent = gathered.head == width * size
    for h, g, count in _blocks(code, heads, group, adjacent, most):
        if over_groups:
            start = gathered.rows.after_bytes(h * gathered.head)
            to = total.after(g * width)
        else:
            start = gathered.rows.after_bytes(g * gathered.head)
            to = total.after(h * width)
        vectors = list(range(count * pieces))
        at_once = max(c for c in range(1, AT_ONCE + 1) if len(vectors) % c == 0)
        for lowest in vectors[::at_once]:
            chunk = vectors[lowest : lowest + at_once]
            sums = [code.variable(zero) for _ in chunk]
            with code.loop(0, gathered.n) as i:
                source = start.after_bytes(gathered.indices[i] * gathered.node)
                soon = (i + ahead).least(gathered.last)
                source_ahead = start.after_bytes(gathered.indices[soon] * gathered.node)
                source_ahead.ask(lowest * lanes, at_once * lanes * size)
                weight = weights.of_edge(i, h)
                if weights.place is not None and lowest == 0:
                    weights.of_edge(soon, h).ask()
                factors = {
                    k: weight[weights.head * k].splat(lanes)
                    for k in sorted({c // pieces for c in chunk})
                }
                for c, slot in zip(chunk, sums, strict=True):
                    row = source.read(c * lanes, lanes)
                    slot.value = factors[c // pieces].fma(row, slot.value)
            for c, slot in zip(chunk, sums, strict=True):
                result = slot.value
                if over_groups:
                    is_first = g * group == h
                    result = is_first.where(result, result + to.read(c * lanes, lanes))
                to.write(c * lanes, result)


def stored(code: Code, kinds: Kinds, total: Sums, count: Integer, out: NodeRow) -> None:
    """``out[i] = total[i]`` for ``i < count``, a multiple of eight; rounded where ``out`` holds
    halves.
    """
    with code.loop(0, count, ROW) as i:
        out.write(i, total.read(i, ROW))
