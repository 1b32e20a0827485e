"""The twin on every target, piece by piece: what a single dense problem of them all would give."""

from collections.abc import Iterable

import torch
from torch import Tensor

from .sample import Sample
from .subject import Case, Found, Subject, seeded


def twin_of_all(
    subject: Subject,
    case: Case,
    leaves: dict[str, Tensor],
    pieces: Iterable[Sample],
    order: int = 0,
    rounded_to: torch.dtype | None = None,
) -> dict[str, Tensor]:
    """Outputs at all targets by name, and the gradients of a seeded random combination of them ("grad query", ...).

    Args:
        subject: What is verified.
        case: Its options.
        leaves: Inputs and parameters.
        pieces: Of all targets, each once.
        order: 1 for gradients; they are summed over the pieces in the dtype of the leaves, float32 at least.
        rounded_to: The dtype whose rounding the random combination has; the outputs' own by default.
    """
    values: dict[str, Tensor] = {}
    mixes: dict[str, Tensor] = {}
    # Wider sums than those of dense torch in the same dtype would flatter it.
    grads = {
        name: torch.zeros_like(leaf, dtype=torch.promote_types(leaf.dtype, torch.float32))
        for name, leaf in leaves.items()
    }
    for piece in pieces:
        with torch.set_grad_enabled(order > 0):
            result = subject.problem(leaves, case, piece).solve(piece)
        parts = _placed(subject, result if case.extras else Found(result.output), piece)
        for name, (part, axis, place, total) in parts.items():
            if name not in values:
                shape = list(part.shape)
                shape[axis] = total
                values[name] = part.new_zeros(shape).detach()
                if order:
                    mixes[name] = seeded(f"mix {name}", tuple(shape), 1).to(rounded_to or part.dtype).to(part)
            values[name].index_copy_(axis, place, part.detach())
        carrying = {name: part for name, part in parts.items() if order and part[0].requires_grad}
        if carrying:
            mix = [mixes[name].index_select(axis, place) for name, (_, axis, place, _) in carrying.items()]
            outputs = [part[0] for part in carrying.values()]
            sent = torch.autograd.grad(outputs, list(leaves.values()), mix, allow_unused=True)
            for name, grad in zip(leaves, sent, strict=True):
                if grad is not None:
                    grads[name] += grad
    if order:
        values |= {f"grad {name}": grad.to(leaves[name].dtype) for name, grad in grads.items()}
    return values


def _placed(subject: Subject, result: Found, piece: Sample) -> dict[str, tuple[Tensor, int, Tensor, int]]:
    """Each result of a piece with the axis, the places and the size it has among all."""
    T, E = subject.graph.num_targets, subject.graph.num_edges
    parts = {"output": (result.output, subject.output_axis, piece.targets, T)}
    if result.lse is not None:
        parts["lse"] = (result.lse, -2, piece.targets, T)
    if result.weights is not None:
        parts["weights"] = (result.weights, -2, piece.edge, E)
    return parts
