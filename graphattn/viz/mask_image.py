"""The mask as an image: targets are rows, sources are columns."""

from typing import Any

import numpy as np

from ..graph.graph import AttentionGraph
from ..graph.pictures.html import block_shares
from ..printed import counted
from .choice import can_walk
from .style import FAINT, HIGHLIGHTS, INK, SHARES, TEXT, Style, fitting, shades

_EXACT = 256  # nodes whose mask is shown pair by pair
_MOST_CELLS = 128  # a cell is larger than a pixel, so that no line of cells is lost
_LABELLED = 24  # nodes that get a tick and a label each


def draw_mask(
    figure: Any, ax: Any, graph: AttentionGraph, targets: list[int], names: Any = None
) -> list[str]:
    """Draw the mask; a cell of a large one shows which share of its pairs are edges.

    Args:
        figure: Where a colour bar goes.
        ax: Where the image goes.
        graph: Any graph; never built as T x S when it is large.
        targets: Rows to mark, in the order of the highlight colours.
        names: ``(target names, source names)`` for the ticks of a small mask, or ``None``.

    Returns:
        Sentences for the caption.
    """
    T = graph.num_targets
    S = graph.num_sources
    ax.set_xlabel("source", fontsize=TEXT)
    ax.set_ylabel("target", fontsize=TEXT)
    ax.tick_params(labelsize=TEXT - 1)
    if T == 0 or S == 0 or not can_walk(graph):
        if T * S == 0:
            text = f"no pairs:\n{T} targets, {S} sources"
        else:
            text = f"a rule over {T:,} x {S:,} pairs:\ntoo costly"
        ax.text(
            0.5,
            0.5,
            text,
            ha="center",
            va="center",
            transform=ax.transAxes,
            fontsize=TEXT,
            color=INK,
        )
        ax.set(xticks=[], yticks=[], aspect="equal")
        return []
    height, width = (1 if max(T, S) <= _EXACT else -(-size // _MOST_CELLS) for size in (T, S))
    share = block_shares(graph.edges, height, width).numpy()
    box = (-0.5, S - 0.5, T - 0.5, -0.5)
    if height == width == 1:
        # smaller than a pixel: blend, or single edges vanish
        fine = max(T, S) > _MOST_CELLS and _is_equal(T, S)
        interpolation = "nearest"
        if fine:
            interpolation = "auto"
        style: Style = {
            "interpolation": interpolation,
            "interpolation_stage": "rgba",
        }
        ax.imshow(share > 0, cmap=shades("white", "#2b4c7e"), vmin=0, vmax=1, extent=box, **style)
        sentences = ["Mask: dark where the target reads the source."]
    else:
        from matplotlib.colors import PowerNorm

        visible = np.ma.masked_equal(share, 0)
        top = share.max() or 1
        # a line one node wide in a cell of 32 is a sixth of the way, not a thirtieth
        scale = PowerNorm(0.5, 0, top)
        shown = ax.imshow(
            visible, cmap=shades(*SHARES), norm=scale, extent=box, interpolation="nearest"
        )
        pad = 0.03
        if targets:
            pad = 0.08
        bar = figure.colorbar(shown, ax=ax, shrink=0.75, pad=pad)
        bar.set_label("edges per pair (square-root scale)", fontsize=TEXT - 1)
        bar.ax.tick_params(labelsize=TEXT - 2)
        bar.outline.set_visible(False)
        sentences = [
            f"Mask: a cell is {counted(height, 'target')} by {counted(width, 'source')}, white "
            "without an edge, darker with the square root of their share."
        ]
    if not _is_equal(T, S):
        ax.set_aspect("auto")
    ticks(ax, T, S, names)
    for colour, target in zip(HIGHLIGHTS, targets, strict=False):
        ax.plot(
            [1.025],
            [target],
            "<",
            color=colour,
            ms=7,
            transform=ax.get_yaxis_transform(),
            clip_on=False,
            gid="row",
        )
    return sentences


def _is_equal(T: int, S: int) -> bool:
    """True if both axes can have one scale."""
    return 0.25 <= T / S <= 4


def short(x: float) -> str:
    """``20k`` for 20,000: ticks of large graphs."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(x) >= max(1e4, size):
            return f"{x / size:g}{letter}"
    return f"{x:,g}"


def ticks(ax: Any, rows: int, columns: int, names: Any) -> None:
    """Words or numbers beside the rows and below the columns of a mask; a grid between few."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis, count, axis_names in (
        (ax.yaxis, rows, names and names[0]),
        (ax.xaxis, columns, names and names[1]),
    ):
        if axis_names is not None and count <= _LABELLED:
            labels = [fitting(name) for name in axis_names]
            turned = axis is ax.xaxis and count * max(map(len, labels), default=0) > 30
            rotation = 0
            if turned:
                rotation = 90
            axis.set_ticks(range(count), labels, rotation=rotation)
        else:
            # as many as there is space for
            axis.set_major_locator(MaxNLocator("auto", integer=True))
            axis.set_major_formatter(FuncFormatter(lambda x, _: short(x)))
    if max(rows, columns) <= _LABELLED:
        ax.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
        ax.grid(which="minor", color=FAINT, linewidth=0.6)
        ax.tick_params(which="minor", length=0)
    for spine in ax.spines.values():
        spine.set_color("#9aa5b1")
