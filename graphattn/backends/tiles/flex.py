"""Tiles through FlexAttention, on CUDA: square blocks in the given order; empty ones are free.

A mask is a table that the kernels look up, so that graphs of the same sizes share one compiled
program; if sizes change, the program becomes one for any size.
"""

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...graph import FULL, PARTIAL, AttentionGraph
from ...graph.modes import lru_cache
from ...kernels.plain.rows import take
from ...kernels.plain.second_derivatives import twice_differentiable
from ...operands import Inputs, Outputs
from ...plans.block_lists import (
    MOST_BLOCKS,
    SIDE,
    WORD,
    BlockLists,
    RowPieces,
    block_lists,
    block_work,
    num_blocks,
    ordered,
)
from ...plans.cache import planned
from ..request import Request, flat_batch
from ..sdpa import softmax_lse

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDTHS = range(16, 257)  # of a head, for which the kernels fit every supported device
GRID = 65_535  # programs along an axis

Pair = tuple[Tensor, Tensor]
"""Output (B, T, H, D_v) and lse (B, T, H)."""


def reasons_against_flex(graph: AttentionGraph, request: Request) -> list[str]:
    """Reasons why FlexAttention does not run a call that tiles can run."""
    reasons = reasons_against_fused("FlexAttention", request)
    if request.device.type != "cuda":
        reasons.append(
            f"FlexAttention is used on CUDA only, and the tensors are on {request.device}"
        )
    if request.dtype not in DTYPES:
        reasons.append(f"FlexAttention has no kernel for {request.dtype}")
    if not {request.head_dim, request.value_dim} <= set(WIDTHS):
        widths = f"{request.head_dim} and {request.value_dim}"
        reasons.append(
            f"FlexAttention is used for heads of width {WIDTHS[0]} to {WIDTHS[-1]}, got {widths}"
        )
    if max(request.batch, request.heads) > GRID:
        reasons.append(f"FlexAttention takes at most {GRID:,} heads and as many examples")
    if num_blocks(graph) > MOST_BLOCKS:
        reasons.append(f"a table of {num_blocks(graph):,} blocks is more than {MOST_BLOCKS:,}")
    return reasons


def reasons_against_fused(
    name: str, request: Request, more: dict[str, bool] | None = None
) -> list[str]:
    """Reasons why a fused attention of torch does not run a call.

    It lacks the options that all of them lack, and ``more``.
    """
    options = {"a bias": request.score_bias, "dropout": request.dropout}
    if more is not None:
        options |= more
    reasons = [
        f"{name} does not support {option}" for option, is_used in options.items() if is_used
    ]
    if request.normalize:
        reasons.append(f"{name} supports softmax only")
    return reasons


def flex_bytes(graph: AttentionGraph) -> int:
    """Approximate bytes of the tables of blocks."""
    return 25 * num_blocks(graph)


def flex_work(graph: AttentionGraph) -> float:
    """The cost of the blocks, in pairs of a full one."""
    return block_work(graph)


def flex_run(
    graph: AttentionGraph, inputs: Inputs, lse: bool, definition: Callable[..., tuple[Tensor, ...]]
) -> Outputs:
    """Attention on a graph; ``definition`` is the same in plain operations."""
    query, key, value = (flat_batch(x) for x in (inputs.query, inputs.key, inputs.value))
    plan, tables = block_tables(graph, query.device)
    mask = block_mask(plan, tables)

    def run(query: Tensor, key: Tensor, value: Tensor) -> Pair:
        return _run(plan, mask, inputs, lse, query, key, value)

    output, log_sum = twice_differentiable(run, definition, query, key, value, contiguous=True)
    shape = inputs.query.shape[:-1]
    output = output.reshape(*shape, value.shape[-1])
    if not lse:
        return Outputs(output)
    return Outputs(output, None, log_sum.reshape(shape))


@planned
def block_tables(graph: AttentionGraph, device: torch.device) -> tuple[BlockLists, tuple[Any, ...]]:
    """The blocks of a graph, and the tables of their ``BlockMask``.

    Sizes, then counts and indices of the partial and the full blocks of each row, then of each
    column.
    """
    plan = block_lists(graph, device)
    rows = graph.num_targets
    if plan.target is not None:
        rows = plan.target.node.numel()
    columns = graph.num_sources
    if plan.source is not None:
        columns = plan.source.node.numel()
    tables: list[Tensor] = []
    for kinds in (plan.kinds, plan.kinds.T):
        for kind in (PARTIAL, FULL):
            tables += ordered(kinds == kind)
    return plan, ((rows, columns), *tables)


def block_mask(plan: BlockLists, tables: tuple[Any, ...]) -> Any:
    """The ``BlockMask`` of a plan, made at each call: torch.compile traces none made outside.

    Its ``mask_mod`` differs from that of another plan only in the tensors it reads.
    """
    from torch.nn.attention.flex_attention import BlockMask

    bitmap = plan.which
    bits = plan.bits

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        word = bits[bitmap[q_idx // SIDE, kv_idx // SIDE], q_idx % SIDE, kv_idx % SIDE // WORD]
        return ((word >> (kv_idx % WORD)) & 1) == 1

    make: Any = BlockMask  # mypy does not count starred arguments
    return make(*tables, (SIDE, SIDE), mask_mod)


def _run(
    plan: BlockLists,
    mask: Any,
    inputs: Inputs,
    lse: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
) -> Pair:
    T = query.shape[1]
    if plan.isolated is not None:  # not even a NaN of an isolated target may enter a product
        query = query.masked_fill(plan.isolated[:, None, None], 0.0)
    if plan.unused is not None:
        key, value = (x.masked_fill(plan.unused[:, None, None], 0.0) for x in (key, value))
    if plan.target is not None:
        (query,) = take(query, [plan.target.node.numel()], plan.target)
    if plan.source is not None:
        key, value = (take(x, [plan.source.node.numel()], plan.source)[0] for x in (key, value))
    needs_lse = lse or plan.pieces is not None
    run = compiled(inputs.scale, inputs.softcap, needs_lse, *_kind(query, key, value))
    output, log_sum = run(*(x.transpose(1, 2) for x in (query, key, value)), mask)
    if plan.pieces is not None:
        output, log_sum = _joined(plan.pieces, output, log_sum)
    output = output[:, :, :T].transpose(1, 2)
    log_sum = log_sum[:, :, :T].transpose(1, 2)
    if plan.isolated is not None:
        output = output.masked_fill(plan.isolated[:, None, None], 0.0)
        if lse:
            log_sum = log_sum.masked_fill(plan.isolated[:, None], -torch.inf)
    return output, log_sum


def _kind(query: Tensor, key: Tensor, value: Tensor) -> tuple[Any, ...]:
    """The key of a compiled program, beside sizes that may change."""
    return (
        query.dtype,
        query.shape[2],
        key.shape[2],
        query.shape[3],
        value.shape[3],
        torch.is_grad_enabled(),
    )


def _joined(pieces: RowPieces, output: Tensor, lse: Tensor) -> Pair:
    """Pieces of rows of blocks merged at the index of the first; heads first."""
    blocks = output.unflatten(2, (-1, SIDE))
    log_sums = lse.unflatten(2, (-1, SIDE))
    absent = pieces.piece < 0
    at = pieces.piece.clamp(min=0)
    share, total = softmax_lse(log_sums[:, :, at].masked_fill(absent[:, :, None], -torch.inf), 3)
    joined = (share.unsqueeze(-1) * blocks[:, :, at].to(share.dtype)).sum(3).to(output.dtype)
    output = blocks.index_copy(2, pieces.row, joined).flatten(2, 3)
    return output, log_sums.index_copy(2, pieces.row, total.squeeze(3)).flatten(2, 3)


def compiled(scale: float, softcap: float | None, lse: bool, *kind: Any) -> Callable[..., Pair]:
    """FlexAttention of one kind, for any sizes; traced as part of the caller by torch.compile."""
    if torch.compiler.is_compiling():
        return attend(scale, softcap, lse)
    return _compiled(scale, softcap, lse, *kind)


@lru_cache(64)
def _compiled(scale: float, softcap: float | None, lse: bool, *kind: Any) -> Callable[..., Pair]:
    run: Any = attend(scale, softcap, lse)
    # torch compiles a code object at most eight times: each kind gets a copy
    function_copy = types.FunctionType(
        run.__code__.replace(), run.__globals__, run.__name__, None, run.__closure__
    )
    program: Callable[..., Pair] = torch.compile(function_copy, fullgraph=True)
    return program


def attend(scale: float, softcap: float | None, lse: bool) -> Callable[..., Pair]:
    """FlexAttention with these numbers, heads first; lse is empty unless requested."""
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    def capped(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        assert softcap is not None
        return softcap * torch.tanh(score / softcap)

    if softcap is None:
        score_mod = None
    else:
        score_mod = capped

    def run(query: Tensor, key: Tensor, value: Tensor, mask: Any) -> Any:
        grouped = query.shape[1] != key.shape[1]
        if not lse:
            output = flex_attention(query, key, value, score_mod, mask, scale, grouped)
            return output, query.new_empty(0, 0, 0)
        output, more = flex_attention(
            query, key, value, score_mod, mask, scale, grouped, return_aux=AuxRequest(lse=True)
        )
        return output, more.lse

    return run
