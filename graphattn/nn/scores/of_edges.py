"""Scores that are a function of each edge, and run on edges or message passing only."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...arguments import number, positive, width
from ...backends.rows import is_changed
from ...backends.scored import AdditiveForm
from ...errors import OptionError
from .base import Score

#: Functions that modules without options apply.
_FUNCTIONS: dict[type, Callable[[Tensor], Tensor]] = {nn.Tanh: torch.tanh, nn.ReLU: torch.relu}


def slope_of(activation: Callable[[Tensor], Tensor]) -> float | None:
    """The slope below 0 of a leaky ReLU, NaN for tanh; ``None`` for any other activation."""
    plain = _FUNCTIONS.get(type(activation), activation)
    if plain in (torch.tanh, F.tanh):
        return math.nan
    if plain in (torch.relu, F.relu):
        return 0.0
    slope = _leaky_slope(plain)
    if slope is not None and slope >= 0:
        return slope
    return None


def _leaky_slope(activation: Callable[[Tensor], Tensor]) -> float | None:
    """The slope with which an activation calls torch's leaky ReLU, if it does."""
    if activation is F.leaky_relu:
        return 0.01
    if type(activation) is nn.LeakyReLU:
        return activation.negative_slope
    if not isinstance(activation, partial):
        return None
    if activation.func is not F.leaky_relu or activation.args:
        return None
    if activation.keywords.keys() == {"negative_slope"}:
        return activation.keywords["negative_slope"]
    return None


def _edge_linear(edge_dim: int | None, out_features: int) -> tuple[int | None, nn.Linear | None]:
    """The width of edge features and their projection; ``None`` twice without features."""
    if edge_dim is None:
        return None, None
    size = width(edge_dim, "edge_dim")
    return size, nn.Linear(size, out_features, bias=False)


def _rectified(layer: nn.Linear, x: Tensor) -> Tensor:
    """``relu(layer(x))``, for few inputs of many rows.

    A weight stored by rows of inputs gets its gradient as ``x^T g``: measured, MKL takes a tenth of
    the time that the ``g^T x`` of ``F.linear`` takes with two to eight inputs.
    """
    rows = x.flatten(0, -2)
    weight = layer.weight.t().contiguous()
    if layer.bias is None:
        product = rows @ weight
    else:
        product = torch.addmm(layer.bias, rows, weight)
    return torch.relu_(product).unflatten(0, x.shape[:-1])


def _vectors(heads: int, head_dim: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, head_dim)))


def _present(edge_attr: Tensor | None, edge_dim: int | None) -> Tensor:
    if edge_attr is None:
        raise OptionError(
            f"the score was built with edge_dim={edge_dim}; build the layer with it, too, and "
            "pass edge_attr"
        )
    return edge_attr


def _inner(x: Tensor, weight: Tensor) -> Tensor:
    """Products (..., N, H) of (..., N, H, D) with a vector (H, D) of each head."""
    return (x * weight.to(x.dtype)).sum(-1)


class Additive(Score):
    """``v_h . tanh(q + k + W_e a)``, the additive score; the layer's projections are its W_q and
    W_k.

    Args:
        num_heads: H.
        head_dim: D.
        activation: Activation in place of tanh.
        edge_dim: F, width of the edge features a, that of the layer; none by default.

    Source: Bahdanau et al. 2015, appendix A.1.2. With a leaky ReLU of slope 0.2 it is that of GATv2
    (Brody et al. 2022, equation 7).
    """

    alias = "additive"

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
        edge_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = width(num_heads, "num_heads")
        self.head_dim = width(head_dim, "head_dim")
        self.weight = nn.Parameter(torch.empty(self.num_heads, self.head_dim))
        self.edge_dim, self.edge = _edge_linear(edge_dim, self.num_heads * self.head_dim)
        self.activation = activation
        nn.init.xavier_uniform_(self.weight)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        total = query + key
        if self.edge is not None:
            encoded = self.edge(_present(edge_attr, self.edge_dim))
            total = total + encoded.unflatten(-1, self.weight.shape)
        return (self.activation(total) * self.weight.to(query.dtype)).sum(-1)

    def as_additive(
        self, query: Tensor, key: Tensor, edge_attr: Tensor | None, last: nn.Linear | None = None
    ) -> AdditiveForm | None:
        slope = slope_of(self.activation)
        if slope is None:
            return None
        if self.edge is None:
            z = None
        else:
            z = self.edge(_present(edge_attr, self.edge_dim)).unflatten(-1, self.weight.shape)
        return AdditiveForm(query, key, z, self.weight.unsqueeze(1), slope)

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        total = query.unsqueeze(-3) + key.unsqueeze(-4)  # (..., T, S, H, D)
        if self.edge is not None and edge_attr is not None:
            total = total + (edge_attr @ self.edge.weight.T).unflatten(-1, self.weight.shape)
        return torch.einsum("...tshd,hd->...hts", self.activation(total), self.weight)

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        return self.activation is torch.tanh


class GATScore(Score):
    r"""A leaky ReLU of a sum of separate terms of target, source and edge, as in graph attention
    networks.

    .. math:: \mathrm{score}_{ts} = \mathrm{LeakyReLU}\big(a_h \cdot q_t + b_h \cdot k_s + c_h \cdot W_e a_{ts}\big)

    Up to the kink all targets rank sources equally; :class:`Additive` with a leaky ReLU is the
    score that Brody et al. 2022 (GATv2) propose for that reason.

    Args:
        num_heads: H.
        head_dim: D.
        slope: Slope of the leaky ReLU below 0, >= 0.
        edge_dim: F, width of the edge features, that of the layer; none by default.

    Source: Velickovic et al. 2018, equation 3: there q and k are the same projection; edge features
    as in PyG's ``GATConv``.
    """

    alias = "gat"

    def __init__(
        self, num_heads: int, head_dim: int, slope: float = 0.2, edge_dim: int | None = None
    ) -> None:
        super().__init__()
        self.num_heads = width(num_heads, "num_heads")
        self.head_dim = width(head_dim, "head_dim")
        self.slope = number(slope, "slope", "a finite number >= 0", lambda x: 0 <= x < math.inf)
        self.edge_dim, self.edge = _edge_linear(edge_dim, self.num_heads * self.head_dim)
        self.of_target, self.of_source = (_vectors(self.num_heads, self.head_dim) for _ in range(2))
        self.of_edge = _vectors(0 if self.edge is None else self.num_heads, self.head_dim)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        total = _inner(query, self.of_target) + _inner(key, self.of_source)
        if self.edge is not None:
            total = total + self._edges(edge_attr)
        return F.leaky_relu(total, self.slope)

    def _edges(self, edge_attr: Tensor | None) -> Tensor:
        assert self.edge is not None
        encoded = self.edge(_present(edge_attr, self.edge_dim))
        return _inner(encoded.unflatten(-1, self.of_edge.shape), self.of_edge)

    def as_additive(
        self, query: Tensor, key: Tensor, edge_attr: Tensor | None, last: nn.Linear | None = None
    ) -> AdditiveForm | None:
        key = key.repeat_interleave(query.shape[-2] // max(1, key.shape[-2]), -2)
        x = _inner(query, self.of_target).unsqueeze(-1)
        y = _inner(key, self.of_source).unsqueeze(-1)
        if self.edge is None:
            z = None
        else:
            z = self._edges(edge_attr).unsqueeze(-1)
        return AdditiveForm(x, y, z, torch.ones_like(self.of_target[:, :1, None]), self.slope)

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        of_target = (query * self.of_target).sum(-1)
        of_source = (key * self.of_source).sum(-1)
        total = of_target.unsqueeze(-2) + of_source.unsqueeze(-3)  # (..., T, S, H)
        if self.edge is not None and edge_attr is not None:
            features = edge_attr @ self.edge.weight.T
            edges = features.unflatten(-1, self.of_edge.shape)
            total = total + (edges * self.of_edge).sum(-1)
        leaky = torch.where(total < 0, self.slope * total, total)
        return leaky.movedim(-1, -3)


class MLPScore(Score):
    """A perceptron on query, key and edge features, ``[q, k, a]``, shared by all heads.

    It has one hidden layer.

    Args:
        head_dim: D.
        hidden: Width of the hidden layer.
        edge_dim: F, width of the edge's features, that of the layer; 0 if the score reads none.
    """

    alias = "mlp"

    def __init__(self, head_dim: int, hidden: int, edge_dim: int = 0) -> None:
        super().__init__()
        self.head_dim = width(head_dim, "head_dim")
        hidden = width(hidden, "hidden")
        self.edge_dim = None
        inputs = 2 * self.head_dim
        if edge_dim != 0:
            self.edge_dim = width(edge_dim, "edge_dim")
            inputs += self.edge_dim
        self.hidden = nn.Linear(inputs, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        parts = [query, key]
        if self.edge_dim:
            edge_attr = _present(edge_attr, self.edge_dim)
            features = edge_attr.unsqueeze(-2)
            features = features.expand(*edge_attr.shape[:-1], query.shape[-2], -1)
            features = features.expand(*query.shape[:-1], -1)
            parts.append(features.to(query.dtype))
        hidden = self.hidden(torch.cat(parts, -1))
        return self.out(torch.relu(hidden)).squeeze(-1)

    def as_additive(
        self, query: Tensor, key: Tensor, edge_attr: Tensor | None, last: nn.Linear | None = None
    ) -> AdditiveForm | None:
        if not type(self.hidden) is type(self.out) is nn.Linear:
            return None
        D = query.shape[-1]
        edge_width = self.hidden.weight.shape[1] - 2 * D
        of_query, of_key, of_edge = self.hidden.weight.split([D, D, edge_width], 1)
        x = F.linear(query, of_query, self.hidden.bias)
        z = None
        heads = x.shape[-2]
        if self.edge_dim:
            z = F.linear(_present(edge_attr, self.edge_dim), of_edge).unsqueeze(-2)
            z = z.expand(*z.shape[:-2], heads, -1)
        weight = self.out.weight.expand(heads, 1, -1)
        constant = self.out.bias.expand(heads)
        return AdditiveForm(x, F.linear(key, of_key), z, weight, 0.0, constant)

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        # [W_q W_k W_e]
        D = query.shape[-1]
        weight = self.hidden.weight
        of_query = query @ weight[:, :D].T
        of_key = key @ weight[:, D : 2 * D].T
        before = of_query.unsqueeze(-3) + of_key.unsqueeze(-4)
        if self.edge_dim is not None and edge_attr is not None:
            # (..., T, S, H, hidden width)
            of_edge = edge_attr @ weight[:, 2 * D :].T
            before = before + of_edge.unsqueeze(-2)
        activated = (before + self.hidden.bias).clamp(min=0)
        product = torch.einsum("...tshd,d->...hts", activated, self.out.weight.squeeze(0))
        return product + self.out.bias

    @classmethod
    def for_layer(cls, num_heads: int, head_dim: int, edge_dim: int | None) -> "MLPScore":
        return cls(head_dim, head_dim, 0 if edge_dim is None else edge_dim)


class Gaussian(Score):
    """``-|q - k|^2 / (2 sigma_h^2)``, so that softmax gives the Nadaraya-Watson kernel regression
    of Gaussians.

    Args:
        num_heads: H.
        sigma: Initial width of every head, > 0.
        learnable: True if it is learned, as the logarithm.
    """

    alias = "gaussian"
    smooth = True

    def __init__(self, num_heads: int, sigma: float = 1.0, learnable: bool = True) -> None:
        super().__init__()
        self.num_heads = width(num_heads, "num_heads")
        logarithm = torch.full((self.num_heads,), positive(sigma, "sigma")).log()
        self.log_sigma = nn.Parameter(logarithm, requires_grad=learnable)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        factor = -0.5 * torch.exp(-2 * self.log_sigma)
        distance = (query - key).square().sum(-1)
        return distance * factor.to(query.dtype)

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        difference = query.unsqueeze(-3) - key.unsqueeze(-4)
        distance = difference.square().sum(-1)  # (..., T, S, H)
        variance = self.log_sigma.exp().square()
        score = -distance / (2 * variance)
        return score.movedim(-1, -3)

    @classmethod
    def for_layer(cls, num_heads: int, head_dim: int, edge_dim: int | None) -> "Gaussian":
        return cls(num_heads, head_dim**0.5)


class Subtraction(Score):
    r"""A perceptron on the difference of all heads at once gives a score for each group of
    channels: vector attention.

    .. math:: \mathrm{score}_{ts} = \gamma(q_t - k_s + \delta_{ts}), \qquad
              o_t = \sum_s \alpha_{ts} \, (v_s + \delta_{ts}), \qquad \delta_{ts} = \theta(p_t - p_s)

    A head is a group of channels with one weight, so that ``num_heads = embed_dim`` weighs every
    channel separately.

    Args:
        num_heads: H, groups of channels.
        head_dim: D, channels of a group.
        hidden: Width of the hidden layer of gamma; H * D by default.
        edge_dim: F, width of edge features such as the offset of a target from its source, encoded
            by ``delta``, a perceptron with a hidden layer of H * D. By default edge features are
            the encoding, (..., E, H * D), and the layer adds a projection of it to the value.

    Source: Zhao et al. 2021 (Point Transformer), equations 2 to 4; PyG's ``PointTransformerConv``.

    Example:
        >>> import torch, graphattn as ga
        >>> pos, x = torch.rand(100, 3), torch.rand(100, 32)
        >>> graph = ga.graphs.knn(pos, k=16)
        >>> layer = ga.nn.GraphAttention(32, num_heads=4, edge_dim=3, score="subtraction")
        >>> layer(x, graph, positions=pos).shape  # edge_attr=ga.nn.relative_positions(graph, pos)
        torch.Size([100, 32])
    """

    alias = "subtraction"

    def __init__(
        self, num_heads: int, head_dim: int, hidden: int | None = None, edge_dim: int | None = None
    ) -> None:
        super().__init__()
        self.num_heads = width(num_heads, "num_heads")
        self.head_dim = width(head_dim, "head_dim")
        channels = self.num_heads * self.head_dim
        if hidden is None:
            hidden = channels
        else:
            hidden = width(hidden, "hidden")
        self.gamma = nn.Sequential(
            nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, self.num_heads)
        )
        self.edge_dim = channels
        if edge_dim is not None:
            self.edge_dim = width(edge_dim, "edge_dim")
            self.delta = nn.Sequential(
                nn.Linear(self.edge_dim, channels), nn.ReLU(), nn.Linear(channels, channels)
            )

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        difference = (query - key).flatten(-2)
        if edge_attr is not None:
            difference = difference + edge_attr.to(difference.dtype)
        return self.gamma(difference)

    def as_additive(
        self, query: Tensor, key: Tensor, edge_attr: Tensor | None, last: nn.Linear | None = None
    ) -> AdditiveForm | None:
        if not self.has_twin:
            return None
        # linear parts are applied to nodes, which are fewer than edges
        first, _, second = cast(list[nn.Linear], list(self.gamma))
        key = key.repeat_interleave(query.shape[-2] // max(1, key.shape[-2]), -2)
        x = first(query.flatten(-2)).unsqueeze(-2)
        y = F.linear(-key.flatten(-2), first.weight).unsqueeze(-2)
        of_edges = first.weight
        if last is not None:  # W_1 (W b + c), with W_1 W and W_1 c computed once for all edges
            of_edges = first.weight @ last.weight
            x = x + F.linear(last.bias, first.weight)
        if edge_attr is None:
            z = None
        else:
            z = F.linear(edge_attr.to(x.dtype), of_edges).unsqueeze(-2)
        return AdditiveForm(x, y, z, second.weight.unsqueeze(0), 0.0, second.bias)

    def delta_in_parts(self) -> tuple[Callable[[Tensor], Tensor], nn.Linear] | None:
        if self.delta is None:
            return None
        if not self.has_twin or any(map(is_changed, self.delta.modules())):
            return None
        first, _, last = cast(list[nn.Linear], list(self.delta.children()))
        if last.bias is None:
            return None
        return (partial(_rectified, first), last)

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        # (..., T, S, H * D)
        difference = query.flatten(-2).unsqueeze(-2) - key.flatten(-2).unsqueeze(-3)
        if edge_attr is not None:
            difference = difference + edge_attr
        return _dense_perceptron(self.gamma, difference).movedim(-1, -3)

    def dense_delta(self, edge_attr: Tensor) -> Tensor:
        return _dense_perceptron(self.delta, edge_attr)

    @property
    def has_twin(self) -> bool:
        """True if gamma and delta still have the form that the formula assumes."""
        if not super().has_twin:
            return False
        perceptrons = [[type(x) for x in part.children()] for part in self.children()]
        return all(part == [nn.Linear, nn.ReLU, nn.Linear] for part in perceptrons)


def _dense_perceptron(layers: Any, x: Tensor) -> Tensor:
    """``W_2 relu(W_1 x + b_1) + b_2``."""
    first, _, second = layers
    return (x @ first.weight.T + first.bias).clamp(min=0) @ second.weight.T + second.bias
