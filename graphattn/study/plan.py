"""The plan of a study: its comparisons and claims, and all that is recorded before training."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from ..bench.machine import machine
from ..errors import OptionError
from .asserts import measured
from .claims import BITS_CURVE, SCORE_CURVE, STEPS, Claim, registered
from .comparison import Comparison, Trial, check_name
from .data import LABELS, VALUES, Scores
from .laws import (
    copies,
    guess_nats,
    has_baseline,
    predicted,
    reference,
    scores,
    warnings_of,
    with_draws,
)
from .records import ANEW, FIXED, Entry, Records
from .table import Drawing, Results, Summary


@dataclass(eq=False)
class Study:
    """Comparisons with what is claimed of them.

    Args:
        name: The study's name.
        comparisons: Comparisons with different names.
        claims: Claims, predicted before training.
        baselines: Scores of your own methods on the same data, ``{"comparison": {"method": score}}``,
            in the metric of the comparison; they take the place of those that run by default.
        command: The command that runs it again.
        quick: True if it is smaller than its text says; its report then says so.
        seeds: Seeds that a study file is run with by default.
        about: Markdown at the top of the report; by default the docstring of the study file.
        summary: Paragraphs and tables that follow, made from the :class:`Report`.
        figure: The figure in place of the usual one, made from the :class:`Report`.
        looked_at: Seeds whose scores were seen before the claims were made, as budgets were set by
            them: they do not count in claims.
    """

    name: str
    comparisons: Sequence[Comparison]
    claims: Sequence[Claim] = ()
    baselines: dict[str, Scores] = field(default_factory=dict)
    command: str = ""
    quick: bool = False
    seeds: int | range = 8
    about: str = ""
    summary: Summary | None = None
    figure: Drawing | None = None
    looked_at: Sequence[int] = ()

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        names = [comparison.name for comparison in self.comparisons]
        unknown = self.baselines.keys() - {*names}
        if unknown:
            raise OptionError(
                'baselines must be {"comparison": {"method": score}}, got '
                f"{', '.join(map(repr, unknown))}; comparisons are {', '.join(map(repr, names))}"
            )

    def by_name(self) -> dict[str, Comparison]:
        """Comparisons by name."""
        result = {comparison.name: comparison for comparison in self.comparisons}
        if len(result) != len(self.comparisons):
            raise OptionError(
                f"comparisons must have different names, got {[c.name for c in self.comparisons]}"
            )
        return result

    def check_claims(self, trials: Sequence[Trial]) -> None:
        """Refuse repeated claims, and those of which the trials will have nothing to say.

        Raises:
            OptionError: If there is one.
        """
        words = [str(claim) for claim in self.claims]
        repeated = [claim for claim in words if words.count(claim) > 1]
        if repeated:
            raise OptionError(
                f"claims must differ, as each counts in the correction; got twice: {repeated[0]}"
            )
        by_name = self.by_name()
        plan = {
            "trials": [asdict(trial) for trial in trials],
            "comparisons": {name: {"arms": dict.fromkeys(by_name[name].kinds)} for name in by_name},
        }
        none: Any = SimpleNamespace(of_key={})
        results = Results(Path(), plan, none)
        for claim in self.claims:
            both = [by_name[row.comparison] for row in results.rows_of(claim)]
            metrics = [*dict.fromkeys(of.metric for of in both)]
            if len(metrics) > 1:
                raise OptionError(
                    f"claims compare scores of one metric, got {' and '.join(metrics)} in {claim}"
                )
            for comparison in both:
                if claim.group is not None and claim.group not in (comparison.data.groups or {}):
                    raise OptionError(f"claims: {comparison.name} has no group {claim.group!r}")
                if claim.of == STEPS and not _has_curve(claim, comparison.data.kind):
                    raise OptionError(
                        "claims of steps need a level of training curves: labels have no score, "
                        f"numbers no bits, and any run an accuracy of 0; got {claim}"
                    )


def _has_curve(claim: Claim, kind: str) -> bool:
    """True if training curves of a kind of targets can have the level of a claim of steps."""
    if claim.curve == SCORE_CURVE:
        return kind == VALUES or (kind != LABELS and claim.least > 0)
    return claim.curve != BITS_CURVE or kind != VALUES


def planned(
    study: Study,
    by_name: dict[str, Comparison],
    identity: dict[str, str],
    trials: list[Trial],
    seeds: range,
    records: Records,
    before: Entry | None,
    baseline: bool | None = None,
) -> Entry:
    """The record before training, with times, so that a later claim stays visible as such."""
    if before is None:
        before = {}
    of_comparisons = before.get("comparisons", {})
    computer = before.get("machine")
    if computer is None or not all(records.done(trial.key) for trial in trials):
        computer = machine("cpu")
    end = before.get("end")
    if records.reach(end):  # one that was lost stays
        end = records.end
    reworded = before.get("reworded", "")
    has_trained = any(records.done(trial.key) for trial in trials)
    if has_trained and before.get("about", study.about) != study.about:
        reworded = str(datetime.now(UTC).date())
    return {
        "study": study.name,
        "command": study.command,
        "quick": study.quick,
        "about": study.about,
        "reworded": reworded,
        "own_page": study.summary is not None or study.figure is not None,
        "identity": identity,
        "seeds": len(seeds),
        "looked_at": sorted({*seeds} & {*study.looked_at}),
        "first_seed": seeds.start,
        "registered": registered(
            study.claims,
            study.comparisons,
            seeds,
            trials,
            records,
            before.get("registered", []),
        ),
        "comparisons": {
            name: _about(study, comparison, of_comparisons.get(name, {}), seeds, baseline)
            for name, comparison in by_name.items()
        },
        "machine": computer,
        "end": end,
        "trials": [asdict(trial) for trial in trials],
    }


def _about(
    study: Study,
    comparison: Comparison,
    before: Entry,
    seeds: range,
    baseline: bool | None,
) -> Entry:
    """The record of a comparison.

    Earlier predictions and checks stay; ceilings of draws are added, and covariates that older
    plans lack.
    """
    arms = {}
    for arm in comparison.kinds:
        predictions = before.get("arms", {}).get(arm, {})
        if "colours" not in predictions:
            predictions = predicted(comparison, arm) | predictions
        arms[arm] = with_draws(comparison, arm, predictions, seeds)
    # the kind of the test set: the same for all seeds, or drawn by each
    if isinstance(comparison.data.test, Tensor):
        test = FIXED
    else:
        test = ANEW
    return {
        "arms": arms,
        "graphs": before.get("graphs", {}) | comparison.edges,
        "checks": before.get("checks") or measured(comparison),
        "warnings": warnings_of(comparison, arms),
        "reference": reference(comparison),
        "readout": comparison.readout,
        "metric": comparison.metric,
        "kind": comparison.data.kind,
        "groups": list(comparison.data.groups or {}),
        "chance": comparison.data.chance,
        "guess_nats": guess_nats(comparison.data),
        "samples": len(comparison.data),
        "held": len(comparison.data.split(0, None)[1]),
        **copies(comparison),
        "test": test,
        "nodes": comparison.data.num_nodes,
        "positions": comparison.positions,
        "budgets": [asdict(budget) for budget in comparison.budgets],
        "model": comparison.model.described(comparison.data),
        "training": asdict(comparison.training),
        "draws": comparison.draws,
        "baselines": study.baselines.get(comparison.name, {}),
        "plain": _plain(study, comparison, before.get("plain", {}), seeds, baseline),
    }


def _plain(
    study: Study,
    comparison: Comparison,
    before: dict[str, Scores],
    seeds: range,
    baseline: bool | None,
) -> dict[str, Scores]:
    """Scores of plain methods by seed, of a study that has none of its own or asks for them."""
    if baseline is None and study.baselines.get(comparison.name):
        return {}
    if not has_baseline(comparison, baseline):
        return {}
    names = {str(seed) for seed in seeds}
    if before and all(names <= of_method.keys() for of_method in before.values()):
        return before
    return scores(comparison, seeds)
