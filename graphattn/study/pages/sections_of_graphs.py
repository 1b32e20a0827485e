"""Sections on graphs: predictions, controls, and the covariates in which graphs differ."""

from collections.abc import Sequence
from math import isclose
from statistics import stdev
from typing import Any

from ...graphs.of_graphs.controls import WITHIN
from ..controls import DRAWN
from ..metrics import METRICS
from ..page import Block, Table
from .cells import arm_name, examples_text, formatted
from .markdown import verbatim
from .results import ArmRow, Results

_CHECKS = 6  # that are shown
_BAG = "a bag of nodes"
_BY_COLOURS = "by colours"
_OF_COLOURS = (
    "*By colours*: two nodes whose inputs are alike have one state as long as each layer gives "
    "them the same states to read, each with the same share (colour refinement, 1-WL, with the "
    "classes that positions give to edges; with distances or hops on all pairs GD-WL), so that no "
    "model scores better than the best function of colours does. It is computed from what is held "
    "out, or from all samples where each seed draws a test of its own, which luck may then exceed. "
    "A perfect score is left out, and so are custom models."
)


def predictions_of(results: Results) -> list[Block]:
    """The predictions of every arm: reach, layers and ceilings."""
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
                arm_name(results, comparison, arm),
                f"{prediction['depends_on_least']:g} to {prediction['depends_on_most']:g} of "
                f"{prediction['nodes']:g}",
                reached,
                formatted(prediction["layers_needed"], "g"),
                _ceiling(prediction, about["positions"], about["metric"]),
            ]
        )
    head = ["arm", "a node depends on", "readout reaches", "layers until nothing is new", "ceiling"]
    note = [
        "*Readout reaches*: the share of what an answer may need; with a ceiling by law, of "
        "answers the share whose needs are all reached. A guess at the rest is right as often as "
        "the most frequent class is."
    ]
    ceilings = [row[-1] for row in rows]
    if any(_BAG in ceiling for ceiling in ceilings):
        note.append(
            "*A bag of nodes*: without positions no order can be told, whatever is trained."
        )
    if any(_BY_COLOURS in ceiling for ceiling in ceilings):
        note.append(_OF_COLOURS)
    note.append(
        "Of a control that is drawn, the first drawing; but where a law gives ceilings, every draw "
        "has its own, and their mean stands here, with the mean of what they reach."
    )
    return [Table(head, rows), " ".join(note)]


def _predicted_arms(results: Results) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (comparison, arm, prediction)
        for comparison, about in results.plan["comparisons"].items()
        for arm, prediction in about["arms"].items()
    ]


def _ceiling(prediction: dict[str, Any], positions: Sequence[str], metric: str) -> str:
    """The ceilings of an arm, by law and by colours, and that it is a bag of nodes if it is one."""
    by_colours = "{:.3f} " + _BY_COLOURS
    if METRICS[metric].sign < 0:
        by_colours = "at least {:.3f} " + _BY_COLOURS
    if prediction["kind"] in DRAWN:
        by_colours += ", first drawing"
    words = []
    if prediction["ceiling"] is not None:
        words.append(f"{prediction['ceiling']:.3f}")
    colours = prediction.get("colours", {})
    for of_positions, share in colours.items():
        words.append(_if_several(by_colours.format(share), of_positions, positions))
    if prediction["bag"] and "none" in positions:
        words.append(_if_several(_BAG, "none", positions))
    return ", ".join(words) or "-"


def _if_several(text: str, of_positions: str, positions: Sequence[str]) -> str:
    """A ceiling, with the positions that it is of where a comparison has several."""
    if len(positions) == 1:
        return text
    return f"{text} (positions {of_positions})"


def drawn_controls(results: Results) -> list[Block]:
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
                arm_name(results, row.comparison, row.arm),
                row.positions,
                examples_text(row.examples),
                _kept_properties(
                    prediction, results.plan["comparisons"][row.comparison]["samples"]
                ),
                f"{prediction['depends_on_mean']:.1f} ({of_arm['depends_on_mean']:.1f})",
                f"{row.draws}",
                formatted(row.of_draws, ".3f"),
                formatted(spread, ".3f"),
            ]
        )
    if not rows:
        return []
    head = ["control", "positions", "examples", "keeps", "a node depends on (the arm)"]
    head += ["drawings a seed", "sd of drawings", "sd of seeds"]
    note = (
        "A drawing is a random effect: each seed has drawings of its own, its score is their mean, "
        "and the interval over seeds is of both. Of one drawing for all seeds it is of that "
        "drawing alone. A control whose nodes depend on more than the arm's do, or on fewer, differs "
        "from it in reach, too; a permuted graph has the reach of its arm, and only its places are "
        "others."
    )
    return [Table(head, rows), " ".join([note, *_other_reach(results)])]


def _other_reach(results: Results) -> list[str]:
    """Sentences that name the drawn controls whose nodes depend on more, and on fewer."""
    more = []
    fewer = []
    for comparison, arm, prediction in _predicted_arms(results):
        if prediction["kind"] not in DRAWN:
            continue
        arms = results.plan["comparisons"][comparison]["arms"]
        ratio = prediction["depends_on_mean"] / arms[prediction["of"]]["depends_on_mean"]
        name = arm_name(results, comparison, arm)
        if ratio > 1 + WITHIN:
            more.append(name)
        elif ratio < 1 - WITHIN:
            fewer.append(name)
    named = (("more", more), ("fewer", fewer))
    return [f"Nodes depend on {word} in {'; '.join(arms)}." for word, arms in named if arms]


def _kept_properties(prediction: dict[str, Any], samples: int) -> str:
    """Properties that a drawn control keeps, and the number of graphs of which it keeps all."""
    properties = list(prediction.get("keeps") or ["-"])
    same = prediction.get("unchanged")
    if same:
        properties.append(f"all edges of {same:,} of {samples:,} graphs")
    return ", ".join(properties)


def checks_text(results: Results) -> str:
    """Asserts on every comparison, shuffled labels, equal starts, and failures, as a list."""
    lines = []
    about_of = results.plan["comparisons"]
    for name, about in about_of.items():
        for check, value in about["checks"].items():
            if value is True:
                result = "yes"
            else:
                result = f"{value:.1e}"
            lines.append(f"* {arm_name(results, name, check)}: {result}")
    if len(lines) > _CHECKS + 2:
        lines = [*lines[:_CHECKS], f"* and {len(lines) - _CHECKS} more like these"]
    for row in results.rows:
        if row.prediction["kind"] == "shuffled" and row.scores:
            if row.holds:
                outcome = "at chance"
            else:
                outcome = "**above chance**"
            lines.append(
                f"* {arm_name(results, row.comparison, row.arm)}, positions {row.positions}: "
                f"{outcome}, {row.interval} ({_chance_of(row, about_of[row.comparison])}, sd of a "
                f"seed {row.deviation:.3f})"
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


def _chance_of(row: ArmRow, about: dict[str, Any]) -> str:
    """Chance of shuffled labels; by node, where a class is more frequent at some than at others."""
    chance = row.prediction["ceiling"]
    overall = about["chance"]
    if about["readout"] != "node" or isclose(chance, overall, abs_tol=5e-4):
        return f"chance {chance:.3f}"
    return (
        f"chance {chance:.3f}, by the most frequent class of each node, which positions can learn; "
        f"{overall:.3f} by that of all"
    )


def covariates(results: Results) -> list[Block]:
    """Edges, degrees, spectra and costs of every arm's graphs."""
    universal = {True: "yes", False: "no", None: "open"}
    rows = []
    for comparison, arm, prediction in _predicted_arms(results):
        if prediction["kind"] == "shuffled":
            continue
        rows.append(
            [
                arm_name(results, comparison, arm),
                f"{prediction['edges']:,g}",
                f"{prediction['degree_least']:g} to {prediction['degree_most']:g}",
                formatted(prediction["spectral_gap"], ".3f"),
                _conductance(prediction),
                formatted(prediction.get("mean_resistance"), ".3g"),
                f"{prediction['roots']:g}",
                f"{prediction['strong_components']:g}",
                universal[prediction["universal"]],
                formatted(prediction["homophily"], ".2f"),
                formatted(prediction["operations"], ",.0f"),
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
