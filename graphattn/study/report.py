"""What a study says: predictions, and beside them what was measured."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..arguments import shown
from ..errors import OptionError
from ..interop.files._replace import save_page, save_picture
from .claims import Claim, Verdict, judged
from .records import Records, read_plan
from .statistics import Interval, interval

_GROUP = ("comparison", "arm", "positions", "examples", "budget", "steps")
SIGMAS = 4.0  # of a binomial, within which a score is at its ceiling


@dataclass(frozen=True)
class Row:
    """An arm at one budget.

    Args:
        comparison: Its name.
        arm: Its name.
        positions: Of the model.
        examples: Trained on; None for all.
        budget: Its number among the budgets of the comparison.
        steps: Batches.
        prediction: What was said before training.
        scores: Of each seed; of rewirings the mean of the draws.
        answers: That each seed was asked.
        capped: Trials that had not reached their loss when steps were over.
        failed: Trials without a number.
    """

    comparison: str
    arm: str
    positions: str
    examples: int | None
    budget: int
    steps: int
    prediction: dict[str, Any]
    scores: dict[int, float]
    answers: int
    capped: int
    failed: int

    @property
    def interval(self) -> Interval | None:
        """Mean of the seeds."""
        return interval(list(self.scores.values())) if self.scores else None

    @property
    def holds(self) -> bool | None:
        """Whether no seed is above the ceiling by more than 4 standard deviations; None without one."""
        ceiling = self.prediction["ceiling"]
        if ceiling is None or not self.scores:
            return None
        return max(self.scores.values()) <= ceiling + SIGMAS * math.sqrt(ceiling * (1 - ceiling) / self.answers)


@dataclass(frozen=True, eq=False)
class Report:
    """A study on disk.

    Args:
        folder: Where it is.
        plan: What was written before training.
        records: Of all trials, by key.
    """

    folder: Path
    plan: dict[str, Any]
    records: Records

    @cached_property
    def rows(self) -> list[Row]:
        """Every arm at every budget, in the order of the plan."""
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for trial in self.plan["trials"]:
            groups.setdefault(tuple(trial[name] for name in _GROUP), []).append(trial)
        return [self._row(group, trials) for group, trials in groups.items()]

    def _row(self, group: tuple[Any, ...], trials: list[Any]) -> Row:
        comparison, arm, *_ = group
        found = [(t["seed"], self.records.of_key[t["key"]]) for t in trials if t["key"] in self.records.of_key]
        good = [(seed, one) for seed, one in found if one["state"] != "failed"]
        about = self.plan["comparisons"][comparison]
        by_seed: dict[int, list[float]] = {}
        for seed, one in good:
            by_seed.setdefault(seed, []).append(one[about["metric"]])
        draws = sum(t["seed"] == trials[0]["seed"] for t in trials)
        scores = {seed: sum(x) / len(x) for seed, x in by_seed.items() if len(x) == draws}
        counts = {state: sum(one["state"] == state for _, one in found) for state in ("capped", "failed")}
        answers = good[0][1]["answers"] if good else 0
        given: dict[str, Any] = dict(zip(_GROUP, group, strict=True))
        return Row(**given, prediction=about["arms"][arm], scores=scores, answers=answers, **counts)

    def records_of(self, row: Row) -> list[dict[str, Any]]:
        """The trials of a row that have a number."""
        trials = [t for t in self.plan["trials"] if all(t[name] == getattr(row, name) for name in _GROUP)]
        found = [self.records.of_key[t["key"]] for t in trials if t["key"] in self.records.of_key]
        return [one for one in found if one["state"] != "failed"]

    def row(
        self,
        arm: str,
        comparison: str | None = None,
        positions: str | None = None,
        examples: Any = ...,
        budget: int | None = None,
    ) -> Row:
        """The row of an arm; the first positions and the last budget where none is named."""
        rows = [r for r in self.rows if r.arm == arm and comparison in (None, r.comparison)]
        rows = [r for r in rows if budget in (None, r.budget)]
        rows = [r for r in rows if positions in (None, r.positions) and examples in (..., r.examples)]
        if not rows:
            known = ", ".join(dict.fromkeys(r.arm for r in self.rows))
            raise OptionError(f"no results of {arm!r} in {self.folder}; there are {known}")
        return [r for r in rows if r.positions == rows[0].positions][-1]

    def differences(self, one: Row, other: Row) -> list[float]:
        """Paired by seed; positive where ``one`` is better."""
        sign = -1.0 if self.plan["comparisons"][one.comparison]["metric"] == "bits" else 1.0
        shared = sorted(one.scores.keys() & other.scores.keys())
        return [sign * (one.scores[seed] - other.scores[seed]) for seed in shared]

    @cached_property
    def claims(self) -> list[Claim]:
        """As registered last."""
        return [Claim(**claim) for claim in self.plan["registered"][-1]["claims"]]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """What became of each claim."""
        return judged(self.claims, [self._pairs(claim) for claim in self.claims])

    def _pairs(self, claim: Claim) -> list[float]:
        where: dict[str, Any] = {"comparison": claim.comparison, "budget": claim.budget}
        where |= {"examples": claim.examples} if claim.examples is not None else {}
        better = self.row(claim.better, positions=claim.positions, **where)
        return self.differences(
            better, self.row(claim.worse, positions=claim.worse_positions or better.positions, **where)
        )

    @property
    def broken(self) -> list[Row]:
        """Arms above their ceiling: a law that does not hold, or a fault of this library."""
        return [row for row in self.rows if row.holds is False]

    @property
    def counts(self) -> dict[str, int]:
        """Trials planned, with a number, capped, failed."""
        of_key = self.records.of_key
        found = [of_key[t["key"]] for t in self.plan["trials"] if t["key"] in of_key]
        failed, capped = (sum(one["state"] == state for one in found) for state in ("failed", "capped"))
        return {"planned": len(self.plan["trials"]), "done": len(found) - failed, "capped": capped, "failed": failed}

    @property
    def failures(self) -> Iterator[str]:
        """What went wrong, one line each."""
        for one in self.records.of_key.values():
            if one["state"] == "failed":
                yield f"{one['comparison']}, {one['arm']}, seed {one['seed']}: {one['error']}"

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain values."""
        rows = []
        for row in self.rows:
            names = (*_GROUP, "capped", "failed", "answers", "holds")
            found = row.interval
            told = {} if found is None else {k: v if v == v else None for k, v in vars(found).items()}
            rows.append({**{name: getattr(row, name) for name in names}, **told, "scores": row.scores})
        plan = {k: v for k, v in self.plan.items() if k not in ("trials", "identity")}
        cpu = sum(one.get("cpu_s", 0.0) for one in self.records.of_key.values())
        verdicts = [{k: _plain(v) for k, v in verdict.to_dict().items()} for verdict in self.verdicts]
        return {**plan, "counts": self.counts, "cpu_hours": round(cpu / 3600, 4), "rows": rows, "verdicts": verdicts}

    def __str__(self) -> str:
        from .markdown import page

        return page(self)

    def save(self) -> None:
        """Write ``report.md``, ``report.json``, ``figure.pdf`` and ``figure.svg`` into the folder."""
        from .picture import draw

        save_page(self.folder / "report.md", f"{self}\n")
        save_page(self.folder / "report.json", json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")
        if any(row.scores for row in self.rows):
            for ending in ("pdf", "svg"):
                save_picture(self.folder / f"figure.{ending}", draw(self))


def _plain(value: Any) -> Any:
    """Without NaN, which JSON lacks."""
    return {k: None if v != v else v for k, v in value.items()} if isinstance(value, dict) else value


def report(folder: Any) -> Report:
    """Read a study from its folder, write its page, numbers and figure there, and return it.

    Raises:
        OptionError: If there is no study.
    """
    if not isinstance(folder, str | Path):
        raise OptionError(f"folder must be that of a study, got {shown(folder)}")
    plan = read_plan(Path(folder))
    if plan is None:
        raise OptionError(f"{folder} holds no study; graphattn study NAME --out {folder} makes one")
    found = Report(Path(folder), plan, Records(Path(folder)))
    found.save()
    return found
