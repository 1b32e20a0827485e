"""Reach: the share of answers whose needs lie in the receptive field."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..analysis import receptive_field
from ..graph import AttentionGraph


def reached(
    layers: Sequence[AttentionGraph],
    needs: AttentionGraph | Sequence[AttentionGraph],
    asked: Tensor | None = None,
) -> float:
    """The share of answers all of whose needs are within reach of the layers.

    Of the others the Jacobian of what they need is zero, whatever is trained: with chance c, no
    model scores more than ``share + (1 - share) * c``.

    Args:
        layers: The graph of each layer, of N nodes; residual connections are assumed.
        needs: The edges ``s -> t`` that the answer at ``t`` cannot do without; or a graph of them
            for each of M samples, as where a key is asked for a value that stands elsewhere in each.
        asked: How often each node is asked, (N,), or (M, N) of each sample; every node once by
            default, also those that need nothing and so have all of it.
    Example:
        >>> from graphattn import from_rule
        >>> from graphattn.graphs import sliding_window
        >>> window = sliding_window(8, 3, causal=True)
        >>> reached([window] * 2, from_rule(lambda t, s: t - s == 5, 8))  # nodes 5, 6, 7 lack it
        0.625
        >>> reached([window] * 2, from_rule(lambda t, s: t - s == 5, 8), torch.eye(8)[7])
        0.0
    """
    field = receptive_field(list(layers), residual=True).graphs[-1]
    of_samples = [needs] if isinstance(needs, AttentionGraph) else list(needs)
    if asked is None:
        asked = torch.ones(field.num_targets)
    lacking = torch.zeros(len(of_samples), field.num_targets, dtype=torch.bool)
    for sample, of_sample in enumerate(of_samples):
        # a sample may have fewer nodes than needs has
        inside = (of_sample.target < field.num_targets) & (of_sample.source < field.num_targets)
        target = of_sample.target[inside]
        lacking[sample, target[~field.contains(target, of_sample.source[inside])]] = True
    asked = asked[..., : field.num_targets].expand(lacking.shape)
    return 1 - float(asked[lacking].sum() / asked.sum())
