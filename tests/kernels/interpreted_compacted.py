"""Tiles with compacted sources in Triton's interpreter, judged as every backend is.

A process of its own: Triton decides at its import whether it interprets. ``python
interpreted_compacted.py GRAPH ...`` prints one JSON object: for each graph of the shared table and
each dtype, the largest error of an output or a gradient over what
:mod:`graphattn.exactness.bounds` allows, and how many were measured.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # pytest imports every file for its doctests, in a process that compiles
    os.environ["TRITON_INTERPRET"] = "1"
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "gpu")]

import numpy as np
import torch
from graph_table import GRAPHS
from interpreted import as_index

from graphattn.backends import tiles, tiles_compacted
from graphattn.exactness.measure import measure
from graphattn.exactness.operator import GraphSubject
from graphattn.exactness.pieces import sample
from graphattn.kernels import compacted, compacted_triton
from graphattn.plans import compacted as plans

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
CUDA = torch.device("cuda", 0)


def with_bfloat16() -> None:
    """Let the interpreter multiply matrices of bfloat16, which it takes for integers."""
    from triton.runtime import interpreter

    before = interpreter.InterpreterBuilder.create_dot

    def widened(x: Any) -> Any:
        if x.dtype.scalar != interpreter.tl.bfloat16:
            return x
        bits = x.data.view(np.uint16).astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), interpreter.tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return before(self, widened(a), widened(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


def as_on_cuda() -> None:
    """Run tiles by the kernels, where a call on CUDA would have no reason against them."""
    tiles_compacted.without_kernels = lambda device: []
    compacted.compacted_attention.register_kernel("cpu")(compacted_triton.forward)
    compacted.compacted_attention_backward.register_kernel("cpu")(compacted_triton.backward)
    gathered = tiles.tiles_run

    def run(graph: Any, inputs: Any, weights: bool, lse: bool) -> Any:
        request = tiles.Request.of(inputs, weights, lse)._replace(device=CUDA)
        if tiles_compacted.reasons_against(graph, request):
            return gathered(graph, inputs, weights, lse)
        ran.append(graph.name)
        return tiles_compacted.compacted_run(graph, inputs, lse)

    tiles.tiles_run = run


ran: list[str | None] = []


def main(names: list[str]) -> None:
    """The worst of each graph and dtype."""
    as_index()
    with_bfloat16()
    as_on_cuda()
    compacted_triton.COLUMNS = dict.fromkeys((2, 4, 8), 16)  # several blocks of a tile's columns
    told: dict[str, Any] = {}
    sizes = plans.SIZES
    for i, name in enumerate(names):
        plans.SIZES = sizes[i % 3 : i % 3 + 1]
        graph = GRAPHS[name]()
        start = time.process_time()
        for dtype in DTYPES:
            ran.clear()
            subject = GraphSubject(graph, heads=(4, 2), widths=(5, 7))
            rows = measure(subject, [sample(graph)], (dtype,), ("tiles",)).rows
            worst = max((row.ratio for row in rows), default=0.0)
            told[f"{name}, {dtype}"] = worst, len(rows), len(ran)
        print(name, f"{time.process_time() - start:.1f} s", file=sys.stderr)
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:] or list(GRAPHS))
