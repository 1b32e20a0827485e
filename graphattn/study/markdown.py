"""A study as a page: predictions first, what was measured beside them, then what the graphs differ
in.
"""

import re
from collections import Counter
from collections.abc import Sequence
from math import isclose
from typing import Any

from .claims import VERDICTS
from .pilot import PILOT, PILOT_SEEDS, power
from .records import read_plan
from .report import Report, Row
from .statistics import EXACT, Interval, effect_size


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown; a cell is one line, and its bars and brackets are themselves."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)])


def _cell(text: str) -> str:
    return " ".join(text.splitlines()).replace("|", "&#124;").replace("<", "&lt;")


def verbatim(text: Any) -> str:
    """A name, or what somebody wrote, as it is: nothing in it is Markdown, a link or HTML."""
    for wild, instead in ((r"&(?=#?\w+;)", "&amp;"), ("<", "&lt;"), (r"\|", "&#124;")):
        text = re.sub(wild, instead, str(text))
    return re.sub(r"[\\`*\[\]~$]|#(?!\w+;)|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)


def from_docstring(text: str | None) -> str:
    """What follows the first line of a docstring, with its mathematics as Markdown has it."""
    _, _, rest = (text or "").strip().partition("\n")
    return re.sub(r":math:`([^`]*)`", r"$\1$", rest.strip()).replace("``", "`")


def page(report: Report) -> str:
    """The whole page."""
    counts = report.counts
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    parts = [
        f"# Study: {verbatim(report.plan['study'])}",
        f"Trials: {told}; seeds: {report.plan['seeds']}, paired.",
    ]
    missing = counts["planned"] - counts["done"] - counts["failed"]
    parts += [f"**Warning:** {verbatim(text)}." for text in report.cautions]
    if missing:
        parts.append(
            f"**Incomplete:** {missing} trials have not run; the same command goes on where it was."
        )
    if report.plan.get("quick"):
        parts.append(
            "**Quick:** smaller than what follows says; what was run is under *Data, model and "
            "training*."
        )
    if report.is_pilot:
        parts.append(_pilot(report))
    elif (before := read_plan(report.folder / PILOT)) is not None:
        parts.append(
            f"A pilot of {PILOT_SEEDS} other seeds, {before['registered'][0]['at']}, is in "
            f"{PILOT}/."
        )
    parts += [about] if (about := report.plan.get("about")) else []
    parts += report.summary(report) if report.summary else []
    parts += ["## Predicted before training", _registered(report), _predictions(report)]
    parts += [
        "## Data, model and training",
        _recipe(report),
        *_budgets(report),
        "## Measured",
        _measured(report),
    ]
    if report.claims and not report.is_pilot:
        parts += ["## Claims", _claims(report)]
    parts += ["## Controls", _controls(report), "## What the graphs differ in", _covariates(report)]
    parts += ["## After training", _probes(report)]
    return "\n\n".join([*parts, "## Made by", _made_by(report)])


def brief(report: Report) -> list[str]:
    """Lines for a terminal: the verdicts, then scores."""
    counts = ", ".join(f"{count} {state}" for state, count in report.counts.items())
    lines = [f"{report.plan['study']}: trials: {counts}; seeds: {report.plan['seeds']}"]
    if report.is_pilot:
        lines += _pilot(report).splitlines()
    for verdict in [] if report.is_pilot else report.verdicts:
        if verdict.p is None:
            p = ""
        else:
            p = f", p {verdict.p:.3g}"
        if verdict.difference is None:
            told = ""
        else:
            told = f", by {verdict.difference}{p}"
        lines.append(f"{', '.join((verdict.verdict, *verdict.remarks))}: {verdict.claim}{told}")
    names = ("comparison", "arm", "positions", "examples", "steps")
    several = [name for name in names if len({getattr(row, name) for row in report.rows}) > 1]
    for row in report.rows[:_FEW]:
        words = [getattr(row, name) for name in several]
        words = [
            f"{word or 'all'} {name}" if name in names[3:] else word
            for name, word in zip(several, words, strict=True)
        ]
        lines.append(f"{', '.join(words)}: {row.metric} {row.interval}")
    more = len(report.rows) - _FEW
    if more > 0:
        return [*lines, f"and {more} more rows"]
    return lines


_FEW = 24  # rows of a terminal


def _registered(report: Report) -> str:
    lines = []
    for number, one in enumerate(report.plan["registered"]):
        if "seeds" in one:
            seeds = f", {_count(one['seeds'], 'seed')}"
        else:
            seeds = ""
        if number:
            trained = report.plan["registered"][number - 1].get("spent")
        else:
            trained = None
        seeds += ", other positions or budgets" * (trained is not None and trained != one["spent"])
        if one["claims"]:
            claims = _count(len(one["claims"]), "claim")
        else:
            claims = "no order of arms is claimed"
        if one.get("withdrawn"):
            seeds += f", {len(one['withdrawn'])} withdrawn after looking"
        when = f"{one['at']}, with {one['trials_on_disk']} trials on disk"
        lines.append(f"{'Registered' if number == 0 else 'Changed'} {when}: {claims}{seeds}.")
    warnings = [text for about in report.plan["comparisons"].values() for text in about["warnings"]]
    shown = warnings[:6] + [f"and {len(warnings) - 6} more like these"] * (len(warnings) > 6)
    return "\n".join([*lines, *(f"* {verbatim(text)}" for text in shown)])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _named(report: Report, comparison: str, arm: str) -> str:
    return verbatim(arm if len(report.plan["comparisons"]) == 1 else f"{comparison}: {arm}")


def _every(report: Report) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (comparison, arm, told)
        for comparison, about in report.plan["comparisons"].items()
        for arm, told in about["arms"].items()
    ]


def _predictions(report: Report) -> str:
    rows = []
    for comparison, arm, told in _every(report):
        about = report.plan["comparisons"][comparison]
        # what each answer needs
        is_known = about["readout"] != "node" or about["arms"][told["of"]]["law"]
        field = f"{told['depends_on_least']:g} to {told['depends_on_most']:g} of {told['nodes']:g}"
        if told["layers_needed"] is None:
            needed = "-"
        else:
            needed = f"{told['layers_needed']:g}"
        ceiling = _ceiling(told, about["positions"])
        if is_known:
            reached = f"{told['reached']:.1%}"
        else:
            reached = "-"
        rows.append([_named(report, comparison, arm), field, reached, needed, ceiling])
    head = ["arm", "a node depends on", "readout reaches", "layers until nothing is new", "ceiling"]
    note = (
        "*Readout reaches*: the share of what an answer may need; with a ceiling by law, of "
        "answers the share whose "
        "needs are all reached. *A bag of nodes*: without positions no order can be told, "
        "whatever is trained. Of a "
        "rewired arm, the first one that is drawn; but where a law gives ceilings, every draw has "
        "its own, and their "
        "mean stands here, with the mean of what they reach."
    )
    return f"{table(head, rows)}\n\n{note}"


def _ceiling(told: dict[str, Any], positions: Sequence[str]) -> str:
    """The ceiling of an arm as a number, or that it is a bag of nodes, which models with positions
    are not.
    """
    if told["ceiling"] is not None:
        return f"{told['ceiling']:.3f}"
    if not told["bag"] or "none" not in positions:
        return "-"
    if len(positions) == 1:
        return "a bag of nodes"
    return "a bag of nodes (positions none)"


def _recipe(report: Report) -> str:
    """On what, what and how, once for all comparisons that have it alike."""
    lines: dict[str, list[str]] = {}
    for comparison, about in report.plan["comparisons"].items():
        for line in (
            f"{about['samples']:,} samples of {about['nodes']:,} nodes at most, {about['held']:,} "
            "of them held out; "
            f"readout: {about['readout']}",
            f"model: {_values(about['model'])}; positions: {', '.join(about['positions'])}",
            f"training: {_values(about['training'])}; {'; '.join(map(_budget, about['budgets']))}",
        ):
            lines.setdefault(line, []).append(comparison)
    every = len(report.plan["comparisons"])
    shared = {
        line: "" if len(names) == every else f" ({verbatim('; '.join(names))})"
        for line, names in lines.items()
    }
    return "\n".join(f"* {line}{where}" for line, where in shared.items())


def _values(given: dict[str, Any]) -> str:
    """Arguments that are given, by name."""
    given = {
        name: verbatim(value) if isinstance(value, str) else value for name, value in given.items()
    }
    return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None)


def _budget(budget: dict[str, Any]) -> str:
    if budget["examples"] is None:
        examples = "all"
    else:
        examples = f"{budget['examples']:,}"
    equal = f", equal {budget['equal']}" * (budget["equal"] != "steps")
    return f"{examples} examples, {budget['steps']:,} batches{equal}"


def _measured(report: Report) -> str:
    metrics = {row.metric for row in report.rows}
    if len(metrics) == 1:
        score = f"{next(iter(metrics))} [95 %]"
    else:
        score = "measured [95 %]"
    rows = [_cells(report, row, score) for row in report.rows]
    values = {name: {row[name] for row in rows} for name in rows[0]}
    told = {
        "steps": len(values["steps"]) > 1,
        "law": values["law"] != {""},
        "trials": values["trials"] != {""},
    }
    told |= {"score": len(metrics) > 1, "g_z [95 %]": values["g_z [95 %]"] != {"-"}}
    used = [name for name in rows[0] if told.get(name, True)]
    baselines = [
        f"* {_named(report, comparison, name)} on the same data: {score:.3f}"
        for comparison, about in report.plan["comparisons"].items()
        for name, score in about["baselines"].items()
    ]
    body = table(used, [[row[name] for name in used] for row in rows])
    note = f"*g_z*: {_EFFECT}"
    return "\n\n".join(
        [
            body,
            *(["\n".join(baselines)] if baselines else []),
            *([note] if told["g_z [95 %]"] else []),
        ]
    )


_EFFECT = (
    "Hedges' g of the paired differences with its interval by the noncentral t: their mean in "
    "units of their standard "
    "deviation from seed to seed (Cohen's d_z, less the bias of few seeds)."
)


def _effect(found: Interval | None) -> str:
    if found is None:
        return "-"
    return f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _pilot(report: Report) -> str:
    """What it is, and seeds for differences."""
    if report.claims:
        claims = _count(len(report.claims), "claim")
    else:
        claims = "one claim"
    text = (
        f"**Pilot:** {PILOT_SEEDS} seeds that the study will not have; no claim is judged. Seeds "
        "for a difference "
        f"beyond the margin to be found with probability .8, at .05 for {claims} together:"
    )
    head = [
        "comparison",
        "difference",
        "deviation, as seen",
        "seeds",
        "at most (80 %)",
        "seeds",
        "CPU hours",
    ]
    rows = power(report)
    if not rows:
        return (
            f"{text} nothing varies between the two seeds, or nothing is compared, so that no "
            "number follows."
        )
    note = (
        "*Deviation*: standard deviation of paired differences from seed to seed, pooled over "
        "those that are compared; "
        "two seeds measure it badly, so plan by its upper end."
    )
    return f"{text}\n\n{table(head, rows)}\n\n{note}"


def _cells(report: Report, row: Row, score: str) -> dict[str, str]:
    """What is said of a row, by column."""
    counts = (("capped", row.capped), ("failed", row.failed))
    other = report.all_pairs(row)
    if other is None:
        pairs = []
    else:
        pairs = report.differences(row, other)
    return {
        "arm": _named(report, row.comparison, row.arm),
        "positions": row.positions,
        "examples": "all" if row.examples is None else f"{row.examples:,}",
        "steps": _steps(report, row),
        "ceiling": "-" if row.prediction["ceiling"] is None else f"{row.prediction['ceiling']:.3f}",
        score: "-" if row.interval is None else str(row.interval),
        "better than all pairs by": str(report.difference(row, other)) if other and pairs else "-",
        "g_z [95 %]": _effect(effect_size(pairs)),
        "law": "" if row.holds is None else "holds" if row.holds else "**above its ceiling**",
        "trials": ", ".join(f"{count} {state}" for state, count in counts if count),
        "score": row.metric,
    }


def _steps(report: Report, row: Row) -> str:
    equal = report.plan["comparisons"][row.comparison]["budgets"][row.budget]["equal"]
    return f"{row.steps:,}{f' (equal {equal})' * (equal != 'steps')}"


def _rates(report: Report, row: Row) -> str:
    """Which of several rates were taken, of how many trials."""
    taken = Counter(one["rate"] for one in report.records_of(row) if one.get("validation"))
    return ", ".join(f"{rate:g} ({count})" for rate, count in sorted(taken.items()))


def _budgets(report: Report) -> list[str]:
    """What a step of each arm costs, where budgets are equal in operations or time, and how many
    each therefore takes; and the rates that validation chose."""
    parts = []
    costs = {name: about["costs"] for name, about in report.plan["comparisons"].items()}
    if any(costs.values()):
        rows = []
        for row in report.rows:
            equal = report.plan["comparisons"][row.comparison]["budgets"][row.budget]["equal"]
            if row.prediction["kind"] == "shuffled":
                arm = row.prediction["of"]
            else:
                arm = row.arm
            if equal != "steps":
                cost = costs[row.comparison][equal][row.positions][arm]
                if equal == "operations":
                    told = f"{cost:,.0f} operations"
                else:
                    told = f"{1e3 * cost:.2f} ms"
                rows.append(
                    [
                        _named(report, row.comparison, row.arm),
                        row.positions,
                        equal,
                        told,
                        f"{row.steps:,}",
                    ]
                )
        head = ["arm", "positions", "equal", "a step costs", "steps"]
        parts.append(f"Counted or measured before training:\n\n{table(head, rows)}")
    chosen = [(row, _rates(report, row)) for row in report.rows]
    if any(rates for _, rates in chosen):
        rows = [
            [_named(report, row.comparison, row.arm), row.positions, _steps(report, row), r]
            for row, r in chosen
        ]
        parts.append(
            "Rates, every one tried for every trial, and the best on its validation split taken:\n\n"
            + table(["arm", "positions", "steps", "rate (trials)"], rows)
        )
    if parts:
        return ["## Budgets", *parts]
    return []


def _claims(report: Report) -> str:
    rows = []
    for claim, verdict in zip(report.claims, report.verdicts, strict=True):
        if verdict.p is None:
            p = "-"
        else:
            p = f"{verdict.p:.3g}"
        found = verdict.difference
        if found is None:
            difference = "-"
            seeds = 0
        else:
            difference = str(found)
            seeds = found.seeds
        said = ", ".join((verdict.verdict, *verdict.remarks))
        effect = _effect(verdict.effect)
        rows.append(
            [
                verbatim(claim),
                verbatim(claim.because) or "-",
                f"{seeds}",
                difference,
                effect,
                p,
                said,
            ]
        )
    used = {verdict.verdict for verdict in report.verdicts}
    words = "; ".join(f"*{word}*: {meaning}" for word, meaning in VERDICTS.items() if word in used)
    note = (
        f"{words}. p: sign-flip test of the difference less the margin, exact up to {EXACT} "
        "seeds, after Holm's "
        "correction for all claims made beforehand; of equality, of both ends of the margin. "
        "Intervals are not "
        f"corrected. *g_z*: {_EFFECT}"
    )
    if report.late:
        note += " *Late*: both arms had been measured when it was claimed."
    return f"{table(['claim', 'because', 'seeds', 'difference [95 %]', 'g_z [95 %]', 'p', 'verdict'], rows)}\n\n{note}"


def _controls(report: Report) -> str:
    lines = []
    for name, about in report.plan["comparisons"].items():
        for what, value in about["checks"].items():
            lines.append(
                f"* {_named(report, name, what)}: {'yes' if value is True else f'{value:.1e}'}"
            )
    if len(lines) > 8:
        lines = [*lines[:6], f"* and {len(lines) - 6} more like these"]
    for row in report.rows:
        if row.prediction["kind"] == "shuffled" and row.scores:
            if row.holds:
                said = "at chance"
            else:
                said = "**above chance**"
            lines.append(
                f"* {_named(report, row.comparison, row.arm)}, positions {row.positions}: {said}, "
                f"{row.interval} "
                f"(chance {row.prediction['ceiling']:.3f}, sd of a seed {row.deviation:.3f})"
            )
    if report.unlike:
        alike = f"**no**, {verbatim(report.unlike[0])}"
    else:
        alike = "yes"
    lines.append(
        f"* all arms of a seed started from the same state (hash) with as many parameters: {alike}"
    )
    lines += [f"* failed: {verbatim(text)}" for text in report.failures]
    return "\n".join(lines)


def _covariates(report: Report) -> str:
    rows = []
    for comparison, arm, told in _every(report):
        if told["kind"] == "shuffled":
            continue
        if told["spectral_gap"] is None:
            gap = "-"
        else:
            gap = f"{told['spectral_gap']:.3f}"
        if told["homophily"] is None:
            homophily = "-"
        else:
            homophily = f"{told['homophily']:.2f}"
        universal = {True: "yes", False: "no", None: "open"}[told["universal"]]
        degrees = f"{told['degree_least']:g} to {told['degree_most']:g}"
        low, high = (told.get(f"conductance_{end}") for end in ("least", "most"))
        conductance = "-"
        if low is not None and high is not None:
            if isclose(low, high):
                conductance = f"{high:.3g}"
            else:
                conductance = f"{low:.3g} to {high:.3g}"
        if told.get("mean_resistance") is None:
            resistance = "-"
        else:
            resistance = f"{told['mean_resistance']:.3g}"
        row = [
            _named(report, comparison, arm),
            f"{told['edges']:,g}",
            degrees,
            gap,
            conductance,
            resistance,
        ]
        row.append(f"{told['roots']:g}")
        if told["operations"] is None:
            operations = "-"
        else:
            operations = f"{told['operations']:,.0f}"
        rows.append([*row, f"{told['strong_components']:g}", universal, homophily, operations])
    head = ["arm", "edges", "in-degrees", "spectral gap", "conductance", "mean resistance", "roots"]
    head += ["strong components", "universal", "homophily", "operations"]
    note = (
        "Edges are the mean of the layers, *universal* and operations of all of them; the rest is "
        "of the first layer's "
        "graph. Of samples' own graphs, the mean of some. *Spectral gap*: 1 less the second "
        "largest modulus of an "
        "eigenvalue of uniform attention. *Conductance*: the least share of edges that leave a "
        "part of the undirected "
        "graph; exact, or from half the second eigenvalue of the Laplacian to a cut that was "
        "found. *Mean resistance*: "
        "of all pairs of nodes, every edge 1 ohm; exact, - where not all are connected. *Roots*: "
        "nodes that all others "
        "depend on in the end. *Strong components*: sets of nodes that all depend on one another. "
        "*Universal*: one of "
        "the theorems of Yun et al. 2020 applies to the layers; *no* proves nothing. *Homophily*: "
        "the share of edges "
        "between nodes of one class. *Operations*: of one forward pass of a sample."
    )
    return f"{table(head, rows)}\n\n{note}"


def _probes(report: Report) -> str:
    """Means over trials, at the last budget."""
    rows = []
    for row in report.rows:
        if row.budget != len(report.plan["comparisons"][row.comparison]["budgets"]) - 1:
            continue
        probes = report.probes(row)
        if probes and row.prediction["kind"] != "shuffled":
            what = [_named(report, row.comparison, row.arm), row.positions]
            what += [
                " / ".join(f"{mean:.2f}" for mean in probes.get(name, [])) or "-"
                for name in _BY_LAYER
            ]
            what += [
                " / ".join(f"{mean:.3g}" for mean in probes.get(name, [])) or "-"
                for name in _AT_LAST
            ]
            rows.append(what)
    if not rows:
        return "No trial has ended."
    head = [
        "arm",
        "positions",
        "entropy (bits) by layer",
        "distance (places) by layer",
        "spread by layer",
    ]
    note = (
        "Means over trials, at the last budget. *Spread*: distance of the nodes to their mean "
        "over their norm. "
        "*Effective nodes*: participation number of the readout's gradient. *Along full*: the "
        "score along a graph that "
        "it was not trained on."
    )
    return f"{table([*head, 'effective nodes', 'along full'], rows)}\n\n{note}"


_BY_LAYER, _AT_LAST = ("entropy", "distance", "spread"), ("effective_nodes", "along_full")


def _code(text: str) -> str:
    """A line of code, within more backticks than it has in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    if fence == "`":
        return f"{fence}{text}{fence}"
    return f"{fence} {text} {fence}"


def _made_by(report: Report) -> str:
    machine = report.plan["machine"]
    versions = ", ".join(
        f"{name} {version}" for name, version in machine["versions"].items() if version
    )
    command = f"{_code(report.plan['command'])}\n\n" * bool(report.plan["command"])
    where = f"{verbatim(machine['processor'])}, {machine['cores']} cores, {machine['date']}"
    kept = report.records
    chain = (
        f"{kept.path.name} has {_count(len(kept.chain), 'line')}, the last of hash "
        f"{kept.last or '-'}"
    )
    return f"{command}{where}; {report.cpu_hours:.2f} CPU hours; {versions}; {chain}."
