"""Compiles the Triton kernels for GPUs that are not there, and tells what each of them takes.

``python examples/benchmarks/offline.py`` adds to the table what it lacks of :data:`STEPS` on
:data:`ARCHITECTURES`, which takes minutes; without the file it makes all anew.
``tests/kernels/cuda/test_edges_triton.py`` reads it.
"""

import itertools
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "examples" / "benchmarks" / "edges_triton.json"
ARCHITECTURES = (80, 90, 100)
ATTENTION = ("forward", "hub_weights", "merge", "edge_products", "edge_sums", "backward")
KERNELS = (*ATTENTION, "project", "scores", "passed_back", "to_weights")
COMPACTED = ("of_tiles", "of_targets", "of_sources")


class Absent:
    """The driver of a GPU that is not there: Triton asks it what to compile for, and nothing is
    launched.
    """

    def __init__(self, architecture: int) -> None:
        self.target = GPUTarget("cuda", architecture, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return self.target.arch

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def compiled(architecture: int, call: Callable[[], Any]) -> list[dict[str, Any]]:
    """What each kernel that a call of the operators would launch takes, specialised as it would
    be.
    """
    from graphattn.kernels.softmax import triton as triton_softmax

    made: dict[str, Any] = {}

    def only_compile(kernel: Any, grid: Any) -> Callable[..., None]:
        def run(*arguments: Any, **constants: Any) -> None:
            code = kernel.warmup(*arguments, grid=grid, **constants)
            made[code.hash] = code

        return run

    kernel_type = type(triton_softmax.forward)
    before = kernel_type.__getitem__
    driver.set_active(Absent(architecture))
    kernel_type.__getitem__ = only_compile
    try:
        call()
    finally:
        kernel_type.__getitem__ = before
        driver._active = None
    return sorted(
        (measured(code) for code in made.values()), key=lambda row: list(map(str, row.values()))
    )


def measured(code: Any) -> dict[str, Any]:
    """Registers of a thread, bytes of its stack, where what finds no register goes; shared bytes;
    loads.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code.asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        told = subprocess.run(
            [str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    usage, ptx = (
        {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", told)},
        code.asm["ptx"],
    )
    return {
        "kernel": code.metadata.name,
        "warps": code.metadata.num_warps,
        "occupancy": occupancy(code.metadata.num_warps, usage["REG"], code.metadata.shared),
        "registers": usage["REG"],
        "stack": usage["STACK"] + usage["LOCAL"],
        "shared": code.metadata.shared,
        "loads": len(re.findall(r"\bld\.global", ptx)),
        "loads of 16 bytes": len(
            re.findall(r"\bld\.global\S*\.v4\.[bf]32|\bld\.global\S*\.v2\.[bf]64", ptx)
        ),
        "atomics": len(re.findall(r"\b(?:atom|red)\.", ptx)),
    }


def occupancy(warps: int, registers: int, shared: int) -> float:
    """The share of a multiprocessor's 64 warps that run: of sm_80, 90 and 100, which have 65,536
    registers, at least 160 KiB of shared memory and 32 programs.
    """
    of_program = 32 * warps * -(-max(1, registers) // 8) * 8
    programs = min(32, 64 // warps, 65_536 // of_program, 163_840 // max(1, shared + 1024))
    return round(programs * warps / 64, 2)


def rows(hubs: bool) -> tuple[torch.Tensor, ...]:
    """Edges by target, in rows of all lengths, or with ``hubs`` of long ones."""
    from graphattn.kernels.cuda import row_work

    pieces = 4 * row_work.PIECE
    degree = torch.tensor([pieces] * 128 if hubs else [3] * 40 + [32] * 87 + [pieces])
    ptr = torch.nn.functional.pad(degree.cumsum(0), (1, 0))
    edge = torch.arange(int(ptr[-1]), dtype=torch.int32)
    return ptr, edge % degree.numel(), edge, torch.arange(degree.numel(), dtype=torch.int32)


def additive(
    groups: int, weights: int, width: int, *, smooth: bool = False, hubs: bool = False
) -> None:
    """Additive scores and their gradients, float32: vector attention has one group and a weight for
    each head.
    """
    from graphattn.kernels.additive import gpu as additive_triton

    layout = rows(hubs)
    node, of_edges = (
        torch.zeros(1, 128, groups, width),
        torch.zeros(1, layout[2].numel(), groups, width),
    )
    grad = torch.zeros(1, layout[2].numel(), groups * weights)
    given = (
        node,
        node,
        of_edges,
        torch.zeros(groups, weights, width),
        math.nan if smooth else 0.2,
        *layout,
        *layout,
    )
    additive_triton.edge_additive(*given)
    additive_triton.edge_additive_backward(*given, grad)


def projections(heads: int, width: int, dtype: torch.dtype) -> None:
    """Queries of 16 edge features, and the gradient of their projection."""
    from graphattn.kernels.softmax.gpu import Shares, project

    nodes = torch.zeros(1, 128, heads, width, dtype=dtype)
    weight = torch.zeros(heads, 16, width, dtype=dtype)
    queries = torch.zeros(1, 128, heads, 16, dtype=torch.promote_types(dtype, torch.float32))
    project(nodes, weight, queries, None, None)
    project(nodes, weight, queries, queries, Shares(weight.transpose(1, 2)))


def step(
    heads: int,
    width: int,
    dtype: torch.dtype,
    *,
    everything: bool = False,
    features: bool = False,
    hubs: bool = False,
) -> None:
    """A forward and a backward of attention on rows of all lengths, with all that they may be
    asked.

    Else without anything but edge ``features``, and the operators of other normalisations; with
    ``hubs`` on long rows alone.
    """
    from graphattn.kernels.softmax import gpu as attention_triton
    from graphattn.kernels.softmax import passes as edges_triton

    layout = rows(hubs)
    T, E = layout[3].numel(), layout[2].numel()
    node, wide = (
        torch.zeros(1, T, heads, width, dtype=dtype),
        torch.promote_types(dtype, torch.float32),
    )
    extra: tuple[torch.Tensor | None, ...] = (None, None, None)
    options: tuple[Any, ...] = (0.5, 0.0, 0.0, "both", None)
    if everything or features:
        attr = torch.zeros(1, E, 16, dtype=dtype)
        extra = (None, attr, torch.zeros(heads, width, 16, dtype=dtype))
    if everything:
        extra = (torch.zeros(1, E, heads, dtype=dtype), *extra[1:])
        options = (0.5, 2.0, 0.1, "both", torch.tensor(5))
    given = (node, node, node, *extra, *layout, *layout, *options)
    output, lse, weights, *kept = attention_triton.forward(*given, everything, everything)
    if not everything:
        lse = None
        weights = None
    attention_triton.backward(*given, *kept, output, lse, weights)
    if not everything:
        edges_triton.edge_products(node, node, None, *layout)
    if not everything and not hubs:
        of_edges = torch.zeros(1, E, heads, dtype=wide)
        edges_triton.edge_weights_backward(*(of_edges,) * 2, node[..., 0].to(wide), *layout)
        edges_triton.edge_weights(of_edges, *layout)


def compacted(
    heads: int, width: int, dtype: torch.dtype, tile: int, *, everything: bool = False
) -> None:
    """A forward and a backward on tiles of so many targets with compacted sources.

    With all that they may be asked: a bias, a softcap and dropout.
    """
    from graphattn.kernels.tiles import gpu as compacted_triton
    from graphattn.plans.compacted import Compacted

    T, columns = 4 * tile, 128
    wide = torch.promote_types(dtype, torch.float32)
    node = torch.zeros(1, T, heads, width, dtype=dtype)
    kind = torch.int64 if tile > 32 else torch.int32
    column = torch.zeros(4 * columns, dtype=torch.int32)
    tiles = Compacted(tile, torch.arange(0, 4 * columns + 1, columns), column, column.to(kind))
    bias, edges, options = None, (None,) * 4, (0.5, 0.0, 0.0, None)
    if everything:
        bias = torch.zeros(1, 16 * T, heads, dtype=wide)
        edges = (torch.arange(0, 16 * T + 1, 16), torch.arange(16 * T, dtype=torch.int32)) * 2
        options = (0.5, 2.0, 0.1, torch.tensor(5))
    given = (node, node, node, bias, *tiles, *tiles, *edges, *options)
    output, lse = compacted_triton.forward(*given)
    compacted_triton.backward(*given, output, lse, output, lse)


#: What the table tells of: heads, width, dtype; ``+`` with bias, features, cap and dropout.
STEPS: dict[str, Callable[[], None]] = {
    f"{heads} x {width} {str(dtype).removeprefix('torch.')}{' +' * more}": partial(
        step, heads, width, dtype, everything=more
    )
    for heads, width, dtype, more in (
        (8, 32, torch.bfloat16, False), (8, 32, torch.bfloat16, True), (16, 64, torch.float16, False),
        (16, 64, torch.float16, True), (4, 32, torch.float32, True), (3, 20, torch.float32, False),
        (4, 256, torch.bfloat16, False), (4, 32, torch.float64, True),
    )
}  # fmt: skip
STEPS |= {
    "16 x 64 float16 features": partial(step, 16, 64, torch.float16, features=True),
    "vectors of 64 by 8": partial(additive, 1, 8, 64),
    "vectors of 512 by 64": partial(additive, 1, 64, 512),
    "additive, 8 x 32": partial(additive, 8, 1, 32, smooth=True),
}
STEPS |= {
    f"tiles of {tile}, {heads} x {width} {str(dtype).removeprefix('torch.')}{' +' * more}": partial(
        compacted, heads, width, dtype, tile, everything=more
    )
    for heads, width, dtype, more in (
        (8, 32, torch.bfloat16, False), (16, 64, torch.float16, False), (16, 64, torch.float16, True),
        (4, 128, torch.bfloat16, False), (4, 32, torch.float32, False),
    )
    for tile in (16, 32, 64)
}  # fmt: skip
STEPS["tiles of 32, 4 x 32 float64 +"] = partial(
    compacted, 4, 32, torch.float64, 32, everything=True
)


def main() -> None:
    """Complete the table, and print how many warps run of the kernels that take most time."""
    rows = json.loads(TABLE.read_text("utf-8"))["kernels"] if TABLE.exists() else []
    done = {(row["architecture"], row["step"]) for row in rows}
    for architecture, name in itertools.product(ARCHITECTURES, STEPS):
        if (architecture, name) in done:
            continue
        told = compiled(architecture, STEPS[name])
        rows += [{"architecture": architecture, "step": name, **row} for row in told]
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text(
            f'{{"triton": "{triton.__version__}", "kernels": [\n{lines}\n]}}\n', encoding="utf-8"
        )
        print(architecture, name, flush=True)
    for row in rows:
        if row["kernel"] in ("forward", "backward", "edge_sums", "project"):
            words = (row["architecture"], row["step"], row["kernel"], f"{row['warps']} warps")
            print(*words, f"{row['registers']} registers, {row['occupancy']} of the warps")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
