"""Fused attention over edges as machine code: rows of edges in, sums out; nothing of shape (E, H, D)
is ever held.

Every kernel works on a range of rows, releases the GIL and is called from several threads at once
(:mod:`graphattn.kernels.threads`). Neither the width nor the dtype of nodes is in a kernel: it
calls the functions of :mod:`graphattn.kernels.node_rows` by address, and serves all whose sums have
one dtype, float32 or float64, that of everything else. What is absent has no address.

``ptr`` (T + 1,) and ``other`` (E,), nodes at the other end, are the edges grouped by target, row
``r`` for target ``order[r]``; ``edge`` (E,) says where each stands in the caller's order, which is the order of
biases and weights.

Rows are taken a block at a time: all products, then all weights, then all sums. A loop that reads
keys or values alone keeps twice as many of them in the caches as one that turns from one to the
other at every row: measured, a mesh of degree 7 takes 0.7 and random edges with hubs 0.8 of the
time. It adds in the same order.

Sums over a row are taken in pieces, and statistics in float64, so that a hub of any degree keeps
the accuracy of a dense product.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .code import LINE, Array, Value, Variable, type_of, vector_type
from .native import (
    Double,
    Function,
    Indices,
    Integer,
    Kernel,
    Marks,
    Nodes,
    Places,
    Sums,
)
from .node_rows import ROW, padded
from .vectors import (
    DOUBLE,
    dot,
    from_edges,
    inner,
    log,
    scale,
    slopes,
    softmax,
    tanh,
    to_edges,
)

PIECE = 512  # edges summed before the sum joins the row's total
SOON = 3  # rows between asking for a node and using it
NEAR = 1 << 9  # places of rows whose keys a core's own cache holds


class EdgeRow(NamedTuple):
    """The ``n`` edges of a row from ``first`` on; the numbers of each head have so many ``places``
    in a buffer, the first head's from ``at`` on.
    """

    number: Value
    node: Value
    first: Value
    n: Value
    places: Value
    at: Value


class RowsKernel(Kernel):
    """A kernel over the rows of each batch element."""

    batches: Integer
    heads: Integer
    group: Integer  # heads that share a row of the nodes at the other end
    rows: Integer  # of all chunks
    edges: Integer
    order: Indices
    ptr: Places
    other: Indices
    edge: Indices

    def build(self, lo: Value, hi: Value, space: Array) -> None:
        """Every batch element in turn."""
        self.space = space
        self.allot()
        with self.code.loop(0, self.batches) as b:
            self.b = b
            self.of_batch(lo, hi)

    def allot(self) -> None:
        """Take the memory of a thread."""

    def of_batch(self, lo: Value, hi: Value) -> None:
        """Leave the code for one batch element."""
        raise NotImplementedError

    def numbers(self, count: Value) -> Sums:
        """Memory for so many sums, a multiple of eight."""
        taken = Sums(self.code, self.space.address, self.kinds.sums)
        self.space = self.space.after_bytes(count * self.kinds.sums.itemsize)
        return taken

    def indices(self, count: Value) -> Indices:
        """Memory for so many indices, a multiple of eight."""
        taken = Indices(self.code, self.space.address, self.kinds.indices)
        self.space = self.space.after_bytes(count * self.kinds.indices.itemsize)
        return taken

    @contextmanager
    def each_row(self, lo: Value, hi: Value, at: Value | int = 0) -> Iterator[EdgeRow]:
        """``with self.each_row(lo, hi) as row:`` what is built inside runs for every row."""
        place = self.code.variable(at)
        with self.code.loop(lo, hi) as r:
            first = self.ptr[r]
            n = self.ptr[r + 1] - first
            row = EdgeRow(r, self.order[r], first, n, padded(n), place.value)
            yield row
            place.value = row.at + self.heads * row.places

    def ask_for_row(self, x: Nodes, row: EdgeRow, width: Value, heads: Value) -> None:
        """Ask for the node of a row that comes soon; where heads are not adjacent, for its first
        head.
        """
        soon = (row.number + SOON).least(self.rows - 1)
        there = x.row(self.b, self.order[soon])
        bytes_ahead = (x.head == width).where(heads * width, width)
        with self.code.loop(0, bytes_ahead, LINE) as i:
            there.after_bytes(i).ask()

    def add_up(
        self, n: Value, count: Value, sums: Sums, part: Callable[[Value, Value, Sums], None],
        added: Value | int = 0,
    ) -> None:  # fmt: skip
        """``sums[:count]`` of ``n`` edges in pieces, so that a long sum loses no digits: ``part(i,
        n, sums)`` sums ``n`` edges from ``i`` on. They join what is there if ``added`` is not 0.
        """
        code = self.code
        with code.loop(0, (n == 0).where(1, n), PIECE) as i:
            into = ((i + added) > 0).where(count, code.integer(0))
            part(i, (n - i).least(PIECE), sums.after(into))
            with code.loop(0, into, ROW) as j:
                sums.write(j, sums.read(j, ROW) + sums.read(into + j, ROW))


class _Rated(RowsKernel):
    """A kernel that may leave out edges that are removed from some heads."""

    widest: Integer  # most edges of a row, rounded up to a multiple of eight
    width: Integer  # of a row of sums
    row_bytes: Integer  # of a row of the nodes that are summed
    sum_near: Function
    store: Function

    def allot(self) -> None:
        """Two sums of a node, and the edges of a row that are kept, with their weights."""
        self.sums = self.numbers(2 * self.heads * self.width)
        self.weight = self.numbers(self.widest)
        self.kept = self.indices(self.widest)

    def add_kept(self, rows: Nodes, count: Value, added: Value | int = 0) -> None:
        """The sum of one head over the edges kept."""
        code = self.code

        def part(i: Value, n: Value, sums: Sums) -> None:
            one = code.integer(1)
            zero = code.integer(0)
            kept = self.kept.after(i)
            last = count - 1 - i
            weight = self.weight.after(i)
            self.sum_near(
                rows.of_batch(self.b), rows.node, rows.head, one, one, kept, n, last, weight, one,
                zero, sums,
            )  # fmt: skip

        self.add_up(count, self.width, self.sums, part, added)


class _Targets(_Rated):
    """A pass over the rows of targets.

    Query, key and value are (B, T, H, D), (B, S, H / group, D) and (B, S, H / group, D_v), with
    the bytes of a row of one head; ``attr`` (1 or B, E, F) are features and ``attr_query`` (B, T,
    H, F) their queries, ``bias`` (1 or B, E, 1 or H) has strides that may be 0.
    """

    size: Integer  # places of a buffer for each head
    query: Nodes
    key: Nodes
    value: Nodes
    key_bytes: Integer
    value_bytes: Integer
    features: Integer
    attr: Sums
    attr_batch: Integer
    attr_query: Sums
    bias: Sums
    bias_batch: Integer
    bias_edge: Integer
    bias_head: Integer
    scale: Double
    softcap: Double  # 0 if there is none
    dropped: Integer  # of 2**53 edges, the number whose weight is dropped
    kept_factor: Double
    seed: Integer
    key_products: Function
    value_products: Function

    def allot(self) -> None:
        """Three buffers of a block of rows too, and what is removed of them."""
        places = self.size * self.heads
        self.buf = self.numbers(places)
        self.cap_slope = self.numbers(places)
        self.grad = self.numbers(places)
        super().allot()
        self.removed = Marks(self.code, self.space.address, self.space.dtype)

    def number(self, x: Value | float) -> Value:
        """A number in the dtype of sums."""
        kind = type_of(self.kinds.sums)
        if isinstance(x, Value):
            return x.to(kind)
        return self.code.constant(x, kind)

    def block(self, lo: Value, hi: Value, most: Value | int) -> tuple[Value, Value]:
        """The end of a block of rows from ``lo`` on, one row or as many as have ``most`` places,
        and the places that they have.
        """
        top = self.code.variable(lo)
        places = self.code.variable(0)

        def following() -> Value:
            r = top.value.least(hi - 1)
            return places.value + padded(self.ptr[r + 1] - self.ptr[r])

        def fits() -> Value:
            return (top.value < hi) & ((following() <= most) | (top.value == lo))

        with self.code.repeat(fits):
            places.value = following()
            top.value += 1
        return top.value, places.value

    def products(
        self, x: Nodes, rows: Nodes, lo: Value, hi: Value, at: Value | int, out: Array,
        factor: Value, spare: float, multiply: Function, width: Value,
    ) -> None:  # fmt: skip
        """``out[at + h * m + i] = factor * <x[b, t, h], rows[b, other[first + i], h // group]>``;
        ``spare`` beyond ``n``.
        """
        with self.each_row(lo, hi, at) as row:
            self.ask_for_row(x, row, width, self.heads)
            multiply(
                x.row(self.b, row.node), x.head, rows.of_batch(self.b), rows.node, rows.head,
                self.heads, self.group, self.other.after(row.first), row.n,
                self.edges - 1 - row.first, out.after(row.at), factor, self.number(spare),
            )  # fmt: skip

    def sums_of_block(self, any_removed: Variable, *block: Any) -> None:
        """The sums of a block of rows, whether edges are removed or not."""
        self.code.branch(
            any_removed.value == 1,
            lambda: self.sums_of_kept(*block),
            lambda: self.sums_of_rows(*block),
        )

    def sums_of_rows(
        self, rows: Nodes, lo: Value, hi: Value, at: Value | int, buf: Array, out: Nodes
    ) -> None:
        """``out[b, t, h] = sum_i buf[at + h * m + i] * rows[b, other[first + i], h // group]``."""
        count = self.heads * self.width
        with self.each_row(lo, hi, at) as row:

            def part(i: Value, n: Value, sums: Sums, row: EdgeRow = row) -> None:
                first = row.first + i
                self.sum_near(
                    rows.of_batch(self.b), rows.node, rows.head, self.heads, self.group,
                    self.other.after(first), n, self.edges - 1 - first, buf.after(row.at + i),
                    self.code.integer(1), row.places, sums,
                )  # fmt: skip

            self.add_up(row.n, count, self.sums, part)
            self.ask_for_row(out, row, self.row_bytes, self.heads)
            self.store(self.sums, count, out.row(self.b, row.node))

    def sums_of_kept(
        self, rows: Nodes, lo: Value, hi: Value, at: Value | int, buf: Array, out: Nodes
    ) -> None:
        """:meth:`sums_of_rows` that do not touch what a removed edge leads to."""
        code = self.code
        with self.each_row(lo, hi, at) as row, code.loop(0, self.heads) as h:
            count = code.variable(0)
            start = row.at + h * row.places
            with code.loop(0, row.n) as i, code.when(~self.removed[start + i]):
                self.kept[count.value] = self.other[row.first + i]
                self.weight[count.value] = buf[start + i]
                count.value += 1
            self.add_kept(rows.of_head(h // self.group), count.value)
            self.store(self.sums, self.width, out.of_head(h).row(self.b, row.node))

    def scores(self, lo: Value, hi: Value, at: Value | int, any_removed: Variable) -> None:
        """The scores of rows ``lo .. hi - 1`` into the buffer, the cap's slopes, and what is
        removed.
        """
        code = self.code
        self.products(
            self.query, self.key, lo, hi, at, self.buf, self.number(self.scale), float("-inf"),
            self.key_products, self.key_bytes,
        )  # fmt: skip
        more = self.attr.is_given | self.bias.is_given | (self.softcap > 0.0)
        with code.when(more), self.each_row(lo, hi, at) as row:
            with code.when(self.attr.is_given):
                self.add_features(self.attr_query, row, self.number(self.scale), self.buf)
            with code.when(self.softcap > 0.0):
                self.cap(row)
            with code.when(self.bias.is_given):
                self.find_removed(row, any_removed)
                self.add_bias(row)

    def of_target(self, x: Sums, row: EdgeRow, h: Value) -> Sums:
        """The features of a target and a head, of (B, T, H, F)."""
        place = (self.b * self.rows + row.node) * self.heads + h
        return x.after(place * self.features)

    def of_edge(self, x: Sums, row: EdgeRow, i: Value) -> Sums:
        """The features of an edge, of (1 or B, E, F)."""
        place = self.edge[row.first + i] * self.features
        return x.after(self.b * self.attr_batch + place)

    def add_features(self, x: Sums, row: EdgeRow, factor: Value, buf: Array) -> None:
        """``buf[at + h * m + i] += factor * <x[b, t, h], attr[b, edge[first + i]]>``."""
        code = self.code
        with code.loop(0, row.n) as i, code.loop(0, self.heads) as h:
            a = self.of_target(x, row, h)
            place = row.at + h * row.places + i
            product = dot(a, self.of_edge(self.attr, row, i), self.features)
            buf[place] = buf[place] + factor * product

    def sum_features(self, buf: Array, row: EdgeRow, out: Sums) -> None:
        """``out[b, t, h] = sum_i buf[at + h * m + i] * attr[b, edge[first + i]]``, in float64."""
        code = self.code
        with code.loop(0, self.heads) as h:

            def column(f: Value, lanes: int, h: Value = h) -> None:
                total = code.variable(code.constant(0.0, vector_type(DOUBLE, lanes)))
                with code.loop(0, row.n) as i:
                    weight = buf[row.at + h * row.places + i]
                    feature = self.of_edge(self.attr, row, i).read(f, lanes)
                    total.value += (feature * weight).to(DOUBLE)
                self.of_target(out, row, h).write(f, total.value)

            code.vectors(self.features, column, ROW, 1)

    def cap(self, row: EdgeRow) -> None:
        """Scaled products become capped ones; ``cap_slope`` is the cap's slope there."""
        code = self.code
        softcap = self.number(self.softcap)
        with code.loop(0, self.heads) as h:
            start = row.at + h * row.places

            def capped(i: Value, lanes: int, start: Value = start) -> None:
                y = tanh(self.buf.read(start + i, lanes) / softcap)
                self.buf.write(start + i, softcap * y)
                self.cap_slope.write(start + i, 1.0 - y * y)

            code.vectors(row.n, capped, ROW, 1)

    def bias_of(self, row: EdgeRow, i: Value, h: Value) -> Value:
        """The bias of an edge and a head."""
        edge = self.edge[row.first + i] * self.bias_edge
        return self.bias[self.b * self.bias_batch + edge + h * self.bias_head]

    def find_removed(self, row: EdgeRow, any_removed: Variable) -> None:
        """Mark the edges whose bias is -inf, and assign 1 if there are any."""
        code = self.code
        with code.loop(0, row.n) as i, code.loop(0, self.heads) as h:
            removed = self.bias_of(row, i, h) == float("-inf")
            self.removed[row.at + h * row.places + i] = removed
            any_removed.value = removed.where(1, any_removed.value)

    def add_bias(self, row: EdgeRow) -> None:
        """Scores with their bias; a removed edge's is -inf, whatever it was."""
        code = self.code
        with code.loop(0, row.n) as i, code.loop(0, self.heads) as h:
            place = row.at + h * row.places + i
            bias = self.bias_of(row, i, h)
            removed = self.removed[place]
            self.buf[place] = removed.where(bias, self.buf[place] + bias)

    def drop(self, buf: Array, row: EdgeRow) -> None:
        """Weights times their factors: a hash of the edge (splitmix64), whatever thread asks."""
        code = self.code
        kept = self.number(self.kept_factor)
        batch = self.seed + self.b * _signed(0xD6E8FEB86659FD93)
        with code.loop(0, self.heads) as h:
            start = row.at + h * row.places
            head = batch + (h + 1) * _signed(0xC2B2AE3D27D4EB4F)

            def dropped(i: Value, lanes: int, start: Value = start, head: Value = head) -> None:
                edge = self.edge.read(row.first + i, lanes)
                x = edge * edge.constant(_signed(0x9E3779B97F4A7C15)) + head
                x = (x ^ (x >> 30)) * _signed(0xBF58476D1CE4E5B9)
                x = (x ^ (x >> 27)) * _signed(0x94D049BB133111EB)
                x = (x ^ (x >> 31)) >> 11
                factor = (x < self.dropped).where(0.0, kept.splat(lanes))
                buf.write(start + i, buf.read(start + i, lanes) * factor)

            code.vectors(row.n, dropped, ROW, 1)


def _signed(word: int) -> int:
    """A word of 64 bits as a signed integer."""
    if word >> 63:
        return word - (1 << 64)
    return word


class Forward(_Targets):
    """``out`` (B, T, H, D_v), and if they are given ``lse`` (B, T, H), ``alpha`` (B, E, H),
    ``kept_weights`` (B, E, H) by place, and ``attr_out`` (B, T, H, F).
    """

    out: Nodes
    lse: Sums
    alpha: Sums
    kept_weights: Sums
    attr_out: Sums

    def of_batch(self, lo: Value, hi: Value) -> None:
        """A block of rows after the other."""
        code = self.code
        start = code.variable(lo)
        with code.repeat(lambda: start.value < hi):
            first = start.value
            top, _ = self.block(first, hi, self.size)
            any_removed = code.variable(0)
            self.scores(first, top, 0, any_removed)
            with self.each_row(first, top) as row:
                self.weights(row)

            self.sums_of_block(any_removed, self.value, first, top, 0, self.buf, self.out)
            start.value = top

    def weights(self, row: EdgeRow) -> None:
        """The scores of a row become weights."""
        code = self.code
        start = self.buf.after(row.at)
        with code.loop(0, self.heads) as h:
            peak, total = softmax(start.after(h * row.places), row.places)
            with code.when(self.lse.is_given):
                level = peak + self.number(log(total))
                place = (self.b * self.rows + row.node) * self.heads + h
                self.lse[place] = (total == 0.0).where(float("-inf"), level)
        with (
            code.when(self.alpha.is_given),
            code.loop(0, row.n) as i,
            code.loop(0, self.heads) as h,
        ):
            place = (self.b * self.edges + self.edge[row.first + i]) * self.heads + h
            self.alpha[place] = start[h * row.places + i]
        with code.when(self.kept_weights.is_given):
            place = (self.b * self.edges + row.first) * self.heads
            to_edges(start, row.n, self.heads, self.kept_weights.after(place))
        with code.when(self.dropped > 0):
            self.drop(self.buf, row)
        with code.when(self.attr.is_given):
            self.sum_features(self.buf, row, self.attr_out)


class BackwardTargets(_Targets):
    """What targets and their edges get, given ``grad_out`` and the like for the outputs.

    ``kept_weights`` (B, E, H) are the forward's, by place; without them they are computed again.
    Writes ``grad_query`` and ``grad_attr_query``; by place ``grad_products`` (B, E, H), the gradient
    of each product, and if it is given ``new_weights``, the weight after dropout, from which
    :class:`EdgeSums` gives what the sources get; in the caller's order ``grad_bias`` and
    ``grad_attr``.
    """

    kept_weights: Sums
    grad_out: Nodes
    grad_alpha: Sums
    grad_lse: Sums
    grad_attr_out: Sums
    grad_query: Nodes
    grad_bias: Sums
    grad_attr: Sums
    grad_attr_query: Sums
    grad_products: Sums
    new_weights: Sums

    def of_batch(self, lo: Value, hi: Value) -> None:
        """A block of rows after the other."""
        code = self.code
        start = code.variable(lo)
        with code.repeat(lambda: start.value < hi):
            top, _ = self.block(start.value, hi, self.size)
            self.products(
                self.grad_out, self.value, start.value, top, 0, self.grad, self.number(1.0), 0.0,
                self.value_products, self.value_bytes,
            )  # fmt: skip
            at = code.variable(0)
            # a few rows at a time, so that their keys are still at hand for the sum
            with code.repeat(lambda: start.value < top):
                first = start.value
                stop, places = self.block(first, top, NEAR)
                self.few_rows(first, stop, at.value)
                at.value += places * self.heads
                start.value = stop

    def few_rows(self, lo: Value, hi: Value, at: Value) -> None:
        """Gradients of a few rows."""
        code = self.code
        any_removed = code.variable(0)
        with code.when(~self.kept_weights.is_given):
            self.scores(lo, hi, at, any_removed)
        with self.each_row(lo, hi, at) as row:
            self.gradients(row, any_removed)

        self.sums_of_block(any_removed, self.key, lo, hi, at, self.grad, self.grad_query)

    def gradients(self, row: EdgeRow, any_removed: Variable) -> None:
        """The gradients of the weights of a row become those of its products."""
        code = self.code
        grad = self.grad.after(row.at)
        buf = self.buf.after(row.at)
        of_row = (self.b * self.edges + row.first) * self.heads
        with code.when(self.attr.is_given):
            self.add_features(self.grad_attr_out, row, self.number(1.0), self.grad)

        def read() -> None:
            from_edges(self.kept_weights.after(of_row), row.n, self.heads, buf)
            with code.when(self.bias.is_given):
                self.find_removed(row, any_removed)

        def again() -> None:
            # a stored lse has no digits for it at scores of -1e9
            with code.loop(0, self.heads) as h:
                softmax(buf.after(h * row.places), row.places)

        code.branch(self.kept_weights.is_given, read, again)
        with (
            code.when(any_removed.value == 1),
            code.loop(0, self.heads) as h,
            code.loop(0, row.n) as i,
        ):
            place = h * row.places + i
            removed = self.removed[row.at + place]
            grad[place] = removed.where(0.0, grad[place])
        with code.when(self.dropped > 0):
            self.drop(self.grad, row)
        with (
            code.when(self.grad_alpha.is_given),
            code.loop(0, row.n) as i,
            code.loop(0, self.heads) as h,
        ):
            place = h * row.places + i
            grad[place] = grad[place] + self.grad_alpha[self.place_of(row, i, h)]
        with code.loop(0, self.heads) as h:
            start = h * row.places
            of_head = grad.after(start)
            total = self.number(inner(buf.after(start), of_head, row.places))
            level = code.variable(self.number(0.0))
            with code.when(self.grad_lse.is_given):
                place = (self.b * self.rows + row.node) * self.heads + h
                level.value = self.grad_lse[place]
            slopes(buf.after(start), of_head, row.places, level.value - total)
        with (
            code.when(self.grad_bias.is_given),
            code.loop(0, row.n) as i,
            code.loop(0, self.heads) as h,
        ):
            self.grad_bias[self.place_of(row, i, h)] = grad[h * row.places + i]
        scale(grad, self.heads * row.places, self.number(self.scale))
        with code.when(self.softcap > 0.0), code.loop(0, self.heads) as h, code.loop(0, row.n) as i:
            place = h * row.places + i
            grad[place] = grad[place] * self.cap_slope[row.at + place]
        with code.when(self.dropped > 0):
            self.drop(self.buf, row)
        to_edges(grad, row.n, self.heads, self.grad_products.after(of_row))
        with code.when(self.new_weights.is_given):
            to_edges(buf, row.n, self.heads, self.new_weights.after(of_row))
        with code.when(self.attr.is_given):
            self.sum_features(self.grad, row, self.grad_attr_query)
            self.features_of_edges(row)

    def place_of(self, row: EdgeRow, i: Value, h: Value) -> Value:
        """Where the number of an edge and a head stands in the caller's order."""
        return (self.b * self.edges + self.edge[row.first + i]) * self.heads + h

    def features_of_edges(self, row: EdgeRow) -> None:
        """The gradients of the edge features of a row."""
        code = self.code
        with code.loop(0, row.n) as i:
            edge = (self.b * self.edges + self.edge[row.first + i]) * self.features

            def column(f: Value, lanes: int, i: Value = i, edge: Value = edge) -> None:
                total = code.variable(self.number(0.0).splat(lanes))
                with code.loop(0, self.heads) as h:
                    place = row.at + h * row.places + i
                    to_score = self.of_target(self.attr_query, row, h).read(f, lanes)
                    to_sum = self.of_target(self.grad_attr_out, row, h).read(f, lanes)
                    share = to_score * self.grad[place] + to_sum * self.buf[place]
                    total.value += share
                self.grad_attr.write(edge + f, total.value)

            code.vectors(self.features, column, ROW, 1)


class EdgeSums(_Rated):
    """``out[b, r, h] = sum weights[b, edge, h] * nodes[b, other, h // group]`` over the edges of row
    ``r``; ``over_groups`` over a group as well:
    ``out[b, r, h // group] = ... * nodes[b, other, h]``.

    Edges that are ``removed`` (1 or B, E, H), by ``edge``, pass not even a NaN.
    """

    weights: Sums
    nodes: Nodes
    removed: Marks
    removed_batch: Integer
    over_groups: Integer
    out: Nodes
    sum_far: Function

    def of_batch(self, lo: Value, hi: Value) -> None:
        """All heads at once, or head by head where edges may be removed."""
        code = self.code
        out_heads = (self.over_groups == 1).where(self.heads // self.group, self.heads)

        def all_heads() -> None:
            with self.each_row(lo, hi) as row:
                self.all_heads(row, out_heads)

        def head_by_head() -> None:
            with self.each_row(lo, hi) as row, code.loop(0, self.heads) as h:
                self.one_head(row, h)

        code.branch(self.removed.is_given, head_by_head, all_heads)

    def all_heads(self, row: EdgeRow, out_heads: Value) -> None:
        """The sums of a row."""
        weights = self.weights.after(self.b * self.edges * self.heads)

        def part(i: Value, n: Value, sums: Sums) -> None:
            first = row.first + i
            self.sum_far(
                self.nodes.of_batch(self.b), self.nodes.node, self.nodes.head, self.heads,
                self.group, self.other.after(first), n, self.edges - 1 - first, weights,
                self.edge.after(first), sums,
            )  # fmt: skip

        count = out_heads * self.width
        self.add_up(row.n, count, self.sums, part)
        self.ask_for_row(self.out, row, self.row_bytes, out_heads)
        self.store(self.sums, count, self.out.row(self.b, row.node))

    def one_head(self, row: EdgeRow, h: Value) -> None:
        """The sums of a row and a head over the edges that are not removed."""
        code = self.code
        count = code.variable(0)
        with code.loop(row.first, row.first + row.n) as i:
            place = self.edge[i]
            gone = self.removed[self.b * self.removed_batch + place * self.heads + h]
            with code.when(~gone):
                self.kept[count.value] = self.other[i]
                weight = self.weights[(self.b * self.edges + place) * self.heads + h]
                self.weight[count.value] = weight
                count.value += 1
        of_group = h // self.group
        first_of_group = h == of_group * self.group
        summed = self.over_groups == 1
        added = (summed & ~first_of_group).where(1, code.integer(0))
        self.add_kept(self.nodes.of_head(summed.where(h, of_group)), count.value, added)
        last_of_group = h + 1 == (of_group + 1) * self.group
        with code.when(~summed | last_of_group):
            to = self.out.of_head(summed.where(of_group, h))
            self.store(self.sums, self.width, to.row(self.b, row.node))


class EdgeProducts(RowsKernel):
    """``out[b, edge, h] = <x[b, r, h], nodes[b, other, h // group]>`` over the edges of each row
    ``r``.
    """

    x: Nodes
    row_bytes: Integer
    nodes: Nodes
    multiply: Function
    out: Sums

    def of_batch(self, lo: Value, hi: Value) -> None:
        """Row by row."""
        code = self.code
        kind = type_of(self.kinds.sums)
        buf = Sums(code, self.space.address, self.kinds.sums)
        with self.each_row(lo, hi) as row:
            self.ask_for_row(self.x, row, self.row_bytes, self.heads)
            self.multiply(
                self.x.row(self.b, row.node), self.x.head, self.nodes.of_batch(self.b),
                self.nodes.node, self.nodes.head, self.heads, self.group,
                self.other.after(row.first), row.n, self.edges - 1 - row.first, buf,
                code.constant(1.0, kind), code.constant(0.0, kind),
            )  # fmt: skip
            with code.loop(0, row.n) as i, code.loop(0, self.heads) as h:
                place = (self.b * self.edges + self.edge[row.first + i]) * self.heads + h
                self.out[place] = buf[h * row.places + i]


class EdgeSoftmax(RowsKernel):
    """``alpha[b, edge, h]``, the softmax of ``score`` over the edges of each row, and
    ``lse[b, r, h]``.
    """

    score: Sums
    alpha: Sums
    lse: Sums

    def of_batch(self, lo: Value, hi: Value) -> None:
        """Row by row."""
        code = self.code
        kind = type_of(self.kinds.sums)
        buf = Sums(code, self.space.address, self.kinds.sums)
        lowest = code.constant(float("-inf"), vector_type(kind, ROW))
        with self.each_row(lo, hi) as row:
            with code.loop(0, self.heads * row.places, ROW) as i:
                buf.write(i, lowest)
            with code.loop(0, row.n) as i, code.loop(0, self.heads) as h:
                buf[h * row.places + i] = self.score[self.place_of(row, i, h)]
            with code.loop(0, self.heads) as h:
                peak, total = softmax(buf.after(h * row.places), row.places)
                level = peak + log(total).to(kind)
                place = (self.b * self.rows + row.node) * self.heads + h
                self.lse[place] = (total == 0.0).where(float("-inf"), level)
            with code.loop(0, row.n) as i, code.loop(0, self.heads) as h:
                self.alpha[self.place_of(row, i, h)] = buf[h * row.places + i]

    def place_of(self, row: EdgeRow, i: Value, h: Value) -> Value:
        """Where the number of an edge and a head stands in the caller's order."""
        return (self.b * self.edges + self.edge[row.first + i]) * self.heads + h


class EdgeSoftmaxBackward(RowsKernel):
    """``out = alpha (grad + grad_lse - sum alpha grad)``, the sum over the edges of each row, in
    float64.
    """

    alpha: Sums
    grad: Sums
    grad_lse: Sums
    out: Sums

    def of_batch(self, lo: Value, hi: Value) -> None:
        """Row by row, and head by head."""
        code = self.code
        kind = type_of(self.kinds.sums)
        with self.each_row(lo, hi) as row, code.loop(0, self.heads) as h:
            total = code.variable(code.constant(0.0, DOUBLE))
            with code.loop(0, row.n) as i:
                place = (self.b * self.edges + self.edge[row.first + i]) * self.heads + h
                total.value += (self.alpha[place] * self.grad[place]).to(DOUBLE)
            level = self.grad_lse[(self.b * self.rows + row.node) * self.heads + h]
            shift = level - total.value.to(kind)
            with code.loop(0, row.n) as i:
                place = (self.b * self.edges + self.edge[row.first + i]) * self.heads + h
                self.out[place] = self.alpha[place] * (self.grad[place] + shift)
