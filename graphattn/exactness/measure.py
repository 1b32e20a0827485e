"""Errors of every backend, in outputs and in every gradient. It measures; ``bounds`` judges."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..backends import BACKENDS
from ..backends.device import free_bytes, ran_out_of_memory
from ..errors import BackendError, ShapeError
from ..twins.pieces import EVERYTHING, Piece, longest_sum, piece_of
from ..twins.problem import Result
from .bounds import GROWTH, bound, difference, size
from .report import Refusal, Row
from .stability import Stability, only_stable, stability
from .subject import Case, Subject, detached, seeded

Progress = Callable[[str], None]
# by name: "output", "lse", "weights", "grad query", ..., "second query", ...
Values = dict[str, Tensor]
NUDGES = 2  # of dense torch in half precision
# a backward pass beside a forward one, in bytes of the forward one: 1.2 to 1.7 measured
PASSES_HELD = 2
# bytes for each edge of a rule that is listed and grouped by target and by source, at the peak
LISTED = 96


class Measures(NamedTuple):
    """Errors, refusals, notes, and the number of targets that were compared in every case."""

    rows: list[Row]
    refusals: list[Refusal]
    notes: list[str]
    compared: int


def measure(
    subject: Subject,
    pieces: Sequence[Piece],
    dtypes: Sequence[torch.dtype],
    backends: Sequence[str],
    gradients: bool = True,
    limited: bool = False,
    progress: Progress = lambda step: None,
) -> Measures:
    """Every backend x case x dtype against the twin in float64, beside the twin in the same dtype.

    On the targets of the pieces: several are all targets, one is a sample or all of them. A backend
    that would hold more than half the free memory is not run if it is ``limited``.
    """
    rows: list[Row] = []
    refusals: dict[Refusal, None] = {}
    kinks: list[tuple[torch.dtype, Stability]] = []
    total = sum(piece.targets.numel() for piece in pieces)
    longest = longest_sum(pieces)
    unseen = torch.zeros(subject.graph.num_targets, dtype=torch.bool, device=subject.graph.device)
    for case in subject.cases:
        left_out = torch.ones_like(unseen)
        for dtype in dtypes:
            order = _order(subject, dtype, pieces, gradients)
            progress(f"the dense twin, {_label(dtype)}, {case.name}")
            stable = stability(subject, case, dtype, pieces)
            compared = only_stable(subject, stable)
            nudges = 0
            if stable is None:
                left_out.zero_()
            else:
                kinks.append((dtype, stable))
                nudges = NUDGES
                left_out &= ~stable.stable.reshape(-1, len(unseen)).any(0)
                if not stable.some:
                    reason = (
                        f"in {dtype} nothing can be compared: every target is at a tie or kink of "
                        "the score or normalisation"
                    )
                    refusals |= {Refusal(name, case.name, (reason,)): None for name in backends}
                    continue
            truth, dense = twins(compared, case, dtype, pieces, order, nudges)
            for backend in backends:
                refused: list[Refusal] = []
                if limited:
                    half = free_bytes(subject.graph.device) // 2
                    refused = too_large(subject, case, dtype, backend, half, gradients)
                if not refused:
                    progress(f"{backend}, {_label(dtype)}, {case.name}")
                    values, refused = _attempt(compared, case, dtype, backend, pieces, order)
                    if values is not None:
                        rows += _compare(
                            truth, dense, values, backend, case, dtype, stable, longest
                        )
                refusals |= dict.fromkeys(refused)
        unseen |= left_out
    return Measures(rows, list(refusals), _left_out(kinks, total), total - int(unseen.sum()))


def _order(subject: Subject, dtype: torch.dtype, pieces: Sequence[Piece], gradients: bool) -> int:
    """Order of differentiation: twice in float64 where one piece has all targets."""
    if not gradients:
        return 0
    if dtype == torch.float64 and subject.owns_graph and pieces[0].complete:
        return 2
    return 1


def _left_out(kinks: list[tuple[torch.dtype, Stability]], targets: int) -> list[str]:
    """Notes on answers that were not compared, or to a wider limit."""
    notes = []
    for dtype in dict.fromkeys(dtype for dtype, _ in kinks):
        of_dtype = [stable for of, stable in kinks if of == dtype]
        unstable = max(stable.left_out for stable in of_dtype)
        growth = max(stable.growth for stable in of_dtype)
        total = of_dtype[0].stable[..., :1].numel() * targets
        if unstable:
            notes.append(
                f"up to {unstable:,} of {total:,} answers in {_label(dtype)} not compared: at a tie, "
                "a kink or a sum near 0"
            )
        if growth > GROWTH:
            notes.append(
                f"in {_label(dtype)} rounding of scores grows up to {growth:.0f} times; so do the "
                "limits"
            )
    return notes


def _label(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _attempt(
    subject: Subject,
    case: Case,
    dtype: torch.dtype,
    backend: str,
    pieces: Sequence[Piece],
    order: int,
) -> tuple[Values | None, list[Refusal]]:
    """The backend's values with as many derivatives as it has, and what it refused."""
    refused: list[Refusal] = []
    orders = [order]
    if order == 2:
        orders = [2, 1]
    for derivatives in orders:
        try:
            return measure_backend(subject, case, dtype, backend, pieces, derivatives), refused
        except Exception as error:
            reasons, fault = _reasons(subject, error, dtype, case)
        name = case.name
        if derivatives == 2:
            name = f"second derivatives of {name}"
        refused.append(Refusal(backend, name, reasons, fault))
    return None, refused[-1:]


def _reasons(
    subject: Subject, error: Exception, dtype: torch.dtype, case: Case
) -> tuple[tuple[str, ...], bool]:
    """The reasons of a refusal, and whether it is a fault; the library's own errors are re-raised.

    A caller's function may fail in some dtypes; that a layer raises is a fault.
    """
    if isinstance(error, BackendError):
        return error.reasons or (str(error),), False
    words = (str(error) or "?").splitlines()[0]
    if ran_out_of_memory(error):
        return (f"in {dtype} it ran out of memory: {words}",), False
    if subject.own_code is None:
        raise error
    kind = type(error).__name__
    if subject.owns_graph:
        return (f"{subject.own_code} raised {kind} in case {case.name}: {words}",), True
    if isinstance(error, ShapeError):
        raise error
    return (f"in {dtype} it raised {kind}: {words}",), False


def twins(
    subject: Subject,
    case: Case,
    dtype: torch.dtype,
    pieces: Sequence[Piece],
    order: int = 1,
    nudges: int = 0,
) -> tuple[Values, list[Values]]:
    """The judge in float64, on inputs rounded to the dtype, and dense torch in a narrower dtype.

    In half precision dense torch runs again with its inputs nudged by a rounding, ``nudges`` times:
    where there are kinks, on which side it ends is luck.
    """
    leaves = subject.leaves(case, dtype)
    upcast = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    truth = _twin(subject, case, upcast, pieces, order, dtype)
    if dtype == torch.float64:
        return truth, []
    T = subject.graph.num_targets
    S = subject.graph.num_sources
    joint = len(pieces) > 1 and any(piece.slots is None for piece in pieces)
    if joint and T * S * subject.floats_per_pair <= EVERYTHING:
        # In one product, as dense torch has it: sums of pieces round less, and would hold backends
        # to more.
        pieces = [piece_of(subject.graph, torch.arange(T))]
    inputs = [leaves]
    if dtype in (torch.float16, torch.bfloat16):
        for turn in range(nudges):
            moved = {}  # by about one rounding of their dtype
            for name, leaf in leaves.items():
                noise = seeded(f"nudge {name} {turn}", tuple(leaf.shape), 4).to(leaf.device)
                value = leaf.detach().double() * (1.0 + torch.finfo(leaf.dtype).eps * noise)
                moved[name] = value.to(leaf.dtype).requires_grad_(leaf.requires_grad)
            inputs.append(moved)
    return truth, [_twin(subject, case, x, pieces, order, dtype) for x in inputs]


def _twin(
    subject: Subject,
    case: Case,
    leaves: dict[str, Tensor],
    pieces: Sequence[Piece],
    order: int,
    dtype: torch.dtype,
) -> Values:
    """The dense twin's values, of one piece or summed over several."""
    if len(pieces) > 1:
        return _summed(subject, case, leaves, pieces, order, dtype)

    def solve(leaves: dict[str, Tensor]) -> Result:
        return subject.problem(leaves, case, pieces[0]).solve(pieces[0])

    return _differentiated(solve, leaves, case, order, dtype)


def measure_backend(
    subject: Subject,
    case: Case,
    dtype: torch.dtype,
    backend: str,
    pieces: Sequence[Piece] = (),
    order: int = 1,
) -> Values:
    """Values of the code under test, on the targets of the one piece or on all."""

    def run(leaves: dict[str, Tensor]) -> Result:
        result = subject.run(leaves, case, backend)
        if len(pieces) != 1:
            return result
        return _on_piece(subject, result, pieces[0])

    leaves = subject.leaves(case, dtype)
    if order == 0:  # some code refuses inputs that require gradients, even under no_grad
        leaves = detached(leaves)
    with torch.set_grad_enabled(order > 0):
        return _differentiated(run, leaves, case, order)


def _on_piece(subject: Subject, result: Result, piece: Piece) -> Result:
    """The piece's targets of a result on all of them."""
    output = result.output.index_select(subject.output_axis, piece.targets)
    lse = result.lse
    if lse is not None:
        lse = lse.index_select(-2, piece.targets)
    weights = result.weights
    if weights is not None:
        weights = weights.index_select(-2, piece.edge)
    return Result(output, lse, weights)


def _differentiated(
    run: Callable[[dict[str, Tensor]], Result],
    leaves: dict[str, Tensor],
    case: Case,
    order: int = 1,
    rounded_to: torch.dtype | None = None,
) -> Values:
    """Outputs, gradients of a seeded random combination of them, and second derivatives.

    Args:
        run: The forward pass.
        leaves: Its inputs and parameters; every one gets a gradient, zero where autograd finds no
            path.
        case: Says whether lse and weights are outputs.
        order: How often to differentiate: 0, 1 or 2 times.
        rounded_to: The dtype whose rounding the random combination has; the outputs' own by
            default.
    """
    result = run(leaves)
    functions = {"output": result.output}
    if case.lse and result.lse is not None:
        functions["lse"] = result.lse
    if case.weights and result.weights is not None:
        functions["weights"] = result.weights
    values = dict(functions)
    for prefix, left in (("grad", order - 1), ("second", order - 2))[:order]:
        grads = _gradients(functions, leaves, left > 0, rounded_to)
        functions = {f"{prefix} {name}": x for name, x in grads.items()}
        values |= functions
    return detached(values)


def _gradients(
    outputs: Mapping[str, Tensor],
    leaves: Mapping[str, Tensor],
    create_graph: bool,
    rounded_to: torch.dtype | None,
) -> dict[str, Tensor]:
    differentiable = {name: x for name, x in outputs.items() if x.requires_grad}
    if not differentiable:
        return {name: torch.zeros_like(x) for name, x in leaves.items()}
    mix = [
        _mix(name, tuple(x.shape), rounded_to or x.dtype, x) for name, x in differentiable.items()
    ]
    grads = torch.autograd.grad(
        list(differentiable.values()),
        list(leaves.values()),
        mix,
        create_graph=create_graph,
        materialize_grads=True,
    )
    return dict(zip(leaves, grads, strict=True))


def _mix(name: str, shape: tuple[int, ...], rounded_to: torch.dtype, like: Tensor) -> Tensor:
    """The seeded random combination of an output, as seen after rounding."""
    return seeded(f"mix {name}", shape, 1).to(rounded_to).to(like)


def _summed(
    subject: Subject,
    case: Case,
    leaves: dict[str, Tensor],
    pieces: Sequence[Piece],
    order: int,
    rounded_to: torch.dtype,
) -> Values:
    """The twin of all targets, piece by piece, as :func:`_differentiated` gives it of one problem.

    Gradients are summed over the pieces in the dtype of the leaves, float32 at least.
    """
    values: Values = {}
    mixes: dict[str, Tensor] = {}
    # Wider sums than those of dense torch in the same dtype would flatter it.
    grads = {
        name: torch.zeros_like(leaf, dtype=torch.promote_types(leaf.dtype, torch.float32))
        for name, leaf in leaves.items()
    }
    T = subject.graph.num_targets
    E = subject.graph.num_edges
    for piece in pieces:
        with torch.set_grad_enabled(order > 0):
            result = subject.problem(leaves, case, piece).solve(piece)
        parts = {"output": (result.output, subject.output_axis, piece.targets, T)}
        if case.lse:
            assert result.lse is not None
            parts["lse"] = (result.lse, -2, piece.targets, T)
        if case.weights:
            assert result.weights is not None
            parts["weights"] = (result.weights, -2, piece.edge, E)
        for name, (part, axis, place, total) in parts.items():
            if name not in values:
                shape = list(part.shape)
                shape[axis] = total
                values[name] = part.new_zeros(shape).detach()
                if order:
                    mixes[name] = _mix(name, tuple(shape), rounded_to, part)
            values[name].index_copy_(axis, place, part.detach())
        if not order:
            continue
        names = [name for name, (part, *_) in parts.items() if part.requires_grad]
        if names:
            mix = [mixes[name].index_select(*parts[name][1:3]) for name in names]
            outputs = [parts[name][0] for name in names]
            sent = torch.autograd.grad(outputs, list(leaves.values()), mix, allow_unused=True)
            for name, grad in zip(leaves, sent, strict=True):
                if grad is not None:
                    grads[name] += grad
    if order:
        values |= {f"grad {name}": x.to(leaves[name].dtype) for name, x in grads.items()}
    return values


def _compare(
    truth: Values,
    dense: Sequence[Values],
    measured: Values,
    backend: str,
    case: Case,
    dtype: torch.dtype,
    stable: Stability | None,
    longest: int,
) -> Iterator[Row]:
    sizes = {name: size(x) for name, x in truth.items()}
    growth = 1.0
    if stable is not None:
        growth = stable.growth
    for name, reference in truth.items():
        scale = _magnitude(name, sizes)
        if name in measured:
            error = difference(measured[name], reference) / scale
        elif name.startswith("second"):
            continue  # refused, and reported as such
        else:
            error = float("inf")
        plain = max((difference(values[name], reference) / scale for values in dense), default=0.0)
        gradient = name.startswith(("grad", "second"))
        limit = bound(dtype, plain, gradient=gradient, growth=growth, longest=longest)
        yield Row(backend, _label(dtype), case.name, name, error, limit)


def _magnitude(name: str, sizes: dict[str, float]) -> float:
    """Magnitude that an error is relative to; see :mod:`graphattn.exactness.bounds`."""
    if name == "weights":
        return 1.0
    if name == "lse":
        return max(sizes["lse"], 1.0)
    if name == "output":
        return sizes["output"] or 1.0
    kinds: tuple[str, ...] = ("grad",)
    if name.startswith("second"):
        kinds = ("grad", "second")
    derivatives = {other: x for other, x in sizes.items() if other.startswith(kinds)}
    # parameters, which have a dot in their names, are apart from inputs
    return max(x for other, x in derivatives.items() if ("." in other) == ("." in name)) or 1.0


# --- memory


def too_large(
    subject: Subject,
    case: Case,
    dtype: torch.dtype,
    backend: str,
    most_bytes: int,
    gradients: bool = True,
) -> list[Refusal]:
    """The refusal of a backend that would hold more than so many bytes, or none."""
    request = subject.request(case, dtype)
    graph = subject.graph
    if request is None or backend not in BACKENDS:
        return []
    way = BACKENDS[backend]
    if way.reasons_against(graph, request):
        return []
    needed = way.bytes_needed(graph, request)
    if gradients:
        needed *= PASSES_HELD
    if graph.is_rule and way.lists_edges:
        needed += LISTED * graph.num_edges
    if needed <= most_bytes:
        return []
    reason = (
        f"measuring it takes about {needed:,} bytes, {most_bytes:,} may be taken; name it in "
        "backends= to insist"
    )
    return [Refusal(backend, case.name, (reason,))]
