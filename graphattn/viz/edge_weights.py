"""Attention weights as pictures take them: found beside an output or in a dense tensor, checked, one row per edge."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..backends.weights import EdgeWeights
from ..errors import OptionError, ShapeError
from ..graph.edges import listed
from ..graph.graph import AttentionGraph


def weights_in(given: Any) -> Any:
    """The weights themselves, where they come beside an output or as a dense tensor.

    Raises:
        OptionError: If there are none.
        ShapeError: If a tensor is not (H, T, S).
    """
    if isinstance(given, torch.Tensor | np.ndarray):
        return _of_dense(given)
    held = next((part for part in given if hasattr(part, "alpha")), None) if isinstance(given, tuple) else given
    if not (hasattr(held, "alpha") and hasattr(held, "graph")):
        raise OptionError(
            "weights must be EdgeWeights, a tensor (H, T, S), or what attention or a layer gives with "
            f"return_weights=True; got a {type(given).__name__} without weights{_hint(given)}"
        )
    return held


def _hint(given: Any) -> str:
    """For what models of transformers give: a tensor for each layer."""
    if hasattr(given, "attentions"):
        return "; draw one layer: outputs.attentions[0]"
    layers = isinstance(given, tuple | list) and any(isinstance(part, torch.Tensor) for part in given)
    return "; draw one of its tensors, (H, T, S)" * layers


def _of_dense(given: Any) -> EdgeWeights:
    """Of a tensor (H, T, S) or (1, H, T, S): its edges are the pairs at which some head has a weight other than 0."""
    is_float = given.is_floating_point() if isinstance(given, torch.Tensor) else given.dtype.kind == "f"
    shape = tuple(given.shape)
    whole = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
    if len(whole) != 3 or not is_float:
        hint = {2: "; of one head it is weights[None]", 4: "; of a batch draw one element: weights[0]"}
        raise ShapeError(
            "a tensor of weights must be floats of shape (H, T, S), or (1, H, T, S), as attentions[layer] of "
            f"transformers; got {str(given.dtype).removeprefix('torch.')} {shape}{hint.get(len(shape), '')}"
        )
    alpha = torch.as_tensor(given).detach().reshape(whole)
    target, source = (alpha != 0).any(0).nonzero(as_tuple=True)
    graph = AttentionGraph(listed(target, source, *whole[1:]), "attention", alpha.device)
    return EdgeWeights(graph, alpha[:, target, source].T)


def by_edge(weights: Any) -> Tensor:
    """``alpha`` of one graph without a batch, (E, H), where it is.

    Raises:
        ShapeError: If it does not fit the graph, or holds a batch.
    """
    graph: AttentionGraph = weights.graph
    alpha = weights.alpha
    if alpha.ndim < 2 or alpha.shape[-2] != graph.num_edges:
        raise ShapeError(f"weights.alpha must be (E, H) with E = {graph.num_edges} edges, got {tuple(alpha.shape)}")
    heads = alpha.shape[-1]
    if alpha.numel() != graph.num_edges * heads:
        own = ", weights.heads" if getattr(weights, "heads", None) is not None else ""
        raise ShapeError(
            f"weights.alpha has a batch, {tuple(alpha.shape)}; draw one element: "
            f"graphattn.EdgeWeights(weights.graph, weights.alpha[0]{own})"
        )
    return alpha.detach().reshape(graph.num_edges, heads)


def edges_of_heads(weights: Any) -> NDArray[np.bool_] | None:
    """bool (E, H): which edges a head has, where heads have graphs of their own; ``None`` where each has all."""
    return None if getattr(weights, "heads", None) is None else weights.present().cpu().numpy()


def checked_head(head: int | None, heads: int) -> None:
    """
    Raises:
        ShapeError: If there is no such head.
    """
    if head is not None and not 0 <= head < heads:
        raise ShapeError(f"head must be in [0, {heads}), got {head}")


def weights_into(weights: Any, target: int, head: int | None) -> tuple[NDArray[np.int64], NDArray[np.float64], str]:
    """Sources of the edges into ``target``, their weights in one head or the mean, and a name for that.

    Only edges that the head has; of the mean, that some head has. Copies of a repeated edge are added up.
    """
    alpha = by_edge(weights)
    heads = alpha.shape[1]
    checked_head(head, heads)
    graph: AttentionGraph = weights.graph
    into = (graph.target == target).nonzero().flatten()
    own = edges_of_heads(weights)
    if own is not None and head is not None:
        into = into[torch.from_numpy(own[into.cpu().numpy(), head]).to(into.device)]
    per_edge = alpha[into.to(alpha.device)].double().cpu()
    per_edge = per_edge.mean(1) if head is None else per_edge[:, head]
    sources, copy = np.unique(graph.source[into].cpu().numpy(), return_inverse=True)
    total = np.bincount(copy, per_edge.numpy(), len(sources)).astype(np.float64)
    what = f"head {head}" if head is not None else "" if heads == 1 else f"mean over {heads} heads"
    return sources.astype(np.int64), total, what


def matrix(weights: Any, heads: Tensor | None = None) -> Any:
    """The mean over heads as a scipy CSR array (T, S), float64; copies of a repeated edge are added up."""
    import scipy.sparse

    graph: AttentionGraph = weights.graph
    alpha = by_edge(weights) if heads is None else heads
    mean = alpha.to(torch.float64).mean(1).cpu().numpy()
    source, target = graph.edge_index.cpu().numpy()
    return scipy.sparse.csr_array((mean, (target, source)), shape=(graph.num_targets, graph.num_sources))
