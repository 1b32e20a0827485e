"""A bipartite graph as two rows: sources below, targets above, information flowing up."""

from typing import Any

import numpy as np

from ..style import GROUND, INK, TEXT, Style, fitting, number, quiet
from .base import CloseUp, Layout, Names

_LABELLED = 40


class TwoRows(Layout):
    """Both rows fill the width, however many nodes they have.

    Args:
        num_targets, num_sources: Nodes of the two rows.
        names: ``(target names, source names)``; either may be ``None``.
    """

    hides_loops = False
    two_sets = True
    big, small = 6.0, 4.0
    head_at = 0.84  # where lines to one target have drawn apart from those to the next

    def __init__(self, num_targets: int, num_sources: int, names: Names) -> None:
        self.names = names
        self.target_at, self.source_at = (
            np.stack(((np.arange(n) + 0.5) / max(1, n), np.full(n, y)), 1)
            for n, y in ((num_targets, 1.0), (num_sources, 0.0))
        )

    def ground(self, ax: Any, near: CloseUp | None = None) -> list[str]:
        quiet(ax)
        ax.set_xlim(-0.02, 1.02)
        ax.set_ylim(-0.1, 1.1)
        for at, y, names, va in (
            (self.target_at, 1.0, self.names[0], "bottom"),
            (self.source_at, 0.0, self.names[1], "top"),
        ):
            if len(at) <= 4 * _LABELLED:
                ax.scatter(*at.T, s=12, color=GROUND, zorder=3, gid="nodes")
            else:
                ax.plot([0, 1], [y, y], color=GROUND, linewidth=3, zorder=3)
            if names is not None and len(names) <= _LABELLED:
                shown = [fitting(name) for name in names]
            else:
                shown = None
            if shown and sum(map(len, shown)) > 50:
                turned = 90
            else:
                turned = 0
            for (x, _), name in zip(at, shown or [], strict=False):
                offset = -7
                if va == "bottom":
                    offset = 7
                place = (0, offset)
                style: Style = {
                    "ha": "center",
                    "va": va,
                    "rotation": turned,
                    "fontsize": TEXT,
                    "color": INK,
                }
                ax.annotate(
                    name, (x, y), place, textcoords="offset points", annotation_clip=False, **style
                )
        ax.set_yticks(
            [1, 0],
            [f"{number(len(self.target_at))}\ntargets", f"{number(len(self.source_at))}\nsources"],
            fontsize=TEXT,
        )
        ax.tick_params(length=0)
        return ["Sources are below, targets above."]
