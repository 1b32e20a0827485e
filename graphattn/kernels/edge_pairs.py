"""Operators for any attention with a product of query and key, in memory of (E, H).

``edge_products`` maps nodes to edges, a product for every edge and head; ``edge_sum`` maps edges to
nodes, a weighted sum for every node. Each is the derivative of the other, to any order. Any
function may come between them, mostly ``edge_weights``, the softmax over the edges of each target.

Shapes: ``x`` (B, T, H, D), ``y`` (B, S, H_kv, D), edges (B, E, H) in the caller's order, float32 or
float64 alike. By target, the edges are ``ptr`` (T + 1,), ``index`` and ``edge`` (E,), ``order``
(T,); by source the same of the other side, with ``source_edge`` (E,) for where an edge stands in
the caller's order. ``removed`` bool (1 or B, E, H) marks edges that pass not even a NaN; it may be
absent.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .again import LAYOUT, ends_in_order, gradients_of_definition
from .arrays import array, narrow, nodes, results, widest, width
from .edge_softmax import edge_softmax
from .modes import on_gpu
from .threads import chunks, share


@torch.library.custom_op(
    "graphattn::edge_products",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor x, Tensor y, Tensor? removed, {LAYOUT}) -> Tensor",
)
def edge_products(x: Tensor, y: Tensor, removed: Tensor | None, *layout: Tensor) -> Tensor:
    """``<x[b, t, h], y[b, s, h // group]>`` of every edge s -> t, (B, E, H); only the backward uses
    ``removed``.
    """
    from . import edges_numba

    B, _, H, _ = x.shape
    out = x.new_empty(B, layout[2].numel(), H)
    rows = nodes(x)
    others = nodes(y)
    p, i, e, o = (a.numpy() for a in layout[:4])
    flat = out.view(-1).numpy()
    wide = width(x, i, e)
    sizes = (H, H // max(1, y.shape[2]))

    def run(lo: int, hi: int, buf: np.ndarray) -> None:
        for b in range(B):
            edges_numba.edge_products(wide, sizes, b, rows, others, p, lo, hi, o, i, e, flat, buf)

    if out.numel():
        work = out.numel() * 8 * wide.eights
        share(chunks(p, work), work, run, lambda: (np.empty(H * (widest(p) + 8), flat.dtype),))
    return out


on_gpu(edge_products, "edges_triton", "edge_products")


@edge_products.register_fake
def _(x, y, removed, ptr, index, edge, *rest):
    return x.new_empty(x.shape[0], edge.shape[0], x.shape[2])


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
    """``sum weight[b, e, h] * x[b, s, h // group]`` over the edges into each target, (B, T, H, D);
    or ``to_sources`` ``sum weight[b, e, h] * x[b, t, h]`` over the edges out of each source and a
    group's heads, (B, S, groups, D).
    """
    from . import edges_numba

    B, _, H = weight.shape
    p, i, e, o = (a.numpy() for a in (layout[4:] if to_sources else layout[:4]))
    out = results(x, B, p.size - 1, groups if to_sources else H, x.shape[-1])
    wide = width(x, i, e)
    sizes = (H, H // max(1, groups))
    flat = weight.contiguous().view(-1).numpy()
    gone = array(removed, torch.bool)
    rows = nodes(x)
    written = nodes(out)
    if to_sources:
        summed = True
    else:
        summed = None

    def run(lo: int, hi: int, *own: np.ndarray) -> None:
        for b in range(B):
            edges_numba.edge_sums(
                wide, sizes, flat, b, rows, p, lo, hi, o, i, e, gone, summed, written, own
            )

    if H == 0 or x.shape[1] == 0:
        out.zero_()
    elif out.numel():
        work = weight.numel() * 8 * wide.eights
        share(
            chunks(p, work),
            work,
            run,
            lambda: edges_numba.row_space(wide, wide, sizes, widest(p), flat.dtype, i.dtype),
        )
    return narrow(out, x)


on_gpu(edge_sum, "edges_triton", "edge_sum")


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
    from . import edges_numba

    B, _, H = score.shape
    alpha = torch.empty_like(score, memory_format=torch.contiguous_format)
    lse = score.new_empty(B, order.numel(), H)
    given, out, levels = (
        x.contiguous().numpy() for x in (score.detach().view(-1), alpha.view(-1), lse)
    )
    p = ptr.numpy()
    rows = order.numpy()
    e = edge.numpy()

    def run(lo: int, hi: int, buf: np.ndarray) -> None:
        for b in range(B):
            edges_numba.edge_softmax(H, b, p, lo, hi, rows, e, given, out, levels, buf)

    if lse.numel():
        work = 8 * score.numel()
        share(chunks(p, work), work, run, lambda: (np.empty(H * (widest(p) + 8), given.dtype),))
    return alpha, lse


on_gpu(edge_weights, "edges_triton", "edge_weights")


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
    from . import edges_numba

    B, _, H = alpha.shape
    result = torch.empty_like(alpha)
    a, g, out = (x.contiguous().view(-1).numpy() for x in (alpha, grad, result))
    levels, p, rows, e = (x.contiguous().numpy() for x in (grad_lse, ptr, order, edge))

    def run(lo: int, hi: int, total: np.ndarray) -> None:
        for b in range(B):
            edges_numba.edge_softmax_backward(H, b, p, lo, hi, rows, e, a, g, levels, out, total)

    if levels.size:
        share(chunks(p, 8 * a.size), 8 * a.size, run, lambda: (np.empty(H, np.float64),))
    return result


on_gpu(edge_weights_backward, "edges_triton", "edge_weights_backward")


@edge_weights_backward.register_fake
def _(alpha, grad, grad_lse, *rest):
    return torch.empty_like(alpha)


def _weights_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[0], *inputs)


def _weights_backward(ctx: Any, grad: Tensor, grad_lse: Tensor) -> tuple[Tensor | None, ...]:
    alpha, score, *layout = ctx.saved_tensors
    if torch.is_grad_enabled():  # a second derivative is needed: the same in plain operations
        return (
            *gradients_of_definition(_plain_weights, (score,), layout, (grad, grad_lse)),
            None,
            None,
            None,
            None,
        )
    return edge_weights_backward(alpha, grad, grad_lse, *layout), None, None, None, None


def _plain_weights(score: Tensor, *layout: Tensor) -> tuple[Tensor, Tensor]:
    return edge_softmax(score, ends_in_order(*layout)[0], layout[-1].numel())


edge_weights.register_autograd(_weights_backward, setup_context=_weights_context)


def _products_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _products_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, y, *rest = ctx.saved_tensors
    groups = y.shape[2]
    if ctx.needs_input_grad[0]:
        gx = edge_sum(grad, y, groups, False, *rest)
    else:
        gx = None
    if ctx.needs_input_grad[1]:
        gy = edge_sum(grad, x, groups, True, *rest)
    else:
        gy = None
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
    if ctx.needs_input_grad[0]:
        gw = edge_products(at_targets, at_sources, *rest)
    else:
        gw = None
    if gw is not None and rest[0] is not None:
        gw = gw.masked_fill(rest[0], 0.0)
    if ctx.needs_input_grad[1]:
        gx = edge_sum(weight, grad, ctx.groups, not ctx.to_sources, *rest)
    else:
        gx = None
    return gw, gx, *(None,) * 11


edge_products.register_autograd(_products_backward, setup_context=_products_context)
edge_sum.register_autograd(_sum_backward, setup_context=_sum_context)
