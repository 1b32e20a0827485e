"""Sections on scores: what was measured, by group of the test, in training and after it."""

from ..examples import TEST_SET
from ..forecasts.baseline import can_have_baseline, interval_of
from ..judging.fits import CLASSES, FIT_METRIC, UNKNOWN
from ..metrics import CLASSES as OF_CLASSES
from ..metrics import VALUES
from ..page import Block, Table
from ..runs.records import ANEW, FIXED
from .cells import (
    AT_LIMIT,
    EFFECT,
    arm_name,
    effect_text,
    ends_text,
    examples_text,
    formatted,
    interval_text,
    steps_text,
)
from .markdown import verbatim
from .results import ArmRow, Results

_BY_LAYER = ("entropy", "distance", "spread")
_AT_LAST = ("effective_nodes", "along_full")
_TESTS = {
    ANEW: "they include the test set, which each seed draws anew from the same samples.",
    FIXED: "they leave the test set out: it is the same for all seeds, so that they are of "
    f"training alone. Those *{TEST_SET}*, where trials recorded what of it was right, are widened "
    "by a bootstrap over test examples: half widths add in squares.",
    None: "whether they include the test set was not recorded.",
}
_LIMIT = (
    f"*{AT_LIMIT[:1].upper()}{AT_LIMIT[1:]}*: the steps of the budget were over before the loss was "
    "reached at which training stops; the score is the one at that step."
)


def measured_blocks(results: Results) -> list[Block]:
    """Scores of every arm with their intervals, and those of plain methods."""
    metrics = {row.metric for row in results.rows}
    if len(metrics) == 1:
        score = f"{next(iter(metrics))} [95 %]"
    else:
        score = "measured [95 %]"
    rows = [_cells(results, row, score) for row in results.rows]
    values = {name: {row[name] for row in rows} for name in rows[0]}
    is_shown = {
        "steps": len(values["steps"]) > 1,
        "law": values["law"] != {""},
        "trials": values["trials"] != {""},
        "score": len(metrics) > 1,
        "g_z [95 %]": values["g_z [95 %]"] != {"-"},
        TEST_SET: values[TEST_SET] != {"-"},
    }
    used = [name for name in rows[0] if is_shown.get(name, True)]
    blocks: list[Block] = [Table(used, [[row[name] for name in used] for row in rows])]
    baselines = [
        f"* {arm_name(results, comparison, name)} on the same data: {score:.3f}"
        for comparison, about in results.plan["comparisons"].items()
        for name, score in about["baselines"].items()
    ]
    baselines += [
        f"* {arm_name(results, comparison, name)} on the same data, splits and seeds: "
        f"{interval_of(about['metric'], by_seed)}"
        for comparison, about in results.plan["comparisons"].items()
        for name, by_seed in about.get("plain", {}).items()
    ]
    if baselines:
        blocks.append("\n".join([*baselines, *_without_baselines(results)]))
    if results.counts["capped"]:
        blocks.append(_LIMIT)
    if is_shown["g_z [95 %]"]:
        blocks.append(f"*g_z*: {EFFECT}")
    blocks.append(_notes_on_intervals(results))
    return blocks


def _without_baselines(results: Results) -> list[str]:
    """Comparisons that plain methods cannot answer, beside others that have some."""
    lines = []
    for comparison, about in results.plan["comparisons"].items():
        has_none = not about["baselines"] and not about.get("plain", {})
        if has_none and not can_have_baseline(about["readout"], about["metric"]):
            lines.append(
                f"* {verbatim(comparison)}: no plain method, as these answer samples in a score "
                f"other than bits; readout {about['readout']}, {about['metric']}. "
                "`Study(baselines=)` takes scores of others"
            )
    return lines


def _cells(results: Results, row: ArmRow, score: str) -> dict[str, str]:
    """The cells of a row, by column."""
    difference, effect = results.beside_all_pairs(row)
    laws = {None: "", True: "holds", False: "**above its ceiling**"}
    counts = ((AT_LIMIT, row.capped), ("failed", row.failed))
    return {
        "arm": arm_name(results, row.comparison, row.arm),
        "positions": row.positions,
        "examples": examples_text(row.examples),
        "steps": steps_text(results, row),
        "ceiling": formatted(row.ceiling, ".3f"),
        score: interval_text(row.interval),
        TEST_SET: ends_text(results.with_test_set(row)),
        "better than all pairs by": interval_text(difference),
        "g_z [95 %]": effect_text(effect),
        "law": laws[row.holds],
        "trials": ", ".join(f"{count} {state}" for state, count in counts if count),
        "score": row.metric,
    }


def _notes_on_intervals(results: Results) -> str:
    """Notes on what intervals of scores are of, and whether they include the test set."""
    words = [
        "Intervals are 95 % t intervals of the mean over seeds, which draw the start and the "
        "batches; of fewer than 3 seeds none. Of runs that fall into two groups, as some collapse, "
        "the median of all and its exact interval, from 6 seeds on."
    ]
    tests = {name: about.get("test") for name, about in results.plan["comparisons"].items()}
    for test, meaning in _TESTS.items():
        names = [name for name, kind in tests.items() if kind == test]
        if names and len(names) < len(tests):
            words.append(f"{verbatim('; '.join(names))}: {meaning}")
        elif names:
            words.append(f"{meaning[:1].upper()}{meaning[1:]}")
    return " ".join(words)


def group_blocks(results: Results) -> list[Block]:
    """Scores on the named parts of the test, a column for each."""
    blocks: list[Block] = []
    for comparison, about in results.plan["comparisons"].items():
        names = about.get("groups", [])
        rows = []
        for row in results.rows:
            if row.comparison != comparison or not names or not row.scores:
                continue
            if row.prediction["kind"] == "shuffled":
                continue
            cells = [
                arm_name(results, comparison, row.arm),
                row.positions,
                steps_text(results, row),
            ]
            cells += [interval_text(results.of_group(row, name).interval) for name in names]
            rows.append(cells)
        if rows:
            head = ["arm", "positions", "steps", *map(verbatim, names)]
            blocks += [f"{about['metric']} [95 %] of each part of the test:", Table(head, rows)]
    return blocks


def fit_blocks(results: Results) -> list[Block]:
    """Scores and losses of every arm on its training examples, and the classes of its runs."""
    rows = []
    for row in results.rows:
        fit = results.fit(row)
        if row.prediction["kind"] == "shuffled" or fit.runs == 0:
            continue
        guess = results.plan["comparisons"][row.comparison].get("guess_nats")
        rows.append(
            [
                arm_name(results, row.comparison, row.arm),
                row.positions,
                examples_text(row.examples),
                steps_text(results, row),
                formatted(fit.accuracy, ".3f"),
                f"{formatted(fit.loss, '.3g')} ({formatted(guess, '.3g')})",
                formatted(fit.steps, ",.0f"),
                fit.word,
            ]
        )
    if not rows:
        return []
    head = ["arm", "positions", "examples", "steps", *_of_fit(results)]
    head += ["steps to fit", "runs"]
    shown = " ".join(row[-1] for row in rows)
    rules = [
        f"* *{word}*: {rule}" for word, rule in CLASSES.items() if word != UNKNOWN or word in shown
    ]
    note = (
        "An arm did not fit if more than half of its runs did not (those that levelled off or cannot "
        "fit are no such runs); a claim about its score is then not judged. *Steps to fit*: the "
        "median of the batches after which training had that accuracy, in the mean of a "
        "stretch of its curve or at the end, of runs that did. The curves of loss and accuracy are "
        "in trials.jsonl."
    )
    first = "The class of a run is the first that applies:"
    return [Table(head, rows), first, "\n".join(rules), note]


def _of_fit(results: Results) -> list[str]:
    """Heads of the columns of the score that says whether runs fitted, and of the loss."""
    kinds = {about.get("kind", OF_CLASSES) for about in results.plan["comparisons"].values()}
    score = " or ".join(sorted(FIT_METRIC[kind] for kind in kinds))
    loss = "nats"
    if kinds == {VALUES}:
        loss = "squared error in deviations"
    elif VALUES in kinds:
        loss = "nats or squared error in deviations"
    return [f"{score} in training", f"last loss, {loss} (a guess)"]


def probe_blocks(results: Results) -> list[Block]:
    """Means over trials, at the last budget."""
    rows = []
    for row in results.rows:
        if row.budget != len(results.plan["comparisons"][row.comparison]["budgets"]) - 1:
            continue
        probes = results.probes(row)
        if probes and row.prediction["kind"] != "shuffled":
            cells = [arm_name(results, row.comparison, row.arm), row.positions]
            cells += [_of_layers(probes.get(name, []), ".2f") for name in _BY_LAYER]
            cells += [_of_layers(probes.get(name, []), ".3g") for name in _AT_LAST]
            rows.append(cells)
    if not rows:
        return ["No trial has ended."]
    head = [
        "arm",
        "positions",
        "entropy (bits) by layer",
        "distance (places) by layer",
        "spread by layer",
        "effective nodes",
        "along full",
    ]
    note = (
        "Means over trials, at the last budget. *Spread*: distance of the nodes to their mean over "
        "their norm. *Effective nodes*: participation number of the readout's gradient. *Along "
        "full*: the score along a graph that it was not trained on."
    )
    return [Table(head, rows), note]


def _of_layers(means: list[float], form: str) -> str:
    return " / ".join(format(mean, form) for mean in means) or "-"
