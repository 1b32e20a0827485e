"""Operators for any attention with a product of query and key, in memory of (E, H).

``edge_products`` maps nodes to edges, a product for every edge and head; ``edge_sum`` maps edges to
nodes, a weighted sum for every node. Each is the derivative of the other, to any order. Any
function may come between them, mostly ``edge_weights``, the softmax over the edges of each target.

Shapes: ``x`` (B, T, H, D), ``y`` (B, S, H_kv, D), of one dtype; edges (B, E, H) in the caller's
order, of nodes in half precision float32. By target, the edges are ``ptr`` (T + 1,), ``index`` and ``edge`` (E,), ``order``
(T,); by source the same of the other side, with ``source_edge`` (E,) for where an edge stands in
the caller's order. ``removed`` bool (1 or B, E, H) marks edges that pass not even a NaN; it may be
absent.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..arrays import array, dtype_of_sums, narrow, nodes, results
from ..llvm.edge_rows import EdgeRows, memory
from ..llvm.threads import chunks, share
from ..modes import on_gpu
from ..plain.second_derivatives import LAYOUT, ends_in_order, gradients_of_definition
from ..plain.sums import edge_softmax


@torch.library.custom_op(
    "graphattn::edge_products",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor x, Tensor y, Tensor? removed, {LAYOUT}) -> Tensor",
)
def edge_products(x: Tensor, y: Tensor, removed: Tensor | None, *layout: Tensor) -> Tensor:
    """``<x[b, t, h], y[b, s, h // group]>`` of every edge s -> t, (B, E, H).

    Only the backward uses ``removed``.
    """
    from ..llvm.native import address_of, native
    from ..llvm.node_rows import products
    from .cpu import EdgeProducts

    B, _, H, _ = x.shape
    rows = EdgeRows.of(*layout[:4])
    out = x.new_empty(B, rows.edge.numel(), H, dtype=dtype_of_sums(x))
    if out.numel():
        kinds = rows.kinds(x)
        kernel = native(EdgeProducts, kinds.of_kernel).bind(
            **rows.operands(B, H, H // max(1, y.shape[2])),
            x=nodes(x),
            row_bytes=kinds.row_bytes,
            nodes=nodes(y),
            multiply=address_of(products, kinds),
            out=out,
        )
        work = out.numel() * kinds.width
        size = H * rows.widest * out.itemsize
        share(chunks(rows.ptr, work), work, kernel.run, partial(memory, size))
    return out


on_gpu(edge_products, "softmax.passes", "edge_products")


@edge_products.register_fake
def _(x, y, removed, ptr, index, edge, *rest):
    return x.new_empty(x.shape[0], edge.shape[0], x.shape[2], dtype=dtype_of_sums(x))


@torch.library.custom_op(
    "graphattn::edge_sum",
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"(Tensor weight, Tensor x, SymInt groups, bool to_sources, Tensor? removed, {LAYOUT}) "
        "-> Tensor"
    ),
)
def edge_sum(
    weight: Tensor,
    x: Tensor,
    groups: int,
    to_sources: bool,
    removed: Tensor | None,
    *layout: Tensor,
) -> Tensor:
    """``sum weight[b, e, h] * x[b, s, h // group]`` over the edges into each target, (B, T, H, D).

    ``to_sources``: ``sum weight[b, e, h] * x[b, t, h]`` over the edges out of each source and the
    heads of a group, (B, S, groups, D).
    """
    from ..llvm.native import address_of, native
    from ..llvm.node_rows import sum_far, sum_over_groups
    from .cpu import EdgeSums

    B, _, H = weight.shape
    if to_sources:
        rows = EdgeRows.of(*layout[4:])
        heads = groups
        sum_of_rows = sum_over_groups
    else:
        rows = EdgeRows.of(*layout[:4])
        heads = H
        sum_of_rows = sum_far
    out = results(x, B, rows.order.numel(), heads, x.shape[-1])
    if H == 0 or x.shape[1] == 0:
        out.zero_()
    elif out.numel():
        kinds = rows.kinds(x)
        removed_edges = array(removed, torch.bool)
        removed_batch = 0
        if removed_edges is not None and removed_edges.shape[0] > 1:
            removed_batch = removed_edges.stride(0)
        kernel = native(EdgeSums, kinds.of_kernel).bind(
            **rows.operands_of_sums(B, H, H // max(1, groups), kinds),
            weights=weight.contiguous(),
            nodes=nodes(x),
            removed=removed_edges,
            removed_batch=removed_batch,
            over_groups=int(to_sources),
            out=nodes(out),
            sum_far=address_of(sum_of_rows, kinds),
        )
        work = weight.numel() * kinds.width
        size = rows.memory_of_sums(H, kinds.width, kinds)
        share(chunks(rows.ptr, work), work, kernel.run, partial(memory, size))
    return narrow(out, x)


on_gpu(edge_sum, "softmax.passes", "edge_sum")


@edge_sum.register_fake
def _(weight, x, groups, to_sources, removed, ptr, index, edge, order, source_ptr, *rest):
    if to_sources:
        nodes = source_ptr
        heads = groups
    else:
        nodes = ptr
        heads = weight.shape[2]
    return x.new_empty(x.shape[0], nodes.shape[0] - 1, heads, x.shape[-1])


@torch.library.custom_op("graphattn::edge_weights", mutates_args=(), device_types="cpu")
def edge_weights(
    score: Tensor, ptr: Tensor, index: Tensor, edge: Tensor, order: Tensor
) -> tuple[Tensor, Tensor]:
    """Softmax of ``score`` (B, E, H) over the edges into each target, and its logarithmic
    denominator (B, T, H).
    """
    from ..llvm.native import native
    from .cpu import EdgeSoftmax

    B, _, H = score.shape
    alpha = torch.empty_like(score, memory_format=torch.contiguous_format)
    lse = score.new_empty(B, order.numel(), H)
    if lse.numel():
        rows = EdgeRows.of(ptr, index, edge, order)
        kernel = native(EdgeSoftmax, rows.kinds(score).of_kernel).bind(
            **rows.operands(B, H, 1), score=score.contiguous(), alpha=alpha, lse=lse
        )
        work = 8 * score.numel()
        size = H * rows.widest * alpha.itemsize
        share(chunks(ptr, work), work, kernel.run, partial(memory, size))
    return alpha, lse


on_gpu(edge_weights, "softmax.passes", "edge_weights")


@edge_weights.register_fake
def _(score, ptr, index, edge, order):
    alpha = torch.empty_like(score, memory_format=torch.contiguous_format)
    return alpha, score.new_empty(score.shape[0], order.shape[0], score.shape[2])


@torch.library.custom_op("graphattn::edge_weights_backward", mutates_args=(), device_types="cpu")
def edge_weights_backward(
    alpha: Tensor,
    grad: Tensor,
    grad_lse: Tensor,
    ptr: Tensor,
    index: Tensor,
    edge: Tensor,
    order: Tensor,
) -> Tensor:
    """The gradient of the scores."""
    from ..llvm.native import native
    from .cpu import EdgeSoftmaxBackward

    B, _, H = alpha.shape
    result = torch.empty_like(alpha, memory_format=torch.contiguous_format)
    if grad_lse.numel():
        rows = EdgeRows.of(ptr, index, edge, order)
        kernel = native(EdgeSoftmaxBackward, rows.kinds(alpha).of_kernel).bind(
            **rows.operands(B, H, 1),
            alpha=alpha.contiguous(),
            grad=grad.contiguous(),
            grad_lse=grad_lse.contiguous(),
            out=result,
        )
        work = 8 * alpha.numel()
        share(chunks(ptr, work), work, kernel.run, partial(memory, 0))
    return result


on_gpu(edge_weights_backward, "softmax.passes", "edge_weights_backward")


@edge_weights_backward.register_fake
def _(alpha, grad, grad_lse, *rest):
    return torch.empty_like(alpha)


def _weights_backward(ctx: Any, grad: Tensor, grad_lse: Tensor) -> tuple[Tensor | None, ...]:
    alpha, score, *layout = ctx.saved_tensors
    if torch.is_grad_enabled():  # a second derivative is needed: the same in plain operations
        target, _ = ends_in_order(*layout)
        (grad_score,) = gradients_of_definition(
            edge_softmax, (score,), (target, layout[-1].numel()), (grad, grad_lse)
        )
    else:
        grad_score = edge_weights_backward(alpha, grad, grad_lse, *layout)
    return grad_score, None, None, None, None


edge_weights.register_autograd(
    _weights_backward,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[0], *inputs),
)


def _products_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, y, *rest = ctx.saved_tensors
    groups = y.shape[2]
    gx = None
    gy = None
    if ctx.needs_input_grad[0]:
        gx = edge_sum(grad, y, groups, False, *rest)
    if ctx.needs_input_grad[1]:
        gy = edge_sum(grad, x, groups, True, *rest)
    return gx, gy, *(None,) * 9


def _sum_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.groups, ctx.to_sources = inputs[2:4]
    ctx.save_for_backward(*inputs[:2], *inputs[4:])


def _sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    weight, x, *rest = ctx.saved_tensors
    if ctx.to_sources:
        at_targets = x
        at_sources = grad
    else:
        at_targets = grad
        at_sources = x
    gw = None
    gx = None
    if ctx.needs_input_grad[0]:
        gw = edge_products(at_targets, at_sources, *rest)
        if rest[0] is not None:
            gw = gw.masked_fill(rest[0], 0.0)
    if ctx.needs_input_grad[1]:
        gx = edge_sum(weight, grad, ctx.groups, not ctx.to_sources, *rest)
    return gw, gx, *(None,) * 11


edge_products.register_autograd(
    _products_backward,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
edge_sum.register_autograd(_sum_backward, setup_context=_sum_context)
