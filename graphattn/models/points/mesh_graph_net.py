"""MeshGraphNet: messages that are features of their edges, updated from block to block."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...arguments import width
from ...errors import ShapeError
from ...graph.foreign_names import names_checked
from ...graph.like import GraphLike
from ...graphs import Hierarchy
from ...nn.biases.constant import sources, targets
from ...nn.geometry import rows_of, sums_of
from ..example import example, features, small_cloud
from .levels import levels_checked
from .unet import EdgeEncoder, Perceptron


@example(lambda new, p: new(5, 2, 8, 2), features(13, 5), lambda: (small_cloud(),))
class MeshGraphNet(nn.Module):
    r"""Edges updated from both of their ends, and nodes from the sum of their edges.

    .. math:: e'_{ts} = e_{ts} + f(e_{ts}, x_s, x_t), \qquad
              x'_t = x_t + g \Big( \sum_{s \in \mathcal{N}(t)} e'_{ts}, \, x_t \Big)

    It is no attention: no softmax weighs the sources of a target, so that a sum grows with their
    number, and what a target reads of one source does not depend on the others. Edges remember what
    they carried in the blocks before, where attention reads the same edge features in every block.
    A block costs :math:`5 C^2` products for each edge, :math:`4 C^2` for each node, and keeps (E, C)
    numbers; attention without edge features costs :math:`2 C` for each edge.

    Args:
        features: Width of the nodes' features.
        out_dim: Width of the output, from a perceptron.
        embed_dim: C.
        num_layers: Number of blocks.
        edges: Features of edges, names of :func:`graphattn.nn.edge_geometry`.
        axes: Number of axes of the positions.

    Source: Pfaff et al. 2021; blocks, encoders and decoder have the numbers of physicsnemo's
    ``MeshGraphNet`` with the same weights.

    Example:
        >>> import torch, graphattn as ga
        >>> pos, cells = torch.rand(4, 2), [("triangle", [[0, 1, 2], [1, 2, 3]])]
        >>> shape = ga.graphs.hierarchy(pos, graph=ga.graphs.mesh_cells(cells, 4))
        >>> MeshGraphNet(3, 1, 16, 2, axes=2)(torch.rand(4, 3), shape).shape
        torch.Size([4, 1])
    """

    def __init__(
        self,
        features: int,
        out_dim: int,
        embed_dim: int = 64,
        num_layers: int = 4,
        *,
        edges: Sequence[str] = ("offset", "distance"),
        axes: int = 3,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        C = width(embed_dim, "embed_dim")
        self.embedding = NormedPerceptron(width(features, "features"), C, C)
        self.edges = EdgeEncoder(edges, width(axes, "axes"), C, make=NormedPerceptron)
        self.blocks = nn.ModuleList(
            GraphNetBlock(C) for _ in range(width(num_layers, "num_layers"))
        )
        self.head = NormedPerceptron(C, C, width(out_dim, "out_dim"), norm=False)

    @names_checked
    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Outputs for nodes (..., N, out).

        Args:
            x: (..., N, features).
            shape: One level, such as ``ga.graphs.hierarchy(pos, graph=mesh_cells(cells, N))``. The
                blocks take its graphs in turn, and each graph's edges are updated by its blocks.

        Raises:
            ShapeError: If ``x`` does not fit the model or the hierarchy, or it has more levels than
                one.
        """
        level = levels_checked(x, shape, 1).levels[0]
        if not level.graphs:
            raise ShapeError(
                "shape must have a graph on its level, got none; pass hierarchy(pos, graph=...)"
            )
        x = self.embedding(x)
        lead = x.shape[:-2]
        edges = [self.edges(graph, level).expand(*lead, -1, -1) for graph in level.graphs]
        for number, block in enumerate(self.blocks):
            place = number % len(edges)
            x, edges[place] = block(x, level.graphs[place], edges[place])
        return self.head(x)


class NormedPerceptron(Perceptron):
    """``norm(W_3 relu(W_2 relu(W_1 x)))``."""

    def __init__(self, before: int, hidden: int, after: int, norm: bool = True) -> None:
        super().__init__(before, hidden, after)
        self.middle = nn.Linear(hidden, hidden)
        self.norm: nn.Module = nn.Identity()
        if norm:
            self.norm = nn.LayerNorm(after)

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(self.first(x).relu()).relu()
        return self.norm(self.last(x))


class GraphNetBlock(nn.Module):
    """A block of :class:`MeshGraphNet`: nodes (..., N, C) and edges (..., E, C), updated."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.of_edges = NormedPerceptron(3 * embed_dim, embed_dim, embed_dim)
        self.of_nodes = NormedPerceptron(2 * embed_dim, embed_dim, embed_dim)

    def forward(self, x: Tensor, graph: GraphLike, edges: Tensor) -> tuple[Tensor, Tensor]:
        source_rows, target_rows = graph.ends(x, x)
        target = targets(graph, x.device)
        of_source = rows_of(source_rows, sources(graph, x.device))
        of_target = rows_of(target_rows, target)
        edges = edges + self.of_edges(torch.cat((edges, of_source, of_target), -1))
        total = graph._own_targets(sums_of(edges, target, graph._num_target_rows), -2)
        return x + self.of_nodes(torch.cat((total, x), -1)), edges
