"""Medians of peers on one graph, timed in turns after each answer is compared with ours."""

import math
import pickle
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..arguments import one_of
from ..graph import AttentionGraph
from ..printed import Printed
from .peers import BOTH, FORWARD, MODES, AttentionCall, Peer, all_peers

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
# seconds: a quick call is repeated until it fills a block, and the second block counts
WARM_UNDER, BLOCK = (
    0.25,
    0.02,
)
Progress = Callable[[str], None]


@dataclass
class PeerTimes:
    """A peer on a number of threads; times in ms, by mode."""

    name: str
    threads: int
    ours: bool = False
    refused: list[str] = field(default_factory=list)  # why it was not timed, or not to the end
    ms: dict[str, list[float]] = field(default_factory=dict)  # one for each turn
    first_ms: dict[str, float] = field(default_factory=dict)  # of the first call, which makes plans
    difference: dict[str, float] = field(default_factory=dict)  # from the answer of "auto"

    def median(self, mode: str) -> float | None:
        """The median time, if there is one."""
        if self.ms.get(mode):
            return statistics.median(self.ms[mode])
        return None

    def __str__(self) -> str:
        return f"{self.name}, {self.threads} thread{'s' * (self.threads != 1)}"


class Contender:
    """A peer on a problem and a number of threads: an answer, the first call, a call each turn."""

    def __init__(self, peer: Peer, problem: AttentionCall, threads: int) -> None:
        self.peer = peer
        self.problem = problem
        self.threads = threads
        self.seconds: dict[str, float] = {}  # of the latest call

    def answer(self) -> dict[str, list[Tensor]]:
        """Output, and gradients, by mode, laid out as the inputs; this also compiles."""
        modes = self.peer.modes(self.problem)
        inputs = self.problem.inputs()
        *self.leaves, self.grad = map(self.peer.lay_out, inputs)
        for leaf in self.leaves:
            leaf.requires_grad_(BOTH in modes)
        likes = {FORWARD: inputs[3:], BOTH: inputs[:3]}
        with _on_threads(self.threads):
            self._prepare(self.problem)
            results = {mode: self.calls[mode]() for mode in modes}
        put_back = self.peer.put_back
        return {
            m: [put_back(x, y).cpu() for x, y in zip(results[m], likes[m], strict=True)]
            for m in modes
        }

    def first(self, mode: str) -> float:
        """Milliseconds of the first call on a copy of the graph without derived plans."""
        problem = replace(self.problem, graph=pickle.loads(pickle.dumps(self.problem.graph)))
        with _on_threads(self.threads):
            start = time.perf_counter()
            self._prepare(problem)
            self.seconds[mode] = timed(self.calls[mode], 1, problem.device)
            return 1e3 * (time.perf_counter() - start)

    def turn(self, mode: str) -> float:
        """Milliseconds of a call, or of several quick ones in a row, after as many uncounted ones.

        One call is not enough: the threads of the process before still spin, and ours wake on one
        core.
        """
        with _on_threads(self.threads):
            for _ in range(2 if self.seconds[mode] < WARM_UNDER else 1):
                count = min(100, max(1, math.ceil(BLOCK / max(self.seconds[mode], 1e-7))))
                self.seconds[mode] = timed(self.calls[mode], count, self.problem.device)
        return 1e3 * self.seconds[mode]

    def _prepare(self, problem: AttentionCall) -> None:
        forward = self.peer.prepare(problem, *self.leaves)

        def only() -> list[Tensor]:
            with torch.no_grad():
                return [forward()]

        def both() -> list[Tensor]:
            output = forward()
            return list(torch.autograd.grad(output, self.leaves, self.grad.view_as(output)))

        self.calls: dict[str, Callable[[], list[Tensor]]] = {FORWARD: only, BOTH: both}


def quartiles(values: list[float]) -> tuple[float, ...]:
    """Lower quartile, median, upper quartile, of one value or more."""
    if len(values) > 1:
        return tuple(statistics.quantiles(values, n=4, method="inclusive"))
    return (values[0],) * 3


@contextmanager
def _on_threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def timed(call: Callable[[], Any], count: int, device: str) -> float:
    """Seconds of one of ``count`` calls in a row; results are dropped at once."""
    wait = (
        partial(torch.cuda.synchronize, device)
        if torch.device(device).type == "cuda"
        else lambda: None
    )
    wait()
    start = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - start) / count


def measure(
    contenders: list[Contender],
    repeats: int = 7,
    limit: float = 20.0,
    progress: Progress = lambda message: None,
) -> list[PeerTimes]:
    """A row for each contender: its answer, the first call, then a call of each in turn.

    There are no more calls after ``limit`` seconds, and none if an answer differs from the first
    contender's.
    """
    rows = [
        PeerTimes(c.peer.name, c.threads, c.peer.ours, c.peer.reasons_against(c.problem))
        for c in contenders
    ]
    running = list(zip(contenders, rows, strict=True))
    expected: dict[str, list[Tensor]] = {}
    for contender, row in running:
        progress(f"{row}: the answer")
        if not row.refused:
            with _noting(row):
                _compare(contender, row, expected)
    for mode in MODES:
        running = [
            (contender, row)
            for contender, row in running
            if mode in row.difference and not row.refused
        ]
        for contender, row in running:
            progress(f"{row}: {mode}, the first call")
            with _noting(row):
                row.first_ms[mode] = contender.first(mode)
                row.ms[mode] = []
        for number in range(repeats):
            progress(f"{mode}, turn {number + 1} of {repeats}")
            for contender, row in running:
                if not row.refused and sum(row.ms.get(mode, [])) <= 1e3 * limit:
                    with _noting(row):
                        row.ms[mode].append(contender.turn(mode))
            running = running[1:] + running[:1]  # another begins
    return rows


@contextmanager
def _noting(row: PeerTimes) -> Iterator[None]:
    """An error is a reason to refuse the row."""
    try:
        yield
    except Exception as error:
        row.refused.append(
            f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
        )


def _compare(contender: Contender, row: PeerTimes, expected: dict[str, list[Tensor]]) -> None:
    answer = contender.answer()
    tolerance = TOLERANCE[contender.problem.dtype]
    for mode, tensors in answer.items():
        difference = max(map(_difference, tensors, expected.setdefault(mode, tensors)))
        if difference <= tolerance:
            row.difference[mode] = difference
        else:
            row.refused.append(
                f"not timed: its answer differs from ours, {mode} by {difference:.2g}, over "
                f"{tolerance:g}; not timed"
            )


def _difference(x: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest number above 1; infinite if one is not finite."""
    if x.numel() == 0:
        return 0.0
    largest = max(1.0, float(expected.abs().max()))
    difference = float((x.double() - expected.double()).abs().max()) / largest
    if math.isfinite(difference):
        return difference
    return math.inf


@dataclass(repr=False)
class PeerComparison(Printed):
    """Every peer on one graph; printing it is its purpose."""

    problem: AttentionCall
    rows: list[PeerTimes]  # the first is that of "auto"

    def fastest(self, mode: str, *names: str) -> PeerTimes | None:
        """The fastest row of these peers, by default of all other libraries."""
        rows = [
            row
            for row in self.rows
            if row.ms.get(mode) and (row.name in names if names else not row.ours)
        ]
        return min(rows, key=lambda row: row.median(mode) or 0.0, default=None)

    def ratio(self, row: PeerTimes | None, mode: str) -> float | None:
        """The time of a row over that of "auto"."""
        if row is None:
            ms = None
        else:
            ms = row.median(mode)
        auto = self.rows[0].median(mode)
        if ms and auto:
            return ms / auto
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        p = self.problem
        sizes = {"heads": p.heads, "head_dim": p.head_dim, "batch": p.batch, "dtype": str(p.dtype)}
        return {"graph": repr(p.graph), **sizes, "rows": [asdict(row) for row in self.rows]}

    def in_full(self) -> str:
        p = self.problem
        lines = [
            repr(p.graph),
            f"H={p.heads} D={p.head_dim} B={p.batch} {p.dtype}; x is how many times the time of "
            "auto; "
            "medians ± half the distance of the quartiles",
        ]
        table: list[tuple[str, ...]] = [
            ("", "x", "forward ms", "x", "fwd+bwd ms", "first ms", "difference")
        ]
        table += [self._cells(row) for row in self.rows if row.ms]
        width = [max(map(len, column)) for column in zip(*table, strict=True)]
        for name, *cells in table:
            numbers = (cell.rjust(w) for cell, w in zip(cells, width[1:], strict=True))
            lines.append(f"  {name.ljust(width[0])}  {'  '.join(numbers)}")
        for row in self.rows:
            lines += [f"  {row}: {reason}" for reason in row.refused]
        return "\n".join(lines)

    def _cells(self, row: PeerTimes) -> tuple[str, ...]:
        cells = [str(row)]
        for mode in MODES:
            ms = row.ms.get(mode, [])
            ratio = self.ratio(row, mode)
            if not ms:
                cells += ["-", "-"]
                continue
            low, median, high = quartiles(ms)
            cells += [
                f"{ratio:.3g}" if ratio else "-",
                f"{median:.3g} ±{50 * (high - low) / median:.0f}%",
            ]
        return *cells, f"{max(row.first_ms.values()):.3g}", f"{max(row.difference.values()):.0e}"


def compare(
    graph: AttentionGraph,
    *,
    peers: Iterable[str] = (),
    repeats: int = 7,
    limit: float = 20.0,
    progress: Progress = lambda message: None,
    **sizes: Any,
) -> PeerComparison:
    """Time attention on a graph beside torch's SDPA and PyG, forward and with backward, in turns.

    Args:
        graph: The graph.
        peers: Names of backends and other libraries, all by default; "auto", with which all are
            compared, always runs.
        repeats: Turns of each, whose median counts.
        limit: Seconds for the turns of each, forward and with backward.
        progress: Called with the next measurement, in words.
        sizes: ``heads``, ``head_dim``, ``batch``, ``dtype`` and ``device``, as in :class:`AttentionCall`.

    Returns:
        A row for each on torch's number of threads; on a CPU a second one of the other libraries on
        one thread, on which some are faster.

    Raises:
        OptionError: If there is no peer of a name.
    """
    peers_by_name = all_peers()
    problem = AttentionCall(graph, **sizes)
    names = {"auto", *(one_of(name, "peers", peers_by_name) for name in peers or peers_by_name)}
    number = torch.get_num_threads()
    contenders = [
        Contender(peer, problem, number) for name, peer in peers_by_name.items() if name in names
    ]
    if problem.device == "cpu" and number > 1:
        contenders += [Contender(c.peer, problem, 1) for c in contenders if not c.peer.ours]
    return PeerComparison(problem, measure(contenders, repeats, limit, progress))
