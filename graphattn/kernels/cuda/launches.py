"""Launches of Triton kernels over rows of edges: operands, constants, grids."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

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


def dropout_of(dropout_p: float) -> tuple[int, float]:
    """The hash below which a weight is dropped, and the factor of the others."""
    factor = 0.0
    if dropout_p < 1:
        factor = 1.0 / (1.0 - dropout_p)
    return math.ceil(dropout_p * 2**53), factor


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


def strides_of(*nodes: Tensor) -> tuple[int, tuple[int, ...]]:
    """A divisor of the strides of nodes, known to the compiler, and the strides in that unit."""
    strides = [stride for x in nodes for stride in x.stride()[:3]]
    unit = math.gcd(16, *strides)
    return unit, tuple(stride // unit for stride in strides)


def room_for(result: Any, like: Tensor, *shape: int) -> Any:
    """Memory for sums, if their result is requested."""
    if result is None:
        return None
    return like.new_empty(shape, dtype=dtype_of_sums(like))


def constants_of(dtype: torch.dtype, heads: int, **widths: int) -> dict[str, Any]:
    """The constants of a compiled kernel: heads, widths, and rows and edges per program."""
    blocks = {f"B{name}": triton.next_power_of_2(max(1, width)) for name, width in widths.items()}
    most = max(blocks.values())
    per_program = heads_at_once(heads, *widths.values(), numbers=NUMBERS)
    numbers = most * per_program
    per_thread = HELD
    most_warps = 8
    if widths.get("F"):
        per_thread //= 4
        most_warps = 4
    if dtype == torch.float64:
        per_thread //= 4
    warps = max(1, min(most_warps, numbers * LONG // (32 * HELD)))
    edges = max(1, min(LONG, per_thread * 32 * warps // numbers))
    if dtype == torch.float64:
        sum_type = tl.float64
    else:
        sum_type = tl.float32
    return {
        "H": heads,
        **widths,
        **blocks,
        "BH": per_program,
        "BE": edges,
        "WIDE": sum_type,
        "num_warps": warps,
    }


def walk_rows(
    kernel: Any,
    work: Work,
    batch: int,
    arguments: tuple[Any, ...],
    rest: tuple[Any, ...],
    constants: dict[str, Any],
) -> None:
    """Programs that each walk neighbouring rows, which along a curve share sources in L1."""
    rows = work.node.numel()
    blocks = -(-constants["H"] // constants["BH"])
    rows_per_program = max(1, min(ROWS, rows * batch * blocks // ENOUGH))
    launch_rows(
        kernel,
        work,
        batch,
        arguments,
        (rows, rows_per_program, *rest),
        constants,
        -(-rows // rows_per_program),
    )


def launch_rows(
    kernel: Any,
    work: Work,
    batch: int,
    arguments: tuple[Any, ...],
    rest: tuple[Any, ...],
    constants: dict[str, Any],
    rows: int | None = None,
) -> None:
    """A program for each row and block of heads, for as many batch elements as a grid can have."""
    if rows is None:
        rows = work.node.numel()
    blocks = -(-constants["H"] // constants["BH"])
    if rows * batch * blocks == 0:
        return
    constants = constants | {"BE": min(work.block, constants["BE"])}
    step = max(1, BATCHES // blocks)
    with on_device_of(work.node):
        for first in range(0, batch, step):
            kernel[(rows, min(step, batch - first) * blocks)](*arguments, first, *rest, **constants)


def on_device_of(x: Tensor) -> AbstractContextManager[Any]:
    if not x.is_cuda or x.get_device() == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(x.device)
