"""Blocks of consecutive tokens: local attention in chunks, frames of a video, block diffusion."""

from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.algebra import intersection, union, union_of_blocks
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.edges import Edges
from ...graph.forms import FAR, band, first_of_block
from ...graph.runs import Runs
from ..arguments import call, whole


def in_blocks(base: Edges, block: int, num_nodes: int) -> Edges:
    """Tokens with the edges of their blocks ``t // block``; the last block may be cut."""

    def rows(target: Tensor) -> Runs:
        row, lo, hi = base.rows(target // block)
        return Runs(row, first_of_block(lo, block, num_nodes), first_of_block(hi, block, num_nodes))

    return Edges(num_nodes, num_nodes, rows, runs_per_row=base.runs_per_row)


def _blocks(num_nodes: int, block: int, lo: int, hi: int) -> Edges:
    """Tokens read the blocks that are ``lo .. hi`` blocks before their own."""
    blocks = -(-num_nodes // block)
    return in_blocks(band(blocks, blocks, lo, hi), block, num_nodes)


@sizable
@builder
def block_local(
    num_nodes: int,
    block: int,
    *,
    look_back: int = 0,
    look_ahead: int = 0,
    causal: bool,
    wrap: bool = False,
) -> AttentionGraph:
    r"""Every token reads its own block of tokens, and a few whole blocks before and after.

    .. math::
        \mathcal{N}(t) = \{ s : -a \le \lfloor t / b \rfloor - \lfloor s / b \rfloor \le p \},
        \quad \text{and } s \le t \text{ if causal}

    Args:
        num_nodes: N.
        block: b, tokens in a block; the last block is cut where b does not divide N.
        look_back: p, number of blocks before its own that a target reads.
        look_ahead: a, number of blocks after its own that a target reads.
        causal: Read up to the target only.
        wrap: Treat the blocks as a circle, as in Reformer.
    Returns:
        A rule.
    Raises:
        GraphError: If ``block < 1``, ``causal`` comes with ``look_ahead``, or ``wrap`` would reach
            a block twice.
    Source:
        Blocks alone: CANINE (Clark et al. 2021); with ``causal=True`` the chunks of Llama 4. One
        block back: Image Transformer (Parmar et al. 2018) and Reformer's local layers (Kitaev et
        al. 2020), whose code joins the last block to the first (``wrap=True``). The
        ``local-attention`` package has ``look_backward=1``.
    Example:
        >>> print(block_local(6, 2, look_back=1, causal=True))
        AttentionGraph(block_local(6, 2, look_back=1, causal=True): 6 nodes, 17 edges, density 0.472, rule)
        █ · · · · ·
        █ █ · · · ·
        █ █ █ · · ·
        █ █ █ █ · ·
        · · █ █ █ ·
        · · █ █ █ █
    """
    N = whole(num_nodes, "num_nodes")
    block = whole(block, "block", 1)
    back = whole(look_back, "look_back")
    ahead = whole(look_ahead, "look_ahead")
    if causal and ahead:
        raise GraphError(
            f"look_ahead={ahead} reads later tokens and causal=True forbids them; leave one out"
        )
    blocks = -(-N // block)
    wrap_around = wrap and blocks > 0
    edges = _blocks(N, block, -ahead, back)
    if wrap_around:
        edges = union(edges, _blocks(N, block, -FAR, back - blocks))
        edges = union(edges, _blocks(N, block, blocks - ahead, FAR))
    if causal:
        edges = intersection(edges, band(N, N, lo=0))
    name = call("block_local", N, block, look_back=back, look_ahead=ahead, causal=causal, wrap=wrap)
    return AttentionGraph(edges, name)


@sizable
@builder
def block_causal(num_nodes: int, block: int) -> AttentionGraph:
    r"""Every token reads its whole block and all blocks before: frames, steps of a world model.

    .. math:: \mathcal{N}(t) = \{ s : \lfloor s / b \rfloor \le \lfloor t / b \rfloor \}

    Args:
        num_nodes: N.
        block: b, tokens in a block (of a frame); the last block is cut where b does not divide N.
            Blocks of different lengths: :func:`~graphattn.graphs.causal_by_rank`.
    Returns:
        A rule.
    Raises:
        GraphError: If ``block < 1``.
    Example:
        >>> print(block_causal(5, 2))
        AttentionGraph(block_causal(5, 2): 5 nodes, 17 edges, density 0.68, rule)
        █ █ · · ·
        █ █ · · ·
        █ █ █ █ ·
        █ █ █ █ ·
        █ █ █ █ █
    """
    N = whole(num_nodes, "num_nodes")
    block = whole(block, "block", 1)
    return AttentionGraph(_blocks(N, block, 0, FAR), call("block_causal", N, block))


@builder
def block_diffusion(num_nodes: int, block: int) -> AttentionGraph:
    r"""A noisy copy of a text before the clean text: blocks are denoised given clean ones before.

    A noisy token reads its own noisy block and the clean blocks strictly before it; a clean token
    reads the clean blocks up to its own, whole; no clean token reads a noisy one.

    Args:
        num_nodes: N, tokens of the text. The graph has 2 N nodes: noisy tokens 0 .. N - 1, clean
            tokens N .. 2 N - 1.
        block: b, tokens in a block; the last block is cut where b does not divide N.
    Returns:
        A rule over 2 N nodes.
    Raises:
        GraphError: If ``block < 1``.
    Source:
        Arriola et al. 2025 (Block Diffusion, BD3-LM), section 3.2, the attention mask of training.
    Example:
        >>> print(block_diffusion(4, 2))
        AttentionGraph(block_diffusion(4, 2): 8 nodes, 24 edges, density 0.375, rule)
        █ █ · · · · · ·
        █ █ · · · · · ·
        · · █ █ █ █ · ·
        · · █ █ █ █ · ·
        · · · · █ █ · ·
        · · · · █ █ · ·
        · · · · █ █ █ █
        · · · · █ █ █ █
    """
    N = whole(num_nodes, "num_nodes")
    block = whole(block, "block", 1)
    same_block = _blocks(N, block, 0, 0)
    before = _blocks(N, block, 1, FAR)
    until = _blocks(N, block, 0, FAR)
    edges = union_of_blocks([(same_block, 0, 0), (before, 0, N), (until, N, N)], 2 * N, 2 * N)
    return AttentionGraph(edges, call("block_diffusion", N, block))
