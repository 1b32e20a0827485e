"""Two operators from which any attention with a product of query and key is made, each the other's derivative.

``edge_products`` takes nodes to edges, a product for every edge and head; ``edge_sum`` takes edges to nodes, a weighted
sum for every node. Between them anything may stand, in memory of (E, H). Derivatives of any order are made of the two.

Shapes: ``x`` (B, T, H, D), ``y`` (B, S, H_kv, D), edges (B, E, H) in the caller's order, float32 or float64 alike. By
target, the edges are ``ptr`` (T + 1,), ``index`` and ``edge`` (E,), ``order`` (T,); by source the same of the other
side, with ``source_edge`` (E,) for where an edge stands in the caller's order. ``removed`` bool (1 or B, E, H) marks
edges that pass not even a NaN; it may be absent.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .edges_op import _array, _chunks, _narrow, _nodes, _results, _widest, _width
from .threads import share


@torch.library.custom_op("graphattn::edge_products", mutates_args=(), device_types="cpu")
def edge_products(
    x: Tensor,
    y: Tensor,
    removed: Tensor | None,
    ptr: Tensor,
    index: Tensor,
    edge: Tensor,
    order: Tensor,
    source_ptr: Tensor,
    target: Tensor,
    source_edge: Tensor,
    source_order: Tensor,
) -> Tensor:
    """``<x[b, t, h], y[b, s, h // group]>`` of every edge s -> t, (B, E, H); the backward alone wants ``removed``."""
    from . import edges_numba

    B, _, H, _ = x.shape
    out = x.new_empty(B, edge.numel(), H)
    flat, wide, sizes = out.view(-1).numpy(), _width(x), (H, H // max(1, y.shape[2]))
    rows, others = _nodes(x), _nodes(y)
    p, i, e, o = (a.numpy() for a in (ptr, index, edge, order))

    def make() -> Any:
        buf = np.empty(H * (_widest(p) + 8), flat.dtype)

        def run(lo: int, hi: int) -> None:
            for b in range(B):
                edges_numba.edge_products(wide, sizes, b, rows, others, p, lo, hi, o, i, e, flat, buf)

        return run

    if out.numel():
        work = out.numel() * 8 * len(wide)
        share(_chunks(p, work), work, make)
    return out


@edge_products.register_fake
def _(x, y, removed, ptr, index, edge, *rest):
    return x.new_empty(x.shape[0], edge.shape[0], x.shape[2])


@torch.library.custom_op("graphattn::edge_sum", mutates_args=(), device_types="cpu")
def edge_sum(
    weight: Tensor,
    x: Tensor,
    groups: int,
    to_sources: bool,
    removed: Tensor | None,
    ptr: Tensor,
    index: Tensor,
    edge: Tensor,
    order: Tensor,
    source_ptr: Tensor,
    target: Tensor,
    source_edge: Tensor,
    source_order: Tensor,
) -> Tensor:
    """``sum weight[b, e, h] * x[b, s, h // group]`` over the edges into each target, (B, T, H, D); or ``to_sources``
    ``sum weight[b, e, h] * x[b, t, h]`` over the edges out of each source and a group's heads, (B, S, groups, D).
    """
    from . import edges_numba

    B, _, H = weight.shape
    layout = (source_ptr, target, source_edge, source_order) if to_sources else (ptr, index, edge, order)
    p, i, e, o = (a.numpy() for a in layout)
    out = _results(x, B, p.size - 1, groups if to_sources else H, x.shape[-1])
    wide, sizes = _width(x), (H, H // max(1, groups))
    flat, rows, results, gone = (
        weight.contiguous().view(-1).numpy(),
        _nodes(x),
        _nodes(out),
        _array(removed, torch.bool),
    )
    summed = True if to_sources else None

    def make() -> Any:
        own = edges_numba.row_space(wide, wide, sizes, _widest(p), flat.dtype, i.dtype)

        def run(lo: int, hi: int) -> None:
            for b in range(B):
                edges_numba.edge_sums(wide, sizes, flat, b, rows, p, lo, hi, o, i, e, gone, summed, results, own)

        return run

    if H == 0 or x.shape[1] == 0:
        out.zero_()
    elif out.numel():
        work = weight.numel() * 8 * len(wide)
        share(_chunks(p, work), work, make)
    return _narrow(out, x)


@edge_sum.register_fake
def _(weight, x, groups, to_sources, removed, ptr, index, edge, order, source_ptr, *rest):
    nodes, heads = (source_ptr, groups) if to_sources else (ptr, weight.shape[2])
    return x.new_empty(x.shape[0], nodes.shape[0] - 1, heads, x.shape[-1])


def _products_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _products_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, y, *rest = ctx.saved_tensors
    groups = y.shape[2]
    gx = edge_sum(grad, y, groups, False, *rest) if ctx.needs_input_grad[0] else None
    gy = edge_sum(grad, x, groups, True, *rest) if ctx.needs_input_grad[1] else None
    return gx, gy, *(None,) * 9


def _sum_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.groups, ctx.to_sources = inputs[2:4]
    ctx.save_for_backward(*inputs[:2], *inputs[4:])


def _sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    weight, x, *rest = ctx.saved_tensors
    at_targets, at_sources = (x, grad) if ctx.to_sources else (grad, x)
    gw = edge_products(at_targets, at_sources, *rest) if ctx.needs_input_grad[0] else None
    gx = edge_sum(weight, grad, ctx.groups, not ctx.to_sources, *rest) if ctx.needs_input_grad[1] else None
    return gw, gx, *(None,) * 11


edge_products.register_autograd(_products_backward, setup_context=_products_context)
edge_sum.register_autograd(_sum_backward, setup_context=_sum_context)
