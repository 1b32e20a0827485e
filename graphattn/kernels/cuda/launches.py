"""Launches of Triton kernels over rows of edges: operands, constants, grids."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..arrays import dtype_of_sums
from .row_work import LONG, NUMBERS, Work, heads_at_once

BATCHES = 65535  # most programs along the second axis of a grid
# Numbers of nodes in the registers of a thread, for the edges it has at once; a quarter as many
# where it has features too. Registers and bytes of examples/benchmarks/offline.py chose these.
HELD = 32
# Most rows that a program walks. As many warps as have LONG edges at once, and so few programs on
# a multiprocessor, leave in its L1 what the next row reads: of kNN-16 along a curve, 0.6 of the
# sources with 7 programs, none with 16, or where each has one row.
ROWS = 16
ENOUGH = 1 << 12  # programs; where rows are fewer, each has one


class Strided(NamedTuple):
    """Numbers of nodes or edges (B, N, H, D), and strides, those of nodes in a common unit.

    A tuple that holds such tuples ends with a None. Triton 3.6 makes a tuple's type when it puts a
    number in, constants last and in order: without one behind them, a stride of 1 stays None.
    """

    data: Tensor
    batch: int
    node: int = 0
    head: int = 0


class KernelRows(NamedTuple):
    """Rows of edges: those of ``node`` (n,) have the places ``start .. stop - 1`` in a layout."""

    node: Tensor
    start: Tensor
    stop: Tensor
    other: Tensor  # the other ends of edges
    edge: Tensor


class KernelSizes(NamedTuple):
    """Sizes that a kernel is compiled for; a program has BH heads, and BE edges at a time."""

    H: int
    BH: int
    BE: int
    WIDE: Any
    num_warps: int
    D: int
    BD: int
    DV: int
    BDV: int
    F: int
    BF: int
    ALIGN: int = 1
    GROUP: int = 1
    CAPPED: bool = False
    SUMMED: bool = False


def word_of(query: Tensor, dropout_p: float, seed: Tensor | None) -> Tensor | None:
    """The seed of dropout, on the device of the queries; None without dropout."""
    if dropout_p <= 0:
        return None
    if seed is None:
        return query.new_zeros((), dtype=torch.int64)
    return seed.to(query.device)


def as_sums(x: Tensor | None, like: Tensor) -> Tensor | None:
    """Contiguous, in the dtype of sums over nodes ``like``."""
    if x is None:
        return None
    return x.detach().to(dtype_of_sums(like)).contiguous()


def contiguous_rows(x: Tensor) -> Tensor:
    """Nodes whose rows are contiguous."""
    x = x.detach()
    if x.stride(-1) == 1:
        return x
    return x.contiguous()


def strided(*nodes: Tensor) -> tuple[int, list[Strided]]:
    """A divisor of the strides of nodes, known to the compiler, and nodes with strides in it."""
    rows = [contiguous_rows(x) for x in nodes]
    unit = math.gcd(16, *(stride for x in rows for stride in x.stride()[:3]))
    return unit, [Strided(x, *(stride // unit for stride in x.stride()[:3])) for x in rows]


def room_for(result: Any, like: Tensor, *shape: int) -> Any:
    """Memory for sums, if their result is requested."""
    if result is None:
        return None
    return like.new_empty(shape, dtype=dtype_of_sums(like))


def sum_type(dtype: torch.dtype) -> Any:
    """Triton's type of sums."""
    if dtype == torch.float64:
        return tl.float64
    return tl.float32


def sizes_of(dtype: torch.dtype, heads: int, *, D: int = 0, DV: int = 0, F: int = 0) -> KernelSizes:
    """Sizes for sums of a dtype, heads and widths: heads and edges per program, warps."""
    block, value_block, feature_block = (triton.next_power_of_2(max(1, w)) for w in (D, DV, F))
    per_program = heads_at_once(heads, D, DV, F, numbers=NUMBERS)
    numbers = max(block, value_block, feature_block) * per_program
    per_thread = HELD
    most_warps = 8
    if F:
        per_thread //= 4
        most_warps = 4
    if dtype == torch.float64:
        per_thread //= 4
    warps = max(1, min(most_warps, numbers * LONG // (32 * HELD)))
    edges = max(1, min(LONG, per_thread * 32 * warps // numbers))
    return KernelSizes(
        heads,
        per_program,
        edges,
        sum_type(dtype),
        warps,
        D,
        block,
        DV,
        value_block,
        F,
        feature_block,
    )


def walk_rows(
    kernel: Any,
    work: Work,
    batch: int,
    arguments: tuple[Any, ...],
    rest: tuple[Any, ...],
    sizes: KernelSizes,
) -> None:
    """Programs that each walk neighbouring rows, which along a curve share sources in L1."""
    rows = work.node.numel()
    blocks = -(-sizes.H // sizes.BH)
    rows_per_program = max(1, min(ROWS, rows * batch * blocks // ENOUGH))
    programs = -(-rows // rows_per_program)
    launch_rows(kernel, work, batch, arguments, (rows, *rest), sizes, programs)


def launch_rows(
    kernel: Any,
    work: Work,
    batch: int,
    arguments: tuple[Any, ...],
    rest: tuple[Any, ...],
    sizes: Any,
    programs: int | None = None,
) -> None:
    """A program for each row and block of heads, for as many batch elements as a grid can have."""
    if programs is None:
        programs = work.node.numel()
    blocks = -(-sizes.H // sizes.BH)
    if programs * batch * blocks == 0:
        return
    sizes = sizes._replace(BE=min(work.block, sizes.BE))
    step = max(1, BATCHES // blocks)
    with on_device_of(work.node):
        for first in range(0, batch, step):
            grid = (programs, min(step, batch - first) * blocks)
            kernel[grid](*arguments, first, *rest, SIZES=sizes, num_warps=sizes.num_warps)


def on_device_of(x: Tensor) -> AbstractContextManager[Any]:
    if not x.is_cuda or x.get_device() == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(x.device)
