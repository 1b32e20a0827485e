"""Softmax over the edges of each target, alone or beside a sink."""

import torch
from torch import Tensor, nn

from ...arguments import width
from ...backends.rows import softmax_and_share
from ...errors import OptionError
from ...kernels.plain.sums import edge_softmax, gather
from ...operands import Inputs
from .base import named


def softmax(
    score: Tensor,
    target: Tensor,
    num_targets: int,
) -> Tensor:
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

    def forward(
        self,
        score: Tensor,
        target: Tensor,
        num_targets: int,
    ) -> Tensor:
        alpha, lse = edge_softmax(score, target, num_targets)
        return alpha * gather(self.share(lse), target, -2)

    def share(self, lse: Tensor) -> Tensor:
        """The share of a target's weight that its edges keep, (..., T, H); 0 for a target without
        an edge.
        """
        return torch.sigmoid(lse - self.logit.to(lse.dtype))

    def beside(
        self,
        lse: Tensor,
        inputs: Inputs,
    ) -> tuple[Tensor, Tensor | None]:
        """The share of a call's edges, and what the source adds to outputs (..., T, H, D_v)."""
        return self.share(lse), None

    def dense(
        self,
        score: Tensor,
        mask: Tensor,
    ) -> Tensor:
        more = self.logit[:, None, None].expand(*score.shape[:-1], 1)
        return torch.softmax(torch.cat((score.masked_fill(~mask, -torch.inf), more), -1), -1)[
            ..., :-1
        ]


@softmax_and_share
class SourceSoftmax(SinkSoftmax):
    """Softmax beside a source that every target reads and no graph lists, with a learned key and
    value: ``bias_k`` and ``bias_v`` of ``nn.MultiheadAttention``.

    Args:
        num_heads: H.
        head_dim: D.
        with_zero: True if there is a source of score 0 and value 0, too (``add_zero_attn``).

    Attributes:
        key, value: (H, D), as they are read, after the projections.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        with_zero: bool = False,
    ) -> None:
        super().__init__(num_heads)
        del self.logit
        self.key = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.value = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.with_zero = with_zero

    def forward(
        self,
        score: Tensor,
        target: Tensor,
        num_targets: int,
    ) -> Tensor:
        raise OptionError(
            "the score of a learned source is a product with queries: neither messages that are "
            "observed nor verify have it; compare with the nn.MultiheadAttention that it comes from"
        )

    def beside(
        self,
        lse: Tensor,
        inputs: Inputs,
    ) -> tuple[Tensor, Tensor | None]:
        dtype = lse.dtype
        score = inputs.scale * (inputs.query.to(dtype) * self.key.to(dtype)).sum(-1)
        scores = [lse, score]
        if self.with_zero:
            scores.append(torch.zeros_like(lse))
        weights = torch.stack(scores).softmax(0)
        of_source = nn.functional.dropout(weights[1], inputs.dropout_p)
        return weights[0], of_source.unsqueeze(-1) * self.value.to(dtype)
