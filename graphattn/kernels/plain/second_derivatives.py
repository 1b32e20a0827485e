"""Second derivatives of fused kernels: those of their definition in plain operations."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...graph.modes import without_autocast
from ..modes import are_batched

#: Arguments for the edges of an operator, by target and by source.
LAYOUT = """Tensor ptr, Tensor index, Tensor edge, Tensor order, Tensor source_ptr, Tensor target, Tensor source_edge,
    Tensor source_order"""


def gradients_of_definition(
    definition: Callable[..., tuple[Tensor, ...]],
    operands: Sequence[Tensor | None],
    rest: Sequence[Any],
    grads: Sequence[Tensor | None],
) -> tuple[Tensor | None, ...]:
    """Gradients of ``operands`` through ``definition(*operands, *rest)``, from its outputs'.

    They can be differentiated if gradients are enabled.
    """
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # Separate views: one operand may have been computed from another.
        inner = [x if x is None else x.view_as(x) for x in operands]
        results = definition(*inner, *rest)
    inputs = [x for x in inner if x is not None and x.requires_grad]
    pairs = [(x, g) for x, g in zip(results, grads, strict=False) if g is not None]
    outputs, grad_outputs = zip(*pairs, strict=True)
    computed = torch.autograd.grad(
        outputs, inputs, grad_outputs, create_graph=create_graph, materialize_grads=True
    )
    return _where((x is not None and x.requires_grad for x in inner), computed)


def _where(needed: Iterable[bool], grads: Iterable[Tensor]) -> tuple[Tensor | None, ...]:
    """Gradients in the places that need one, None elsewhere."""
    remaining = iter(grads)
    placed: list[Tensor | None] = []
    for is_needed in needed:
        grad = None
        if is_needed:
            grad = next(remaining)
        placed.append(grad)
    return tuple(placed)


def twice_differentiable(
    run: Callable[..., tuple[Tensor, ...]],
    definition: Callable[..., tuple[Tensor, ...]],
    *operands: Tensor | None,
    random: bool = False,
    contiguous: bool = False,
) -> tuple[Tensor, ...]:
    """``run(*operands)`` with its own first derivative, then derivatives of ``definition``.

    Compiled code has one derivative only, and raises at the second.

    Args:
        run: Operations that autograd differentiates once.
        definition: The same outputs in plain operations.
        operands: Tensors of one device, the first of which is present.
        random: True if two runs differ, as with dropout.
        contiguous: True if the first derivative needs contiguous gradients of the outputs.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return run(*operands)
    if not torch._C._any_requires_grad(*operands):
        return run(*operands)
    outputs: tuple[Tensor, ...] = _TwiceDifferentiable.apply(
        run, definition, random, contiguous, *operands
    )
    return outputs


class _TwiceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        run: Any,
        definition: Any,
        random: bool,
        contiguous: bool,
        *operands: Tensor | None,
    ) -> tuple[Tensor, ...]:
        ctx.options = run, definition, random, contiguous
        ctx.set_materialize_grads(False)
        if not random and torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
            # A checkpoint recomputes its block for each graph that unpacks it: trace the run in the
            # backward.
            ctx.save_for_backward(*operands)
            return run(*operands)
        inner, outputs = _traced(run, operands, ctx.needs_input_grad[4:])
        # Saved tensors, so that torch frees them with its graph: the operands, their inner copies,
        # the outputs.
        ctx.save_for_backward(*operands, *inner, *outputs)
        return tuple(map(Tensor.detach, outputs))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        # once: a checkpoint allows one access
        run, definition, random, contiguous = ctx.options
        needed = ctx.needs_input_grad[4:]
        saved = ctx.saved_tensors
        operands, inner, outputs = (
            saved[i : i + len(needed)] for i in (0, len(needed), 2 * len(needed))
        )
        with without_autocast(operands[0].device.type):
            # a batch of gradients needs the same draws, which the definition does not have
            if torch.is_grad_enabled() or (are_batched(*grads) and not random):
                return *(None,) * 4, *gradients_of_definition(definition, operands, (), grads)
            if not outputs:
                inner, outputs = _traced(run, operands, needed)
            pairs = [
                (x, g)
                for x, g in zip(outputs, grads, strict=True)
                if g is not None and x.requires_grad
            ]
            grad_outputs = [g for _, g in pairs]
            if contiguous:
                grad_outputs = [g.contiguous() for g in grad_outputs]
            computed = torch.autograd.grad(
                [x for x, _ in pairs],
                [x for x, is_needed in zip(inner, needed, strict=True) if is_needed],
                grad_outputs,
                retain_graph=torch._C._autograd._get_current_graph_task_keep_graph(),
                materialize_grads=True,
            )
        return *(None,) * 4, *_where(needed, computed)


class _Entrance(torch.autograd.Function):
    """The root of a separate autograd graph.

    It is no leaf: a graph holds its leaves in memory, even in a checkpoint.
    """

    @staticmethod
    def forward(ctx: Any, start: Tensor, x: Tensor) -> Tensor:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None]:
        return None, None


def _traced(
    run: Any, operands: Sequence[Tensor | None], needed: Sequence[bool]
) -> tuple[list[Any], tuple[Any, ...]]:
    """A run as a separate autograd graph: its roots and its outputs."""
    with torch.enable_grad():
        start = torch.empty(0, requires_grad=True)
        inner = list(operands)
        for i in range(len(inner)):
            if needed[i]:
                inner[i] = _Entrance.apply(start, inner[i])
        return inner, run(*inner)


def ends_in_order(ptr: Tensor, index: Tensor, edge: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Target and source of every edge, int64 (E,), in the caller's order of edges."""
    place = edge.long().argsort()
    return torch.repeat_interleave(order.long(), ptr.diff())[place], index.long()[place]
