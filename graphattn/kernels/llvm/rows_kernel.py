"""The base of kernels over rows of edges."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .code import LINE, Array, Value, type_of
from .native import Function, Indices, Integer, Kernel, Nodes, Places, Sums
from .node_rows import ROW, Gathered, padded
from .vectors import log, softmax

PIECE = 512  # edges summed before the sum joins the row's total
SOON = 3  # rows between asking for a node and using it


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
        """Code for every batch element in turn."""
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
        memory = Sums(self.code, self.space.address, self.kinds.sums)
        self.space = self.space.after_bytes(count * self.kinds.sums.itemsize)
        return memory

    def indices(self, count: Value) -> Indices:
        """Memory for so many indices, a multiple of eight."""
        memory = Indices(self.code, self.space.address, self.kinds.indices)
        self.space = self.space.after_bytes(count * self.kinds.indices.itemsize)
        return memory

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

    def gathered(self, x: Nodes, first: Value, n: Value) -> Gathered:
        """The nodes at the other ends of ``n`` edges from ``first`` on."""
        return Gathered(
            x.of_batch(self.b),
            x.node,
            x.head,
            self.heads,
            self.group,
            self.other.after(first),
            n,
            self.edges - 1 - first,
        )

    def ask_for_row(self, x: Nodes, row: EdgeRow, width: Value, heads: Value) -> None:
        """Ask for the node of a row that comes soon; where heads are not adjacent, for its first
        head.
        """
        soon = (row.number + SOON).least(self.rows - 1)
        node = x.row(self.b, self.order[soon])
        bytes_ahead = (x.head == width).where(heads * width, width)
        with self.code.loop(0, bytes_ahead, LINE) as i:
            node.after_bytes(i).ask()

    @contextmanager
    def each_number(self, row: EdgeRow) -> Iterator[tuple[Value, Value, Value]]:
        """``with self.each_number(row) as (i, h, place):`` every edge and head of a row, and the
        place of their number in a buffer, counted from the row's.
        """
        with self.code.loop(0, row.n) as i, self.code.loop(0, self.heads) as h:
            yield i, h, h * row.places + i

    def of_edge(self, x: Sums, row: EdgeRow, i: Value) -> Sums:
        """The numbers of an edge, of (B, E, H) in the caller's order."""
        return x.after((self.b * self.edges + self.edge[row.first + i]) * self.heads)

    def of_node(self, x: Sums, row: EdgeRow) -> Sums:
        """The numbers of the row's node, of (B, T, H)."""
        return x.after((self.b * self.rows + row.node) * self.heads)

    def write_edges(self, x: Sums, row: EdgeRow, start: Sums) -> None:
        """The numbers of a row's edges from a buffer into ``x``, (B, E, H)."""
        with self.each_number(row) as (i, h, place):
            self.of_edge(x, row, i)[h] = start[place]

    def softmax_of_row(self, start: Sums, row: EdgeRow, lse: Sums) -> None:
        """The scores of a row in a buffer become weights; their log-sum-exp into ``lse``, if it is
        given: -inf without edges.
        """
        code = self.code
        with code.loop(0, self.heads) as h:
            peak, total = softmax(start.after(h * row.places), row.places)
            with code.when(lse.is_given):
                level = peak + log(total).to(type_of(self.kinds.sums))
                self.of_node(lse, row)[h] = (total == 0.0).where(float("-inf"), level)


class SummingKernel(RowsKernel):
    """A kernel that sums rows of nodes, of some heads perhaps without edges that are removed."""

    widest: Integer  # most edges of a row, rounded up to a multiple of eight
    width: Integer  # of a row of sums
    row_bytes: Integer  # of a row of the nodes that are summed
    sum_near: Function
    store: Function

    def allot(self) -> None:
        """Two sums of a node, and the edges of a row that are kept, with their weights."""
        self.sums = self.numbers(2 * self.heads * self.width)
        self.weight = self.numbers(self.widest)
        self.kept_edges = self.indices(self.widest)

    @contextmanager
    def each_piece(
        self, n: Value, count: Value, added: Value | int = 0
    ) -> Iterator[tuple[Value, Value, Sums]]:
        """``with self.each_piece(n, count) as (i, size, sums):`` what is built inside writes
        ``sums[:count]`` of ``size`` edges from ``i`` on. They add up in pieces, so that a long sum
        loses no digits, and join what is there if ``added`` is not 0.
        """
        code = self.code
        with code.loop(0, (n == 0).where(1, n), PIECE) as i:
            into = ((i + added) > 0).where(count, code.integer(0))
            yield i, (n - i).least(PIECE), self.sums.after(into)
            with code.loop(0, into, ROW) as j:
                self.sums.write(j, self.sums.read(j, ROW) + self.sums.read(into + j, ROW))

    def add_kept(self, rows: Nodes, count: Value, added: Value | int = 0) -> None:
        """The sum of one head over the edges kept."""
        one = self.code.integer(1)
        zero = self.code.integer(0)
        with self.each_piece(count, self.width, added) as (i, size, sums):
            kept = Gathered(
                rows.of_batch(self.b),
                rows.node,
                rows.head,
                one,
                one,
                self.kept_edges.after(i),
                size,
                count - 1 - i,
            )
            self.sum_near(kept, self.weight.after(i), one, zero, sums)
