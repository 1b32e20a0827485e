"""Additive scores as a torch operator, with its derivatives: attention of Bahdanau, GATv2 and Point
Transformer.

    score[b, e, g * K + k] = sum_d weight[g, k, d] f(x[b, t, g, d] + y[b, s, g // group, d] + z[b,
    e, g, d])

of every edge s -> t, in memory of (E, G K), and of z where it is given. Shapes: ``x`` (B, T, G, D),
``y`` (B, S, G_kv, D), ``z`` (B, E, G, D) or None, ``weight`` (G, K, D), float32 or float64 alike; f
is a leaky ReLU of ``slope`` >= 0 or, where that is NaN, tanh. The edges are those of
:mod:`graphattn.kernels.edge_pairs`.
"""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .again import LAYOUT, ends_in_order, gradients_of_definition
from .arrays import eights, narrow, numbers, results
from .edge_softmax import gather
from .modes import on_gpu
from .threads import chunks, share

_OPERANDS = "Tensor x, Tensor y, Tensor? z, Tensor weight, float slope"


def _sizes(x: Tensor, y: Tensor, weight: Tensor) -> tuple[int, int, int, int]:
    """G, K, the number of groups that share a row of ``y``, and the padded width."""
    G, K, D = weight.shape
    return G, K, G // max(1, y.shape[2]), 8 * eights(D)


def _operands(x: Tensor, y: Tensor, z: Tensor | None, weight: Tensor) -> tuple[Any, ...]:
    """x, y, z and weight as arrays of the kernels."""
    width = 8 * eights(weight.shape[-1])
    if z is None:
        of_edges = (np.zeros(width, x.new_empty(0).numpy().dtype), 0, 0, 0)
    else:
        of_edges = numbers(z)
    spare = width - weight.shape[-1]
    return (
        numbers(x),
        numbers(y),
        of_edges,
        F.pad(weight.detach(), (0, spare)).contiguous().view(-1).numpy(),
    )


def _layout(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    """``order``, ``ptr``, the nodes at the other end, and the edges in the caller's order."""
    ptr, other, edge, order = (x.numpy() for x in tensors)
    return order, ptr, other, edge


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
    from . import additive_numba

    B = x.shape[0]
    sizes = _sizes(x, y, weight)
    out = x.new_empty(B, layout[2].numel(), sizes[0] * sizes[1])
    operands = _operands(x, y, z, weight)
    rows = _layout(*layout[:4])
    flat = out.view(-1).numpy()
    f = flat.dtype.type(slope)

    def run(lo: int, hi: int) -> None:
        for b in range(B):
            additive_numba.scores(sizes, b, *operands, f, *rows, lo, hi, flat)

    if out.numel():
        work = out.numel() * sizes[-1]
        share(chunks(rows[1], work), work, run)
    return out


on_gpu(edge_additive, "additive_triton", "edge_additive")


@edge_additive.register_fake
def _(x, y, z, weight, slope, ptr, index, edge, *rest):
    return x.new_empty(x.shape[0], edge.shape[0], weight.shape[0] * weight.shape[1])


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
    from . import additive_numba

    B = x.shape[0]
    sizes = _sizes(x, y, weight)
    G, K, _, width = sizes
    operands = _operands(x, y, z, weight)
    flat = layout[8].contiguous().view(-1).numpy()
    by_target = _layout(*layout[:4])
    by_source = _layout(*layout[4:8])
    grad_x = results(x, *x.shape)
    grad_y = results(y, *y.shape)
    to_x = numbers(grad_x)
    to_y = numbers(grad_y)
    f = flat.dtype.type(slope)
    grad_z = x.new_empty((B, layout[2].numel(), G, width) if z is not None else (0, 0, 0, 0))
    if z is None:
        of_edges = None
    else:
        of_edges = grad_z.view(-1).numpy()
    work = 4 * flat.size * width
    bounds = chunks(by_target[1], work)
    # a sum for each chunk: the same bits in every run
    of_weight = np.zeros((len(bounds), G * K * width), np.float64)

    def targets(lo: int, hi: int, *own: np.ndarray) -> None:
        written = to_x, of_edges, of_weight[bounds.index(lo)], *own
        for b in range(B):
            additive_numba.to_targets(sizes, b, *operands, f, *by_target, lo, hi, flat, *written)

    def sources(lo: int, hi: int, *own: np.ndarray) -> None:
        for b in range(B):
            additive_numba.to_sources(sizes, b, *operands, f, *by_source, lo, hi, flat, to_y, *own)

    def space() -> tuple[np.ndarray, ...]:
        return np.empty(G * width, flat.dtype), np.empty(G * width)

    if math.prod((B, G, K)):
        share(bounds, work, targets, lambda: (*space(), np.empty(G * K * width, flat.dtype)))
        share(chunks(by_source[1], work), work, sources, space)
    else:
        grad_x.zero_()
        grad_y.zero_()
    grad_weight = torch.from_numpy(of_weight.sum(0)).view(G, K, width).to(weight.dtype)
    return (
        narrow(grad_x, x),
        narrow(grad_y, y),
        grad_z if z is None else narrow(grad_z, z),
        narrow(grad_weight, weight),
    )


on_gpu(edge_additive_backward, "additive_triton", "edge_additive_backward")


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
    *operands, ptr, index, edge, order = ctx.saved_tensors[:8]
    layout = ctx.saved_tensors[4:]
    absent = (None,) * 9
    if torch.is_grad_enabled():  # a second derivative is needed: the same in plain operations
        rest = ctx.slope, ptr, index, edge, order
        return *gradients_of_definition(
            lambda *given: (plain(*given),), operands, rest, (grad,)
        ), *absent
    gx, gy, gz, gw = edge_additive_backward(*operands, ctx.slope, *layout, grad)
    return gx, gy, None if operands[2] is None else gz, gw, *absent


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
    """The same in plain operations, in memory of (E, G, D): differentiable any number of times."""
    target, source = ends_in_order(ptr, index, edge, order)
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
