"""The registration of claims: when each was made, and what changed after its arms were measured."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from ..comparison import Comparison, Trial
from ..runs.records import Records
from .claims import Claim

Entry = dict[str, Any]


def registered(
    claims: Sequence[Claim],
    comparisons: Sequence[Comparison],
    seeds: int,
    trials: list[Trial],
    records: Records,
    before: list[Entry],
) -> list[Entry]:
    """The entries before, and a new one unless the last one holds still.

    An entry has the claims, the number of seeds, and what is ``spent``: positions and budgets.
    ``late`` are claims made when both arms had been measured; ``withdrawn``, those dropped then,
    which still count in the correction; ``looked``, what else was changed then, by claim.
    """
    spent = {
        comparison.name: {
            "positions": [*comparison.positions],
            "budgets": [*map(asdict, comparison.budgets)],
        }
        for comparison in comparisons
    }
    last: Entry = {}
    if before:
        last = before[-1]
        unchanged = last.get("seeds", seeds) == seeds and last.get("spent", spent) == spent
        if unchanged and _claims_of(last) == [*claims]:
            return before
    early = _made_before_looking(before)
    measured = _measured_arms(trials, records)
    default = comparisons[0].name
    looked_at = [claim for claim in claims if _arms(claim, default) <= measured]
    dropped = [claim for claim in _claims_of(last) if _arms(claim, default) <= measured]
    late = []
    looked = {claim: [*remarks] for claim, remarks in last.get("looked", {}).items()}
    for claim in looked_at:
        words = str(claim)
        if words not in early:
            late.append(words)
            continue
        remarks = _changes(last, claim.comparison or default, seeds, spent)
        if remarks:
            looked[words] = [*dict.fromkeys([*looked.get(words, []), *remarks])]
    withdrawn = [*last.get("withdrawn", [])]
    withdrawn += [str(claim) for claim in dropped if str(claim) in early]
    claimed = {str(claim) for claim in claims}
    entry = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "trials_on_disk": len(records.of_key),
        "seeds": seeds,
        "spent": spent,
        "claims": [asdict(claim) for claim in claims],
        "late": late,
        "withdrawn": [claim for claim in dict.fromkeys(withdrawn) if claim not in claimed],
        "looked": looked,
    }
    return [*before, entry]


def _claims_of(entry: Entry) -> list[Claim]:
    return [Claim(**claim) for claim in entry.get("claims", [])]


def _made_before_looking(entries: list[Entry]) -> set[str]:
    """The claims of all entries, in words, except those that were late in any."""
    early = {str(claim) for entry in entries for claim in _claims_of(entry)}
    return early - {claim for entry in entries for claim in entry.get("late", [])}


def _measured_arms(trials: list[Trial], records: Records) -> set[tuple[str, str]]:
    """Comparison and arm of every trial that has a number."""
    measured = {
        (record["comparison"], record["arm"])
        for record in records.of_key.values()
        if record["state"] != "failed"
    }
    # the same trial may be on disk under another name of its arm
    return measured | {(trial.comparison, trial.arm) for trial in trials if records.done(trial.key)}


def _arms(claim: Claim, default: str) -> set[tuple[str, str]]:
    """Comparison and arm of both sides of a claim."""
    comparison = claim.comparison or default
    return {(comparison, claim.better), (claim.worse_comparison or comparison, claim.worse)}


def _changes(last: Entry, comparison: str, seeds: int, spent: dict[str, Any]) -> list[str]:
    """Changes of a comparison since the last entry, in words."""
    changes = []
    before = last.get("seeds", seeds)
    if seeds > before:
        changes.append("seeds extended after looking")
    elif seeds < before:
        changes.append("seeds reduced after looking")
    if last.get("spent", spent).get(comparison, spent[comparison]) != spent[comparison]:
        changes.append("positions or budgets changed after looking")
    return changes
