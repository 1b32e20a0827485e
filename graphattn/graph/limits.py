"""Limits of memory and time: what would take too much is refused before it is computed."""

import torch
from torch import Tensor

from ..errors import GraphError

MAX_BYTES = 4 << 30  # limit of a property's memory without an explicit budget


def refuse_over(
    number: int,
    subject: str,
    instead: str,
    limit: int | None = MAX_BYTES,
    unit: str = "bytes",
) -> None:
    """Raise a GraphError if ``subject`` would take more than ``limit`` bytes, or of a unit."""
    if limit is not None and number > limit:
        raise GraphError(f"{subject} would take {number:,} {unit} (limit {limit:,}); {instead}")


def every_node(size: int) -> Tensor:
    """The indices of all nodes, or a GraphError if they do not fit in memory."""
    refuse_over(8 * size, f"the numbers of {size:,} nodes", "take a smaller graph")
    return torch.arange(size)
