"""Reach: the share of answers whose needs lie in the receptive field."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..analysis import receptive_field
from ..graph import AttentionGraph


def reached(
    layers: Sequence[AttentionGraph], needs: AttentionGraph, asked: Tensor | None = None
) -> float:
    """The share of answers all of whose needs are within reach of the layers.

    Of the others the Jacobian of what they need is zero, whatever is trained: with chance c, no
    model scores more than ``share + (1 - share) * c``.

    Args:
        layers: The graph of each layer, of N nodes; residual connections are assumed.
        needs: The edges ``s -> t`` that the answer at ``t`` cannot do without.
        asked: How often each node is asked, (N,); every node once by default.
    Example:
        >>> from graphattn import from_rule
        >>> from graphattn.graphs import sliding_window
        >>> window = sliding_window(8, 3, causal=True)
        >>> reached([window] * 2, from_rule(lambda t, s: t - s == 5, 8))  # nodes 5, 6, 7 lack it
        0.625
    """
    field = receptive_field(list(layers), residual=True).graphs[-1]
    if asked is None:
        asked = torch.ones(field.num_targets)
    # a sample may have fewer nodes than needs has
    inside = (needs.target < field.num_targets) & (needs.source < field.num_targets)
    target = needs.target[inside]
    lacking = target[~field.contains(target, needs.source[inside])].unique()
    return 1 - float(asked[lacking].sum() / asked.sum())
