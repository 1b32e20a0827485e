"""Tiles through FlashAttention of sequences of any lengths, on CUDA: torch's ``varlen_attn``.

It is used only if ``graphattn doctor --calibrate --device cuda`` has compared it with plain
attention on that device, and measured it.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.modes import lru_cache
from ...kernels.plain.second_derivatives import twice_differentiable
from ...operands import HALF, Inputs, Outputs
from ...plans.sequences import sequences
from ..request import Request, flat_batch
from ..sdpa import above_zero
from .flex import Pair, reasons_against_fused

_WIDTHS = range(0, 257, 8)  # of a head
_MOST = 65_535  # limit of sequences: programs along an axis
_BEYOND = 64  # approximate number of keys on each side of a window that are computed and masked


def reasons_against_varlen(graph: AttentionGraph, request: Request) -> list[str]:
    """Reasons why torch's attention of sequences does not run a call that tiles can run."""
    more = {
        "softcap": request.softcap,
        "lse": request.lse,
        "grouped heads": request.heads != request.kv_heads,
    }
    reasons = reasons_against_fused("varlen_attn", request, more)
    if request.device.type != "cuda":
        reasons.append(f"varlen_attn runs on CUDA, and the tensors are on {request.device}")
    if request.dtype not in HALF:
        reasons.append(f"varlen_attn has no kernel for {request.dtype}")
    if request.head_dim != request.value_dim or request.head_dim not in _WIDTHS:
        widths = f"{request.head_dim} and {request.value_dim}"
        reasons.append(
            f"varlen_attn needs heads of one width, a multiple of 8 up to 256, got {widths}"
        )
    if request.batch * graph.num_targets >= 1 << 31:
        reasons.append("varlen_attn counts the nodes of a batch in 32 bits")
    if not _offered():
        reasons.append(f"torch {torch.__version__} has no varlen_attn with a window and a scale")
    if not reasons:
        plan = sequences(graph)
        if plan is None:
            reasons.append(
                "the graph is not a set of sequences that read themselves within one window"
            )
        elif request.batch * (len(plan.ends) - 1) > _MOST:
            reasons.append(f"varlen_attn takes at most {_MOST:,} sequences")
    return reasons


def varlen_work(graph: AttentionGraph) -> float:
    """The cost in pairs."""
    return graph.num_edges + 2.0 * _BEYOND * graph.num_targets


@lru_cache(None)
def _offered() -> bool:
    try:
        return {"window_size", "scale"} <= inspect.signature(_varlen_attn()).parameters.keys()
    except ImportError:
        return False


def _varlen_attn() -> Any:
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn


def varlen_run(
    graph: AttentionGraph, inputs: Inputs, definition: Callable[..., tuple[Tensor, ...]]
) -> Outputs:
    """Attention on a graph; ``definition`` is the same in plain operations."""
    query, key, value = (flat_batch(x) for x in (inputs.query, inputs.key, inputs.value))
    plan = sequences(graph, query.device)
    attend = _varlen_attn()
    assert plan is not None
    batch, nodes = query.shape[:2]
    ends = plan.ends
    shape = (*inputs.query.shape[:-1], value.shape[-1])
    # a compiled program has the size of the batch only here
    if not 0 < batch * (len(ends) - 1) <= _MOST or batch * nodes >= 1 << 31:
        return Outputs(definition(query, key, value)[0].reshape(shape))
    if batch != 1:
        first = torch.arange(batch, dtype=torch.int32, device=ends.device).unsqueeze(1) * nodes
        ends = torch.cat(((ends[:-1] + first).flatten(), ends.new_full((1,), batch * nodes)))

    def run(query: Tensor, key: Tensor, value: Tensor) -> Pair:
        query, scale = above_zero(query, inputs.scale)
        rows = []
        for x in (query, key, value):
            row = x.reshape(batch * nodes, *x.shape[2:])
            if not _is_aligned(row):
                row = row.clone(memory_format=torch.contiguous_format)
            rows.append(row)
        window = (plan.before, plan.after)
        output = attend(
            *rows, ends, ends, plan.longest, plan.longest, scale=scale, window_size=window
        )
        return output.view_as(query), query.new_empty(0, 0, 0)

    output, _ = twice_differentiable(run, definition, query, key, value, contiguous=True)
    return Outputs(output.reshape(shape))


def _is_aligned(x: Tensor) -> bool:
    """True if rows are contiguous and start at multiples of 16 bytes, as the kernels require.

    Compiled code cannot test the address of a tensor, and copies.
    """
    if torch.compiler.is_compiling():
        return False
    *strides, last = x.stride()
    return last == 1 and all(number % 8 == 0 for number in (*strides, x.storage_offset()))
