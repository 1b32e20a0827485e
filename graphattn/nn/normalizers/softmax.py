"""Softmax over the edges of each target, alone or beside a sink."""

import torch
from torch import Tensor, nn

from ...arguments import width
from ...backends.rows import softmax_and_share
from ...kernels.plain.sums import edge_softmax, gather
from .base import named


def softmax(score: Tensor, target: Tensor, num_targets: int) -> Tensor:
    """Exponentials that sum to 1 over the edges of each target."""
    return edge_softmax(score, target, num_targets)[0]


@named("sink", smooth=True)
@softmax_and_share
class SinkSoftmax(nn.Module):
    """Softmax beside a source with a learned score and a value of 0, a *sink*: the weights sum to
    less than 1.

    The sink's score is ``logit`` (H,), 0 at the start. On a fast backend it is the output times
    ``sigmoid(lse - logit)``.

    Source: the sink of GPT-OSS; a sink of logit 0 is "softmax off by one" (Miller 2023).
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = width(num_heads, "num_heads")
        self.logit = nn.Parameter(torch.zeros(self.num_heads))

    def forward(self, score: Tensor, target: Tensor, num_targets: int) -> Tensor:
        alpha, lse = edge_softmax(score, target, num_targets)
        return alpha * gather(self.share(lse), target, -2)

    def share(self, lse: Tensor) -> Tensor:
        """The share of a target's weight that its edges keep, (..., T, H); 0 for a target without
        an edge.
        """
        return torch.sigmoid(lse - self.logit.to(lse.dtype))

    def dense(self, score: Tensor, mask: Tensor) -> Tensor:
        more = self.logit[:, None, None].expand(*score.shape[:-1], 1)
        return torch.softmax(torch.cat((score.masked_fill(~mask, -torch.inf), more), -1), -1)[
            ..., :-1
        ]
