"""Scores with a bend between query and key: a function of each edge, on message passing alone."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...errors import OptionError
from ..arguments import check_function, width
from .base import Score


class Additive(Score):
    """``v_h . tanh(q + k)``, the additive score; the layer's projections are its W_q and W_k.

    Source: Bahdanau et al. 2015, appendix A.1.2. With a leaky ReLU of slope 0.2 it is that of GATv2 (Brody et al.
    2022, equation 7).
    """

    alias = "additive"

    def __init__(self, num_heads: int, head_dim: int, activation: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.num_heads, self.head_dim = width("num_heads", num_heads), width("head_dim", head_dim)
        self.weight = nn.Parameter(torch.empty(self.num_heads, self.head_dim))
        self.activation = check_function("activation", activation, "x")
        nn.init.xavier_uniform_(self.weight)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        return (self.activation(query + key) * self.weight.to(query.dtype)).sum(-1)

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        bent = self.activation(query.unsqueeze(-3) + key.unsqueeze(-4))  # (..., T, S, H, D)
        return torch.einsum("...tshd,hd->...hts", bent, self.weight)

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        return self.activation is torch.tanh


class MLPScore(Score):
    """A perceptron with one hidden layer on ``[q, k]`` and the features of the edge, the same for every head.

    Args:
        head_dim: D.
        hidden: Width of the hidden layer.
        edge_dim: F, width of the edge's features, that of the layer; 0 if the score reads none.
    """

    alias = "mlp"

    def __init__(self, head_dim: int, hidden: int, edge_dim: int = 0) -> None:
        super().__init__()
        self.head_dim, hidden = width("head_dim", head_dim), width("hidden", hidden)
        self.edge_dim = None if edge_dim == 0 else width("edge_dim", edge_dim)
        self.hidden, self.out = nn.Linear(2 * self.head_dim + (self.edge_dim or 0), hidden), nn.Linear(hidden, 1)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        parts = [query, key]
        if self.edge_dim:
            if edge_attr is None:
                size = f"edge_dim={self.edge_dim}"
                raise OptionError(f"the score was built with {size}: build the layer with it, too, and pass edge_attr")
            wide = edge_attr.unsqueeze(-2).expand(*edge_attr.shape[:-1], query.shape[-2], -1)
            parts.append(wide.expand(*query.shape[:-1], -1).to(query.dtype))
        return self.out(torch.relu(self.hidden(torch.cat(parts, -1)))).squeeze(-1)

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        D, weight = query.shape[-1], self.hidden.weight  # [W_q W_k W_e]
        before = (query @ weight[:, :D].T).unsqueeze(-3) + (key @ weight[:, D : 2 * D].T).unsqueeze(-4)
        if self.edge_dim is not None and edge_attr is not None:
            before = before + (edge_attr @ weight[:, 2 * D :].T).unsqueeze(-2)  # (..., T, S, H, hidden width)
        bent = (before + self.hidden.bias).clamp(min=0)
        return torch.einsum("...tshd,d->...hts", bent, self.out.weight.squeeze(0)) + self.out.bias

    @classmethod
    def for_layer(cls, num_heads: int, head_dim: int, edge_dim: int | None) -> "MLPScore":
        return cls(head_dim, head_dim, 0 if edge_dim is None else edge_dim)
