# mypy: allow-incomplete-defs
"""Farthest points on a GPU: a program for each cloud makes all of its choices in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_AT_ONCE = 4096  # most points of a program at once


@triton.jit(do_not_specialize=["N"])
def _choose(
    PLACE,
    POINT,
    START,
    CHOICE,
    LEAST,
    CHOSEN,
    N,
    AXES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Choices of cloud ``program_id(0)``, the points ``POINT[cloud] .. POINT[cloud + 1] - 1``.

    PLACE float64 (AXES, N); CHOICE bounds each cloud's part of CHOSEN; LEAST (N,) is infinite at
    first.
    """
    cloud = tl.program_id(0)
    first = tl.load(POINT + cloud)
    size = (tl.load(POINT + cloud + 1) - first).to(tl.int32)
    begin = tl.load(CHOICE + cloud)
    count = (tl.load(CHOICE + cloud + 1) - begin).to(tl.int32)
    current = tl.load(START + cloud).to(tl.int32)
    e = tl.arange(0, BLOCK)
    for i in range(0, count):
        tl.store(CHOSEN + begin + i, first + current)
        best = tl.full((), -3.0, tl.float64)
        farthest = tl.full((), 0, tl.int32)
        for j in range(0, size, BLOCK):
            live = j + e < size
            squared = tl.zeros((BLOCK,), tl.float64)
            for axis in range(0, AXES):
                row = PLACE + axis * N.to(tl.int64) + first
                place = tl.load(row + j + e, mask=live, other=0.0)
                difference = place - tl.load(row + current)
                squared += difference * difference
            least = tl.load(LEAST + first + j + e, mask=live, other=0.0)
            least = tl.minimum(least, squared)
            least = tl.where(j + e == current, -1.0, least)  # for good
            tl.store(LEAST + first + j + e, least, mask=live)
            least = tl.where(live, least, -2.0)
            largest = tl.max(least, 0)
            which = j + tl.argmax(least, 0, tie_break_left=True)
            farthest = tl.where(largest > best, which, farthest)
            best = tl.maximum(largest, best)
        current = farthest
        tl.debug_barrier()  # LEAST is read again


def choose(
    points: Tensor,
    sizes: list[int],
    counts: list[int],
    starts: Tensor,
) -> Tensor:
    """int64 (sum of counts,): choices of consecutive clouds, without waiting for the device.

    Args:
        points: (N, d) of all clouds.
        sizes: Points of each cloud.
        counts: Choices in each.
        starts: int64 (clouds,), the first choice in each, counted within it.
    """
    device = points.device
    place = points.double().t().contiguous()
    bounds = [
        torch.tensor([0, *number], dtype=torch.int64).cumsum(0).to(device, non_blocking=True)
        for number in (sizes, counts)
    ]
    chosen = torch.empty(sum(counts), dtype=torch.int64, device=device)
    least = torch.full(points.shape[:1], torch.inf, dtype=torch.float64, device=device)
    block = min(_AT_ONCE, max(32, triton.next_power_of_2(max(sizes, default=1))))
    if sizes:
        # a fused multiply-add would round otherwise than the CPU does
        options = {"num_warps": max(1, min(16, block // 128)), "enable_fp_fusion": False}
        arguments = (place, bounds[0], starts, bounds[1], least, chosen, points.shape[0])
        with torch.cuda.device_of(points):
            _choose[(len(sizes),)](*arguments, AXES=points.shape[1], BLOCK=block, **options)
    return chosen
