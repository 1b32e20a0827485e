"""Invariants for any numbers: which sources are read, and independence of edge and node order.

Each function tries to contradict one claim of the table at the end, and says how it did; ``None``
if it did not.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..twins.pieces import EXHAUSTIVE, Piece
from .bounds import agreement, difference, size
from .measure import Progress
from .probe import SHOVE, Probe, threads
from .report import Check, Row
from .subject import Subject

Outcome = str | None  # what went wrong; None if nothing did
_UNDERFLOW = 1e-12  # a weight of exp(-28) and less, which no output shows
MOST_MOVED = 256  # sources that are moved one by one


class Invariant(NamedTuple):
    """A claim in words, the probes it applies to, a test of it, and whether that needs biases."""

    claim: str
    applies: Callable[[Probe], bool]
    wrong: Callable[[Probe], Outcome]
    with_bias: bool = False
    tried: Callable[[Probe], str] = lambda probe: ""


def tested_invariants(
    subject: Subject,
    piece: Piece,
    rows: Sequence[Row],
    gradients: bool,
    progress: Progress,
    num_threads: int,
) -> list[Check]:
    """Every invariant that applies, for every backend, in the first dtype that was measured.

    ``num_threads`` is the number of threads of the caller's torch.
    """
    if subject.graph.is_rule:
        checks = [_rule_agrees(subject.graph, piece)]
    else:
        checks = []
    for backend in dict.fromkeys(row.backend for row in rows):
        of_backend = [row for row in rows if row.backend == backend]
        plain, biased = _probes(subject, piece, of_backend, gradients, num_threads)
        progress(f"{backend}, invariants")
        for claim, applies, test, with_bias, tried in INVARIANTS:
            if with_bias:
                probe = biased
            else:
                probe = plain
            if applies(probe):
                wrong = _outcome(subject, test, probe)
                checks.append(Check(backend, claim, wrong is None, wrong or "", tried(probe)))
    return checks


def _outcome(subject: Subject, test: Callable[[Probe], Outcome], probe: Probe) -> Outcome:
    """Contradiction of a claim; a caller's own code may also raise."""
    try:
        return test(probe)
    except Exception as error:
        if subject.own_code is None:
            raise
        words = (str(error) or "?").splitlines()[0]
        return f"{subject.own_code} raised {type(error).__name__}: {words}"


def _probes(
    subject: Subject, piece: Piece, rows: Sequence[Row], gradients: bool, num_threads: int
) -> tuple[Probe, Probe]:
    """Probes of the first measured case without biases and of the first with them.

    They are the same if all cases have biases, or none.
    """
    dtype = rows[0].dtype
    measured = {row.case for row in rows if row.dtype == dtype}
    cases = [
        replace(case, lse=False, weights=False) for case in subject.cases if case.name in measured
    ]
    plain = min(cases, key=lambda case: case.bias)
    biased = max(cases, key=lambda case: case.bias)
    options = (getattr(torch, dtype), rows[0].backend, gradients, num_threads)
    probe = Probe(subject, piece, plain, *options)
    if plain == biased:
        return probe, probe
    return probe, Probe(subject, piece, biased, *options)


# --- what is read


def _has_edges(probe: Probe) -> bool:
    """True if an edge has a weight and the output is not empty."""
    return bool(probe.busy) and probe.output.numel() > 0


def _repeats(applies: Callable[[Probe], bool]) -> Callable[[Probe], bool]:
    return lambda probe: applies(probe) and probe.repeats


def _has_non_neighbours(probe: Probe) -> bool:
    """True if some probed target does not read all sources."""
    return _has_edges(probe) and bool(_rows_with_non_neighbours(probe))


def _rows_with_non_neighbours(probe: Probe) -> list[int]:
    return [row for row in probe.probed if bool(probe.non_neighbours(row).any())]


def _non_neighbours_unread(probe: Probe) -> Outcome:
    """Moves all sources that a target does not read, for one target after the other."""
    for row in _rows_with_non_neighbours(probe):
        moved = probe.non_neighbours(row)
        before = probe.at(probe.output, [row])
        after = probe.at(probe.run(probe.perturbed(moved)), [row])
        if not torch.equal(before, after):
            count = int(moved.sum())
            apart = difference(after, before)
            return (
                f"moving {count} sources without an edge into {probe.name(row)} changed the "
                f"output by {apart:.3g}"
            )
    return None


def _no_gradient(probe: Probe) -> Outcome:
    """Sends a gradient back from one target alone.

    A NaN is an error of its own, in the table of errors.
    """
    if not probe.gradients_sent:
        return None
    for row in _rows_with_non_neighbours(probe):
        unread = probe.non_neighbours(row)
        for name, grad in probe.gradients_sent[row].items():
            leak = size(grad[unread])
            if leak == 0.0:
                continue
            cause = ""
            if leak < _UNDERFLOW:
                cause = "; the mask is filled with a finite number, fill with -inf"
            return (
                f"{probe.name(row)} sent a gradient of {leak:.3g} to {name} of sources without an "
                f"edge{cause}"
            )
    return None


def _neighbours_read(probe: Probe) -> Outcome:
    """A neighbour is read if it is sent a gradient, or if moving it alone changes the output.

    Without gradients every neighbour is moved on a small graph, one of each target on a large one.
    """
    without_gradient: dict[int, list[int]] = {}  # source -> rows that send it nothing
    for row in probe.probed:
        near = probe.weighted_sources(row)
        moved = near
        if probe.gradients and probe.gradients_sent:
            sent = [grad[near] != 0 for grad in probe.gradients_sent[row].values()]
            if sent:
                moved = near[~torch.stack(sent).any(0)]
            probe.pairs_read += near.numel() - moved.numel()
        elif not probe.piece.complete:
            moved = near[row % near.numel()][None]
        for source in moved.tolist():
            without_gradient.setdefault(source, []).append(row)
    for source, rows in list(without_gradient.items())[:MOST_MOVED]:
        unmoved = _unmoved(probe, source, rows)
        if unmoved is not None:
            return (
                f"moving source {source} changed nothing at {probe.name(unmoved)}, which reads it"
            )
        probe.pairs_read += len(rows)
    return None


def _unmoved(probe: Probe, source: int, rows: list[int]) -> int | None:
    """A row whose output stays the same when the source is moved, however far."""
    alone = torch.zeros(
        probe.graph.num_sources, dtype=torch.bool, device=probe.piece.targets.device
    )
    alone[source] = True
    for by in (1.0, 16.0, 256.0):  # half precision may round a small weight away
        output = probe.run(probe.perturbed(alone, by * SHOVE))
        rows = [
            row
            for row in rows
            if torch.equal(probe.at(output, [row]), probe.at(probe.output, [row]))
        ]
        if not rows:
            return None
    return rows[0]


def _non_neighbours_tried(probe: Probe) -> str:
    """Number of pairs without an edge that were tried."""
    count = sum(int(probe.non_neighbours(row).sum()) for row in _rows_with_non_neighbours(probe))
    noun = "pairs"
    if count == 1:
        noun = "pair"
    return _tried(probe, count, f"{noun} without an edge", True)


def _neighbours_tried(probe: Probe) -> str:
    """Number of edges that were tried; copies of one count once."""
    every = sum(probe.weighted_sources(row).numel() for row in probe.probed)
    noun = _edges(probe.pairs_read)
    if bool((probe.edge_weight == 0).any()):
        noun = f"{noun} with a weight"
    return _tried(probe, probe.pairs_read, noun, probe.pairs_read == every)


def _edges(count: int) -> str:
    if count == 1:
        return "edge"
    return "edges"


def _of_edges(probe: Probe, count: int) -> str:
    return f"{count:,} of {probe.graph.num_edges:,} {_edges(probe.graph.num_edges)}"


def _tried(probe: Probe, count: int, noun: str, all_tried: bool) -> str:
    """The number of pairs that were tried, and of targets unless that is all of them."""
    busy = int(torch.unique(probe.piece.row[probe.edge_weight > 0]).numel())
    if all_tried and probe.piece.complete and len(probe.probed) == busy:
        return f"all {count:,} {noun}"
    return f"{count:,} {noun}, at {len(probe.probed)} of {probe.graph.num_targets:,} targets"


def _isolated(probe: Probe) -> Outcome:
    """Looks at the targets without an edge."""
    rows = torch.nonzero(probe.degree == 0).flatten().tolist()
    outputs = probe.at(probe.output, rows)
    if bool((outputs == 0).all()):
        return None
    return f"one has {size(outputs):.3g}, or a NaN"


def _same_bits(probe: Probe) -> Outcome:
    """Runs forward and backward twice, in the caller's threads.

    A NaN is an error of its own, in the table of errors.
    """
    runs = []
    for _ in range(2):
        with threads(probe.threads):
            leaves, output = probe.run_with_gradients()
            values: dict[str, Tensor | None] = {"the output": output}
            if output.requires_grad:
                grads = torch.autograd.grad(output.sum(), list(leaves.values()), allow_unused=True)
                values |= zip((f"the gradient of {name}" for name in leaves), grads, strict=True)
        runs.append(values)
    for name, x in runs[0].items():
        y = runs[1][name]
        if x is None or y is None:
            continue
        if torch.equal(x, y) or bool(torch.isnan(x).any()):
            continue
        apart = difference(x.detach(), y.detach())
        if probe.repeats:
            return f"{name} of two runs differs by {apart:.3g}"
        return f"{name} of two runs differs by {apart:.3g}; so no claim about two runs was tried"
    return None


# --- edges that are removed, listed in another order, or between nodes of other names


def _listable(probe: Probe) -> bool:
    """True if the graph can be listed anew, edge by edge."""
    return _has_edges(probe) and probe.listable


def _telling(probe: Probe) -> list[list[int]]:
    """Targets, those with the fewest edges first, one of whose edges is dropped."""
    rows = [
        row for row in probe.busy if probe.degree[row] == 1 or probe.neighbours(row).numel() > 1
    ]
    return probe.groups(sorted(rows, key=lambda row: int(probe.degree[row])))


def _removed_edge(probe: Probe) -> Outcome:
    """Drops the edge with the largest weight.

    Not one whose copies carry the same weight without it.
    """
    # Less is rounding, as edges are summed in another order; half precision rounds too coarsely.
    coarse = probe.dtype in (torch.float16, torch.bfloat16)
    if coarse:
        least = 0.0
    else:
        least = agreement(probe.dtype) * size(probe.output)
    for group in _telling(probe):
        gone = {}
        for row in group:
            edges = probe.piece.row == row
            if bool((probe.edge_weight == 1).all()):
                place = row % int(edges.sum())
            else:
                place = int(probe.edge_weight[edges].argmax())
            gone[row] = int(probe.piece.edge[edges][place])
        output = probe.run(*probe.without(torch.tensor(list(gone.values()))))
        for row, edge in gone.items():
            if difference(probe.at(output, [row]), probe.at(probe.output, [row])) <= least:
                return f"dropping edge {edge} changed nothing at its {probe.name(row)}"
    return None


def _masked(probe: Probe) -> Tensor:
    """All edges of one target, and one of each of two others."""
    first, *others = probe.busy
    piece = probe.piece
    edges = [piece.edge[piece.row == first]]
    edges += [piece.edge[piece.row == row][:1] for row in others[:2]]
    return torch.cat(edges)


def _masked_edges(probe: Probe) -> Outcome:
    """Sets the biases of one whole target, and of one edge of another, to -inf."""
    gone = _masked(probe)
    leaves = {name: leaf.clone() for name, leaf in probe.leaves.items()}
    leaves["score_bias"][gone] = -torch.inf
    fewer, graph = probe.without(gone)
    if graph.num_edges == 0:
        return None
    leaves = {name: leaf.requires_grad_(probe.gradients) for name, leaf in leaves.items()}
    output = probe.subject.run(leaves, probe.case, probe.backend).output
    apart = _agrees(probe, output.detach(), probe.run(fewer, graph))
    if apart is not None or not output.requires_grad:
        return apart
    grads = torch.autograd.grad(output.sum(), list(leaves.values()), allow_unused=True)
    for name, grad in zip(leaves, grads, strict=True):
        if grad is None:
            continue
        if not bool(torch.isfinite(grad).all()):
            return f"the gradient of {name} is not finite"
        if name == "score_bias" and bool((grad[gone] != 0).any()):
            return "such an edge is sent a gradient"
    return None


def _agrees(probe: Probe, output: Tensor, other: Tensor) -> Outcome:
    """Compares two outputs, to the bound of two exact results."""
    output = probe.where_stable(output)
    other = probe.where_stable(other)
    apart = difference(output, other) / (size(other) or 1.0)
    limit = agreement(probe.dtype)
    if apart <= limit:
        return None
    return f"outputs differ by {apart:.3g} of their size (bound {limit:.3g})"


def _rule_agrees(graph: AttentionGraph, piece: Piece) -> Check:
    """``contains`` is called on every source of as many targets of the piece as that allows."""
    targets = piece.targets[: max(1, 16 * EXHAUSTIVE // max(1, graph.num_sources))]
    rows = targets.numel()
    sources = torch.arange(graph.num_sources, device=targets.device)
    inside = graph.contains(targets[:, None], sources[None, :])
    listed = torch.zeros_like(inside)
    near = piece.row < rows
    listed[piece.row[near], piece.columns[piece.column[near]]] = True
    words = ""
    for row, source in torch.nonzero(inside != listed)[:1].tolist():
        words = (
            f"contains({int(targets[row])}, {source}) is {bool(inside[row, source])}, and its "
            "runs say otherwise"
        )
    if rows == graph.num_targets:
        tried = ""
    else:
        tried = f"{rows:,} of {graph.num_targets:,} rows"
    return Check("graph", "the rule's closed form agrees with its edges", not words, words, tried)


INVARIANTS = (
    Invariant(
        "non-neighbours are not read, bit for bit",
        _repeats(_has_non_neighbours),
        _non_neighbours_unread,
        tried=_non_neighbours_tried,
    ),
    Invariant(
        "the gradient of a non-neighbour is exactly 0",
        lambda p: p.gradients and _has_non_neighbours(p),
        _no_gradient,
        tried=_non_neighbours_tried,
    ),
    Invariant(
        "every neighbour is read", _repeats(_has_edges), _neighbours_read, tried=_neighbours_tried
    ),
    Invariant(
        "a target without an edge gives exactly 0",
        lambda p: p.subject.gives_zero and bool((p.degree == 0).any()),
        _isolated,
    ),
    Invariant("the same bits twice", lambda p: True, _same_bits),
    Invariant(
        "a removed edge is seen",
        _repeats(_listable),
        _removed_edge,
        True,
        lambda p: _of_edges(p, sum(map(len, _telling(p)))),
    ),
    Invariant(
        "an edge with a bias of -inf is an edge removed",
        lambda p: _listable(p) and "score_bias" in p.leaves and p.repeats,
        _masked_edges,
        True,
        lambda p: _of_edges(p, _masked(p).numel()),
    ),
    Invariant(
        "the order of the edges does not matter",
        _repeats(_listable),
        lambda p: _agrees(p, p.reordered(), p.output),
        True,
    ),
    Invariant(
        "the labels of the nodes do not matter",
        _repeats(_listable),
        lambda p: _agrees(p, p.renamed(), p.output),
        True,
    ),
)
