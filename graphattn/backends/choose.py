"""The choice of a backend and its reasons.

``attention`` costs as few backends as possible, by lower bounds of their costs; ``explain`` costs
all, and chooses the same.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any

import torch

from ..arguments import shown
from ..errors import BackendError
from ..graph import AttentionGraph, PerHead
from ..graph.kinds.per_head import heads_read
from ..operands import HALF
from ..plans.cache import known
from ..printed import Printed
from .base import BACKENDS, Backend
from .device import without_kernels
from .rates import measured, revision
from .request import EMPTY, Request


@dataclass(frozen=True)
class Candidate:
    """A backend for a call: it runs, and has a cost, if there are no reasons against it."""

    name: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    bytes_needed: int
    cost_ms: float
    training_ms: float
    cost: float
    """The time in ms by which backends are ranked."""

    @property
    def runs(self) -> bool:
        """True if there are no reasons against it."""
        return not self.reasons

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values; no numbers for a backend that cannot run."""
        row: dict[str, Any] = {
            "backend": self.name,
            "runs": self.runs,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "bytes": None,
            "estimated_ms": None,
            "estimated_training_ms": None,
        }
        if self.runs:
            row["bytes"] = self.bytes_needed
            row["estimated_ms"] = round(self.cost_ms, 3)
            row["estimated_training_ms"] = round(self.training_ms, 3)
        return row


@dataclass(frozen=True, repr=False)
class Explanation(Printed):
    """The backend that would run on a graph, and the reasons against the others, for printing."""

    graph: AttentionGraph
    request: Request
    candidates: tuple[Candidate, ...]
    chosen: str | None

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        rows = [c.to_dict() for c in self.candidates]
        return {"graph": repr(self.graph), "chosen": self.chosen, "candidates": rows}

    def in_full(self) -> str:
        chosen = self.chosen
        if chosen is None:
            chosen = "none can run"
        lines = [repr(self.graph), f"call: {_in_words(self.request)}", f"backend: {chosen}"]
        alone = _best(self.candidates, "cost_ms")
        if self.request.trains and alone != self.chosen:
            lines.append(f"under torch.no_grad(), without a backward pass: {alone}")
        if self.request.device.type == "cuda" and not measured("cuda"):
            lines.append(
                "times on CUDA come from a model; to measure them: graphattn doctor --calibrate "
                "--device cuda"
            )
        others = [c for c in self.candidates if c.name != self.chosen]
        least = min((c.cost for c in self.candidates if c not in others), default=math.nan)
        near = ", ".join(c.name for c in others if c.cost <= 1.1 * least)
        if near:
            lines.append(f"within 10 % of it: {near}")
        for c in self.candidates:
            if c.runs:
                if c.name == self.chosen:
                    mark = "*"
                else:
                    mark = " "
                lines.append(
                    f"{mark} {c.name}: about {_in_units(c.cost_ms, _TIMES)} forward, "
                    f"{_in_units(c.bytes_needed, _SIZES)} of its own"
                )
            else:
                lines.append(f"  {c.name}: refused")
                lines += [f"      because {reason}" for reason in c.reasons]
            lines += [f"      note: {note}" for note in c.notes * c.runs]
        if self.request.device.type == "cpu":
            source = "built in; graphattn doctor --calibrate measures those of this machine"
            if measured():
                source = "measured on this machine"
            lines.append(f"rates: {source}; threads: {torch.get_num_threads()}")
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class HeadsExplanation(Printed):
    """The backend that would run on the graph of each group of heads, for printing."""

    graph: PerHead
    groups: tuple[tuple[int, int, Explanation], ...]
    """First head, last head + 1, and the explanation of their graph."""

    @classmethod
    def of(cls, graph: PerHead, request: Request) -> "HeadsExplanation":
        """The explanation of each group."""
        groups = []
        for _, part, first, last in graph.groups(request.heads):
            kv_heads = len(heads_read(first, last, request.heads, request.kv_heads))
            of_group = request._replace(heads=last - first, kv_heads=kv_heads)
            groups.append((first, last, explain_choice(part, of_group)))
        return cls(graph, tuple(groups))

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        groups = [
            {"heads": [first, last], **explanation.to_dict()}
            for first, last, explanation in self.groups
        ]
        return {"graph": repr(self.graph), "groups": groups}

    def in_full(self) -> str:
        return "\n".join(
            f"heads {first} to {last - 1}: {explanation}"
            for first, last, explanation in self.groups
        )


def _in_words(request: Request) -> str:
    """The sizes of a call, its dtype and its device, for printing."""
    heads = f"{request.heads} heads"
    if request.heads == 1:
        heads = "1 head"
    if request.kv_heads != request.heads:
        heads += f" on {request.kv_heads}"
    width = f"{request.head_dim}"
    if request.value_dim != request.head_dim:
        width += f", values of {request.value_dim}"
    dtype = str(request.dtype).removeprefix("torch.")
    return f"batch {request.batch}, {heads} of {width}, {dtype} on {request.device}"


_TIMES = ((1.0, "ms"), (1e3, "s"), (60e3, "min"), (3600e3, "h"), (86400e3, "days"))
_SIZES = ((1.0, "bytes"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"))


def _in_units(amount: float, units: tuple[tuple[float, str], ...]) -> str:
    """An amount of the first unit in the largest unit that fits: ``123000`` ms are ``2.05 min``."""
    size, unit = max((unit for unit in units if amount >= 0.995 * unit[0]), default=units[0])
    return f"{amount / size:,.3g} {unit}"


def candidates(graph: AttentionGraph, request: Request) -> tuple[Candidate, ...]:
    """A candidate for every backend, in the order of :data:`BACKENDS`, without notes."""
    return tuple(_candidate(backend, graph, request) for backend in BACKENDS.values())


def _candidate(backend: Backend, graph: AttentionGraph, request: Request) -> Candidate:
    reasons = tuple(backend.reasons_against(graph, request))
    if reasons:  # the cost may be slow to compute
        return Candidate(backend.name, reasons, (), 0, math.nan, math.nan, math.nan)
    forward = backend.cost_ms(graph, request)
    needed = backend.bytes_needed(graph, request)
    return Candidate(
        backend.name,
        (),
        (),
        needed,
        forward,
        forward * backend.training(request),
        backend.ranked(request, forward),
    )


def _best(rows: tuple[Candidate, ...], by: str = "cost") -> str | None:
    """The name of the candidate that takes the least time."""
    best = min((c for c in rows if c.runs), key=attrgetter(by), default=None)
    if best is None:
        return None
    return best.name


def choose(graph: AttentionGraph, request: Request, backend: str = "auto") -> str:
    """The name of the backend that runs: the one named, or the cheapest that can.

    Raises:
        BackendError: If there are reasons against the one named, or against all.
    """
    if backend != "auto":
        return _named(graph, request, backend)
    key = (revision(), *BACKENDS.values(), request)
    chosen = known(graph, "chosen backends", key, partial(_cheapest, graph, request))
    if chosen is None:
        explanation = explain_choice(graph, request)
        reasons = [f"{c.name}: {reason}" for c in explanation.candidates for reason in c.reasons]
        raise BackendError(f"no backend can run {graph!r}:", reasons)
    return chosen


def _named(graph: AttentionGraph, request: Request, backend: str) -> str:
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise BackendError(
            f'backend must be "auto" or one of {", ".join(BACKENDS)}, got {shown(backend)}'
        )
    reasons = BACKENDS[backend].reasons_against(graph, request)
    if reasons and {EMPTY}.issuperset(reasons):
        return "message_passing"
    if reasons:
        raise BackendError(f"backend {backend!r} cannot run {graph!r}:", reasons)
    return backend


def choose_among(names: tuple[str, ...], request: Request, backend: str) -> str:
    """The backend for edges that only some backends run: the one named, or ``edges`` by default.

    Where the device has no kernels, ``message_passing`` is the default.

    Raises:
        BackendError: If the one named cannot run them.
    """
    reasons = without_kernels(request.device)
    if backend == "auto":
        if reasons:
            return "message_passing"
        return "edges"
    if backend not in names:
        reasons = [f"EdgeTensors run on {' or '.join(names)}"]
    if reasons and backend != "message_passing":
        raise BackendError(f"backend {backend!r} cannot run EdgeTensors:", reasons)
    return backend


def _cheapest(graph: AttentionGraph, request: Request) -> str | None:
    """The choice of :func:`explain_choice`, without the cost of those whose lower bound is above."""
    best = None
    least = math.inf
    for backend in sorted(BACKENDS.values(), key=methodcaller("bare_cost", request)):
        if backend.bare_cost(request) >= least:
            break
        if backend.ranked(request, backend.least_ms(graph, request)) >= least:
            continue
        candidate = _candidate(backend, graph, request)
        if candidate.cost < least:  # NaN, if it cannot run
            best = backend.name
            least = candidate.cost
    return best


def explain_choice(graph: AttentionGraph, request: Request) -> Explanation:
    """The backend that ``"auto"`` would run, and the cost or refusal of each other one."""
    rows = candidates(graph, request)
    explained = []
    for row in rows:
        notes: list[str] = []
        if row.runs:  # notes may be slow to compute
            notes = BACKENDS[row.name].notes(graph, request)
        explained.append(replace(row, notes=tuple(notes)))
    return Explanation(graph, request, tuple(explained), _best(rows))


def out_of_memory(graph: AttentionGraph, request: Request, name: str) -> str:
    """The message for a call that ran out of memory: its need, and calls that need less."""
    rows = {c.name: c.bytes_needed for c in candidates(graph, request) if c.runs}
    needed = rows.get(name, 0)
    less = [
        f"backend={other!r} ({_in_units(size, _SIZES)})"
        for other, size in sorted(rows.items(), key=lambda row: row[1])
        if size < needed
    ]
    sizes = (
        f"a batch of {request.batch}, {request.heads} heads of {request.head_dim} and "
        f"{request.value_dim} numbers"
    )
    ways = [
        *less,
        "a smaller batch",
        *["half precision"] * (request.dtype not in HALF),
        "torch.no_grad() to infer",
    ]
    return (
        f"graphattn: on {name!r} a forward pass holds about {_in_units(needed, _SIZES)} beside its "
        f"inputs: {sizes} in {request.dtype}, on {graph!r}. Try: {', '.join(ways)}, or "
        "torch.utils.checkpoint to train."
    )
