"""Weights of single edges, without competition."""

import torch
from torch import Tensor, nn

from ...arguments import real
from ...backends.rows import on_rows
from ...kernels.plain.sums import gather, scatter_sum
from .base import named


@on_rows("sigmoid")
@named("sigmoid", smooth=True)
class Sigmoid(nn.Module):
    """``sigmoid(score + bias)`` edge by edge, no competition; by default the bias is ``-log`` of
    the target's degree.

    Source: Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid
    Self-Attention": b = -log n.
    """

    def __init__(self, bias: float | None = None) -> None:
        super().__init__()
        if bias is None:
            self.bias = None
        else:
            self.bias = real(bias, "bias")

    def forward(self, score: Tensor, target: Tensor, num_targets: int) -> Tensor:
        if self.bias is not None:
            return torch.sigmoid(score + self.bias)
        present = (score != -torch.inf).to(score.dtype)  # a bias of -inf removes an edge
        degree = scatter_sum(present, target, num_targets, -2).clamp(min=1.0)
        return torch.sigmoid(score - gather(degree.log(), target, -2))

    def dense(self, score: Tensor, mask: Tensor) -> Tensor:
        score = score.masked_fill(~mask, 0.0)
        if self.bias is not None:
            return torch.sigmoid(score + self.bias) * mask
        count = mask.sum(-1, keepdim=True).clamp(min=1).to(score.dtype)
        return torch.sigmoid(score - count.log()) * mask
