"""Submanifold convolution: a matrix for each relative position of neighbouring cells."""

import torch
from torch import Tensor, nn

from ...arguments import width
from ...backends.device import without_kernels
from ...errors import GraphError
from ...graph import AttentionGraph
from ...graphs.points.hierarchy import CellNeighbours
from ...kernels.cells.operator import cell_products
from ...operands import HALF


class CellConv(nn.Module):
    r"""Every cell sums the features of the cells around it, each times the matrix of its offset.

    .. math:: y_t = b + \sum_{s \in \mathcal{N}(t)} W_{c_s - c_t} \, x_s

    It is attention with fixed weights: a head for each offset, on a graph of at most one source for
    each target.

    Args:
        in_dim: Width of the input.
        out_dim: Width of the output.
        kernel: Cells along an axis, odd.
        axes: Number of axes of the grid.
        bias: True if there is a b.

    Attributes:
        weight: (kernel ** axes, out_dim, in_dim), offsets in the order of :class:`CellNeighbours`.

    Source: Graham et al. 2018, submanifold sparse convolution; spconv's ``SubMConv3d``, whose
    weight (out, k, k, k, in) is ``weight.unflatten(0, (k, k, k)).movedim(3, 0)``.

    Example:
        >>> import torch, graphattn as ga
        >>> pos = torch.cartesian_prod(*[torch.arange(3.0)] * 3)
        >>> shape = ga.graphs.serialized_hierarchy(pos, cell=1.0, levels=1)
        >>> CellConv(4, 8)(torch.rand(27, 4), shape.levels[0].near[0]).shape
        torch.Size([27, 8])
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        kernel: int = 3,
        *,
        axes: int = 3,
        bias: bool = True,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        size = (
            width(kernel, "kernel") ** width(axes, "axes"),
            width(out_dim, "out_dim"),
            width(in_dim, "in_dim"),
        )
        self.weight = nn.Parameter(torch.empty(size))
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = nn.Parameter(torch.zeros(size[1]))
        nn.init.normal_(self.weight, std=(size[0] * size[2]) ** -0.5)

    def forward(self, x: Tensor, near: CellNeighbours) -> Tensor:
        """(..., N, out_dim) from (..., N, in_dim); ``near`` is that of a level of a serialized
        hierarchy.

        Raises:
            GraphError: If ``near`` has another number of offsets than the kernel, or of cells than
                ``x`` has rows.
        """
        offsets = self.weight.shape[0]
        if near.num_offsets != offsets:
            raise GraphError(
                f"near must be CellNeighbours of {offsets} offsets, as the kernel has, got "
                f"{near.num_offsets}"
            )
        y = self._sums(x, near)
        if self.bias is None:
            return y
        return y + self.bias

    def _sums(self, x: Tensor, near: CellNeighbours) -> Tensor:
        """(..., N, out_dim) in the dtype of ``x``: one product on CUDA, else one for each offset."""
        y = x.new_zeros(*x.shape[:-1], self.weight.shape[1])
        if self._is_fused(x, near):
            table, back, ptr = near.tables  # type: ignore[misc]
            x = x.reshape(-1, *x.shape[-2:])
            dtype = x.dtype
            if torch.is_autocast_enabled(x.device.type):
                dtype = torch.get_autocast_dtype(x.device.type)
            rows = x.to(dtype)
            weight = self.weight.to(dtype)
            product = cell_products(rows, weight, table, back, near.source, near.target, ptr)
            return product.view(y.shape).to(y.dtype)
        x = near.graph.ends(x, x)[0]
        sources = near.source.split(near.counts)
        targets = near.target.split(near.counts)
        for source, target, weight in zip(sources, targets, self.weight, strict=True):
            if source.numel():
                # in autocast's dtype, under autocast
                product = x.index_select(-2, source) @ weight.t()
                y.index_add_(-2, target, product.to(y.dtype))  # no target comes twice
        return y

    def _is_fused(self, x: Tensor, near: CellNeighbours) -> bool:
        """True if one kernel makes all products of a call."""
        if not x.is_cuda or not isinstance(near.graph, AttentionGraph):
            return False
        if x.dtype not in (*HALF, torch.float32) or without_kernels(x.device):
            return False
        return near.tables is not None

    def extra_repr(self) -> str:
        offsets, out_dim, in_dim = self.weight.shape
        return f"{in_dim}, {out_dim}, {offsets} offsets, bias={self.bias is not None}"
