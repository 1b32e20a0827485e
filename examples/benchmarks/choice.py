"""How much longer the backend that ``auto`` takes is than the quickest, forward and in a step of
training: ``python choice.py``, a minute on one thread.
"""

import time
from statistics import geometric_mean

import torch

import graphattn as ga
from graphattn import graphs

WIDTHS = (16, 32, 64, 128)
TURNS = 5
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


def best_times(graph, operands, backends):
    """The least time in ms of each backend, in turns."""
    query, key, value = operands
    cotangent = torch.ones_like(query)
    best = dict.fromkeys(backends, float("inf"))
    for _ in range(TURNS):
        for backend in backends:
            start = time.perf_counter()
            output = ga.attention(query, key, value, graph, backend=backend)
            if torch.is_grad_enabled():
                output.backward(cotangent)
            best[backend] = min(best[backend], 1e3 * (time.perf_counter() - start))
    return best


def ratio(name, width, trains):
    """The time of the choice over the least, printed if it is above 1.1."""
    graph = GRAPHS[name]
    heads = min(4, 256 // width)
    sizes = (graph.num_targets, graph.num_sources, graph.num_sources)
    operands = [torch.randn(size, heads, width, requires_grad=True) for size in sizes]
    with torch.set_grad_enabled(trains):
        told = ga.explain(graph, heads=heads, head_dim=width)
        costs = {c.name: c.cost for c in told.candidates if c.runs}
        near = [backend for backend, cost in costs.items() if cost < 5 * costs[told.chosen]]
        times = best_times(graph, operands, near)
    found = times[told.chosen] / min(times.values())
    if found > 1.1:
        passes = "with backward" if trains else "forward"
        all_times = ", ".join(f"{backend} {ms:.2f} ms" for backend, ms in times.items())
        print(
            f"{name}, {width}, {passes}: {told.chosen} takes {found:.2f} times the least: {all_times}"
        )
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = [
        ratio(name, width, trains)
        for name in GRAPHS
        for width in WIDTHS
        for trains in (False, True)
    ]
    print(f"mean {geometric_mean(found):.3f}, worst {max(found):.2f}, of {len(found)} choices")
