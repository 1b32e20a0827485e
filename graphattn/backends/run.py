"""One call of attention on checked inputs: choose a backend for each graph and run it."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch

from ..errors import BackendError
from ..graph import AttentionGraph, PerHead
from ..graph.chosen import Chosen
from ..graph.modes import constant_result, not_followed
from ..plans.edge_tensors import EdgeTensors
from .choose import BACKENDS, choose, out_of_memory
from .chosen import as_bias_of_edges, as_one, of_heads, reads_edges
from .device import ran_out_of_memory, without_kernels
from .heads import as_bias, join, split
from .request import Inputs, Outputs, Request, with_weights

#: Counts the work of calls by their edges, whatever a backend computes: (number of edges, request)
#: to a context.
counting: ContextVar[Callable[[int, Request], Any]] = ContextVar(
    "counting", default=lambda edges, request: nullcontext()
)


def run(
    graph: AttentionGraph | PerHead | Chosen | EdgeTensors,
    inputs: Inputs,
    backend: str,
    weights: bool,
    lse: bool,
) -> Outputs:
    """The outputs of all heads; ``weights`` in the edge order of the graph, or of the union of the
    heads' graphs.
    """
    if isinstance(graph, Chosen):
        if torch.compiler.is_exporting():
            _refuse_export(graph)
        return _run_chosen(graph, inputs, backend, weights, lse)
    if isinstance(graph, EdgeTensors):
        return graph.attend(partial(_run_tensors, backend), inputs, weights, lse)
    if not isinstance(graph, PerHead):
        return _run(graph, inputs, backend, weights, lse)
    if inputs.score is not None or inputs.normalize is not None:  # these need all heads at once
        return _run(graph.union(), as_bias(graph, inputs), backend, weights, lse)
    parts = [
        _run(part, part_inputs, backend, weights, lse) for part, part_inputs in split(graph, inputs)
    ]
    outputs = join(graph, parts, inputs.query.shape[-2])
    if weights and inputs.tracks_weights and outputs.alpha is not None:
        return with_weights(outputs, outputs.alpha)
    return outputs


@constant_result
def _refuse_export(graph: Chosen) -> None:
    raise BackendError(
        f"{graph.name} chooses its edges in every call, and an exported program has the same ones "
        "in each; export "
        "union(), or compile, which runs the choice outside the program"
    )


@not_followed  # the edges are of this call alone
def _run_chosen(graph: Chosen, inputs: Inputs, backend: str, weights: bool, lse: bool) -> Outputs:
    # scores of all edges, to choose by
    with counting.get()(graph.num_edges, inputs.request(weights, lse)):
        if reads_edges(inputs, weights, backend):
            return _run(graph.union(), as_bias_of_edges(graph, inputs), backend, weights, lse)
        return of_heads(_run(*as_one(graph, inputs), backend, weights, lse), inputs)


def _run(graph: AttentionGraph, inputs: Inputs, backend: str, weights: bool, lse: bool) -> Outputs:
    request = inputs.request(weights, lse)
    # field by field, since such a function cannot take objects of our classes
    if torch.compiler.is_compiling():
        return BACKENDS[_chosen(graph, backend, *request)].run(
            graph, inputs, weights=weights, lse=lse
        )
    name = choose(graph, request, backend)
    try:
        with counting.get()(graph.num_edges, request):
            return BACKENDS[name].run(graph, inputs, weights=weights, lse=lse)
    except (RuntimeError, MemoryError) as error:
        if ran_out_of_memory(error):
            # torch's error is raised even if the advice runs out of memory, too
            with suppress(Exception):
                error.add_note(out_of_memory(graph, request, name))
        raise


def _run_tensors(
    backend: str, edges: EdgeTensors, inputs: Inputs, weights: bool, lse: bool
) -> Outputs:
    request = inputs.request(weights, lse)
    name = _on_tensors(backend, *request)
    if torch.compiler.is_compiling():
        return BACKENDS[name].run(edges, inputs, weights=weights, lse=lse)  # type: ignore[arg-type]
    with counting.get()(edges.num_edges, request):
        return BACKENDS[name].run(edges, inputs, weights=weights, lse=lse)  # type: ignore[arg-type]


@constant_result  # Python on the graph's structure: a constant of compiled code
def _chosen(graph: AttentionGraph, backend: str, *request: Any) -> str:
    return choose(graph, Request(*request), backend)


@constant_result
def _on_tensors(backend: str, *request: Any) -> str:
    """The backend for :class:`EdgeTensors`: the fused kernels, or the definition if they do not
    support the call.
    """
    reasons = without_kernels(Request(*request).device)
    if backend == "auto":
        if reasons:
            return "message_passing"
        return "edges"
    if backend not in ("edges", "message_passing"):
        reasons = ["EdgeTensors run on edges or message_passing"]
    if reasons and backend != "message_passing":
        raise BackendError(f"backend {backend!r} cannot run EdgeTensors:", reasons)
    return backend
