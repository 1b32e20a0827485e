"""FlexAttention: its mask functions. ``q_idx`` is the target, ``kv_idx`` the source."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

import torch
from torch import Tensor

from ..graph import AttentionGraph, PerHead
from ..graph.like import need_fixed
from ..graph.pair_test import pair_test
from ..graphs.arguments import whole
from ._of_pair import MaskMod, OfPair, of_head, of_heads
from .masks import _no_copies
from .rule import name_of


def from_mask_mod(
    mask_mod: MaskMod,
    num_targets: int,
    num_sources: int | None = None,
    *,
    B: int | None = None,
    H: int | None = None,
    name: str | None = None,
    device: torch.device | str = "cpu",
) -> Any:
    """A graph, as a rule, from a FlexAttention ``mask_mod(b, h, q_idx, kv_idx)``.

    All functions of ``create_block_mask`` are accepted. A function of whole index tensors, as in
    :func:`from_rule`, is called with those; one that needs single pairs (``table[kv_idx][0]``,
    ``.any()``) runs under ``torch.vmap``, which is slower. A table (1, 1, T, S) that is read at
    ``[b, h, q_idx, kv_idx]`` has one batch and one head, as in ``create_block_mask`` without B and
    H.

    Args:
        mask_mod: The function.
        num_targets: T, FlexAttention's ``Q_LEN``.
        num_sources: S, its ``KV_LEN``; T by default.
        B: Number of batches, each with its own edges if ``mask_mod`` depends on b; by default one
            graph serves all, and some pairs are tried, for some b within the tables of
            ``mask_mod``.
        H: Number of heads, each with its own edges if ``mask_mod`` depends on h.
        name: The name that ``repr`` shows; that of the function by default.
        device: The device of the tensors that ``mask_mod`` reads.
    Returns:
        One graph if all batches and heads have the same edges; else a
        :class:`~graphattn.PerExample` of B graphs, or (with ``H``, or if H x T x S is over 2^28, too
        many to compare) a :class:`~graphattn.PerHead` of H graphs, or one in each example.
    Raises:
        GraphError: As :func:`from_rule`; if H is over 256, B x H over 4096, or, with B > 1, B x H x
            T x S over 2^28; if the mask differs from batch to batch without ``B``, or from head to
            head without ``H``.
    Example:
        >>> from_mask_mod(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, 3)
        AttentionGraph(mask_mod: 3 nodes, 6 edges, density 0.667, rule)
        >>> from_mask_mod(lambda b, h, q_idx, kv_idx: q_idx - kv_idx <= h, 3, H=2)
        PerHead(mask_mod[h=0], mask_mod[h=1]: 3 nodes)
    """
    T = whole(num_targets, "num_targets")
    if num_sources is None:
        S = T
    else:
        S = whole(num_sources, "num_sources")
    if B is not None:
        B = whole(B, "B", 1)
    if H is not None:
        H = whole(H, "H", 1)
    if not name:
        name = name_of(mask_mod, "mask_mod")

    def graph_of(head: int, word: str) -> AttentionGraph:
        return of_head(mask_mod, head, T, S, word, device)

    return of_heads(graph_of, (T, S), name, B, H)


def to_mask_mod(graph: AttentionGraph | PerHead, *, H: int | None = None) -> MaskMod:
    """A ``mask_mod(b, h, q_idx, kv_idx)`` of element-wise operations and look-ups only.

    Bands, rectangles, functions and their combinations become arithmetic; graphs of at most 16
    intervals of sources a target look up their ends. Others become a table of tiles and a bitmap
    for each partial tile, so that an order with near neighbours saves memory. The tensors are on
    ``graph.device``.

    Args:
        graph: One for all heads, or a :class:`~graphattn.PerHead`, for which ``mask_mod`` depends
            on h.
        H: Number of heads of the query, which share the graphs of a ``PerHead`` in order; by
            default one per graph.
    Raises:
        GraphError: If edges are repeated, the look-up tables would take more than 4 GiB, or H is
            not a multiple of the number of graphs.
    Example:
        >>> from graphattn.convert import from_mask
        >>> mask_mod = to_mask_mod(from_mask([[True, False], [True, True]]))
        >>> mask_mod(0, 0, torch.tensor([0, 1]), torch.tensor([1, 1]))
        tensor([False,  True])
    """
    if H is not None:
        H = whole(H, "H", 1)
    need_fixed(graph, "to_mask_mod needs an AttentionGraph")
    if isinstance(graph, PerHead):
        return _of_heads(graph, H)
    _no_copies(graph, "a mask_mod", "add the logarithm of the number of copies in a score_mod")
    original = _shared_mask_mod((graph,))
    if original is not None:
        function, (head,) = original
        return lambda b, h, q_idx, kv_idx: function(b * 0, h * 0 + head, q_idx, kv_idx)
    test = pair_test(graph.edges, graph.device)

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return test(q_idx, kv_idx)

    return mask_mod


def _shared_mask_mod(graphs: Sequence[AttentionGraph]) -> tuple[MaskMod, list[int]] | None:
    """The one ``mask_mod`` of all graphs, for batch 0, and the head of each; None without one."""
    pairs = []
    for graph in graphs:
        function = graph.edges.function
        if not isinstance(function, OfPair):
            return None
        pairs.append(function)
    if len({id(pair.mask_mod) for pair in pairs}) > 1:
        return None
    return pairs[0].mask_mod, [pair.head for pair in pairs]


def _of_heads(heads: PerHead, H: int | None) -> MaskMod:
    """A ``mask_mod`` that looks up the graph of its head."""
    if H is None:
        H = len(heads.graphs)
    groups = heads.groups(H)
    sizes = torch.tensor([group.last - group.first for group in groups])
    original = _shared_mask_mod([group.graph for group in groups])
    if original is not None:
        function, numbers = original
        head_of = torch.tensor(numbers).repeat_interleave(sizes).to(heads.device)
        return lambda b, h, q_idx, kv_idx: function(b * 0, head_of[h], q_idx, kv_idx)
    different = list(dict.fromkeys(heads.graphs))
    which = torch.tensor([different.index(group.graph) for group in groups])
    which = which.repeat_interleave(sizes).to(heads.device)
    tests = [pair_test(graph.edges, heads.device) for graph in different]

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return reduce(
            or_, [(which[h] == number) & test(q_idx, kv_idx) for number, test in enumerate(tests)]
        )

    return mask_mod
