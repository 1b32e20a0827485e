"""Biases of the offsets between points, and Fourier features of offsets."""

import math

import torch
from torch import Tensor, nn

from ...arguments import check_shape, positive, width
from ...errors import OptionError
from ...graph.like import GraphLike
from ...graph.modes import without_autocast
from ..geometry import relative_positions, rows_of, sums_of
from .constant import sources, targets


class OffsetBias(nn.Module):
    r"""A perceptron of the offset as a bias:
    :math:`b_{ts} = W_2 \, \mathrm{relu}(W_1 (p_t - p_s) + b_1)`.

    Args:
        num_heads: H.
        axes: Number of axes of the positions.
        hidden: Width of the hidden layer.

    Source: the relative position bias of Swin V2 (:class:`SwinV2Bias`), without a grid.

    Example:
        >>> import torch, graphattn as ga
        >>> pos = torch.rand(30, 3)
        >>> OffsetBias(num_heads=2)(ga.graphs.knn(pos, 4), pos).shape
        torch.Size([120, 2])
    """

    def __init__(self, num_heads: int, axes: int = 3, *, hidden: int = 32) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        heads = width(num_heads, "num_heads")
        hidden = width(hidden, "hidden")
        self.axes = width(axes, "axes")
        self.mlp = nn.Sequential(
            nn.Linear(self.axes, hidden), nn.ReLU(), nn.Linear(hidden, heads, bias=False)
        )

    def forward(self, graph: GraphLike, pos: Tensor, queries: Tensor | None = None) -> Tensor:
        """Biases (..., E, H) of positions as in :func:`graphattn.nn.relative_positions`."""
        like = next(self.mlp.parameters())
        return self.mlp(_offsets(graph, pos, queries, self.axes).to(like.dtype))


class ContextualTable(nn.Module):
    r"""Learned rows for each step along each axis, multiplied by queries and keys: contextual
    relative positions.

    .. math:: b_{ts} = \langle \lambda q_t, r^q_{ts} \rangle + \langle k_s, r^k_{ts} \rangle, \qquad
              r_{ts} = \sum_a \mathrm{table}[a, \, \mathrm{clamp}(\lfloor (p_t - p_s)_a / \ell \rfloor, -R, R - 1) + R]

    Products are computed for nodes and rows of the tables, (N, 2 R axes, H), and looked up by
    edges: no tensor (E, D).

    Args:
        num_heads: H.
        head_dim: D.
        reach: R, steps to either side; larger offsets are clamped.
        step: :math:`\ell`, in the units of the positions.
        axes: Number of axes of the positions.
        values: True if there is a table for values, too.
        scale: :math:`\lambda`, 1 / sqrt(D) by default.

    Attributes:
        query, key, value: (axes, 2 R, H, D), from a normal of deviation 0.02 cut at two.

    Source: Lai et al. 2022 (Stratified Transformer), section 3.4; Yang et al. 2023 (Swin3D).

    Example:
        >>> import torch, graphattn as ga
        >>> pos, query, key, value = torch.rand(30, 3), *torch.randn(3, 30, 2, 4)
        >>> graph, table = ga.graphs.knn(pos, 4), ContextualTable(2, 4, reach=5, step=0.1)
        >>> ga.attention(query, key, value, graph, score_bias=table(graph, query, key, pos)).shape
        torch.Size([30, 2, 4])
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        reach: int,
        *,
        step: float = 1.0,
        axes: int = 3,
        values: bool = False,
        scale: float | None = None,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.reach = width(reach, "reach")
        self.step = positive(step, "step")
        size = (
            width(axes, "axes"),
            2 * self.reach,
            width(num_heads, "num_heads"),
            width(head_dim, "head_dim"),
        )
        if scale is None:
            self.scale = size[-1] ** -0.5
        else:
            self.scale = scale
        self.query = nn.Parameter(torch.empty(size))
        self.key = nn.Parameter(torch.empty(size))
        self.value: nn.Parameter | None = None
        if values:
            self.value = nn.Parameter(torch.empty(size))
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02, a=-0.04, b=0.04)

    def forward(
        self,
        graph: GraphLike,
        query: Tensor,
        key: Tensor,
        pos: Tensor,
        queries: Tensor | None = None,
    ) -> Tensor:
        """Biases (..., E, H) of queries (..., T, H, D) and keys (..., S, H, D); positions as in
        :func:`graphattn.nn.relative_positions`.
        """
        rows = self._rows(graph, pos, queries)
        ends = graph.ends(key.flatten(-2), query.flatten(-2))
        key, query = (x.unflatten(-1, self.query.shape[2:]) for x in ends)
        of_query = self._looked_up(self.query, query, targets(graph, rows.device), rows)
        return self.scale * of_query + self._looked_up(
            self.key, key, sources(graph, rows.device), rows
        )

    def averaged(
        self, graph: GraphLike, alpha: Tensor, pos: Tensor, queries: Tensor | None = None
    ) -> Tensor:
        r""":math:`\sum_s \alpha_{ts} r^v_{ts}`, (..., T, H, D): the term of offsets, for weights
        (..., E, H).
        """
        if self.value is None:
            raise OptionError(
                "averaged needs a table for values; build the module with values=True"
            )
        rows = self._rows(graph, pos, queries)
        table = self.value.flatten(0, 1)
        check_shape(alpha, "alpha", (..., len(rows), table.shape[1]))
        index = targets(graph, rows.device).unsqueeze(-1) * len(table) + rows
        weights = alpha.repeat_interleave(rows.shape[-1], -2)
        size = graph._num_target_rows
        total = sums_of(weights, index.flatten(), size * len(table)).unflatten(
            -2, (size, len(table))
        )
        total = graph._own_targets(total, -3)
        return torch.einsum("...nrh,rhd->...nhd", total, table.to(alpha.dtype))

    def _rows(self, graph: GraphLike, pos: Tensor, queries: Tensor | None) -> Tensor:
        """The row of each edge for each axis, int64 (E, axes)."""
        axes, bins = self.query.shape[:2]
        offsets = _offsets(graph, pos.detach() if isinstance(pos, Tensor) else pos, queries, axes)
        index = (offsets / self.step).floor().clamp(-self.reach, self.reach - 1).long() + self.reach
        return index + bins * torch.arange(axes, device=index.device)

    def _looked_up(self, table: Tensor, x: Tensor, node: Tensor, rows: Tensor) -> Tensor:
        table = table.flatten(0, 1).to(x.dtype)
        product = torch.einsum("...nhd,rhd->...nrh", x, table).flatten(-3, -2)
        index = node.unsqueeze(-1) * len(table) + rows
        return rows_of(product, index.flatten()).unflatten(-2, rows.shape).sum(-2)

    def extra_repr(self) -> str:
        axes, bins, heads, head_dim = self.query.shape
        values = self.value is not None
        return (
            f"{heads}, {head_dim}, reach={bins // 2}, step={self.step}, axes={axes}, "
            f"values={values}"
        )


class FourierFeatures(nn.Module):
    r"""Sines and cosines of positions or offsets at random frequencies:
    :math:`[\sin 2 \pi B x, \cos 2 \pi B x]`.

    Args:
        axes: Number of axes of the input.
        num_frequencies: Half the width of the output.
        sigma: Standard deviation of the frequencies B, in cycles for each unit of length.

    Attributes:
        frequencies: B (num_frequencies, axes), drawn once; saved, and not trained.

    Source: Tancik et al. 2020.

    Example:
        >>> import torch
        >>> FourierFeatures(3, 8)(torch.rand(5, 3)).shape
        torch.Size([5, 16])
    """

    frequencies: Tensor

    def __init__(self, axes: int, num_frequencies: int, *, sigma: float = 1.0) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        size = width(num_frequencies, "num_frequencies"), width(axes, "axes")
        self.register_buffer("frequencies", torch.randn(size) * positive(sigma, "sigma"))

    def forward(self, x: Tensor) -> Tensor:
        """(..., 2 * num_frequencies) of (..., axes)."""
        with without_autocast(x.device.type):
            angle = x @ (2 * math.pi * self.frequencies.to(x)).t()
        return torch.cat((angle.sin(), angle.cos()), -1)

    def extra_repr(self) -> str:
        return f"axes={self.frequencies.shape[1]}, num_frequencies={self.frequencies.shape[0]}"


def _offsets(graph: GraphLike, pos: Tensor, queries: Tensor | None, axes: int) -> Tensor:
    offsets = relative_positions(graph, pos, queries)
    check_shape(pos, "pos", (..., axes), "the axes that the bias was built for")
    return offsets
