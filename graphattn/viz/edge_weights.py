"""Attention weights for pictures, from an output or a dense tensor: checked, a row per edge."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import check_shape, shown, table
from ..backends.weights import EdgeWeights
from ..errors import OptionError, ShapeError
from ..graph.graph import AttentionGraph
from ..graph.listed import listed


def may_be_weights(value: Any) -> bool:
    """True of what holds weights, or of a tensor of floats."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return "float" in str(value.dtype)
    return isinstance(value, tuple) or hasattr(value, "alpha") or hasattr(value, "attentions")


def weights_in(value: Any) -> Any:
    """The weights themselves, where they come beside an output or as a dense tensor.

    Raises:
        OptionError: If there are none.
        ShapeError: If a tensor is not (H, T, S).
    """
    if isinstance(value, torch.Tensor | np.ndarray):
        return _of_dense(value)
    if isinstance(value, tuple):
        weights = next((part for part in value if hasattr(part, "alpha")), None)
    else:
        weights = value
    if not (hasattr(weights, "alpha") and hasattr(weights, "graph")):
        raise OptionError(
            "weights must be EdgeWeights, a tensor (H, T, S), or what attention or a layer gives "
            f"with return_weights=True; got a {type(value).__name__} without weights{_hint(value)}"
        )
    return weights


def _hint(value: Any) -> str:
    """For what models of transformers give: a tensor for each layer."""
    if hasattr(value, "attentions"):
        return "; draw one layer: outputs.attentions[0]"
    layers = isinstance(value, tuple | list) and any(
        isinstance(part, torch.Tensor) for part in value
    )
    if layers:
        return "; draw one of its tensors, (H, T, S)"
    return ""


def _of_dense(value: Any) -> EdgeWeights:
    """The edges of a dense tensor (H, T, S) or (1, H, T, S): pairs with a weight in some head."""
    shape = tuple(value.shape)
    if len(shape) == 4 and shape[0] == 1:
        sizes = shape[1:]
    else:
        sizes = shape
    if len(sizes) != 3 or not may_be_weights(value):
        raise ShapeError(
            "a tensor of weights must be floats of shape (H, T, S), or (1, H, T, S), as "
            f"attentions[layer] of transformers; got {shown(value)}: of one head pass "
            "weights[None], of a batch one element, weights[0]"
        )
    alpha = torch.as_tensor(value).detach().reshape(sizes)
    target, source = (alpha != 0).any(0).nonzero(as_tuple=True)
    graph = AttentionGraph(listed(target, source, *sizes[1:]), "attention", alpha.device)
    return EdgeWeights(graph, alpha[:, target, source].T)


def values_on(graph: AttentionGraph, values: Any) -> tuple[Any, str]:
    """Weights of edges, or numbers of edges or of edges and heads, as weights, with their name.

    Raises:
        ShapeError: If they do not fit the graph.
    """
    if hasattr(values, "graph") or isinstance(values, tuple):
        weights = weights_in(values)
        if weights.graph is graph or torch.equal(
            weights.graph.edge_index.cpu(), graph.edge_index.cpu()
        ):
            return weights, "attention weight"
        raise ShapeError(
            f"values are weights of other edges, those of {weights.graph.name}; draw them alone: "
            "plot(weights)"
        )
    alpha = table(
        values, "values", "a number for each edge (E,) or for each edge and head (E, H)", ShapeError
    )
    if alpha.ndim == 1:
        alpha = alpha[:, None]
    check_shape(alpha, "values", (graph.num_edges, "H"), "of a tensor (H, T, S) draw plot(tensor)")
    if alpha.is_complex():
        raise ShapeError(f"values must be real numbers, got {shown(values)}; draw values.abs()")
    return EdgeWeights(graph, alpha), "value"


def by_edge(weights: Any) -> Tensor:
    """``alpha`` of one graph without a batch, (E, H), where it is.

    Raises:
        ShapeError: If it does not fit the graph, or holds a batch.
    """
    graph: AttentionGraph = weights.graph
    alpha = weights.alpha
    heads = alpha.shape[-1]
    if alpha.numel() != graph.num_edges * heads:
        # without heads edges that a head has not would be drawn, with weight 0
        raise ShapeError(
            f"weights.alpha must have shape ({graph.num_edges}, H), got {tuple(alpha.shape)}; of a "
            "batch draw one element: graphattn.EdgeWeights(weights.graph, weights.alpha[0], "
            "weights.heads)"
        )
    return alpha.detach().reshape(graph.num_edges, heads)
