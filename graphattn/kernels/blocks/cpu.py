"""Attention of blocks of targets on their pieces of sources, as machine code.

A task is a cut of the blocks, of one batch element and of the heads that share a key and a value:
these are packed once. A block walks its pieces: scores of a step, at most ``STEP`` sources of
several pieces; then the peak of each target; then weights, and their sums. Peak and sum of
exponentials are kept apart, ``levels`` and ``totals`` (B, H, blocks of targets): beside a peak of 1e9
their log-sum-exp has no digits left for the sum.

The backward computes the weights of a piece again. Gradients of key and value are sums over blocks: a
cut leaves its own, which :class:`BlockGradients` adds in their order, so that the bits of a result do not
depend on the number of threads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir

from ...plans.pieces import VECTORS
from ..llvm.code import Array, Value, Variable, type_of
from ..llvm.native import Double, Function, Indices, Integer, Kernel, Marks, Nodes, Places, Sums
from ..llvm.vectors import exp2
from .parts import Bias, capped, shape_of, zeros

STEP = 192  # sources whose scores are held at once: those of a block stay in a core's first cache
BACK_STEP = 128  # of the backward, which holds two numbers for each pair
SHARES = 64  # parts of pieces in a step
LINE = 64  # bytes; what threads hold begins at lines


class Piece(NamedTuple):
    """``n`` sources from ``source`` on, for the vectors of a block from ``vector`` on; the masks
    begin at ``mask``, unless it is negative.
    """

    source: Value
    n: Value
    vector: Value
    vectors: Value
    mask: Value


class Task(NamedTuple):
    """A cut of the blocks, for a batch element and a head of keys."""

    batch: Value
    head: Value
    cut: Value
    number: Value  # of batch element and head


class Blocks(Kernel):
    """A kernel over tasks.

    ``targets`` (T,) and ``sources`` (S,) are the nodes in the order of the blocks. The pieces of
    block ``i`` are ``ptr[i] .. ptr[i + 1]`` of ``pieces`` (P, 4): source, number, vectors and the
    first of ``masks``. Cut ``c`` has the blocks from ``first[c]`` on, and reads the intervals
    ``span_ptr[c] ..`` of ``spans`` (I, 2), whose hull has ``hull`` sources at most.
    """

    # of shapes alone
    heads: Integer
    group: Integer
    kv_heads: Integer
    cuts: Integer
    num_targets: Integer
    num_blocks: Integer
    depth: Integer  # of query and key
    width: Integer  # of a value
    stride: Integer  # of packed rows of both, rounded up to whole vectors
    value_stride: Integer
    hull: Integer
    scale: Double
    turn: Double  # a factor of queries, 1 or -1
    rate: Double  # of scores in the exponents of 2
    slope: Double  # of scores under a softcap; 0 without one
    scores: Places  # functions for one, two and three vectors
    sums: Places
    pack_rows: Function
    pack_targets: Function
    unpack_targets: Function
    # of a plan
    targets: Indices
    sources: Indices
    ptr: Places
    pieces: Indices
    masks: Places
    first: Places
    span_ptr: Places
    spans: Indices
    # of a call
    broken: Marks  # set if a node that a mask leaves out of a sum is not finite
    table: Sums  # (H, entries), biases by place; absent without
    entries: Integer
    target_places: Indices  # in the order of the blocks, as are those of sources
    source_places: Indices
    first_places: Places  # of blocks whose targets have consecutive ones; -1 of others
    thresholds: Sums  # levels of sigmoids, in the order of the blocks; absent for softmax

    def build(self, lo: Value, hi: Value, space: Array) -> None:
        """Code for every task."""
        code = self.code
        self.shape = shape_of(code, self.kinds)
        self.space = space
        self.kind = type_of(self.kinds.sums)
        self.allot()
        with code.loop(lo, hi) as number:
            head = number % self.kv_heads
            rest = number // self.kv_heads
            batch = rest // self.cuts
            task = Task(batch, head, rest % self.cuts, batch * self.kv_heads + head)
            self.of_task(task)

    def allot(self) -> None:
        """Take the memory of a thread."""

    def of_task(self, task: Task) -> None:
        """Leave the code of a task."""
        raise NotImplementedError

    def numbers(self, count: Value | int) -> Sums:
        """Memory for so many sums, up to a line."""
        memory = Sums(self.code, self.space.address, self.kinds.sums)
        size = (self.code.integer(count) * self.kinds.sums.itemsize + (LINE - 1)) & -LINE
        self.space = self.space.after_bytes(size)
        return memory

    def number(self, x: Value | float) -> Value:
        """A number in the dtype of sums."""
        if isinstance(x, Value):
            return x.to(self.kind)
        return self.code.constant(x, self.kind)

    def fill(self, x: Sums, count: Value | int, number: float = 0.0) -> None:
        """Write a number to so many places, whole vectors."""
        lanes = self.shape.lanes
        value = self.number(number).splat(lanes)
        with self.code.loop(0, count, lanes) as i:
            x.write(i, value)

    def start_of(self, task: Task) -> Value:
        """The first source of a task."""
        at = self.span_ptr[task.cut]
        has = at < self.span_ptr[task.cut + 1]
        return has.where(self.spans[has.where(2 * at, 0)], 0)

    @contextmanager
    def each_span(self, task: Task) -> Iterator[tuple[Value, Value]]:
        """``with self.each_span(task) as (lo, n):`` every interval that a task reads."""
        with self.code.loop(self.span_ptr[task.cut], self.span_ptr[task.cut + 1]) as i:
            lo = self.spans[2 * i]
            yield lo, self.spans[2 * i + 1] - lo

    def pack(self, task: Task, x: Nodes, depth: Value, stride: Value, broken: Marks) -> Sums:
        """The rows that a task reads in its memory, whose address is that of source 0."""
        memory = self.numbers(self.hull * stride).after(-1 * (self.start_of(task) * stride))
        rows = x.of_head(task.head).of_batch(task.batch)
        with self.each_span(task) as (lo, n):
            self.pack_rows(
                rows, x.node, self.sources.after(lo), n, depth, stride, self.number(1.0),
                memory.after(lo * stride), broken,
            )  # fmt: skip
        return memory

    def row(self, x: Nodes, task: Task, head: Value) -> Array:
        """The first node of a head."""
        return x.of_head(head).of_batch(task.batch)

    @contextmanager
    def each_block(self, task: Task) -> Iterator[tuple[Value, Value, Value]]:
        """Every block of a task with each of its heads, its first target, and their number."""
        code = self.code
        first_head = task.head * self.group
        with (
            code.loop(first_head, first_head + self.group) as head,
            code.loop(self.first[task.cut], self.first[task.cut + 1]) as block,
        ):
            start = block * self.shape.targets
            self.of_targets = self.targets.after(start)
            self.left = self.num_targets - start
            n = self.left.least(self.shape.targets)
            yield head, block, n

    def ask_for(self, x: Nodes, task: Task, head: Value, width: Value, first: Value | int) -> None:
        """Ask for the nodes of a block from the ``first`` of the present one on."""
        rows = self.row(x, task, head)
        line = max(1, LINE // x.data.dtype.itemsize)
        with self.code.loop(0, self.shape.targets) as i:
            place = (i + first).least(self.left - 1)
            row = rows.after_bytes(self.of_targets[place] * x.node)
            with self.code.loop(0, width, line) as d:
                row.ask(d)

    def piece(self, number: Value) -> Piece:
        """A piece."""
        at = 4 * number
        vectors = self.pieces[at + 2]
        return Piece(
            self.pieces[at], self.pieces[at + 1], vectors >> 2, vectors & 3, self.pieces[at + 3]
        )

    def masks_from(self, piece: Piece, offset: Value) -> Places:
        """The masks of a piece from one of its sources on; no address if it has none."""
        return self.masks.after(piece.mask + offset).only_if(piece.mask >= 0)

    def begin_biases(self, head: Value, block: Value) -> None:
        """Begin the biases of a head and a block of targets."""
        self.row_of_biases = self.table.after(head * self.entries)
        self.places = self.target_places.after(block * self.shape.targets)
        first = self.code.variable(-1)
        with self.code.when(self.table.is_given):
            first.value = self.first_places[block]
        self.first_place = first.value

    def biases(self, row: Sums, source: Value, shift: Value) -> Bias:
        """The entries of a row of a table for targets from a lane on, and sources from one on."""
        has_gaps = self.first_place < 0
        return Bias(
            row.after(has_gaps.where(0, self.first_place + shift)),
            self.source_places.after(source),
            self.places.after(shift).only_if(has_gaps),
        )

    def function(self, table: Places, vectors: Value) -> Function:
        """The function for so many vectors."""
        return Function(self.code, table[vectors - 1].ir)


class BlockForward(Blocks):
    """Outputs, and the peak and the sum of exponentials of every target."""

    query: Nodes
    key: Nodes
    value: Nodes
    out: Nodes
    levels: Sums
    totals: Sums
    weigh: Places

    def allot(self) -> None:
        block = self.shape.targets
        self.turned = self.numbers(self.stride * block)
        self.result = self.numbers(self.value_stride * block)
        self.weights = self.numbers(STEP * block)
        self.peaks, self.before, self.level, self.total, self.factor = (
            self.numbers(block) for _ in range(5)
        )
        self.shares = Places(self.code, self.space.address, self.ptr.dtype)
        self.space = self.space.after_bytes(8 * 3 * SHARES)
        self.rest = self.space

    def of_task(self, task: Task) -> None:
        self.space = self.rest
        self.keys = self.pack(task, self.key, self.depth, self.stride, self.spare_mark())
        self.values = self.pack(task, self.value, self.width, self.value_stride, self.broken)
        with self.each_block(task) as (head, block, n):
            self.of_block(task, head, block, n)

    def spare_mark(self) -> Marks:
        """A mark that is not read."""
        return self.broken.after(1)

    def of_block(self, task: Task, head: Value, block: Value, n: Value) -> None:
        """Code of one block of one head."""
        code = self.code
        size = self.shape.targets
        self.ask_for(self.query, task, head, self.depth, size)
        self.ask_for(self.out, task, head, self.width, 0)
        self.pack_targets(
            self.row(self.query, task, head), self.query.node, self.of_targets, n, self.depth,
            self.number(self.turn), self.turned, self.spare_mark(),
        )  # fmt: skip
        self.begin_biases(head, block)
        self.fill(self.result, self.value_stride * size)
        self.fill(self.total, size)
        self.fill(self.peaks, size, float("-inf"))
        self.fill(self.before, size, float("-inf"))
        self.fill(self.level, size)
        with code.when(self.thresholds.is_given):
            self.fill(self.total, size, 1.0)
            for v in range(0, size, self.shape.lanes):
                threshold = self.thresholds.read(block * size + v, self.shape.lanes)
                self.level.write(v, threshold)
        number = code.variable(self.ptr[block])
        offset = code.variable(0)
        end = self.ptr[block + 1]
        begun = code.variable(0)
        with code.repeat(lambda: number.value < end):
            shares = self.scores_of_step(number, offset, end)
            with code.when(~self.thresholds.is_given):
                moved = self.raise_levels()
                with code.when((begun.value != 0) & moved):
                    self.rescale()
            begun.value = code.integer(1)
            self.add_shares(shares)
        self.finish(task, head, block, n)

    def scores_of_step(self, number: Variable, offset: Variable, end: Value) -> Value:
        """Scores of the next sources, and the number of shares of pieces that these are."""
        code = self.code
        lanes, size, _ = self.shape
        count = code.variable(0)
        filled = code.variable(0)

        def goes_on() -> Value:
            return (number.value < end) & (filled.value < STEP) & (count.value < SHARES)

        with code.repeat(goes_on):
            piece = self.piece(number.value)
            at = offset.value
            take = (piece.n - at).least(STEP - filled.value)
            shift = piece.vector * lanes
            source = piece.source + at
            self.function(self.scores, piece.vectors)(
                self.turned.after(shift), self.keys.after(source * self.stride), self.stride,
                self.depth, take, self.masks_from(piece, at), shift,
                self.weights.after(filled.value * size + shift), self.peaks.after(shift),
                self.biases(self.row_of_biases, source, shift),
            )  # fmt: skip
            share = self.shares.after(3 * count.value)
            share[0] = number.value
            share[1] = at
            share[2] = take
            count.value += 1
            filled.value += take
            is_done = at + take == piece.n
            offset.value = is_done.where(0, at + take)
            number.value = is_done.where(number.value + 1, number.value)
        return count.value

    def raise_levels(self) -> Value:
        """New levels, and totals beside them; True if one has moved."""
        lanes, size, _ = self.shape
        moved = self.code.constant(0, ir.IntType(1))
        infinite = self.number(float("-inf"))
        rate = self.number(self.rate)
        for v in range(0, size, lanes):
            peak = self.peaks.read(v, lanes)
            peak = self.capped_peak(peak)
            before = self.before.read(v, lanes)
            level = (peak == infinite).where(0.0, peak)
            factor = exp2((before - level) * rate)
            self.factor.write(v, factor)
            self.level.write(v, level)
            self.before.write(v, peak)
            self.total.write(v, self.total.read(v, lanes) * factor)
            moved = moved | (peak != before).any_lane()
        return moved

    def capped_peak(self, x: Value) -> Value:
        """Peaks under the cap, if there is one."""
        result = self.code.variable(x)
        with self.code.when(self.slope != 0.0):
            result.value = capped(x, self.number(self.slope))
        return result.value

    def rescale(self) -> None:
        """The sums so far, beside new levels."""
        lanes, size, _ = self.shape
        factors = [self.factor.read(v, lanes) for v in range(0, size, lanes)]
        with self.code.loop(0, self.width) as d:
            for v, factor in enumerate(factors):
                place = d * size + v * lanes
                self.result.write(place, self.result.read(place, lanes) * factor)

    def add_shares(self, count: Value) -> None:
        """Weights of a step, and their sums."""
        code = self.code
        lanes, size, tile = self.shape
        width = (self.width + (tile - 1)) & -tile
        for is_sum in (False, True):
            filled = code.variable(0)
            with code.loop(0, count) as i:
                share = self.shares.after(3 * i)
                piece = self.piece(share[0])
                take = share[2]
                shift = piece.vector * lanes
                weights = self.weights.after(filled.value * size + shift)
                if is_sum:
                    source = piece.source + share[1]
                    self.function(self.sums, piece.vectors)(
                        weights, self.values.after(source * self.value_stride), self.value_stride,
                        width, take, self.masks_from(piece, share[1]), shift,
                        self.result.after(shift),
                    )  # fmt: skip
                else:
                    self.function(self.weigh, piece.vectors)(
                        weights, take, self.level.after(shift), self.number(self.rate),
                        self.number(self.slope), self.total.after(shift),
                    )  # fmt: skip
                filled.value += take

    def finish(self, task: Task, head: Value, block: Value, n: Value) -> None:
        """Write the outputs, levels and totals of a block."""
        lanes, size, _ = self.shape
        row = ((task.batch * self.heads + head) * self.num_blocks + block) * size
        for v in range(0, size, lanes):
            total = self.total.read(v, lanes)
            empty = total == 0.0
            self.factor.write(v, empty.where(0.0, 1.0 / empty.where(1.0, total)))
            self.levels.write(row + v, self.level.read(v, lanes))
            self.totals.write(row + v, total)
        self.unpack_targets(
            self.result, self.factor, self.of_targets, n, self.width,
            self.row(self.out, task, head), self.out.node,
        )  # fmt: skip


class BlockBackward(Blocks):
    """Gradients of query, and those of key and value from each cut.

    These are (B, H_kv, places, stride): the hull of a cut begins at ``place[cut]`` of ``places``.
    Gradients of the biases are (B, H_kv, cuts, group, entries).
    """

    query: Nodes
    key: Nodes
    value: Nodes
    out: Nodes
    grad_out: Nodes
    grad_lse: Sums  # as levels; absent if there is none
    levels: Sums
    totals: Sums
    grad_query: Nodes
    key_parts: Sums
    value_parts: Sums
    table_parts: Sums  # absent if they are not needed
    place: Places
    slopes: Places
    outer: Places
    table_sums: Places

    def allot(self) -> None:
        block = self.shape.targets
        self.turned = self.numbers(self.stride * block)
        self.turned_grad = self.numbers(self.value_stride * block)
        self.turned_out = self.numbers(self.value_stride * block)
        self.of_query = self.numbers(self.stride * block)
        self.query_rows = self.numbers(self.stride * block)
        self.grad_rows = self.numbers(self.value_stride * block)
        self.weights = self.numbers(BACK_STEP * block)
        self.grads = self.numbers(BACK_STEP * block)
        self.level, self.factor, self.delta, self.scales, self.peaks = (
            self.numbers(block) for _ in range(5)
        )
        self.fill(self.scales, block)
        lanes = self.shape.lanes
        for v in range(0, block, lanes):
            self.scales.write(v, self.number(self.scale).splat(lanes))
        self.rest = self.space

    def of_task(self, task: Task) -> None:
        code = self.code
        self.space = self.rest
        self.keys = self.pack(task, self.key, self.depth, self.stride, self.broken)
        self.values = self.pack(
            task, self.value, self.width, self.value_stride, self.broken.after(1)
        )
        self.grad_key = self.part(task, self.key_parts, self.stride)
        self.grad_value = self.part(task, self.value_parts, self.value_stride)
        with self.each_span(task) as (lo, n):
            self.fill(self.grad_key.after(lo * self.stride), n * self.stride)
            self.fill(self.grad_value.after(lo * self.value_stride), n * self.value_stride)
        tables = self.table_parts.after(
            (task.number * self.cuts + task.cut) * (self.group * self.entries)
        )
        with code.when(self.table_parts.is_given):
            self.fill(tables, self.group * self.entries)
        with self.each_block(task) as (head, block, n):
            self.begin_biases(head, block)
            self.grad_biases = tables.after((head - task.head * self.group) * self.entries)
            self.pack_block(task, head, block, n)
            with code.loop(self.ptr[block], self.ptr[block + 1]) as number:
                piece = self.piece(number)
                with code.loop(0, piece.n, BACK_STEP) as at:
                    self.of_piece(piece, at, (piece.n - at).least(BACK_STEP))
            self.unpack_targets(
                self.of_query, self.scales, self.of_targets, n, self.depth,
                self.row(self.grad_query, task, head), self.grad_query.node,
            )  # fmt: skip

    def part(self, task: Task, parts: Sums, stride: Value) -> Sums:
        """The gradients that a task leaves; the address is that of source 0."""
        place = task.number * self.place[self.cuts] + self.place[task.cut] - self.start_of(task)
        return parts.after(place * stride)

    def pack_block(self, task: Task, head: Value, block: Value, n: Value) -> None:
        """The numbers of a block of targets."""
        code = self.code
        lanes, size, _ = self.shape
        one = self.number(1.0)
        order = self.of_targets
        self.ask_for(self.query, task, head, self.depth, size)
        self.ask_for(self.grad_out, task, head, self.width, size)
        self.ask_for(self.out, task, head, self.width, size)
        self.ask_for(self.grad_query, task, head, self.depth, 0)
        for x, depth, by, to in (
            (self.query, self.depth, self.number(self.turn), self.turned),
            (self.grad_out, self.width, one, self.turned_grad),
            (self.out, self.width, one, self.turned_out),
        ):
            self.pack_targets(
                self.row(x, task, head), x.node, order, n, depth, by, to, self.broken.after(1)
            )
        for x, depth, stride, by, to in (
            (self.query, self.depth, self.stride, self.number(self.scale), self.query_rows),
            (self.grad_out, self.width, self.value_stride, one, self.grad_rows),
        ):
            self.fill(to.after(n * stride), (size - n) * stride)
            self.pack_rows(
                self.row(x, task, head), x.node, order, n, depth, stride, by, to, self.broken
            )
        self.fill(self.of_query, self.stride * size)
        row = ((task.batch * self.heads + head) * self.num_blocks + block) * size
        deltas = [code.variable(zeros(code, self.kinds, lanes)) for _ in range(0, size, lanes)]
        with code.loop(0, self.width) as d:
            for v, delta in enumerate(deltas):
                place = d * size + v * lanes
                delta.value = self.turned_grad.read(place, lanes).fma(
                    self.turned_out.read(place, lanes), delta.value
                )
        for v, delta in zip(range(0, size, lanes), deltas, strict=True):
            total = self.totals.read(row + v, lanes)
            empty = total == 0.0
            self.factor.write(v, empty.where(0.0, 1.0 / empty.where(1.0, total)))
            self.level.write(v, self.levels.read(row + v, lanes))
            with code.when(self.thresholds.is_given):
                delta.value = zeros(code, self.kinds, lanes)
            with code.when(self.grad_lse.is_given):
                delta.value -= self.grad_lse.read(row + v, lanes)
            self.delta.write(v, delta.value)

    def of_piece(self, piece: Piece, at: Value, take: Value) -> None:
        """The gradients through some sources of a piece."""
        lanes, _, tile = self.shape
        shift = piece.vector * lanes
        source = piece.source + at
        masks = self.masks_from(piece, at)
        none = Places(self.code, ir.PointerType()(None), masks.dtype)
        weights = self.weights.after(shift)
        grads = self.grads.after(shift)
        peaks = self.peaks.after(shift)
        keys = self.keys.after(source * self.stride)
        values = self.values.after(source * self.value_stride)
        products = self.function(self.scores, piece.vectors)
        biases = self.biases(self.row_of_biases, source, shift)
        products(
            self.turned.after(shift), keys, self.stride, self.depth, take, masks, shift, weights,
            peaks, biases,
        )  # fmt: skip
        products(
            self.turned_grad.after(shift), values, self.value_stride, self.width, take, none, shift,
            grads, peaks, biases._replace(table=Sums(self.code, none.address, weights.dtype)),
        )  # fmt: skip
        self.function(self.slopes, piece.vectors)(
            weights, grads, take, self.level.after(shift), self.factor.after(shift),
            self.delta.after(shift), self.number(self.rate), self.number(self.slope),
        )  # fmt: skip
        with self.code.when(self.table_parts.is_given):
            self.function(self.table_sums, piece.vectors)(
                grads, take, masks, shift, self.biases(self.grad_biases, source, shift)
            )
        self.function(self.sums, piece.vectors)(
            grads, keys, self.stride, (self.depth + (tile - 1)) & -tile, take, masks, shift,
            self.of_query.after(shift),
        )  # fmt: skip
        outer = self.function(self.outer, self.code.integer(1))
        targets = piece.vectors * lanes
        for numbers, rows, stride, to in (
            (grads, self.query_rows, self.stride, self.grad_key),
            (weights, self.grad_rows, self.value_stride, self.grad_value),
        ):
            outer(
                numbers, rows.after(shift * stride), stride, targets, take, masks, shift,
                to.after(source * stride),
            )  # fmt: skip


class BlockGradients(Blocks):
    """Gradients of keys, or values: those of all cuts added in their order.

    A task is a batch element and a head, of one cut.
    """

    joined: Integer  # cuts
    parts: Sums
    place: Places
    out: Nodes
    num_sources: Integer
    unpack_rows: Function

    def of_task(self, task: Task) -> None:
        code = self.code
        lanes = self.shape.lanes
        memory = Sums(code, self.space.address, self.kinds.sums)
        self.fill(memory, self.num_sources * self.stride)
        with code.loop(0, self.joined) as cut:
            of_cut = task._replace(cut=cut)
            place = task.number * self.place[self.joined] + self.place[cut] - self.start_of(of_cut)
            part = self.parts.after(place * self.stride)
            with (
                self.each_span(of_cut) as (lo, n),
                code.loop(lo * self.stride, (lo + n) * self.stride, lanes) as i,
            ):
                memory.write(i, memory.read(i, lanes) + part.read(i, lanes))
        self.unpack_rows(
            memory, self.stride, self.sources, self.num_sources, self.depth,
            self.row(self.out, task, task.head), self.out.node,
        )  # fmt: skip


def space_bytes(itemsize: int, lanes: int, strides: tuple[int, int], hull: int) -> int:
    """Memory of a thread for the forward or the backward kernel."""
    numbers = VECTORS * lanes * (4 * sum(strides) + 2 * STEP + 8) + hull * sum(strides)
    return numbers * itemsize + 24 * SHARES + 32 * LINE
