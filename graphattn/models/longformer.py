"""Longformer: windows that grow from layer to layer, and a few tokens that read all and are read by all."""

from collections.abc import Sequence

from ..errors import OptionError
from ..graph import Pattern, Schedule
from ..graphs import global_tokens, sliding_window


def longformer_graphs(
    windows: Sequence[int], tokens: tuple[int, ...] = (0,), *, dilations: Sequence[int] | None = None
) -> Schedule:
    r"""A graph for each layer: a window on both sides, and global tokens; sized when used, on any encoder.

    .. math:: \mathcal{N}_\ell(t) = \{ s : |t - s| \le d_\ell (w_\ell - 1) / 2, \; d_\ell \text{ divides } t - s \}
              \cup \{ s : s \in G \text{ or } t \in G \}

    Args:
        windows: w of each layer, odd, the target counted; Longformer's are small in low layers and large in high ones.
        tokens: G, the global tokens; none where empty.
        dilations: d of each layer, 1 by default. For other dilations in other heads, give a layer a
            :class:`graphattn.PerHead`.

    Returns:
        A schedule of patterns, in O(N w) for N tokens.

    Raises:
        OptionError: If there are not as many dilations as windows.

    Source: Beltagy et al. 2020, "Longformer", section 3.1; windows by layer in section 4.1. *What differs:* global
    tokens have the projections of all others, where theirs (``LongformerModel`` of ``transformers``) have query, key
    and value of their own; with equal ones the encoder is equal to it. Their w does not count the target: ``w + 1``.

    Example:
        >>> import torch
        >>> from graphattn.models import Encoder
        >>> graphs = longformer_graphs((3, 5, 9))
        >>> print(graphs[1](7).mask().long())
        tensor([[1, 1, 1, 1, 1, 1, 1],
                [1, 1, 1, 1, 0, 0, 0],
                [1, 1, 1, 1, 1, 0, 0],
                [1, 1, 1, 1, 1, 1, 0],
                [1, 0, 1, 1, 1, 1, 1],
                [1, 0, 0, 1, 1, 1, 1],
                [1, 0, 0, 0, 1, 1, 1]])
        >>> Encoder(3, 8, 2, norm_first=False)(torch.randn(2, 30, 8), graphs).shape
        torch.Size([2, 30, 8])
    """
    dilations = [1] * len(windows) if dilations is None else dilations
    if len(dilations) != len(windows):
        raise OptionError(f"dilations must be {len(windows)}, one for each window, got {len(dilations)}")
    layers: list[Pattern] = []
    for window, dilation in zip(windows, dilations, strict=True):
        near = sliding_window(..., window, causal=False, dilation=dilation)
        layers.append(near | global_tokens(..., tokens) if tokens else near)
    return Schedule(tuple(layers))
