"""The edge kernels as torch operators: tensors in, tensors out, with their derivatives.

Shapes, for one flattened batch axis: query (B, T, H, D), key (B, S, H_kv, D), value (B, S, H_kv,
D_v), of one float dtype; sums, weights and whatever is not of nodes are float32 for halves. Edges
by target: ``ptr`` int64 (T + 1,), ``index`` and ``edge`` (E,), row ``r`` for target ``order[r]``
(T,). Edges by source, wanted by the backward alone: ``source_ptr`` int64 (S + 1,), ``target`` and
``place`` (E,), ``source_order`` (S,). In the caller's order: ``bias`` (1 or B, E, 1 or H), and edge
features ``attr`` (1 or B, E, F), whose product with ``attr_query`` (B, T, H, F) joins that of query
and key.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .again import gradients_of_definition
from .arrays import SMALLEST, array, empty, narrow, nodes, results, widest, width
from .edge_call import OPERANDS, Call, shape_if
from .edge_softmax import edge_softmax, scatter_sum
from .modes import are_batched, nothing_watches, on_gpu
from .threads import chunks, share

_OPERANDS = """Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? attr, Tensor? attr_query, Tensor ptr,
    Tensor index, Tensor edge, Tensor order"""
_OPTIONS = "float scale, float softcap, float dropout_p, Tensor? seed"

#: Rows of nodes as :func:`graphattn.kernels.arrays.nodes` gives them.
Nodes = tuple[np.ndarray, int, int, int]


class _Rows(NamedTuple):
    """Edges by target, or by source: the nodes at their other ends, and their places elsewhere."""

    ptr: np.ndarray
    other: np.ndarray
    edge: np.ndarray
    order: np.ndarray

    @classmethod
    def of(cls, *layout: Any) -> "_Rows":
        """The arrays of tensors."""
        return cls(*(x.numpy() for x in layout))


class _Widths(NamedTuple):
    """The padded widths of keys and of values; heads, and the number that share a key."""

    key: Any
    value: Any
    heads: tuple[int, int]

    @classmethod
    def of(cls, call: Call, rows: _Rows) -> "_Widths":
        """For indices of the dtype of these rows."""
        H = call.query.shape[2]
        return cls(
            width(call.query, rows.other, rows.edge),
            width(call.value, rows.other, rows.edge),
            (H, H // max(1, call.key.shape[2])),
        )


class _Operands(NamedTuple):
    """Arrays that the passes over targets read: nodes of their own dtype, all else of sums."""

    query: Nodes
    key: Nodes
    value: Nodes
    bias: np.ndarray
    attr: np.ndarray
    attr_query: np.ndarray

    @classmethod
    def of(cls, call: Call) -> "_Operands":
        """Copies only where a kernel cannot read a tensor where it lies."""
        wide = call.wide
        return cls(
            nodes(call.query),
            nodes(call.key),
            nodes(call.value),
            array(call.bias, wide, 3),
            array(call.attr, wide, 3),
            array(call.attr_query, wide, 4),
        )

    def for_kernels(self, call: Call, rows: _Rows) -> tuple[Any, ...]:
        """What both kernels over targets take first, in their order."""
        return (
            rows.order,
            self.query,
            self.key,
            self.value,
            self.attr,
            self.attr_query,
            self.bias,
            rows.ptr,
            rows.other,
            rows.edge,
            (call.scale, call.softcap, call.dropout_p),
            _word(call.seed),
        )


def _word(seed: Tensor | None) -> np.uint64:
    if seed is None:
        return np.uint64(0)
    return np.uint64(int(seed))


def _workspace(widths: _Widths, rows: _Rows, dtype: np.dtype) -> tuple[Any, ...]:
    """Scratch arrays of one thread for a pass over targets."""
    from . import edges_numba

    sizes = (len(rows.other), widest(rows.ptr), len(rows.ptr) - 1)
    return edges_numba.workspace(*widths, *sizes, dtype, rows.other.dtype)


def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The outputs of ``edge_attention``.

    They are the output (B, T, H, D_v); lse (B, T, H) and weights before dropout (B, E, H), empty
    unless requested; the weighted sum of edge features (B, T, H, F); and the weights by place for
    the backward (empty if there is none, or if it recomputes them).
    """
    from . import edges_numba

    call = Call(*arguments[:OPERANDS])
    weights, lse = arguments[OPERANDS:]
    B, T, E, H = call.sizes
    wide = call.wide
    new = call.query.new_empty
    output = results(call.query, B, T, H, call.value.shape[-1])
    levels = new(shape_if(lse, B, T, H), dtype=wide)
    alpha = new(shape_if(weights, B, E, H), dtype=wide)
    kept = empty(wide, *shape_if(call.keeps_weights, B, E, H))
    attr_output = new(call.shape_of_feature_sums, dtype=wide)
    rows = _Rows.of(call.ptr, call.source, call.edge, call.order)
    widths = _Widths.of(call, rows)
    operands = _Operands.of(call).for_kernels(call, rows)
    levels_array = levels.numpy()
    of_edges = (alpha.numpy(), kept.flatten().numpy(), attr_output.numpy())
    written = (nodes(output), levels_array, *of_edges)

    def run(lo: int, hi: int, *space: Any) -> None:
        for batch in range(B):
            edges_numba.forward(*widths, lo, hi, batch, *operands, *written, space)

    if B * T * H:
        work = B * E * H * 8 * (widths.key.eights + widths.value.eights)
        space = partial(_workspace, widths, rows, levels_array.dtype)
        share(chunks(rows.ptr, work), work, run, space)
    return narrow(output, call.value), levels, alpha, attr_output, kept


edge_attention = torch.library.custom_op(
    "graphattn::edge_attention",
    _forward,
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"({_OPERANDS}, Tensor? source_ptr, Tensor? target, Tensor? place, Tensor? source_order, "
        f"{_OPTIONS}, bool weights, bool lse) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
)


_on_gpu = on_gpu(edge_attention, "edges_triton", "forward")


def _forward_where_it_is(*arguments: Any) -> tuple[Tensor, ...]:
    if arguments[0].is_cuda:
        return _on_gpu(*arguments)
    return _forward(*arguments)


@edge_attention.register_fake
def _(*arguments):
    call = Call(*arguments[:OPERANDS])
    weights, lse = arguments[OPERANDS:]
    B, T, E, H = call.sizes
    shapes = (
        shape_if(lse, B, T, H),
        shape_if(weights, B, E, H),
        call.shape_of_feature_sums,
        shape_if(call.keeps_weights, B, E, H),
    )
    new = call.query.new_empty
    output = new((B, T, H, call.value.shape[-1]))
    return output, *(new(shape, dtype=call.wide) for shape in shapes)


class _OutputGradients(NamedTuple):
    """Gradients of the outputs, as arrays; no entries for outputs that pass none."""

    output: Nodes
    lse: np.ndarray  # never empty if there is a target
    weights: np.ndarray
    attr_output: np.ndarray

    @classmethod
    def of(cls, call: Call, *grads: Tensor | None) -> "_OutputGradients":
        """The arrays of tensors."""
        output, lse, weights, attr_output = grads
        assert output is not None
        wide = call.wide
        if lse is None:
            lse = call.query.new_zeros(call.query.shape[:3], dtype=wide)
        return cls(
            nodes(output), array(lse, wide, 3), array(weights, wide, 3), array(attr_output, wide, 4)
        )


class _Gradients(NamedTuple):
    """Memory for the gradients of the operands; nodes in their padded width."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor
    attr: Tensor
    attr_query: Tensor

    @classmethod
    def of(cls, call: Call) -> "_Gradients":
        """Uninitialised memory."""
        B, _, E, H = call.sizes
        wide = call.wide
        new = call.query.new_empty
        return cls(
            results(call.query, *call.query.shape),
            results(call.key, *call.key.shape),
            results(call.value, *call.value.shape),
            new(shape_if(call.bias is not None, B, E, H), dtype=wide),
            new(call.shape_of_feature_gradients, dtype=wide),
            new(call.shape_of_feature_sums, dtype=wide),
        )

    def narrowed(self, call: Call) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The gradients in the widths of the operands."""
        return (
            narrow(self.query, call.query),
            narrow(self.key, call.key),
            narrow(self.value, call.value),
            self.bias,
            self.attr,
            self.attr_query,
        )


class _EdgeMemory(NamedTuple):
    """Owner of the numbers (B, E, H) by place that pass between targets and sources.

    The pass over targets writes ``products``, the gradients of the products of query and key, and
    ``new_weights``, if they have entries. The pass over sources reads ``products`` and ``weights``,
    both after dropout.
    """

    kept: Tensor  # weights of the forward before dropout; no entries if it kept none
    products: Tensor
    weights: Tensor
    new_weights: Tensor

    @classmethod
    def of(cls, call: Call, kept: Tensor, last: bool) -> "_EdgeMemory":
        """New memory, or that of the kept weights where the ``last`` backward may write to it.

        Each row of kept weights is read before its results are written. A bias may remove edges,
        which are known by both numbers; and small memory is not worth saving.
        """
        B, _, E, H = call.sizes
        wide = call.wide
        count = math.prod((B, E, H))
        kept = kept.flatten()
        reusable = last and call.bias is None and kept.nbytes >= SMALLEST
        if kept.numel() > 0 and call.dropout_p == 0:  # then they are the weights of the sums
            if reusable:
                products = kept
            else:
                products = empty(wide, count)
            return cls(kept, products, weights=kept, new_weights=empty(wide, 0))
        products = empty(wide, count)
        if reusable:
            return cls(kept, products, weights=kept, new_weights=kept)
        weights = empty(wide, count)
        return cls(kept, products, weights, new_weights=weights)

    @property
    def products_replace_weights(self) -> bool:
        """True if weights must be read before the pass over targets."""
        return self.products is self.weights


class _SourceSum(NamedTuple):
    """A sum over the edges out of each source: ``written[s] = sum weights[place] * nodes[t]``."""

    width: Any
    weights: np.ndarray
    nodes: Nodes
    written: Nodes


def _gradients(
    *arguments: Any, last: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the operands of ``edge_attention``.

    They are those of query, key and value, of every edge's score (B, E, H) in the caller's order
    (no entries without a bias), and of the edge features (B, E, F) and their queries.

    The ``last`` backward of a call may write to the kept weights.
    """
    call = Call(*arguments[:OPERANDS])
    kept, *outer = arguments[OPERANDS:]
    grads = _Gradients.of(call)
    B, T, _, H = call.sizes
    if B * T * H:
        memory = _EdgeMemory.of(call, kept, last)
        _backward_passes(call, memory, _OutputGradients.of(call, *outer), grads)
    else:
        for grad in (grads.key, grads.value, grads.attr):
            grad.zero_()
    return grads.narrowed(call)


def _backward_passes(
    call: Call, memory: _EdgeMemory, outer: _OutputGradients, grads: _Gradients
) -> None:
    """Write the gradients: a pass over targets, then the sums over sources of what it leaves."""
    from . import edges_numba

    B, _, E, H = call.sizes
    rows = _Rows.of(call.ptr, call.source, call.edge, call.order)
    source_rows = _Rows.of(call.source_ptr, call.target, call.place, call.source_order)
    widths = _Widths.of(call, source_rows)
    operands = _Operands.of(call)
    read = (*operands.for_kernels(call, rows), memory.kept.numpy(), outer.output)
    read += (outer.weights, outer.lse, outer.attr_output)
    of_edges = (grads.bias, grads.attr, grads.attr_query, memory.products, memory.new_weights)
    written = (nodes(grads.query), *(x.numpy() for x in of_edges))
    dtype = outer.lse.dtype
    work = 16 * B * E * H * max(widths.key.eights, widths.value.eights)

    def to_targets(lo: int, hi: int, *space: Any) -> None:
        for batch in range(B):
            edges_numba.backward_targets(*widths, lo, hi, batch, *read, *written, space)

    def to_sources(sums: Sequence[_SourceSum], removed: np.ndarray) -> None:
        ptr, target, place, order = source_rows

        def run(lo: int, hi: int, *space: Any) -> None:
            edges = (ptr, lo, hi, order, target, place, removed, True)
            for batch in range(B):
                for one in sums:
                    head = (one.width, widths.heads, one.weights, batch, one.nodes)
                    edges_numba.edge_sums(*head, *edges, one.written, space)

        space = partial(edges_numba.row_space, *widths, widest(ptr), dtype, target.dtype)
        share(chunks(ptr, work), work, run, space)

    products = memory.products.numpy()
    weights = memory.weights.numpy()
    key_sum = _SourceSum(widths.key, products, operands.query, nodes(grads.key))
    value_sum = _SourceSum(widths.value, weights, outer.output, nodes(grads.value))
    removed = array(None, torch.bool)
    last_sums = [key_sum, value_sum]
    if memory.products_replace_weights:
        to_sources([value_sum], removed)
        last_sums = [key_sum]
    share(chunks(rows.ptr, work), work, to_targets, partial(_workspace, widths, rows, dtype))
    if call.bias is not None:  # a removed edge passes not even a NaN
        removed = ((products == 0) & (weights == 0)).reshape(B, E, H)
    to_sources(last_sums, removed)


edge_attention_backward = torch.library.custom_op(
    "graphattn::edge_attention_backward",
    _gradients,
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"({_OPERANDS}, Tensor source_ptr, Tensor target, Tensor place, Tensor source_order, "
        f"{_OPTIONS}, Tensor kept, Tensor grad_output, Tensor? grad_lse, Tensor? grad_alpha, "
        "Tensor? grad_attr_output) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
)


_gradients_on_gpu = on_gpu(edge_attention_backward, "edges_triton", "backward")


def _gradients_where_they_are(*arguments: Any) -> tuple[Tensor, ...]:
    if arguments[0].is_cuda:
        return _gradients_on_gpu(*arguments)
    return _gradients(*arguments, last=not torch._C._autograd._get_current_graph_task_keep_graph())


@edge_attention_backward.register_fake
def _(*arguments):
    call = Call(*arguments[:OPERANDS])
    B, _, E, H = call.sizes
    grads = [
        torch.empty_like(x, memory_format=torch.contiguous_format)
        for x in (call.query, call.key, call.value)
    ]
    shapes = (
        shape_if(call.bias is not None, B, E, H),
        call.shape_of_feature_gradients,
        call.shape_of_feature_sums,
    )
    return *grads, *(call.query.new_empty(shape, dtype=call.wide) for shape in shapes)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:14], inputs[17], output[4])
    ctx.options = inputs[14:17]
    ctx.mark_non_differentiable(output[4])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    *operands, seed, kept = ctx.saved_tensors
    query, _, value, bias, attr, attr_query = operands[:6]
    options = (*ctx.options, seed)
    absent = [None] * 14
    # a second derivative, or vmap: the same in plain operations
    if torch.is_grad_enabled() or are_batched(*grads):
        rest = (*operands[6:10], *options)
        return *gradients_of_definition(plain, operands[:6], rest, grads), *absent
    grad_output, grad_lse, grad_alpha, grad_attr_output, _ = grads
    if grad_output is None:
        grad_output = query.new_zeros(*query.shape[:-1], value.shape[-1])
    if grad_attr_output is None and attr_query is not None:
        grad_attr_output = torch.zeros_like(attr_query)
    run: Any = edge_attention_backward
    if nothing_watches(query, grad_output):
        run = _gradients_where_they_are
    outer = (grad_output, grad_lse, grad_alpha, grad_attr_output)
    gq, gk, gv, gb, ga, gaq = run(*operands, *options, kept, *outer)
    if attr_query is None:
        gaq = None
    return gq, gk, gv, _summed_to(bias, gb), _summed_to(attr, ga), gaq, *absent


def _summed_to(operand: Tensor | None, grad: Tensor) -> Tensor | None:
    """The gradient of an operand that may have been broadcast."""
    if operand is None:
        return None
    return grad.sum_to_size(operand.shape)


edge_attention.register_autograd(_backward, setup_context=_save)


class EdgeAttention(torch.autograd.Function):
    """The operator as a plain autograd function."""

    forward = staticmethod(_forward_where_it_is)
    setup_context = staticmethod(_save)
    backward = staticmethod(_backward)


def attend(*arguments: Any, tracked: bool) -> tuple[Tensor, ...]:
    """``edge_attention``, without torch's dispatcher if no mode is active."""
    if not nothing_watches(*arguments[:6]):
        return edge_attention(*arguments)
    if tracked:
        return EdgeAttention.apply(*arguments)
    return _forward_where_it_is(*arguments)


def plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    attr: Tensor | None,
    attr_query: Tensor | None,
    ptr: Tensor,
    index: Tensor,
    edge: Tensor,
    order: Tensor,
    scale: float,
    softcap: float,
    dropout_p: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same in plain operations, edge by edge: slow, differentiable any number of times."""
    T, H = query.shape[1:3]
    source = index.long()
    edge = edge.long()
    target = torch.repeat_interleave(order.long(), ptr[1:] - ptr[:-1])
    group = H // max(1, key.shape[2])
    keys, values = (x[:, source].repeat_interleave(group, 2) for x in (key, value))
    absent = query.new_zeros((), dtype=torch.bool)
    if bias is not None:
        bias = bias[:, edge].expand(query.shape[0], -1, H)
        absent = bias == -torch.inf
        keys, values = (x.masked_fill(absent.unsqueeze(-1), 0.0) for x in (keys, values))
    score = (query[:, target] * keys).sum(-1)
    features = None
    if attr is not None and attr_query is not None:
        features = attr[:, edge]
        score = score + (attr_query[:, target] * features.unsqueeze(2)).sum(-1)
    score = score * scale
    if softcap > 0:
        score = softcap * torch.tanh(score / softcap)
    if bias is not None:
        score = (score + bias).masked_fill(absent, -torch.inf)
    by_place, lse = edge_softmax(score, target, T)
    weight = by_place * dropout_factors(by_place, edge, dropout_p, seed)
    output = scatter_sum(weight.unsqueeze(-1) * values, target, T, 1)
    alpha = torch.empty_like(by_place).index_copy(1, edge, by_place)
    if features is None:
        return output, lse, alpha, query.new_empty(0, 0, 0, 0)
    feature_sums = scatter_sum(weight.unsqueeze(-1) * features.unsqueeze(2), target, T, 1)
    return output, lse, alpha, feature_sums


def dropout_factors(
    like: Tensor, edge: Tensor, dropout_p: float, seed: Tensor | None
) -> Tensor | float:
    """Dropout factors of the kernels for weights ``like`` (B, E, H).

    They are splitmix64 of ``edge``, in torch's integers.
    """
    if dropout_p <= 0:
        return 1.0
    # vmap(randomness="different")
    if seed is not None and torch._C._functorch.is_batchedtensor(seed):
        return F.dropout(torch.ones_like(like), dropout_p)
    batch, head = (torch.arange(like.shape[axis], device=like.device) for axis in (0, 2))
    x = batch[:, None, None] * _signed(0xD6E8FEB86659FD93)
    x = x + edge[:, None] * _signed(0x9E3779B97F4A7C15)
    x = x + (head + 1) * _signed(0xC2B2AE3D27D4EB4F)
    if seed is not None:
        x = x + int(seed)
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    uniform = _shifted(x ^ _shifted(x, 31), 11).double() / 2**53
    if dropout_p < 1:
        kept = 1.0 / (1.0 - dropout_p)
    else:
        kept = 0.0
    return ((uniform >= dropout_p).double() * kept).to(like.dtype)


def _signed(word: int) -> int:
    """A word of 64 bits as torch's signed integer; products and sums wrap."""
    if word >> 63:
        return word - (1 << 64)
    return word


def _shifted(x: Tensor, bits: int) -> Tensor:
    """``x`` shifted to the right, filled with zeros."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
