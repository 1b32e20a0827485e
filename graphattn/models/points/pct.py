"""PCT: offset-attention of all points of a cloud, on embeddings of their neighbourhoods."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import one_of, probability, width
from ...errors import GraphError
from ...functional import attention
from ...graph import AttentionGraph
from ...graph.foreign_names import names_checked
from ...graph.modes import without_autocast
from ...graphs import Hierarchy
from ...graphs.points.hierarchy import Level
from ...nn import inverse_distance_interpolate
from ...nn.biases.constant import sources, targets
from ...nn.geometry import rows_of
from ...nn.points.pooling import largest
from ...plans.cache import cached
from ..example import example, features, small_cloud
from .levels import READOUTS, carried, levels_checked, of_clouds, refuse_shards, sizes
from .point_transformer import Dense


def _small() -> Any:
    from ...graphs import full

    return small_cloud(ratio=0.5, graph=full(...))


@example(lambda new, p: new(3, 2, (8, 8), 2, dropout=p), features(13, 3), lambda: (_small(),))
class PCT(nn.Module):
    """Neighbourhoods grouped from level to level, and offset-attention on the coarsest one.

    Args:
        features: Width of the points' features.
        out_dim: Width of the answer, from a perceptron.
        widths: C of each level, the finest first; one level is the paper's simple embedding.
        num_layers: Number of layers of offset-attention.
        readout: "shape", from the mean and the maximum over the coarsest points, or "node", from
            these and the features of a point's nearest coarse points.
        dropout: Rate of dropout in the perceptron of the answer.

    Source: Guo et al. 2021. A weight is normalised over the targets of its source, and then over
    the sources of its target: a softmax with a bias for each source, which any backend runs. *What
    differs:* layer norms in place of batch norms. The paper's hierarchy is
    ``ga.graphs.hierarchy(..., ratio=(0.5, 0.5), graph=ga.graphs.full(...), down=ga.graphs.knn(..., 32))``;
    the coarsest graph has to be symmetric, as ``full(...)`` and ``radius(...)`` are.

    Example:
        >>> import torch, graphattn as ga
        >>> pos, batch = torch.rand(60, 3), torch.arange(60) // 30
        >>> shape = ga.graphs.hierarchy(pos, batch, ratio=0.5, graph=ga.graphs.full(...))
        >>> PCT(3, 5, widths=(16, 32))(pos, shape).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        features: int,
        out_dim: int,
        widths: Sequence[int] = (64, 128, 256),
        num_layers: int = 4,
        *,
        readout: str = "shape",
        dropout: float = 0.0,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        level_widths = sizes(widths, "widths")
        self.widths = level_widths
        self.readout = one_of(readout, "readout", READOUTS)
        self.embedding = nn.Sequential(
            Dense(width(features, "features"), level_widths[0]),
            Dense(level_widths[0], level_widths[0]),
        )
        self.groupings = nn.ModuleList(
            Grouping(fine, coarse) for fine, coarse in pairwise(level_widths)
        )
        last = level_widths[-1]
        layers = width(num_layers, "num_layers")
        self.layers = nn.ModuleList(OffsetAttention(last) for _ in range(layers))
        self.fuse = Dense((layers + 1) * last, 4 * last)
        if readout == "shape":
            head_width = 2 * 4 * last
        else:
            head_width = 3 * 4 * last
        drop = nn.Dropout(probability(dropout, "dropout"))
        self.head = nn.Sequential(
            Dense(head_width, last), drop, nn.Linear(last, width(out_dim, "out_dim"))
        )

    @names_checked
    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Outputs for B clouds (..., B, out), or for points (..., N, out).

        Args:
            x: (..., N, features) of the finest points.
            shape: The levels.

        Raises:
            ShapeError: If ``x`` does not fit the model or the hierarchy, or it has another number
                of levels.
            GraphError: If the coarsest level's graph is not symmetric.
        """
        levels_checked(x, shape, len(self.widths))
        refuse_shards(shape, "PCT gives every point the features of its whole cloud")
        x = self.embedding(x)
        for grouping, coarse in zip(self.groupings, shape.levels[1:], strict=True):
            x = grouping(x, coarse)
        parts = [x]
        for number, layer in enumerate(self.layers):
            level = shape.levels[-1]
            parts.append(layer(parts[-1], level.graphs[number % len(level.graphs)]))
        x = self.fuse(torch.cat(parts, -1))
        cloud_features = of_clouds(x, shape, "mean", "max")
        if self.readout == "shape":
            return self.head(cloud_features)
        for fine, coarse in reversed(list(pairwise(shape.levels))):
            assert coarse.up is not None
            x = inverse_distance_interpolate(x, coarse.up, coarse.pos, fine.pos)
        batch = shape.levels[0].batch
        if batch is None:
            context = cloud_features.expand(*x.shape[:-1], -1)
        else:
            context = cloud_features.index_select(-2, batch)
        return self.head(torch.cat((x, context), -1))


class Grouping(nn.Module):
    """The maximum over neighbours of perceptrons of a coarse point and differences from it."""

    def __init__(self, fine: int, coarse: int) -> None:
        super().__init__()
        self.dense = nn.Sequential(Dense(2 * fine, coarse), Dense(coarse, coarse))

    def forward(self, x: Tensor, coarse: Level) -> Tensor:
        graph = coarse.down
        assert graph is not None
        centre = rows_of(carried(x, coarse), targets(graph, x.device))
        offset = rows_of(x, sources(graph, x.device)) - centre
        return largest(self.dense(torch.cat((centre, offset), -1)), graph)


class OffsetAttention(nn.Module):
    """``x + relu(norm(W (x - attention)))``, with one projection for queries and keys."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.key = nn.Linear(embed_dim, max(1, embed_dim // 4), bias=False)
        self.value = nn.Linear(embed_dim, embed_dim)
        self.dense = Dense(embed_dim, embed_dim)

    def forward(self, x: Tensor, graph: AttentionGraph) -> Tensor:
        if not torch.compiler.is_compiling() and not cached(
            graph, "symmetric", lambda: graph.equals(graph.reverse())
        ):
            raise GraphError(
                f"offset-attention needs a symmetric graph, such as full(...), got {graph!r}"
            )
        key = self.key(x).unsqueeze(-2)  # (..., N, 1, C / 4)
        # exp(s_ts) / sum_t' exp(s_t's), normalised over s: a softmax over s of s_ts less a source's
        # own lse
        normalizer: Any = attention(
            key, key, torch.zeros_like(key), graph, scale=1.0, return_lse=True
        )
        keys = key.to(normalizer.lse.dtype)
        query = torch.cat((keys, torch.ones_like(keys[..., :1])), -1)
        keys = torch.cat((keys, -normalizer.lse[..., None]), -1)
        value = self.value(x).unsqueeze(-2).to(keys.dtype)
        with without_autocast(x.device.type):  # lse in full precision
            read: Any = attention(query, keys, value, graph, scale=1.0)
        return x + self.dense(x - read.squeeze(-2).to(x.dtype))
