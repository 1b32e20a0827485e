"""Sections on what was planned: registered claims, the data and the model, budgets."""

from collections import Counter
from typing import Any

from ...printed import counted
from ..page import Block, Table
from .cells import arm_name, examples_text, steps_text
from .markdown import verbatim
from .results import ArmRow, Results

_WARNINGS = 6  # of readouts out of reach, that are shown


def registrations(results: Results) -> str:
    """All registrations of claims, and warnings of readouts out of reach."""
    lines = []
    before: dict[str, Any] | None = None
    for entry in results.plan["registered"]:
        lines.append(_registration(entry, before))
        before = entry
    warnings = [
        text for about in results.plan["comparisons"].values() for text in about["warnings"]
    ]
    lines += [f"* {verbatim(text)}" for text in warnings[:_WARNINGS]]
    if len(warnings) > _WARNINGS:
        lines.append(f"* and {len(warnings) - _WARNINGS} more like these")
    return "\n".join(lines)


def _registration(entry: dict[str, Any], before: dict[str, Any] | None) -> str:
    """A registration of claims, with what had changed since the one before."""
    if entry["claims"]:
        words = [counted(len(entry["claims"]), "claim")]
    else:
        words = ["no order of arms is claimed"]
    if "seeds" in entry:
        words.append(counted(entry["seeds"], "seed"))
    if before is not None:
        trained = before.get("spent")
        if trained is not None and trained != entry["spent"]:
            words.append("other positions or budgets")
    if entry.get("withdrawn"):
        words.append(f"{len(entry['withdrawn'])} withdrawn after looking")
    if before is None:
        did = "Registered"
    else:
        did = "Changed"
    return (
        f"{did} {entry['at']}, with {entry['trials_on_disk']} trials on disk: {', '.join(words)}."
    )


def recipe(results: Results) -> str:
    """Data, model and training, once for all comparisons that have them alike."""
    lines: dict[str, list[str]] = {}
    for comparison, about in results.plan["comparisons"].items():
        for line in (
            f"{about['samples']:,} samples of {about['nodes']:,} nodes at most, {about['held']:,} "
            f"of them held out; readout: {about['readout']}",
            f"model: {_values(about['model'])}; positions: {', '.join(about['positions'])}",
            f"training: {_values(about['training'])}; {'; '.join(map(_budget, about['budgets']))}",
        ):
            lines.setdefault(line, []).append(comparison)
    items = []
    for line, names in lines.items():
        if len(names) == len(results.plan["comparisons"]):
            items.append(f"* {line}")
        else:
            items.append(f"* {line} ({verbatim('; '.join(names))})")
    return "\n".join(items)


def _values(arguments: dict[str, Any]) -> str:
    """Arguments that are given, by name."""
    words = []
    for name, value in arguments.items():
        if isinstance(value, str):
            words.append(f"{name} {verbatim(value)}")
        elif value is not None:
            words.append(f"{name} {value}")
    return ", ".join(words)


def _budget(budget: dict[str, Any]) -> str:
    text = f"{examples_text(budget['examples'])} examples, {budget['steps']:,} batches"
    if budget["equal"] != "steps":
        text += f", equal {budget['equal']}"
    return text


def budget_blocks(results: Results) -> list[Block]:
    """The costs of a step of each arm, and the steps that an equal budget allows.

    Also the rates that validation chose.
    """
    blocks: list[Block] = []
    if any(about["costs"] for about in results.plan["comparisons"].values()):
        head = ["arm", "positions", "equal", "a step costs", "steps"]
        blocks += ["Counted or measured before training:", Table(head, _costs(results))]
    chosen = [(row, _rates(results, row)) for row in results.rows]
    if any(rates for _, rates in chosen):
        rows = [
            [
                arm_name(results, row.comparison, row.arm),
                row.positions,
                steps_text(results, row),
                rates,
            ]
            for row, rates in chosen
        ]
        blocks += [
            "Rates, every one tried for every trial, and the best on its validation split taken:",
            Table(["arm", "positions", "steps", "rate (trials)"], rows),
        ]
    return blocks


def _costs(results: Results) -> list[list[str]]:
    """A line for each row whose budget is equal in operations or time."""
    rows = []
    for row in results.rows:
        about = results.plan["comparisons"][row.comparison]
        equal = about["budgets"][row.budget]["equal"]
        if equal == "steps":
            continue
        if row.prediction["kind"] == "shuffled":
            arm = row.prediction["of"]
        else:
            arm = row.arm
        cost = about["costs"][equal][row.positions][arm]
        if equal == "operations":
            cost_text = f"{cost:,.0f} operations"
        else:
            cost_text = f"{1e3 * cost:.2f} ms"
        name = arm_name(results, row.comparison, row.arm)
        rows.append([name, row.positions, equal, cost_text, f"{row.steps:,}"])
    return rows


def _rates(results: Results, row: ArmRow) -> str:
    """Learning rates that were taken, with the number of trials of each."""
    counts = Counter(
        record["rate"] for record in results.records_of(row) if record.get("validation")
    )
    return ", ".join(f"{rate:g} ({count})" for rate, count in sorted(counts.items()))
