"""Fused attention over edges as machine code: rows of edges in, sums out; nothing of shape (E, H, D)
is ever held.

Every kernel works on a range of rows, releases the GIL and is called from several threads at once
(:mod:`graphattn.kernels.llvm.threads`). Neither the width nor the dtype of nodes is in a kernel: it
calls the functions of :mod:`graphattn.kernels.llvm.node_rows` by address, and serves all whose sums have
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

from typing import Any

from ..llvm.code import Array, Value, Variable, type_of, vector_type
from ..llvm.native import Double, Function, Integer, Marks, Nodes, Sums
from ..llvm.node_rows import ROW, padded
from ..llvm.rows_kernel import EdgeRow, SummingKernel
from ..llvm.vectors import DOUBLE, dot, from_edges, inner, scale, slopes, softmax, tanh, to_edges
from ..plain.dropout import signed

NEAR = 1 << 9  # places of rows whose keys a core's own cache holds


class _Targets(SummingKernel):
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
    features: Integer  # 0 if there are none; their arrays may have no entries either
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
            gathered = self.gathered(rows, row.first, row.n)
            to = out.after(row.at)
            own = x.row(self.b, row.node)
            multiply(own, x.head, gathered, to, factor, self.number(spare))

    def sums_of_block(self, any_removed: Variable, *block: Any) -> None:
        """The sums of a block of rows, whether edges are removed or not."""
        with self.code.branch(any_removed.value == 1) as (yes, no):
            with yes:
                self.sums_of_kept(*block)
            with no:
                self.sums_of_rows(*block)

    def sums_of_rows(
        self, rows: Nodes, lo: Value, hi: Value, at: Value | int, buf: Array, out: Nodes
    ) -> None:
        """``out[b, t, h] = sum_i buf[at + h * m + i] * rows[b, other[first + i], h // group]``."""
        count = self.heads * self.width
        one = self.code.integer(1)
        with self.each_row(lo, hi, at) as row:
            with self.each_piece(row.n, count) as (i, size, sums):
                gathered = self.gathered(rows, row.first + i, size)
                self.sum_near(gathered, buf.after(row.at + i), one, row.places, sums)
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
                self.kept_edges[count.value] = self.other[row.first + i]
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
        more = (self.features > 0) | self.bias.is_given | (self.softcap > 0.0)
        with code.when(more), self.each_row(lo, hi, at) as row:
            with code.when(self.features > 0):
                self.add_features(self.attr_query, row, self.number(self.scale), self.buf)
            with code.when(self.softcap > 0.0):
                self.cap(row)
            with code.when(self.bias.is_given):
                self.find_removed(row, any_removed)
                self.add_bias(row)

    def features_of_target(self, x: Sums, row: EdgeRow, h: Value) -> Sums:
        """The features of a target and a head, of (B, T, H, F)."""
        place = (self.b * self.rows + row.node) * self.heads + h
        return x.after(place * self.features)

    def features_of_edge(self, row: EdgeRow, i: Value) -> Sums:
        """The features of an edge."""
        place = self.edge[row.first + i] * self.features
        return self.attr.after(self.b * self.attr_batch + place)

    def add_features(self, x: Sums, row: EdgeRow, factor: Value, buf: Array) -> None:
        """``buf[at + h * m + i] += factor * <x[b, t, h], attr[b, edge[first + i]]>``."""
        with self.each_number(row) as (i, h, place):
            target = self.features_of_target(x, row, h)
            product = dot(target, self.features_of_edge(row, i), self.features)
            buf[row.at + place] = buf[row.at + place] + factor * product

    def sum_features(self, buf: Array, row: EdgeRow, out: Sums, any_removed: Variable) -> None:
        """``out[b, t, h] = sum_i buf[at + h * m + i] * attr[b, edge[first + i]]``, in float64.

        Not even a NaN of a removed edge is in the sum.
        """
        code = self.code
        some_removed = any_removed.value == 1
        with code.loop(0, self.heads) as h:
            weights = buf.after(row.at + h * row.places)
            for f, lanes in code.vectors(self.features, ROW, 1):
                total = code.variable(code.constant(0.0, vector_type(DOUBLE, lanes)))
                with code.loop(0, row.n) as i:
                    feature = self.features_of_edge(row, i).read(f, lanes)
                    weighted = (feature * weights[i]).to(DOUBLE)
                    is_removed = some_removed & self.removed[row.at + h * row.places + i]
                    total.value += is_removed.where(0.0, weighted)
                self.features_of_target(out, row, h).write(f, total.value)

    def cap(self, row: EdgeRow) -> None:
        """Scaled products become capped ones; ``cap_slope`` is the cap's slope there."""
        code = self.code
        softcap = self.number(self.softcap)
        with code.loop(0, self.heads) as h:
            start = row.at + h * row.places
            for i, lanes in code.vectors(row.n, ROW, 1):
                y = tanh(self.buf.read(start + i, lanes) / softcap)
                self.buf.write(start + i, softcap * y)
                self.cap_slope.write(start + i, 1.0 - y * y)

    def bias_of(self, row: EdgeRow, i: Value, h: Value) -> Value:
        """The bias of an edge and a head."""
        edge = self.edge[row.first + i] * self.bias_edge
        return self.bias[self.b * self.bias_batch + edge + h * self.bias_head]

    def find_removed(self, row: EdgeRow, any_removed: Variable) -> None:
        """Mark the edges whose bias is -inf, and assign 1 if there are any."""
        with self.each_number(row) as (i, h, place):
            removed = self.bias_of(row, i, h) == float("-inf")
            self.removed[row.at + place] = removed
            any_removed.value = removed.where(1, any_removed.value)

    def add_bias(self, row: EdgeRow) -> None:
        """Scores with their bias; a removed edge's is -inf, whatever it was."""
        buf = self.buf.after(row.at)
        with self.each_number(row) as (i, h, place):
            bias = self.bias_of(row, i, h)
            removed = self.removed[row.at + place]
            buf[place] = removed.where(bias, buf[place] + bias)

    def drop(self, buf: Array, row: EdgeRow) -> None:
        """Weights times their factors: a hash of the edge (splitmix64), the same in any thread."""
        code = self.code
        kept_factor = self.number(self.kept_factor)
        batch = self.seed + self.b * signed(0xD6E8FEB86659FD93)
        with code.loop(0, self.heads) as h:
            weights = buf.after(row.at + h * row.places)
            head = batch + (h + 1) * signed(0xC2B2AE3D27D4EB4F)
            for i, lanes in code.vectors(row.n, ROW, 1):
                x = self.edge.read(row.first + i, lanes) * signed(0x9E3779B97F4A7C15) + head
                x = (x ^ (x >> 30)) * signed(0xBF58476D1CE4E5B9)
                x = (x ^ (x >> 27)) * signed(0x94D049BB133111EB)
                x = (x ^ (x >> 31)) >> 11
                factor = (x < self.dropped).where(0.0, kept_factor.splat(lanes))
                weights.write(i, weights.read(i, lanes) * factor)


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
                self.weights(row, any_removed)
            self.sums_of_block(any_removed, self.value, first, top, 0, self.buf, self.out)
            start.value = top

    def weights(self, row: EdgeRow, any_removed: Variable) -> None:
        """The scores of a row become weights."""
        code = self.code
        start = self.buf.after(row.at)
        self.softmax_of_row(start, row, self.lse)
        with code.when(self.alpha.is_given):
            self.write_edges(self.alpha, row, start)
        with code.when(self.kept_weights.is_given):
            place = (self.b * self.edges + row.first) * self.heads
            to_edges(start, row.n, self.heads, self.kept_weights.after(place))
        with code.when(self.dropped > 0):
            self.drop(self.buf, row)
        with code.when(self.features > 0):
            self.sum_features(self.buf, row, self.attr_out, any_removed)


class BackwardTargets(_Targets):
    """The gradients of targets and their edges, from ``grad_out`` and the like for the outputs.

    ``kept_weights`` (B, E, H) are the forward's, by place; without them they are computed again.
    Writes ``grad_query`` and ``grad_attr_query``; by place ``grad_products`` (B, E, H), the gradient
    of each product, and if it is given ``new_weights``, the weight after dropout, from which
    :class:`EdgeSums` computes the gradients of sources; in the caller's order ``grad_bias`` and
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
        with code.when(self.features > 0):
            self.add_features(self.grad_attr_out, row, self.number(1.0), self.grad)
        with code.branch(self.kept_weights.is_given) as (yes, no):
            with yes:
                from_edges(self.kept_weights.after(of_row), row.n, self.heads, buf)
                with code.when(self.bias.is_given):
                    self.find_removed(row, any_removed)
            # again: a stored lse has no digits for it at scores of -1e9
            with no, code.loop(0, self.heads) as h:
                softmax(buf.after(h * row.places), row.places)
        with code.when(any_removed.value == 1), self.each_number(row) as (_, _, place):
            grad[place] = self.removed[row.at + place].where(0.0, grad[place])
        with code.when(self.dropped > 0):
            self.drop(self.grad, row)
        with code.when(self.grad_alpha.is_given), self.each_number(row) as (i, h, place):
            grad[place] = grad[place] + self.of_edge(self.grad_alpha, row, i)[h]
        with code.loop(0, self.heads) as h:
            weights = buf.after(h * row.places)
            of_head = grad.after(h * row.places)
            total = self.number(inner(weights, of_head, row.places))
            level = code.variable(self.number(0.0))
            with code.when(self.grad_lse.is_given):
                level.value = self.of_node(self.grad_lse, row)[h]
            slopes(weights, of_head, row.places, level.value - total)
        with code.when(self.grad_bias.is_given):
            self.write_edges(self.grad_bias, row, grad)
        scale(grad, self.heads * row.places, self.number(self.scale))
        with code.when(self.softcap > 0.0), self.each_number(row) as (_, _, place):
            grad[place] = grad[place] * self.cap_slope[row.at + place]
        with code.when(self.dropped > 0):
            self.drop(self.buf, row)
        to_edges(grad, row.n, self.heads, self.grad_products.after(of_row))
        with code.when(self.new_weights.is_given):
            to_edges(buf, row.n, self.heads, self.new_weights.after(of_row))
        with code.when(self.features > 0):
            self.sum_features(self.grad, row, self.grad_attr_query, any_removed)
            self.features_of_edges(row)

    def features_of_edges(self, row: EdgeRow) -> None:
        """The gradients of the edge features of a row."""
        code = self.code
        grad = self.grad.after(row.at)
        buf = self.buf.after(row.at)
        with code.loop(0, row.n) as i:
            edge = (self.b * self.edges + self.edge[row.first + i]) * self.features
            for f, lanes in code.vectors(self.features, ROW, 1):
                total = code.variable(self.number(0.0).splat(lanes))
                with code.loop(0, self.heads) as h:
                    place = h * row.places + i
                    of_score = self.features_of_target(self.attr_query, row, h).read(f, lanes)
                    of_sum = self.features_of_target(self.grad_attr_out, row, h).read(f, lanes)
                    total.value += of_score * grad[place] + of_sum * buf[place]
                self.grad_attr.write(edge + f, total.value)
