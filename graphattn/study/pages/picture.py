"""A study as a figure: scores over training examples or by arm, every seed, the 95 % interval."""

import math
import textwrap
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ...viz.style import EDGE, FAINT, GROUND, HIGHLIGHTS, INK, TEXT, empty_figure
from ..controls import DRAWN
from ..judging.fits import UNFIT
from ..metrics import METRICS
from .results import ArmRow, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Panel = tuple[str, str, str]  # comparison, positions, what is equal
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
_GAP = 6  # pixels between the titles of two panels


class Sheet(NamedTuple):
    """The space for a figure.

    Inches, points of its text and of its smallest text, panels side by side, columns of a legend,
    and letters in a line of a title.
    """

    width: float
    text: float
    small: float
    across: int
    columns: int
    letters: int


SHEET = Sheet(6.9, TEXT, TEXT - 1, 2, 4, 60)
COLUMN = Sheet(3.25, 8, 8, 1, 2, 28)
"""One of two columns of a paper: every word in 8 points."""


def draw(results: Results, sheet: Sheet = SHEET) -> "Figure":
    """The study's own figure if it has one; else curves, or a row per arm.

    Curves are over the parts of the test where all comparisons have several, or over numbers of
    examples.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    if results.figure is not None:
        return results.figure(results)
    panels: dict[Panel, list[ArmRow]] = {}
    for row in results.rows:
        about = results.plan["comparisons"][row.comparison]
        if row.scores and row.metric == about["metric"]:
            equal = about["budgets"][row.budget]["equal"]
            panels.setdefault((row.comparison, row.positions, equal), []).append(row)
    parts = [len(about.get("groups", [])) for about in results.plan["comparisons"].values()]
    if panels and min(parts) > 1:
        figure = _over_groups(results, panels, sheet)
    elif len({row.examples for row in results.rows}) > 1:
        figure = _curves(results, panels, sheet)
    else:
        figure = _rows(results, panels, sheet)
    _wrap_titles(figure)
    return figure


def _wrap_titles(figure: Any) -> None:
    """Break the titles of panels that would run into the next one, or out of the figure."""
    figure.draw_without_rendering()
    starts = [ax.get_window_extent().x0 for ax in figure.axes]
    for ax, start in zip(figure.axes, starts, strict=True):
        right_of = [other - _GAP for other in starts if other > start + 1]
        end = min([*right_of, figure.bbox.x1])
        words = ax.get_title(loc="left")
        title = ax.findobj(lambda part, words=words: _is_title(part, words))[-1]
        letters = max(map(len, words.splitlines()), default=0)
        while letters > 1 and title.get_window_extent().x1 > end:
            letters -= 1
            title.set_text(textwrap.fill(" ".join(words.split()), letters))


def _is_title(part: Any, words: str) -> bool:
    """True if a part of a panel is its title: labels of axes are centred."""
    is_text = hasattr(part, "get_text") and part.get_text() == words
    return is_text and part.get_horizontalalignment() == "left"


def axes(figure: Any, place: Any, title: str, sheet: Sheet = SHEET, **shared: Any) -> Any:
    """Quiet axes with a title to the left."""
    ax = figure.add_subplot(*place, **shared)
    ax.set_title(textwrap.fill(title, sheet.letters), fontsize=sheet.text, color=INK, loc="left")
    ax.tick_params(labelsize=sheet.small, colors=INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.set_axisbelow(True)
    return ax


def _title(results: Results, comparison: str, positions: str, equal: str) -> str:
    words = {
        "none": "no positions",
        "learned": "learned positions",
        "relative": "relative positions",
    }
    setting = words.get(positions, f"positions: {positions}") + f", equal {equal}" * (
        equal != "steps"
    )
    if len(results.plan["comparisons"]) == 1:
        return setting
    return f"{verbatim(comparison)}, {setting}"


def verbatim(name: str) -> str:
    """A name as plain text: without mathematics, and shown in legends despite an underscore."""
    return " " * name.startswith("_") + name.replace("$", r"\$")


def style_of(rows: list[ArmRow]) -> dict[str, dict[str, Any]]:
    """Styles of arms: a colour for an arm and its controls, a marker and a line for the kind."""
    colours = {"full": INK, "self": EDGE, "shuffled": GROUND}
    arms = list(dict.fromkeys(row.arm for row in rows if row.prediction["kind"] == "arm"))
    styles = {}
    for row in rows:
        kind = row.prediction["kind"]
        of = row.prediction["of"]
        colour = colours.get(kind) or HIGHLIGHTS[arms.index(of) % len(HIGHLIGHTS)]
        marker, line = _KINDS[kind]
        hollow = kind in DRAWN
        styles[row.arm] = {
            "color": colour,
            "marker": marker,
            "linestyle": line,
            "mfc": "white" if hollow else colour,
        }
    return styles


def _reference_lines(about: dict[str, Any], draw: Any) -> None:
    """Plain methods on the same data, each with dashes of its own, and chance."""
    for number, (label, score) in enumerate(_plain_methods(about).items()):
        draw(
            score,
            color=EDGE,
            linewidth=0.9,
            linestyle=_DASHES[number % len(_DASHES)],
            label=verbatim(label),
        )
    if about["metric"] == "accuracy":
        draw(about["chance"], color=GROUND, linewidth=0.9, linestyle=":", label="chance")


def _plain_methods(about: dict[str, Any]) -> dict[str, float]:
    """Scores of plain methods: the study's own, and means over seeds."""
    means = {name: fmean(of.values()) for name, of in about.get("plain", {}).items()}
    return about["baselines"] | means


def _ticks(values: list[int]) -> list[str]:
    """Labels on a log scale; none where the next one is too near."""
    near = 0.16 * math.log(values[-1] / values[0])
    following = [*values[1:], math.inf]
    return [
        f"{a:,}" if math.log(b / a) > near else "" for a, b in zip(values, following, strict=True)
    ]


def _curves(results: Results, panels: dict[Panel, list[ArmRow]], sheet: Sheet) -> "Figure":
    """Score over training examples, a panel for each comparison and positions."""
    down = -(-len(panels) // sheet.across)
    across = min(sheet.across, len(panels))
    figure = empty_figure(None, sheet.width, (3.0 if sheet.across > 1 else 2.4) * down + 0.5)
    styles = style_of(results.rows)
    of_metric: dict[str, Any] = {}  # the first panel of each, with which others share a scale
    for number, ((comparison, positions, equal), rows) in enumerate(panels.items(), 1):
        about = results.plan["comparisons"][comparison]
        metric = about["metric"]
        ax = axes(
            figure,
            (down, across, number),
            _title(results, comparison, positions, equal),
            sheet,
            sharey=of_metric.get(metric),
        )
        of_metric.setdefault(metric, ax)
        for place, (name, style) in enumerate(styles.items()):
            rows_of_arm = [row for row in rows if row.arm == name]
            if not rows_of_arm or rows_of_arm[0].prediction["kind"] == "shuffled":
                continue
            x = [row.examples or _all_examples(results, row) for row in rows_of_arm]
            intervals = [row.interval for row in rows_of_arm if row.interval is not None]
            y = [i.value for i in intervals]
            bars = [
                [_half(i.value, i.low) for i in intervals],
                [_half(i.high, i.value) for i in intervals],
            ]
            line = {**style, "markersize": 4.5, "linewidth": 1.3, "capsize": 2, "elinewidth": 0.8}
            at = [value * 1.02 ** (place - len(styles) / 2) for value in x]
            label = _with_fit(results, verbatim(name), rows_of_arm[-1])
            ax.errorbar(at, y, yerr=bars, label=label, **line)
        _reference_lines(about, ax.axhline)
        ax.set_xscale("log")
        ticks = sorted({row.examples or _all_examples(results, row) for row in rows})
        ax.set_xticks(ticks, _ticks(ticks))
        ax.minorticks_off()
        ax.grid(True, color=FAINT, linewidth=0.6)
        ax.set_xlabel("training examples", fontsize=sheet.text)
        if number % across == 1 % across:
            ax.set_ylabel(METRICS[metric].words, fontsize=sheet.text)
    _legend(figure, results, sheet)
    return figure


def _over_groups(results: Results, panels: dict[Panel, list[ArmRow]], sheet: Sheet) -> "Figure":
    """Score on each part of the test, at the last budget: a panel for each comparison."""
    rows_of: dict[str, list[ArmRow]] = {}
    for rows in panels.values():
        for row in rows:
            last = len(results.plan["comparisons"][row.comparison]["budgets"]) - 1
            if row.budget == last and row.prediction["kind"] != "shuffled":
                rows_of.setdefault(row.comparison, []).append(row)
    down = -(-len(rows_of) // sheet.across)
    across = min(sheet.across, len(rows_of))
    figure = empty_figure(None, sheet.width, (3.0 if sheet.across > 1 else 2.4) * down + 0.5)
    of_metric: dict[str, Any] = {}  # the first panel of each, with which others share a scale
    styles = _styles_of_lines([row for rows in rows_of.values() for row in rows])
    lines: dict[str, Any] = {}
    for number, (comparison, rows) in enumerate(rows_of.items(), 1):
        about = results.plan["comparisons"][comparison]
        metric = about["metric"]
        place = (down, across, number)
        ax = axes(figure, place, verbatim(comparison), sheet, sharey=of_metric.get(metric))
        of_metric.setdefault(metric, ax)
        names = about["groups"]
        for row in rows:
            intervals = [results.of_group(row, name).interval for name in names]
            points = [(x, i) for x, i in enumerate(intervals) if i is not None]
            low = [_half(i.value, i.low) for _, i in points]
            high = [_half(i.high, i.value) for _, i in points]
            label = f"{verbatim(row.arm)}, {row.positions}"
            lines[label] = ax.errorbar(
                [x for x, _ in points],
                [i.value for _, i in points],
                yerr=[low, high],
                markersize=4.5,
                linewidth=1.3,
                capsize=2,
                elinewidth=0.8,
                **styles[row.arm, row.positions],
            )
        if about["metric"] == "accuracy":
            ax.axhline(about["chance"], color=GROUND, linewidth=0.9, linestyle=":")
        ax.set_xticks(range(len(names)), [verbatim(name) for name in names])
        ax.grid(True, color=FAINT, linewidth=0.6)
        ax.set_xlabel("part of the test", fontsize=sheet.text)
        if number % across == 1 % across:
            ax.set_ylabel(METRICS[metric].words, fontsize=sheet.text)
    _below(figure, [*lines.values()], [*lines], sheet)
    return figure


def _styles_of_lines(rows: list[ArmRow]) -> dict[tuple[str, str], dict[str, Any]]:
    """A marker and line for each arm, a colour for each of its positions."""
    arms = list(dict.fromkeys(row.arm for row in rows))
    positions = list(dict.fromkeys(row.positions for row in rows))
    if len(positions) == 1:
        return {(arm, positions[0]): style for arm, style in style_of(rows).items()}
    marks = list(_KINDS.values())
    styles = {}
    for arm in arms:
        marker, line = marks[arms.index(arm) % len(marks)]
        for kind in positions:
            colour = HIGHLIGHTS[positions.index(kind) % len(HIGHLIGHTS)]
            styles[arm, kind] = {"color": colour, "marker": marker, "linestyle": line}
    return styles


def _half(above: float, below: float) -> float:
    """The length of one side of an interval; 0 without one."""
    if math.isnan(above - below):
        return 0.0
    return above - below


def _all_examples(results: Results, row: ArmRow) -> int:
    """The number of training examples where a budget names none."""
    about = results.plan["comparisons"][row.comparison]
    return int(about["samples"] - about.get("held", row.answers))


def _legend(figure: Any, results: Results, sheet: Sheet) -> None:
    """A legend of the first panel: arms, then lines across it, and what the mark says."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    # matplotlib names lines first
    bars = len([handle for handle in handles if hasattr(handle, "has_yerr")])
    handles, labels = (x[-bars:] + x[:-bars] for x in (handles, labels))
    named = dict(zip(labels, handles, strict=True)) | _key_of_mark(results)
    _below(figure, [*named.values()], [*named], sheet)


def _key_of_mark(results: Results) -> dict[str, Any]:
    """The legend's line of the mark of arms that did not fit, if there is such an arm."""
    from matplotlib.lines import Line2D

    if not any(_is_unfit(results, row) for row in results.rows):
        return {}
    mark = Line2D([], [], linestyle="none", marker=f"${_UNFIT_MARK}$", color=INK, markersize=6)
    return {UNFIT: mark}


def _below(figure: Any, handles: list[Any], labels: list[str], sheet: Sheet) -> None:
    """A legend in as many columns as fit the width."""
    if sheet.across == 1:
        spaces = {"handlelength": 1.6, "columnspacing": 1.0}
    else:
        spaces = {}
    for columns in range(min(sheet.columns, len(labels)), 0, -1):
        options = {"ncols": columns, "fontsize": sheet.small, **spaces}
        legend = figure.legend(
            handles, labels, loc="outside lower center", frameon=False, **options
        )
        figure.draw_without_rendering()
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def _rows(results: Results, panels: dict[Panel, list[ArmRow]], sheet: Sheet) -> "Figure":
    """A row for each arm: seeds, mean, interval and ceiling; a scale for each metric."""
    most = max(map(len, panels.values()))
    down = -(-len(panels) // sheet.across)
    across = min(sheet.across, len(panels))
    figure = empty_figure(
        None, sheet.width, (_ROW * most + 0.7) * down + (0.35 if across > 1 else 0.6)
    )
    of_metric: dict[str, Any] = {}  # the first panel of each, with which others share a scale
    left = [""]
    styles = style_of(results.rows)
    handles: dict[str, Any] = {}
    for number, ((comparison, positions, equal), rows) in enumerate(panels.items(), 1):
        about = results.plan["comparisons"][comparison]
        metric = about["metric"]
        ax = axes(
            figure,
            (down, across, number),
            _title(results, comparison, positions, equal),
            sheet,
            sharex=of_metric.get(metric),
        )
        of_metric.setdefault(metric, ax)
        for y, row in enumerate(rows):
            _row(ax, y, row, styles[row.arm])
        _reference_lines(about, ax.axvline)
        names = [_with_fit(results, verbatim(name_among(rows, row)), row) for row in rows]
        ax.set_yticks(
            range(len(rows)), [] if number % across != 1 % across and names == left else names
        )
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.grid(True, axis="x", color=FAINT, linewidth=0.6)
        ax.set_xlabel(METRICS[metric].words, fontsize=sheet.text)
        left = names
        handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True)) | handles
    handles |= _key_of_mark(results)
    _below(
        figure, list(handles.values()), list(handles), sheet._replace(columns=min(3, sheet.columns))
    )
    return figure


def _is_unfit(results: Results, row: ArmRow) -> bool:
    """True if an arm did not fit; shuffled labels are not to be fitted."""
    kind = row.prediction["kind"]
    return kind != "shuffled" and bool(row.scores) and results.fit(row).failed


def _with_fit(results: Results, name: str, row: ArmRow) -> str:
    """The name of an arm, with a mark if it did not fit."""
    if _is_unfit(results, row):
        return f"{name} {_UNFIT_MARK}"
    return name


def name_among(rows: list[ArmRow], row: ArmRow) -> str:
    """The name of an arm, with its steps where it has several budgets."""
    steps = {other.steps for other in rows if other.arm == row.arm}
    if len(steps) == 1:
        return row.arm
    return f"{row.arm}, {row.steps:,} steps"


def _row(ax: Any, y: int, row: ArmRow, style: dict[str, Any]) -> None:
    interval = row.interval
    scores = list(row.scores.values())
    ceiling = row.ceiling
    assert interval is not None
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
    if ceiling is not None:
        ax.plot(
            [ceiling],
            [y],
            "|",
            color=INK,
            markersize=11,
            markeredgewidth=1.3,
            label="ceiling (predicted)",
        )
