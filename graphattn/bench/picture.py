"""A run as a picture: time against the number of edges for a sweep, otherwise ratios, one line for each graph."""

from typing import TYPE_CHECKING, Any

from ..errors import OptionError
from ..viz.style import FAINT, GROUND, HIGHLIGHTS, INK, TEXT, empty_figure
from .clock import quartiles
from .problem import BOTH, FORWARD, MODES
from .report import Report
from .result import Case, threads

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colour and marker of everyone who is drawn: of ours, the choice alone.
STYLES = {
    "auto": (HIGHLIGHTS[0], "o"),
    "PyG": (HIGHLIGHTS[1], "s"),
    "PyG compiled": (HIGHLIGHTS[5], "D"),
    "SDPA + mask": (HIGHLIGHTS[2], "^"),
    "SDPA": (INK, "v"),
    "FlexAttention": (HIGHLIGHTS[3], "P"),
    "Swin by hand": (HIGHLIGHTS[4], "X"),
    "gather by hand": ("#6a3d9a", "<"),
    "DGL": ("#7f6000", ">"),
}
LABELS = {"auto": "graphattn"}
APART = 11.0  # points between two labels


def draw(report: Report) -> "Figure":
    """The picture of a report.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        OptionError: If nothing was timed.
    """
    cases = [case for case in report.cases if any(row.last for row in case.rows if row.name in STYLES)]
    if not cases:
        raise OptionError("no peer could be timed, so there is nothing to draw; the table says why")
    families: dict[str, list[Case]] = {}
    for case in cases:
        families.setdefault(case.name.partition(" ")[0], []).append(case)
    sweep = max(map(len, families.values())) > 1
    figure = _sweeps(families) if sweep else _ratios(cases)
    where = report.machine
    sizes = sorted({f"H={c.sizes['heads']} D={c.sizes['head_dim']} {c.sizes['dtype']}" for c in cases})
    machine = f"{where.get('gpu') or where['processor']}, {threads(where['threads'])}"
    what = f"{', '.join(sizes)}; medians and quartiles; {machine}, torch {where['versions']['torch']}"
    figure.supxlabel(what, fontsize=TEXT - 1, color=INK)
    return figure


def _axes(figure: Any, place: Any, title: str, **shared: Any) -> Any:
    ax = figure.add_subplot(place, **shared)
    ax.set_title(title, fontsize=TEXT + 1, color=INK, loc="left")
    ax.grid(True, which="major", color=FAINT, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=TEXT, colors=INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def _sweeps(families: dict[str, list[Case]]) -> "Figure":
    figure = empty_figure(None, 9.6, 3.8 * len(families))
    grid = figure.add_gridspec(len(families), 2)
    drawn = []
    for i, (name, cases) in enumerate(families.items()):
        first = None
        for j, mode in enumerate(MODES):
            ax = _axes(figure, grid[i, j], f"{name}, {mode}", **({} if first is None else {"sharey": first}))
            first = first or ax
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("edges", fontsize=TEXT)
            if j == 0:
                ax.set_ylabel("time (ms)", fontsize=TEXT)
            drawn.append((ax, _lines(ax, sorted(cases, key=lambda case: case.edges), mode)))
    for ax, _ in drawn:
        left, right = ax.get_xlim()
        ax.set_xlim(left, right * (right / left) ** 0.42)  # room for the labels
    figure.draw_without_rendering()
    for ax, ends in drawn:
        _label(ax, ends)
    return figure


def _lines(ax: Any, cases: list[Case], mode: str) -> list[tuple[str, str, float, float]]:
    """Draw everyone, and tell where each line ends: (label, colour, edges, ms)."""
    ends: list[tuple[str, str, float, float]] = []
    floor = [case.floor_ms[mode] for case in cases]
    edges = [case.edges for case in cases]
    ax.plot(edges, floor, color=GROUND, linestyle=(0, (2, 2)), linewidth=1.2)
    ends.append(("memory floor", "#6b7683", edges[-1], floor[-1]))
    for name, (colour, marker) in STYLES.items():
        points = [
            (case.edges, *quartiles(row.times_ms[mode]))
            for case in cases
            if (row := case.row(name)) is not None and row.times_ms.get(mode)
        ]
        if not points:
            continue
        x, low, middle, high = zip(*points, strict=True)
        wide = 2.4 if name == "auto" else 1.3
        ax.plot(x, middle, color=colour, marker=marker, markersize=5, linewidth=wide, zorder=3 if name == "auto" else 2)
        ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        ends.append((LABELS.get(name, name), colour, x[-1], middle[-1]))
    return ends


def _label(ax: Any, ends: list[tuple[str, str, float, float]]) -> None:
    """A label right of the last point of each line, moved up or down where two would overlap."""
    points_per_pixel = 72 / ax.figure.get_figure(root=True).dpi
    edge = max(x for _, _, x, _ in ends)
    at = [ax.transData.transform((x, y))[1] * points_per_pixel for _, _, x, y in ends]
    order = sorted(range(len(ends)), key=at.__getitem__)
    placed = _spread([at[i] for i in order])
    for i, y in zip(order, placed, strict=True):
        text, colour, x, ms = ends[i]
        right = (ax.transData.transform((edge, ms))[0] - ax.transData.transform((x, ms))[0]) * points_per_pixel
        ax.annotate(
            text,
            (x, ms),
            xytext=(right + 14, y - at[i]),
            textcoords="offset points",
            va="center",
            fontsize=TEXT,
            color=colour,
            fontweight="bold" if text == "graphattn" else "normal",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6, "shrinkA": 0, "shrinkB": 4},
        )


def _spread(heights: list[float]) -> list[float]:
    """Ascending heights at least ``APART`` apart, moved as little as need be: clusters keep their middle.

    Example:
        >>> _spread([0.0, 1.0, 50.0])
        [-5.0, 6.0, 50.0]
    """
    groups: list[tuple[float, int]] = []  # middle, members
    for height in heights:
        groups.append((height, 1))
        while len(groups) > 1:
            (low, few), (high, more) = groups[-2:]
            if high - low >= APART * (few + more) / 2:
                break
            groups[-2:] = [((low * few + high * more) / (few + more), few + more)]
    return [middle + APART * (i - (count - 1) / 2) for middle, count in groups for i in range(count)]


def _ratios(cases: list[Case]) -> "Figure":
    """How many times our time everyone takes; a row for each graph, the first on top."""
    figure = empty_figure(None, 9.6, 1.9 + 0.36 * len(cases))
    grid = figure.add_gridspec(1, 2)
    first = None
    for j, mode in enumerate((FORWARD, BOTH)):
        ax = _axes(figure, grid[0, j], mode, **({} if first is None else {"sharex": first, "sharey": first}))
        first = first or ax
        ax.set_xscale("log")
        ax.set_xlabel("times the time of graphattn", fontsize=TEXT)
        ax.axvline(1.0, color=STYLES["auto"][0], linewidth=2.0, zorder=1)
        for name, (colour, marker) in STYLES.items():
            rows = [(i, case, case.row(name)) for i, case in enumerate(cases)]
            ratios = [(case.ratio(row, mode), -i) for i, case, row in rows if row is not None]
            x = [ratio for ratio, _ in ratios if ratio is not None]
            y = [place for ratio, place in ratios if ratio is not None]
            if not x:
                continue
            style = {"color": colour, "marker": marker, "markersize": 6, "linestyle": "none"}
            ax.plot(x, y, label=LABELS.get(name, name), zorder=3, **style)
        ax.set_yticks([-i for i in range(len(cases))], [case.name for case in cases])
        ax.tick_params(labelleft=j == 0)
    handles, labels = first.get_legend_handles_labels()  # type: ignore[union-attr]
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=TEXT)
    return figure
