"""Scores that are dot products, and run on every backend."""

import math

import torch
from torch import Tensor, nn

from ...arguments import positive, real, width
from .base import Score


class Dot(Score):
    """``q . k``, times a factor; the score of Luong et al. 2015 named "dot". T5's has no factor
    either.
    """

    alias = "dot"
    smooth = True

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = real(scale, "scale")

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        return (query * key).sum(-1) * self.scale

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return query * self.scale, key

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        return self.scale * torch.einsum("...thd,...shd->...hts", query, key)


class Cosine(Score):
    """``scale_h cos(q, k)``, with a factor for each head, learned by default.

    Args:
        num_heads: H.
        scale: Initial factor of every head, > 0.
        learnable: True if it is learned, as the logarithm.
        most: Upper bound of a learned factor, > 0.

    The cosine of a zero vector is 0, with a gradient of 0.

    Source: Liu et al. 2022 (Swin Transformer V2), section 3.2, equation 2: learned, at most 100.
    """

    alias = "cosine"
    smooth = True

    def __init__(
        self, num_heads: int, scale: float = 10.0, learnable: bool = True, most: float = 100.0
    ) -> None:
        super().__init__()
        self.num_heads = width(num_heads, "num_heads")
        most = positive(most, "most", finite=False)
        if learnable:
            self.most = most
        else:
            self.most = math.inf
        logarithm = torch.full((self.num_heads, 1), positive(scale, "scale")).log()
        self.log_scale = nn.Parameter(logarithm, requires_grad=learnable)

    def _units(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        query_unit = _unit(query)
        key_unit = _unit(key)
        scale = self.log_scale.to(query_unit.dtype).clamp(max=math.log(self.most)).exp()
        return (query_unit * scale).to(query.dtype), key_unit.to(key.dtype)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        query, key = self._units(query, key)
        return (query * key).sum(-1)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return self._units(query, key)

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        squares = [x.square().sum(-1, keepdim=True) for x in (query, key)]
        nothing = [square == 0 for square in squares]
        lengths = [
            square.masked_fill(zero, 1.0).sqrt()
            for square, zero in zip(squares, nothing, strict=True)
        ]
        angle = torch.einsum(
            "...thd,...shd->...hts",
            query / lengths[0] * ~nothing[0],
            key / lengths[1] * ~nothing[1],
        )
        return self.log_scale.clamp(max=math.log(self.most)).exp().unsqueeze(-1) * angle


def _unit(x: Tensor) -> Tensor:
    """Vectors (..., D) of length 1, or 0; NaN, without a gradient, for those that are not finite.

    In float32 or wider, since half precision lacks the range. The gradient of a NaN would be NaN
    also for a source that no target reads.
    """
    upcast = x.to(torch.promote_types(x.dtype, torch.float32))
    is_spoiled = ~upcast.isfinite().all(-1, keepdim=True)
    upcast = upcast.masked_fill(is_spoiled, 0.0)
    length = upcast.norm(dim=-1, keepdim=True)
    unit = upcast / length.clamp(min=1e-12).masked_fill(length == 0, torch.inf)
    return unit.masked_fill(is_spoiled, torch.nan)


class General(Score):
    """``q . W_h k``, the bilinear score of Luong et al. 2015 named "general"; W is (H, D, D)."""

    alias = "general"
    smooth = True

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = width(num_heads, "num_heads")
        self.head_dim = width(head_dim, "head_dim")
        self.weight = nn.Parameter(torch.empty(self.num_heads, self.head_dim, self.head_dim))
        nn.init.xavier_uniform_(self.weight)

    def _turned(self, query: Tensor) -> Tensor:
        return torch.einsum("...hd,hde->...he", query, self.weight.to(query.dtype))

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        return (self._turned(query) * key).sum(-1)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return self._turned(query), key

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        return torch.einsum("...thd,hde,...she->...hts", query, self.weight, key)
