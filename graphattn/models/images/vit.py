"""The Vision Transformer: patches after a class token, on the full graph or any other."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import floats, probability, whole, width
from ...errors import ShapeError
from ...graph.foreign_names import names_checked
from ...graph.kinds.layers import Layer, Layers
from ...nn import LearnedPosition
from ..example import example, features
from ..stacks import Encoder, layers_in
from .patches import EVERY_NODE, PatchEmbedding, Size, behind_tokens, lies_on_grid, sides

_AXES = {2: ("height", "width"), 3: ("time", "height", "width")}


@example(lambda new, p: new((8, 12), (4, 4), 1, 8, 2, num_classes=5, dropout=p), features(3, 8, 12))
class ViT(nn.Module):
    """Patches after a class token, learned positions, an encoder, a head; for videos it is a ViViT.

    Args:
        size: Size of the images in pixels, (height, width), or one number for both; of videos
            (time, height, width).
        patch: Pixels of a patch, (height, width), or one number for both; of videos a tubelet
            (time, height, width).
        num_layers: Number of blocks, pre-norm.
        embed_dim: C.
        num_heads: H.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        channels: Channels of the images.
        num_classes: Classes of a linear head on the class token (without one, on the mean); no head
            by default.
        num_tokens: K, learned nodes before the patches: none, a class token, or also DeiT's
            distillation token.
        dropout: Rate of dropout in the blocks and on the embeddings.
        options: Further arguments of :class:`graphattn.models.Encoder`, such as ``drop_path``.

    Attributes:
        grid: Patches on every axis. The graph's nodes are the K tokens, the class token first, then
            these row by row.
        pooler: The last module of :meth:`pooled`; the identity by default.

    Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words". Equal to ``ViTModel`` and
    ``ViTForImageClassification`` of ``transformers``, :func:`graphattn.models.from_transformers`; with a
    second token a DeiT (Touvron et al. 2021). Of videos Arnab et al. 2021, "ViViT", section 3.3,
    model 1 (joint space-time attention), and without a class token VideoMAE's encoder (Tong et al.
    2022); model 3 has ``window_partition(..., (1, height, width))`` and
    ``window_partition(..., (time, 1, 1))`` by turns.

    Example:
        >>> import torch, graphattn as ga
        >>> model = ViT((24, 32), (8, 8), num_layers=2, embed_dim=16, num_heads=2, num_classes=10)
        >>> images = torch.randn(5, 3, 24, 32)
        >>> model(images).shape
        torch.Size([5, 10])
        >>> local = ga.graphs.grid_neighbourhood(..., 3, causal=False)  # of the patches; the class token reads all
        >>> model(images, local).shape, model(images, [local, ga.graphs.full(...)]).shape
        (torch.Size([5, 10]), torch.Size([5, 10]))
        >>> videos = ViT((4, 8, 12), (2, 4, 4), num_layers=2, embed_dim=16, num_heads=2)
        >>> space, time = ga.graphs.window_partition(..., (1, 2, 3)), ga.graphs.window_partition(..., (2, 1, 1))
        >>> videos(torch.randn(5, 3, 4, 8, 12), [space, time]).shape
        torch.Size([5, 13, 16])
    """

    def __init__(
        self,
        size: Size | int,
        patch: Size | int,
        num_layers: int,
        embed_dim: int,
        num_heads: int,
        hidden: int | None = None,
        *,
        channels: int = 3,
        num_classes: int | None = None,
        num_tokens: int = 1,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        axes = _AXES[2]
        if isinstance(size, tuple | list) and len(size) == 3:
            axes = _AXES[3]
        size = sides("size", size, axes)
        self.patches = PatchEmbedding(channels, embed_dim, sides("patch", patch, axes))
        self.grid = self.patches.grid(size)
        self.num_tokens = whole(num_tokens, "num_tokens", 0)
        self.tokens = nn.Parameter(torch.randn(self.num_tokens, embed_dim) * 0.02)
        self.positions = LearnedPosition(self.num_tokens + math.prod(self.grid), embed_dim)
        self.dropout = nn.Dropout(probability(dropout, "dropout"))
        self.encoder = Encoder(num_layers, embed_dim, num_heads, hidden, dropout=dropout, **options)
        self.pooler: nn.Module | None = None
        self.head: nn.Module | None = None
        if num_classes is not None:
            self.head = nn.Linear(embed_dim, width(num_classes, "num_classes"))

    def nodes(self, pixels: Tensor) -> Tensor:
        """The input of the first block, (B, K + N, C): tokens, then patches by row."""
        x = self.patches(pixels)
        grid = self.patches.grid(tuple(pixels.shape[-len(self.grid) :]))
        if grid != self.grid:
            raise ShapeError(
                f"pixels must have a grid of {self.grid} patches, as the model's positions, got "
                f"{grid}"
            )
        return self.dropout(
            self.positions(torch.cat((self.tokens.expand(*x.shape[:-2], -1, -1), x), -2))
        )

    def graphs(self, graph: Layers | None = None) -> Layers:
        """The encoder's graphs: patterns on a grid are sized to the patches, after the tokens."""
        if graph is None:
            return EVERY_NODE
        if isinstance(graph, Layer):
            return self._sized(graph)
        return [self._sized(layer) for layer in layers_in(graph)]

    def _sized(self, graph: Layer) -> Layer:
        if lies_on_grid(graph):
            return behind_tokens(graph, self.grid, self.num_tokens)
        return graph

    def features(self, pixels: Tensor, graph: Layers | None = None) -> Tensor:
        """All nodes after the last norm, (B, K + N, C); arguments as of :meth:`forward`."""
        return self.encoder(self.nodes(pixels), self.graphs(graph))

    def pooled(self, features: Tensor) -> Tensor:
        """One vector (B, C) of the features: the class token, or without one the mean, pooled."""
        floats(features, "features", "(B, K + N, C)", 2)
        if self.num_tokens:
            x = features[..., 0, :]
        else:
            x = features.mean(-2)
        if self.pooler is None:
            return x
        return self.pooler(x)

    @names_checked
    def forward(self, pixels: Tensor, graph: Layers | None = None) -> Tensor:
        """The head's output for the :meth:`pooled` features, or else the :meth:`features`.

        Args:
            pixels: (B, channels, ``*size``), or (channels, ``*size``).
            graph: Over K + N nodes, the class token first; one for all layers or a list. Full by
                default. A pattern on a grid, ``grid_neighbourhood(..., 3, causal=False)``, is sized to the
                patches, and the tokens before them read all and are read by all; for a graph of the
                patches use ``graph.with_global_tokens(K)``.
        """
        x = self.features(pixels, graph)
        if self.head is None:
            return x
        return self.head(self.pooled(x))
