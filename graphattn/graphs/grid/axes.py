"""Helpers of builders on grids: one rule for each axis, and checks of cells."""

import torch
from torch import Tensor

from ...errors import GraphError
from ...graph.edges import Edges
from ...graph.forms import one_run


def cell_window(
    num_targets: int,
    num_sources: int,
    cell: int,
    step: int,
    width: int,
    start: int = 0,
    shift: int = 0,
) -> Edges:
    """One axis cut into cells that read one window of sources each: halos, padding, pooling.

    With ``c = (t - shift) // cell`` target ``t`` reads the sources
    ``start + c * step <= s < start + c * step + width`` that exist.
    """

    def ends(target: Tensor) -> tuple[Tensor, Tensor]:
        lo = torch.div(target - shift, cell, rounding_mode="floor") * step + start
        return lo, lo + width

    return one_run(num_targets, num_sources, ends)


def cells(length: int, side: int, shift: int = 0) -> Edges:
    """One axis cut into cells that read themselves, the nodes of equal ``(t - shift) // side``."""
    return cell_window(length, length, side, side, side, shift, shift)


def divided(
    size: tuple[int, ...],
    cells: tuple[int, ...],
    pad: bool,
) -> None:
    """Refuse cells that do not divide an axis, unless it is padded."""
    for axis, (length, side) in enumerate(zip(size, cells, strict=True)):
        if length % side and not pad:
            raise GraphError(
                f"size must be a multiple of cell on every axis, got size={length} and "
                f"cell={side} on axis {axis}; pass pad=True to cut the last cell at the border, "
                "or a cell that divides the axis"
            )
