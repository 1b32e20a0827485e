"""Differentiable gradients: those of an operator's definition in plain operations."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

#: Arguments for the edges of an operator, by target and by source.
LAYOUT = """Tensor ptr, Tensor index, Tensor edge, Tensor order, Tensor source_ptr, Tensor target, Tensor source_edge,
    Tensor source_order"""


def gradients_of_definition(
    definition: Callable[..., tuple[Tensor, ...]],
    operands: Sequence[Tensor | None],
    rest: Sequence[Any],
    grads: Sequence[Tensor | None],
) -> tuple[Tensor | None, ...]:
    """Gradients of ``operands``, through ``definition(*operands, *rest)``, given those of its outputs."""
    # Separate views: one operand may have been computed from another.
    inner = [x if x is None else x.view_as(x) for x in operands]
    wanted = [x for x in inner if x is not None and x.requires_grad]
    given = [(x, g) for x, g in zip(definition(*inner, *rest), grads, strict=False) if g is not None]
    outputs, grad_outputs = zip(*given, strict=True)
    made = iter(torch.autograd.grad(outputs, wanted, grad_outputs, create_graph=True, materialize_grads=True))
    return tuple(next(made) if x is not None and x.requires_grad else None for x in inner)


def ends_in_order(ptr: Tensor, index: Tensor, edge: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Target and source of every edge, int64 (E,), in the caller's order of edges."""
    place = edge.long().argsort()
    return torch.repeat_interleave(order.long(), ptr.diff())[place], index.long()[place]
