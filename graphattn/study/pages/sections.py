"""The page of a study: predictions, measurements beside them, and the differences of graphs."""

from ...printed import counted
from ..page import Block, Figure, Page, Section, Table
from ..runs.pilot import budgets, power
from ..runs.records import PILOT, PILOT_SEEDS, read_plan
from .cells import trials_text
from .markdown import code, verbatim
from .results import Results
from .sections_of_claims import claim_blocks, verdict_lines
from .sections_of_graphs import checks_text, covariates, drawn_controls, predictions_of
from .sections_of_plan import budget_blocks, recipe, registrations
from .sections_of_scores import fit_blocks, group_blocks, measured_blocks, probe_blocks


def page_of(results: Results, cautions: list[str]) -> Page:
    """The page of a study's report.

    Args:
        results: Its numbers.
        cautions: Faults of the study, shown as warnings.
    """
    sections = [
        Section("Predicted before training", [registrations(results), *predictions_of(results)]),
        Section("Data, model and training", [recipe(results)]),
    ]
    of_budgets = budget_blocks(results)
    if of_budgets:
        sections.append(Section("Budgets", of_budgets))
    fits = fit_blocks(results)
    if fits:
        sections.append(Section("Did the arms fit?", fits))
    sections.append(Section("Measured", [Figure("Scores of every arm"), *measured_blocks(results)]))
    of_groups = group_blocks(results)
    if of_groups:
        sections.append(Section("By group", of_groups))
    if results.claims and not results.is_pilot:
        sections.append(Section("Claims", claim_blocks(results)))
    sections += [
        Section("Controls", [*drawn_controls(results), checks_text(results)]),
        Section("What the graphs differ in", covariates(results)),
        Section("After training", probe_blocks(results)),
        Section("Made by", _made_by(results)),
    ]
    return Page(results.plan["study"], _opening(results, cautions), sections, kind="Study")


def _opening(results: Results, cautions: list[str]) -> list[Block]:
    """Warnings, then the answer: verdicts and the study's own summary; then what was asked."""
    counts = results.counts
    blocks: list[Block] = [f"**Warning:** {verbatim(text)}." for text in cautions]
    missing = counts["planned"] - counts["done"] - counts["failed"]
    if missing:
        blocks.append(
            f"**Incomplete:** {missing} trials have not run; the same command goes on where it was."
        )
    if results.plan.get("quick"):
        blocks.append(
            "**Quick:** smaller than what follows says; what was run is under *Data, model and "
            "training*."
        )
    blocks += _answer(results)
    blocks += [
        "## The study",
        f"Trials: {trials_text(results)}; seeds: {results.plan['seeds']}, paired.",
    ]
    if not results.is_pilot:
        before = read_plan(results.folder / PILOT)
        if before is not None:
            at = before["registered"][0]["at"]
            blocks.append(f"A pilot of {PILOT_SEEDS} other seeds, {at}, is in {PILOT}/.")
    if results.plan.get("about"):
        blocks.append(results.plan["about"])
    return blocks


def _answer(results: Results) -> list[Block]:
    """What came out, for somebody who reads nothing else."""
    if results.is_pilot:
        return pilot_blocks(results)
    blocks: list[Block] = []
    if results.claims:
        blocks.append("What was claimed, and what came (words are explained under *Claims*):")
        blocks.append("\n".join(f"* {verbatim(line)}" for line in verdict_lines(results)))
    if results.summary is not None:
        blocks += results.summary(results)
    if not blocks:
        blocks.append("No order of arms was claimed; the scores are under *Measured*.")
    return blocks


def pilot_blocks(results: Results) -> list[Block]:
    """Blocks on a pilot: the budget at which each arm fits, and seeds for differences."""
    if results.claims:
        claims = counted(len(results.claims), "claim")
    else:
        claims = "one claim"
    text = (
        f"**Pilot:** {PILOT_SEEDS} seeds that the study will not have; no claim is judged. Seeds "
        f"for a difference beyond the margin to be found with probability .8, at .05 for {claims} "
        "together:"
    )
    head = ["comparison", "arm", "positions", "fits at", "runs"]
    fits: list[Block] = [
        "The least budget at which an arm fits, from the study's last one on; an arm that does not, "
        "has not levelled off, and is kept from it by no ceiling is trained with twice the batches, "
        "up to 8 times:",
        Table(head, budgets(results)),
    ]
    rows = power(results)
    if not rows:
        return [
            *fits,
            f"{text} nothing varies between the two seeds, or nothing is compared, so that no "
            "number follows.",
        ]
    head = [
        "comparison",
        "difference",
        "deviation, as seen",
        "seeds",
        "at most (80 %)",
        "seeds",
        "CPU hours",
    ]
    note = (
        "*Deviation*: standard deviation of paired differences from seed to seed, pooled over "
        "those that are compared; two seeds measure it badly, so plan by its upper end."
    )
    return [*fits, text, Table(head, rows), note]


def _made_by(results: Results) -> list[Block]:
    blocks: list[Block] = []
    if results.plan["command"]:
        blocks.append(code(results.plan["command"]))
    machine = results.plan["machine"]
    versions = ", ".join(
        f"{name} {version}" for name, version in machine["versions"].items() if version
    )
    where = f"{verbatim(machine['processor'])}, {machine['cores']} cores, {machine['date']}"
    records = results.records
    chain = (
        f"{records.path.name} has {counted(len(records.chain), 'line')}, the last of hash "
        f"{records.last or '-'}"
    )
    return [*blocks, f"{where}; {results.cpu_hours:.2f} CPU hours; {versions}; {chain}."]
