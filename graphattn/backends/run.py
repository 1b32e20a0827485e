"""One call of attention on checked inputs: choose a backend for its edges, and run it."""

from contextlib import suppress
from typing import Any

import torch

from ..graph import AttentionGraph
from ..graph.like import GraphLike
from ..graph.modes import constant_result
from ..operands import Inputs, Outputs
from .choose import BACKENDS, choose, choose_among, out_of_memory
from .device import ran_out_of_memory
from .request import Request


def run(graph: GraphLike, inputs: Inputs, backend: str, weights: bool, lse: bool) -> Outputs:
    """The outputs of all heads; ``weights`` in the edge order of the graph's union."""
    return graph.attend(run_edges, inputs, backend, weights, lse)


def run_edges(graph: Any, inputs: Inputs, backend: str, weights: bool, lse: bool) -> Outputs:
    """The outputs of the backend that is named, or the cheapest."""
    request = Request.of(inputs, weights, lse)
    if request.by_place and not _reads_bias_by_place(graph, backend, *request):
        inputs = inputs.with_tensors(graph)
        request = Request.of(inputs, weights, lse)
    if torch.compiler.is_compiling():
        # field by field, since such a function cannot take objects of our classes
        if graph._is_constant:
            name = _constant_choice(graph, backend, *request)
        else:
            name = _constant_choice_among(graph._only_backends, backend, *request)
        return BACKENDS[name].run(graph, inputs, weights=weights, lse=lse)
    if graph._only_backends:
        name = choose_among(graph._only_backends, request, backend)
    else:
        name = choose(graph, request, backend)
    try:
        return BACKENDS[name].run(graph, inputs, weights=weights, lse=lse)
    except (RuntimeError, MemoryError) as error:
        if ran_out_of_memory(error):
            # torch's error is raised even if the advice runs out of memory, too
            with suppress(Exception):
                error.add_note(out_of_memory(graph, request, name))
        raise


@constant_result
def _reads_bias_by_place(graph: AttentionGraph, backend: str, *fields: Any) -> bool:
    """The answer of the backend that runs."""
    request = Request(*fields)
    return BACKENDS[choose(graph, request, backend)].reads_bias_by_place(graph, request)


@constant_result  # Python on the graph's structure: a constant of compiled code
def _constant_choice(graph: AttentionGraph, backend: str, *request: Any) -> str:
    return choose(graph, Request(*request), backend)


@constant_result
def _constant_choice_among(names: tuple[str, ...], backend: str, *request: Any) -> str:
    return choose_among(names, Request(*request), backend)
