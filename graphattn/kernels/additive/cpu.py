"""Additive scores of rows of edges as machine code: ``sum_d weight[d] f(x_t[d] + y_s[d] + z_e[d])``,
and what they pass back.

Nodes x (B, T, G, D), y (B, S, G / group, D) and edges z (B, E, G, D) have D padded to a multiple of
eight; without edges, z is one row of zeros for all. ``weight`` is (G, K, D), and ``heads`` is G. No
width is in the code: one compilation serves all of a dtype.
"""

from collections.abc import Iterator

import torch

from ..llvm.code import LINE, Array, Value, type_of, vector_type
from ..llvm.native import Double, Integer, NodeRow, Nodes, Sums, Totals
from ..llvm.node_rows import AHEAD, FOUR, ROW
from ..llvm.rows_kernel import EdgeRow, RowsKernel
from ..llvm.vectors import DOUBLE, TWICE, tanh

PIECE = 64  # edges summed before the sum joins the row's total, in float64


class _Additive(RowsKernel):
    """The function f of the sum of three rows; it is a leaky ReLU of ``slope`` or, where that is
    NaN, tanh.
    """

    scores: Integer  # K
    width: Integer
    x: Nodes
    y: Nodes
    z: Nodes
    weight: Sums
    slope: Double

    def terms(self, t: Value, s: Value, edge: Value, g: Value) -> list[NodeRow]:
        """The rows of a target, a source and an edge whose sum f takes."""
        places = ((self.x, t, g), (self.y, s, g // self.group), (self.z, edge, g))
        return [x.row(self.b, node).after_bytes(h * x.head) for x, node, h in places]

    def ask_for_rows(self, x: Nodes, j: Value, heads: Value) -> None:
        """Ask for the node at the other end of an edge that comes soon."""
        soon = (j + AHEAD).least(self.edges - 1)
        row = x.row(self.b, self.other[soon])
        with self.code.loop(0, heads * self.width * self.kinds.sums.itemsize, LINE) as i:
            row.after_bytes(i).ask()

    def vectors(self, terms: list[NodeRow]) -> Iterator[tuple[Value, int, Value, Value]]:
        """``for i, lanes, f, slope in self.vectors(terms):`` vectors of f and its slope at the sum
        of three rows.
        """
        code = self.code
        with code.branch(self.slope != self.slope) as (smooth, leaky):
            with smooth:
                for i, lanes in code.vectors(self.width, TWICE, ROW):
                    y = tanh(_total_of(terms, i, lanes))
                    yield i, lanes, y, 1.0 - y * y
            with leaky:
                below = self.slope.to(type_of(self.kinds.sums))
                for i, lanes in code.vectors(self.width, TWICE, ROW):
                    x = _total_of(terms, i, lanes)
                    slope = below.splat(lanes)
                    y = (x < 0.0).where(x * slope, x)
                    yield i, lanes, y, (y > 0.0).where(1.0, slope)

    def place_of(self, edge: Value, g: Value) -> Value:
        """The first place of an edge and a group, counted in (B, E, G)."""
        return (self.b * self.edges + edge) * self.heads + g


def _total_of(terms: list[NodeRow], i: Value, lanes: int) -> Value:
    x, y, z = (term.read(i, lanes) for term in terms)
    return x + y + z


class Scores(_Additive):
    """``out`` (B, E, G, K), in the caller's order, of the edges into the targets of the rows."""

    out: Sums

    def of_batch(self, lo: Value, hi: Value) -> None:
        """Edge by edge."""
        code = self.code
        with self.each_row(lo, hi) as row, code.loop(row.first, row.first + row.n) as j:
            self.ask_for_rows(self.y, j, self.heads // self.group)
            edge = self.edge[j]
            with code.loop(0, self.heads) as g:
                terms = self.terms(row.node, self.other[j], edge, g)
                weight = self.weight.after(g * self.scores * self.width)
                out = self.out.after(self.place_of(edge, g) * self.scores)
                four = self.scores & -FOUR
                with code.loop(0, four, FOUR) as k:
                    self.score(terms, weight.after(k * self.width), FOUR, out.after(k))
                with code.loop(four, self.scores) as k:
                    self.score(terms, weight.after(k * self.width), 1, out.after(k))

    def score(self, terms: list[NodeRow], weight: Array, count: int, out: Array) -> None:
        """``out[k] = sum_i weight[k, i] * f(...)[i]`` for ``k < count``."""
        code = self.code
        zero = code.constant(0.0, vector_type(type_of(self.kinds.sums), ROW))
        sums = [code.variable(zero) for _ in range(count)]

        for i, lanes, active, _ in self.vectors(terms):
            for k in range(count):
                share = weight.read(i + k * self.width, lanes) * active
                sums[k].value += share.sum(ROW)
        for k in range(count):
            out[k] = sums[k].value.sum()


class _PassedBack(_Additive):
    """The gradients of the nodes of the rows from ``grad`` (B, E, G, K), added in float64, a piece
    of edges at a time.
    """

    grad: Sums
    grad_nodes: Nodes

    def allot(self) -> None:
        """A node's sum over a piece of edges, and in all."""
        count = self.heads * self.width
        self.total = Totals(self.code, self.space.address, torch.float64)
        self.space = self.space.after_bytes(count * 8)
        self.part = self.numbers(count)

    def of_batch(self, lo: Value, hi: Value) -> None:
        """Row by row, piece by piece."""
        code = self.code
        count = self.heads_of_nodes() * self.width
        fill(self.part, count, 0.0)
        with self.each_row(lo, hi) as row:
            fill(self.total, count, 0.0)
            stop = row.first + row.n
            with code.loop(row.first, stop, PIECE) as start:
                end = (start + PIECE).least(stop)
                with code.loop(start, end) as j:
                    self.edge_of(row, j)
                move(self.part, count, self.total)
                self.after_piece(end - start)
            to = self.grad_nodes.row(self.b, row.node)
            with code.loop(0, self.heads_of_nodes()) as h:
                total = self.total.after(h * self.width)
                row_of_head = to.after_bytes(h * self.grad_nodes.head)
                with code.loop(0, self.width, ROW) as i:
                    row_of_head.write(i, total.read(i, ROW))

    def heads_of_nodes(self) -> Value:
        """Rows of a node."""
        raise NotImplementedError

    def edge_of(self, row: EdgeRow, j: Value) -> None:
        """Add what an edge passes."""
        raise NotImplementedError

    def after_piece(self, edges: Value) -> None:
        """Code after a piece of edges; none by default."""

    def any_of(self, grad: Array) -> Value:
        """True if an edge gets a gradient; one that does not passes nothing, not even a NaN."""
        code = self.code
        any_gradient = code.variable(0)
        with code.loop(0, self.scores) as k:
            any_gradient.value = (grad[k] != 0.0).where(1, any_gradient.value)
        return any_gradient.value == 1

    def pass_back(
        self, terms: list[NodeRow], g: Value, grad: Array, total: Array
    ) -> Iterator[tuple[Value, int, Value, Value]]:
        """``for i, lanes, f, passed in self.pass_back(...)``: add to ``total`` what the gradients of
        an edge's scores of a group pass to the sum of three rows.
        """
        code = self.code
        weight = self.weight.after(g * self.scores * self.width)
        for i, lanes, active, slope in self.vectors(terms):
            kind = vector_type(type_of(self.kinds.sums), lanes)
            passed = code.variable(code.constant(0.0, kind))
            with code.loop(0, self.scores) as k:
                row = weight.read(k * self.width + i, lanes)
                passed.value = grad[k].splat(lanes).fma(row, passed.value)
            result = passed.value * slope
            total.write(i, result + total.read(i, lanes))
            yield i, lanes, active, result


class ToTargets(_PassedBack):
    """The gradients of targets; of edges (B, E, G, D), if ``grad_edges`` is given; and of the
    weight, added to ``grad_weight`` in float64.
    """

    grad_edges: Sums
    grad_weight: Totals

    def allot(self) -> None:
        """A sum for the weight too."""
        super().allot()
        self.part_of_weight = self.numbers(self.heads * self.scores * self.width)

    def of_batch(self, lo: Value, hi: Value) -> None:
        """The sum for the weight begins and ends with the rows."""
        self.since = self.code.variable(0)
        count = self.heads * self.scores * self.width
        fill(self.part_of_weight, count, 0.0)
        super().of_batch(lo, hi)
        move(self.part_of_weight, count, self.grad_weight)

    def heads_of_nodes(self) -> Value:
        """Heads of x."""
        return self.heads

    def after_piece(self, edges: Value) -> None:
        """The sum for the weight is moved after as many edges as a piece has."""
        code = self.code
        self.since.value += edges
        with code.when(self.since.value >= PIECE):
            count = self.heads * self.scores * self.width
            move(self.part_of_weight, count, self.grad_weight)
            self.since.value = code.integer(0)

    def edge_of(self, row: EdgeRow, j: Value) -> None:
        """Add what an edge passes to its target, itself and the weight."""
        code = self.code
        self.ask_for_rows(self.y, j, self.heads // self.group)
        edge = self.edge[j]
        with code.loop(0, self.heads) as g:
            place = self.place_of(edge, g)
            grad = self.grad.after(place * self.scores)
            of_edge = self.grad_edges.after(place * self.width)
            with code.branch(self.any_of(grad)) as (yes, no):
                with yes:
                    self.group_of(row, j, g, grad, of_edge)
                with no, code.when(self.grad_edges.is_given):
                    fill(of_edge, self.width, 0.0)

    def group_of(self, row: EdgeRow, j: Value, g: Value, grad: Array, of_edge: Sums) -> None:
        """Add what a group of an edge passes."""
        code = self.code
        part_of_weight = self.part_of_weight.after(g * self.scores * self.width)
        terms = self.terms(row.node, self.other[j], self.edge[j], g)
        total = self.part.after(g * self.width)
        for i, lanes, active, passed in self.pass_back(terms, g, grad, total):
            with code.loop(0, self.scores) as k:
                place = k * self.width + i
                before = part_of_weight.read(place, lanes)
                part_of_weight.write(place, grad[k].splat(lanes).fma(active, before))
            with code.when(self.grad_edges.is_given):
                of_edge.write(i, passed)


class ToSources(_PassedBack):
    """The gradients of sources; the rows are by source."""

    def heads_of_nodes(self) -> Value:
        """Heads of y."""
        return self.heads // self.group

    def edge_of(self, row: EdgeRow, j: Value) -> None:
        """Add what an edge passes to its source."""
        code = self.code
        self.ask_for_rows(self.x, j, self.heads)
        edge = self.edge[j]
        with code.loop(0, self.heads) as g:
            grad = self.grad.after(self.place_of(edge, g) * self.scores)
            with code.when(self.any_of(grad)):
                terms = self.terms(self.other[j], row.node, edge, g)
                total = self.part.after((g // self.group) * self.width)
                for _ in self.pass_back(terms, g, grad, total):
                    pass


def fill(x: Array, count: Value, number: float) -> None:
    """``x[:count] = number``; a multiple of eight."""
    code = x.code
    with code.loop(0, count, ROW) as i:
        x.write(i, code.constant(number, vector_type(type_of(x.dtype), ROW)))


def move(part: Array, count: Value, total: Array) -> None:
    """Add what a piece came to, and begin the next; ``count`` is a multiple of eight."""
    code = part.code
    with code.loop(0, count, ROW) as i:
        total.write(i, total.read(i, ROW) + part.read(i, ROW).to(DOUBLE))
    fill(part, count, 0.0)
