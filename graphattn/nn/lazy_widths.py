"""Widths of -1, which a layer takes from its first call, as PyG's convolutions do."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..graph.modes import not_followed, without_modes

UNKNOWN = -1
#: Projections and the widths of a layer that they have.
_INPUTS = {
    "q_proj": "qdim",
    "gate_proj": "qdim",
    "skip.root": "qdim",
    "k_proj": "kdim",
    "v_proj": "vdim",
    "edge_proj": "edge_dim",
}


def linear(in_features: int, out_features: int, bias: bool) -> nn.Linear:
    """A linear layer; of an unknown width one that has no weight yet."""
    if in_features == UNKNOWN:
        return nn.LazyLinear(out_features, bias)
    return nn.Linear(in_features, out_features, bias)


def draw(projection: nn.Linear) -> None:
    """Xavier-uniform weights and a bias of zeros; nothing if the width is unknown."""
    if isinstance(projection, nn.LazyLinear) and projection.has_uninitialized_params():
        return
    nn.init.xavier_uniform_(projection.weight)
    if projection.bias is not None:
        nn.init.zeros_(projection.bias)


@partial(not_followed, reason="widths of -1 come from a first call: make it before compiling")
def complete(layer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """A hook before the first call: the widths of its features become those of the layer."""
    x = options.get("x")
    if args:
        x = args[0]
    context = options.get("context")
    if isinstance(x, tuple | list):
        context, x = x
    if context is None:
        context = x
    key = value = context
    if isinstance(context, tuple | list):
        key, value = context
    features: dict[str, Any] = {
        "qdim": x,
        "kdim": key,
        "vdim": value,
        "edge_dim": options.get("edge_attr"),
    }
    # weights that are made in inference mode could never be trained
    without_modes(partial(_make_weights, layer, features))


def _make_weights(layer: Any, features: dict[str, Any]) -> None:
    """The weights of projections whose inputs are known."""
    projections = dict(layer.named_modules())
    for name, of in _INPUTS.items():
        projection = projections.get(name)
        if not isinstance(projection, nn.LazyLinear) or not isinstance(features[of], Tensor):
            continue
        setattr(layer, of, features[of].shape[-1])
        is_new = projection.has_uninitialized_params()
        weight = projection.weight
        projection(torch.empty(0, getattr(layer, of), device=weight.device, dtype=weight.dtype))
        if is_new:
            draw(projection)
    if any(isinstance(part, nn.LazyLinear) for part in layer.modules()):
        return
    for number, hook in list(layer._forward_pre_hooks.items()):
        if hook is complete:
            del layer._forward_pre_hooks[number]
            del layer._forward_pre_hooks_with_kwargs[number]
