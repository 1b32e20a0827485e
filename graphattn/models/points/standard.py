"""Standardised features, so that one learning rate serves distances, angles and curvatures."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...graphs import Hierarchy
from .unet import EdgeEncoder, Perceptron


class Standard(nn.Linear):
    """A linear layer of standardised features: minus their mean, over their standard deviation.

    Buffers hold both; they are 0 and 1 until :func:`measure`.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__(layer.in_features, layer.out_features)
        self.weight = layer.weight
        self.bias = layer.bias
        self.register_buffer("mean", torch.zeros(layer.in_features))
        self.register_buffer("deviation", torch.ones(layer.in_features))

    def forward(self, x: Tensor) -> Tensor:
        """(..., out) of features (..., in)."""
        return super().forward((x - self.mean) / self.deviation)


def standardized(model: nn.Module) -> nn.Module:
    """The model with :class:`Standard` layers where it reads features of points or of edges."""
    readers = [part.perceptron for part in model.modules() if isinstance(part, EdgeEncoder)]
    readers += [
        part
        for name, part in model.named_modules()
        if name in ("embedding", "network.embedding") and isinstance(part, Perceptron)
    ]
    for reader in readers:
        reader.first = Standard(reader.first)
    return model


def floored(deviation: Tensor, mean: Tensor) -> Tensor:
    """Standard deviations, 1 where values are constant but for rounding."""
    constant = deviation <= 1e-6 * (mean.square() + deviation.square()).sqrt()
    return torch.where(constant, 1.0, deviation)


@torch.no_grad()
def measure(
    model: nn.Module, x: Tensor, shape: Hierarchy, total: Callable[[Tensor], Tensor] = lambda x: x
) -> None:
    """Set the means and deviations of the layers to those of their inputs for these shapes.

    Features that are constant keep their scale. Layers that have means already, those of the model
    that this one starts from, keep them. ``total`` adds up over processes that share the points.
    """

    def take(layer: Any, inputs: tuple[Tensor]) -> None:
        if layer.mean.any():
            return
        values = inputs[0].flatten(0, -2).double()
        *_, count = sums = total(torch.cat((values.sum(0), values.new_tensor([len(values)]))))
        if not count:  # features of edges, where there are none
            return
        mean = sums[:-1] / count
        deviation = (total((values - mean).square().sum(0)) / count).sqrt()
        layer.mean.copy_(mean)
        layer.deviation.copy_(floored(deviation, mean))

    layers = [part for part in model.modules() if isinstance(part, Standard)]
    hooks = [layer.register_forward_pre_hook(take) for layer in layers]
    model.eval()(x, shape)
    for hook in hooks:
        hook.remove()
