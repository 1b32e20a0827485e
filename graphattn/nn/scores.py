"""Scores: how much a target heeds a source, as functions of the query, the key and the features of their edge."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import OptionError
from .arguments import check_function, positive, real, width

ScoreFunction = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""``score(query, key, edge_attr)`` with query and key (..., E, H, D) and edge_attr (..., E, F) gives (..., E, H)."""


class Score(nn.Module):
    """A score on edges. A subclass writes ``forward``; a plain function with the same arguments does as well.

    A score that is a dot product of *something* also writes :meth:`as_dot`, and runs on every backend.

    Attributes:
        num_heads: H of the layer that it is for; ``None`` if any does.
        head_dim: D, likewise.
        edge_dim: F, likewise, of the edge features if there are any.
        delta: A module that makes an encoding (..., E, H * D) of the edge features. The layer then adds it to the value
            in place of a projection of its own, and hands it to the score in place of the features. None by default.
    """

    num_heads: int | None = None
    head_dim: int | None = None
    edge_dim: int | None = None
    delta: nn.Module | None

    def __init__(self) -> None:
        super().__init__()
        self.delta = None

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Scores (..., E, H) from query and key (..., E, H, D) of each edge, and its features (..., E, F)."""
        raise NotImplementedError

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor] | None:
        """Query (..., T, H, D') and key (..., S, H_kv, D') whose plain product is the score; ``None`` if none is."""
        return None


class Dot(Score):
    """``q . k``, times a factor; the score of Luong et al. 2015 named "dot". T5's has no factor either."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = real("scale", scale)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        return (query * key).sum(-1) * self.scale

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return query * self.scale, key


class Cosine(Score):
    """``scale_h cos(q, k)``, with a factor for each head, learned by default.

    Args:
        num_heads: H.
        scale: Of every head at the start, > 0.
        learnable: Whether it is learned, as the logarithm.
        most: The largest that a learned one acts as, > 0.

    The cosine of a vector of zeros is 0, and no gradient reaches such a vector.

    Source: Liu et al. 2022 (Swin Transformer V2), section 3.3: learned, at most 100.
    """

    def __init__(self, num_heads: int, scale: float = 10.0, learnable: bool = True, most: float = 100.0) -> None:
        super().__init__()
        self.num_heads, most = width("num_heads", num_heads), positive("most", most, finite=False)
        self.most = most if learnable else math.inf
        logarithm = torch.full((self.num_heads, 1), positive("scale", scale)).log()
        self.log_scale = nn.Parameter(logarithm, requires_grad=learnable)

    def _units(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        query_unit, key_unit = _unit(query), _unit(key)
        scale = self.log_scale.to(query_unit.dtype).clamp(max=math.log(self.most)).exp()
        return (query_unit * scale).to(query.dtype), key_unit.to(key.dtype)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        query, key = self._units(query, key)
        return (query * key).sum(-1)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return self._units(query, key)


def _unit(x: Tensor) -> Tensor:
    """Vectors (..., D) of length 1, or 0; float32 or wider, since halves hold neither large squares nor the epsilon."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    length = wide.norm(dim=-1, keepdim=True)
    return wide / length.clamp(min=1e-12).masked_fill(length == 0, torch.inf)


class General(Score):
    """``q . W_h k``, the bilinear score of Luong et al. 2015 named "general"; W is (H, D, D)."""

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = width("num_heads", num_heads), width("head_dim", head_dim)
        self.weight = nn.Parameter(torch.empty(self.num_heads, self.head_dim, self.head_dim))
        nn.init.xavier_uniform_(self.weight)

    def _turned(self, query: Tensor) -> Tensor:
        return torch.einsum("...hd,hde->...he", query, self.weight.to(query.dtype))

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        return (self._turned(query) * key).sum(-1)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return self._turned(query), key


class Additive(Score):
    """``v_h . tanh(q + k)``, the additive score; the layer's projections are its W_q and W_k.

    Source: Bahdanau et al. 2015, appendix A.1.2. With a leaky ReLU of slope 0.2 it is that of GATv2 (Brody et al.
    2022, equation 7).
    """

    def __init__(self, num_heads: int, head_dim: int, activation: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.num_heads, self.head_dim = width("num_heads", num_heads), width("head_dim", head_dim)
        self.weight = nn.Parameter(torch.empty(self.num_heads, self.head_dim))
        self.activation = check_function("activation", activation, "x")
        nn.init.xavier_uniform_(self.weight)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        return (self.activation(query + key) * self.weight.to(query.dtype)).sum(-1)


class MLPScore(Score):
    """A perceptron with one hidden layer on ``[q, k]`` and the features of the edge, the same for every head.

    Args:
        head_dim: D.
        hidden: Width of the hidden layer.
        edge_dim: F, width of the edge's features, that of the layer; 0 if the score reads none.
    """

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


class Gaussian(Score):
    """``-|q - k|^2 / (2 sigma_h^2)``, so that softmax gives the Nadaraya-Watson kernel regression of Gaussians.

    Args:
        num_heads: H.
        sigma: Of every head at the start, > 0.
        learnable: Whether it is learned, as the logarithm.
    """

    def __init__(self, num_heads: int, sigma: float = 1.0, learnable: bool = True) -> None:
        super().__init__()
        self.num_heads = width("num_heads", num_heads)
        logarithm = torch.full((self.num_heads,), positive("sigma", sigma)).log()
        self.log_sigma = nn.Parameter(logarithm, requires_grad=learnable)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        return (query - key).square().sum(-1) * (-0.5 * torch.exp(-2 * self.log_sigma)).to(query.dtype)


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


def make_score(score: Any, num_heads: int, head_dim: int, edge_dim: int | None = None) -> ScoreFunction | None:
    """The score that a layer was given, by name or as a function; ``None`` for the scaled dot product."""
    named: dict[str, Callable[[], Score | None]] = {
        "scaled_dot": lambda: None,
        "dot": Dot,
        "cosine": lambda: Cosine(num_heads),
        "general": lambda: General(num_heads, head_dim),
        "additive": lambda: Additive(num_heads, head_dim),
        "mlp": lambda: MLPScore(head_dim, head_dim, 0 if edge_dim is None else edge_dim),
        "gaussian": lambda: Gaussian(num_heads, head_dim**0.5),
        "subtraction": lambda: Subtraction(num_heads, head_dim, edge_dim=edge_dim),
    }
    if isinstance(score, str) and score in named:
        score = named[score]()
    elif not callable(score):
        raise OptionError(
            f"score must be one of {', '.join(named)} or a function score(query, key, edge_attr), got {score!r}"
        )
    if score is not None:
        check_function("score", score, "query, key, edge_attr")
    sizes = {"num_heads": num_heads, "head_dim": head_dim, "edge_dim": edge_dim}
    for name, its in sizes.items():
        wanted = getattr(score, name) if isinstance(score, Score) else None
        if None not in (wanted, its) and wanted != its:
            raise OptionError(f"the score {type(score).__name__} has {name}={wanted}, and the layer {name}={its}")
    return score
