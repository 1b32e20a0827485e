"""Recording of the weights of all layers of a model, without changing the model."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import local
from typing import Any

from torch import nn

from ..backends.weights import EdgeWeights
from ..errors import OptionError


@contextmanager
def record_weights(model: nn.Module) -> Iterator[dict[str, EdgeWeights]]:
    """A context: the weights of the last call of every :class:`GraphAttention` of the model, in a
    dict by name.

    The dict is in the order of the calls, as :func:`graphattn.viz.rollout` multiplies them for one
    stack of self-attention; for an encoder and a decoder select by name. Backends without weights
    are replaced by others. Calls in other threads are not recorded.

    Args:
        model: Any module.

    Raises:
        OptionError: If no layer of it is a :class:`GraphAttention`.

    Example:
        >>> import torch, graphattn as ga
        >>> encoder = ga.models.Encoder(2, 8, 2)
        >>> with record_weights(encoder) as weights:
        ...     y = encoder(torch.randn(5, 8), ga.graphs.causal(5))
        >>> list(weights), weights["layers.0.attention"].alpha.shape
        (['layers.0.attention', 'layers.1.attention'], torch.Size([15, 2]))
        >>> ga.viz.rollout(weights).dense().shape  # what each output holds of each input
        torch.Size([1, 5, 5])
    """
    from ..nn.graph_attention import GraphAttention  # with PyG, which no other question needs

    layers = {
        name: layer for name, layer in model.named_modules() if isinstance(layer, GraphAttention)
    }
    if not layers:
        raise OptionError(
            f"model must have a GraphAttention, got a {type(model).__name__} without one"
        )
    weights: dict[str, EdgeWeights] = {}
    thread = local()
    hooks = []
    thread.requested = {}  # True if the caller of a layer requests its weights
    for name, layer in layers.items():
        hooks.append(
            layer.register_forward_pre_hook(partial(_request, thread, name), with_kwargs=True)
        )
        hooks.append(layer.register_forward_hook(partial(_keep, thread, weights, name)))
    try:
        yield weights
    finally:
        for hook in hooks:
            hook.remove()


def _request(
    thread: local, name: str, layer: nn.Module, args: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    if not hasattr(thread, "requested"):  # another thread
        return None
    thread.requested[name] = kwargs.get("return_weights", False)
    return args, {**kwargs, "return_weights": True}


def _keep(
    thread: local,
    weights: dict[str, EdgeWeights],
    name: str,
    layer: nn.Module,
    args: Any,
    output: Any,
) -> Any:
    if not hasattr(thread, "requested"):
        return None
    weights.pop(name, None)
    weights[name] = output[1]
    if thread.requested[name]:
        return output
    return output[0]
