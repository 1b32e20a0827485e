"""What was measured, as numbers: a row for each peer, a case for each graph."""

from dataclasses import dataclass, field
from typing import Any

from .clock import quartiles
from .problem import BOTH, FORWARD, MODES

TARGET = 1.3  # the choice should cost at most this many times the best backend's time


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

    def ms(self, mode: str) -> float | None:
        """The median time, if there is one."""
        return quartiles(self.times_ms[mode])[1] if self.times_ms.get(mode) else None

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
            "floor_ms": self.floor_ms,
            "tolerance": self.tolerance,
            "estimated_ms": self.estimated_ms,
            "choice": {mode: self.choice(mode) for mode in MODES},
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
                "edges_per_ms": self.edges / middle,
                "times_floor": middle / self.floor_ms[mode] if self.floor_ms[mode] else None,
            }
        head = {"peer": row.name, "about": row.about, "ours": row.ours, "refused": row.refused, "notes": row.notes}
        return {**head, "modes": modes}
