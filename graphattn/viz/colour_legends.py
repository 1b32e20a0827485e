"""Legends of the colours of nodes and faces: labels, and scales of amounts."""

from collections.abc import Iterable
from typing import Any

from .colours import Colouring
from .style import TEXT, plain, shades

_MOST_NAMED = 16


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

    style: dict[str, Any] = {"marker": "o", "linewidth": 0, "markersize": 7}
    handles = [Line2D([], [], color=colour, label=plain(name), **style) for name, colour in dict(named).items()]
    if len(handles) > _MOST_NAMED:
        handles[_MOST_NAMED:] = [Line2D([], [], linewidth=0, label=f"and {len(handles) - _MOST_NAMED} more")]
    return handles


def labels(ax: Any, named: Iterable[tuple[str, str]]) -> None:
    """A legend of (name, colour) beside a panel."""
    handles = handles_of(named)
    if handles:
        where: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "frameon": False}
        ax.legend(handles=handles, fontsize=TEXT, handletextpad=0.1, **where)
