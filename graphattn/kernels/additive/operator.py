"""Additive scores as a torch operator, with its derivatives: Bahdanau, GATv2, Point Transformer.

    score[b, e, g * K + k] = sum_d weight[g, k, d] f(x[b, t, g, d] + y[b, s, g // group, d] + z[b,
    e, g, d])

of every edge s -> t, in memory of (E, G K), and of z where it is given. Shapes: ``x`` (B, T, G, D),
``y`` (B, S, G_kv, D), ``z`` (B, E, G, D) or None, ``weight`` (G, K, D), float32 or float64 alike, on
a GPU also halves, whose scores are float32; f is a leaky ReLU of ``slope`` >= 0 or, where that is
NaN, tanh. The edges are those of :mod:`graphattn.kernels.pairs.operator`.
"""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arrays import NodeRows, dtype_of_sums, eights, narrow, nodes, results
from ..llvm.edge_rows import EdgeRows, memory
from ..llvm.threads import chunks, share
from ..modes import on_gpu
from ..plain.second_derivatives import LAYOUT, ends_in_order, gradients_of_definition
from ..plain.sums import gather

_OPERANDS = "Tensor x, Tensor y, Tensor? z, Tensor weight, float slope"


def _operands(
    rows: EdgeRows, x: Tensor, y: Tensor, z: Tensor | None, weight: Tensor, slope: float
) -> dict[str, Any]:
    """Operands of every kernel."""
    G, K, D = weight.shape
    width = 8 * eights(D)
    if z is None:
        of_edges = NodeRows(x.new_zeros(width), 0, 0, 0)
    else:
        of_edges = nodes(z)
    return {
        **rows.operands(x.shape[0], G, G // max(1, y.shape[2])),
        "scores": K,
        "width": width,
        "x": nodes(x),
        "y": nodes(y),
        "z": of_edges,
        "weight": F.pad(weight.detach(), (0, width - D)).contiguous(),
        "slope": slope,
    }


@torch.library.custom_op(
    "graphattn::edge_additive",
    mutates_args=(),
    device_types="cpu",
    schema=f"({_OPERANDS}, {LAYOUT}) -> Tensor",
)
def edge_additive(
    x: Tensor, y: Tensor, z: Tensor | None, weight: Tensor, slope: float, *layout: Tensor
) -> Tensor:
    """Scores (B, E, G * K), in the caller's order."""
    from ..llvm.native import native
    from .cpu import Scores

    rows = EdgeRows.of(*layout[:4])
    out = x.new_empty(x.shape[0], rows.edge.numel(), weight.shape[:2].numel())
    if out.numel():
        operands = _operands(rows, x, y, z, weight, slope)
        kernel = native(Scores, rows.kinds(x).of_kernel).bind(**operands, out=out)
        work = out.numel() * operands["width"]
        share(chunks(rows.ptr, work), work, kernel.run, partial(memory, 0))
    return out


on_gpu(edge_additive, "additive.gpu", "edge_additive")


@edge_additive.register_fake
def _(x, y, z, weight, slope, ptr, index, edge, *rest):
    size = (x.shape[0], edge.shape[0], weight.shape[0] * weight.shape[1])
    return x.new_empty(size, dtype=dtype_of_sums(x))


@torch.library.custom_op(
    "graphattn::edge_additive_backward",
    mutates_args=(),
    device_types="cpu",
    schema=f"({_OPERANDS}, {LAYOUT}, Tensor grad) -> (Tensor, Tensor, Tensor, Tensor)",
)
def edge_additive_backward(
    x: Tensor, y: Tensor, z: Tensor | None, weight: Tensor, slope: float, *layout: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, y, z (no entries without one) and weight; the last of ``layout`` is that of
    the scores.
    """
    from ..llvm.native import native
    from .cpu import ToSources, ToTargets

    B = x.shape[0]
    G, K, D = weight.shape
    width = 8 * eights(D)
    by_target = EdgeRows.of(*layout[:4])
    by_source = EdgeRows.of(*layout[4:8])
    grad = layout[8].contiguous()
    grad_x = results(x, *x.shape)
    grad_y = results(y, *y.shape)
    if z is None:
        grad_z = x.new_empty(0, 0, 0, 0)
    else:
        grad_z = x.new_empty(B, by_target.edge.numel(), G, width)
    work = 4 * grad.numel() * width
    bounds = chunks(by_target.ptr, work)
    # a sum for each chunk: the same bits in every run
    of_weight = x.new_zeros(len(bounds), G, K, width, dtype=torch.float64)
    if math.prod((B, G, K)):
        kinds = by_target.kinds(x).of_kernel
        of_nodes = G * width * (8 + x.itemsize)
        operands = _operands(by_target, x, y, z, weight, slope) | {"grad": grad}
        written = {"grad_nodes": nodes(grad_x), "grad_edges": grad_z}

        def targets(lo: int, hi: int, space: Tensor) -> None:
            chunk_operands = {**operands, **written, "grad_weight": of_weight[bounds.index(lo)]}
            native(ToTargets, kinds).bind(**chunk_operands).run(lo, hi, space)

        size = of_nodes + G * K * width * x.itemsize
        share(bounds, work, targets, partial(memory, size))
        operands |= by_source.operands(B, G, operands["group"])
        kernel = native(ToSources, kinds).bind(**operands, grad_nodes=nodes(grad_y))
        share(chunks(by_source.ptr, work), work, kernel.run, partial(memory, of_nodes))
    else:
        grad_x.zero_()
        grad_y.zero_()
    grad_weight = of_weight.sum(0).to(weight.dtype)
    if z is not None:
        grad_z = narrow(grad_z, z)
    return (
        narrow(grad_x, x),
        narrow(grad_y, y),
        grad_z,
        narrow(grad_weight, weight),
    )


on_gpu(edge_additive_backward, "additive.gpu", "edge_additive_backward")


@edge_additive_backward.register_fake
def _(x, y, z, weight, slope, *rest):
    if z is not None:
        of_edges = torch.empty_like(z, memory_format=torch.contiguous_format)
    else:
        of_edges = x.new_empty(0, 0, 0, 0)
    grads = [torch.empty_like(a, memory_format=torch.contiguous_format) for a in (x, y)]
    return *grads, of_edges, torch.empty_like(weight, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.slope = inputs[4]
    ctx.save_for_backward(*inputs[:4], *inputs[5:])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # once: a checkpoint allows one access
    operands = saved[:4]
    layout = saved[4:]
    absent = (None,) * 9
    if torch.is_grad_enabled():  # a second derivative is needed: the same in plain operations
        rest = ctx.slope, *layout[:4]
        return *gradients_of_definition(
            lambda *arguments: (plain(*arguments),), operands, rest, (grad,)
        ), *absent
    gx, gy, gz, gw = edge_additive_backward(*operands, ctx.slope, *layout, grad)
    if operands[2] is None:
        return gx, gy, None, gw, *absent
    return gx, gy, gz, gw, *absent


edge_additive.register_autograd(_backward, setup_context=_save)


def plain(
    x: Tensor,
    y: Tensor,
    z: Tensor | None,
    weight: Tensor,
    slope: float,
    ptr: Tensor,
    index: Tensor,
    edge: Tensor,
    order: Tensor,
) -> Tensor:
    """Scores in plain operations, in memory of (E, G, D): differentiable any number of times."""
    target, source = ends_in_order(ptr, index, edge, order)
    dtype = dtype_of_sums(x)
    x = x.to(dtype)
    y = y.to(dtype)
    weight = weight.to(dtype)
    G = weight.shape[0]
    total = gather(x, target, 1) + gather(y, source, 1).repeat_interleave(
        G // max(1, y.shape[2]), 2
    )
    if z is not None:
        total = total + z
    if math.isnan(slope):
        active = torch.tanh(total)
    else:
        active = F.leaky_relu(total, slope)
    return torch.einsum("begd,gkd->begk", active, weight).flatten(-2)
