"""Attention on tiles with compacted columns as torch operators, with their derivatives.

Shapes, for one flattened batch axis: query (B, T, H, D), key (B, S, H_kv, D), value (B, S, H_kv,
D_v), of one float dtype; lse is float32 for halves. Tiles of targets: ``rows``, ``ptr``,
``column`` and ``bits`` of :class:`graphattn.plans.compacted.Compacted`; tiles of sources, for the
backward alone: ``source_rows``, ``source_ptr``, ``target`` and ``source_bits``. A call with a bias
(1 or B, E, 1 or H) or dropout looks up the edge of each bit: ``start`` int64 (T + 1,) and ``edge``
(E,), the edges by target in the caller's order, and by source ``source_start`` and ``source_edge``.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...graph.modes import plain_operations_only
from ..arrays import dtype_of_sums
from ..modes import are_batched, nothing_watches, on_gpu
from ..plain.dropout import dropout_factors
from ..plain.second_derivatives import gradients_of_definition
from ..plain.sums import edge_softmax, scatter_sum

_OPERANDS = """Tensor query, Tensor key, Tensor value, Tensor? bias, int rows, Tensor ptr, Tensor column, Tensor bits,
    int source_rows, Tensor? source_ptr, Tensor? target, Tensor? source_bits,
    Tensor? start, Tensor? edge, Tensor? source_start, Tensor? source_edge,
    float scale, float softcap, float dropout_p, Tensor? seed"""


class TileCall(NamedTuple):
    """The operands that the operator and its backward share, in the order of their schemas."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    rows: int
    ptr: Tensor
    column: Tensor
    bits: Tensor
    source_rows: int
    source_ptr: Tensor | None
    target: Tensor | None
    source_bits: Tensor | None
    start: Tensor | None
    edge: Tensor | None
    source_start: Tensor | None
    source_edge: Tensor | None
    scale: float
    softcap: float
    dropout_p: float
    seed: Tensor | None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """B, T, H."""
        B, T, H, _ = self.query.shape
        return B, T, H

    @property
    def sum_dtype(self) -> torch.dtype:
        """The dtype of sums, lse and bias."""
        return dtype_of_sums(self.query)

    @property
    def shape_of_bias_gradients(self) -> tuple[int, ...]:
        """(B, E, H); no entries without a bias."""
        if self.bias is None:
            return (0, 0, 0)
        B, _, H = self.sizes
        return (B, self.bias.shape[1], H)


def ends(rows: int, ptr: Tensor, column: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
    """The row and the column of every set bit, int64 (E,), tile by tile and column by column."""
    bit = torch.arange(rows, dtype=bits.dtype, device=bits.device)
    place, within = torch.nonzero((bits[:, None] >> bit) & 1, as_tuple=True)
    tile = torch.repeat_interleave(ptr.diff())
    return tile[place] * rows + within, column.long()[place]


class _Edges(NamedTuple):
    """The edges of all tiles by target, with what they read; scores (B, E, H) and their slopes."""

    target: Tensor
    source: Tensor
    query: Tensor  # (B, E, H, D)
    key: Tensor
    value: Tensor
    score: Tensor
    slope: Tensor | float
    factors: Tensor | float  # of dropout

    @classmethod
    def of(cls, call: TileCall) -> "_Edges":
        """The edges of the tiles of targets."""
        target, source = ends(call.rows, call.ptr, call.column, call.bits)
        order = (target * max(1, call.key.shape[1]) + source).argsort()
        target = target[order]
        source = source[order]
        group = call.query.shape[2] // max(1, call.key.shape[2])
        query = call.query[:, target].to(call.sum_dtype)
        key, value = (
            x[:, source].to(call.sum_dtype).repeat_interleave(group, 2)
            for x in (call.key, call.value)
        )
        score = (query * key).sum(-1) * call.scale
        slope: Tensor | float = 1.0
        if call.softcap > 0:
            share = torch.tanh(score / call.softcap)
            score = call.softcap * share
            slope = 1 - share * share
        factors: Tensor | float = 1.0
        if call.edge is not None:
            factors = dropout_factors(score, call.edge.long(), call.dropout_p, call.seed)
        if call.bias is not None:
            assert call.edge is not None
            score = score + call.bias[:, call.edge.long()]
        return cls(target, source, query, key, value, score, slope, factors)


def plain(*arguments: Any) -> tuple[Tensor, Tensor]:
    """The definition, edge by edge in plain operations: differentiable any number of times."""
    call = TileCall(*arguments)
    edges = _Edges.of(call)
    _, T, _ = call.sizes
    weight, lse = edge_softmax(edges.score, edges.target, T)
    weight = weight * edges.factors
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
        "-> (Tensor, Tensor, Tensor, Tensor)"
    ),
)
def compacted_attention_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of query, key, value and bias, edge by edge.

    A score's is ``p (<go, v> - delta)``.
    """
    *operands, _, lse, grad_output, grad_lse = arguments
    call = TileCall(*operands)
    edges = _Edges.of(call)
    _, T, H = call.sizes
    _, S, groups, _ = call.key.shape
    outer = grad_output[:, edges.target].to(call.sum_dtype)
    removed = edges.score == -torch.inf
    weight = torch.exp(edges.score - lse[:, edges.target]).masked_fill(removed, 0.0)
    grad = (outer * edges.value).sum(-1) * edges.factors
    delta = scatter_sum(weight * grad, edges.target, T, 1)
    if grad_lse is not None:
        delta = delta - grad_lse
    grad = (weight * (grad - delta[:, edges.target])).masked_fill(removed, 0.0)
    of_bias = grad.new_empty(call.shape_of_bias_gradients)
    if call.bias is not None:
        assert call.edge is not None
        of_bias = of_bias.index_copy(1, call.edge.long(), grad)
    grad = (grad * edges.slope * call.scale).unsqueeze(-1)
    of_query = scatter_sum(grad * edges.key, edges.target, T, 1)
    weight = (weight * edges.factors).unsqueeze(-1)
    of_sources = (
        scatter_sum(x, edges.source, S, 1).unflatten(2, (groups, H // max(1, groups))).sum(3)
        for x in (grad * edges.query, weight * outer)
    )
    query, key, value = (x.to(call.query.dtype) for x in (of_query, *of_sources))
    return query, key, value, of_bias


_forward_on_gpu = on_gpu(compacted_attention, "tiles.gpu", "forward")
_backward_on_gpu = on_gpu(compacted_attention_backward, "tiles.gpu", "backward")


@compacted_attention.register_fake
def _(*arguments):
    call = TileCall(*arguments)
    output = call.query.new_empty(*call.sizes, call.value.shape[-1])
    return output, call.query.new_empty(call.sizes, dtype=call.sum_dtype)


@compacted_attention_backward.register_fake
def _(*arguments):
    call = TileCall(*arguments[: len(TileCall._fields)])
    grads = (
        torch.empty_like(x, memory_format=torch.contiguous_format)
        for x in (call.query, call.key, call.value)
    )
    return *grads, call.query.new_empty(call.shape_of_bias_gradients, dtype=call.sum_dtype)


_NUMBERS = ("rows", "source_rows", "scale", "softcap", "dropout_p")
_TENSORS = tuple(name for name in TileCall._fields if name not in _NUMBERS)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    call = TileCall(*inputs)
    ctx.save_for_backward(*(getattr(call, name) for name in _TENSORS), *output)
    ctx.numbers = {name: getattr(call, name) for name in _NUMBERS}
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    *tensors, output, lse = ctx.saved_tensors
    call = TileCall(**dict(zip(_TENSORS, tensors, strict=True)), **ctx.numbers)
    nodes = call[:4]
    rest = call[4:]
    absent = [None] * len(rest)
    # a second derivative, or vmap: the same in plain operations
    if torch.is_grad_enabled() or are_batched(*grads):
        return *gradients_of_definition(plain, nodes, rest, grads), *absent
    grad_output, grad_lse = grads
    if grad_output is None:
        grad_output = torch.zeros_like(output)
    run: Any = compacted_attention_backward
    if _is_direct(call.query, grad_output):
        run = _backward_on_gpu
    *of_nodes, of_bias = run(*call, output, lse, grad_output, grad_lse)
    if call.bias is None:
        of_bias = None
    else:
        of_bias = of_bias.sum_to_size(call.bias.shape)
    return *of_nodes, of_bias, *absent


compacted_attention.register_autograd(_backward, setup_context=_keep)


class _Attention(torch.autograd.Function):
    """The operator on a GPU as a plain autograd function."""

    forward = staticmethod(_forward_on_gpu)
    setup_context = staticmethod(_keep)
    backward = staticmethod(_backward)


def _is_direct(query: Tensor, *others: Tensor | None) -> bool:
    """True if a call on a GPU may go without torch's dispatcher."""
    return query.is_cuda and nothing_watches(query, *others)


def attend(*arguments: Any, tracked: bool) -> tuple[Tensor, Tensor]:
    """``compacted_attention``; on a GPU without torch's dispatcher if no mode is active."""
    nodes = arguments[:4]
    outputs: tuple[Tensor, Tensor]
    if plain_operations_only():
        outputs = plain(*arguments)
    elif not _is_direct(*nodes):
        outputs = compacted_attention(*arguments)
    elif tracked:
        outputs = _Attention.apply(*arguments)
    else:
        outputs = _forward_on_gpu(*arguments)
    return outputs
