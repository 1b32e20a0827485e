"""Errors of every backend, in outputs and in every gradient. It measures; ``bounds`` judges."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..backends import BACKENDS
from ..errors import BackendError, ShapeError
from .bounds import bound
from .report import Refusal, Row
from .sample import Sample
from .subject import Case, Found, Subject, seeded

PASSES_HELD = 3  # a backward pass beside a forward one, in bytes of the forward one


class Measured(NamedTuple):
    """What the passes gave, by name: "output", "lse", "weights", "grad query", ..., "second query", ..."""

    values: dict[str, Tensor]


def measure(
    subject: Subject,
    piece: Sample,
    dtypes: tuple[torch.dtype, ...],
    backends: tuple[str, ...],
    gradients: bool = True,
    most_bytes: int | None = None,
) -> tuple[list[Row], list[Refusal]]:
    """Every backend x case x dtype against the twin in float64, beside the twin in the same dtype.

    A backend that would hold more than ``most_bytes`` is not run; None lifts the limit.
    """
    rows: list[Row] = []
    refusals: dict[Refusal, None] = {}
    for case in subject.cases:
        for dtype in dtypes:
            order = int(gradients)
            if gradients and subject.owns_graph and dtype == torch.float64 and piece.complete:
                order = 2
            truth, dense = twins(subject, case, dtype, piece, order)
            for backend in backends:
                refused = _too_large(subject, case, dtype, backend, most_bytes)
                found = None
                if not refused:
                    found, refused = _attempt(subject, case, dtype, backend, piece, order)
                refusals |= dict.fromkeys(refused)
                if found is not None:
                    rows += _compare(truth, dense, found, backend, case, dtype)
    return rows, list(refusals)


def _too_large(subject: Subject, case: Case, dtype: torch.dtype, backend: str, most_bytes: int | None) -> list[Refusal]:
    request = subject.request(case, dtype)
    if request is None or most_bytes is None or BACKENDS[backend].reasons_against(subject.graph, request):
        return []
    needed = PASSES_HELD * BACKENDS[backend].bytes_needed(subject.graph, request)
    if needed <= most_bytes:
        return []
    reason = f"measuring it takes about {needed:,} bytes, {most_bytes:,} may be taken; name it in backends= to insist"
    return [Refusal(backend, case.name, (reason,))]


def _attempt(
    subject: Subject, case: Case, dtype: torch.dtype, backend: str, piece: Sample, order: int
) -> tuple[Measured | None, list[Refusal]]:
    """The backend's values with as many derivatives as it has, and what it refused."""
    refused: list[Refusal] = []
    for derivatives in (2, 1) if order == 2 else (order,):
        try:
            return measure_backend(subject, case, dtype, backend, piece, derivatives), refused
        except Exception as error:
            reasons = _reasons(subject, error, dtype)
        refused.append(Refusal(backend, "second derivatives of " * (derivatives == 2) + case.name, reasons))
    return None, refused[-1:]


def _reasons(subject: Subject, error: Exception, dtype: torch.dtype) -> tuple[str, ...]:
    """The reasons of a refusal; whatever is not one is raised again. A caller's function may fail in some dtypes."""
    if isinstance(error, BackendError):
        return error.reasons or (str(error),)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "t allocate memory" in str(error):
        return (f"in {dtype} it ran out of memory: {str(error).splitlines()[0]}",)
    if subject.owns_graph or isinstance(error, ShapeError):
        raise error
    return (f"in {dtype} it raised {type(error).__name__}: {(str(error) or '?').splitlines()[0]}",)


def twins(
    subject: Subject, case: Case, dtype: torch.dtype, piece: Sample, order: int = 1
) -> tuple[Measured, Measured | None]:
    """The judge in float64, on inputs rounded to the dtype; and plain dense torch in the dtype, if that is narrower."""
    leaves = subject.leaves(case, dtype)

    def run(leaves: dict[str, Tensor]) -> Found:
        return _asked(subject.problem(leaves, case, piece).solve(piece), case)

    wide = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    truth = differentiated(run, wide, order, rounded_to=dtype)
    return truth, None if dtype == torch.float64 else differentiated(run, leaves, order)


def measure_backend(
    subject: Subject, case: Case, dtype: torch.dtype, backend: str, piece: Sample, order: int = 1
) -> Measured:
    """What the code under test gives."""

    def run(leaves: dict[str, Tensor]) -> Found:
        return on_sample(subject, _asked(subject.run(leaves, case, backend), case), piece)

    return differentiated(run, subject.leaves(case, dtype), order)


def on_sample(subject: Subject, found: Found, piece: Sample) -> Found:
    """The sampled targets of a result on all of them."""
    return Found(
        found.output.index_select(subject.output_axis, piece.targets),
        None if found.lse is None else found.lse.index_select(-2, piece.targets),
        None if found.weights is None else found.weights.index_select(-2, piece.edge),
    )


def _asked(found: Found, case: Case) -> Found:
    return found if case.extras else Found(found.output)


def differentiated(
    run: Callable[[dict[str, Tensor]], Found],
    leaves: dict[str, Tensor],
    order: int = 1,
    rounded_to: torch.dtype | None = None,
) -> Measured:
    """Outputs, the gradients of a seeded random combination of them, and the same again of the gradients.

    Args:
        run: The forward pass.
        leaves: Its inputs and parameters; every one gets a gradient, zero where autograd finds no path.
        order: How often to differentiate: 0, 1 or 2 times.
        rounded_to: The dtype whose rounding the random combination has; the outputs' own by default.
    """
    layer = {name: x for name, x in run(leaves)._asdict().items() if x is not None}
    values = {name: x.detach() for name, x in layer.items()}
    for prefix, left in (("grad", order - 1), ("second", order - 2))[:order]:
        found = _gradients(layer, leaves, left > 0, rounded_to)
        layer = {f"{prefix} {name}": x for name, x in found.items()}
        values |= {name: x.detach() for name, x in layer.items()}
    return Measured(values)


def _gradients(
    outputs: Mapping[str, Tensor], leaves: Mapping[str, Tensor], create_graph: bool, rounded_to: torch.dtype | None
) -> dict[str, Tensor]:
    carrying = {name: x for name, x in outputs.items() if x.requires_grad}
    if not carrying:
        return {name: torch.zeros_like(x) for name, x in leaves.items()}
    mix = [seeded(f"mix {name}", tuple(x.shape), 1).to(rounded_to or x.dtype).to(x) for name, x in carrying.items()]
    found = torch.autograd.grad(
        list(carrying.values()), list(leaves.values()), mix, create_graph=create_graph, allow_unused=True
    )
    return {
        name: torch.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip(leaves.items(), found, strict=True)
    }


def _compare(
    truth: Measured, dense: Measured | None, found: Measured, backend: str, case: Case, dtype: torch.dtype
) -> Iterator[Row]:
    label = str(dtype).removeprefix("torch.")
    sizes = {name: size(x) for name, x in truth.values.items()}
    for name, reference in truth.values.items():
        if name.startswith("second") and name not in found.values:
            continue  # refused, and reported as such
        scale = _magnitude(name, sizes)
        error = difference(found.values[name], reference) / scale if name in found.values else float("inf")
        plain = 0.0 if dense is None else difference(dense.values[name], reference) / scale
        gradient = name.startswith(("grad", "second"))
        yield Row(backend, label, case.name, name, error, bound(dtype, plain, gradient=gradient))


def _magnitude(name: str, sizes: dict[str, float]) -> float:
    """What an error is relative to; see :mod:`graphattn.verify.bounds`."""
    if name == "weights":
        return 1.0
    if name in ("output", "lse"):
        return max(sizes[name], 1.0 if name == "lse" else 0.0) or 1.0
    kind, is_parameter = name.split()[0], "." in name
    return max(x for n, x in sizes.items() if n.startswith(kind) and ("." in n) == is_parameter) or 1.0


def size(x: Tensor) -> float:
    """The largest finite absolute value; 0.0 if there is none."""
    return float(x.abs().nan_to_num(0.0, 0.0, 0.0).max()) if x.numel() else 0.0


def difference(x: Tensor, reference: Tensor) -> float:
    """The largest absolute difference, in float64; equal infinities do not differ, and a NaN differs infinitely."""
    x, reference = x.double(), reference.double()
    apart = torch.where(x == reference, 0.0, (x - reference).abs()).nan_to_num(nan=float("inf"))
    return float(apart.max()) if apart.numel() else 0.0
