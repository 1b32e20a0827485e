"""The choice of a backend on sixty graphs, every kind at four sizes: its time over that of the
best.
"""

import time
from collections.abc import Iterator
from functools import partial

import torch
from shapes import SHAPES, near_points

from graphattn.backends import BACKENDS
from graphattn.backends.choose import choose
from graphattn.bench.peers import AttentionCall, OwnBackend
from graphattn.bench.timing import quartiles
from graphattn.graph import AttentionGraph
from graphattn.graphs import documents, expander, random_regular, sliding_window, tree

SIZES = (64, 256, 1_024, 4_096)
HOPELESS = 4  # times the estimate of the best: such a backend is not timed


def _documents(size: int) -> AttentionGraph:
    lengths = [size // 2, size // 4, size // 8]
    return documents(lengths=(*lengths, size - sum(lengths)), causal=True)


MAKERS = {
    **{
        name: SHAPES[name].make
        for name in (
            "knn16",
            "mesh",
            "window",
            "longformer",
            "bigbird",
            "swin",
            "full",
            "causal",
            "power_law",
        )
    },
    "knn8_shuffled": partial(near_points, k=8, along_curve=False),
    "window33": lambda n: sliding_window(n, 33, causal=True),
    "documents": _documents,
    "regular": lambda n: random_regular(n, 6),
    "expander": lambda n: expander(n, 12),
    "tree": lambda n: tree(
        torch.arange(-1, n - 1).div(2, rounding_mode="floor").clamp(min=-1), self_loops=True
    ),
}


def choices(seconds: float = 1.0) -> Iterator[tuple[str, float]]:
    """Of each graph a line, and the chosen backend's time over the best's: the geometric mean of
    both modes.
    """
    for size in SIZES:
        for name, make in MAKERS.items():
            chosen, ms = times_on(make(size), seconds)
            means = {backend: (forward * both) ** 0.5 for backend, (forward, both) in ms.items()}
            over_best = means[chosen] / min(means.values())
            told = ", ".join(
                f"{backend} {forward:.3g} / {both:.3g} ms"
                for backend, (forward, both) in ms.items()
            )
            yield (
                f"choice on {name} {size}: {chosen} takes {over_best:.3g} of the best ({told})",
                over_best,
            )


def times_on(graph: AttentionGraph, seconds: float) -> tuple[str, dict[str, tuple[float, float]]]:
    """The chosen backend, and medians of those that may be the best, each in turn: forward, with
    backward.
    """
    problem = AttentionCall(graph)
    request, inputs = problem.request(), problem.inputs()
    leaves, grad = [x.requires_grad_() for x in inputs[:3]], inputs[3]
    chosen = choose(graph, request)
    likely = {
        n: b.cost_ms(graph, request)
        for n, b in BACKENDS.items()
        if not b.reasons_against(graph, request)
    }
    most, until = HOPELESS * min(likely.values()), time.monotonic() + seconds
    peers = [OwnBackend(name) for name, ms in likely.items() if ms <= most or name == chosen]
    calls = {peer.name: peer.prepare(problem, *leaves) for peer in peers}
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in calls}
    turn = -2  # two turns are not counted: plans and programs are made in them
    while turn < 3 or (turn < 15 and time.monotonic() < until):
        for name, call in calls.items():
            start = time.perf_counter()
            with torch.no_grad():
                call()
            middle = time.perf_counter()
            torch.autograd.grad(call(), leaves, grad)
            end = time.perf_counter()
            if turn >= 0:
                times[name][0].append(1e3 * (middle - start))
                times[name][1].append(1e3 * (end - middle))
        turn += 1
    return chosen, {
        name: (quartiles(forward)[1], quartiles(both)[1]) for name, (forward, both) in times.items()
    }
