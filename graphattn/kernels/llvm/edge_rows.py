"""Rows of edges as operands of the kernels in machine code."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..arrays import Kinds, eights


class EdgeRows(NamedTuple):
    """Edges by target, or by source: the nodes at their other ends, and their places elsewhere."""

    ptr: Tensor
    other: Tensor
    edge: Tensor
    order: Tensor
    widest: int  # most edges of a row, rounded up to a multiple of eight

    @classmethod
    def of(cls, ptr: Tensor, other: Tensor, edge: Tensor, order: Tensor) -> "EdgeRows":
        """The rows of a layout."""
        most = int(np.diff(ptr.numpy()).max(initial=0))
        return cls(ptr, other, edge, order, 8 * eights(most))

    def kinds(self, x: Tensor) -> Kinds:
        """The key of code for these rows and the nodes ``x``."""
        return Kinds.of(x, self.other, self.edge)

    def operands(self, batches: int, heads: int, group: int) -> dict[str, Any]:
        """Operands of every kernel; a ``group`` of heads shares a row at the other end."""
        return {
            "batches": batches,
            "heads": heads,
            "group": group,
            "rows": self.order.numel(),
            "edges": self.edge.numel(),
            **self._asdict(),
        }

    def operands_of_sums(
        self, batches: int, heads: int, group: int, summed: Kinds
    ) -> dict[str, Any]:
        """Operands of every kernel that sums rows of nodes of some kind."""
        from .native import address_of
        from .node_rows import stored, sum_near

        return {
            **self.operands(batches, heads, group),
            "width": summed.width,
            "row_bytes": summed.row_bytes,
            "sum_near": address_of(sum_near, summed),
            "store": address_of(stored, summed),
        }

    def memory_of_sums(self, heads: int, width: int, kinds: Kinds) -> int:
        """Bytes for two sums of a node, and for the edges of a row with their weights."""
        of_edge = kinds.sums.itemsize + kinds.indices.itemsize
        return 2 * heads * width * kinds.sums.itemsize + self.widest * of_edge


def memory(size: int) -> tuple[Tensor]:
    """Memory of one thread, in bytes, on the CPU whatever the default device."""
    return (torch.from_numpy(np.empty(size, np.uint8)),)
