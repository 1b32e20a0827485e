"""Additive scores on a GPU, as :mod:`.additive.operator` computes them on the CPU."""

import math
from typing import Any

import torch
import triton
from torch import Tensor

from ..arrays import dtype_of_sums
from ..cuda.launches import HELD, constants_of, contiguous_rows, launch_rows, strides_of
from ..cuda.row_work import LONG, Work, schedule
from ..softmax.passes import merge_hubs
from . import triton as triton_additive

SHARES = 512  # most programs that sum the gradient of weights
ROOM = 1 << 22  # approximate limit of the numbers that they hold together
WEIGHTS = 2048  # most numbers of the gradient of weights per program, unless one weight has more


def _operands(x: Tensor, y: Tensor, z: Tensor | None, weight: Tensor) -> tuple[Any, ...]:
    """x, y, z and weight for the kernels, a divisor of their strides, and the strides."""
    nodes = [contiguous_rows(a) for a in ((x, y) if z is None else (x, y, z))]
    align, strides = strides_of(*nodes)
    return (
        (*nodes, *(None,) * (z is None), weight.detach().contiguous()),
        align,
        (*strides, *(0,) * (9 - len(strides))),
    )


def edge_additive(
    x: Tensor, y: Tensor, z: Tensor | None, weight: Tensor, slope: float, *layout: Tensor
) -> Tensor:
    """``graphattn::edge_additive``."""
    ptr, index, edge, order = layout[:4]
    (G, K, D), B, E = weight.shape, x.shape[0], edge.numel()
    out = x.new_empty(B, E, G * K, dtype=dtype_of_sums(x))
    operands, align, strides = _operands(x, y, z, weight)
    constants = _of(x, G, K, D, slope, align) | {"GROUP": G // max(1, y.shape[2])}
    for part in _parts(ptr, order) if K else ():
        arguments = (*operands, *part[1:], index, edge, out, E)
        launch_rows(
            triton_additive.scores, part, B, arguments, (*strides, _number(slope)), constants
        )
    return out


def edge_additive_backward(
    x: Tensor, y: Tensor, z: Tensor | None, weight: Tensor, slope: float, *layout: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``graphattn::edge_additive_backward``; the last of ``layout`` is the gradient of scores."""
    by_target = layout[:4]
    by_source = layout[4:8]
    grad = layout[8].detach().contiguous()
    (G, K, D), B, E, groups = weight.shape, x.shape[0], by_target[2].numel(), y.shape[2]
    grads = [torch.empty_like(a, memory_format=torch.contiguous_format) for a in (x, y)]
    grad_z = x.new_empty((B, E, G, D) if z is not None else (0, 0, 0, 0))
    if B * G * K == 0:
        return *(a.zero_() for a in (*grads, grad_z)), torch.zeros_like(weight)  # type: ignore[return-value]
    group = G // max(1, groups)
    if z is not None:
        of_edges = grad_z
    else:
        of_edges = None
    _passed(x, y, z, weight, slope, grad, by_target, 1, group, grads[0], of_edges)
    _passed(y, x, z, weight, slope, grad, by_source, group, 1, grads[1], None)
    return *grads, grad_z, _to_weights(x, y, z, weight, slope, grad, by_target)  # type: ignore[return-value]


def _passed(
    nodes: Tensor,
    other: Tensor,
    z: Tensor | None,
    weight: Tensor,
    slope: float,
    grad: Tensor,
    layout: tuple[Tensor, ...],
    members: int,
    group: int,
    out: Tensor,
    grad_z: Tensor | None,
) -> None:
    """The gradient of one end of the edges, and of the edges."""
    (ptr, index, edge, order), (B, N, H, D), K = layout, nodes.shape, weight.shape[1]
    operands, align, strides = _operands(nodes, other, z, weight)
    constants = _of(nodes, H, K, D, slope, align) | {"MEMBERS": members, "GROUP": group}

    def launch(work: Work, out: Tensor | None, acc: Tensor | None) -> None:
        arguments = (*operands, grad, *work[1:], index, edge, out, grad_z, acc, edge.numel(), N)
        rest = (*strides, _number(slope))
        launch_rows(
            triton_additive.passed_back,
            work,
            B,
            arguments,
            rest,
            constants | {"PIECE": acc is not None},
        )

    work = schedule(ptr, order)
    for part in work.whole_rows:
        launch(part, out, None)
    if work.hubs is not None:
        acc = nodes.new_empty(B, len(work.hubs.owner), H, D, dtype=dtype_of_sums(nodes))
        launch(work.hubs.pieces, None, acc)
        merge_hubs(work.hubs, acc, None, None, out, T=N)


def _to_weights(
    x: Tensor,
    y: Tensor,
    z: Tensor | None,
    weight: Tensor,
    slope: float,
    grad: Tensor,
    layout: tuple[Tensor, ...],
) -> Tensor:
    """The weights' gradient: the sum of each program's share, with equal bits in every run."""
    (ptr, index, edge, order), (G, K, D), B = layout, weight.shape, x.shape[0]
    operands, align, strides = _operands(x, y, z, weight)
    most = max(16, min(SHARES, ROOM // max(1, B * weight.numel())))
    constants = _of(x, G, K, D, slope, align) | {"GROUP": G // max(1, y.shape[2])}
    per_block = min(triton.next_power_of_2(K), max(1, WEIGHTS // constants["BD"]))
    constants |= {"BK": per_block, "BLOCKS": -(-K // per_block), "H": G * -(-K // per_block)}
    constants["BE"] = max(1, constants["BE"] // per_block)
    total = weight.new_zeros(weight.shape, dtype=torch.float64)
    for part in _parts(ptr, order):
        rows = part.node.numel()
        shares = total.new_empty(min(most, rows), B, *weight.shape)
        work = part._replace(node=part.node[: len(shares)])  # as many programs; each finds its rows
        arguments = (
            *operands[:3],
            grad,
            part.node,
            *part[2:],
            index,
            edge,
            shares,
            edge.numel(),
            rows,
            B,
        )
        launch_rows(
            triton_additive.to_weights, work, B, arguments, (*strides, _number(slope)), constants
        )
        total += shares.sum((0, 1))
    return total.to(weight.dtype)


def _parts(ptr: Tensor, order: Tensor) -> tuple[Work, ...]:
    """All rows, those of hubs in pieces."""
    work = schedule(ptr, order)
    return (*work.whole_rows, *(() if work.hubs is None else work.hubs[:1]))


def _of(x: Tensor, groups: int, K: int, D: int, slope: float, align: int) -> dict[str, Any]:
    """The constants of the compiled kernels: one group, and half as many edges, per program.

    A warp has up to 256 numbers of an edge, and two rows of each edge are held at once. For tanh,
    which is computed in float64, a quarter as many edges.
    """
    constants = constants_of(dtype_of_sums(x), 1, D=D)
    smooth = math.isnan(slope)
    warps = max(1, min(8, constants["BD"] // 256))
    edges = max(1, min(LONG, HELD * 32 * warps // constants["BD"]))
    if x.dtype == torch.float64:
        edges = max(1, edges // 4)
    edges = max(1, edges // (4 if smooth else 2))
    launched = {"BE": edges, "num_warps": warps}
    return constants | {"H": groups, "K": K, "SMOOTH": smooth, "ALIGN": align} | launched


def _number(slope: float) -> float:
    if math.isnan(slope):
        return 0.0
    return slope
