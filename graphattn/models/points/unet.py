"""A U-Net over any hierarchy: attention on each level and between levels, with geometry."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import one_of, probability, several, width
from ...errors import ShapeError
from ...graph import AttentionGraph
from ...graph.foreign_names import names_checked
from ...graphs import Hierarchy
from ...graphs.points.hierarchy import Level
from ...nn import GraphAttention, TransformerBlock, edge_geometry
from ...nn.blocks import make_norm
from ...nn.geometry import FEATURES
from ..example import example, features, small_cloud
from .levels import Down, LevelOfCall, Levels, Part, Up, carried, heads_of, of_clouds, sizes

POOLING = ("attention", "max", "mean")


@example(
    lambda new, p: new(5, 2, (8, 12), 2, dropout=p),
    features(13, 5),
    lambda: (small_cloud(ratio=0.5),),
)
class UNet(nn.Module):
    """Blocks on each level of a hierarchy on the way down and up; outputs per point or per cloud.

    A block reads its level's graph, with features of its edges in keys and values. A coarser point
    reads the finer ones of ``down``, and on the way up a finer point reads the coarser ones of
    ``up``.

    Args:
        features: Width of the points' features; constants serve if positions suffice.
        out_dim: Width of the answer, from a perceptron.
        widths: C of each level, the finest first.
        num_heads: H.
        depths: Blocks of each level on the way down.
        back_depths: Blocks of each level but the coarsest on the way up.
        edges: Features of edges, names of :func:`graphattn.nn.edge_geometry`. Without "offset",
            "direction" and equivariant features in ``x``, outputs are invariant under rotations of
            all points.
        edge_dim: Width of a perceptron of them, which costs as much as H times as many channels;
            that of the points by default.
        axes: Number of axes of the positions.
        pooling: "attention", or the "max" or "mean" along ``down``, and then inverse distances on
            the way up.
        readout: "node", or "shape", from the mean and the maximum over the coarsest points of each
            cloud.
        dropout: Rate of dropout in blocks and in the perceptron of the answer.

    Source: Ronneberger et al. 2015 on the levels of Qi et al. 2017 (PointNet++), with transformer
    blocks.

    Example:
        >>> import torch, graphattn as ga
        >>> pos, batch = torch.rand(60, 3), torch.arange(60) // 30
        >>> model = UNet(3, 5, widths=(16, 32), num_heads=2)
        >>> model(pos, ga.graphs.hierarchy(pos, batch, ratio=0.25)).shape
        torch.Size([60, 5])
    """

    def __init__(
        self,
        features: int,
        out_dim: int,
        widths: Sequence[int] = (32, 32, 32),
        num_heads: int = 4,
        depths: Sequence[int] | int = 1,
        back_depths: Sequence[int] | int = 1,
        *,
        edges: Sequence[str] = ("offset", "distance"),
        edge_dim: int | None = None,
        axes: int = 3,
        pooling: str = "attention",
        readout: str = "node",
        dropout: float = 0.0,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        level_widths = sizes(widths, "widths")
        heads_of(level_widths, width(num_heads, "num_heads"), "num_heads")
        self.embedding = Perceptron(width(features, "features"), level_widths[0], level_widths[0])
        if edge_dim is None:
            edge_width = None
        else:
            edge_width = width(edge_dim, "edge_dim")
        geometry = partial(EdgeEncoder, edges, width(axes, "axes"), edge_dim=edge_width)
        block = partial(
            EdgeBlock,
            num_heads=num_heads,
            geometry=geometry,
            dropout=probability(dropout, "dropout"),
        )
        down: Part = partial(Down, reduction=one_of(pooling, "pooling", POOLING))
        up: Part = Up
        if pooling == "attention":
            down, up = (
                partial(part, num_heads=num_heads, geometry=geometry) for part in (Descent, Ascent)
            )
        back = []
        if level_widths[1:]:
            back = sizes(back_depths, "back_depths", len(level_widths) - 1, 0)
        self.levels = Levels(
            level_widths,
            sizes(depths, "depths", len(level_widths), 0),
            back,
            block=block,
            down=down,
            up=up,
            readout=readout,
        )
        last = self.levels.out_dim
        self.norm = make_norm("layer", last, 1e-5)
        self.dropout = nn.Dropout(dropout)
        if readout == "node":
            channels = last
        else:
            channels = 2 * last
        self.head = Perceptron(channels, last, width(out_dim, "out_dim"))

    @names_checked
    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Outputs for points (..., N, out), or for B clouds (..., B, out).

        Args:
            x: (..., N, features) of the finest points.
            shape: The levels: ``ga.graphs.hierarchy(pos, batch, ratio=...)``, with ``normals`` if
                ``edges`` need them.

        Raises:
            ShapeError: If ``x`` does not fit the model or the hierarchy, or it has another number
                of levels.
        """
        shape = self.levels.of_call(x, shape)
        x = self.norm(self.levels(self.embedding(x), shape))
        if self.levels.readout == "shape":
            x = of_clouds(x, shape, "mean", "max")
        return self.head(self.dropout(x))


class Perceptron(nn.Module):
    """``W_2 gelu(W_1 x)``."""

    def __init__(self, before: int, hidden: int, after: int) -> None:
        super().__init__()
        self.first = nn.Linear(before, hidden)
        self.last = nn.Linear(hidden, after)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(nn.functional.gelu(self.first(x)))


class EdgeEncoder(nn.Module):
    """A perceptron of the features of :func:`graphattn.nn.edge_geometry`."""

    def __init__(
        self,
        words: Sequence[str],
        axes: int,
        embed_dim: int,
        edge_dim: int | None = None,
        make: Part = Perceptron,
    ) -> None:
        super().__init__()
        if edge_dim is None:
            edge_dim = embed_dim
        self.width = edge_dim
        self.words = tuple(several(words, "edges", f"must name some of {', '.join(FEATURES)}"))
        for word in self.words:
            one_of(word, "edges", tuple(FEATURES))
        widths = FEATURES | {"offset": axes, "direction": axes}
        size = sum(widths[word] for word in self.words)
        self.perceptron: Any = make(width(size, "edges"), self.width, self.width)

    def forward(
        self, graph: AttentionGraph, sources: Level, targets: Level | None = None
    ) -> Tensor:
        """Encodings (E, width) of the edges on a level, or from one level to another."""
        if isinstance(sources, LevelOfCall) and not torch.compiler.is_compiling():
            level = sources
        else:
            level = None
        if level is None:
            geometry = None
        else:
            geometry = level.geometry.get((graph, targets, self.words))
        if geometry is None:
            if targets is None:
                queries = {}
            else:
                queries = {"queries": targets.pos, "queries_normals": targets.normals}
            geometry = edge_geometry(
                graph,
                sources.pos,
                features=self.words,
                normals=sources.normals,
                lines=sources.lines,
                **queries,
            )
            # what is recomputed must save the same tensors
            if level is not None and not geometry.requires_grad:
                level.geometry[graph, targets, self.words] = geometry
        return self.perceptron(geometry.to(self.perceptron.first.weight.dtype))


class EdgeBlock(nn.Module):
    """A transformer block on one of a level's graphs, with the geometry of its edges."""

    def __init__(self, embed_dim: int, num_heads: int, geometry: Part, dropout: float) -> None:
        super().__init__()
        self.edges: Any = geometry(embed_dim)
        self.block = TransformerBlock(
            embed_dim, num_heads, 2 * embed_dim, edge_dim=self.edges.width, dropout=dropout
        )

    def forward(self, x: Tensor, level: Level, number: int) -> Tensor:
        graph = level.graphs[number % len(level.graphs)]
        return self.block(x, graph, edge_attr=self.edges(graph, level))


class Between(nn.Module):
    """Attention between levels: ``y + attention(norm(y), norm(x))``, ``y`` of the targets."""

    def __init__(self, sources: int, targets: int, num_heads: int, geometry: Part) -> None:
        super().__init__()
        edges: Any = geometry(targets)
        self.edges = edges
        self.attention = GraphAttention(
            targets, num_heads, kdim=sources, vdim=sources, edge_dim=edges.width
        )
        self.norm = make_norm("layer", targets, 1e-5)
        self.source_norm = make_norm("layer", sources, 1e-5)

    def forward(
        self, y: Tensor, x: Tensor, graph: AttentionGraph | None, targets: Level, sources: Level
    ) -> Tensor:
        if graph is None:
            raise ShapeError("the levels have no graph between them")
        edges = self.edges(graph, sources, targets)
        return y + self.attention(self.norm(y), graph, context=self.source_norm(x), edge_attr=edges)


class Descent(nn.Module):
    """A coarse point reads finer ones, starting from its own finer point or its cell's mean."""

    def __init__(self, fine: int, coarse: int, num_heads: int, geometry: Part) -> None:
        super().__init__()
        self.own = nn.Linear(fine, coarse)
        self.read = Between(fine, coarse, num_heads, geometry)

    def forward(self, x: Tensor, fine: Level, coarse: Level) -> Tensor:
        return self.read(self.own(carried(x, coarse)), x, coarse.down, coarse, fine)


class Ascent(nn.Module):
    """A finer point reads coarser ones, starting from its features on the way down."""

    def __init__(self, coarse: int, fine: int, after: int, num_heads: int, geometry: Part) -> None:
        super().__init__()
        self.own = nn.Linear(fine, after)
        self.read = Between(coarse, after, num_heads, geometry)

    def forward(self, x: Tensor, skip: Tensor, fine: Level, coarse: Level) -> Tensor:
        return self.read(self.own(skip), x, coarse.up, fine, coarse)
