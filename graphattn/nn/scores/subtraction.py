"""The score of vector attention."""

from typing import Any

from torch import Tensor, nn

from ..arguments import width
from .base import Score


class Subtraction(Score):
    r"""A perceptron on the difference of all heads at once gives a score for each group of channels: vector attention.

    .. math:: \mathrm{score}_{ts} = \gamma(q_t - k_s + \delta_{ts}), \qquad
              o_t = \sum_s \alpha_{ts} \, (v_s + \delta_{ts}), \qquad \delta_{ts} = \theta(p_t - p_s)

    A head is a group of channels with a weight of its own, so ``num_heads = embed_dim`` weighs every channel by itself.

    Args:
        num_heads: H, groups of channels.
        head_dim: D, channels of a group.
        hidden: Width of the hidden layer of gamma; H * D by default.
        edge_dim: F, width of edge features such as the offset of a target from its source: ``delta``, a perceptron of
            the score's own with a hidden layer of H * D, makes the encoding of them. By default edge features are the
            encoding, (..., E, H * D), and the layer adds a projection of it to the value.

    Source: Zhao et al. 2021 (Point Transformer), equations 2 to 4; PyG's ``PointTransformerConv``.

    Example:
        >>> import torch, graphattn as ga
        >>> pos, x = torch.rand(100, 3), torch.rand(100, 32)
        >>> graph = ga.graphs.knn(pos, k=16)
        >>> layer = ga.nn.GraphAttention(32, num_heads=4, edge_dim=3, score="subtraction")
        >>> layer(x, graph, edge_attr=pos[graph.target] - pos[graph.source]).shape
        torch.Size([100, 32])
    """

    alias = "subtraction"

    def __init__(self, num_heads: int, head_dim: int, hidden: int | None = None, edge_dim: int | None = None) -> None:
        super().__init__()
        self.num_heads, self.head_dim = width("num_heads", num_heads), width("head_dim", head_dim)
        wide = self.num_heads * self.head_dim
        hidden = wide if hidden is None else width("hidden", hidden)
        self.gamma = nn.Sequential(nn.Linear(wide, hidden), nn.ReLU(), nn.Linear(hidden, self.num_heads))
        self.edge_dim = wide
        if edge_dim is not None:
            self.edge_dim = width("edge_dim", edge_dim)
            self.delta = nn.Sequential(nn.Linear(self.edge_dim, wide), nn.ReLU(), nn.Linear(wide, wide))

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        difference = (query - key).flatten(-2)
        return self.gamma(difference if edge_attr is None else difference + edge_attr.to(difference.dtype))

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        apart = query.flatten(-2).unsqueeze(-2) - key.flatten(-2).unsqueeze(-3)  # (..., T, S, H * D)
        return _dense_perceptron(self.gamma, apart if edge_attr is None else apart + edge_attr).movedim(-1, -3)

    def dense_delta(self, edge_attr: Tensor) -> Tensor:
        return _dense_perceptron(self.delta, edge_attr)

    @property
    def has_twin(self) -> bool:
        """Whether gamma and delta are still what the formula takes them for."""
        perceptrons = [[type(x) for x in part.children()] for part in self.children()]
        return super().has_twin and all(part == [nn.Linear, nn.ReLU, nn.Linear] for part in perceptrons)


def _dense_perceptron(layers: Any, x: Tensor) -> Tensor:
    """``W_2 relu(W_1 x + b_1) + b_2``."""
    first, _, second = layers
    return (x @ first.weight.T + first.bias).clamp(min=0) @ second.weight.T + second.bias
