"""This machine's rates: what each backend takes for a unit of its work, measured in seconds."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..attention import attention
from ..backends import BACKENDS
from ..backends.check import check
from ..backends.rates import Rates
from ..backends.request import Request
from ..graph import AttentionGraph
from ..graphs import sliding_window

HEADS, WIDTH = 4, 32


def calibrate(progress: Callable[[str], None] = lambda what: None) -> Rates:
    """Measure each backend on its :meth:`~graphattn.backends.Backend.problems`, float32 on the CPU; takes seconds.

    Args:
        progress: Called with what is measured next, in words.

    Returns:
        The rates of every backend that has problems of its own and runs here, with torch's number of threads.
    """
    rates: Rates = {}
    few = sliding_window(16, 5).explicit()
    for name, backend in BACKENDS.items():
        problems = backend.problems()
        if not problems or backend.reasons_against(few, _request(few, {})):
            continue
        progress(f"a call of {name}")
        rates[name] = own = {"call_ms": max(1e-6, _milliseconds(few, name, {}))}
        for graph, options in problems:
            request = _request(graph, options)
            kind, units = backend.work(graph, request)
            progress(f"{name}, {kind}")
            forward = _milliseconds(graph, name, options)
            spent = max(0.1 * forward, forward - own["call_ms"])
            own[kind] = spent * 1e6 / units / request.floats_per_pair
            if "training_factor" not in own:
                ratio = _milliseconds(graph, name, options, backward=True) / forward
                own["training_factor"] = min(6.0, max(2.0, ratio))  # beyond is disturbance
    return rates


def _tensors(graph: AttentionGraph) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(n, HEADS, WIDTH, generator=draw) for n in (graph.num_targets, graph.num_sources, graph.num_sources)
    )
    return query, key, value


def _request(graph: AttentionGraph, options: dict[str, Any]) -> Request:
    query, key, value = _tensors(graph)
    return check(query, key, value, graph, **options).request()


def _milliseconds(graph: AttentionGraph, backend: str, options: dict[str, Any], backward: bool = False) -> float:
    """The shortest of several calls, after one that makes plans and compiles: what the machine can do undisturbed."""
    inputs = [x.requires_grad_(backward) for x in _tensors(graph)]

    def call() -> None:
        output = attention(inputs[0], inputs[1], inputs[2], graph, backend=backend, **options)
        assert isinstance(output, Tensor)
        if backward:
            torch.autograd.grad(output, inputs, torch.ones_like(output))

    call()
    taken: list[float] = []
    while len(taken) < 5 or (len(taken) < 21 and sum(taken) < 0.3):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return 1e3 * min(taken)
