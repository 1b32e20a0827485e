"""Additive scores on a GPU, as :mod:`.additive.operator` computes them on the CPU."""

import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ..arrays import dtype_of_sums
from ..cuda.launches import HELD, KernelRows, Strided, launch_rows, strided, sum_type
from ..cuda.row_work import LONG, Work, schedule
from ..softmax.passes import SoftmaxResults, merge_hubs
from . import triton as triton_additive

SHARES = 512  # most programs that sum the gradient of weights
ROOM = 1 << 22  # approximate limit of the numbers that they hold together
WEIGHTS = 2048  # most numbers of the gradient of weights per program, unless one weight has more


class AdditiveSizes(NamedTuple):
    """Sizes that a kernel is compiled for: groups of weights (K, D), edges per program."""

    H: int
    K: int
    D: int
    BE: int
    BD: int
    WIDE: Any
    num_warps: int
    ALIGN: int
    GROUP: int  # of the weights' groups, that read one of the other end's
    SMOOTH: bool
    MEMBERS: int = 1
    BK: int = 1
    BLOCKS: int = 1
    BH: int = 1


class AdditiveNodes(NamedTuple):
    """Terms of a score: of a row's node, of the other end, of the edge; and weights (G, K, D)."""

    own: Strided
    other: Strided
    edges: Strided | None
    weight: Tensor
    end: None = None


def edge_additive(
    x: Tensor, y: Tensor, z: Tensor | None, weight: Tensor, slope: float, *layout: Tensor
) -> Tensor:
    """``graphattn::edge_additive``."""
    ptr, index, edge, order = layout[:4]
    G, K, _ = weight.shape
    B = x.shape[0]
    E = edge.numel()
    out = x.new_empty(B, E, G * K, dtype=dtype_of_sums(x))
    if K == 0:
        return out
    nodes, sizes = _operands(x, y, z, weight, slope)
    for part in schedule(ptr, order).parts:
        arguments = (nodes, KernelRows(*part[1:], index, edge), out, E)
        launch_rows(triton_additive.scores, part, B, arguments, (_number(slope),), sizes)
    return out


def edge_additive_backward(
    x: Tensor, y: Tensor, z: Tensor | None, weight: Tensor, slope: float, *layout: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``graphattn::edge_additive_backward``; the last of ``layout`` is the gradient of scores."""
    by_target = layout[:4]
    by_source = layout[4:8]
    grad = layout[8].detach().contiguous()
    G, K, D = weight.shape
    B = x.shape[0]
    E = by_target[2].numel()
    grads = [torch.empty_like(a, memory_format=torch.contiguous_format) for a in (x, y)]
    grad_z = x.new_empty((B, E, G, D) if z is not None else (0, 0, 0, 0))
    if B * G * K == 0:
        return *(a.zero_() for a in (*grads, grad_z)), torch.zeros_like(weight)  # type: ignore[return-value]
    of_edges = None
    if z is not None:
        of_edges = grad_z
    _passed(x, y, z, weight, slope, grad, by_target, grads[0], of_edges)
    _passed(y, x, z, weight, slope, grad, by_source, grads[1], None)
    return *grads, grad_z, _to_weights(x, y, z, weight, slope, grad, by_target)  # type: ignore[return-value]


def _passed(
    nodes: Tensor,
    other: Tensor,
    z: Tensor | None,
    weight: Tensor,
    slope: float,
    grad: Tensor,
    layout: tuple[Tensor, ...],
    out: Tensor,
    grad_z: Tensor | None,
) -> None:
    """The gradient of one end of the edges, and of the edges."""
    ptr, index, edge, order = layout
    B, N, H, D = nodes.shape
    operands, sizes = _operands(nodes, other, z, weight, slope)
    sizes = sizes._replace(H=H, MEMBERS=weight.shape[0] // max(1, H))

    def launch(work: Work, out: Tensor | None, acc: Tensor | None) -> None:
        rows = KernelRows(*work[1:], index, edge)
        arguments = (operands, grad, rows, out, grad_z, acc, edge.numel(), N)
        launch_rows(triton_additive.passed_back, work, B, arguments, (_number(slope),), sizes)

    work = schedule(ptr, order)
    for part in work.whole_rows:
        launch(part, out, None)
    if work.hubs is not None:
        acc = nodes.new_empty(B, len(work.hubs.owner), H, D, dtype=dtype_of_sums(nodes))
        launch(work.hubs.pieces, None, acc)
        merge_hubs(work.hubs, SoftmaxResults(acc), SoftmaxResults(out), N)


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
    ptr, index, edge, order = layout
    G, K, _ = weight.shape
    B = x.shape[0]
    most = max(16, min(SHARES, ROOM // max(1, B * weight.numel())))
    nodes, sizes = _operands(x, y, z, weight, slope)
    per_block = min(triton.next_power_of_2(K), max(1, WEIGHTS // sizes.BD))
    blocks = -(-K // per_block)
    edges = max(1, sizes.BE // per_block)
    sizes = sizes._replace(BK=per_block, BLOCKS=blocks, H=G * blocks, BE=edges)
    total = weight.new_zeros(weight.shape, dtype=torch.float64)
    for part in schedule(ptr, order).parts:
        num_rows = part.node.numel()
        shares = total.new_empty(min(most, num_rows), B, *weight.shape)
        # each program finds its rows
        rows = KernelRows(*part[1:], index, edge)
        arguments = (nodes, grad, rows, shares, edge.numel(), num_rows, B)
        kernel = triton_additive.to_weights
        launch_rows(kernel, part, B, arguments, (_number(slope),), sizes, len(shares))
        total += shares.sum((0, 1))
    return total.to(weight.dtype)


def _operands(
    x: Tensor, y: Tensor, z: Tensor | None, weight: Tensor, slope: float
) -> tuple[AdditiveNodes, AdditiveSizes]:
    """Terms and sizes for the kernels: one group, and half as many edges, per program.

    A warp has up to 256 numbers of an edge, and two rows of each edge are held at once. For tanh,
    which is computed in float64, a quarter as many edges.
    """
    G, K, D = weight.shape
    edge_terms = None
    if z is None:
        align, (own, other) = strided(x, y)
    else:
        align, (own, other, edge_terms) = strided(x, y, z)
    nodes = AdditiveNodes(own, other, edge_terms, weight.detach().contiguous())
    smooth = math.isnan(slope)
    block = triton.next_power_of_2(max(1, D))
    warps = max(1, min(8, block // 256))
    edges = max(1, min(LONG, HELD * 32 * warps // block))
    if x.dtype == torch.float64:
        edges = max(1, edges // 4)
    held = 2
    if smooth:
        held = 4
    sizes = AdditiveSizes(
        H=G,
        K=K,
        D=D,
        BE=max(1, edges // held),
        BD=block,
        WIDE=sum_type(dtype_of_sums(x)),
        num_warps=warps,
        ALIGN=align,
        GROUP=G // max(1, y.shape[2]),
        SMOOTH=smooth,
    )
    return nodes, sizes


def _number(slope: float) -> float:
    if math.isnan(slope):
        return 0.0
    return slope
