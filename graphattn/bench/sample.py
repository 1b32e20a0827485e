"""Sixty graphs on which the choice of a backend is judged: every kind at four sizes."""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from ..backends.base import BACKENDS
from ..backends.choose import choose
from ..graph import AttentionGraph
from ..graphs import documents, expander, random_regular, sliding_window, tree
from .clock import quartiles
from .makers import near_points
from .peers.own import Own
from .problem import Problem
from .shapes import SHAPES

SIZES = (64, 256, 1_024, 4_096)
HOPELESS = 4  # times the estimate of the best: such a backend is not timed


def _documents(size: int) -> AttentionGraph:
    lengths = [size // 2, size // 4, size // 8]
    return documents(lengths=(*lengths, size - sum(lengths)), causal=True)


_OWN: dict[str, Callable[[int], AttentionGraph]] = {
    "knn8_shuffled": lambda n: near_points(n, 8, shuffled=True),
    "window33": lambda n: sliding_window(n, 33),
    "documents": _documents,
    "regular": lambda n: random_regular(n, 6),
    "expander": lambda n: expander(n, 12),
    "tree": lambda n: tree(torch.arange(-1, n - 1).div(2, rounding_mode="floor").clamp(min=-1), self_loops=True),
}
_SHARED = ("knn16", "mesh", "window", "longformer", "bigbird", "swin", "full", "causal", "power_law")
_MAKERS = {**{name: SHAPES[name].make for name in _SHARED}, **_OWN}
#: Every graph of the sample: its name, and how it is made.
SAMPLE: tuple[tuple[str, Callable[[], AttentionGraph]], ...] = tuple(
    (f"{name} {size}", partial(make, size)) for name, make in _MAKERS.items() for size in SIZES
)


class Choice(NamedTuple):
    """What was chosen on one graph, and the milliseconds of every backend that was timed: forward, with backward."""

    graph: str
    chosen: str
    ms: dict[str, tuple[float, float]]

    @property
    def over_best(self) -> float:
        """The chosen backend over the best, by the geometric mean of both modes, which is what is chosen by."""
        means = {name: (forward * both) ** 0.5 for name, (forward, both) in self.ms.items()}
        return means[self.chosen] / min(means.values())


def choice_on(number: int, seconds: float) -> Choice:
    """Time every backend that may be the best on a graph of the sample, each in turn: the medians."""
    name, make = SAMPLE[number]
    problem = Problem(make())
    request, leaves = problem.request(), [x.requires_grad_() for x in problem.inputs()[:3]]
    grad = torch.randn_like(leaves[0])
    chosen, likely = choose(problem.graph, request), {}
    for own, backend in BACKENDS.items():
        if not backend.reasons_against(problem.graph, request):
            likely[own] = backend.cost_ms(problem.graph, request)
    most, until = HOPELESS * min(likely.values()), time.monotonic() + seconds
    peers = [Own(own) for own, ms in likely.items() if ms <= most or own == chosen]
    calls = {peer.name: peer.prepare(problem, *leaves) for peer in peers}
    taken: dict[str, tuple[list[float], list[float]]] = {own: ([], []) for own in calls}
    turn = -2  # two turns are not counted: plans and programs are made in them
    while turn < 3 or (turn < 15 and time.monotonic() < until):
        for own, call in calls.items():
            start = time.perf_counter()
            with torch.no_grad():
                call()
            middle = time.perf_counter()
            torch.autograd.grad(call(), leaves, grad)
            end = time.perf_counter()
            if turn >= 0:
                taken[own][0].append(1e3 * (middle - start))
                taken[own][1].append(1e3 * (end - middle))
        turn += 1
    ms = {own: (quartiles(forward)[1], quartiles(both)[1]) for own, (forward, both) in taken.items()}
    return Choice(name, chosen, ms)
