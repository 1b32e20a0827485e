"""Claims: the order of arms that is predicted before training, and when each was made."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from ..arguments import one_of, real
from ..errors import OptionError
from .comparison import Comparison, Trial
from .records import Entry, Records

SCORE, FITTING, SOLVING, STEPS = "score", "fitting", "solving", "steps"
"""Quantities that a claim compares: the score of typical runs, the share of runs that fit or that
solve, or the steps until a training curve has a level.
"""
FITS_AT = 0.95
"""Score from which a run counts as fitted (on its training examples), and as solved (held out):
accuracy; AP of labels, R2 of values.
"""
SCORE_CURVE, LOSS_CURVE, BITS_CURVE = "score", "loss", "bits"
"""What a training curve is of: accuracy (R2 of values); loss in nats (of values squared error in
deviations); or that loss in bits.
"""

ON_OTHERS = "claimed of other seeds before"


@dataclass(frozen=True)
class Claim:
    """``better`` scores higher by more than ``margin``, or, with ``equal``, differs by no more.

    A claim about scores is one about typical runs: about all, or, where runs fall into two groups
    as some collapse, about those that do not. Of means, no test on a few seeds could hold: that one
    run in ten collapses is not seen in 35 % of studies of ten seeds.

    Args:
        better: An arm or a control, by name.
        worse: Another one.
        positions: Positions of both arms; the first of the comparison by default.
        examples: Training-set size of both arms; that of the last budget by default.
        comparison: Name of the comparison, if a study has several.
        margin: Margin in the units of the score.
        equal: True if the claim is that the interval of the difference lies within the margin.
        because: The reason.
        budget: Number of the budget of both arms in the comparison; the last one by default.
        worse_positions: Positions of ``worse``, if they differ.
        of: "score"; or "fitting" or "solving", the share of runs that name .95 of their training
            examples, or of what was held out, rightly, by an exact test; or "steps": ``better``
            takes fewer batches until its training has a level. Runs that never have it count, as
            slower than all that do.
        worse_comparison: Comparison of ``worse``, if it is another one, of the same metric: two
            depths, models or lengths, paired by seed.
        group: Part of the test that the scores are of, by its name in ``Data(groups=)``.
        level: Level of a claim of steps: a score at least, a loss or bits at most; of a score that
            of a fit, .95, by default.
        beyond: Another comparison, in which the same difference is smaller: an interaction. A virtual
            node replaces depth if it gains more with 1 layer than with 3; ``margin`` is of the
            difference of the two differences.
        law: The number of each arm by which a law orders them, by name; more is better. Arms that
            it orders wrongly are said.
        curve: What the level is of: "score", the accuracy of training batches (R2 of values);
            "loss", in nats (of values the squared error in deviations); or "bits".
    """

    better: str
    worse: str
    positions: str | None = None
    examples: int | None = None
    comparison: str | None = None
    margin: float = 0.0
    equal: bool = False
    because: str = ""
    budget: int | None = None
    worse_positions: str | None = None
    of: str = SCORE
    worse_comparison: str | None = None
    group: str | None = None
    level: float | None = None
    curve: str = SCORE_CURVE
    law: dict[str, float] | None = None
    beyond: str | None = None

    def __post_init__(self) -> None:
        one_of(self.of, "of", (SCORE, FITTING, SOLVING, STEPS))
        one_of(self.curve, "curve", (SCORE_CURVE, LOSS_CURVE, BITS_CURVE))
        real(self.margin, "margin")
        if self.equal and self.margin < 0:
            raise OptionError(
                f"margin must be at least 0 where two are claimed to be equal, got {self.margin}"
            )
        if self.of != SCORE and (self.equal or self.margin or self.group):
            raise OptionError(f"of={self.of!r} takes no margin, equal or group; leave them out")
        if self.of != STEPS and (self.level is not None or self.curve != SCORE_CURVE):
            raise OptionError(f"level and curve are of a claim of steps; give of={STEPS!r}")
        if self.curve == SCORE_CURVE and self.level is not None and self.level > 1:
            raise OptionError(
                f"level must be a score of 1 at most, got {self.level:g}; or give curve='loss'"
            )
        if self.curve != SCORE_CURVE and not (self.level is not None and self.level > 0):
            raise OptionError(
                f"level must be a number > 0 where curve is {self.curve!r}, got {self.level}"
            )
        if self.beyond is not None and (
            self.of != SCORE
            or self.comparison in (None, self.beyond)
            or (self.worse_comparison, self.worse_positions) != (None, None)
        ):
            raise OptionError(
                "beyond is of a claim on scores that names its own comparison, and no place of "
                f"worse; got beyond={self.beyond!r}, of={self.of!r}, comparison={self.comparison!r}"
            )
        one_place = self.worse_comparison in (None, self.comparison)
        one_place = one_place and self.worse_positions in (None, self.positions)
        if self.better == self.worse and one_place:
            raise OptionError(
                f"better and worse must be two, got {self.better!r} twice; or give worse_positions "
                "or worse_comparison"
            )

    @property
    def least(self) -> float:
        """The level of a claim of steps."""
        if self.level is None:
            return FITS_AT
        return self.level

    def _steps(self) -> str:
        """A claim of steps in words, without where it is made."""
        if self.level is None:
            does = "fits"
        elif self.curve == SCORE_CURVE:
            does = f"has a score of {self.level:g}"
        elif self.curve == BITS_CURVE:
            does = f"has {self.level:g} bits"
        else:
            does = f"has a loss of {self.level:g}"
        return f"{self.better} {does} in fewer steps than {self.worse}"

    def _words(self) -> str:
        """The claim in words, without where it is made."""
        if self.of == STEPS:
            return self._steps()
        if self.of != SCORE:
            return f"{self.better} > {self.worse} in {self.of}"
        if self.equal:
            return f"{self.better} = {self.worse} within {self.margin:g}"
        within = f" by more than {self.margin:g}" * (self.margin != 0)
        return f"{self.better} > {self.worse}{within}"

    def __str__(self) -> str:
        where = []
        if self.comparison and self.worse_comparison:
            where.append(f"{self.comparison}, against {self.worse_comparison}")
        elif self.beyond:
            where.append(f"{self.comparison}, beyond {self.beyond}")
        elif self.comparison:
            where.append(self.comparison)
        if self.group:
            where.append(f"group {self.group}")
        if self.positions and self.worse_positions:
            against = f"those of {self.worse} {self.worse_positions}"
            where.append(f"positions {self.positions}, {against}")
        elif self.positions:
            where.append(f"positions {self.positions}")
        if self.examples:
            where.append(f"{self.examples:,} examples")
        if self.budget is not None:
            where.append(f"budget {self.budget}")
        if where:
            return f"{self._words()} ({'; '.join(where)})"
        return self._words()


def registered(
    claims: Sequence[Claim],
    comparisons: Sequence[Comparison],
    seeds: range,
    trials: list[Trial],
    records: Records,
    before: list[Entry],
) -> list[Entry]:
    """The entries before, and a new one unless the last one holds still.

    An entry has the claims, the seeds, and what is ``spent``: positions and budgets. ``late`` are
    claims made when both arms had been measured with these seeds; ``withdrawn``, those dropped
    then, which still count in the correction; ``looked``, what else was changed then, by claim.
    """
    spent = {
        comparison.name: {
            "positions": [*comparison.positions],
            "budgets": [*map(asdict, comparison.budgets)],
        }
        for comparison in comparisons
    }
    for entry in before[-1:]:
        unchanged = _seeds_of(entry, seeds) == seeds and entry.get("spent", spent) == spent
        if unchanged and _claims_of(entry) == [*claims]:
            return before
    default = comparisons[0].name
    # what was done with none of these seeds is no look at them
    history = [entry for entry in before if {*_seeds_of(entry, seeds)} & {*seeds}]
    others = {str(claim) for entry in before if entry not in history for claim in _claims_of(entry)}
    last: Entry = {}
    if history:
        last = history[-1]
    early = {str(claim) for entry in history for claim in _claims_of(entry)}
    early -= {claim for entry in history for claim in entry.get("late", [])}
    measured = _measured_arms(trials, records, seeds)
    dropped = [claim for claim in _claims_of(last) if _arms(claim, default) <= measured]
    late = []
    looked = {claim: [*remarks] for claim, remarks in last.get("looked", {}).items()}
    for claim in claims:
        words = str(claim)
        remarks = []
        if words in others:
            remarks.append(ON_OTHERS)
        if _arms(claim, default) <= measured:
            if words not in early:
                late.append(words)
                continue
            remarks += _changes(last, claim.comparison or default, seeds, spent)
        if remarks:
            looked[words] = [*dict.fromkeys([*looked.get(words, []), *remarks])]
    withdrawn = [*last.get("withdrawn", [])]
    withdrawn += [str(claim) for claim in dropped if str(claim) in early]
    claimed = {str(claim) for claim in claims}
    entry = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "trials_on_disk": len(records.of_key),
        "seeds": len(seeds),
        "first_seed": seeds.start,
        "spent": spent,
        "claims": [asdict(claim) for claim in claims],
        "late": late,
        "withdrawn": [claim for claim in dict.fromkeys(withdrawn) if claim not in claimed],
        "looked": looked,
    }
    return [*before, entry]


def _seeds_of(entry: Entry, default: range) -> range:
    """The seeds of an entry; older ones do not name them."""
    if "seeds" not in entry:
        return default
    first = entry.get("first_seed", 0)
    return range(first, first + entry["seeds"])


def _claims_of(entry: Entry) -> list[Claim]:
    return [Claim(**claim) for claim in entry.get("claims", [])]


def _measured_arms(trials: list[Trial], records: Records, seeds: range) -> set[tuple[str, str]]:
    """Comparison and arm of every trial of these seeds that has a number."""
    measured = {
        (record["comparison"], record["arm"])
        for record in records.of_key.values()
        if record["state"] != "failed" and record["seed"] in seeds
    }
    # the same trial may be on disk under another name of its arm
    return measured | {(trial.comparison, trial.arm) for trial in trials if records.done(trial.key)}


def _arms(claim: Claim, default: str) -> set[tuple[str, str]]:
    """Comparison and arm of all sides of a claim."""
    comparison = claim.comparison or default
    arms = {(comparison, claim.better), (claim.worse_comparison or comparison, claim.worse)}
    if claim.beyond is None:
        return arms
    return arms | {(claim.beyond, claim.better), (claim.beyond, claim.worse)}


def _changes(last: Entry, comparison: str, seeds: range, spent: Entry) -> list[str]:
    """Changes of a comparison since the last entry, in words."""
    changes = []
    before = {*_seeds_of(last, seeds)}
    if before < {*seeds}:
        changes.append("seeds extended after looking")
    elif before != {*seeds}:
        changes.append("seeds reduced after looking")
    if last.get("spent", spent).get(comparison, spent[comparison]) != spent[comparison]:
        changes.append("positions or budgets changed after looking")
    return changes
