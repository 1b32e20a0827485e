"""The two factorised patterns of the Sparse Transformer; each is the union of its two heads."""

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.algebra import union
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.edges import Edges
from ...graph.forms import FAR, band
from ...graph.runs import Runs, spread
from ..arguments import call, whole


@sizable
@builder
def sparse_strided(num_nodes: int, stride: int) -> AttentionGraph:
    r"""Every token reads the ``stride`` tokens that end with it, and every ``stride``-th before.

    .. math:: \mathcal{N}(t) = \{ s \le t : t - s < l \text{ or } (t - s) \bmod l = 0 \}

    Args:
        num_nodes: N.
        stride: l; near the square root of N two layers reach all tokens at the least cost.
    Returns:
        A rule. The separate heads are ``sliding_window(N, l, causal=True)`` and
        ``sliding_window(N, N // l + 1, causal=True, dilation=l)``.
    Raises:
        GraphError: If ``stride < 1``.
    Source:
        Child et al. 2019 (Sparse Transformer), section 4.3, strided attention, merged into one
        head. In the paper the first head reads ``max(0, t - l) .. t``, one token more than here and
        than in their code; that token is in the second, so the union is the same.
    Example:
        >>> print(sparse_strided(7, 3))
        AttentionGraph(sparse_strided(7, 3): 7 nodes, 23 edges, density 0.469, rule)
        █ · · · · · ·
        █ █ · · · · ·
        █ █ █ · · · ·
        █ █ █ █ · · ·
        · █ █ █ █ · ·
        · · █ █ █ █ ·
        █ · · █ █ █ █
    """
    N = whole(num_nodes, "num_nodes")
    stride = whole(stride, "stride", 1)
    edges = union(band(N, N, 0, stride - 1), band(N, N, 0, FAR, stride))
    return AttentionGraph(edges, call("sparse_strided", N, stride))


@sizable
@builder
def sparse_fixed(num_nodes: int, stride: int, summary: int = 1) -> AttentionGraph:
    r"""Every token reads its block up to itself, and the last ``summary`` tokens of blocks before.

    .. math::
        \mathcal{N}(t) = \{ s \le t : \lfloor s / l \rfloor = \lfloor t / l \rfloor \text{ or } s \bmod l \ge l - c \}

    Args:
        num_nodes: N.
        stride: l, tokens in a block.
        summary: c, tokens at the end of each block that all later tokens read.
    Returns:
        A rule. The separate heads are ``block_local(N, l, causal=True)`` and the summaries.
    Raises:
        GraphError: If ``stride < 1``, or ``summary`` is not in ``[1, stride]``.
    Source:
        Child et al. 2019 (Sparse Transformer), section 4.3, fixed attention, merged into one head.
        *What differs:* their code and DeepSpeed's ``FixedSparsityConfig`` have this between blocks
        instead of tokens, ``block_sparse(sparse_fixed(...), block) & causal(N)``, and can give each head
        summaries of its own, c tokens further to the front.
    Example:
        >>> print(sparse_fixed(7, 3))
        AttentionGraph(sparse_fixed(7, 3): 7 nodes, 18 edges, density 0.367, rule)
        █ · · · · · ·
        █ █ · · · · ·
        █ █ █ · · · ·
        · · █ █ · · ·
        · · █ █ █ · ·
        · · █ █ █ █ ·
        · · █ · · █ █
    """
    N = whole(num_nodes, "num_nodes")
    stride = whole(stride, "stride", 1)
    summary = whole(summary, "summary", 1, below=stride + 1, of=", one more than stride")

    def rows(target: Tensor) -> Runs:
        blocks = target // stride
        # the summaries of the blocks before, then the token's block
        row, block = spread(blocks + 1)
        is_own_block = block == blocks[row]
        end = (block + 1) * stride
        return Runs(
            row,
            torch.where(is_own_block, end - stride, end - summary),
            torch.where(is_own_block, target[row] + 1, end),
        )

    edges = Edges(
        N,
        N,
        rows,
        runs_per_row=-(-N // stride) // 2 + 1,
        test=lambda t, s: (
            (s <= t) & ((s // stride == t // stride) | (s % stride >= stride - summary))
        ),
        lengths=lambda target: target % stride + 1 + target // stride * summary,
    )
    return AttentionGraph(edges, call("sparse_fixed", N, stride, summary=summary))
