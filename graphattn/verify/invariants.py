"""Invariants, whatever the numbers are: what is read, and that order and names do not matter."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from . import claims
from .claims import Outcome
from .probe import Probe
from .report import Check, Row
from .sample import Sample
from .subject import Case, Subject

RULE_AGREES = "the rule's closed form agrees with its edges"


class Invariant(NamedTuple):
    """A claim in words, whether it means anything for a probe, what contradicts it, and whether biases matter to it."""

    claim: str
    applies: Callable[[Probe], bool]
    wrong: Callable[[Probe], Outcome]
    with_bias: bool = False
    tried: Callable[[Probe], str] = lambda probe: ""


def check_invariants(
    subject: Subject,
    piece: Sample,
    rows: Sequence[Row],
    gradients: bool = True,
    progress: Callable[[str], None] = lambda step: None,
    threads: int | None = None,
) -> list[Check]:
    """Every invariant that has a meaning here, for every backend, in the first dtype that was measured.

    ``threads`` is how many the caller's torch takes, by default as many as here.
    """
    threads = torch.get_num_threads() if threads is None else threads
    checks = []
    if subject.graph.is_rule:
        wrong = claims.rule_disagrees(subject.graph, piece)
        looked_at = claims.rows_of_rule(subject.graph, piece)
        scope = "" if looked_at == subject.graph.num_targets else f"{looked_at:,} of {subject.graph.num_targets:,} rows"
        checks.append(Check("graph", RULE_AGREES, wrong is None, wrong or "", scope))
    for backend in dict.fromkeys(row.backend for row in rows):
        plain, biased = _probes(subject, piece, [row for row in rows if row.backend == backend], gradients, threads)
        progress(f"{backend}, invariants")
        for claim, applies, test, with_bias, tried in INVARIANTS:
            probe = biased if with_bias else plain
            if applies(probe):
                wrong = _outcome(subject, test, probe)
                checks.append(Check(backend, claim, wrong is None, wrong or "", tried(probe)))
    return checks


def _outcome(subject: Subject, test: Callable[[Probe], Outcome], probe: Probe) -> Outcome:
    """What contradicts a claim; a caller's own code may also raise."""
    try:
        return test(probe)
    except Exception as error:
        if subject.own_code is None:
            raise
        return f"{subject.own_code} raised {type(error).__name__}: {(str(error) or '?').splitlines()[0]}"


def _probes(subject: Subject, piece: Sample, rows: Sequence[Row], gradients: bool, threads: int) -> tuple[Probe, Probe]:
    """The first case that was measured without biases, and the first with them; the same if there is one kind only."""
    dtype = rows[0].dtype
    measured = dict.fromkeys(row.case for row in rows if row.dtype == dtype)
    cases = [replace(case, extras=False) for case in subject.cases if case.name in measured]
    plain, biased = min(cases, key=lambda case: case.bias), max(cases, key=lambda case: case.bias)

    def probe(case: Case) -> Probe:
        return Probe(subject, piece, case, getattr(torch, dtype), rows[0].backend, gradients, threads)

    first = probe(plain)
    return first, first if plain == biased else probe(biased)


INVARIANTS = (
    Invariant(
        "non-neighbours are not read, bit for bit",
        claims.has_strangers,
        claims.non_neighbours_unread,
        tried=claims.strangers_tried,
    ),
    Invariant(
        "the gradient of a non-neighbour is exactly 0",
        lambda p: p.gradients and claims.has_strangers(p),
        claims.no_gradient,
        tried=claims.strangers_tried,
    ),
    Invariant("every neighbour is read", claims.has_edges, claims.neighbours_read, tried=claims.neighbours_tried),
    Invariant(
        "a target without an edge gives exactly 0",
        lambda p: p.subject.gives_zero and bool((p.degree == 0).any()),
        claims.isolated,
    ),
    Invariant("the same bits twice", lambda p: True, claims.same_bits),
    Invariant("a removed edge is seen", claims.can_list, claims.removed_edge, True, claims.removed_tried),
    Invariant(
        "an edge with a bias of -inf is an edge removed",
        claims.can_silence,
        claims.silenced_edge,
        True,
        claims.silenced_tried,
    ),
    Invariant(
        "the order of the edges does not matter", claims.can_list, lambda p: claims.agrees(p, p.reordered()), True
    ),
    Invariant(
        "the labels of the nodes do not matter", claims.can_list, lambda p: claims.agrees(p, p.relabelled()), True
    ),
)
