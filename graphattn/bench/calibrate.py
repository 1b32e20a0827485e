"""This machine's rates: what each backend takes for a unit of its work, measured in seconds."""

import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch

from ..attention import attention
from ..backends.rates import Rates
from ..graph import AttentionGraph
from ..graphs import full, sliding_window
from ..plans.blocks import survey
from ..plans.grouped import effective_edges

HEADS, WIDTH = 4, 32
NUMBERS = HEADS * 2 * WIDTH


def calibrate(progress: Callable[[str], None] = lambda what: None) -> Rates:
    """Measure the rates of :class:`Rates`, float32 on the CPU with torch's number of threads; takes seconds.

    Args:
        progress: Called with what is measured next, in words.
    """
    some = sliding_window(1024, 511, causal=False)
    window = sliding_window(4096, 257, causal=False)
    listed = sliding_window(8192, 65, causal=False).explicit()
    near = sliding_window(1024, 17).explicit()
    work = {
        "full": (full(1024), "dense", {}, 1024**2),
        "masked": (some, "dense", {}, 1024**2),
        "written": (full(512), "dense", {"softcap": 50.0}, 512**2),
        "tiles": (window, "tiles", {}, survey(window).work),
        "edges": (listed, "edges", {}, effective_edges(listed.num_edges, listed.num_targets)),
        "message_passing": (near, "message_passing", {}, near.num_edges),
    }
    found = {}
    few = sliding_window(16, 5).explicit()
    for backend in ("dense", "tiles", "edges", "message_passing"):
        progress(f"a call of {backend}")
        found[f"{backend}_call"] = max(1e-6, _milliseconds(few, backend, {}))
    for name, (graph, backend, options, units) in work.items():
        progress(f"{name} ({backend})")
        forward = _milliseconds(graph, backend, options)
        spent = max(0.1 * forward, forward - found[f"{backend}_call"])
        found[name] = spent * 1e6 / units / NUMBERS
        if name in ("masked", "tiles", "edges", "message_passing"):
            ratio = _milliseconds(graph, backend, options, backward=True) / forward
            found[f"{backend}_training"] = min(6.0, max(2.0, ratio))  # beyond is disturbance
    return Rates(**{field.name: found[field.name] for field in fields(Rates)})


def _milliseconds(graph: AttentionGraph, backend: str, options: dict[str, Any], backward: bool = False) -> float:
    """The shortest of several calls, after one that makes plans and compiles: what the machine can do undisturbed."""
    draw = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(n, HEADS, WIDTH, generator=draw).requires_grad_(backward)
        for n in (graph.num_targets, graph.num_sources, graph.num_sources)
    ]

    def call() -> None:
        output = attention(inputs[0], inputs[1], inputs[2], graph, backend=backend, **options)
        assert isinstance(output, torch.Tensor)
        if backward:
            torch.autograd.grad(output, inputs, torch.ones_like(output))

    call()
    taken: list[float] = []
    while len(taken) < 5 or (len(taken) < 21 and sum(taken) < 0.3):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return 1e3 * min(taken)
