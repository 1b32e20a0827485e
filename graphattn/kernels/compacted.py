"""Attention on tiles with compacted columns as torch operators, with their derivatives.

Shapes, for one flattened batch axis: query (B, T, H, D), key (B, S, H_kv, D), value (B, S, H_kv,
D_v), of one float dtype; lse is float32 for halves. Tiles of targets: ``rows``, ``ptr``,
``column`` and ``bits`` of :class:`graphattn.plans.compacted.Compacted`; tiles of sources, wanted by
the backward alone: ``source_rows``, ``source_ptr``, ``target`` and ``source_bits``.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .again import gradients_of_definition
from .arrays import dtype_of_sums
from .edge_softmax import edge_softmax, scatter_sum
from .modes import are_batched, on_gpu

_OPERANDS = """Tensor query, Tensor key, Tensor value, int rows, Tensor ptr, Tensor column, Tensor bits,
    int source_rows, Tensor? source_ptr, Tensor? target, Tensor? source_bits, float scale, float softcap"""


class Call(NamedTuple):
    """The operands that the operator and its backward share, in the order of their schemas."""

    query: Tensor
    key: Tensor
    value: Tensor
    rows: int
    ptr: Tensor
    column: Tensor
    bits: Tensor
    source_rows: int
    source_ptr: Tensor | None
    target: Tensor | None
    source_bits: Tensor | None
    scale: float
    softcap: float

    @property
    def sizes(self) -> tuple[int, int, int]:
        """B, T, H."""
        B, T, H, _ = self.query.shape
        return B, T, H

    @property
    def wide(self) -> torch.dtype:
        """The dtype of sums."""
        return dtype_of_sums(self.query)


def ends(rows: int, ptr: Tensor, column: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
    """The row and the column of every set bit, int64 (E,), tile by tile and column by column."""
    bit = torch.arange(rows, dtype=bits.dtype, device=bits.device)
    place, within = torch.nonzero((bits[:, None] >> bit) & 1, as_tuple=True)
    tile = torch.repeat_interleave(ptr.diff())
    return tile[place] * rows + within, column.long()[place]


class _Edges(NamedTuple):
    """The edges of all tiles, with what they read; scores (B, E, H) and their slopes."""

    target: Tensor
    source: Tensor
    query: Tensor  # (B, E, H, D)
    key: Tensor
    value: Tensor
    score: Tensor
    slope: Tensor | float

    @classmethod
    def of(cls, call: Call) -> "_Edges":
        """Of the tiles of targets."""
        target, source = ends(call.rows, call.ptr, call.column, call.bits)
        group = call.query.shape[2] // max(1, call.key.shape[2])
        query = call.query[:, target].to(call.wide)
        key, value = (
            x[:, source].to(call.wide).repeat_interleave(group, 2) for x in (call.key, call.value)
        )
        score = (query * key).sum(-1) * call.scale
        if call.softcap <= 0:
            return cls(target, source, query, key, value, score, 1.0)
        share = torch.tanh(score / call.softcap)
        return cls(target, source, query, key, value, call.softcap * share, 1 - share * share)


def plain(*arguments: Any) -> tuple[Tensor, Tensor]:
    """The definition, edge by edge in plain operations: differentiable any number of times."""
    call = Call(*arguments)
    edges = _Edges.of(call)
    _, T, _ = call.sizes
    weight, lse = edge_softmax(edges.score, edges.target, T)
    output = scatter_sum(weight.unsqueeze(-1) * edges.value, edges.target, T, 1)
    return output.to(call.query.dtype), lse


compacted_attention = torch.library.custom_op(
    "graphattn::compacted_attention",
    plain,
    mutates_args=(),
    device_types="cpu",
    schema=f"({_OPERANDS}) -> (Tensor, Tensor)",
)


@torch.library.custom_op(
    "graphattn::compacted_attention_backward",
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"({_OPERANDS}, Tensor output, Tensor lse, Tensor grad_output, Tensor? grad_lse) "
        "-> (Tensor, Tensor, Tensor)"
    ),
)
def compacted_attention_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, edge by edge: a score's is ``p (<go, v> - delta)``."""
    *operands, _, lse, grad_output, grad_lse = arguments
    call = Call(*operands)
    edges = _Edges.of(call)
    _, T, H = call.sizes
    _, S, groups, _ = call.key.shape
    outer = grad_output[:, edges.target].to(call.wide)
    weight = torch.exp(edges.score - lse[:, edges.target])
    grad = (outer * edges.value).sum(-1)
    delta = scatter_sum(weight * grad, edges.target, T, 1)
    if grad_lse is not None:
        delta = delta - grad_lse
    grad = (weight * (grad - delta[:, edges.target]) * edges.slope * call.scale).unsqueeze(-1)
    of_query = scatter_sum(grad * edges.key, edges.target, T, 1)
    of_sources = (
        scatter_sum(x, edges.source, S, 1).unflatten(2, (groups, H // max(1, groups))).sum(3)
        for x in (grad * edges.query, weight.unsqueeze(-1) * outer)
    )
    query, key, value = (x.to(call.query.dtype) for x in (of_query, *of_sources))
    return query, key, value


on_gpu(compacted_attention, "compacted_triton", "forward")
on_gpu(compacted_attention_backward, "compacted_triton", "backward")


@compacted_attention.register_fake
def _(*arguments):
    call = Call(*arguments)
    output = call.query.new_empty(*call.sizes, call.value.shape[-1])
    return output, call.query.new_empty(call.sizes, dtype=call.wide)


@compacted_attention_backward.register_fake
def _(*arguments):
    call = Call(*arguments[: len(Call._fields)])
    nodes = (call.query, call.key, call.value)
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in nodes)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    call = Call(*inputs)
    tables = (call.ptr, call.column, call.bits, call.source_ptr, call.target, call.source_bits)
    ctx.save_for_backward(call.query, call.key, call.value, *tables, *output)
    ctx.numbers = call.rows, call.source_rows, call.scale, call.softcap
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    *nodes, ptr, column, bits, source_ptr, target, source_bits, output, lse = ctx.saved_tensors
    rows, source_rows, scale, softcap = ctx.numbers
    tables = (rows, ptr, column, bits, source_rows, source_ptr, target, source_bits)
    rest = (*tables, scale, softcap)
    absent = [None] * len(rest)
    # a second derivative, or vmap: the same in plain operations
    if torch.is_grad_enabled() or are_batched(*grads):
        return *gradients_of_definition(plain, nodes, rest, grads), *absent
    grad_output, grad_lse = grads
    if grad_output is None:
        grad_output = torch.zeros_like(output)
    found = compacted_attention_backward(*nodes, *rest, output, lse, grad_output, grad_lse)
    return *found, *absent


compacted_attention.register_autograd(_backward, setup_context=_keep)
