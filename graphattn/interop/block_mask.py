"""FlexAttention's block masks: which blocks of a mask are empty, full, or need a test."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..arguments import kinds_checked, pair
from ..errors import GraphError
from ..graph import EMPTY, FULL, PARTIAL, AttentionGraph
from ..graph.need import need_graph
from ._of_pair import BATCHES, HEADS, OfPair, check_same, of_head, rule_of
from .flex import to_mask_mod
from .rule import from_rule

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


def to_block_mask(graph: AttentionGraph, block_size: int | tuple[int, int] = 128) -> "BlockMask":
    """A FlexAttention ``BlockMask``, from exact counts of the edges in every block; T x S is never built.

    Blocks without an edge are skipped, full ones need no test, the others call :func:`to_mask_mod`. As with
    ``create_block_mask``, a block that reaches over the border is never full.

    Args:
        graph: Any graph without repeated edges.
        block_size: Targets and sources per block, or both as a pair.
    Returns:
        A block mask for one batch and one head, which broadcasts, on ``graph.device``.
    Raises:
        GraphError: As :func:`to_mask_mod`, if there is no pair at all, or a block side is below 1.
    Example:
        >>> from graphattn.graphs import causal
        >>> to_block_mask(causal(512)).shape
        (1, 1, 512, 512)
    """
    need_graph(graph, "to_block_mask")
    from torch.nn.attention.flex_attention import BlockMask

    both = block_size if isinstance(block_size, tuple | list) else (block_size, block_size)
    height, width = pair(both, "block_size", "(targets, sources)", GraphError)
    T, S = graph.num_targets, graph.num_sources
    if T == 0 or S == 0:
        raise GraphError(f"a BlockMask needs at least one target and one source, got {T} and {S}")
    classes = graph.tile_classes((height, width))
    over = (torch.arange(classes.shape[0])[:, None] + 1) * height > T
    over = over | ((torch.arange(classes.shape[1])[None, :] + 1) * width > S)
    classes = torch.where(over & (classes == FULL), PARTIAL, classes)
    partial, full = (_ordered(classes == kind, graph.device) for kind in (PARTIAL, FULL))
    return BlockMask.from_kv_blocks(
        *partial, *full, BLOCK_SIZE=(height, width), mask_mod=to_mask_mod(graph), seq_lengths=(T, S)
    )


def _ordered(blocks: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """How many blocks a row has, (1, 1, rows), and the columns with those first, (1, 1, rows, columns); int32."""
    columns = torch.argsort(blocks.to(torch.int8), dim=1, descending=True, stable=True)
    return tuple(part[None, None].to(device, torch.int32) for part in (blocks.sum(1), columns))  # type: ignore[return-value]


@dataclass(frozen=True)
class _OfBlocks:
    """What a block mask lets through: full blocks, and in the partial ones what its ``mask_mod`` does."""

    classes: Tensor
    block_size: tuple[int, int]
    rule: OfPair

    def __call__(self, target: Tensor, source: Tensor) -> Tensor:
        block = self.classes[target // self.block_size[0], source // self.block_size[1]]
        return (block == FULL) | ((block == PARTIAL) & self.rule(target, source))


@kinds_checked("name", "device", "return_nodes")
def from_block_mask(block_mask: "BlockMask", *, name: str | None = None) -> AttentionGraph:
    """A graph, as a rule, from a FlexAttention ``BlockMask`` that is the same for all batches and heads.

    An edge is what FlexAttention's compiled kernels let through: every pair of a full block, and the pairs of a partial
    block that its ``mask_mod`` accepts. (Run eagerly, FlexAttention looks at the ``mask_mod`` alone; the two agree for
    block masks of ``create_block_mask`` and :func:`to_block_mask`.)

    Args:
        block_mask: The block mask; its sizes are the graph's.
        name: What ``repr`` shows.
    Raises:
        GraphError: If blocks or ``mask_mod`` differ between batches or heads.
    Example:
        >>> from graphattn.graphs import causal
        >>> from_block_mask(to_block_mask(causal(5))).equals(causal(5))
        True
    """
    from torch.nn.attention.flex_attention import BlockMask

    if not isinstance(block_mask, BlockMask):
        raise GraphError(f"block_mask must be a BlockMask, got a {type(block_mask).__name__}; see from_mask_mod")
    T, S = block_mask.seq_lengths
    height, width = block_mask.BLOCK_SIZE
    classes = _classes(block_mask.kv_num_blocks, block_mask.kv_indices, PARTIAL)
    if block_mask.full_kv_num_blocks is not None and block_mask.full_kv_indices is not None:
        classes = torch.maximum(classes, _classes(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, FULL))
    first = classes.flatten(0, -3)[0]
    if (classes != first).any():
        raise GraphError(
            f"block_mask has other blocks for some batch or head ({tuple(classes.shape[:-2])} of them), and one graph "
            "serves all: pass block_mask[b, h] for the one that is meant"
        )
    graph = of_head(block_mask.mask_mod, 0, T, S, name or "block_mask", first.device)
    batches, heads = block_mask.shape[:2]
    check_same(graph, "b", range(batches) if batches > 1 else BATCHES)
    check_same(graph, "h", range(heads) if heads > 1 else HEADS)
    edges = _OfBlocks(first, (height, width), rule_of(graph))
    return from_rule(edges, T, S, name=graph.name, device=first.device)


def _classes(num_blocks: Tensor, indices: Tensor, kind: int) -> Tensor:
    """int8 (..., rows, columns): ``kind`` at the first ``num_blocks`` columns of each row's ``indices``."""
    there = torch.arange(indices.shape[-1], device=indices.device) < num_blocks[..., None]
    table = torch.full(indices.shape, EMPTY, dtype=torch.int8, device=indices.device)
    return table.scatter_(-1, indices.long(), there.to(torch.int8) * kind)
