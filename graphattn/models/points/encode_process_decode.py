"""Encode, process, decode: a coarse mesh reads fine points, and is read by them again."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from ...arguments import probability, width
from ...errors import OptionError
from ...graph import AttentionGraph, need_graph
from ...graph.foreign_names import names_checked
from ...graphs import Hierarchy
from ...graphs.points.hierarchy import Level
from ...nn import FeedForward
from ...nn.blocks import make_norm
from ..example import example, features, small_cloud
from .levels import heads_of, levels_checked
from .unet import Between, Descent, EdgeBlock, EdgeEncoder, Perceptron


@example(
    lambda new, p: new(5, 2, 8, 2, 2, dropout=p), features(13, 5), lambda: (small_cloud(ratio=0.5),)
)
class EncodeProcessDecode(nn.Module):
    """Features of fine points, blocks on coarse ones, and outputs for fine or other points.

    Args:
        features: Width of the fine points' features.
        out_dim: Width of the output, from a perceptron.
        embed_dim: C.
        num_heads: H.
        num_layers: Blocks on the coarse points.
        edges: Features of edges, names of :func:`graphattn.nn.edge_geometry`.
        axes: Number of axes of the positions.
        target_features: Width of the features of other points that are the outputs; none, and
            outputs for the fine points, by default.
        dropout: Rate of dropout in the blocks.

    Source: Sanchez-Gonzalez et al. 2020; Lam et al. 2023 (GraphCast); Lang et al. 2024 (AIFS, by
    anemoi), whose encoder and decoder are attention, too. *What differs:* edges keep their encoding
    from layer to layer.

    Example:
        >>> import torch, graphattn as ga
        >>> samples, grid = torch.rand(60, 2), torch.rand(90, 2)
        >>> shape = ga.graphs.hierarchy(samples, ratio=0.25)
        >>> model = EncodeProcessDecode(1, 1, 16, 2, 2, axes=2, target_features=2)
        >>> decode = ga.graphs.knn(shape.levels[1].pos, 4, queries=grid)
        >>> model(torch.rand(60, 1), shape, decode, queries=grid, targets=grid).shape
        torch.Size([90, 1])
    """

    def __init__(
        self,
        features: int,
        out_dim: int,
        embed_dim: int = 64,
        num_heads: int = 4,
        num_layers: int = 4,
        *,
        edges: Sequence[str] = ("offset", "distance"),
        axes: int = 3,
        target_features: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        heads_of([width(embed_dim, "embed_dim")], width(num_heads, "num_heads"), "num_heads")
        geometry = partial(EdgeEncoder, edges, width(axes, "axes"))
        block = partial(EdgeBlock, embed_dim, num_heads, geometry, probability(dropout, "dropout"))
        self.embedding = Perceptron(width(features, "features"), embed_dim, embed_dim)
        if target_features is None:
            target_width = None
        else:
            target_width = width(target_features, "target_features")
        if target_width is None:
            self.targets = None
        else:
            self.targets = Perceptron(target_width, embed_dim, embed_dim)
        self.encoder = Descent(embed_dim, embed_dim, num_heads, geometry)
        self.processor = nn.ModuleList(block() for _ in range(width(num_layers, "num_layers")))
        self.decoder = Between(embed_dim, embed_dim, num_heads, geometry)
        self.feed_forward_norm, self.norm = (make_norm("layer", embed_dim, 1e-5) for _ in range(2))
        self.feed_forward = FeedForward(embed_dim, 2 * embed_dim)
        self.head = Perceptron(embed_dim, embed_dim, width(out_dim, "out_dim"))

    @names_checked
    def forward(
        self,
        x: Tensor,
        shape: Hierarchy,
        decode: AttentionGraph | None = None,
        *,
        queries: Tensor | None = None,
        targets: Tensor | None = None,
    ) -> Tensor:
        """Outputs for the fine points (..., N, out), or for other points (..., T, out).

        Args:
            x: (..., N, features) of the finer level's points.
            shape: Two levels. The blocks take the graphs of the coarser level in turn.
            decode: For a model with ``target_features``: T targets, and the coarser level's points
                as sources.
            queries: (T, axes), the positions of the targets.
            targets: (..., T, target_features), their features.

        Raises:
            ShapeError: If a tensor does not fit the model, the hierarchy or the graph.
            OptionError: If ``decode``, ``queries`` and ``targets`` are missing for a model with
                ``target_features``, or given for one without.
        """
        shape = levels_checked(x, shape, 2)
        is_passed = [part is not None for part in (decode, queries, targets)]
        if is_passed != [self.targets is not None] * 3:
            raise OptionError(
                "decode, queries and targets are for a model with target_features, which needs all"
            )
        fine, coarse = shape.levels
        x = self.embedding(x)
        hidden = self.encoder(x, fine, coarse)
        for number, block in enumerate(self.processor):
            hidden = block(hidden, coarse, number)
        graph = coarse.up
        if self.targets is not None and decode is not None and queries is not None:
            need_graph(decode, "decode")
            fine = Level(queries, None, ())
            graph = decode
            x = self.targets(targets)
        x = self.decoder(x, hidden, graph, fine, coarse)
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return self.head(self.norm(x))
