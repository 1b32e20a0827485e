"""FlexAttention's block masks: blocks of a mask are empty, full, or partial."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from ..arguments import pair
from ..errors import GraphError
from ..graph import EMPTY, FULL, PARTIAL, AttentionGraph, PerHead
from ..graph.like import need_fixed
from ..graphs.arguments import whole
from ._of_pair import OfPair, of_head, of_heads, rule_of
from .flex import to_mask_mod
from .rule import from_rule

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


def to_block_mask(
    graph: AttentionGraph | PerHead,
    block_size: int | tuple[int, int] = 128,
    *,
    H: int | None = None,
) -> "BlockMask":
    """A FlexAttention ``BlockMask``, from exact counts of the edges in blocks, without T x S.

    Blocks without an edge are skipped, full ones need no test, the others call :func:`to_mask_mod`.
    As with ``create_block_mask``, a block that crosses the border is never full.

    Args:
        graph: Any graph without repeated edges, or a :class:`~graphattn.PerHead`.
        block_size: Targets and sources per block, or both as a pair.
        H: Heads of the query, as of :func:`to_mask_mod`.
    Returns:
        A block mask for one batch and one head, which broadcast, or H heads of a ``PerHead``; on
        ``graph.device``.
    Raises:
        GraphError: As :func:`to_mask_mod`, if there are no pairs, or a block side is below 1.
    Example:
        >>> from graphattn.graphs import causal
        >>> to_block_mask(causal(512)).shape
        (1, 1, 512, 512)
    """
    need_fixed(graph, "to_block_mask needs an AttentionGraph")
    from torch.nn.attention.flex_attention import BlockMask

    if isinstance(block_size, tuple | list):
        sides = block_size
    else:
        sides = (block_size, block_size)
    height, width = pair(sides, "block_size", "(targets, sources)", GraphError)
    T = graph.num_targets
    S = graph.num_sources
    if 0 in (T, S):
        raise GraphError(f"a BlockMask needs at least one target and one source, got {T} and {S}")
    mask_mod = to_mask_mod(graph, H=H)
    num_heads = len(graph.of_heads)
    if H is not None and num_heads > 1:
        num_heads = H
    parts = []
    for _, part, first, last in graph.groups(num_heads):
        parts.append(part._block_classes((height, width)).expand(last - first, -1, -1))
    classes = torch.cat(parts)
    over = (torch.arange(classes.shape[1])[:, None] + 1) * height > T
    over = over | ((torch.arange(classes.shape[2])[None, :] + 1) * width > S)
    classes = torch.where(over & (classes == FULL), PARTIAL, classes)
    partial, full = (_ordered(classes == kind, graph.device) for kind in (PARTIAL, FULL))
    return BlockMask.from_kv_blocks(
        *partial, *full, BLOCK_SIZE=(height, width), mask_mod=mask_mod, seq_lengths=(T, S)
    )


def _ordered(blocks: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """The number of blocks in rows (1, H, rows), and their columns, sorted; int32.

    The columns (1, H, rows, columns) of these blocks come first.
    """
    columns = torch.argsort(blocks.to(torch.int8), dim=-1, descending=True, stable=True)
    return tuple(part[None].to(device, torch.int32) for part in (blocks.sum(-1), columns))  # type: ignore[return-value]


@dataclass(frozen=True)
class _OfBlocks:
    """The edges of a block mask: full blocks, and pairs of its ``mask_mod`` in partial blocks."""

    classes: Tensor  # (B or 1, H or 1, rows, columns)
    block_size: tuple[int, int]
    rule: OfPair
    mask: ClassVar[str] = "block_mask.mask_mod"

    def __call__(self, target: Tensor, source: Tensor) -> Tensor:
        batches, heads = self.classes.shape[:2]
        # one batch, or one head, serves all
        of_head = self.classes[min(self.rule.batch, batches - 1), min(self.rule.head, heads - 1)]
        block = of_head[target // self.block_size[0], source // self.block_size[1]]
        return (block == FULL) | ((block == PARTIAL) & self.rule(target, source))

    def at(self, letter: str, value: int) -> "_OfBlocks":
        """Edges at another batch or head."""
        return replace(self, rule=self.rule.at(letter, value))


def from_block_mask(
    block_mask: "BlockMask", *, B: int | None = None, H: int | None = None, name: str | None = None
) -> Any:
    """A graph, as a rule, from a FlexAttention ``BlockMask``, or a graph for each batch.

    Edges are the pairs that FlexAttention's compiled kernels read: every pair of a full block, and
    the pairs of a partial one for which ``mask_mod`` is True; an empty block has none, for any
    ``mask_mod``.

    Args:
        block_mask: A result of ``create_block_mask``.
        B: Number of batches, each with its own edges if the block mask differs; by default that of
            the block mask, if above one. Of a block mask of one batch, which broadcasts, some pairs
            are tried for some b.
        H: Number of heads, each with its own edges if the block mask differs; by default that of
            the block mask, if above one.
        name: The name that ``repr`` shows.
    Returns:
        One graph if all batches and heads have the same edges; else a
        :class:`~graphattn.PerExample` of B graphs, or a :class:`~graphattn.PerHead` of H graphs, or
        one in each example.
    Raises:
        GraphError: If it is not a ``BlockMask``, or a slice of one, which has no ``mask_mod``; if
            it has more batches, heads or pairs than :func:`from_mask_mod` takes; if B or H is
            another number than its own; if its batches or heads differ, though it has one and B or
            H is not given.
    Example:
        >>> from graphattn.graphs import causal
        >>> from_block_mask(to_block_mask(causal(512))).equals(causal(512))
        True
    """

    if getattr(block_mask.mask_mod, "__name__", "") == "_sliced_mask_mod_error":
        raise GraphError(
            "block_mask must have a mask_mod, which a slice, block_mask[b, h], loses; convert the "
            "whole one (and take PerHead.graphs[h] for one head), or its mask_mod by from_mask_mod"
        )
    T, S = block_mask.seq_lengths
    classes = _classes(block_mask.kv_num_blocks, block_mask.kv_indices, PARTIAL)
    num_full = block_mask.full_kv_num_blocks
    full_indices = block_mask.full_kv_indices
    if num_full is not None and full_indices is not None:
        classes = torch.maximum(classes, _classes(num_full, full_indices, FULL))
    classes = classes.reshape(*(1,) * (4 - classes.dim()), *classes.shape)
    B = _number(classes.shape[0], B, "B")
    H = _number(classes.shape[1], H, "H")

    def graph_of(head: int, word: str) -> AttentionGraph:
        rule: Any = rule_of(of_head(block_mask.mask_mod, head, T, S, word, classes.device))
        edges = _OfBlocks(classes, block_mask.BLOCK_SIZE, rule)
        return from_rule(edges, T, S, name=word, device=classes.device)

    if not name:
        name = "block_mask"
    return of_heads(graph_of, (T, S), name, B, H)


def _number(stored: int, number: int | None, word: str) -> int | None:
    """The number of batches or heads: that of the block mask, or ``number`` if it broadcasts."""
    if number is not None:
        number = whole(number, word, 1)
    if stored <= 1:
        return number
    if number in (None, stored):
        return stored
    raise GraphError(f"{word} must be {stored}, as in block_mask, got {number}")


def _classes(num_blocks: Tensor, indices: Tensor, kind: int) -> Tensor:
    """int8 (..., rows, columns): ``kind`` at the first ``num_blocks`` of each row's ``indices``."""
    is_block = torch.arange(indices.shape[-1], device=indices.device) < num_blocks[..., None]
    table = torch.full(indices.shape, EMPTY, dtype=torch.int8, device=indices.device)
    return table.scatter_(-1, indices.long(), is_block.to(torch.int8) * kind)
