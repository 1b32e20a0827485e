"""Point Transformer: vector attention on neighbours, farthest points down, interpolation up."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from ...arguments import probability, width
from ...graph.foreign_names import names_checked
from ...graphs import Hierarchy
from ...graphs.points.hierarchy import Level
from ...nn import DropPath, GraphAttention
from ...nn.blocks import make_norm
from ...nn.scores import Subtraction
from ..example import example, features, small_cloud
from .levels import Down, Levels, Part, Up, heads_of, of_clouds, sizes


class PointStages(nn.Module):
    """An embedding, stages of blocks on the levels of a hierarchy, and a perceptron.

    Args:
        features: Width of the points' features.
        out_dim: Width of the answer.
        widths: C of each level, the finest first.
        depths: Blocks of each level on the way down.
        back: Blocks of each level but the coarsest on the way up.
        block: As of :class:`~graphattn.models.points.levels.Levels`.
        readout: "node", or "shape".
        dense: The layers between levels: ``dense(before, after)``.
        dropout: Rate of dropout in the perceptron.
    """

    def __init__(
        self,
        features: int,
        out_dim: int,
        widths: list[int],
        depths: Sequence[int] | int,
        back: int,
        block: Part | Sequence[Part],
        readout: str,
        dense: Part | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = Dense(width(features, "features"), widths[0])
        self.levels = Levels(
            widths,
            sizes(depths, "depths", len(widths), 0),
            [back] * (len(widths) - 1),
            block=block,
            down=partial(Down, dense=dense or Dense),
            up=partial(Up, dense=dense or Dense),
            readout=readout,
        )
        last = self.levels.out_dim
        drop = nn.Dropout(probability(dropout, "dropout"))
        self.head = nn.Sequential(
            Dense(last, last), drop, nn.Linear(last, width(out_dim, "out_dim"))
        )

    @names_checked
    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Outputs for points (..., N, out), or for B clouds (..., B, out).

        Args:
            x: (..., N, features) of the finest points.
            shape: The levels, with positions and graphs:
                ``ga.graphs.hierarchy(pos, batch, ratio=...)``.

        Raises:
            ShapeError: If ``x`` does not fit the model or the hierarchy, or it has another number
                of levels.
        """
        self.levels.of_call(x, shape)
        x = self.levels(self.embedding(x), shape)
        if self.levels.readout != "node":
            x = of_clouds(x, shape, "mean")
        return self.head(x)


@example(
    lambda new, p: new(3, 2, (8, 8), (1, 1), share=4, dropout=p),
    features(13, 3),
    lambda: (small_cloud(ratio=0.5),),
)
class PointTransformer(PointStages):
    """A stage of vector attention on each level of a hierarchy; outputs per point or per cloud.

    Args:
        features: Width of the points' features: 3 for their positions alone.
        out_dim: Width of the answer, from a perceptron.
        widths: C of each level, the finest first.
        depths: Blocks of each level on the way down; one follows on each level on the way up.
        share: Channels that share a weight; 1 as in the paper, 8 in the authors' code.
        axes: Number of axes of the positions.
        readout: "node", or "shape".
        dropout: Rate of dropout in the perceptron of the answer.

    Source: Zhao et al. 2021. *What differs:* layer norms in place of batch norms, so that an output
    does not depend on the other clouds of its batch; channels that share a weight are neighbours.
    The hierarchy is the caller's: the paper's is ``ga.graphs.hierarchy(..., ratio=(0.25,) * 4)``.

    Example:
        >>> import torch, graphattn as ga
        >>> pos, batch = torch.rand(60, 3), torch.arange(60) // 30
        >>> model = PointTransformer(3, 5, widths=(16, 32), depths=(1, 1))
        >>> model(pos, ga.graphs.hierarchy(pos, batch, ratio=0.25)).shape
        torch.Size([60, 5])
    """

    def __init__(
        self,
        features: int,
        out_dim: int,
        widths: Sequence[int] = (32, 64, 128, 256, 512),
        depths: Sequence[int] | int = (1, 2, 2, 5, 2),
        *,
        share: int = 8,
        axes: int = 3,
        readout: str = "node",
        dropout: float = 0.0,
    ) -> None:
        """Arguments as in the docstring of the class."""
        level_widths = sizes(widths, "widths")
        heads_of(level_widths, width(share, "share"), "share")
        block = partial(VectorBlock, share=share, axes=axes)
        super().__init__(
            features, out_dim, level_widths, depths, 1, block, readout, dropout=dropout
        )


class Dense(nn.Module):
    """``relu(norm(W x))``."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.linear = nn.Linear(before, after)
        self.norm = make_norm("layer", after, 1e-5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.linear(x)))


class VectorBlock(nn.Module):
    """Linear, vector attention, linear, and the residual.

    Args:
        embed_dim: C.
        share: Channels that share a weight.
        axes: Number of axes of the positions.
        hidden: Width of the score's perceptron, as in :class:`graphattn.nn.scores.Subtraction`.
        drop_path: Probability of dropping the branch.
    """

    def __init__(
        self,
        embed_dim: int,
        share: int,
        axes: int,
        hidden: int | None = None,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        heads = embed_dim // share
        self.first = Dense(embed_dim, embed_dim)
        self.last = nn.Linear(embed_dim, embed_dim)
        score = Subtraction(heads, share, hidden=hidden, edge_dim=axes)
        self.attention = GraphAttention(
            embed_dim, heads, edge_dim=axes, score=score, out_proj=False
        )
        self.norm = make_norm("layer", embed_dim, 1e-5)
        self.last_norm = make_norm("layer", embed_dim, 1e-5)
        self.drop = DropPath(drop_path)

    def forward(self, x: Tensor, level: Level, number: int) -> Tensor:
        """The block's output (..., N, C), on the level's graph of that number."""
        graph = level.graphs[number % len(level.graphs)]
        read = self.attention(self.first(x), graph, positions=level.pos)
        return torch.relu(x + self.drop(self.last_norm(self.last(torch.relu(self.norm(read))))))
