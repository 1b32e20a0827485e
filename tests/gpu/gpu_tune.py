"""Constants of the edge kernels, varied: edges that a thread holds, warps of a program,
registers of a thread. The sizes of tiles with compacted sources are among the figures."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpu_figures
import torch

from graphattn.backends.device import without_kernels

#: HELD and ROWS of ``kernels/cuda/launches.py``, or constants of every launch.
VARIANTS: dict[str, dict[str, int]] = {
    "as it is": {},
    "HELD 16": {"HELD": 16},
    "HELD 64": {"HELD": 64},
    "1 row": {"ROWS": 1},
    "4 rows": {"ROWS": 4},
    "64 rows": {"ROWS": 64},
    "1 warp, 1 row": {"num_warps": 1, "ROWS": 1},
    "2 warps": {"num_warps": 2},
    "4 warps": {"num_warps": 4},
    "8 warps": {"num_warps": 8},
}
SHAPES = ("anemoi, h_to_h", "kNN-16, a million")


def measured(shape: str, variant: str, device: torch.device) -> dict[str, Any]:
    """Times of the edge kernels of a shape."""
    row: dict[str, Any] = {"shape": shape, "variant": variant}
    reasons = without_kernels(device)
    if device.type != "cuda" or reasons:
        return row | {"left_out": list(reasons) or ["no Triton kernels run on a CPU"]}
    with varied(VARIANTS[variant]):
        call, leaves, grad = gpu_figures.edges_call(shape, device)
        row["norm"] = call().float().norm().item()  # one number for all variants that are right
        return row | gpu_figures.times(call, leaves, grad, device)


@contextmanager
def varied(variant: dict[str, int]) -> Iterator[None]:
    """Kernels launched with other sizes."""
    from graphattn.kernels.cuda import launches
    from graphattn.kernels.softmax import passes as edges_triton

    before = edges_triton.sizes_of
    options = {name: getattr(launches, name) for name in ("HELD", "ROWS")}
    launch = {name: value for name, value in variant.items() if name not in options}
    for name in options:
        setattr(launches, name, variant.get(name, options[name]))

    def sizes(*heads: Any, **widths: int) -> launches.KernelSizes:
        return before(*heads, **widths)._replace(**launch)

    edges_triton.sizes_of = sizes
    try:
        yield
    finally:
        edges_triton.sizes_of = before
        for name, value in options.items():
            setattr(launches, name, value)
