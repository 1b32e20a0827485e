"""One cast, under autocast, of features that several linear layers read."""

from typing import Any

import torch
from torch import Tensor, nn

from ..graph.modes import plain_operations_only
from ..kernels.modes import nothing_watches


def cast_once(x: Tensor, *layers: nn.Module) -> tuple[Tensor, ...]:
    """``x`` for each of the layers; under autocast views of one copy. Their gradients are summed in
    the dtype of ``x``, as those of separate casts are.
    """
    device = x.device.type
    if x.dtype == torch.float32 and device != "meta" and torch.is_autocast_enabled(device):
        linear = all(type(layer) is nn.Linear for layer in layers)  # another layer may read float32
        if linear and nothing_watches(x) and not plain_operations_only():
            views: tuple[Tensor, ...] = _Cast.apply(
                x, torch.get_autocast_dtype(device), len(layers)
            )
            return views
    return (x,) * len(layers)


class _Cast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        dtype: torch.dtype,
        count: int,
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.dtype = x.dtype
        copy = x.to(dtype)
        return tuple(copy.view_as(copy) for _ in range(count))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        total: Tensor | None = None
        for grad in reversed(grads):  # the order in which autograd adds them
            if grad is None:
                continue
            if total is None:
                total = grad.to(ctx.dtype)
            elif torch.is_grad_enabled():
                total = total + grad
            else:
                total = total.add_(grad)
        return total, None, None
