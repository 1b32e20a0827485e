"""``verify``: backends and layers, measured against dense twins and judged.

The path of a call, file by file:

* ``arguments`` makes a *subject* of what is to be verified: ``operator``
  (attention on a graph, or a caller's function) or ``layer`` (with ``layer_twin``, its formulas);
  ``subject`` is their interface. A subject runs the code under test on the whole graph, and states
  the same as a dense ``Problem`` on a few targets.
* ``twins.pieces`` decides how much is compared: **everything**, in pieces of targets that a dense
  twin can hold, if that is at most ``EVERYTHING`` pairs; else **a sample** of the targets, with all
  the sources that they read.
* ``measure`` runs every backend in every case and dtype beside the dense twin of ``twins.dense``,
  backwards too, and gives a row for each error; ``bounds`` has the limits of errors, ``stability``
  the targets that rounding may decide.
* ``invariants`` tries to contradict what holds for any numbers, on a ``probe``.
* ``diagnose``, loaded only after an error, looks for the known mistake of ``mistakes`` that gives a
  wrong output; ``report`` prints.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

import torch
from torch import Tensor

from ..arguments import check_flags
from ..errors import ExactnessError, OptionError
from ..graph import AttentionGraph, PerHead
from ..graph.modes import without_autocast
from ..nn import GraphAttention
from ..twins.pieces import EVERYTHING, Piece, all_pieces, sample
from .arguments import backends_of, subject_of
from .invariants import tested_invariants
from .measure import Progress, measure
from .operator import FORWARD_ONLY, CallableSubject, with_layout
from .probe import threads
from .report import Check, Report
from .symmetry.report import SymmetryReport

DTYPES = (torch.float64, torch.float32)
#: Defaults of the arguments that only a verification of backends has.
_OF_BACKENDS = (DTYPES, None, 256, True, None)


@overload
def verify(
    subject: Callable[..., Any],
    graph: Any = None,
    *,
    symmetry: str | Sequence[str],
    pos: Tensor,
    cell: Tensor | None = None,
    pbc: Any = None,
    output: Any = "scalars",
    vectors: Sequence[str] = (),
    tolerance: float | None = None,
    seed: int = 0,
    **inputs: Any,
) -> SymmetryReport: ...


@overload
def verify(
    subject: AttentionGraph | PerHead | GraphAttention | Callable[..., Any],
    graph: AttentionGraph | None = None,
    *,
    dtypes: Sequence[torch.dtype] = DTYPES,
    backends: Sequence[str] | None = None,
    at_most: int | None = 256,
    gradients: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    symmetry: None = None,
    **options: Any,
) -> Report: ...


def verify(
    subject: AttentionGraph | PerHead | GraphAttention | Callable[..., Any],
    graph: Any = None,
    *,
    dtypes: Sequence[torch.dtype] = DTYPES,
    backends: Sequence[str] | None = None,
    at_most: int | None = 256,
    gradients: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    symmetry: str | Sequence[str] | None = None,
    **options: Any,
) -> Report | SymmetryReport:
    """Measure how far each backend is from dense masked softmax attention, forward and backward.

    With ``symmetry`` and ``pos``, instead: how far a model's output is from what symmetries of
    points promise, and which input breaks it (the last arguments below).

    The judge is a dense twin in float64 that shares no code with the backends; the code under test
    always runs the whole graph. What is compared depends on the pairs that the twin must compute,
    about the edges of a sparse graph or T x S of a dense one:

    * up to 4 million (``causal(2000)``, a window of 17 on 30,000 tokens): everything at every
      target;
    * beyond: a sample of the targets with all their sources, whatever the size of the graph. A
      mistake at the other targets alone is not seen, and the report says so.

    Processor time measured, all backends, two dtypes: 5 s for a window of 9 on 200 tokens, 110 s
    for ``causal(2000)``; name ``backends`` to take less (``message_passing`` was half of
    ``causal(2000)``). Graphs of up to 65,536 pairs are run in one thread, except to see that two
    runs give the same bits.

    A layer's score and normalisation have twins of their own, formulas on all T x S pairs. Scores
    that are dot products are verified on every backend, the others where they run; linear attention
    by running sums is ``running_sums``. A score of the caller's own is called on every pair, a
    normalisation of the caller's own about one target at a time, so that mixing edges shows; what
    it makes of them is taken as right. Where a score or normalisation has a tie or a kink, or
    divides by a sum near 0, rounding decides: such targets are not compared, and the report says
    how many.

    Args:
        subject: An :class:`AttentionGraph`: ``graphattn.attention`` on it with random inputs, each
            option away from its default in turn. Or a graph chosen by content,
            ``top_k(..., 4)(64)``: the twin is dense on the edges that these inputs choose. Or a
            :class:`PerHead` or a :class:`PerExample`: the default call on all of its graphs. Or a
            :class:`GraphAttention`: the layer with its own parameters, whose gradients are measured
            too, whatever its score and normalisation (below). Or any function ``f(query, key,
            value) -> output`` with query (T, H, D), key (S, H_kv, D), value (S, H_kv, D_v) and
            output (T, H, D_v): does it implement the graph?
        graph: The graph that a layer or a function is to be verified on; for a layer a
            :class:`PerHead` or a :class:`PerExample`, too. Or a graph chosen by content: a layer's
            by what the twin's projections of these inputs, normed, turned, and brought into the
            product that the score is, choose in each dtype; a target whose choice a rounding would
            change is not compared.
        dtypes: Measured in each: float64 to 1e-12, narrower ones against dense torch in the same
            dtype.
        backends: Names of the backends to measure; by default all that half the free memory allows.
        at_most: Targets in the sample where there are too many to compare all; None for all,
            whatever it takes.
        gradients: Whether gradients are measured; a function without them is verified with False.
        seed: Of the inputs and the sample.
        progress: Called with what is measured next, in words.
        options: For a graph or a function: ``heads``, ``kv_heads``, ``head_dim``, ``value_dim`` as
            in :func:`graphattn.explain`, ``scale``, ``softcap``. The default is 4 heads on 2; a
            function that does not take grouped heads gets 3 on 3, and the report says that their
            grouping was not tested.
        symmetry: Names of symmetries, or "all": "rotations", "reflections", "translations",
            "permutations", "cells" (lattice vectors added to atoms, other vectors of the lattice, a
            doubled cell). ``subject`` is then any model, a PyG one or a function, called with what
            its signature names among ``pos``, ``cell``, ``graph``, ``edge_index`` and ``options``;
            ``graph`` a graph, whose edges move along, or a recipe or function of ``pos`` (and
            ``cell``, ``batch``), which makes them anew after each move, or None. The options are
            inputs by name, whose rows of nodes or edges permute along, and these:

            * ``pos``: (N, d) positions, in float64 unless the model is of float32.
            * ``cell``, ``pbc``: lattice vectors (d, d) as rows, which turn with ``pos``, and the
              axes along which they repeat, by default all.
            * ``output``: the kind of output, or kinds of several in a list or dict, None for one
              that is not checked: "scalars" (N, ...) and "vectors" (N, ..., d) of nodes, which turn
              along, as forces do; "points", which move along, too; "scalar" and "vector" of the
              whole structure.
            * ``vectors``: names of inputs (..., d) that turn with ``pos``: normals, velocities.
            * ``tolerance``: the largest difference, over the output's size, that is taken for
              rounding: 1e-10 in float64, 1e-4 in float32.

    Returns:
        A :class:`Report`; print it. With ``symmetry`` a :class:`SymmetryReport`.

    Raises:
        OptionError: If an argument has no meaning for the subject.
        GraphError: If ``graph`` is not an :class:`AttentionGraph`.
        ShapeError: If a function returns something else than (T, H, D_v).

    Example:
        >>> import graphattn as ga
        >>> verify(ga.graphs.causal(7)).ok
        True
        >>> def energy(pos):
        ...     return torch.pdist(pos).sum() + pos[:, 2].sum()
        >>> atoms = torch.randn(9, 3, dtype=torch.float64)
        >>> report = verify(energy, pos=atoms, symmetry="translations", output="scalar")
        >>> report.causes[0].input
        'pos[:, 2]'
    """
    if symmetry is not None:
        from .symmetry.engine import verify_symmetry  # only where it is asked for

        if (dtypes, backends, at_most, gradients, progress) != _OF_BACKENDS:
            raise OptionError(
                "dtypes, backends, at_most, gradients and progress are of backends, not of a "
                "symmetry; leave them out"
            )
        return verify_symmetry(subject, graph, symmetry=symmetry, seed=seed, **options)
    check_flags(gradients=gradients)
    progress = progress or (lambda step: None)
    dtypes = tuple(dtypes)
    judged = subject_of(subject, graph, seed, options, dtypes)
    names = backends_of(judged, backends)
    if at_most is not None and at_most < 1:
        raise OptionError(f"at_most must be at least 1, got {at_most}")
    part = sample(judged.graph, at_most or 256, seed, judged.floats_per_pair)
    with _undisturbed(judged.graph, part) as num_threads:
        # all targets in pieces that a twin can hold, or the sample where they are too many
        pieces = [part]
        if not part.complete:
            most_pairs = EVERYTHING
            if at_most is None:
                most_pairs = sys.maxsize
            pieces = all_pieces(judged.graph, most_pairs, judged.floats_per_pair) or pieces
        limited = backends is None  # memory does not limit backends that the caller names
        measures = measure(judged, pieces, dtypes, names, gradients, limited, progress)
        rows = measures.rows
        checks: list[Check] = []
        if judged.chosen is None:  # else every call has other edges
            checks = tested_invariants(judged, part, rows, gradients, progress, num_threads)
        diagnosis = None
        if judged.chosen is None and not all(row.ok for row in rows):
            from .diagnose import diagnose  # it loads mistakes, which an exact subject never needs

            diagnosis = diagnose(judged, pieces, rows)
        outputs = [row.ok for row in rows if row.is_output]
        if isinstance(judged, CallableSubject) and not (rows and all(outputs)):
            if not rows and gradients and judged.runs(dtypes):
                diagnosis = FORWARD_ONLY
            else:
                any_heads = "heads" not in options
                diagnosis = with_layout(diagnosis, judged, pieces, dtypes, any_heads)
    notes = [*judged.notes, *measures.notes]
    if not gradients:
        notes.append("gradients not measured")
    return Report(
        subject=judged.name,
        graph=repr(judged.run_on),
        measured=measures.compared,
        total=judged.graph.num_targets,
        rows=tuple(rows),
        checks=tuple(checks),
        refusals=tuple(measures.refusals),
        notes=tuple(notes),
        diagnosis=diagnosis,
    )


@contextmanager
def _undisturbed(graph: AttentionGraph, part: Piece) -> Iterator[int]:
    """The caller's modes and random numbers set aside; yields the caller's number of threads."""
    num_threads = 1
    if not part.complete:
        num_threads = torch.get_num_threads()
    with (
        threads(num_threads) as before,
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        without_autocast(graph.device.type),
    ):
        yield before


def assert_exact(subject: Any, graph: Any = None, **arguments: Any) -> Any:
    """:func:`verify`, and an :class:`graphattn.errors.ExactnessError` unless the report is ok.

    The report is the error's message. On a graph too large to compare whole it asserts what
    :func:`verify` says it compares, and no more; ``at_most=None`` compares all.

    A call is made for each target of a small graph on each backend: BigBird took 0.7 s of processor
    time at 64 tokens, 1.8 at 128 and 6.7 at 256, and 1.0 there with ``backends=["edges"]``.
    ``progress=print`` says what is measured.

    Example:
        >>> import graphattn as ga
        >>> assert_exact(ga.graphs.causal(7)).worst.ok
        True
    """
    report = verify(subject, graph, **arguments)
    if not report.ok:
        raise ExactnessError(str(report))
    return report
