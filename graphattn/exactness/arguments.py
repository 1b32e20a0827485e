"""Input validation for ``verify``: the subject of its arguments, or an error that names one."""

from collections.abc import Sequence
from typing import Any

import torch

from ..arguments import one_of, several, shown, width
from ..errors import GraphError, OptionError
from ..graph import AttentionGraph, Pattern, PerExample, PerHead
from ..graph.advice import no_graph
from ..graph.deferred.chosen import Chosen
from ..graph.kinds.per_example import as_examples
from ..graph.like import GraphLike
from ..nn import GraphAttention
from ..twins.pieces import EXHAUSTIVE
from .layer import LayerSubject
from .operator import GraphSubject, function_subject, side_by_side
from .subject import Subject

#: The options of a graph and of a function; a layer has none.
OPTIONS = ("heads", "kv_heads", "head_dim", "value_dim", "scale", "softcap")


def backends_of(subject: Subject, backends: Any) -> tuple[str, ...]:
    """The names of backends; all of the subject's by default."""
    if backends is None:
        return subject.backends
    backends = tuple(several(backends, "backends", "must be a list of names"))
    for backend in backends:
        one_of(backend, "backends", subject.backends)
    return backends


def subject_of(
    subject: Any, graph: Any, seed: int, options: dict[str, Any], dtypes: Sequence[torch.dtype]
) -> Subject:
    """The subject to verify: attention on a graph, a layer on a graph, or a function on a graph."""
    subject = as_examples(subject)
    graph = as_examples(graph)
    if isinstance(subject, GraphLike):
        if graph is not None:
            raise OptionError(
                "verify(graph) takes one graph; a layer or a function comes before its graph"
            )
        graph = subject
    if isinstance(graph, GraphLike) and graph.is_open:
        call = "pattern(num_nodes)"
        if isinstance(graph, Pattern) and graph.on_points:
            call = "recipe(pos, batch)"
        raise GraphError(f"{graph!r} has no size yet; verify the graph of one, {call}")
    if isinstance(graph, Chosen):
        return _on_chosen(subject, graph, seed, options, dtypes)
    if isinstance(subject, PerHead | PerExample):
        subject, graph = side_by_side(subject)
    _check_graph(subject, graph)
    sizes = _sizes(subject, options)
    if isinstance(subject, GraphAttention):
        return LayerSubject(subject, graph, seed=seed)
    if isinstance(subject, AttentionGraph):
        return GraphSubject(graph, seed=seed, **sizes)
    if not callable(subject):
        raise OptionError(
            "subject must be an AttentionGraph, a GraphAttention or a function "
            f"f(query, key, value), got {type(subject).__name__}"
        )
    return function_subject(subject, graph, dtypes, {"seed": seed, **sizes})


def _check_graph(subject: Any, graph: Any) -> None:
    """Refuse what is no graph, and graphs of heads or examples for a function."""
    if isinstance(graph, AttentionGraph):
        return
    if not isinstance(graph, PerHead | PerExample):
        raise no_graph(
            graph, f"graph must be the AttentionGraph to verify {type(subject).__name__} on"
        )
    if not isinstance(subject, GraphAttention):
        raise GraphError(
            f"a function is verified on one AttentionGraph, got {type(graph).__name__}; "
            "verify(graph) verifies attention on all of its graphs, and verify(function, one) the "
            "function on one of graph.graphs"
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
    judged: Any
    if isinstance(subject, GraphAttention):
        _sizes(subject, options)
        judged = LayerSubject(subject, graph, seed=seed)
    elif subject is graph:
        judged = subject_of(graph.union(), None, seed, options, dtypes)
    else:
        judged = subject_of(subject, graph.union(), seed, options, dtypes)
    judged.chosen = graph
    judged.notes = (
        *judged.notes,
        "edges are chosen in every call: none was removed, shuffled or renamed",
    )
    return judged


def _sizes(subject: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options as the subjects take them: ``heads`` and ``widths`` as pairs."""
    if isinstance(subject, GraphAttention):
        names: tuple[str, ...] = ()
        usage = "verify of a layer has none: its sizes are its own"
    else:
        names = OPTIONS
        usage = f"verify takes {', '.join(OPTIONS)}"
    for name, value in options.items():
        if name not in names:
            hint = ""
            if name == "pos":
                hint = '; positions are read with symmetry="all", or names of symmetries'
            raise OptionError(f"{usage}; got {name}={shown(value)}{hint}")
    sizes: dict[str, Any] = {
        name: options[name] for name in ("scale", "softcap") if name in options
    }
    sizes |= _pair(options, "heads", "heads", "kv_heads")
    sizes |= _pair(options, "widths", "head_dim", "value_dim")
    if "heads" in sizes:
        heads, kv_heads = sizes["heads"]
        if heads % kv_heads:
            raise OptionError(f"heads must be a multiple of kv_heads, got {heads} and {kv_heads}")
    return sizes


def _pair(options: dict[str, Any], name: str, first: str, second: str) -> dict[str, Any]:
    """The pair of two options by its name, the second like the first by default; {} if absent."""
    if first in options:
        size = width(options[first], first)
        return {name: (size, width(options.get(second, size), second))}
    if second in options:
        raise OptionError(f"{second} goes with {first}; got {second}={options[second]!r} alone")
    return {}
