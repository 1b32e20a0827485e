"""What a block does to each node by itself: perceptrons, gated ones, mixtures of experts; and dropped paths."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import OptionError
from ..graph import AttentionGraph
from ..interop import from_edge_index
from .arguments import width

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """``W_2 activation(W_1 x)``, or gated ``W_2 (activation(W_g x) * W_1 x)``, on every node by itself.

    Args:
        embed_dim: C.
        hidden: Width between the two.
        activation: "relu", "gelu" (exact), "gelu_tanh" (GPT-2's), "silu"; after "gated_" the same with a gate:
            "gated_silu" is SwiGLU (Llama), "gated_gelu_tanh" T5 1.1's.
        dropout: Between the two.
        bias: Whether the projections have one.

    Source: Vaswani et al. 2017, section 3.3; Shazeer 2020, "GLU Variants Improve Transformer".
    """

    def __init__(
        self, embed_dim: int, hidden: int, activation: str = "gelu", *, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        plain = str(activation).removeprefix("gated_")
        if plain not in ACTIVATIONS:
            raise OptionError(f"activation must be one of {', '.join(ACTIVATIONS)}, or gated_ one; got {activation!r}")
        self.activation = activation
        self.up = nn.Linear(width("embed_dim", embed_dim), width("hidden", hidden), bias)
        self.gate = nn.Linear(embed_dim, hidden, bias) if activation != plain else None
        self.down = nn.Linear(hidden, embed_dim, bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to (..., C)."""
        activate = ACTIVATIONS[self.activation.removeprefix("gated_")]
        inner = activate(self.up(x)) if self.gate is None else activate(self.gate(x)) * self.up(x)
        return self.down(self.dropout(inner))


class ClampedGLU(nn.Module):
    r"""A gated feed-forward whose parts are clamped: :math:`W_2 ((u + 1) \, g \, \sigma(\alpha g))` with
    :math:`u = W_1 x` in :math:`[-c, c]` and :math:`g = W_g x` at most c, each with a bias.

    Args:
        embed_dim: C.
        hidden: Width between.
        alpha: Of the sigmoid; 1.702 is nearly GELU.
        limit: The bound c.

    Source: the experts of GPT-OSS (OpenAI 2025), published code.
    """

    def __init__(self, embed_dim: int, hidden: int, alpha: float = 1.702, limit: float = 7.0) -> None:
        super().__init__()
        self.alpha, self.limit = alpha, limit
        self.up = nn.Linear(width("embed_dim", embed_dim), width("hidden", hidden))
        self.gate, self.down = nn.Linear(embed_dim, hidden), nn.Linear(hidden, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to (..., C)."""
        up, gate = self.up(x).clamp(-self.limit, self.limit), self.gate(x).clamp(max=self.limit)
        return self.down((up + 1) * gate * torch.sigmoid(self.alpha * gate))


class MixtureOfExperts(nn.Module):
    """Several feed-forwards, of which every token uses a few: a bipartite graph from experts to tokens.

    A router scores the experts for each token; the edges are its ``top_k`` best, and softmax over them weighs what the
    experts make of the token.

    Args:
        experts: The feed-forwards, each from (n, C) to (n, C).
        embed_dim: C.
        top_k: Experts of a token, at most as many as there are.
        bias: Whether the router has one.

    Source: Shazeer et al. 2017, "Outrageously Large Neural Networks", section 2.1, without noise; weights as Mixtral's
    (softmax over the chosen). No capacity limit: no token is dropped.

    Example:
        >>> experts = [FeedForward(8, 16) for _ in range(4)]
        >>> moe = MixtureOfExperts(experts, embed_dim=8, top_k=2)
        >>> moe(torch.randn(5, 8)).shape, moe.graph(torch.randn(5, 8)).num_edges
        (torch.Size([5, 8]), 10)
    """

    def __init__(self, experts: list[nn.Module], embed_dim: int, top_k: int, *, bias: bool = False) -> None:
        super().__init__()
        if not 1 <= top_k <= len(experts):
            raise OptionError(f"top_k must be between 1 and the number of experts, {len(experts)}; got {top_k}")
        self.experts, self.top_k = nn.ModuleList(experts), top_k
        self.router = nn.Linear(width("embed_dim", embed_dim), len(experts), bias=bias)

    def _chosen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (N, top_k) of the experts chosen for each token, and the experts (N, top_k), best first."""
        best = torch.topk(self.router(x), self.top_k, dim=-1)
        return best.values, best.indices

    def graph(self, x: Tensor) -> AttentionGraph:
        """Which experts each of the tokens x (N, C) reads."""
        _, expert = self._chosen(x)
        token = torch.arange(len(x), device=x.device).repeat_interleave(self.top_k)
        edges = torch.stack((expert.flatten(), token))
        return from_edge_index(edges, num_sources=len(self.experts), num_targets=len(x))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to (..., C)."""
        flat = x.reshape(-1, x.shape[-1])
        score, expert = self._chosen(flat)
        alpha = torch.softmax(score, -1, torch.promote_types(x.dtype, torch.float32)).to(x.dtype)
        made = flat.new_zeros(expert.numel(), x.shape[-1])  # of every edge
        for number, module in enumerate(self.experts):
            edge = torch.nonzero(expert.flatten() == number).flatten()
            made = made.index_copy(0, edge, module(flat[edge // self.top_k]).to(x.dtype))
        return (made.unflatten(0, expert.shape) * alpha.unsqueeze(-1)).sum(-2).view(x.shape)


class DropPath(nn.Module):
    """In training, drop a whole branch for some examples of the batch, and scale the others up (stochastic depth).

    Args:
        p: Probability that an example's branch is dropped.

    Source: Huang et al. 2016, "Deep Networks with Stochastic Depth".
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise OptionError(f"drop_path must be in [0, 1), got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, C), or (N, C) as one example."""
        if not self.training or self.p == 0.0:
            return x
        shape = (x.shape[0], *(1,) * (x.dim() - 1)) if x.dim() > 2 else (1,) * x.dim()
        return x * x.new_empty(shape).bernoulli_(1 - self.p) / (1 - self.p)
