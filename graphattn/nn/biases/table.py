"""A learned bias for each value of an integer attribute of edges."""

import torch
from torch import Tensor, nn

from ...arguments import check_range, check_shape, width
from ...errors import PositionIndexError
from ...graph.like import GraphLike
from ...kernels.modes import can_read_values
from .constant import need_graph


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """Rows (..., H) of a table (V, H).

    On a CPU the backward of ``index_select`` takes a third of the time of ``embedding``'s; on CUDA
    only the latter's gives the same bits in every run.
    """
    if table.is_cuda:
        return nn.functional.embedding(index, table)
    return table.index_select(0, index.flatten()).unflatten(0, index.shape)


class EdgeTypeBias(nn.Module):
    r"""A row of a learned table for each edge: :math:`b_{ts} = \mathrm{weight}[a_{ts}]`.

    For edge types, the number of bonds, a bucket of lengths, the relation of a typed union
    (:attr:`graphattn.graphs.Relations.relation`). Time and memory are proportional to the edges.

    Args:
        num_values: The attribute is 0 to ``num_values - 1``.
        num_heads: H.

    Attributes:
        weight: (num_values, H), as of ``nn.Embedding``, from a normal of deviation 0.02 cut at two.

    Example:
        >>> import graphattn as ga
        >>> graph = ga.graphs.causal(5)
        >>> kind = graph.source % 3  # int64 (E,)
        >>> layer, bias = ga.nn.GraphAttention(embed_dim=8, num_heads=2), EdgeTypeBias(3, num_heads=2)
        >>> layer(torch.randn(5, 8), graph, score_bias=bias(graph, kind)).shape
        torch.Size([5, 8])
    """

    def __init__(self, num_values: int, num_heads: int) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.weight = nn.Parameter(
            torch.empty(width(num_values, "num_values"), width(num_heads, "num_heads"))
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the table."""
        nn.init.trunc_normal_(self.weight, std=0.02, a=-0.04, b=0.04)

    def forward(self, graph: GraphLike, values: Tensor) -> Tensor:
        """Biases (E, H), or (..., E, H).

        Args:
            graph: The graph of the layer.
            values: int64 (E,) or (..., E) in the graph's edge order.

        Raises:
            ShapeError: If they have another shape, dtype or device.
            PositionIndexError: If the table has no row for a value.
        """
        need_graph(graph)
        check_shape(values, "values", (..., graph.num_edges), "one for each edge")
        rows = self.weight.shape[0]
        if can_read_values(values):
            check_range(values, "values", rows, ", the rows of the table", PositionIndexError)
        return self.rows(values)

    def rows(self, values: Tensor) -> Tensor:
        """The rows (..., E, H) of values already checked to be in range."""
        return rows_of(self.weight, values)

    def extra_repr(self) -> str:
        return f"num_values={self.weight.shape[0]}, num_heads={self.weight.shape[1]}"
