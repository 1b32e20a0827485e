"""The page of a study: predictions, measurements beside them, and the differences of graphs."""

from collections import Counter
from collections.abc import Sequence
from math import isclose
from statistics import stdev
from typing import Any

from .baseline import interval_of
from .claims import FITTING, SCORE, SOLVING, STEPS, VERDICTS
from .collapse import RULE, unseen
from .controls import DRAWN
from .examples import TEST_SET
from .fits import CLASSES, FIT_METRIC
from .markdown import code, verbatim
from .metrics import CLASSES as OF_CLASSES
from .metrics import METRICS, VALUES
from .page import Block, Figure, Page, Section, Table
from .pilot import budgets, power
from .records import ANEW, FIXED, PILOT, PILOT_SEEDS, read_plan
from .results import Results, Row
from .statistics import EXACT, Interval

_WARNINGS = 6  # of readouts out of reach, that are shown
_CHECKS = 6  # that are shown
_BY_LAYER = ("entropy", "distance", "spread")
_AT_LAST = ("effective_nodes", "along_full")
_TESTS = {
    ANEW: "they include the test set, which each seed draws anew from the same samples.",
    FIXED: "they leave the test set out: it is the same for all seeds, so that they are of "
    f"training alone. Those *{TEST_SET}*, where trials recorded what of it was right, are widened "
    "by a bootstrap over test examples: half widths add in squares.",
    None: "whether they include the test set was not recorded.",
}
AT_LIMIT = "at the step limit"
"""State of trials that are capped: steps were over before the loss at which training stops."""
_LIMIT = (
    f"*{AT_LIMIT[:1].upper()}{AT_LIMIT[1:]}*: the steps of the budget were over before the loss was "
    "reached at which training stops; the score is the one at that step."
)
_OF_SCORES = (
    f"Claims on scores: p is of sign flips of the differences less the margin, exact up to {EXACT} "
    "seeds; of equality, of both ends of the margin."
)
_OF_SHARES = (
    "Claims of fitting and solving: p is of Fisher's exact test of shares of runs; the interval is "
    "Newcombe's."
)
_OF_TYPICAL = (
    "A claim on scores is then one on typical runs, pairs of runs that did not collapse, if two "
    "thirds of the runs of each arm did not; beside it stand the shares of runs that solved "
    "(Fisher's exact test) and the difference of interquartile means of all runs (a bootstrap "
    "within each arm, from 10 runs on; Agarwal et al. 2021)."
)
_OF_STEPS = (
    "Claims of steps: the batches until training has the level, in the mean of a stretch of its "
    "curve or on its training examples at the end; a curve has 20 points at most, so that steps are "
    "known to the batches that the verdict names. Runs that never have the level count, as slower "
    "than all that do and as alike. p: sign flips of the differences, by seed, of ranks among all "
    "runs of both arms; the verdict is by this test alone. The ratio, worse to better, is Hodges and "
    "Lehmann's, where half of the runs of each arm have the level; its interval has all ratios that "
    "the test does not reject, and allows for where in its stretch a run had the level, so that it "
    "may hold 1 where the test decides."
)
_EFFECT = (
    "Hedges' g of the paired differences with its interval by the noncentral t: their mean in "
    "units of their standard deviation from seed to seed (Cohen's d_z, less the bias of few seeds)."
)


def page_of(results: Results, cautions: list[str]) -> Page:
    """The page of a study's report.

    Args:
        results: Its numbers.
        cautions: Faults of the study, shown as warnings.
    """
    sections = [
        Section("Predicted before training", [_registered(results), *_predictions(results)]),
        Section("Data, model and training", [_recipe(results)]),
    ]
    budgets = _budgets(results)
    if budgets:
        sections.append(Section("Budgets", budgets))
    fits = _fits(results)
    if fits:
        sections.append(Section("Did the arms fit?", fits))
    sections.append(Section("Measured", [Figure("Scores of every arm"), *_measured(results)]))
    of_groups = _by_group(results)
    if of_groups:
        sections.append(Section("By group", of_groups))
    if results.claims and not results.is_pilot:
        sections.append(Section("Claims", _claims(results)))
    sections += [
        Section("Controls", [*_drawn(results), _controls(results)]),
        Section("What the graphs differ in", _covariates(results)),
        Section("After training", _probes(results)),
        Section("Made by", _made_by(results)),
    ]
    return Page(results.plan["study"], _opening(results, cautions), sections, kind="Study")


def _opening(results: Results, cautions: list[str]) -> list[Block]:
    """Counts of trials, warnings, and the study's own text and summary."""
    counts = results.counts
    blocks: list[Block] = [f"Trials: {trials_of(results)}; seeds: {results.plan['seeds']}, paired."]
    blocks += [f"**Warning:** {verbatim(text)}." for text in cautions]
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
    if results.is_pilot:
        blocks += pilot_blocks(results)
    else:
        before = read_plan(results.folder / PILOT)
        if before is not None:
            at = before["registered"][0]["at"]
            blocks.append(f"A pilot of {PILOT_SEEDS} other seeds, {at}, is in {PILOT}/.")
    if results.plan.get("about"):
        blocks.append(results.plan["about"])
    if results.summary is not None:
        blocks += results.summary(results)
    return blocks


def _registered(results: Results) -> str:
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
        words = [count_of(len(entry["claims"]), "claim")]
    else:
        words = ["no order of arms is claimed"]
    if "seeds" in entry:
        words.append(count_of(entry["seeds"], "seed"))
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


def trials_of(results: Results) -> str:
    """Numbers of trials: planned, done, of these at the step limit, and failed."""
    counts = results.counts
    done = f"{counts['done']} done"
    if counts["capped"]:
        done += f" ({counts['capped']} {AT_LIMIT})"
    return f"{counts['planned']} planned, {done}, {counts['failed']} failed"


def count_of(number: int, noun: str) -> str:
    """A number of things in words."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}s"


def _named(results: Results, comparison: str, arm: str) -> str:
    if len(results.plan["comparisons"]) == 1:
        return verbatim(arm)
    return verbatim(f"{comparison}: {arm}")


def _predicted_arms(results: Results) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (comparison, arm, prediction)
        for comparison, about in results.plan["comparisons"].items()
        for arm, prediction in about["arms"].items()
    ]


def _formatted(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    if value is None:
        return "-"
    return format(value, form)


def _predictions(results: Results) -> list[Block]:
    rows = []
    for comparison, arm, prediction in _predicted_arms(results):
        about = results.plan["comparisons"][comparison]
        # what each answer needs
        is_known = about["readout"] != "node" or about["arms"][prediction["of"]]["law"]
        if is_known:
            reached = f"{prediction['reached']:.1%}"
        else:
            reached = "-"
        rows.append(
            [
                _named(results, comparison, arm),
                f"{prediction['depends_on_least']:g} to {prediction['depends_on_most']:g} of "
                f"{prediction['nodes']:g}",
                reached,
                _formatted(prediction["layers_needed"], "g"),
                _ceiling(prediction, about["positions"], about["metric"]),
            ]
        )
    head = ["arm", "a node depends on", "readout reaches", "layers until nothing is new", "ceiling"]
    note = (
        "*Readout reaches*: the share of what an answer may need; with a ceiling by law, of "
        "answers the share whose needs are all reached. *A bag of nodes*: without positions no "
        "order can be told, whatever is trained. *By colours*: nodes whose inputs are alike, and "
        "that read alike sources in the same shares, layer by layer, have one state (colour "
        "refinement, 1-WL, with the classes that positions give to edges; with distances or hops "
        "on all pairs GD-WL), so that no model scores better than the best function of colours "
        "does. It is computed from what is held out, or from all samples where each seed draws a "
        "test of its own, which luck may then exceed; shown where it is no perfect score, and of "
        "no module of a user. Of a control that is drawn, the first drawing; "
        "but where a law gives ceilings, every draw has its own, and their mean stands here, with "
        "the mean of what they reach."
    )
    return [Table(head, rows), note]


def _ceiling(prediction: dict[str, Any], positions: Sequence[str], metric: str) -> str:
    """The ceilings of an arm, by law and by colours, and that it is a bag of nodes if it is one."""
    by_colours = "{:.3f} by colours"
    if METRICS[metric].sign < 0:
        by_colours = "at least {:.3f} by colours"
    if prediction["kind"] in DRAWN:
        by_colours += ", first drawing"
    words = []
    if prediction["ceiling"] is not None:
        words.append(f"{prediction['ceiling']:.3f}")
    colours = prediction.get("colours", {})
    for of_positions, share in colours.items():
        words.append(_if_several(by_colours.format(share), of_positions, positions))
    if prediction["bag"] and "none" in positions:
        words.append(_if_several("a bag of nodes", "none", positions))
    return ", ".join(words) or "-"


def _if_several(text: str, of_positions: str, positions: Sequence[str]) -> str:
    """A ceiling, with the positions that it is of where a comparison has several."""
    if len(positions) == 1:
        return text
    return f"{text} (positions {of_positions})"


def _recipe(results: Results) -> str:
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
    text = f"{_examples(budget['examples'])} examples, {budget['steps']:,} batches"
    if budget["equal"] != "steps":
        text += f", equal {budget['equal']}"
    return text


def _examples(number: int | None) -> str:
    if number is None:
        return "all"
    return f"{number:,}"


def _measured(results: Results) -> list[Block]:
    metrics = {row.metric for row in results.rows}
    if len(metrics) == 1:
        score = f"{next(iter(metrics))} [95 %]"
    else:
        score = "measured [95 %]"
    rows = [_cells(results, row, score) for row in results.rows]
    values = {name: {row[name] for row in rows} for name in rows[0]}
    shown = {
        "steps": len(values["steps"]) > 1,
        "law": values["law"] != {""},
        "trials": values["trials"] != {""},
        "score": len(metrics) > 1,
        "g_z [95 %]": values["g_z [95 %]"] != {"-"},
        TEST_SET: values[TEST_SET] != {"-"},
    }
    used = [name for name in rows[0] if shown.get(name, True)]
    blocks: list[Block] = [Table(used, [[row[name] for name in used] for row in rows])]
    baselines = [
        f"* {_named(results, comparison, name)} on the same data: {score:.3f}"
        for comparison, about in results.plan["comparisons"].items()
        for name, score in about["baselines"].items()
    ]
    baselines += [
        f"* {_named(results, comparison, name)} on the same data, splits and seeds: "
        f"{interval_of(about['metric'], by_seed)}"
        for comparison, about in results.plan["comparisons"].items()
        for name, by_seed in about.get("plain", {}).items()
    ]
    if baselines:
        blocks.append("\n".join(baselines))
    if results.counts["capped"]:
        blocks.append(_LIMIT)
    if shown["g_z [95 %]"]:
        blocks.append(f"*g_z*: {_EFFECT}")
    blocks.append(_notes_on_intervals(results))
    return blocks


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


def _by_group(results: Results) -> list[Block]:
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
            cells = [_named(results, comparison, row.arm), row.positions, _steps(results, row)]
            cells += [_or_dash(results.of_group(row, name).interval) for name in names]
            rows.append(cells)
        if rows:
            head = ["arm", "positions", "steps", *map(verbatim, names)]
            blocks += [f"{about['metric']} [95 %] of each part of the test:", Table(head, rows)]
    return blocks


def _cells(results: Results, row: Row, score: str) -> dict[str, str]:
    """The cells of a row, by column."""
    difference, effect = results.beside_all_pairs(row)
    laws = {None: "", True: "holds", False: "**above its ceiling**"}
    counts = ((AT_LIMIT, row.capped), ("failed", row.failed))
    return {
        "arm": _named(results, row.comparison, row.arm),
        "positions": row.positions,
        "examples": _examples(row.examples),
        "steps": _steps(results, row),
        "ceiling": _formatted(row.prediction["ceiling"], ".3f"),
        score: _or_dash(row.interval),
        TEST_SET: _ends(results.with_test_set(row)),
        "better than all pairs by": _or_dash(difference),
        "g_z [95 %]": _effect(effect),
        "law": laws[row.holds],
        "trials": ", ".join(f"{count} {state}" for state, count in counts if count),
        "score": row.metric,
    }


def _fits(results: Results) -> list[Block]:
    """Scores and losses of every arm on its training examples, and the classes of its runs."""
    rows = []
    for row in results.rows:
        fit = results.fit(row)
        if row.prediction["kind"] == "shuffled" or fit.runs == 0:
            continue
        guess = results.plan["comparisons"][row.comparison].get("guess_nats")
        rows.append(
            [
                _named(results, row.comparison, row.arm),
                row.positions,
                _examples(row.examples),
                _steps(results, row),
                _formatted(fit.accuracy, ".3f"),
                f"{_formatted(fit.loss, '.3g')} ({_formatted(guess, '.3g')})",
                _formatted(fit.steps, ",.0f"),
                fit.word,
            ]
        )
    if not rows:
        return []
    head = ["arm", "positions", "examples", "steps", *_of_fit(results)]
    head += ["steps to fit", "runs"]
    rules = [f"* *{word}*: {rule}" for word, rule in CLASSES.items()]
    note = (
        "An arm did not fit if more of its runs did not than did; a claim about its score is then "
        "not judged. *Steps to fit*: the median of the batches after which training had that "
        "accuracy, in the mean of a stretch of its curve or at the end, of runs that did. The "
        "curves of loss and accuracy are in trials.jsonl."
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


def _or_dash(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return str(interval)


def _ends(interval: Interval | None) -> str:
    """The ends of an interval whose estimate stands beside it."""
    if interval is None:
        return "-"
    return f"[{interval.low:.3f}, {interval.high:.3f}]"


def _effect(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _steps(results: Results, row: Row) -> str:
    equal = results.plan["comparisons"][row.comparison]["budgets"][row.budget]["equal"]
    if equal == "steps":
        return f"{row.steps:,}"
    return f"{row.steps:,} (equal {equal})"


def pilot_blocks(results: Results) -> list[Block]:
    """Blocks on a pilot: the budget at which each arm fits, and seeds for differences."""
    if results.claims:
        claims = count_of(len(results.claims), "claim")
    else:
        claims = "one claim"
    text = (
        f"**Pilot:** {PILOT_SEEDS} seeds that the study will not have; no claim is judged. Seeds "
        f"for a difference beyond the margin to be found with probability .8, at .05 for {claims} "
        "together:"
    )
    head = ["comparison", "arm", "positions", "fits at", "runs"]
    fits: list[Block] = [
        "The least budget at which an arm fits, from the study's last one on; an arm that does not "
        "is trained with twice the batches, up to 8 times:",
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


def _rates(results: Results, row: Row) -> str:
    """Learning rates that were taken, with the number of trials of each."""
    counts = Counter(
        record["rate"] for record in results.records_of(row) if record.get("validation")
    )
    return ", ".join(f"{rate:g} ({count})" for rate, count in sorted(counts.items()))


def _budgets(results: Results) -> list[Block]:
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
            [_named(results, row.comparison, row.arm), row.positions, _steps(results, row), rates]
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
        name = _named(results, row.comparison, row.arm)
        rows.append([name, row.positions, equal, cost_text, f"{row.steps:,}"])
    return rows


def _claims(results: Results) -> list[Block]:
    rows = []
    for claim, verdict in zip(results.claims, results.verdicts, strict=True):
        if verdict.difference is None:
            seeds = 0
        else:
            seeds = verdict.difference.seeds
        rows.append(
            [
                verbatim(claim),
                verbatim(claim.because) or "-",
                f"{seeds}",
                _or_dash(verdict.difference),
                _effect(verdict.effect),
                _formatted(verdict.p, ".3g"),
                verbatim(", ".join((verdict.verdict, *verdict.remarks))),
            ]
        )
    head = ["claim", "because", "seeds", "difference [95 %]", "g_z [95 %]", "p", "verdict"]
    return [Table(head, rows), "\n".join(f"* {note}" for note in _notes_of_claims(results))]


def _notes_of_claims(results: Results) -> list[str]:
    """Notes on the words and numbers of verdicts that are on the page."""
    kinds = {claim.of for claim in results.claims}
    used = {verdict.verdict for verdict in results.verdicts}
    notes = [f"*{word}*: {meaning}." for word, meaning in VERDICTS.items() if word in used]
    notes.append("p is after Holm's correction for all claims made beforehand; intervals are not.")
    if SCORE in kinds:
        notes += [_OF_SCORES, f"*g_z*: {_EFFECT}"]
    if kinds & {FITTING, SOLVING}:
        notes.append(_OF_SHARES)
    if STEPS in kinds:
        notes.append(_OF_STEPS)
    if results.late:
        notes.append("*Late*: both arms had been measured when it was claimed.")
    if SCORE in kinds:
        seeds = results.plan["seeds"]
        notes += [
            f"{RULE} {_OF_TYPICAL}",
            f"Where none of {seeds} runs collapsed, up to {unseen(seeds):.0%} may (95 %): no "
            "verdict is one on means. `graphattn study --error-rates` prints how often such "
            "verdicts err.",
        ]
    return notes


def _drawn(results: Results) -> list[Block]:
    """Properties that drawn controls keep of their arms, and deviations of drawings."""
    rows = []
    for row in results.rows:
        prediction = row.prediction
        if prediction["kind"] not in DRAWN or not row.scores:
            continue
        of_arm = results.plan["comparisons"][row.comparison]["arms"][prediction["of"]]
        spread = None
        if len(row.scores) > 1:
            spread = stdev(row.scores.values())
        rows.append(
            [
                _named(results, row.comparison, row.arm),
                row.positions,
                _examples(row.examples),
                ", ".join(prediction.get("keeps") or ["-"]),
                f"{prediction['depends_on_mean']:.1f} ({of_arm['depends_on_mean']:.1f})",
                f"{row.draws}",
                _formatted(row.of_draws, ".3f"),
                _formatted(spread, ".3f"),
            ]
        )
    if not rows:
        return []
    head = ["control", "positions", "examples", "keeps", "a node depends on (the arm)"]
    head += ["drawings a seed", "sd of drawings", "sd of seeds"]
    note = (
        "A drawing is a random effect: each seed has drawings of its own, its score is their mean, "
        "and the interval over seeds is of both. Of one drawing for all seeds it is of that "
        "drawing alone. A control whose nodes depend on more than the arm's do differs from it in "
        "reach, too; a permuted graph has the reach of its arm, and only its places are others."
    )
    return [Table(head, rows), note]


def _controls(results: Results) -> str:
    lines = []
    for name, about in results.plan["comparisons"].items():
        for check, value in about["checks"].items():
            if value is True:
                result = "yes"
            else:
                result = f"{value:.1e}"
            lines.append(f"* {_named(results, name, check)}: {result}")
    if len(lines) > _CHECKS + 2:
        lines = [*lines[:_CHECKS], f"* and {len(lines) - _CHECKS} more like these"]
    for row in results.rows:
        if row.prediction["kind"] == "shuffled" and row.scores:
            if row.holds:
                outcome = "at chance"
            else:
                outcome = "**above chance**"
            lines.append(
                f"* {_named(results, row.comparison, row.arm)}, positions {row.positions}: "
                f"{outcome}, {row.interval} (chance {row.prediction['ceiling']:.3f}, sd of a seed "
                f"{row.deviation:.3f})"
            )
    if results.unlike:
        alike = f"**no**, {verbatim(results.unlike[0])}"
    else:
        alike = "yes"
    lines.append(
        f"* all arms of a seed started from the same state (hash) with as many parameters: {alike}"
    )
    lines += [f"* failed: {verbatim(text)}" for text in results.failures]
    return "\n".join(lines)


def _covariates(results: Results) -> list[Block]:
    universal = {True: "yes", False: "no", None: "open"}
    rows = []
    for comparison, arm, prediction in _predicted_arms(results):
        if prediction["kind"] == "shuffled":
            continue
        rows.append(
            [
                _named(results, comparison, arm),
                f"{prediction['edges']:,g}",
                f"{prediction['degree_least']:g} to {prediction['degree_most']:g}",
                _formatted(prediction["spectral_gap"], ".3f"),
                _conductance(prediction),
                _formatted(prediction.get("mean_resistance"), ".3g"),
                f"{prediction['roots']:g}",
                f"{prediction['strong_components']:g}",
                universal[prediction["universal"]],
                _formatted(prediction["homophily"], ".2f"),
                _formatted(prediction["operations"], ",.0f"),
            ]
        )
    head = ["arm", "edges", "in-degrees", "spectral gap", "conductance", "mean resistance", "roots"]
    head += ["strong components", "universal", "homophily", "operations"]
    note = (
        "Edges are the mean of the layers, *universal* and operations of all of them; the rest is "
        "of the first layer's graph. Of samples' own graphs, the mean of some. *Spectral gap*: 1 "
        "less the second largest modulus of an eigenvalue of uniform attention. *Conductance*: the "
        "least share of edges that leave a part of the undirected graph; exact, or from half the "
        "second eigenvalue of the Laplacian to a cut that was found. *Mean resistance*: of all "
        "pairs of nodes, every edge 1 ohm; exact, - where not all are connected. *Roots*: nodes "
        "that all others depend on in the end. *Strong components*: sets of nodes that all depend "
        "on one another. *Universal*: one of the theorems of Yun et al. 2020 applies to the "
        "layers; *no* proves nothing. *Homophily*: the share of edges between nodes of one class. "
        "*Operations*: of one forward pass of a sample."
    )
    return [Table(head, rows), note]


def _conductance(prediction: dict[str, Any]) -> str:
    """A number, or both of its bounds."""
    low, high = (prediction.get(f"conductance_{end}") for end in ("least", "most"))
    if low is None or high is None:
        return "-"
    if isclose(low, high):
        return f"{high:.3g}"
    return f"{low:.3g} to {high:.3g}"


def _probes(results: Results) -> list[Block]:
    """Means over trials, at the last budget."""
    rows = []
    for row in results.rows:
        if row.budget != len(results.plan["comparisons"][row.comparison]["budgets"]) - 1:
            continue
        probes = results.probes(row)
        if probes and row.prediction["kind"] != "shuffled":
            cells = [_named(results, row.comparison, row.arm), row.positions]
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
        f"{records.path.name} has {count_of(len(records.chain), 'line')}, the last of hash "
        f"{records.last or '-'}"
    )
    return [*blocks, f"{where}; {results.cpu_hours:.2f} CPU hours; {versions}; {chain}."]
