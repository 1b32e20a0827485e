"""Tiles with compacted sources in Triton's interpreter, judged as every backend is.

A process of its own: Triton decides at its import whether it interprets. ``python
interpreted_compacted.py GRAPH ...`` prints one JSON object: for each graph of the shared table and
each dtype, the largest error of an output or a derivative over what
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

import torch
from graph_table import GRAPHS
from interpreted import as_index, with_bfloat16

from graphattn.backends.tiles import backend as tiles
from graphattn.backends.tiles import compacted as tiles_compacted
from graphattn.exactness.measure import measure
from graphattn.exactness.operator import GraphSubject
from graphattn.kernels.tiles import gpu as compacted_triton
from graphattn.kernels.tiles import operator as compacted
from graphattn.plans import compacted as plans
from graphattn.twins.pieces import sample

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
CUDA = torch.device("cuda", 0)


def as_on_cuda() -> None:
    """Run tiles by the kernels, where a call on CUDA would have no reason against them."""
    tiles_compacted.without_kernels = lambda device: []
    compacted._is_direct = lambda *nodes: True
    gathered = tiles.tiles_run

    def run(graph: Any, inputs: Any, lse: bool) -> Any:
        request = tiles.Request.of(inputs, lse=lse)._replace(device=CUDA)
        if tiles_compacted.reasons_against(graph, request):
            return gathered(graph, inputs, lse)
        ran.append(graph.name)
        return tiles_compacted.compacted_run(graph, inputs, lse)

    tiles.tiles_run = run


ran: list[str | None] = []


def everything() -> dict[str, Any]:
    """The largest error of each result beside the definition's, with all that a call may ask."""
    graph = GRAPHS["hub"]()
    draw = torch.Generator().manual_seed(0)
    sizes = ((graph.num_targets, 6, 5), (graph.num_sources, 3, 5), (graph.num_sources, 3, 7))
    nodes = [torch.randn(2, *size, generator=draw, dtype=torch.float64) for size in sizes]
    bias = torch.randn(1, graph.num_edges, 6, generator=draw, dtype=torch.float64)
    bias[0, ::7, 1:] = -torch.inf
    tables = (
        *plans.tiles_of_targets(graph),
        *plans.tiles_of_sources(graph),
        *plans.edges_of_rows(graph),
    )
    call = (*nodes, bias, *tables, -0.4, 1.7, 0.3, torch.tensor(2**62 + 5))
    results = []
    for forward, backward in (
        (compacted_triton.forward, compacted_triton.backward),
        (compacted.compacted_attention, compacted.compacted_attention_backward),
    ):
        outputs = forward(*call)
        again = torch.Generator().manual_seed(1)
        grads = [torch.randn(x.shape, generator=again, dtype=x.dtype) for x in outputs]
        results.append((*outputs, *backward(*call, *outputs, *grads)))
    names = ("output", "lse", "query", "key", "value", "bias")
    told = {}
    for name, found, wanted in zip(names, *results, strict=True):
        there = wanted.isfinite()
        assert torch.equal(there, found.isfinite())
        error = float((found - wanted)[there].abs().max()) / 1e-12
        told[f"everything, {name}"] = error, int(there.sum()), 1
    return told


def main(names: list[str]) -> None:
    """The worst of each graph and dtype."""
    as_index()
    with_bfloat16()
    told = everything()
    as_on_cuda()
    compacted_triton.COLUMNS = dict.fromkeys((2, 4, 8), 16)  # several blocks of a tile's columns
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
