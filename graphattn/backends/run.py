"""One call of attention on checked inputs: choose a backend for each graph and run it."""

from typing import Any

import torch

from ..graph import AttentionGraph, PerHead
from ..graph.modes import constant_result
from .choose import BACKENDS, choose
from .heads import as_bias, join, split
from .request import Inputs, Outputs, Request


def run(graph: AttentionGraph | PerHead, inputs: Inputs, backend: str, weights: bool, lse: bool) -> Outputs:
    """The outputs of all heads; ``weights`` in the edge order of the graph, or of the union of the heads' graphs."""
    if not isinstance(graph, PerHead):
        return _run(graph, inputs, backend, weights, lse)
    if inputs.score is not None or inputs.normalize is not None:  # these take all heads at once
        return _run(graph.union(), as_bias(graph, inputs), backend, weights, lse)
    outputs = [_run(part, part_inputs, backend, weights, lse) for part, part_inputs in split(graph, inputs)]
    return join(graph, outputs, inputs.query.shape[-2])


def _run(graph: AttentionGraph, inputs: Inputs, backend: str, weights: bool, lse: bool) -> Outputs:
    request, following = inputs.request(weights, lse), torch.compiler.is_compiling()
    # field by field: torch.compile hands such a function no object of a class of ours
    name = _chosen(graph, backend, *request) if following else choose(graph, request, backend)
    return BACKENDS[name].run(graph, inputs, weights=weights, lse=lse)


@constant_result  # Python on the graph's structure: torch.compile keeps the answer
def _chosen(graph: AttentionGraph, backend: str, *request: Any) -> str:
    return choose(graph, Request(*request), backend)
