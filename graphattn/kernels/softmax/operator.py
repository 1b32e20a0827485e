"""The edge kernels as torch operators: tensors in, tensors out, with their derivatives.

Shapes, for one flattened batch axis: query (B, T, H, D), key (B, S, H_kv, D), value (B, S, H_kv,
D_v), of one float dtype; sums, weights and whatever is not of nodes are float32 for halves. Edges
by target: ``ptr`` int64 (T + 1,), ``index`` and ``edge`` (E,), row ``r`` for target ``order[r]``
(T,). Edges by source, for the backward alone: ``source_ptr`` int64 (S + 1,), ``target`` and
``place`` (E,), ``source_order`` (S,). In the caller's order: ``bias`` (1 or B, E, 1 or H), and edge
features ``attr`` (1 or B, E, F), which ``attr_weight`` (H, D, F) projects; they are added to keys,
values or both, as ``edge_to`` says (:mod:`.softmax.features`).
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..arrays import SMALLEST, Kinds, NodeRows, array, dtype_of_sums, empty, narrow, nodes, results
from ..llvm.edge_rows import EdgeRows, memory
from ..llvm.threads import chunks, share
from ..modes import are_batched, nothing_watches, on_gpu
from ..plain.dropout import dropout_factors, dropout_of
from ..plain.second_derivatives import gradients_of_definition
from ..plain.sums import edge_softmax, scatter_sum
from . import features as edge_features
from .call import OPERANDS, SoftmaxCall, shape_if

_OPERANDS = """Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? attr, Tensor? attr_weight, Tensor ptr,
    Tensor index, Tensor edge, Tensor order"""
_OPTIONS = "float scale, float softcap, float dropout_p, str edge_to, Tensor? seed"

SPACE = 1 << 18  # numbers of a block of rows, of all heads


class _Pass(NamedTuple):
    """Operands common to the passes over the rows of targets, or of sources."""

    call: SoftmaxCall
    rows: EdgeRows
    key: Kinds
    value: Kinds

    @classmethod
    def of(cls, call: SoftmaxCall, *layout: Any) -> "_Pass":
        """The pass over a layout by target, or by source."""
        rows = EdgeRows.of(*layout)
        return cls(call, rows, rows.kinds(call.query), rows.kinds(call.value))

    def operands(self, summed: Kinds) -> dict[str, Any]:
        """Operands of every pass that sums rows of nodes of some kind."""
        B, _, _, H = self.call.sizes
        group = H // max(1, self.call.key.shape[2])
        return self.rows.operands_of_sums(B, H, group, summed)

    @property
    def places(self) -> int:
        """Places of a buffer for a head."""
        _, T, E, H = self.call.sizes
        return max(self.rows.widest + 8, min(SPACE // H, E + 8 * T) & -8)

    def of_targets(self, queries: Tensor) -> dict[str, Any]:
        """Operands of both passes over targets; ``queries`` (B, T, H, F) are of features."""
        from ..llvm.native import address_of
        from ..llvm.node_rows import products

        call = self.call
        dtype = call.sum_dtype
        attr = array(call.attr, dtype)
        bias = array(call.bias, dtype)
        strides = _strides(bias)
        features = 0
        if attr is not None:
            features = attr.shape[2]
        dropped, kept_factor = dropout_of(call.dropout_p)
        seed = 0
        if call.seed is not None:
            seed = int(call.seed) % (1 << 64)  # without a sign
        return {
            "size": self.places,
            "query": nodes(call.query),
            "key": nodes(call.key),
            "value": nodes(call.value),
            "key_bytes": self.key.row_bytes,
            "value_bytes": self.value.row_bytes,
            "features": features,
            "attr": attr,
            "attr_batch": _strides(attr)[0],
            "attr_query": queries,
            "bias": bias,
            "bias_batch": strides[0],
            "bias_edge": strides[1],
            "bias_head": strides[2],
            "scale": call.scale,
            "softcap": call.softcap,
            "dropped": dropped,
            "kept_factor": kept_factor,
            "seed": seed,
            "key_products": address_of(products, self.key),
            "value_products": address_of(products, self.value),
        }

    def space(self, buffers: bool) -> tuple[Tensor]:
        """Memory of one thread for a pass, over targets if it needs ``buffers``."""
        H = self.call.sizes[3]
        width = max(self.key.width, self.value.width)
        size = self.rows.memory_of_sums(H, width, self.key)
        if buffers:
            size += self.places * H * (3 * self.key.sums.itemsize + 1)
        return memory(size)


def _strides(x: Tensor | None) -> tuple[int, int, int]:
    """Strides of a contiguous tensor of three axes, 0 along those of one entry."""
    if x is None:
        return 0, 0, 0
    batch, edge, head = (
        0 if size == 1 else stride for size, stride in zip(x.shape, x.stride(), strict=True)
    )
    return batch, edge, head


def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The outputs of ``edge_attention``.

    They are the output (B, T, H, D_v); lse (B, T, H) and weights before dropout (B, E, H), empty
    unless requested; and for the backward the weights by place (empty if there is none, or if it
    recomputes them), and the queries of edge features and their weighted sums (B, T, H, F).
    """
    from ..llvm.native import native
    from .cpu import Forward

    call = SoftmaxCall(*arguments[:OPERANDS])
    weights, lse = arguments[OPERANDS:]
    B, T, E, H = call.sizes
    dtype = call.sum_dtype
    new = call.query.new_empty
    output = results(call.query, B, T, H, call.value.shape[-1])
    levels = new(shape_if(lse, B, T, H), dtype=dtype)
    alpha = new(shape_if(weights, B, E, H), dtype=dtype)
    kept_weights = empty(dtype, *shape_if(call.keeps_weights, B, E, H))
    queries = edge_features.queries_of(call)
    sums = torch.empty_like(queries)
    if B * T * H:
        targets = _Pass.of(call, call.ptr, call.source, call.edge, call.order)
        kernel = native(Forward, targets.key.of_kernel).bind(
            **targets.operands(targets.value),
            **targets.of_targets(queries),
            out=nodes(output),
            lse=levels,
            alpha=alpha,
            kept_weights=kept_weights,
            attr_out=sums,
        )
        work = B * E * H * (targets.key.width + targets.value.width)
        share(chunks(call.ptr, work), work, kernel.run, partial(targets.space, True))
    output = narrow(output, call.value)
    edge_features.add_projected(call, sums, output)
    return output, levels, alpha, kept_weights, *edge_features.joined(call, queries, sums)


edge_attention = torch.library.custom_op(
    "graphattn::edge_attention",
    _forward,
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"({_OPERANDS}, Tensor? source_ptr, Tensor? target, Tensor? place, Tensor? source_order, "
        f"{_OPTIONS}, bool weights, bool lse) -> "
        "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
)


_on_gpu = on_gpu(edge_attention, "softmax.gpu", "forward")


def _forward_where_it_is(*arguments: Any) -> tuple[Tensor, ...]:
    if arguments[0].is_cuda:
        return _on_gpu(*arguments)
    return _forward(*arguments)


@edge_attention.register_fake
def _(*arguments):
    call = SoftmaxCall(*arguments[:OPERANDS])
    weights, lse = arguments[OPERANDS:]
    B, T, E, H = call.sizes
    shapes = (
        shape_if(lse, B, T, H),
        shape_if(weights, B, E, H),
        shape_if(call.keeps_weights, B, E, H),
        call.shape_of_features("key"),
        call.shape_of_features("value"),
    )
    new = call.query.new_empty
    output = new((B, T, H, call.value.shape[-1]))
    return output, *(new(shape, dtype=call.sum_dtype) for shape in shapes)


class _OutputGradients(NamedTuple):
    """Gradients of the outputs; None for outputs that pass none."""

    output: NodeRows
    lse: Tensor | None
    weights: Tensor | None
    sums: Tensor  # of edge features

    @classmethod
    def of(cls, call: SoftmaxCall, output: Tensor, *grads: Tensor | None) -> "_OutputGradients":
        """The operands of kernels."""
        lse, weights = (array(grad, call.sum_dtype) for grad in grads)
        return cls(nodes(output), lse, weights, edge_features.gradients_of_sums(call, output))


class _Gradients(NamedTuple):
    """Memory for the gradients of the operands; nodes in their padded width."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor
    attr: Tensor
    queries: Tensor  # of edge features

    @classmethod
    def of(cls, call: SoftmaxCall, queries: Tensor) -> "_Gradients":
        """Uninitialised memory."""
        B, _, E, H = call.sizes
        dtype = call.sum_dtype
        new = call.query.new_empty
        return cls(
            results(call.query, *call.query.shape),
            results(call.key, *call.key.shape),
            results(call.value, *call.value.shape),
            new(shape_if(call.bias is not None, B, E, H), dtype=dtype),
            new(shape_if(call.attr is not None, B, E, queries.shape[3]), dtype=dtype),
            torch.empty_like(queries),
        )

    def narrowed(self, call: SoftmaxCall) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of nodes in the widths of the operands."""
        return (
            narrow(self.query, call.query),
            narrow(self.key, call.key),
            narrow(self.value, call.value),
        )


class _EdgeMemory(NamedTuple):
    """Owner of the numbers (B, E, H) by place that pass between targets and sources.

    The pass over targets writes ``products``, the gradients of the products of query and key, and
    ``new_weights``, if they have entries. The pass over sources reads ``products`` and ``weights``,
    both after dropout.
    """

    kept_weights: Tensor  # weights of the forward before dropout; no entries if it kept none
    products: Tensor
    weights: Tensor
    new_weights: Tensor

    @classmethod
    def of(cls, call: SoftmaxCall, kept_weights: Tensor, last: bool) -> "_EdgeMemory":
        """New memory, or that of the kept weights where the ``last`` backward may write to it.

        Each row of kept weights is read before its results are written. A bias may remove edges,
        which are known by both numbers; and small memory is not worth saving.
        """
        B, _, E, H = call.sizes
        dtype = call.sum_dtype
        count = math.prod((B, E, H))
        kept_weights = kept_weights.flatten()
        reusable = last and call.bias is None and kept_weights.nbytes >= SMALLEST
        # without dropout kept weights are the weights of the sums
        if kept_weights.numel() > 0 and call.dropout_p == 0:
            if reusable:
                products = kept_weights
            else:
                products = empty(dtype, count)
            return cls(kept_weights, products, weights=kept_weights, new_weights=empty(dtype, 0))
        products = empty(dtype, count)
        if reusable:
            return cls(kept_weights, products, weights=kept_weights, new_weights=kept_weights)
        weights = empty(dtype, count)
        return cls(kept_weights, products, weights, new_weights=weights)

    @property
    def products_replace_weights(self) -> bool:
        """True if weights must be read before the pass over targets."""
        return self.products is self.weights


class _SourceSum(NamedTuple):
    """A sum over the edges out of each source: ``out[s] = sum weights[place] * nodes[t]``."""

    kinds: Kinds
    weights: Tensor
    nodes: NodeRows
    out: Tensor


def _gradients(
    *arguments: Any, last: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the operands of ``edge_attention``.

    They are those of query, key and value, of every edge's score (B, E, H) in the caller's order
    (no entries without a bias), and of the edge features (B, E, F) and their projection.

    The ``last`` backward of a call may write to the kept weights.
    """
    call = SoftmaxCall(*arguments[:OPERANDS])
    kept_weights, queries, sums, grad_output, *outer = arguments[OPERANDS:]
    if not call.adds_features_to("key"):
        queries = edge_features.queries_of(call)
    grads = _Gradients.of(call, queries)
    B, T, E, H = call.sizes
    if B * T * H:
        numbers = _EdgeMemory.of(call, kept_weights, last)
        output_grads = _OutputGradients.of(call, grad_output, *outer)
        _backward_passes(call, queries, numbers, output_grads, grads)
    else:
        for grad in (grads.key, grads.value, grads.attr):
            grad.zero_()
    of_query, of_key, of_value = grads.narrowed(call)
    of_weight = edge_features.gradients_of_projection(
        call, of_query, grads.queries, grad_output, sums
    )
    of_bias = grads.bias.to(call.dtype_of_gradient(call.bias, B, E, H))
    of_attr = grads.attr.to(call.dtype_of_gradient(call.attr, *grads.attr.shape))
    return of_query, of_key, of_value, of_bias, of_attr, of_weight


def _backward_passes(
    call: SoftmaxCall,
    queries: Tensor,
    numbers: _EdgeMemory,
    outer: _OutputGradients,
    grads: _Gradients,
) -> None:
    """Write the gradients: a pass over targets, then the sums over sources of what it leaves."""
    from ..llvm.native import address_of, native
    from ..llvm.node_rows import sum_over_groups
    from ..pairs.cpu import EdgeSums
    from .cpu import BackwardTargets

    B, _, E, H = call.sizes
    targets = _Pass.of(call, call.ptr, call.source, call.edge, call.order)
    sources = _Pass.of(call, call.source_ptr, call.target, call.place, call.source_order)
    operands = targets.of_targets(queries)
    work = 2 * B * E * H * max(targets.key.width, targets.value.width)
    kernel = native(BackwardTargets, targets.key.of_kernel).bind(
        **targets.operands(targets.key),
        **operands,
        kept_weights=numbers.kept_weights,
        grad_out=outer.output,
        grad_alpha=outer.weights,
        grad_lse=outer.lse,
        grad_attr_out=outer.sums,
        grad_query=nodes(grads.query),
        grad_bias=grads.bias,
        grad_attr=grads.attr,
        grad_attr_query=grads.queries,
        grad_products=numbers.products,
        new_weights=numbers.new_weights,
    )

    def to_sources(sums: Sequence[_SourceSum], removed: Tensor | None) -> None:
        kernels = [
            native(EdgeSums, term.kinds.of_kernel).bind(
                **sources.operands(term.kinds),
                weights=term.weights,
                nodes=term.nodes,
                removed=removed,
                removed_batch=E * H,
                over_groups=1,
                out=nodes(term.out),
                sum_far=address_of(sum_over_groups, term.kinds),
            )
            for term in sums
        ]

        def run(lo: int, hi: int, space: Tensor) -> None:
            for sum_kernel in kernels:
                sum_kernel.run(lo, hi, space)

        share(chunks(sources.rows.ptr, work), work, run, partial(sources.space, False))

    key_sum = _SourceSum(sources.key, numbers.products, operands["query"], grads.key)
    value_sum = _SourceSum(sources.value, numbers.weights, outer.output, grads.value)
    removed = None
    last_sums = [key_sum, value_sum]
    if numbers.products_replace_weights:
        to_sources([value_sum], removed)
        last_sums = [key_sum]
    share(chunks(targets.rows.ptr, work), work, kernel.run, partial(targets.space, True))
    if call.bias is not None:  # a removed edge passes not even a NaN
        removed = (numbers.products == 0) & (numbers.weights == 0)
    to_sources(last_sums, removed)


edge_attention_backward = torch.library.custom_op(
    "graphattn::edge_attention_backward",
    _gradients,
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"({_OPERANDS}, Tensor source_ptr, Tensor target, Tensor place, Tensor source_order, "
        f"{_OPTIONS}, Tensor kept, Tensor queries, Tensor sums, Tensor grad_output, "
        "Tensor? grad_lse, Tensor? grad_alpha) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
)


_gradients_on_gpu = on_gpu(edge_attention_backward, "softmax.gpu", "backward")


def _gradients_where_they_are(*arguments: Any) -> tuple[Tensor, ...]:
    if arguments[0].is_cuda:
        return _gradients_on_gpu(*arguments)
    return _gradients(*arguments, last=not torch._C._autograd._get_current_graph_task_keep_graph())


@edge_attention_backward.register_fake
def _(*arguments):
    call = SoftmaxCall(*arguments[:OPERANDS])
    grads = [
        torch.empty_like(x, memory_format=torch.contiguous_format)
        for x in (call.query, call.key, call.value)
    ]
    return *grads, *call.new_gradients_of_edges()


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    of_forward = output[3:]
    call = SoftmaxCall(*inputs[:OPERANDS])
    ctx.save_for_backward(*call[:14], call.seed, *of_forward)
    ctx.options = call[14:18]
    ctx.mark_non_differentiable(*of_forward)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    *operands, seed, kept_weights, queries, sums = ctx.saved_tensors
    query, _, value, bias, attr, attr_weight = operands[:6]
    options = (*ctx.options, seed)
    absent = [None] * 15
    # a second derivative, or vmap: the same in plain operations
    if torch.is_grad_enabled() or are_batched(*grads):
        rest = (*operands[6:10], *options)
        return *gradients_of_definition(plain, operands[:6], rest, grads), *absent
    grad_output, grad_lse, grad_alpha = grads[:3]
    if grad_output is None:
        grad_output = query.new_zeros(*query.shape[:-1], value.shape[-1])
    run: Any = edge_attention_backward
    if nothing_watches(query, grad_output):
        run = _gradients_where_they_are
    outer = (grad_output, grad_lse, grad_alpha)
    gq, gk, gv, gb, ga, gw = run(*operands, *options, kept_weights, queries, sums, *outer)
    if attr_weight is None:
        gw = None
    return gq, gk, gv, _summed_to(bias, gb), _summed_to(attr, ga), gw, *absent


def _summed_to(operand: Tensor | None, grad: Tensor) -> Tensor | None:
    """The gradient of an operand that may have been broadcast."""
    if operand is None:
        return None
    return grad.sum_to_size(operand.shape)


edge_attention.register_autograd(_backward, setup_context=_save)


class EdgeAttentionFunction(torch.autograd.Function):
    """The operator as a plain autograd function."""

    forward = staticmethod(_forward_where_it_is)
    setup_context = staticmethod(_save)
    backward = staticmethod(_backward)


def attend(*arguments: Any, tracked: bool) -> tuple[Tensor, ...]:
    """``edge_attention``, without torch's dispatcher if no mode is active."""
    if not nothing_watches(*arguments[:6]):
        return edge_attention(*arguments)
    if tracked:
        return EdgeAttentionFunction.apply(*arguments)
    return _forward_where_it_is(*arguments)


def plain(*operands: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Attention in plain operations, edge by edge: slow, differentiable any number of times.

    ``operands`` are those of :class:`SoftmaxCall` without the edges by source.
    """
    by_source = (None, None, None, None)
    call = SoftmaxCall._make((*operands[:10], *by_source, *operands[10:]))
    query, key, value, bias, attr, attr_weight = call[:6]
    scale, softcap, dropout_p, edge_to, seed = call[14:]
    ptr, index, edge, order = call[6:10]
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
    if attr is not None and attr_weight is not None:
        features = attr[:, edge].to(dtype_of_sums(query)).unsqueeze(2)
        if bias is not None:
            features = features.masked_fill(absent.unsqueeze(-1), 0.0)
        if edge_to != "value":
            queries = edge_features.feature_queries(query, attr_weight)
            score = score + (queries[:, target] * features).sum(-1)
    score = score * scale
    if softcap > 0:
        score = softcap * torch.tanh(score / softcap)
    if bias is not None:
        score = (score + bias).masked_fill(absent, -torch.inf)
    by_place, lse = edge_softmax(score, target, T)
    weight = by_place * dropout_factors(by_place, edge, dropout_p, seed)
    output = scatter_sum(weight.unsqueeze(-1) * values, target, T, 1)
    alpha = torch.empty_like(by_place).index_copy(1, edge, by_place)
    if attr is not None and attr_weight is not None and edge_to != "key":
        sums = scatter_sum(weight.unsqueeze(-1) * features, target, T, 1)
        output = output + edge_features.projected(sums, attr_weight).to(output.dtype)
    return output, lse, alpha
