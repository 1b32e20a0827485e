"""What builders of grids share: one rule for each axis, joined; cells that must divide it."""

from ...errors import GraphError
from ...graph.edge_set import EdgeSet
from ...graph.rules import Product


def every_axis(parts: list[EdgeSet]) -> EdgeSet:
    """The edges that are edges on every axis, first axis first."""
    return parts[0] if len(parts) == 1 else Product(tuple(parts))


def divided(size: tuple[int, ...], cells: tuple[int, ...], pad: bool) -> None:
    """Refuse cells that do not divide an axis, unless it is padded."""
    for axis, (length, side) in enumerate(zip(size, cells, strict=True)):
        if length % side and not pad:
            raise GraphError(
                f"size must be a multiple of cell on every axis, got size={length} and cell={side} on axis {axis}; "
                "pass pad=True to cut the last cell at the border, or a cell that divides the axis"
            )
