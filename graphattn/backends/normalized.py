"""Attention whose weights a function of the caller makes of the scores, on the two edge operators."""

from typing import Any

import torch
from torch import Tensor

from ..errors import ShapeError
from ..graph import AttentionGraph
from ..graph.modes import constant_result
from ..plans.cache import cached
from ..plans.grouped import by_source, by_target
from .request import Inputs, Outputs, edges_first, nodes_first


def normalized_run(graph: AttentionGraph, inputs: Inputs) -> Outputs:
    """Output and weights, in memory of (E, H)."""
    lead, request = inputs.query.shape[:-3], inputs.request()
    wide, heads = request.statistics, inputs.query.shape[-2]
    query, key, value = (nodes_first(x.to(wide)) for x in (inputs.query, inputs.key, inputs.value))
    bias = edges_first(inputs.score_bias, lead, wide)
    target, *layout = _layout(graph)
    from ..kernels.edge_pairs import edge_products, edge_sum  # registering operators takes long

    removed = None if bias is None else (bias == -torch.inf).expand(-1, -1, heads)
    score = edge_products(query, key, removed, *layout) * inputs.scale
    if inputs.softcap is not None:
        score = inputs.softcap * torch.tanh(score / inputs.softcap)
    if bias is not None:
        score = (score + bias).masked_fill(removed, -torch.inf)
    score = score.reshape(*lead, *score.shape[1:])
    assert inputs.normalize is not None
    # A copy of the targets: a function of the caller may write into them.
    alpha = of_every_edge("normalize", inputs.normalize(score, target.clone(), graph.num_targets), score)
    weight = torch.nn.functional.dropout(alpha, inputs.dropout_p).reshape(query.shape[0], *score.shape[-2:])
    output = edge_sum(weight, value, value.shape[2], False, removed, *layout)
    return Outputs(output.reshape(*lead, *output.shape[1:]).to(request.dtype), alpha)


@constant_result
def _layout(graph: AttentionGraph) -> tuple[Tensor, ...]:
    """The target of each edge, int64 (E,), and the edges by target and by source, as the operators want them."""
    from ..kernels import edge_pairs  # noqa: F401 (compiled code finds its operators registered)

    targets, sources = by_target(graph), by_source(graph)
    edge = cached(graph, "source edges", lambda: targets.edge[sources.place.long()])
    return graph.target.cpu(), *targets, *sources._replace(place=edge)


def of_every_edge(name: str, values: Any, like: Tensor) -> Tensor:
    """What a caller's function gave, in the dtype of ``like`` (..., E, H), or the error if it has not its shape."""
    right = isinstance(values, Tensor) and values.shape == like.shape and values.device == like.device
    if not right or values.is_complex():
        came = type(values).__name__
        if isinstance(values, Tensor):
            came = f"{tuple(values.shape)} {values.dtype} on {values.device}"
        raise ShapeError(
            f"{name} must return real numbers (..., edges, heads) = {tuple(like.shape)} on {like.device}, got {came}"
        )
    return values.to(like.dtype)
