"""The kernels of :mod:`graphattn.kernels.pairs.operator` as machine code: sums and products over edges,
and the softmax between them.
"""

from ..llvm.code import Value, type_of, vector_type
from ..llvm.native import Function, Integer, Marks, Nodes, Sums
from ..llvm.node_rows import ROW
from ..llvm.rows_kernel import EdgeRow, RowsKernel, SummingKernel
from ..llvm.vectors import DOUBLE


class EdgeSums(SummingKernel):
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

        with code.branch(self.removed.is_given) as (yes, no):
            with yes, self.each_row(lo, hi) as row, code.loop(0, self.heads) as h:
                self.one_head(row, h)
            with no, self.each_row(lo, hi) as row:
                self.all_heads(row, out_heads)

    def all_heads(self, row: EdgeRow, out_heads: Value) -> None:
        """The sums of a row."""
        weights = self.weights.after(self.b * self.edges * self.heads)
        count = out_heads * self.width
        with self.each_piece(row.n, count) as (i, size, sums):
            first = row.first + i
            gathered = self.gathered(self.nodes, first, size)
            self.sum_far(gathered, weights, self.edge.after(first), sums)
        self.ask_for_row(self.out, row, self.row_bytes, out_heads)
        self.store(self.sums, count, self.out.row(self.b, row.node))

    def one_head(self, row: EdgeRow, h: Value) -> None:
        """The sums of a row and a head over the edges that are not removed."""
        code = self.code
        count = code.variable(0)
        with code.loop(0, row.n) as i:
            edge = self.edge[row.first + i]
            is_removed = self.removed[self.b * self.removed_batch + edge * self.heads + h]
            with code.when(~is_removed):
                self.kept_edges[count.value] = self.other[row.first + i]
                self.weight[count.value] = self.of_edge(self.weights, row, i)[h]
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
            gathered = self.gathered(self.nodes, row.first, row.n)
            own = self.x.row(self.b, row.node)
            one = code.constant(1.0, kind)
            self.multiply(own, self.x.head, gathered, buf, one, code.constant(0.0, kind))
            self.write_edges(self.out, row, buf)


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
            with self.each_number(row) as (i, h, place):
                buf[place] = self.of_edge(self.score, row, i)[h]
            self.softmax_of_row(buf, row, self.lse)
            self.write_edges(self.alpha, row, buf)


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
                alpha = self.of_edge(self.alpha, row, i)[h]
                total.value += (alpha * self.of_edge(self.grad, row, i)[h]).to(DOUBLE)
            shift = self.of_node(self.grad_lse, row)[h] - total.value.to(kind)
            with code.loop(0, row.n) as i:
                alpha = self.of_edge(self.alpha, row, i)[h]
                self.of_edge(self.out, row, i)[h] = alpha * (
                    self.of_edge(self.grad, row, i)[h] + shift
                )
