"""``verify``: backends and layers, measured against dense twins and judged. The way of one call,
file by file:

* ``engine`` checks the arguments and makes a *subject* of what is to be verified: ``operator``
  (attention on a graph, or a caller's function) or ``layer`` (with ``layer_twin``, its formulas);
  ``subject`` is their interface. A subject runs the code under test on the whole graph, and states
  the same as a dense ``Problem`` on a few targets.
* ``pieces`` decides how much is compared: **everything**, in pieces of targets that a dense twin
  can hold, if that is at most ``EVERYTHING`` pairs; else **a sample** of the targets, with all the
  sources that they read.
* ``measure`` runs every backend in every case and dtype beside the dense twin of ``twins``,
  backwards too, and gives a row for each error; ``bounds`` says how large it may be, ``stability``
  which targets rounding may decide.
* ``invariants`` tries to contradict what holds whatever the numbers are, on a ``probe``.
* ``diagnose``, loaded where something is wrong, looks for the known mistake that gives a wrong
  output (``wrong_scores``, and the mutants of ``analyse``); ``report`` prints.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ..arguments import check_flags, function, several, shown, width
from ..backends.device import free_bytes
from ..errors import ExactnessError, GraphError, OptionError
from ..graph import AttentionGraph, Pattern, PerExample, PerHead
from ..graph.chosen import Chosen
from ..graph.like import GraphLike
from ..graph.modes import without_autocast
from ..graph.per_example import as_examples
from ..nn import GraphAttention
from .bounds import EXPLAINED
from .invariants import check_invariants
from .layer import LayerSubject
from .measure import Progress, measure
from .operator import (
    FORWARD_ONLY,
    CallableSubject,
    GraphSubject,
    function_subject,
    side_by_side,
    with_layout,
)
from .pieces import EVERYTHING, EXHAUSTIVE, Piece, all_pieces, sample
from .probe import threads
from .report import Check, Report, Row
from .subject import Subject


def verify(
    subject: AttentionGraph | PerHead | GraphAttention | Callable[..., Any],
    graph: AttentionGraph | None = None,
    *,
    dtypes: Sequence[torch.dtype] = (torch.float64, torch.float32),
    backends: Sequence[str] | None = None,
    at_most: int | None = 256,
    gradients: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Report:
    """Measure how far every way to run a graph is from dense masked softmax attention, forward and
    backward.

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
            :class:`PerHead` or a :class:`PerExample`: the default call on all of its graphs. Or a :class:`GraphAttention`: the
            layer with its own parameters, whose gradients are measured too, whatever its score and
            normalisation (below). Or any function ``f(query, key, value) -> output`` with query (T,
            H, D), key (S, H_kv, D), value (S, H_kv, D_v) and output (T, H, D_v): does it implement
            the graph?
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

    Returns:
        A :class:`Report`; print it.

    Raises:
        OptionError: If an argument has no meaning for the subject.
        GraphError: If ``graph`` is not an :class:`AttentionGraph`.
        ShapeError: If a function returns something else than (T, H, D_v).

    Example:
        >>> import graphattn as ga
        >>> verify(ga.graphs.causal(7)).ok
        True
    """
    check_flags(gradients=gradients)
    if progress is not None:
        function(progress, "progress", "step")
    dtypes = several(dtypes, "dtypes", "must be a list of dtypes")
    for dtype in dtypes:
        if not isinstance(dtype, torch.dtype) or dtype not in EXPLAINED:
            raise OptionError(
                f"dtypes must be among {', '.join(map(str, EXPLAINED))}, got {shown(dtype)}"
            )
    judged = _subject(subject, graph, seed, options, dtypes)
    if backends is None:
        chosen = judged.backends
    else:
        chosen = tuple(several(backends, "backends", "must be a list of names"))
    for backend in chosen:
        if not isinstance(backend, str) or backend not in judged.backends:
            raise OptionError(
                f"backends must be among {', '.join(judged.backends)}, got {shown(backend)}"
            )
    if at_most is not None and at_most < 1:
        raise OptionError(f"at_most must be at least 1, got {at_most}")
    most_bytes = None if backends is not None else lambda: free_bytes(judged.graph.device) // 2
    limits = (most_bytes, progress or _silent)
    size = judged.floats_per_pair
    part = sample(judged.graph, at_most or 256, seed, size)
    alone = threads(1 if part.complete else torch.get_num_threads())
    # the caller's random numbers stay as they were, and his modes do not decide what is exact
    with (
        alone as before,
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        without_autocast(judged.graph.device.type),
    ):
        if at_most:
            most = EVERYTHING
        else:
            most = sys.maxsize
        pieces = (None if part.complete else all_pieces(judged.graph, most, size)) or [part]
        rows, refusals, notes, compared = measure(
            judged, pieces, dtypes, chosen, gradients, *limits
        )
        checks: list[Check] = []
        diagnosis = None
        if getattr(judged, "chosen", None) is None:
            checks = check_invariants(judged, part, rows, gradients, progress or _silent, before)
            diagnosis = _diagnosis(judged, pieces, rows)
        if isinstance(judged, CallableSubject) and not rows and gradients and judged.runs(dtypes):
            diagnosis = FORWARD_ONLY
        elif isinstance(judged, CallableSubject) and (
            not rows or any(row.is_output and not row.ok for row in rows)
        ):
            diagnosis = with_layout(diagnosis, judged, pieces, dtypes, "heads" not in options)
    return Report(
        subject=judged.name,
        graph=repr(
            getattr(judged, "chosen", None) or getattr(judged, "per_head", None) or judged.graph
        ),
        measured=compared,
        total=judged.graph.num_targets,
        rows=tuple(rows),
        checks=tuple(checks),
        refusals=tuple(refusals),
        notes=(*judged.notes, *notes, *["gradients not measured"] * (not gradients)),
        diagnosis=diagnosis,
    )


def _diagnosis(subject: Subject, pieces: Sequence[Piece], rows: list[Row]) -> str | None:
    """Explanation of the errors that were measured; ``None`` if there are none."""
    if all(row.ok for row in rows):
        return None
    from .diagnose import (
        diagnose,  # it names mistakes with analyse, which what is right never loads
    )

    return diagnose(subject, pieces, rows)


def _silent(step: str) -> None:
    """Progress that is not shown."""


def assert_exact(subject: Any, graph: AttentionGraph | None = None, **arguments: Any) -> Report:
    """:func:`verify`, and an :class:`graphattn.errors.ExactnessError` with the report as its
    message if it fails.

    On a graph too large to compare whole it asserts what :func:`verify` says it compares, and no
    more; ``at_most=None`` compares all.

    Example:
        >>> import graphattn as ga
        >>> assert_exact(ga.graphs.causal(7)).worst.ok
        True
    """
    report = verify(subject, graph, **arguments)
    if not report.ok:
        raise ExactnessError(str(report))
    return report


def _subject(
    subject: Any, graph: Any, seed: int, options: dict[str, Any], dtypes: Sequence[torch.dtype]
) -> Subject:
    subject = as_examples(subject)
    graph = as_examples(graph)
    if isinstance(subject, AttentionGraph | PerHead | PerExample | Pattern | Chosen):
        if graph is not None:
            raise OptionError(
                "verify(graph) takes one graph; a layer or a function comes before its graph"
            )
        graph = subject
    if isinstance(graph, GraphLike) and graph.is_open:
        raise GraphError(f"{graph!r} has no size yet; verify the graph of one, pattern(num_nodes)")
    if isinstance(graph, Chosen):
        return _on_chosen(subject, graph, seed, options, dtypes)
    if isinstance(subject, PerHead | PerExample):
        subject, graph = side_by_side(subject)
    if isinstance(graph, PerHead | PerExample) and not isinstance(subject, GraphAttention):
        name = type(graph).__name__
        raise GraphError(
            f"a function is verified on one AttentionGraph, got {name}; verify(graph) verifies "
            "attention on all of its graphs, and verify(function, one) the function on one of "
            "graph.graphs"
        )
    if isinstance(subject, nn.MultiheadAttention):
        raise OptionError(
            "an nn.MultiheadAttention takes no graph; verify the layer with its weights: "
            "graphattn.nn.GraphAttention.from_torch(mha)"
        )
    if isinstance(subject, type):
        raise OptionError(
            f"subject must be a layer or a function, got the class {subject.__name__}: make one "
            "of it"
        )
    if not isinstance(graph, AttentionGraph | PerHead | PerExample):
        raise GraphError(
            f"graph must be the AttentionGraph to verify {type(subject).__name__} on, got "
            f"{_instead(graph)}"
        )
    options = _check_options(subject, options)
    if isinstance(subject, GraphAttention):
        return LayerSubject(subject, graph, seed=seed)
    assert isinstance(graph, AttentionGraph)
    if isinstance(subject, AttentionGraph):
        return GraphSubject(graph, seed=seed, **options)
    if callable(subject):
        if isinstance(subject, nn.Module):
            module = "; of a model verify the layers, verify(layer, graph)"
        else:
            module = ""
        function(subject, "subject", "query, key, value", hint=module)
        return function_subject(subject, graph, dtypes, {"seed": seed, **options})
    raise OptionError(
        "subject must be an AttentionGraph, a GraphAttention or a function f(query, key, value), "
        f"got {type(subject).__name__}"
    )


def _on_chosen(
    subject: Any, graph: Chosen, seed: int, options: dict[str, Any], dtypes: Sequence[torch.dtype]
) -> Subject:
    """Attention, a function or a layer, on the edges that the queries and keys choose."""
    if graph.num_targets * graph.num_sources > EXHAUSTIVE:
        raise GraphError(
            f"a choice is verified whole, up to {EXHAUSTIVE:,} pairs, got {graph!r}; verify the "
            "same of a smaller size"
        )
    if isinstance(subject, GraphAttention):
        _check_options(subject, options)
        judged: Any = LayerSubject(subject, graph, seed=seed)
    elif subject is graph:
        judged = _subject(graph.union(), None, seed, options, dtypes)
    else:
        judged = _subject(subject, graph.union(), seed, options, dtypes)
    judged.chosen = graph
    judged.notes = (
        *judged.notes,
        "edges are chosen in every call: none was removed, shuffled or renamed",
    )
    return judged


def _instead(graph: Any) -> str:
    """The argument that came in place of a graph, and how to make one of it."""
    if graph is None:
        return "nothing"
    if isinstance(graph, torch.Tensor) and graph.dim() == 2:
        if graph.dtype == torch.bool or graph.shape[0] != 2:
            make = "from_mask(mask)"
        else:
            make = "from_edge_index(edge_index)"
        return f"Tensor of shape {tuple(graph.shape)}; make it a graph: graphattn.{make}"
    return type(graph).__name__


def _check_options(subject: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options in the words of the subjects: ``heads`` and ``widths`` as pairs."""
    pairs = {"heads": ("heads", "kv_heads"), "widths": ("head_dim", "value_dim")}
    known = (
        ()
        if isinstance(subject, GraphAttention)
        else (*pairs["heads"], *pairs["widths"], "scale", "softcap")
    )
    for option, value in options.items():
        if option not in known:
            if known:
                meant = f"takes {', '.join(known)}"
            else:
                meant = "of a layer has none: its sizes are its own"
            raise OptionError(f"verify {meant}; got {option}={value!r}")
    checked: dict[str, Any] = {
        name: options[name] for name in ("scale", "softcap") if name in options
    }
    for pair, (first, second) in pairs.items():
        if first in options:
            one = width(options[first], first)
            checked[pair] = one, width(options.get(second, one), second)
        elif second in options:
            raise OptionError(f"{second} goes with {first}; got {second}={options[second]!r} alone")
    heads = checked.get("heads")
    if heads is not None and heads[0] % heads[1]:
        raise OptionError(f"heads must be a multiple of kv_heads, got {heads[0]} and {heads[1]}")
    return checked
