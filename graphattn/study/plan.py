"""The plan of a study: its comparisons and claims, and all that is written down before anything is
trained.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from ..arguments import several, shown
from ..bench.machine import machine
from ..errors import OptionError
from .checks import check
from .claims import Claim
from .comparison import Comparison, Trial, check_name
from .page import Block
from .predictions import guess_nats, predicted, reference, warnings_of, with_draws
from .records import Records


@dataclass(eq=False)
class Study:
    """Comparisons with what is claimed of them.

    Args:
        name: Of the study.
        comparisons: Each with a name of its own.
        claims: Predicted before training.
        baselines: Of plain methods on the same data, by comparison and name: their scores.
        command: What runs it again.
        quick: True if it is smaller than its text says; its report then says so.
        seeds: Seeds that a study file is run with by default.
        about: Markdown at the top of the report; by default the docstring of the study file.
        summary: Paragraphs and tables that follow, made from the :class:`Report`.
        figure: The figure in place of the usual one, made from the :class:`Report`.
        on_trial: Called with the record of each trial, a dict, once it is on disk, in the process
            of the caller: so any tracker is attached. An error in it is a warning, and the study
            goes on.
    """

    name: str
    comparisons: Sequence[Comparison]
    claims: Sequence[Claim] = ()
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    command: str = ""
    quick: bool = False
    seeds: int = 5
    about: str = ""
    summary: Callable[[Any], list[Block]] | None = None
    figure: Callable[[Any], Any] | None = None
    on_trial: Callable[[dict[str, Any]], object] | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        self.claims = several(self.claims, "claims", "must be a list of study.Claim(...)")
        for claim in self.claims:
            if not isinstance(claim, Claim):
                raise OptionError(f"claims must be a list of study.Claim(...), got {shown(claim)}")

    def named(self) -> dict[str, Comparison]:
        """Comparisons by name."""
        result = {comparison.name: comparison for comparison in self.comparisons}
        if len(result) != len(self.comparisons):
            raise OptionError(
                "comparisons must have names of their own, got "
                f"{[c.name for c in self.comparisons]}"
            )
        return result

    def check_claims(self) -> None:
        """Refuse claims about arms, positions, examples or budgets that no trial will have, and
        claims made twice.

        Raises:
            OptionError: If there is one.
        """
        named = self.named()
        words = [str(claim) for claim in self.claims]
        twice = [claim for claim in words if words.count(claim) > 1]
        if twice:
            raise OptionError(
                f"claims must differ, as each counts in the correction; got twice: {twice[0]}"
            )
        for claim in self.claims:
            if claim.comparison is None and len(named) > 1:
                raise OptionError(f"claims must name a comparison, of {', '.join(named)}")
            if claim.comparison not in (None, *named):
                raise OptionError(
                    f"claims: no comparison {claim.comparison!r}; there are {', '.join(named)}"
                )
            about = named[claim.comparison or self.comparisons[0].name]
            for name, asked, known in (
                ("arm", claim.better, about.kinds),
                ("arm", claim.worse, about.kinds),
                ("positions", claim.positions, about.positions),
                ("worse_positions", claim.worse_positions, about.positions),
                ("examples", claim.examples, [budget.examples for budget in about.budgets]),
                ("budget", claim.budget, range(len(about.budgets))),
            ):
                if asked is not None and asked not in known:
                    raise OptionError(
                        f"claims: no {name} {asked!r}, of {claim}; there are {list(known)}"
                    )


def planned(
    study: Study,
    named: dict[str, Comparison],
    identity: dict[str, str],
    trials: list[Trial],
    seeds: range,
    records: Records,
    before: dict[str, Any] | None,
) -> dict[str, Any]:
    """All that is said before training, and when it was said: what is claimed later stays visible
    as such.
    """
    if before:
        known = before["comparisons"]
        end = before.get("end")
    else:
        known = {}
        end = None
    return {
        "study": study.name,
        "command": study.command,
        "quick": study.quick,
        "about": study.about,
        "own_page": study.summary is not None or study.figure is not None,
        "identity": identity,
        "seeds": len(seeds),
        "first_seed": seeds.start,
        "registered": _registered(
            study, len(seeds), trials, records, before["registered"] if before else []
        ),
        "comparisons": {
            name: _about(study, one, known.get(name, {}), seeds) for name, one in named.items()
        },
        "machine": before["machine"]
        if before and all(records.done(t.key) for t in trials)
        else machine("cpu"),
        "end": records.end if records.reach(end) else end,  # one that was lost stays
        "trials": [asdict(trial) for trial in trials],
    }


def _about(
    study: Study, comparison: Comparison, known: dict[str, Any], seeds: range
) -> dict[str, Any]:
    """What is said of a comparison; predictions and checks that are known already are not made
    again, but for the ceilings of draws, and covariates that plans did not have."""
    arms = {arm: known.get("arms", {}).get(arm, {}) for arm in comparison.kinds}
    arms = {
        a: told if "mean_resistance" in told else predicted(comparison, a) | told
        for a, told in arms.items()
    }
    arms = {arm: with_draws(comparison, told, seeds) for arm, told in arms.items()}
    return {
        "arms": arms,
        "graphs": known.get("graphs", {}) | comparison.edges,
        "checks": known.get("checks") or check(comparison),
        "warnings": warnings_of(comparison, arms),
        "reference": reference(comparison),
        "readout": comparison.readout,
        "metric": comparison.metric,
        "chance": comparison.data.chance,
        "guess_nats": guess_nats(comparison.data),
        "samples": len(comparison.data),
        "held": len(comparison.data.split(0, None)[1]),
        "nodes": comparison.data.num_nodes,
        "positions": comparison.positions,
        "budgets": [asdict(budget) for budget in comparison.budgets],
        "model": comparison.model.described(comparison.data),
        "training": asdict(comparison.training),
        "costs": comparison.costs,
        "draws": comparison.draws,
        "baselines": study.baselines.get(comparison.name, {}),
    }


def _registered(
    study: Study, seeds: int, trials: list[Trial], records: Records, before: list[Any]
) -> list[dict[str, Any]]:
    """What is claimed, of how many seeds, positions and budgets, and since when.

    ``late`` are claims made when both arms had been measured; ``withdrawn``, those dropped then,
    which still count in the correction; ``looked``, what else was changed then, by claim.
    """
    was = [[Claim(**claim) for claim in one["claims"]] for one in before]
    spent = {
        one.name: {"positions": [*one.positions], "budgets": [*map(asdict, one.budgets)]}
        for one in study.comparisons
    }
    if before:
        last = before[-1]
    else:
        last = {}
    if before and (was[-1], last.get("seeds", seeds), last.get("spent", spent)) == (
        [*study.claims],
        seeds,
        spent,
    ):
        return before
    known = {str(claim) for claims in was for claim in claims}
    known -= {claim for one in before for claim in one.get("late", [])}
    measured = {
        (one["comparison"], one["arm"])
        for one in records.of_key.values()
        if one["state"] != "failed"
    }
    # by another name
    measured |= {(trial.comparison, trial.arm) for trial in trials if records.done(trial.key)}

    def compared_in(claim: Claim) -> str:
        return claim.comparison or study.comparisons[0].name

    def is_measured(claim: Claim) -> bool:
        return {(compared_in(claim), arm) for arm in (claim.better, claim.worse)} <= measured

    dropped = [
        str(claim)
        for claim in (was[-1] if was else [])
        if str(claim) in known and is_measured(claim)
    ]
    claimed = {str(claim) for claim in study.claims}
    withdrawn = [
        claim
        for claim in dict.fromkeys([*last.get("withdrawn", []), *dropped])
        if claim not in claimed
    ]
    late = []
    looked = {claim: [*remarks] for claim, remarks in last.get("looked", {}).items()}
    for claim in filter(is_measured, study.claims):
        name = compared_in(claim)
        if str(claim) not in known:
            late.append(str(claim))
            continue
        was_seeds = last.get("seeds", seeds)
        was_spent = last.get("spent", spent).get(name, spent[name])
        told = {
            f"seeds {'extended' if seeds > was_seeds else 'reduced'} after looking": was_seeds
            != seeds,
            "positions or budgets changed after looking": was_spent != spent[name],
        }
        if remarks := [text for text, holds in told.items() if holds]:
            looked[str(claim)] = [*dict.fromkeys([*looked.get(str(claim), []), *remarks])]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    claims = [asdict(claim) for claim in study.claims]
    told = {"at": now, "trials_on_disk": len(records.of_key), "seeds": seeds, "spent": spent}
    return [
        *before,
        {**told, "claims": claims, "late": late, "withdrawn": withdrawn, "looked": looked},
    ]
