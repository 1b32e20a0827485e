"""Walks to the last token: how sharply a graph carries a token there, and how soon."""

import math

import torch
from torch import Tensor

from ..arguments import number, whole
from ..graph import AttentionGraph


def fidelity(graph: AttentionGraph, layers: int) -> Tensor:
    r"""The largest share that each source has in the last target, after some number of layers.

    .. math:: \max_{l \le L} (P^l)_{N s}, \quad P_{ts} = \frac{1}{|\mathcal{N}(t)|} \text{ on edges}

    Attention with equal scores along the edges is such a mean. The least of all sources is the
    minimax fidelity of the graph: what the token that is read worst keeps at its best.

    Args:
        graph: Of N nodes; each reads itself, in the publication.
        layers: L, the most layers of the graph that are counted.
    Returns:
        float64 (N,).
    Source:
        Vitvitskyi et al. 2025, "What makes a good feedforward computational graph?". *What
        differs:* no more layers count than a model has.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> fidelity(sliding_window(3, 2, causal=True), layers=4)
        tensor([0.6875, 0.5000, 1.0000], dtype=torch.float64)
    """
    mask = graph.mask().double()
    step = mask / mask.sum(1, keepdim=True).clamp(min=1)
    share = torch.eye(graph.num_sources, dtype=torch.float64)[-1]
    most = share
    for _ in range(whole(layers, "layers", 0)):
        share = share @ step
        most = torch.maximum(most, share)
    return most


def mixing(graph: AttentionGraph, within: float = 0.25) -> float:
    """Steps until a walk along the edges, from any source, is at the last target but for a share.

    Each edge out of a node is taken alike. A causal graph whose nodes all reach the last one ends
    there, so that this is its mixing time, in total variation.

    Args:
        graph: Of N nodes; each reads itself, in the publication.
        within: The share that may be elsewhere.
    Returns:
        A whole number; infinity where a walk ends elsewhere, or never.
    Source:
        Vitvitskyi et al. 2025, "What makes a good feedforward computational graph?".
    Example:
        >>> from graphattn.graphs import causal
        >>> mixing(causal(3)), mixing(causal(30))
        (3, 6)
    """
    within = number(within, "within", "a number in (0, 1)", lambda x: 0 < x < 1)
    mask = graph.mask().double()
    step = mask / mask.sum(0).clamp(min=1)
    share = torch.eye(graph.num_sources, dtype=torch.float64)[-1]
    before = 0.0
    steps = 0
    while (least := float(share.min())) < 1 - within:
        # in as many steps as there are nodes it rises wherever it will end there
        if steps > 0 and steps % graph.num_sources == 0:
            if least <= before:
                return math.inf
            before = least
        share = share @ step
        steps += 1
    return steps
