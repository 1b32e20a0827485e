"""Errors of every backend, in outputs and in every gradient. It measures; ``bounds`` judges."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import BackendError, ShapeError
from .bounds import FLOOR, GROWTH, bound, difference, size
from .cover import EVERYTHING
from .memory import too_large
from .report import Refusal, Row
from .sample import Sample, piece_of
from .stability import Stability, only_stable_targets, stability
from .subject import Case, Found, Subject, seeded
from .whole import twin_of_all

Progress = Callable[[str], None]
NUDGES = 2  # of dense torch in half precision


class Measures(NamedTuple):
    """Errors, backends that did not run, and what the reader should know."""

    rows: list[Row]
    refusals: list[Refusal]
    notes: list[str]


class Measured(NamedTuple):
    """What the passes gave, by name: "output", "lse", "weights", "grad query", ..., "second query", ..."""

    values: dict[str, Tensor]


def measure(
    subject: Subject,
    piece: Sample,
    everything: Sequence[Sample] | None,
    dtypes: tuple[torch.dtype, ...],
    backends: tuple[str, ...],
    gradients: bool = True,
    most_bytes: Callable[[], int] | None = None,
    progress: Progress = lambda step: None,
) -> Measures:
    """Every backend x case x dtype against the twin in float64, beside the twin in the same dtype.

    On all targets where ``piece`` is complete or ``everything`` has their pieces; else on those of ``piece``. A backend
    that would hold more than ``most_bytes()`` is not run; None lifts the limit.
    """
    rows: list[Row] = []
    refusals: dict[Refusal, None] = {}
    grounds: list[tuple[torch.dtype, Stability]] = []
    count = subject.graph.num_targets if everything else piece.targets.numel()
    for case in subject.cases:
        for dtype in dtypes:
            order = int(gradients)
            if gradients and subject.owns_graph and dtype == torch.float64 and piece.complete:
                order = 2
            progress(f"the dense twin, {_label(dtype)}, {case.name}")
            ground = stability(subject, case, dtype, everything or [piece])
            stable = only_stable_targets(subject, ground)
            grounds += [] if ground is None else [(dtype, ground)]
            if ground is not None and not ground.some:
                refusals |= {Refusal(backend, case.name, (_nothing_firm(dtype),)): None for backend in backends}
                continue
            truth, dense = twins(stable, case, dtype, piece, everything, order, 0 if ground is None else NUDGES)
            for backend in backends:
                refused = too_large(subject, case, dtype, backend, gradients, most_bytes)
                result = None
                if not refused:
                    progress(f"{backend}, {_label(dtype)}, {case.name}")
                    result, refused = _attempt(stable, case, dtype, backend, None if everything else piece, order)
                refusals |= dict.fromkeys(refused)
                if result is not None:
                    rows += _compare(truth, dense, result, backend, case, dtype, count, ground)
    return Measures(rows, list(refusals), _left_out(grounds, count))


def _left_out(grounds: list[tuple[torch.dtype, Stability]], targets: int) -> list[str]:
    """What the reader should know of answers that were not compared, or to a wider limit."""
    notes = []
    for dtype in dict.fromkeys(dtype for dtype, _ in grounds):
        here = [ground for its, ground in grounds if its == dtype]
        left, growth = max(ground.left_out for ground in here), max(ground.growth for ground in here)
        total = here[0].stable[..., :1].numel() * targets
        if left:
            notes.append(
                f"up to {left:,} of {total:,} answers in {_label(dtype)} not compared: at a tie, a kink or a sum near 0"
            )
        if growth > GROWTH:
            notes.append(f"in {_label(dtype)} rounding of scores grows up to {growth:.0f} times; so do the limits")
    return notes


def _nothing_firm(dtype: torch.dtype) -> str:
    return f"in {dtype} nothing can be compared: every target is at a tie or kink of the score or normalisation"


def measure_outputs(
    subject: Subject,
    pieces: Callable[[], Iterable[Sample]],
    dtypes: tuple[torch.dtype, ...],
    backends: tuple[str, ...],
    most_bytes: Callable[[], int] | None = None,
    progress: Progress = lambda step: None,
) -> list[Row]:
    """The output at every target, in the first case and the widest dtype that a backend takes; no gradients."""
    case, left = subject.cases[0], list(backends)
    rows: list[Row] = []
    for dtype in sorted(dtypes, key=lambda dtype: -torch.finfo(dtype).bits):
        if not left:
            break
        progress(f"the dense twin of all targets, {_label(dtype)}")
        leaves = {name: leaf.detach() for name, leaf in subject.leaves(case, dtype).items()}
        wide = {name: leaf.double() for name, leaf in leaves.items()}
        ground = stability(subject, case, dtype, pieces())
        stable = only_stable_targets(subject, ground)
        truth = Measured({"output": twin_of_all(stable, case, wide, pieces())["output"]})
        dense = []
        if dtype != torch.float64:
            dense = [Measured({"output": twin_of_all(stable, case, leaves, pieces())["output"]})]
        for backend in tuple(left):
            if too_large(subject, case, dtype, backend, False, most_bytes):
                continue
            progress(f"{backend}, all targets, {_label(dtype)}")
            result, _ = _attempt(stable, case, dtype, backend, None, 0)
            if result is not None:
                left.remove(backend)
                only = Measured({"output": result.values["output"]})
                rows += _compare(truth, dense, only, backend, case, dtype, subject.graph.num_targets, ground)
    return rows


def _label(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _attempt(
    subject: Subject, case: Case, dtype: torch.dtype, backend: str, piece: Sample | None, order: int
) -> tuple[Measured | None, list[Refusal]]:
    """The backend's values with as many derivatives as it has, and what it refused."""
    refused: list[Refusal] = []
    for derivatives in (2, 1) if order == 2 else (order,):
        try:
            return measure_backend(subject, case, dtype, backend, piece, derivatives), refused
        except Exception as error:
            reasons, fault = _reasons(subject, error, dtype, case)
        refused.append(Refusal(backend, "second derivatives of " * (derivatives == 2) + case.name, reasons, fault))
    return None, refused[-1:]


def _reasons(subject: Subject, error: Exception, dtype: torch.dtype, case: Case) -> tuple[tuple[str, ...], bool]:
    """The reasons of a refusal, and whether it is a fault; the library's own errors are raised again.

    A caller's function may fail in some dtypes; that a layer raises is a fault.
    """
    if isinstance(error, BackendError):
        return error.reasons or (str(error),), False
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "t allocate memory" in str(error):
        return (f"in {dtype} it ran out of memory: {str(error).splitlines()[0]}",), False
    raised = f"raised {type(error).__name__}"
    words = (str(error) or "?").splitlines()[0]
    if subject.own_code is None or (not subject.owns_graph and isinstance(error, ShapeError)):
        raise error
    if subject.owns_graph:
        return (f"{subject.own_code} {raised} in case {case.name}: {words}",), True
    return (f"in {dtype} it {raised}: {words}",), False


def twins(
    subject: Subject,
    case: Case,
    dtype: torch.dtype,
    piece: Sample,
    everything: Sequence[Sample] | None = None,
    order: int = 1,
    nudges: int = 0,
) -> tuple[Measured, list[Measured]]:
    """The judge in float64, on inputs rounded to the dtype; and plain dense torch in the dtype, if that is narrower.

    In half precision dense torch runs again with its inputs nudged by a rounding, ``nudges`` times: where there are
    kinks, on which side it ends is luck.
    """
    leaves = subject.leaves(case, dtype)

    def run(leaves: dict[str, Tensor]) -> Found:
        return _requested(subject.problem(leaves, case, piece).solve(piece), case)

    def answer(leaves: dict[str, Tensor]) -> Measured:
        if pieces:
            return Measured(twin_of_all(subject, case, leaves, pieces, order, dtype))
        return differentiated(run, leaves, order, rounded_to=dtype)

    pieces = everything
    truth = answer({name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()})
    if dtype == torch.float64:
        return truth, []
    T, S = subject.graph.num_targets, subject.graph.num_sources
    if pieces and T * S * subject.floats_per_pair <= EVERYTHING and any(part.slots is None for part in pieces):
        # In one product, as dense torch has it: sums of pieces round less, and would hold backends to more.
        pieces = [piece_of(subject.graph, torch.arange(T))]
    nudged = [_nudged(leaves, turn) for turn in range(nudges if dtype in FLOOR and dtype != torch.float32 else 0)]
    return truth, [answer(each) for each in (leaves, *nudged)]


def _nudged(leaves: dict[str, Tensor], turn: int) -> dict[str, Tensor]:
    """The leaves, moved by about one rounding of their dtype."""
    moved = {}
    for name, leaf in leaves.items():
        step = 1.0 + torch.finfo(leaf.dtype).eps * seeded(f"nudge {name} {turn}", tuple(leaf.shape), 4).to(leaf.device)
        moved[name] = (leaf.detach().double() * step).to(leaf.dtype).requires_grad_(leaf.requires_grad)
    return moved


def measure_backend(
    subject: Subject, case: Case, dtype: torch.dtype, backend: str, piece: Sample | None, order: int = 1
) -> Measured:
    """What the code under test gives, on the targets of ``piece`` or on all."""

    def run(leaves: dict[str, Tensor]) -> Found:
        result = _requested(subject.run(leaves, case, backend), case)
        return result if piece is None else on_sample(subject, result, piece)

    with torch.set_grad_enabled(order > 0):
        return differentiated(run, subject.leaves(case, dtype), order)


def on_sample(subject: Subject, result: Found, piece: Sample) -> Found:
    """The sampled targets of a result on all of them."""
    return Found(
        result.output.index_select(subject.output_axis, piece.targets),
        None if result.lse is None else result.lse.index_select(-2, piece.targets),
        None if result.weights is None else result.weights.index_select(-2, piece.edge),
    )


def _requested(result: Found, case: Case) -> Found:
    return result if case.extras else Found(result.output)


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
        grads = _gradients(layer, leaves, left > 0, rounded_to)
        layer = {f"{prefix} {name}": x for name, x in grads.items()}
        values |= {name: x.detach() for name, x in layer.items()}
    return Measured(values)


def _gradients(
    outputs: Mapping[str, Tensor], leaves: Mapping[str, Tensor], create_graph: bool, rounded_to: torch.dtype | None
) -> dict[str, Tensor]:
    carrying = {name: x for name, x in outputs.items() if x.requires_grad}
    if not carrying:
        return {name: torch.zeros_like(x) for name, x in leaves.items()}
    mix = [seeded(f"mix {name}", tuple(x.shape), 1).to(rounded_to or x.dtype).to(x) for name, x in carrying.items()]
    grads = torch.autograd.grad(
        list(carrying.values()), list(leaves.values()), mix, create_graph=create_graph, allow_unused=True
    )
    return {
        name: torch.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip(leaves.items(), grads, strict=True)
    }


def _compare(
    truth: Measured,
    dense: Sequence[Measured],
    measured: Measured,
    backend: str,
    case: Case,
    dtype: torch.dtype,
    targets: int,
    ground: Stability | None,
) -> Iterator[Row]:
    sizes = {name: size(x) for name, x in truth.values.items()}
    for name, reference in truth.values.items():
        if name.startswith("second") and name not in measured.values:
            continue  # refused, and reported as such
        scale = _magnitude(name, sizes)
        error = difference(measured.values[name], reference) / scale if name in measured.values else float("inf")
        plain = max((difference(each.values[name], reference) / scale for each in dense), default=0.0)
        gradient = name.startswith(("grad", "second"))
        limit = bound(dtype, plain, gradient=gradient, growth=1.0 if ground is None else ground.growth)
        yield Row(backend, _label(dtype), case.name, name, error, limit, targets)


def _magnitude(name: str, sizes: dict[str, float]) -> float:
    """What an error is relative to; see :mod:`graphattn.verify.bounds`."""
    if name == "weights":
        return 1.0
    if name in ("output", "lse"):
        return max(sizes[name], 1.0 if name == "lse" else 0.0) or 1.0
    kinds = ("grad", "second") if name.startswith("second") else ("grad",)
    alike = [x for n, x in sizes.items() if n.startswith(kinds) and ("." in n) == ("." in name)]
    return max(alike) or 1.0
