"""A study as a figure: scores over examples or parts of the test, or by arm, with every seed."""

import math
import textwrap
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..viz.style import EDGE, FAINT, GROUND, HIGHLIGHTS, INK, TEXT, Style, empty_figure, plain
from .arms import DRAWN
from .data import METRICS
from .judge import UNFIT
from .records import Entry
from .table import ArmRow, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Marker and line of each kind of arm.
_KINDS: dict[str, tuple[str, Any]] = {
    "arm": ("o", "-"),
    "full": ("^", "-"),
    "self": ("s", "-"),
    "rewired": ("v", (0, (5, 1.5))),
    "permuted": ("D", (0, (1, 1.2))),
    "in-degrees": ("<", (0, (3, 1.5))),
    "reach-matched": (">", (0, (3, 1, 1, 1))),
    "shuffled": ("x", ":"),
}
_DASHES: tuple[Any, ...] = ((0, (4, 2)), (0, (8, 2, 1, 2)), (0, (2, 3)))  # of baselines
_ROW = 0.26  # inches: a row of an arm
_UNFIT_MARK = "\N{DAGGER}"  # behind the name of an arm that did not fit
_WIDE = 5.0  # inches, from which two panels stand side by side


def draw(results: Results, width: float = 6.9) -> "Figure":
    """The study's own figure if it has one; else lines, or a row for each arm.

    Lines are over the parts of the test where all comparisons have several, or over numbers of
    examples.

    Args:
        results: The study.
        width: Inches; 3.25 is a column of a paper.
    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    if results.figure is not None:
        return results.figure(results)
    rows = [row for row in results.rows if row.scores and row.metric == row.about["metric"]]
    over_groups = bool(rows) and all(len(row.about.get("groups", [])) > 1 for row in rows)
    over_examples = not over_groups and len({row.examples for row in rows}) > 1
    shared = "sharex"
    if over_groups or over_examples:
        shared = "sharey"
    panels: dict[str, list[ArmRow]] = {}
    for row in rows:
        if shared == "sharey" and row.kind == "shuffled":
            continue
        if over_groups and row.budget < len(row.about["budgets"]) - 1:
            continue
        panels.setdefault(_title(results, row, over_groups), []).append(row)
    across = min(2 if width >= _WIDE else 1, max(1, len(panels)))
    down = -(-len(panels) // across)
    height = 3.0
    if shared == "sharex":
        height = _ROW * max(map(len, panels.values()), default=1) + 0.7
    figure = empty_figure(None, width, height * down + 0.5)
    styles = style_of(rows)
    first: dict[str, Any] = {}  # the first panel of each metric, with which others share a scale
    for number, (title, of_panel) in enumerate(panels.items(), 1):
        about = of_panel[0].about
        metric = about["metric"]
        ax = axes(figure, (down, across, number), title, **{shared: first.get(metric)})
        first.setdefault(metric, ax)
        if over_groups:
            names = about["groups"]
            parts = [(r, [results.of_group(r, name) for name in names]) for r in of_panel]
            _lines(ax, [(_shown(f"{r.arm}, {r.positions}"), of, styles[r.arm]) for r, of in parts])
            ax.set_xticks(range(len(names)), list(map(plain, names)))
            ax.set_xlabel("part of the test", fontsize=TEXT)
        elif over_examples:
            by_arm: dict[str, list[ArmRow]] = {}
            for row in of_panel:
                by_arm.setdefault(row.arm, []).append(row)
            _lines(ax, [(_named(of[-1], arm), of, styles[arm]) for arm, of in by_arm.items()])
            _examples_axis(ax, of_panel)
        else:
            for y, row in enumerate(of_panel):
                _row(ax, y, row, styles[row.arm])
            names = [_named(row, _among(of_panel, row)) for row in of_panel]
            ax.set_yticks(range(len(of_panel)), names)
            ax.set_ylim(len(of_panel) - 0.4, -0.6)
        ax.grid(True, color=FAINT, linewidth=0.6)
        if shared == "sharey":
            ax.set_ylabel(METRICS[metric].words, fontsize=TEXT)
            _reference_lines(about, ax.axhline)
        else:
            ax.set_xlabel(METRICS[metric].words, fontsize=TEXT)
            _reference_lines(about, ax.axvline)
    _legend(figure, any(row.fit.failed for row in rows), 4 if across > 1 else 2)
    return figure


def axes(figure: Any, place: Any, title: str, **shared: Any) -> Any:
    """Quiet axes with a title to the left."""
    ax = figure.add_subplot(*place, **shared)
    letters = round(7 * figure.get_size_inches()[0] / place[1])
    ax.set_title(textwrap.fill(title, letters), fontsize=TEXT, color=INK, loc="left")
    ax.tick_params(labelsize=TEXT - 1, colors=INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.set_axisbelow(True)
    return ax


def _title(results: Results, row: ArmRow, of_comparison: bool) -> str:
    """The title of the panel of a row: its comparison, positions and what is equal."""
    parts = []
    if of_comparison or len(results.plan["comparisons"]) > 1:
        parts.append(plain(row.comparison))
    if not of_comparison:
        parts.append(f"positions: {row.positions}")
        equal = row.about["budgets"][row.budget]["equal"]
        if equal != "steps":
            parts.append(f"equal {equal}")
    return ", ".join(parts)


def style_of(rows: list[ArmRow]) -> dict[str, Style]:
    """Styles of arms: a colour for an arm and its controls, a marker and a line for the kind."""
    colours = {"full": INK, "self": EDGE, "shuffled": GROUND}
    arms = list(dict.fromkeys(row.arm for row in rows if row.kind == "arm"))
    styles = {}
    for row in rows:
        of = row.prediction["of"]
        colour = colours.get(row.kind) or HIGHLIGHTS[arms.index(of) % len(HIGHLIGHTS)]
        marker, line = _KINDS[row.kind]
        if row.kind in DRAWN:
            face = "white"
        else:
            face = colour
        styles[row.arm] = {"color": colour, "marker": marker, "linestyle": line, "mfc": face}
    return styles


def _lines(ax: Any, lines: list[tuple[str, list[ArmRow], Style]]) -> None:
    """Scores with intervals at x = 0, 1, ..., or over numbers of examples where they differ."""
    for label, rows, style in lines:
        over_examples = len({row.examples for row in rows}) > 1
        points = [
            (_examples(row) if over_examples else x, row.interval)
            for x, row in enumerate(rows)
            if row.interval is not None
        ]
        ends = [[i.value - i.low for _, i in points], [i.high - i.value for _, i in points]]
        bars = [[0.0 if math.isnan(half) else half for half in halves] for halves in ends]
        options = {**style, "markersize": 4.5, "linewidth": 1.3, "capsize": 2, "elinewidth": 0.8}
        y = [i.value for _, i in points]
        ax.errorbar([x for x, _ in points], y, yerr=bars, label=label, **options)


def _examples(row: ArmRow) -> int:
    """The number of training examples; all but the test where a budget names none."""
    return row.examples or int(row.about["samples"] - row.about.get("held", row.answers))


def _examples_axis(ax: Any, rows: list[ArmRow]) -> None:
    """A log scale with a label at each number of examples that is not too near the next."""
    ticks = sorted({_examples(row) for row in rows})
    near = 0.16 * math.log(ticks[-1] / ticks[0])
    following = [*ticks[1:], math.inf]
    labels = [
        f"{a:,}" if math.log(b / a) > near else "" for a, b in zip(ticks, following, strict=True)
    ]
    ax.set_xscale("log")
    ax.set_xticks(ticks, labels)
    ax.minorticks_off()
    ax.set_xlabel("training examples", fontsize=TEXT)


def _row(ax: Any, y: int, row: ArmRow, style: Style) -> None:
    """Seeds, mean, interval and ceiling of an arm."""
    interval = row.interval
    assert interval is not None
    scores = list(row.scores.values())
    colour = style["color"]
    seed = {"color": colour, "alpha": 0.4, "markersize": 3.5, "markeredgewidth": 0}
    ax.plot(scores, [y] * len(scores), "o", **seed, label="" if y else "a seed")
    if not math.isnan(interval.low):
        ax.errorbar(
            [interval.value],
            [y],
            xerr=[[interval.value - interval.low], [interval.high - interval.value]],
            fmt="none",
            ecolor=colour,
            elinewidth=1.2,
            capsize=4,  # higher than the diamond, which would cover a short interval
            label="" if y else "95 % interval",
        )
    mean = {**style, "marker": "D", "linestyle": "none", "markersize": 3.2}
    ax.plot([interval.value], [y], **mean, label="" if y else "mean")
    if row.ceiling is not None:
        bar = {"color": INK, "markersize": 11, "markeredgewidth": 1.3}
        ax.plot([row.ceiling], [y], "|", label="ceiling (predicted)", **bar)


def _reference_lines(about: Entry, line: Any) -> None:
    """Plain methods on the same data, each with dashes of its own, and chance."""
    means = {name: fmean(of.values()) for name, of in about.get("plain", {}).items()}
    for number, (label, score) in enumerate((about["baselines"] | means).items()):
        dashes = _DASHES[number % len(_DASHES)]
        line(score, color=EDGE, linewidth=0.9, linestyle=dashes, label=_shown(label))
    if about["metric"] == "accuracy":
        line(about["chance"], color=GROUND, linewidth=0.9, linestyle=":", label="chance")


def _shown(label: str) -> str:
    """A name as plain text, shown in legends despite an underscore."""
    return " " * label.startswith("_") + plain(label)


def _named(row: ArmRow, name: str) -> str:
    """The name of an arm, with a mark if it did not fit."""
    if row.fit.failed:
        return f"{_shown(name)} {_UNFIT_MARK}"
    return _shown(name)


def _among(rows: list[ArmRow], row: ArmRow) -> str:
    """The name of an arm, with its steps where it has several budgets."""
    steps = {other.steps for other in rows if other.arm == row.arm}
    if len(steps) == 1:
        return row.arm
    return f"{row.arm}, {row.steps:,} steps"


def _legend(figure: Any, has_unfit: bool, most: int) -> None:
    """A legend of all panels below them, in as many columns as fit the width."""
    from matplotlib.lines import Line2D

    named: dict[str, Any] = {}
    for ax in figure.axes:
        named = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True)) | named
    if has_unfit:
        named[UNFIT] = Line2D([], [], linestyle="none", marker=f"${_UNFIT_MARK}$", color=INK)
    for columns in range(min(most, len(named)), 0, -1):
        options = {"loc": "outside lower center", "frameon": False, "fontsize": TEXT - 1}
        legend = figure.legend([*named.values()], [*named], ncols=columns, **options)
        figure.draw_without_rendering()
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()
