"""This machine's rates: the time of each backend for a unit of its work, measured in seconds."""

import itertools
import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from ..arguments import device as available
from ..backends import BACKENDS
from ..backends.base import in_halves
from ..backends.inputs import inputs_of
from ..backends.rates import Rates, tried
from ..backends.request import Request
from ..functional import attention
from ..graph import AttentionGraph
from ..graphs import sliding_window
from ..operands import HALF
from .peers import AttentionCall
from .timing import timed

HEADS, WIDTH = 4, 32
TRIED = 0.02  # between two ways in half precision, of the norm: one key more of 257 is .06
BATCH = 16  # on CUDA: enough for a large one to be busy


def calibrate(progress: Callable[[str], None] = lambda message: None, device: str = "cpu") -> Rates:
    """Measure each backend on its :meth:`~graphattn.backends.Backend.problems`, in float32.

    It takes seconds.

    Args:
        progress: Called with the next measurement, in words.
        device: "cpu", or "cuda" for the first GPU, where half precision is measured, too, and calls
            are of a batch.

    Returns:
        The rates of every backend that has problems of its own and runs here, with torch's number
        of threads; of its :meth:`~graphattn.backends.Backend.trials` those that agree with dense
        attention there.

    Raises:
        OptionError: If there is no such device here.
    """
    where = available(device, numbers=True)
    with ExitStack() as without:  # kinds of trials, which an earlier calibration may have kept
        for name, backend in BACKENDS.items():
            for kind, _ in backend.trials():
                without.enter_context(tried(name, kind, math.inf))
        return _calibrated(progress, where)


def _calibrated(progress: Callable[[str], None], where: torch.device) -> Rates:
    rates: Rates = {}
    tiny = sliding_window(16, 5, causal=True).materialise().to(where)
    for name, backend in BACKENDS.items():
        problems = backend.problems()
        if not problems or backend.reasons_against(tiny, _request(tiny, {}, where)):
            continue
        progress(f"a call of {name}")
        rates[name] = backend_rates = {"call_ms": max(1e-6, _milliseconds(tiny, name, {}, where))}
        for graph, options in problems:
            graph = graph.to(where)
            request = _request(graph, options, where)
            kind, units = backend.work(graph, request)
            if kind in backend_rates:
                continue
            progress(f"{name}, {kind}")
            forward = _milliseconds(graph, name, options, where)
            work_ms = max(0.1 * forward, forward - backend_rates["call_ms"])
            backend_rates[kind] = work_ms * 1e6 / units / backend.numbers(request, kind)
            if "training_factor" not in backend_rates:
                ratio = _milliseconds(graph, name, options, where, backward=True) / forward
                # beyond is disturbance
                backend_rates["training_factor"] = min(6.0, max(2.0, ratio))
            if where.type == "cuda" and backend.work(
                graph, request._replace(dtype=torch.bfloat16)
            ) == (kind, units):
                halves = _milliseconds(graph, name, options, where, dtype=torch.bfloat16)
                backend_rates[in_halves(kind)] = (
                    max(0.1 * halves, halves - backend_rates["call_ms"]) / work_ms
                )
        for kind, graphs in backend.trials() if where.type == "cuda" else ():
            progress(f"{name}, {kind}")
            graphs = [graph.to(where) for graph in graphs]
            reason = reason_against_trial(name, kind, graphs, where)
            if reason:
                progress(f"{name} does without {kind}: {reason}")
                continue
            with tried(name, kind):
                backend_rates |= _of_trial(name, kind, graphs[0], where, backend_rates["call_ms"])
    return rates


def _of_trial(
    name: str, kind: str, graph: AttentionGraph, where: torch.device, call_ms: float
) -> dict[str, float]:
    """The rate of a kind of work: in float32 and the share of halves, or of halves alone."""
    work_ms = {}
    units = 1.0
    for dtype in (torch.float32, torch.bfloat16):
        request = _request(graph, {}, where, dtype)
        measured_kind, count = BACKENDS[name].work(graph, request)
        if measured_kind == kind:
            ms = _milliseconds(graph, name, {}, where, dtype=dtype)
            work_ms[dtype] = max(0.1 * ms, ms - call_ms)
            units = count * request.floats_per_pair
    halves = work_ms[torch.bfloat16]
    single_ms = work_ms.get(torch.float32)
    if single_ms is None:
        return {kind: halves * 1e6 / units}
    return {kind: single_ms * 1e6 / units, in_halves(kind): halves / single_ms}


def reason_against_trial(
    name: str, kind: str, graphs: list[AttentionGraph], where: torch.device
) -> str:
    """The reason why a kind of a backend's work cannot be used here; empty if it can.

    It does not run, or differs from dense attention in half precision, in the output or a gradient.
    """
    with tried(name, kind):
        for graph, dtype in itertools.product(graphs, HALF):
            measured_kind, _ = BACKENDS[name].work(graph, _request(graph, {}, where, dtype))
            if measured_kind != kind:
                return f"it does not run there, on {graph!r}"
            try:
                results, expected = (
                    _results(graph, backend, where, dtype) for backend in (name, "dense")
                )
            except RuntimeError as failure:
                return " ".join(str(failure).split())[:200]
            for x, y in zip(results, expected, strict=True):
                error = float((x - y).norm() / y.norm())
                if not error <= TRIED:  # NaN, too
                    return (
                        f"its error is {error:.1e} of the norm, over {TRIED:.1e}, on {graph!r} "
                        f"in {dtype}"
                    )
    return ""


def _results(
    graph: AttentionGraph, backend: str, device: torch.device, dtype: torch.dtype
) -> list[Tensor]:
    """Output and gradients."""
    leaves = [x.requires_grad_() for x in _tensors(graph, device, dtype)]
    output = attention(leaves[0], leaves[1], leaves[2], graph, backend=backend)
    assert isinstance(output, Tensor)
    return [
        x.detach().double()
        for x in (output, *torch.autograd.grad(output.float().square().sum(), leaves))
    ]


def _tensors(graph: AttentionGraph, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    if device.type == "cuda":
        batch = BATCH
    else:
        batch = 1
    return AttentionCall(graph, HEADS, WIDTH, batch, dtype, str(device)).inputs()[:3]


def _request(
    graph: AttentionGraph,
    options: dict[str, Any],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Request:
    query, key, value = _tensors(graph, device, dtype)
    return Request.of(inputs_of(query, key, value, graph, **options))


def _milliseconds(
    graph: AttentionGraph,
    backend: str,
    options: dict[str, Any],
    device: torch.device,
    backward: bool = False,
    dtype: torch.dtype = torch.float32,
) -> float:
    """The shortest of several calls, after one that makes plans and compiles."""
    inputs = [x.requires_grad_(backward) for x in _tensors(graph, device, dtype)]

    def call() -> None:
        output = attention(inputs[0], inputs[1], inputs[2], graph, backend=backend, **options)
        assert isinstance(output, Tensor)
        if backward:
            torch.autograd.grad(output, inputs, torch.ones_like(output))

    timed(call, 1, str(device))
    seconds: list[float] = []
    while len(seconds) < 5 or (len(seconds) < 21 and sum(seconds) < 0.3):
        seconds.append(timed(call, 1, str(device)))
    return 1e3 * min(seconds)
