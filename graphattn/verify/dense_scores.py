"""Dense twins of scores: the formulas of their papers on all T x S pairs, with torch and nothing else.

A twin gives scores (..., H, T, S) of query (..., T, H, D), key (..., S, H, D) and, where there are any, edge features
(..., T, S, F). Parameters are handed in as tensors, so that gradients reach those of the layer. A test reads the
imports.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

DenseScore = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def dot(scale: float) -> DenseScore:
    """``scale q . k`` (Luong et al. 2015)."""
    return lambda query, key, edge_attr: scale * torch.einsum("...thd,...shd->...hts", query, key)


def cosine(log_scale: Tensor, most: float) -> DenseScore:
    """``scale_h q . k / (|q| |k|)`` with log_scale (H, 1), at most ``most``, 0 of zeros (Liu et al. 2022, 3.3)."""

    def score(query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        squares = [x.square().sum(-1, keepdim=True) for x in (query, key)]
        nothing = [square == 0 for square in squares]
        lengths = [square.masked_fill(zero, 1.0).sqrt() for square, zero in zip(squares, nothing, strict=True)]
        angle = torch.einsum("...thd,...shd->...hts", query / lengths[0] * ~nothing[0], key / lengths[1] * ~nothing[1])
        return log_scale.clamp(max=math.log(most)).exp().unsqueeze(-1) * angle

    return score


def general(weight: Tensor) -> DenseScore:
    """``q . W_h k`` with W (H, D, D) (Luong et al. 2015)."""
    return lambda query, key, edge_attr: torch.einsum("...thd,hde,...she->...hts", query, weight, key)


def additive(weight: Tensor, activation: Callable[[Tensor], Tensor]) -> DenseScore:
    """``v_h . tanh(q + k)`` with v (H, D) and tanh or another activation (Bahdanau et al. 2015, A.1.2)."""

    def score(query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        bent = activation(query.unsqueeze(-3) + key.unsqueeze(-4))  # (..., T, S, H, D)
        return torch.einsum("...tshd,hd->...hts", bent, weight)

    return score


def mlp(hidden: Tensor, hidden_bias: Tensor, out: Tensor, out_bias: Tensor, with_edge: bool) -> DenseScore:
    """``w . relu(W_q q + W_k k + W_e e + b) + c``; ``hidden`` is [W_q W_k W_e], (hidden width, 2 D + F)."""

    def score(query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        D = query.shape[-1]
        before = (query @ hidden[:, :D].T).unsqueeze(-3) + (key @ hidden[:, D : 2 * D].T).unsqueeze(-4) + hidden_bias
        if with_edge and edge_attr is not None:
            before = before + (edge_attr @ hidden[:, 2 * D :].T).unsqueeze(-2)  # (..., T, S, H, hidden width)
        return torch.einsum("...tshd,d->...hts", before.clamp(min=0), out.squeeze(0)) + out_bias

    return score


def gaussian(log_sigma: Tensor) -> DenseScore:
    """``-|q - k|^2 / (2 sigma_h^2)`` with log_sigma (H,)."""

    def score(query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        distance = (query.unsqueeze(-3) - key.unsqueeze(-4)).square().sum(-1)  # (..., T, S, H)
        return (-distance / (2 * log_sigma.exp().square())).movedim(-1, -3)

    return score


def subtraction(first: Tensor, first_bias: Tensor, second: Tensor, second_bias: Tensor) -> DenseScore:
    """``W_2 relu(W_1 (q - k + e) + b_1) + b_2`` on all heads at once (Zhao et al. 2021, equation 2)."""

    def score(query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        apart = query.flatten(-2).unsqueeze(-2) - key.flatten(-2).unsqueeze(-3)  # (..., T, S, H * D)
        apart = apart if edge_attr is None else apart + edge_attr
        return ((apart @ first.T + first_bias).clamp(min=0) @ second.T + second_bias).movedim(-1, -3)

    return score


def encoding(first: Tensor, first_bias: Tensor, second: Tensor, second_bias: Tensor) -> Callable[[Tensor], Tensor]:
    """``delta = W_2 relu(W_1 a + b_1) + b_2`` of edge features (..., T, S, F) (Zhao et al. 2021, equation 4)."""
    return lambda edge_attr: (edge_attr @ first.T + first_bias).clamp(min=0) @ second.T + second_bias


def features(feature_map: Callable[[Tensor], Tensor]) -> DenseScore:
    """``phi(q) . phi(k)`` (Katharopoulos et al. 2020, equation 4)."""
    return lambda query, key, edge_attr: torch.einsum("...thd,...shd->...hts", feature_map(query), feature_map(key))


FEATURE_MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": lambda x: torch.where(x > 0, x + 1, x.clamp(max=0).exp()),
    "relu": lambda x: x.clamp(min=0),
    "softmax": lambda x: (x - torch.logsumexp(x, -1, keepdim=True)).exp(),
    "identity": lambda x: x,
}


def positive_features(projection: Tensor) -> Callable[[Tensor], Tensor]:
    """``exp(w_i . y - |y|^2 / 2) / sqrt(m)`` with ``y = x / D^(1/4)`` and w (m, D) (Choromanski et al. 2021)."""

    def feature_map(x: Tensor) -> Tensor:
        y = x / x.shape[-1] ** 0.25
        half = 0.5 * (y * y).sum(-1, keepdim=True)
        return (torch.einsum("...d,md->...m", y, projection) - half).exp() / math.sqrt(projection.shape[0])

    return feature_map


def of_pairs(function: DenseScore) -> DenseScore:
    """A caller's own ``function(query, key, edge_attr)`` of edges, asked about every pair as if all were edges.

    So a score that mixes edges, or that holds numbers of the edges it was made for, does not agree with itself here.
    """

    def score(query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        T, S = query.shape[-3], key.shape[-3]
        query = query.unsqueeze(-3).expand(*query.shape[:-2], S, *query.shape[-2:]).flatten(-4, -3)
        key = key.unsqueeze(-4).expand(*key.shape[:-3], T, *key.shape[-3:]).flatten(-4, -3)
        found = function(query, key, None if edge_attr is None else edge_attr.flatten(-3, -2))  # (..., T * S, H)
        return found.unflatten(-2, (T, S)).movedim(-1, -3)

    return score
