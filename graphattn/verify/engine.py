"""One call that measures, and one that judges."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import ExactnessError, GraphError, OptionError
from ..graph import AttentionGraph
from ..nn import GraphAttention
from .bounds import EXPLAINED
from .diagnose import diagnose
from .invariants import check_invariants
from .layer import LayerSubject
from .measure import measure
from .operator import CallableSubject, GraphSubject
from .report import Report
from .sample import sample
from .subject import Subject


def verify(
    subject: AttentionGraph | GraphAttention | Callable[..., Any],
    graph: AttentionGraph | None = None,
    *,
    dtypes: Sequence[torch.dtype] = (torch.float64, torch.float32),
    backends: Sequence[str] | None = None,
    at_most: int = 256,
    gradients: bool = True,
    seed: int = 0,
    **options: Any,
) -> Report:
    """Measure how far every way to run a graph is from dense masked softmax attention, forward and backward.

    The judge is a dense twin in float64 that shares no code with the backends. On a large graph it is asked about a
    sample of the targets with the sources that these read; the code under test always runs the whole graph.

    Args:
        subject: An :class:`AttentionGraph`: ``graphattn.attention`` on it with random inputs, each option away from its
            default in turn. Or a :class:`GraphAttention`: the layer with its own parameters, whose gradients are
            measured too. Or any function ``f(query, key, value) -> output`` with query (T, H, D), key (S, H_kv, D),
            value (S, H_kv, D_v) and output (T, H, D_v): does it implement the graph?
        graph: The graph that a layer or a function is to be verified on.
        dtypes: Measured in each: float64 to 1e-12, narrower ones against dense torch in the same dtype.
        backends: Names of the backends to measure; by default all that half the free memory allows.
        at_most: Targets in the sample where there are too many to compare all.
        gradients: Whether gradients are measured; a function without them is verified with False.
        seed: Of the inputs and the sample.
        options: For a graph or a function: ``heads`` = (H, H_kv), ``widths`` = (D, D_v), ``scale``, ``softcap``.

    Returns:
        A :class:`Report`; print it.

    Raises:
        OptionError: If an argument has no meaning for the subject.

    Example:
        >>> import graphattn as ga
        >>> verify(ga.graphs.causal(7)).ok
        True
    """
    found = _subject(subject, graph, seed, options)
    for dtype in dtypes:
        if dtype not in EXPLAINED:
            raise OptionError(f"dtypes must be among {', '.join(map(str, EXPLAINED))}, got {dtype}")
    chosen = found.backends if backends is None else tuple(backends)
    for backend in chosen:
        if backend not in found.backends:
            raise OptionError(f"backends must be among {', '.join(found.backends)}, got {backend!r}")
    if at_most < 1:
        raise OptionError(f"at_most must be at least 1, got {at_most}")
    piece = sample(found.graph, at_most, seed)
    most_bytes = free_bytes(found.graph.device) // 2 if backends is None else None
    rows, refusals = measure(found, piece, tuple(dtypes), chosen, gradients, most_bytes)
    checks = check_invariants(found, piece, rows, gradients)
    return Report(
        subject=found.name,
        graph=repr(found.graph),
        measured=piece.targets.numel(),
        total=found.graph.num_targets,
        rows=tuple(rows),
        checks=tuple(checks),
        refusals=tuple(refusals),
        notes=found.notes + ("gradients not measured",) * (not gradients),
        diagnosis=diagnose(found, piece, rows),
    )


def assert_exact(subject: Any, graph: AttentionGraph | None = None, **arguments: Any) -> Report:
    """:func:`verify`, and an :class:`graphattn.errors.ExactnessError` with the report as its message if it fails.

    Example:
        >>> import graphattn as ga
        >>> assert_exact(ga.graphs.causal(7)).worst.ok
        True
    """
    report = verify(subject, graph, **arguments)
    if not report.ok:
        raise ExactnessError(str(report))
    return report


def free_bytes(device: torch.device) -> int:
    """Memory that nobody uses on a device, in bytes."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return 1024 * int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1])  # type: ignore[index]
    except (OSError, TypeError):
        return 8 << 30


def _subject(subject: Any, graph: AttentionGraph | None, seed: int, options: dict[str, Any]) -> Subject:
    if isinstance(subject, AttentionGraph):
        if graph is not None:
            raise OptionError("verify(graph) takes one graph; a layer or a function comes before its graph")
        graph = subject
    if not isinstance(graph, AttentionGraph):
        kind = "nothing" if graph is None else type(graph).__name__
        raise GraphError(f"graph must be the AttentionGraph to verify {type(subject).__name__} on, got {kind}")
    _check_options(subject, options)
    if isinstance(subject, AttentionGraph):
        return GraphSubject(graph, seed=seed, **options)
    if isinstance(subject, GraphAttention):
        return LayerSubject(subject, graph, seed=seed)
    if callable(subject):
        return CallableSubject(subject, graph, seed=seed, **options)
    raise OptionError(
        "subject must be an AttentionGraph, a GraphAttention or a function f(query, key, value), "
        f"got {type(subject).__name__}"
    )


def _check_options(subject: Any, options: dict[str, Any]) -> None:
    known = () if isinstance(subject, GraphAttention) else ("heads", "widths", "scale", "softcap")
    for option, value in options.items():
        if option not in known:
            meant = f"knows {', '.join(known)}" if known else "of a layer has none: its sizes are its own"
            raise OptionError(f"verify {meant}; got {option}={value!r}")
        if option in ("heads", "widths") and not (
            isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(n, int) and n >= 1 for n in value)
        ):
            raise OptionError(f"{option} must be two whole numbers >= 1, got {value!r}")
    heads = options.get("heads")
    if heads is not None and heads[0] % heads[1]:
        raise OptionError(f"heads must be (H, H_kv) with H a multiple of H_kv, got {heads}")
