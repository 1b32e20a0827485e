"""Closed forms on numbered nodes: circles, butterflies, hypercubes, a hierarchy of means."""

import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.edges import Edges
from ...graph.runs import Runs, from_pairs
from ..arguments import call, integers, whole
from ..sequence.blocks import in_blocks


@sizable
@builder
def circulant(num_nodes: int, offsets: tuple[int, ...]) -> AttentionGraph:
    r"""Nodes on a circle that read the nodes at fixed offsets from themselves.

    .. math:: \mathcal{N}(t) = \{ (t + o) \bmod N : o \in O \}

    Args:
        num_nodes: N.
        offsets: O; -1 is the node before, 0 the node itself. ``(-1, 0, 1)`` is a ring,
            ``(0, 1, 2, 4, 8, ...)`` a chord network. Offsets that are equal modulo N are one.
    Returns:
        A rule.
    Source:
        Guo et al. 2019 (Star-Transformer) for the ring; Khalitov et al. 2023 (ChordMixer) for
        powers of two. *What differs:* Star-Transformer's code (fastNLP) pads the ends by a key and
        a value of zeros in place of joining them. ``networkx.circulant_graph`` is the same with
        offsets in both directions.
    Example:
        >>> print(circulant(5, (-1, 0, 2)))
        AttentionGraph(circulant(5, (-1, 0, 2)): 5 nodes, 15 edges, density 0.6, rule)
        █ · █ · █
        █ █ · █ ·
        · █ █ · █
        █ · █ █ ·
        · █ · █ █
    """
    N = whole(num_nodes, "num_nodes")
    if isinstance(offsets, int):
        offsets = (offsets,)
    steps = integers(offsets, "offsets").tolist()
    apart = torch.tensor(sorted({step % max(1, N) for step in steps}), dtype=torch.int64)

    def rows(target: Tensor) -> Runs:
        source = torch.sort((target[:, None] + apart) % max(1, N), 1).values
        row = torch.arange(target.numel())[:, None].expand_as(source)
        return from_pairs(row.flatten(), source.flatten())

    return AttentionGraph(
        Edges(N, N, rows, runs_per_row=len(apart)), call("circulant", N, tuple(steps))
    )


@sizable
@builder
def butterfly(
    num_nodes: int,
    block: int = 1,
    *,
    strides: tuple[int, ...] | None = None,
) -> AttentionGraph:
    r"""Blocks of nodes read themselves and the blocks whose number differs in one binary digit.

    .. math::
        \mathcal{N}(t) = \{ s : \lfloor s / b \rfloor \in \{ I, I \oplus 2^k \} \},
        \quad I = \lfloor t / b \rfloor

    Args:
        num_nodes: N. If it is not a power of two times ``block``, partners beyond the end are
            missing.
        block: b; ``block=1`` is the hypercube with self-loops.
        strides: The :math:`2^k` in use; all below the number of blocks by default. A single one is
            a factor of a butterfly matrix.
    Returns:
        A rule, symmetric; after as many layers as there are strides, every node depends on every
        node.
    Raises:
        GraphError: If ``block < 1``, or a stride is not a power of two.
    Source:
        Dao et al. 2022 (Pixelated Butterfly), flat block butterfly: the sum of the factors in place
        of their product.
    Example:
        >>> print(butterfly(8))
        AttentionGraph(butterfly(8): 8 nodes, 32 edges, density 0.5, rule)
        █ █ █ · █ · · ·
        █ █ · █ · █ · ·
        █ · █ █ · · █ ·
        · █ █ █ · · · █
        █ · · · █ █ █ ·
        · █ · · █ █ · █
        · · █ · █ · █ █
        · · · █ · █ █ █
    """
    N = whole(num_nodes, "num_nodes")
    block = whole(block, "block", 1)
    blocks = -(-N // block)
    shown = None
    if strides is None:
        powers = [1 << k for k in range(max(0, blocks - 1).bit_length())]
    else:
        if isinstance(strides, int):
            strides = (strides,)
        powers = sorted(set(integers(strides, "strides").tolist()))
        for power in powers:
            if power < 1 or power.bit_count() > 1:
                raise GraphError(f"strides must be powers of two such as 1, 2, 4, got {power}")
        shown = tuple(powers)
    sizes = [N]
    if block > 1:
        sizes.append(block)
    name = call("butterfly", *sizes, strides=shown)
    apart = torch.tensor((0, *powers), dtype=torch.int64)

    def rows(target: Tensor) -> Runs:
        source = torch.sort(target[:, None] ^ apart, 1).values
        row = torch.arange(target.numel())[:, None].expand_as(source)[source < blocks]
        return Runs(row, source[source < blocks], source[source < blocks] + 1)

    return AttentionGraph(
        in_blocks(Edges(blocks, blocks, rows, runs_per_row=len(apart)), block, N), name
    )


@sizable
@builder
def coarse_to_fine(num_nodes: int, block: int, *, causal: bool) -> AttentionGraph:
    r"""A token reads near blocks token by token, and farther ones as means, ever coarser.

    The sources are the nodes of a binary tree, level after level: first the N tokens, then
    :math:`\lceil N / 2 \rceil` means of two, then means of four, and so on. Node j of level l
    stands for the tokens :math:`j 2^l, \ldots, (j + 1) 2^l - 1`; every token is read once by every
    target, itself or in one of the means.

    .. math::
        \mathcal{N}(t) = \{ (l, j) : |I_l(t) - \lfloor j / b \rfloor| \le 1 \text{ and not }
        |I_{l-1}(t) - \lfloor 2 j / b \rfloor| \le 1 \}, \quad I_l(t) = \lfloor t / (b 2^l) \rfloor

    Args:
        num_nodes: N.
        block: b, nodes in a block on every level, even.
        causal: Read no token after the target; means then come from the left only.
    Returns:
        A rule with N targets and about 2 N sources. To let a mean of n tokens weigh as much as n of
        them, add ``score_bias = log(n)``.
    Raises:
        GraphError: If ``block`` is odd or below 2.
    Source:
        Zhu and Soricut 2021 (H-Transformer-1D): blocks beside the diagonal on every level. *What
        differs:* there queries are means, too, so that the tokens of a mean share the weights of
        its level.
    Example:
        >>> print(coarse_to_fine(8, 2, causal=False))
        AttentionGraph(coarse_to_fine(8, 2, causal=False): 12 sources -> 8 targets, 52 edges, density 0.542, rule)
        █ █ █ █ · · · · · · █ █
        █ █ █ █ · · · · · · █ █
        █ █ █ █ █ █ · · · · · █
        █ █ █ █ █ █ · · · · · █
        · · █ █ █ █ █ █ █ · · ·
        · · █ █ █ █ █ █ █ · · ·
        · · · · █ █ █ █ █ █ · ·
        · · · · █ █ █ █ █ █ · ·
    """
    N = whole(num_nodes, "num_nodes")
    block = whole(block, "block", 2)
    if block % 2:
        raise GraphError(
            f"block must be even, since two blocks of a level form one of the next, got {block}"
        )
    sizes = [N]
    while -(-sizes[-1] // block) > 2:
        sizes.append(-(-sizes[-1] // 2))

    def rows(target: Tensor) -> Runs:
        lo = []
        hi = []
        first = 0
        for level, size in enumerate(sizes):
            own_block = target // (block * 2**level)
            below = target * 2 // (block * 2**level) - 1
            start = (own_block - 1) * block
            end = (own_block + 2) * block
            # read on the level below
            near_start = below * (block // 2)
            near_end = near_start + block // 2 * 3
            if level == 0:
                if causal:
                    end = torch.minimum(end, target + 1)
                pairs = [(start, end)]
            else:
                pairs = [(start, near_start)]
                if not causal:
                    pairs.append((near_end, end))
            for left, right in pairs:
                left = left.clamp(0, size)
                lo.append(first + left)
                hi.append(first + torch.maximum(left, right.clamp(max=size)))
            first += size
        row = torch.arange(target.numel()).repeat_interleave(len(lo))
        return Runs(row, torch.stack(lo, 1).flatten(), torch.stack(hi, 1).flatten())

    runs_per_row = len(sizes)
    if not causal:
        runs_per_row *= 2
    edges = Edges(N, sum(sizes), rows, runs_per_row=runs_per_row)
    return AttentionGraph(edges, call("coarse_to_fine", N, block, causal=causal))
