"""What was measured, as numbers: a row for each peer, a case for each graph."""

from dataclasses import dataclass, field
from typing import Any

from .clock import quartiles
from .problem import BOTH, FORWARD, MODES

TARGET = 1.3  # the choice should cost at most this many times the best backend's time


def threads(number: int) -> str:
    """ "1 thread", "2 threads"."""
    return f"{number} thread{'s' * (number != 1)}"


@dataclass
class Row:
    """One peer on one graph; times in ms."""

    name: str
    about: str
    ours: bool
    refused: list[str] = field(default_factory=list)  # why there is no time at all
    notes: list[str] = field(default_factory=list)  # why something is missing
    times_ms: dict[str, list[float]] = field(default_factory=dict)  # by mode, one for each turn
    plan_ms: dict[str, float] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    difference: dict[str, float] = field(default_factory=dict)  # from the answer of "auto"
    threads: dict[str, int] = field(default_factory=dict)  # by mode, where several numbers were tried: the best
    at_ms: dict[int, dict[str, float]] = field(default_factory=dict)  # by number of threads and mode, what was measured

    def ms(self, mode: str) -> float | None:
        """The median time, if there is one."""
        return quartiles(self.times_ms[mode])[1] if self.times_ms.get(mode) else None

    def faster_of(self, other: "Row", own_threads: int, other_threads: int) -> "Row":
        """The same peer measured on two numbers of threads: each mode at its best, and a note that says so."""
        if self.refused or other.refused:
            return other if self.refused else self
        notes = list(dict.fromkeys(self.notes + other.notes))
        best = Row(self.name, self.about, self.ours, notes=notes, at_ms=self.at_ms | other.at_ms)
        for mode in MODES:
            sides = [(row.ms(mode), n, row) for row, n in ((self, own_threads), (other, other_threads))]
            timed = sorted([(ms, n, row) for ms, n, row in sides if ms is not None], key=lambda side: side[0])
            if not timed:
                continue
            _, best.threads[mode], row = timed[0]
            for kept in ("times_ms", "plan_ms", "peak_bytes", "difference"):
                if mode in getattr(row, kept):
                    getattr(best, kept)[mode] = getattr(row, kept)[mode]
            if len(timed) == 2:
                (fast, n, _), (slow, m, _) = timed
                best.notes.append(f"{mode}: on {threads(n)}, {fast:.3g} ms; on {threads(m)} {slow:.3g} ms")
        return best

    @property
    def last(self) -> str | None:
        """The fuller mode of those that were measured."""
        return next((mode for mode in reversed(MODES) if self.times_ms.get(mode)), None)


@dataclass
class Case:
    """One graph, and everyone on it."""

    name: str
    graph: str  # its repr
    sizes: dict[str, Any]
    edges: int  # of the whole batch
    floor_ms: dict[str, float]
    tolerance: float
    rows: list[Row]
    chosen: str | None
    estimated_ms: dict[str, float]  # by backend, what explain says
    made_s: float = 0.0  # what building the graph took
    interrupted: bool = False

    def row(self, name: str) -> Row | None:
        """The row of a peer, if it took part."""
        return next((row for row in self.rows if row.name == name), None)

    def ratio(self, row: Row, mode: str) -> float | None:
        """How many times our time ("auto") a peer takes."""
        auto_ms, row_ms = self._auto_ms(mode), row.ms(mode)
        return None if auto_ms is None or row_ms is None else row_ms / auto_ms

    def _auto_ms(self, mode: str) -> float | None:
        auto = self.row("auto")
        return None if auto is None else auto.ms(mode)

    def best_other(self, mode: str) -> Row | None:
        """The fastest of the others: what a user's best alternative takes."""
        others = [row for row in self.rows if not row.ours and row.ms(mode) is not None]
        return min(others, key=lambda row: row.ms(mode) or 0.0, default=None)

    def choice(self, mode: str) -> dict[str, Any] | None:
        """Whether "auto" chose well: its time over that of the best backend that was measured."""
        own = [row for row in self.rows if row.ours and row.name != "auto" and row.ms(mode) is not None]
        auto_ms = self._auto_ms(mode)
        if not own or auto_ms is None:
            return None
        best = min(own, key=lambda row: row.ms(mode) or 0.0)
        ratio = auto_ms / (best.ms(mode) or auto_ms)
        return {"chosen": self.chosen, "best": best.name, "auto_over_best": ratio, "within_target": ratio <= TARGET}

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return {
            "name": self.name,
            "graph": self.graph,
            **self.sizes,
            "edges": self.edges,
            "made_s": self.made_s,
            "interrupted": self.interrupted,
            "floor_ms": self.floor_ms,
            "tolerance": self.tolerance,
            "estimated_ms": self.estimated_ms,
            "choice": {mode: self.choice(mode) for mode in MODES},
            "best_other": {mode: other.name if (other := self.best_other(mode)) else None for mode in MODES},
            "rows": [self._row(row) for row in self.rows],
        }

    def _row(self, row: Row) -> dict[str, Any]:
        modes = {}
        for mode in (mode for mode in (FORWARD, BOTH) if row.times_ms.get(mode)):
            low, middle, high = quartiles(row.times_ms[mode])
            modes[mode] = {
                "ratio_to_auto": self.ratio(row, mode),
                "median_ms": middle,
                "quartiles_ms": [low, high],
                "times_ms": row.times_ms[mode],
                "plan_ms": row.plan_ms.get(mode),
                "peak_bytes": row.peak_bytes.get(mode),
                "difference": row.difference.get(mode),
                "threads": row.threads.get(mode),
                "edges_per_ms": self.edges / middle,
                "times_floor": middle / self.floor_ms[mode] if self.floor_ms[mode] else None,
            }
        head = {"peer": row.name, "about": row.about, "ours": row.ours, "refused": row.refused, "notes": row.notes}
        return {**head, "at_ms": row.at_ms, "modes": modes}
