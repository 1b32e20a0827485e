"""How much longer the backend that ``auto`` takes is than the quickest, forward and in a step of
training: ``python choice.py``, 90 s on one thread.
"""

from statistics import geometric_mean

import torch

import graphattn as ga
from graphattn import graphs
from graphattn.bench import compare
from graphattn.bench.peers import MODES

WIDTHS = (16, 32, 64, 128)
TURNS = 3
GRAPHS = {
    "full": graphs.full(512),
    "full, 2,048": graphs.full(2048),
    "causal": graphs.causal(1024),
    "causal, 64": graphs.causal(64),
    "window 9": graphs.sliding_window(4096, 9, causal=True),
    "window 33": graphs.sliding_window(4096, 33, causal=True),
    "window 129": graphs.sliding_window(4096, 129, causal=True),
    "window 513": graphs.sliding_window(4096, 513, causal=True),
    "dilated window": graphs.sliding_window(2048, 33, causal=True, dilation=4),
    "documents": graphs.documents(torch.arange(64).repeat_interleave(64), causal=True),
    "prefix": graphs.prefix(1500, 200),
    "neighbourhood": graphs.grid_neighbourhood((48, 48), 7, causal=False),
    "Longformer": graphs.sliding_window(2048, 129, causal=False)
    | graphs.global_tokens(2048, (0, 1, 2, 3)),
    "BigBird": graphs.sliding_window(2048, 65, causal=False)
    | graphs.random_neighbours(2048, 16, seed=1),
    "random": graphs.random_neighbours(2048, 32, seed=1),
    "kNN-16": graphs.knn(torch.randn(4096, 3, generator=torch.Generator().manual_seed(0)), 16),
    "cross": graphs.cross(300, 700),
    "star": graphs.global_tokens(1000, [0]) | graphs.self_loops(1000),
}


def ratios(name, width):
    """Times of ``auto`` over the least of any backend, forward and with backward; those above 1.1
    are printed.
    """
    graph = GRAPHS[name]
    sizes = {"heads": min(4, 256 // width), "head_dim": width}
    near = set()
    for trains in (False, True):
        with torch.set_grad_enabled(trains):
            told = ga.explain(graph, **sizes)
        costs = {c.name: c.cost for c in told.candidates if c.runs}
        near |= {backend for backend, cost in costs.items() if cost < 5 * costs[told.chosen]}
    rows = compare(graph, peers=near, repeats=TURNS, **sizes).rows
    for mode in MODES:
        times = {row.name: row.median(mode) for row in rows}
        found = times["auto"] / min(times.values())
        if found > 1.1:
            listed = ", ".join(f"{backend} {ms:.2f} ms" for backend, ms in times.items())
            print(f"{name}, {width}, {mode}: {found:.2f} times the least: {listed}")
        yield found


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = [ratio for name in GRAPHS for width in WIDTHS for ratio in ratios(name, width)]
    print(f"mean {geometric_mean(found):.3f}, worst {max(found):.2f}, of {len(found)} choices")
