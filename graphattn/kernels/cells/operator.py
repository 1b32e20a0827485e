"""Convolutions of cells as torch operators with all derivatives: one launch for all offsets.

    y[b, t] = sum_k weight[k] x[b, table[k, t]]        (products)
    w[k] = sum_b sum_t y[b, t] x[b, table[k, t]]'      (outer)

An entry of a table below 0 is no source. Each operator's gradients are the two again: those of x by
``back``, the same edges by source. Shapes: ``x`` (B, S, C), ``y`` (B, T, O), ``weight`` (K, O, C),
``table`` (K, T) and ``back`` (K, S) int32; ``source`` and ``target`` (E,) are the edges by offset,
``ptr`` (K + 1,) the first of each.
"""

from typing import Any

import torch
from torch import Tensor

from ..modes import on_gpu

_EDGES = "Tensor table, Tensor back, Tensor source, Tensor target, Tensor ptr"


@torch.library.custom_op(
    "graphattn::cell_products",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor x, Tensor weight, {_EDGES}) -> Tensor",
)
def cell_products(x: Tensor, weight: Tensor, table: Tensor, *edges: Tensor) -> Tensor:
    """Outputs (B, T, O): the definition, offset by offset."""
    y = x.new_zeros(x.shape[0], table.shape[1], weight.shape[1])
    for sources, matrix in zip(table.long(), weight, strict=True):
        (targets,) = torch.nonzero(sources >= 0, as_tuple=True)
        y[:, targets] += x[:, sources[targets]] @ matrix.T
    return y


@torch.library.custom_op(
    "graphattn::cell_outer",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor y, Tensor x, {_EDGES}) -> Tensor",
)
def cell_outer(y: Tensor, x: Tensor, table: Tensor, *edges: Tensor) -> Tensor:
    """Sums of outer products (K, O, C), likewise."""
    sums = []
    for sources in table.long():
        (targets,) = torch.nonzero(sources >= 0, as_tuple=True)
        sums.append((y[:, targets].mT @ x[:, sources[targets]]).sum(0))
    if not sums:
        return x.new_zeros(0, y.shape[-1], x.shape[-1])
    return torch.stack(sums)


on_gpu(cell_products, "cells.gpu", "cell_products")
on_gpu(cell_outer, "cells.gpu", "cell_outer")


@cell_products.register_fake
def _(x, weight, table, *edges):
    return x.new_empty(x.shape[0], table.shape[1], weight.shape[1])


@cell_outer.register_fake
def _(y, x, table, *edges):
    return x.new_empty(table.shape[0], y.shape[-1], x.shape[-1])


def _turned(edges: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The edges with sources and targets exchanged."""
    table, back, source, target, ptr = edges
    return back, table, target, source, ptr


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _back_through_products(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, *edges = ctx.saved_tensors
    of_x = None
    of_weight = None
    if ctx.needs_input_grad[0]:
        of_x = torch.ops.graphattn.cell_products(grad, weight.mT, *_turned(tuple(edges)))
    if ctx.needs_input_grad[1]:
        of_weight = torch.ops.graphattn.cell_outer(grad, x, *edges)
    return of_x, of_weight, None, None, None, None, None


def _back_through_outer(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    y, x, *edges = ctx.saved_tensors
    of_y = None
    of_x = None
    if ctx.needs_input_grad[0]:
        of_y = torch.ops.graphattn.cell_products(x, grad, *edges)
    if ctx.needs_input_grad[1]:
        of_x = torch.ops.graphattn.cell_products(y, grad.mT, *_turned(tuple(edges)))
    return of_y, of_x, None, None, None, None, None


cell_products.register_autograd(_back_through_products, setup_context=_keep)
cell_outer.register_autograd(_back_through_outer, setup_context=_keep)
