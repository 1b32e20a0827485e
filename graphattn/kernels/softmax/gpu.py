"""``graphattn::edge_attention`` and its backward on a GPU: kernels over edges, and projections.

The projections of edge features (:mod:`.triton_features`) read the nodes as they are, halves as
halves, and write F numbers of each; what F numbers become of D is added in the registers of the
kernels over edges.
"""

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ..arrays import dtype_of_sums
from ..cuda.launches import (
    BATCHES,
    as_sums,
    contiguous_rows,
    on_device_of,
    strided,
    sum_type,
)
from . import triton_features
from .call import OPERANDS, shape_if
from .passes import (
    GpuCall,
    Gradients,
    Projected,
    SoftmaxResults,
    score_gradients,
    softmax_pass,
    sums_pass,
)

PROGRAMS = 512  # of a sum over all nodes, if there are as many
SHARE = 16  # bytes of nodes over those of the shares of such a sum, at least
MOST = 128  # numbers of D that a program has at once
FEATURES = 64  # numbers of F that a program has at once
NODES = {2: 64, 4: 32, 8: 16}  # nodes that a program has at once, by the bytes of a number


class ProjectionSizes(NamedTuple):
    """Sizes that a projection is compiled for, per program BT nodes, BD by BF of the weight."""

    H: int
    D: int
    F: int
    BT: int
    BD: int
    BF: int
    D_BLOCKS: int
    F_BLOCKS: int
    WIDE: Any
    PRECISION: str
    ALIGN: int = 1


def forward(*arguments: Any) -> tuple[Tensor, ...]:
    """``graphattn::edge_attention``."""
    call = GpuCall(*arguments[:OPERANDS])
    weights, lse = arguments[OPERANDS:]
    B, T, E, H = call.sizes
    dtype = call.sum_dtype
    keep = call.keeps_weights
    new = call.query.new_empty
    output = new((B, T, H, call.value.shape[-1]))
    levels = new(shape_if(lse, B, T, H), dtype=dtype)
    alpha = new(shape_if(weights, B, E, H), dtype=dtype)
    kept_weights = new(shape_if(keep, B, E, H), dtype=dtype)
    queries = new(call.shape_of_features("key"), dtype=dtype)
    sums = new(call.shape_of_features("value"), dtype=dtype)
    weight = _weight(call)
    if call.adds_features_to("key"):
        project(call.query, weight, queries, None, None)
    of_features = Projected(
        weight,
        _or_none(queries, call.adds_features_to("key")),
        _or_none(sums, call.adds_features_to("value")),
    )
    written = SoftmaxResults(
        output,
        _or_none(levels, lse),
        _or_none(alpha, weights),
        _or_none(kept_weights, keep),
        of_features.sums,
    )
    softmax_pass(call, written, of_features)
    return output, levels, alpha, kept_weights, queries, sums


def backward(*arguments: Any) -> tuple[Tensor, ...]:
    """``graphattn::edge_attention_backward``."""
    call = GpuCall(*arguments[:OPERANDS])
    kept_weights, queries, sums, grad_output, grad_lse, grad_alpha = arguments[OPERANDS:]
    B, _, E, H = call.sizes
    dtype = call.sum_dtype
    new = call.query.new_empty
    grads = [
        torch.empty_like(x, memory_format=torch.contiguous_format)
        for x in (call.query, call.key, call.value)
    ]
    grad_bias, grad_attr, grad_weight = call.new_gradients_of_edges()
    weight = _weight(call)
    projected = Projected(weight, _or_none(queries, call.adds_features_to("key")))
    if kept_weights.numel() == 0:
        kept_weights = new((B, E, H), dtype=dtype)
        softmax_pass(call, SoftmaxResults(kept=kept_weights), projected)
    shares = Shares(grad_weight)
    if call.adds_features_to("value"):
        of_sums = torch.empty_like(sums)
        project(grad_output, weight, of_sums, sums, shares)
        projected = projected._replace(sums=of_sums)
    share = new((B, E, H), dtype=dtype)
    new_weights = None
    if call.dropout_p > 0:
        new_weights = new((B, E, H), dtype=dtype)
    of_queries = None
    if projected.queries is not None:
        of_queries = torch.empty_like(queries)
    removed = None  # a removed edge passes not even a NaN
    if call.bias is not None:
        removed = new((B, E, H), dtype=torch.bool)
    written = Gradients(
        grads[0],
        _or_none(grad_bias, call.bias is not None),
        _or_none(grad_attr, call.attr is not None),
        of_queries,
        share,
        new_weights,
        removed,
    )
    outer = (as_sums(grad_alpha, call.query), as_sums(grad_lse, call.query))
    score_gradients(call, kept_weights, grad_output, outer, written, projected)
    if of_queries is not None:
        project(call.query, None, None, of_queries, shares)
    if new_weights is None:
        new_weights = kept_weights
    groups = call.key.shape[2]
    layout = (call.source_ptr, call.target, call.place, call.source_order)
    sums_pass(share, call.query, groups, True, removed, layout, grads[1])
    sums_pass(new_weights, grad_output, groups, True, removed, layout, grads[2])
    shares.add_up()
    return *grads, grad_bias, grad_attr, grad_weight


def _or_none(x: Tensor, is_present: bool) -> Tensor | None:
    if is_present:
        return x
    return None


def _weight(call: GpuCall) -> Tensor | None:
    """The projection with D contiguous, (H, F, D)."""
    if call.attr_weight is None:
        return None
    return call.attr_weight.detach().transpose(1, 2).contiguous()


class Shares:
    """The gradient of the projection, in shares of the programs that sum it over their nodes."""

    def __init__(self, grad: Tensor) -> None:
        self.grad = grad
        self.parts: list[Tensor] = []

    def new(self, programs: int, dtype: torch.dtype) -> Tensor:
        """Memory for the shares of so many programs."""
        part = self.grad.new_empty((programs, *self.grad.shape), dtype=dtype)
        self.parts.append(part)
        return part

    def add_up(self) -> None:
        """Write their sum, with equal bits in every run."""
        if not self.parts:
            self.grad.zero_()
            return
        total, *others = [part.sum(0) for part in self.parts]
        for other in others:
            total += other
        self.grad.copy_(total)


def project(
    x: Tensor, weight: Tensor | None, y: Tensor | None, z: Tensor | None, shares: Shares | None
) -> None:
    """Products of nodes (B, T, H, D) and a weight into ``y``, and of nodes and ``z`` into shares.

    Where a program does not have all of D at once, each is a launch of its own.
    """
    B, T, H, D = x.shape
    if B * T * H == 0:
        return
    if D > MOST and y is not None and z is not None:
        project(x, weight, y, None, None)
        project(x, None, None, z, shares)
        return
    F = next(rows.shape[3] for rows in (y, z) if rows is not None)
    rows = contiguous_rows(x)
    if B > 1 and rows.stride(0) == T * rows.stride(1):
        # one graph's nodes: shares of a batch of small ones would be larger than its nodes
        joined = rows.flatten(0, 1).unsqueeze(0)
        project(joined, weight, _joined(y), _joined(z), shares)
        return
    sizes = _sizes(rows, F, y is not None)
    tiles = -(-T // sizes.BT)
    tiles_per_program = 1
    sums = None
    if shares is not None:
        # shares take 1 / SHARE of the nodes' memory, or are a few. Those of a graph of a size, on any
        # device: the sum has equal bits
        most = T * x.element_size() // (SHARE * F * dtype_of_sums(x).itemsize)
        programs = min(max(4, most), max(1, PROGRAMS // (B * H)))
        tiles_per_program = -(-tiles // programs)
        sums = shares.new(B * -(-tiles // tiles_per_program), dtype_of_sums(x))
    align, (nodes,) = strided(rows)
    sizes = sizes._replace(ALIGN=align)
    blocks = H * sizes.D_BLOCKS * sizes.F_BLOCKS
    step = max(1, BATCHES // blocks)
    with on_device_of(x):
        for first in range(0, B, step):
            grid = (-(-tiles // tiles_per_program), min(step, B - first) * blocks)
            _launch(grid, (nodes, weight, y, z, sums, T, tiles_per_program, first), sizes)


def _joined(x: Tensor | None) -> Tensor | None:
    """Nodes (B, T, ...) of a batch as those of one graph, (1, B T, ...), in the same memory."""
    if x is None:
        return None
    return x.flatten(0, 1).unsqueeze(0)


def _launch(grid: tuple[int, int], arguments: tuple[Any, ...], sizes: ProjectionSizes) -> None:
    triton_features.project[grid](*arguments, SIZES=sizes, num_warps=4, num_stages=2)


def _sizes(x: Tensor, F: int, has_products: bool) -> ProjectionSizes:
    """Sizes of a projection of nodes (B, T, H, D), whose products need 16 of each axis."""
    H, D = x.shape[2:]
    precision = "tf32x3"
    if x.dtype == torch.float64:
        precision = "ieee"
    block = min(max(16, triton.next_power_of_2(D)), MOST)
    feature_block = min(max(16, triton.next_power_of_2(F)), FEATURES)
    d_blocks = -(-D // block)
    if has_products:
        d_blocks = 1
    return ProjectionSizes(
        H=H,
        D=D,
        F=F,
        BT=NODES[x.dtype.itemsize],
        BD=block,
        BF=feature_block,
        D_BLOCKS=d_blocks,
        F_BLOCKS=-(-F // feature_block),
        WIDE=sum_type(x.dtype),
        PRECISION=precision,
    )
