"""Colours, sizes and the empty figure. Headless and safe in threads: no pyplot, no global state."""

import io
import math
import re
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import GraphError, need_extra
from .colours import SIGNED, Colouring

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Style = dict[str, Any]
"""Keyword arguments with which matplotlib draws."""
# Okabe & Ito (2008), "Color Universal Design": distinct for every common kind of colour vision.
HIGHLIGHTS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")  # a second channel beside the colour
INK, GROUND, FAINT, EDGE = "#1f2933", "#aeb8c4", "#e3e7ec", "#7b8794"
# of a mask, weak to strong; where there is no edge it is white
SHARES = (
    "#9dbbe2",
    "#3c6aa8",
    "#0b1c33",
)
# pale is weak; lightness alone distinguishes them
WEIGHTS = (
    "#d3dff0",
    "#7aa5d8",
    "#2b62a8",
    "#0b1c33",
)
HEAT = ("#f0e7d6", "#f9c878", "#ea7a35", "#9c1d20")  # of surfaces, which are grey: weak to strong
LINES = ("#2b62a805", "#0b1c33ff")  # of lines that cross: as opaque as they are strong
_SIGNED_LINES = ("#0b4a8fff", "#7b879405", "#9c3d06ff")
TEXT = 9  # points
_MOST_LETTERS = 14
_NARROW = 5.0  # inches
_ROW = 1.4  # lines of text that a row of a legend takes
_ABOVE = 1.01  # 1 and what half precision rounds it to
_WEAK = 0.2  # of the scale: pale

_MOST_NAMED = 16


def number(count: int) -> str:
    """``1,234,567``."""
    return f"{count:,}"


def plain(words: str) -> str:
    """Words of users as they are: matplotlib would read ``$x$`` as a formula."""
    return words.replace("$", r"\$")


def fitting(name: str) -> str:
    """The name of a node in a picture: its first letters, where it is long."""
    if len(name) <= _MOST_LETTERS:
        return plain(name)
    return plain(f"{name[: _MOST_LETTERS - 1]}…")


def width_of(figure: Any) -> float:
    """Inches."""
    return float(figure.bbox.width / figure.get_figure(root=True).dpi)


def is_narrow(figure: Any) -> bool:
    """True of a figure about as wide as a column of a paper: words are fewer there."""
    return width_of(figure) < _NARROW


def empty_figure(figure: Any, width: float, height: float) -> "Figure":
    """The caller's figure, constrained if it has no layout, or a new one, sizes in inches.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        GraphError: If ``figure`` is not a matplotlib figure, or already holds axes.
    """
    try:
        from matplotlib.figure import Figure, FigureBase
    except ImportError as error:
        raise need_extra("matplotlib", "plot") from error
    if figure is None:
        return Figure(figsize=(width, height), layout="constrained", facecolor="white", dpi=110)
    if not isinstance(figure, FigureBase):
        raise GraphError(
            f"figure must be a matplotlib Figure or SubFigure, got {type(figure).__name__}"
        )
    num_axes = len(list(figure.axes))  # type: ignore[call-overload]
    if num_axes:
        raise GraphError(
            f"figure must be empty, this one has {num_axes} axes; pass one of figure.subfigures()"
        )
    root = figure.get_figure(root=True)
    if root is not None and root.get_layout_engine() is None:
        root.set_layout_engine("constrained")  # or labels are cut off
    return figure  # type: ignore[return-value]


def titled(figure: Any, title: str | None, sentences: list[str], below: int = 0) -> None:
    """A title above, unless it is ``None``, and a caption below, wrapped to the figure.

    ``below`` rows of a legend stand under the caption: matplotlib puts both at the same place.
    """
    columns = int(width_of(figure) * 14)
    if is_narrow(figure):
        size = TEXT
    else:
        size = TEXT + 2
    if title is not None:
        lines = broken(title, int(columns * 0.8 * (TEXT + 2) / size))
        figure.suptitle(plain(lines), fontsize=size, color=INK)
    if sentences:
        lines = textwrap.fill(" ".join(sentences), columns) + "\n" * math.ceil(_ROW * below)
        figure.supxlabel(plain(lines), fontsize=TEXT, color=INK)
    root = figure.get_figure(root=True)
    if (layout := root.get_layout_engine()) is not None:
        layout.execute(root)  # it settles the second time, when equal aspects are known


class Words(NamedTuple):
    """The words of a picture: sentences below, a line above, names of colours."""

    caption: bool = True
    title: bool = True
    legend: bool = True

    def put(self, figure: Any, title: str, sentences: list[str], below: int = 0) -> None:
        """Write the title and the caption that are asked for, above rows of a legend."""
        heading = None
        if self.title:
            heading = title
        words = []
        if self.caption:
            words = sentences
        titled(figure, heading, words, below)


def png(figure: Any, dpi: int = 110) -> bytes:
    """The bytes of a figure as a PNG file: of a page, ``base64.b64encode(png(figure))``."""
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=dpi)
    return raw.getvalue()


def panels(figure: Any, dpi: int = 110) -> list[tuple[bytes, int]]:
    """The panels of a figure as PNG files, and the width of each in pixels of 96 to an inch: a page
    puts them below each other where it is narrow.
    """
    from PIL import Image  # comes with matplotlib

    whole = Image.open(io.BytesIO(png(figure, dpi)))
    files = []
    for ax in figure.axes:
        box = ax.get_tightbbox().padded(4).transformed(figure.dpi_scale_trans.inverted())
        left, right = (round(dpi * x) for x in (box.x0, box.x1))
        top, bottom = (whole.height - round(dpi * y) for y in (box.y1, box.y0))
        sides = max(left, 0), max(top, 0), min(right, whole.width), min(bottom, whole.height)
        raw = io.BytesIO()
        whole.crop(sides).save(raw, format="png")
        files.append((raw.getvalue(), round(96 * (sides[2] - sides[0]) / dpi)))
    return files


def broken(title: str, columns: int) -> str:
    """A title in lines of at most ``columns`` letters, broken between phrases if it can be.

    Example:
        >>> print(broken("causal(9) | global_tokens(9, [0, 1]): 9 nodes, 50 edges", 25))
        causal(9) |
        global_tokens(9, [0, 1]):
        9 nodes, 50 edges
    """
    if len(title) <= columns:
        return title
    name, _, facts = title.rpartition(": ")
    lines: list[str] = []
    for part in filter(None, (f"{name}:" * bool(name), facts)):
        first = len(lines)
        for phrase in re.split(r"(?<= [-|&@]) |(?<=,) (?![^()]*\))", part):
            if len(lines) > first and len(lines[-1]) + 1 + len(phrase) <= columns:
                lines[-1] += f" {phrase}"
            else:
                lines += textwrap.wrap(phrase, columns)
    return "\n".join(lines)


def shades(*colours: str) -> Any:
    """A colour map through these colours, evenly spaced."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("shades", colours)


def weight_scale(
    values: Any, relative: bool, colours: tuple[str, ...] = WEIGHTS
) -> tuple[Any, list[str]]:
    """A map from values to colours, and sentences on it.

    From 0 to 1, so that a head that reads evenly and one that reads one source look unlike; to the
    largest value where that is asked for, or where one is above 1, as without a softmax. With
    values below 0 it goes as far below 0.

    Args:
        values: float (n,): the values drawn; NaN for none.
        relative: True to make the largest value the darkest.
        colours: From weak to strong.
    """
    import numpy as np
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    values = np.nan_to_num(values)
    largest = float(abs(values).max(initial=0.0))
    if relative or largest > _ABOVE:
        top = largest or 1.0
    else:
        top = 1.0
    signed = bool((values < 0).any())
    shown = shades(*((_SIGNED_LINES if colours is LINES else SIGNED) if signed else colours))
    sentences = []
    if 0 < largest < _WEAK * top:
        sentences.append(f"The largest value is {largest:.2g}; relative=True makes it the darkest.")
    return ScalarMappable(
        Normalize(-top if signed else 0.0, top), shown.with_extremes(bad="white")
    ), sentences


def weight_bar(figure: Any, scale: Any, axes: Any, label: str, **where: Any) -> None:
    """The colours of weights beside what they colour."""
    bar = figure.colorbar(scale, ax=axes, **where)
    bar.set_label(label, fontsize=TEXT)
    bar.ax.tick_params(labelsize=TEXT - 1)
    bar.outline.set_visible(False)


def layer_shades(count: int) -> Any:
    """RGBA (count, 4) of layers: the first, whose sources are nearest, the darkest."""
    import numpy as np

    return shades(*WEIGHTS)(1 - 0.85 * np.arange(count) / max(1, count - 1))


def quiet(ax: Any) -> None:
    """No frame and no ticks: for drawings whose coordinates mean nothing to the reader."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)


def scales(figure: Any, axes: list[Any], panels: list[Colouring]) -> None:
    """A scale beside the panels that share it."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    of: dict[Any, list[Any]] = {}
    for ax, colours in zip(axes, panels, strict=True):
        if colours.scale is not None:
            of.setdefault(colours.scale, []).append(ax)
    for (low, high, steps), shared in of.items():
        scale = ScalarMappable(Normalize(low, high), shades(*steps))
        bar = figure.colorbar(scale, ax=shared, shrink=0.7, pad=0.02, aspect=22)
        bar.ax.tick_params(labelsize=TEXT - 1)
        bar.outline.set_visible(False)


def handles_of(named: Iterable[tuple[str, str]]) -> list[Any]:
    """Handles of a legend of (name, colour), each once; of the first 16 where there are more."""
    from matplotlib.lines import Line2D

    style: Style = {"marker": "o", "linewidth": 0, "markersize": 7}
    handles = [
        Line2D([], [], color=colour, label=plain(name), **style)
        for name, colour in dict(named).items()
    ]
    if len(handles) > _MOST_NAMED:
        handles[_MOST_NAMED:] = [
            Line2D([], [], linewidth=0, label=f"and {len(handles) - _MOST_NAMED} more")
        ]
    return handles


def labels(ax: Any, named: Iterable[tuple[str, str]]) -> None:
    """A legend of (name, colour) beside a panel."""
    handles = handles_of(named)
    if handles:
        where: dict[str, Any] = {
            "loc": "center left",
            "bbox_to_anchor": (1.0, 0.5),
            "frameon": False,
        }
        ax.legend(handles=handles, fontsize=TEXT, handletextpad=0.1, **where)
