"""Attention sinks, and sources at doubling distances."""

import torch

from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.forms import distances, one_run
from ..arguments import call, whole


@sizable
@builder
def sinks(num_nodes: int, k: int) -> AttentionGraph:
    r"""The first ``k`` tokens are read by themselves and all later tokens: attention sinks, causal.

    .. math:: \mathcal{N}(t) = \{ s : s \le t \text{ and } s < k \}

    Args:
        num_nodes: N.
        k: Number of sinks; N or more is :func:`~graphattn.graphs.causal`.
    Returns:
        A rule, a subset of ``causal(N)``. Joined with a window it is StreamingLLM:
        ``sliding_window(N, w, causal=True) | sinks(N, k)``. (:func:`~graphattn.graphs.prefix` is not a set of
        sinks: it is causal in full, and its first tokens read each other both ways.)
    Raises:
        GraphError: If a number is not whole and >= 0.
    Source:
        Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks", section 3.2,
        four sinks. *What differs:* they drop tokens from a cache and renumber the rest; here the
        graph defines the sources, and positions belong to a layer. Their ``recent_size`` does not
        count the token itself: it is ``w - 1``.
    Example:
        >>> print(sinks(5, 2))
        AttentionGraph(sinks(5, 2): 5 nodes, 9 edges, density 0.36, rule)
        █ · · · ·
        █ █ · · ·
        █ █ · · ·
        █ █ · · ·
        █ █ · · ·
    """
    N = whole(num_nodes, "num_nodes")
    k = whole(k, "k")
    edges = one_run(
        N, N, lambda t: (torch.zeros_like(t), (t + 1).clamp(max=k)), lambda t, s: (s <= t) & (s < k)
    )
    return AttentionGraph(edges, call("sinks", N, k))


@sizable
@builder
def logsparse(num_nodes: int, window: int = 1, *, restart: int | None = None) -> AttentionGraph:
    r"""Every token reads the last few tokens, and those 1, 2, 4, 8, ... before them.

    .. math:: \mathcal{N}(t) = \{ t - d \ge 0 : 0 \le d < w \text{ or } d = w - 1 + 2^k, \; k \ge 0 \}

    Args:
        num_nodes: N.
        window: w, tokens that end with the target and are all read; 1 is the target alone.
        restart: r, tokens after which the pattern begins anew: distances :math:`d \le r` and
            :math:`d + r, d + 2 r, \ldots`; never by default.
    Returns:
        A rule; with a window of 1 the in-degree is ``2 + floor(log2(t))`` for t > 0, and after
        ``ceil(log2(N))`` layers a token depends on all before it.
    Raises:
        GraphError: If ``window`` or ``restart`` is below 1.
    Source:
        Li et al. 2019, "Enhancing the Locality and Breaking the Memory Bottleneck of Transformer on
        Time Series Forecasting", section 4.2: LogSparse, local and restart attention. Their code
        has local and restart attention by default, with a window of ``ceil(log2(restart))``. *What
        differs:* there a token with fewer than ``2 * window * (N // restart)`` before it reads all
        of them, and a stretch that the start cuts lacks its last token.
    Example:
        >>> print(logsparse(6))
        AttentionGraph(logsparse(6): 6 nodes, 17 edges, density 0.472, rule)
        █ · · · · ·
        █ █ · · · ·
        █ █ █ · · ·
        · █ █ █ · ·
        █ · █ █ █ ·
        · █ · █ █ █
        >>> print(logsparse(8, 2, restart=5))
        AttentionGraph(logsparse(8, 2, restart=5): 8 nodes, 32 edges, density 0.5, rule)
        █ · · · · · · ·
        █ █ · · · · · ·
        █ █ █ · · · · ·
        █ █ █ █ · · · ·
        · █ █ █ █ · · ·
        █ · █ █ █ █ · ·
        █ █ · █ █ █ █ ·
        █ █ █ · █ █ █ █
    """
    N = whole(num_nodes, "num_nodes")
    window = whole(window, "window", 1)
    sizes = [N]
    if window > 1:
        sizes.append(window)
    powers = (1 << k for k in range(max(0, N - 1).bit_length()))
    steps = {*range(min(window, N)), *(window - 1 + power for power in powers)}
    if restart is not None:
        restart = whole(restart, "restart", 1)
        near = [step for step in steps if step <= restart]
        steps = {step + begin for begin in range(0, N, restart) for step in near}
    ascending = sorted(step for step in steps if step < max(N, 1))
    return AttentionGraph(distances(N, N, ascending), call("logsparse", *sizes, restart=restart))
