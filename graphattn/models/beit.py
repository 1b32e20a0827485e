"""BEiT: a Vision Transformer whose positions are biases of the edges, by how far patches lie from each other."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import floats, kinds_checked, one_of, real
from ..graph import AttentionGraph, Pattern, PerHead
from ..graph.layers import Layers, layers_of
from ..graph.sizes import of_size
from ..nn import EdgeTable
from ..nn.arguments import check_input
from ..nn.biases.constant import of_edges
from .example import example, features
from .patches import PatchTransformer, Size


class PatchBias(nn.Module):
    """A learned bias for each relative place of two patches, and three for the edges of the class token.

    Args:
        grid: Patches, (height, width). The graph's nodes are the class token, then these row by row.
        num_heads: H.

    Attributes:
        table: Rows as of :class:`graphattn.nn.SwinBias` with the grid for a window; then those of the class token that
            reads a patch, of a patch that reads the class token, and of the class token that reads itself.

    Source: Bao et al. 2022, "BEiT", and their code, ``relative_position_bias_table``.
    """

    def __init__(self, grid: Size, num_heads: int) -> None:
        super().__init__()
        self.grid = grid
        self.table = EdgeTable(math.prod(2 * side - 1 for side in grid) + 3, num_heads)

    def forward(self, graph: AttentionGraph | PerHead) -> Tensor:
        """Biases (E, H) in the graph's edge order."""
        return self.table.rows(of_edges(graph, _rows, self.grid, device=self.table.weight.device))


def _rows(graph: AttentionGraph, grid: Size) -> Tensor:
    """Row of the table for each edge (E,)."""
    t, s = graph.target - 1, graph.source - 1
    row, stride, left, right = torch.zeros_like(t), 1, t, s
    for side in reversed(grid):
        row += (left % side - right % side + side - 1) * stride
        left, right, stride = left // side, right // side, stride * (2 * side - 1)
    row[t < 0] = stride
    row[s < 0] = stride + 1
    row[(t < 0) & (s < 0)] = stride + 2
    return row


class LayerScale(nn.Module):
    """A learned factor for each channel, small at first (Touvron et al. 2021, "Going deeper with Image Transformers").

    Args:
        dim: C.
        scale: At first.
    """

    def __init__(self, dim: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((dim,), float(scale)))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to the same."""
        return x * self.weight


@example(lambda new, p: new((8, 12), (4, 4), 1, 8, 2, num_classes=5, dropout=p), features(3, 8, 12))
class BEiT(PatchTransformer):
    """BEiT: relative positions, branches scaled by channel, keys without a bias.

    Args:
        size: Of the images in pixels, (height, width), or one number for both.
        patch: Pixels of a patch, (height, width), or one number for both.
        num_layers: Blocks, pre-norm.
        embed_dim: C.
        num_heads: H.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        relative: Biases of "each" layer, "shared" by all, or "none".
        absolute: Whether learned positions are added to the patches, too.
        layer_scale: Of every branch at first; 0 for none.
        mean: Whether :meth:`pooled` is the mean of the patches, normed; or the class token after a last norm.
        options: Further arguments of :class:`graphattn.models.ViT`; there is one token.

    Source: Bao et al. 2022, "BEiT". Equal to ``BeitModel`` and ``BeitForImageClassification`` of ``transformers``.

    Example:
        >>> import graphattn as ga
        >>> model, images = BEiT(8, 4, 2, 8, 2, num_classes=5), torch.randn(3, 3, 8, 8)
        >>> model(images).shape, model(images, ga.graphs.cell_partition(..., (1, 2))).shape
        (torch.Size([3, 5]), torch.Size([3, 5]))
    """

    axes = ("height", "width")

    @kinds_checked()
    def __init__(
        self,
        size: Size | int,
        patch: Size | int,
        num_layers: int,
        embed_dim: int,
        num_heads: int,
        hidden: int | None = None,
        *,
        relative: str = "each",
        absolute: bool = False,
        layer_scale: float = 0.1,
        mean: bool = True,
        **options: Any,
    ) -> None:
        one_of(relative, "relative", ("each", "shared", "none"))
        options["final_norm"] = not mean
        super().__init__(size, patch, num_layers, embed_dim, num_heads, hidden, num_tokens=1, **options)
        number = {"each": num_layers, "shared": 1, "none": 0}[relative]
        self.biases = nn.ModuleList(PatchBias(self.grid, num_heads) for _ in range(number))
        if not absolute:
            self.positions = nn.Identity()  # type: ignore[assignment]
        self.pooler = nn.LayerNorm(embed_dim) if mean else None
        self.mean = mean
        block: Any
        for block in self.encoder.layers:
            block.attention.k_proj.register_parameter("bias", None)
            if real(layer_scale, "layer_scale"):
                names = ("attention", "feed_forward")
                block.end_norm = nn.ModuleDict({name: LayerScale(embed_dim, layer_scale) for name in names})

    def features(self, pixels: Tensor, graph: Layers | None = None) -> Tensor:
        """All nodes after the last block, and after a last norm without ``mean``, (B, 1 + N, C)."""
        x, made = self.nodes(pixels), {}
        for number, (block, reads) in enumerate(
            zip(self.encoder.layers, layers_of(self.graphs(graph), len(self.encoder.layers)), strict=True)
        ):
            reads = of_size(reads, x.shape[-2]) if isinstance(reads, Pattern) else reads
            bias = self.biases[number % len(self.biases)] if len(self.biases) else None
            if bias is not None and (id(bias), id(reads)) not in made:
                made[id(bias), id(reads)] = bias(reads)
            x = block(x, reads, score_bias=None if bias is None else made[id(bias), id(reads)])
        return x if self.encoder.norm is None else self.encoder.norm(x)

    def pooled(self, features: Tensor) -> Tensor:
        """One vector (B, C) of the features: the mean of the patches, normed; or the class token's."""
        floats(features, "features", "(B, K + N, C)", 2)
        if self.mean and isinstance(self.pooler, nn.LayerNorm):
            check_input("features", features, self.pooler.normalized_shape[0], self.pooler)
            return self.pooler(features[..., 1:, :].mean(-2))
        return features[..., 0, :]
