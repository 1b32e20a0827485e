"""Feed-forward modules on single nodes: perceptrons, gated ones, mixtures of experts; and dropped
paths.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..arguments import check_shape, floats, probability, width
from ..errors import OptionError
from ..graph import AttentionGraph
from ..graph.edge_index import from_edge_index

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
Activation = str | Callable[[Tensor], Tensor]


def plain_activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    """The elementwise function of an activation, or that of its gate."""
    if isinstance(activation, str):
        return ACTIVATIONS[activation.removeprefix("gated_")]
    return activation


class FeedForward(nn.Module):
    """``W_2 activation(W_1 x)``, or gated ``W_2 (activation(W_g x) * W_1 x)``, on every node
    separately.

    Args:
        embed_dim: C.
        hidden: Width between the two.
        activation: "relu", "gelu" (exact), "gelu_tanh" (GPT-2's), "silu"; after ``"gated_"`` one
            with a gate: "gated_silu" is SwiGLU (Llama), "gated_gelu_tanh" T5 1.1's. Or any function
            of a tensor: ``nn.GELU()``.
        dropout: Rate of dropout between the two.
        bias: True if the projections have one.

    Source: Vaswani et al. 2017, section 3.3; Shazeer 2020, "GLU Variants Improve Transformer".
    """

    def __init__(
        self,
        embed_dim: int,
        hidden: int,
        activation: Activation = "gelu",
        *,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        plain = activation
        is_known = callable(activation)
        if isinstance(activation, str):
            plain = activation.removeprefix("gated_")
            is_known = plain in ACTIVATIONS
        if not is_known:
            raise OptionError(
                f"activation must be one of {', '.join(ACTIVATIONS)}, one of these after gated_, "
                "or a function; got "
                f"{activation!r}"
            )
        self.embed_dim = width(embed_dim, "embed_dim")
        self.activation = activation
        self.up = nn.Linear(embed_dim, width(hidden, "hidden"), bias)
        self.gate: nn.Linear | None = None
        if activation != plain:
            self.gate = nn.Linear(embed_dim, hidden, bias)
        self.down = nn.Linear(hidden, embed_dim, bias)
        self.dropout = nn.Dropout(probability(dropout, "dropout"))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to (..., C)."""
        activate = plain_activation(self.activation)
        if self.gate is None:
            inner = activate(self.up(x))
        else:
            inner = activate(self.gate(x)) * self.up(x)
        return self.down(self.dropout(inner))


class MixtureOfExperts(nn.Module):
    """Several feed-forwards, of which every token uses a few: a bipartite graph from experts to
    tokens.

    A router scores the experts for each token; the edges are its ``top_k`` best, and softmax weighs
    the outputs of the experts.

    Args:
        experts: The feed-forwards, each from (n, C) to (n, C).
        embed_dim: C.
        top_k: Experts of a token, at most as many as there are.
        bias: True if the router has one.

    The weights of the chosen experts sum to 1 (Mixtral); of a single one, ``top_k=1``, it is that
    of softmax over all (Switch transformer), since a router whose only weight is 1 would learn
    nothing.

    Source: Shazeer et al. 2017, "Outrageously Large Neural Networks", section 2.1, without noise;
    Fedus et al. 2022, "Switch Transformers", section 2.1. No capacity limit: no token is dropped.
    :func:`load_balancing_loss` balances the load of the experts.

    Example:
        >>> experts = [FeedForward(8, 16) for _ in range(4)]
        >>> moe = MixtureOfExperts(experts, embed_dim=8, top_k=2)
        >>> moe(torch.randn(5, 8)).shape, moe.graph(torch.randn(5, 8)).num_edges
        (torch.Size([5, 8]), 10)
    """

    def __init__(
        self,
        experts: Iterable[nn.Module],
        embed_dim: int,
        top_k: int,
        *,
        bias: bool = False,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        experts = nn.ModuleList(experts)
        top_k = width(top_k, "top_k")
        self.experts = experts
        self.embed_dim = width(embed_dim, "embed_dim")
        self.top_k = top_k
        self.router = nn.Linear(embed_dim, len(experts), bias=bias)

    def _chosen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights (N, top_k) of the experts chosen for each token, and the experts (N, top_k), best
        first.
        """
        dtype = torch.promote_types(x.dtype, torch.float32)
        score = self.router(x)
        best = torch.topk(score, self.top_k, dim=-1)
        if self.top_k > 1:
            return torch.softmax(best.values, -1, dtype), best.indices
        return torch.softmax(score, -1, dtype).gather(-1, best.indices), best.indices

    def graph(self, x: Tensor) -> AttentionGraph:
        """The graph from experts to tokens x (N, C)."""
        _, expert = self._chosen(x)
        check_shape(x, "x", ("N", x.shape[-1]), "tokens are the targets of the graph")
        token = torch.arange(len(x), device=x.device).repeat_interleave(self.top_k)
        edges = torch.stack((expert.flatten(), token))
        return from_edge_index(edges, num_sources=len(self.experts), num_targets=len(x))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to (..., C)."""
        flat = x.reshape(-1, x.shape[-1])
        alpha, expert = self._chosen(flat)
        outputs = flat.new_zeros(expert.numel(), x.shape[-1])  # outputs of every edge
        for number, module in enumerate(self.experts):
            edge = torch.nonzero(expert.flatten() == number).flatten()
            tokens = flat[edge // self.top_k]
            output = module(tokens)
            check_shape(output, f"the result of experts[{number}]", tokens.shape)
            outputs = outputs.index_copy(0, edge, output.to(x.dtype))
        return (
            (outputs.unflatten(0, expert.shape) * alpha.to(x.dtype).unsqueeze(-1))
            .sum(-2)
            .view(x.shape)
        )


def load_balancing_loss(scores: Tensor, top_k: int) -> Tensor:
    r"""A loss that is least, 1, if tokens use all experts equally; to be added to the loss, times
    0.01 or so.

    .. math:: \frac{n}{k} \sum_{i=1}^{n} f_i P_i

    f is the share of tokens that choose an expert among their k, P the mean of its softmax weight
    over all n experts.

    Args:
        scores: (..., n), the output of the router, for example from
            ``moe.router.register_forward_hook``.
        top_k: Experts of a token.

    Source: Fedus et al. 2022, "Switch Transformers", equation 4, with k = 1.
    """
    n = floats(scores, "scores", "(..., n)", 1).shape[-1]
    chosen = F.one_hot(torch.topk(scores, top_k, dim=-1).indices, n).sum(-2).to(scores.dtype)
    share = torch.softmax(scores, -1)
    return n / top_k * (chosen.reshape(-1, n).mean(0) * share.reshape(-1, n).mean(0)).sum()


class DropPath(nn.Module):
    """Stochastic depth: in training, drop a whole branch for some examples of the batch, and scale
    up the others.

    Args:
        p: Probability that an example's branch is dropped.

    Source: Huang et al. 2016, "Deep Networks with Stochastic Depth".
    """

    def __init__(self, p: float = 0.0) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.p = probability(p, "drop_path", below_one=True)

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, C), or (N, C) as one example."""
        floats(x, "x", "(B, N, C) or (N, C)", 2)
        if not self.training or self.p == 0.0:
            return x
        if x.dim() > 2:
            shape = (x.shape[0], *(1,) * (x.dim() - 1))
        else:
            shape = (1,) * x.dim()
        return x * x.new_empty(shape).bernoulli_(1 - self.p) / (1 - self.p)
