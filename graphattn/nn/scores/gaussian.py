"""The score of kernel regression."""

import torch
from torch import Tensor, nn

from ..arguments import positive, width
from .base import Score


class Gaussian(Score):
    """``-|q - k|^2 / (2 sigma_h^2)``, so that softmax gives the Nadaraya-Watson kernel regression of Gaussians.

    Args:
        num_heads: H.
        sigma: Of every head at the start, > 0.
        learnable: Whether it is learned, as the logarithm.
    """

    alias = "gaussian"
    smooth = True

    def __init__(self, num_heads: int, sigma: float = 1.0, learnable: bool = True) -> None:
        super().__init__()
        self.num_heads = width("num_heads", num_heads)
        logarithm = torch.full((self.num_heads,), positive("sigma", sigma)).log()
        self.log_sigma = nn.Parameter(logarithm, requires_grad=learnable)

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        return (query - key).square().sum(-1) * (-0.5 * torch.exp(-2 * self.log_sigma)).to(query.dtype)

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        distance = (query.unsqueeze(-3) - key.unsqueeze(-4)).square().sum(-1)  # (..., T, S, H)
        return (-distance / (2 * self.log_sigma.exp().square())).movedim(-1, -3)

    @classmethod
    def for_layer(cls, num_heads: int, head_dim: int, edge_dim: int | None) -> "Gaussian":
        return cls(num_heads, head_dim**0.5)
