"""The bias of a grid as one of its rows plus one of its columns, by products with the queries."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ...arguments import check_shape, width
from ...errors import OptionError, ShapeError
from ...graphs.arguments import axes

_AXES = ("t", "h", "w")  # of a video; an image has the last two


class DecomposedBias(nn.Module):
    r"""Queries and keys with further components, whose products are biases by rows and by columns.

    .. math:: \langle q'_t, k'_s \rangle = \lambda \langle q_t, k_s \rangle
              + \langle q_t, R^h_{y_t - y_s} \rangle + \langle q_t, R^w_{x_t - x_s} \rangle

    The tables are of all heads. No tensor of edges is made: a query has a product for each row and
    each column of the grid, a key a one for its own.

    Args:
        size: (height, width) of the grid, or (time, height, width); a node is a place, row by row.
            Or of the cells of a larger grid, for a graph whose targets read their own cell
            (``grid`` of :meth:`forward`).
        head_dim: D.

    Attributes:
        rel_pos_h, rel_pos_w: Tables (2 height - 1, D) and (2 width - 1, D), with SAM's names
            (and ``rel_pos_t`` of a video); a row for each difference, target minus source.

    Source: MViTv2 (CVPR 2022), equation 4, without pooling; as in ViTDet and SAM.

    Example:
        >>> import graphattn as ga
        >>> bias, graph = DecomposedBias((3, 4), head_dim=8), ga.graphs.full(12)
        >>> query, key, value = torch.randn(3, 12, 2, 8)
        >>> ga.attention(*bias(query, key), value, graph, scale=1.0).shape
        torch.Size([12, 2, 8])
    """

    def __init__(self, size: tuple[int, ...], head_dim: int) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.size = axes(size)
        self.head_dim = width(head_dim, "head_dim")
        if not 2 <= len(self.size) <= len(_AXES) or 0 in self.size:
            raise OptionError(
                f"size must be (height, width) or (time, height, width), each >= 1, got {size!r}"
            )
        for name, side in zip(self._names(), self.size, strict=True):
            setattr(self, name, nn.Parameter(torch.zeros(2 * side - 1, self.head_dim)))

    def _names(self) -> list[str]:
        return [f"rel_pos_{axis}" for axis in _AXES[-len(self.size) :]]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        scale: float | None = None,
        grid: tuple[int, ...] | None = None,
    ) -> tuple[Tensor, Tensor]:
        r"""Query (..., N, H, D') and key (..., N, H_kv, D') for :func:`graphattn.attention`.

        Call it with ``scale=1.0``: the query has the scale. D' is D and the lengths of the axes.

        Args:
            query: (..., N, H, D).
            key: (..., N, H_kv, D).
            scale: :math:`\lambda`, the factor on the products of query and key, ``D ** -0.5`` by
                default.
            grid: The nodes' grid, ``size`` by default. In a larger one, places count from 0 in
                each cell of ``size``.
        Raises:
            ShapeError: If there are not as many nodes as places, or D is another.
        """
        lengths = self.size
        if grid is not None:
            lengths = axes(grid)
        places = self._places(lengths, query.device)
        for name, x in (("query", query), ("key", key)):
            check_shape(
                x,
                name,
                (..., places.shape[1], "heads", self.head_dim),
                f"a node for each place of {lengths}; of another grid pass grid=",
            )
        if scale is None:
            scale = self.head_dim**-0.5
        queries = [query * scale]
        keys = [key]
        for name, side, place in zip(self._names(), self.size, places, strict=True):
            difference = place[:, None] - torch.arange(side, device=place.device) + side - 1
            table = getattr(self, name)[difference]  # (N, side, D)
            queries.append(torch.einsum("...nhd,nsd->...nhs", query, table))
            own = one_hot(place, side).to(key.dtype)
            keys.append(own.unsqueeze(-2).expand(*key.shape[:-1], side))
        return torch.cat(queries, -1), torch.cat(keys, -1)

    def _places(self, grid: tuple[int, ...], device: Any) -> Tensor:
        """The place of each node on each axis of its cell, int64 (axes, N)."""
        if len(grid) != len(self.size):
            raise ShapeError(f"grid must have {len(self.size)} axes, got {grid}")
        ranges = [
            torch.arange(length, device=device) % side
            for length, side in zip(grid, self.size, strict=True)
        ]
        return torch.stack(torch.meshgrid(*ranges, indexing="ij")).flatten(1)

    def extra_repr(self) -> str:
        return f"size={self.size}, head_dim={self.head_dim}"
