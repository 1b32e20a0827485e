"""The given graphs of a model, module by module, and their sizes."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard

from ..arguments import function, several
from ..errors import GraphError, OptionError
from ..graph import AttentionGraph, Pattern, PerExample, PerHead
from ..graph.advice import no_graph
from ..graph.like import GraphLike
from .modules import Place, stacks
from .tokens.prepared import BY_TOKEN
from .tokens.rows import Graph

OWN_MASKS = "model"
"""In place of a graph: the model's own connectivity, from its masks."""

NEW = "new"
"""The argument by which a function of the batch receives the number of new tokens."""

_HINT = (
    "; a function of the batch names inputs of the model, as lambda input_ids: ..., and a "
    "builder is called first"
)

GraphOption = AttentionGraph | Pattern | PerHead | PerExample | Callable[..., Any] | str


def by_module(
    graph: Any, places: list[Place], others: Iterable[str] = ()
) -> dict[Place, GraphOption]:
    """The graph of each module; modules without one are left out.

    Args:
        graph: As for :func:`patch`.
        places: The modules of attention.
        others: Classes of the model whose attention is their own code.

    Raises:
        OptionError: If a name matches no module, or one graph is given for several stacks or for
            ``others``, too.
        GraphError: If anything but graphs is given, or another number than that of layers.
    """
    if isinstance(graph, Mapping):
        if not graph:
            raise GraphError(
                "graph must not be an empty dict; name a layer, a role or a part: {0: graph}"
            )
        return _by_name(graph, places)
    if isinstance(graph, str) and graph == OWN_MASKS:
        return dict.fromkeys(places, OWN_MASKS)
    if len(stacks(places)) > 1 or others:
        names = ", ".join(f"{name!r} ({number} layers)" for name, number in stacks(places).items())
        keys = sorted({place.role for place in places} - {""}) or list(stacks(places))
        raise OptionError(
            f"graph must name its stack, by role or name, such as {{{keys[0]!r}: graph}}; the "
            f"model has {names}"
            + "".join(f", and {name} in its own code, which no graph reaches" for name in others)
        )
    if _is_one(graph):
        return dict.fromkeys(places, graph)
    if not isinstance(graph, Iterable) or isinstance(graph, str) or hasattr(graph, "shape"):
        raise no_graph(
            graph,
            'graph must be an AttentionGraph, Pattern, PerHead, list, dict, function or "model"',
        )
    layers = several(graph, "graph", "must be a graph, or one for each layer")
    if len(layers) != len(places):
        raise GraphError(
            f"graph has {len(layers)} graphs, but the model has {len(places)} layers of attention"
        )
    return {place: checked(layer) for place, layer in zip(places, layers, strict=True)}


def _by_name(graphs: Mapping[Any, Any], places: list[Place]) -> dict[Place, GraphOption]:
    chosen: dict[Place, GraphOption] = {}
    for key, value in graphs.items():
        if isinstance(key, int) and not isinstance(key, bool):
            meant = [place for place in places if place.layer == key]
        else:
            meant = [place for place in places if isinstance(key, str) and place.answers(key)]
        if not meant:
            names = sorted({place.role for place in places} - {""}) + list(stacks(places))
            raise OptionError(
                f"graph[{key!r}] matches no attention of the model; it has {', '.join(names)}, or "
                "layers"
            )
        for part in dict.fromkeys(place.stack for place in meant):
            chosen |= by_module(value, [place for place in meant if place.stack == part])
    return chosen


def _is_one(value: Any) -> bool:
    if isinstance(value, type):
        return False
    return isinstance(value, PerExample) or is_graph(value) or callable(value)


def is_graph(value: Any) -> TypeGuard[AttentionGraph | Pattern | PerHead]:
    """True for what gives a graph at a size: a graph, graphs of heads, or a pattern."""
    if not isinstance(value, GraphLike) or isinstance(value, PerExample):
        return False
    return value._is_fixed or value.is_open


def checked(graph: Any) -> GraphOption:
    """A graph of a list, or an error for anything else."""
    if _is_one(graph) or graph == OWN_MASKS:
        return graph
    raise no_graph(
        graph, "each layer's graph must be an AttentionGraph, Pattern, PerHead or function"
    )


def reads_batch(
    graph: Any, inputs: Iterable[str], role: str = "", main: str = "input_ids"
) -> list[str]:
    """The inputs of the model that a function of the batch takes; none for one of the length.

    Graphs of the examples of one batch depend on its ``main`` input.

    Raises:
        OptionError: If a function takes anything else.
    """
    if isinstance(graph, str) or is_graph(graph):
        return []
    if isinstance(graph, PerExample):
        return [main]
    parameters = inspect.signature(graph).parameters
    batch_inputs = [name for name in parameters if name in set(inputs)]
    if parameters.keys().isdisjoint({*batch_inputs, *BY_TOKEN}):
        names = "length"
        if role == "cross":
            names = "targets, sources"
        function(graph, "graph", names, hint=_HINT)
        return []
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    others = [name for name in required if name not in (*batch_inputs, NEW)]
    if others:
        raise OptionError(
            f"graph is a function of {', '.join(parameters)}, but the model has no input "
            f"{', '.join(others)}; it has {', '.join(inputs)}"
        )
    return batch_inputs


def takes_new(function: Callable[..., Any]) -> bool:
    """True if a function of the batch takes the number of new tokens."""
    if isinstance(function, PerExample):
        return False
    return NEW in inspect.signature(function).parameters


def sized(value: Any, length: int, targets: int | None = None) -> Graph:
    """The graph between ``length`` tokens, or from them to ``targets``; a larger one stays."""
    size: tuple[int, ...] = (length,)
    if targets is not None:
        size = (targets, length)
    graph: Any = value
    if not is_graph(value):
        graph = value(*size)
        if not is_graph(graph):
            raise no_graph(graph, "the function given to ga.patch must return a graph")
    if graph.is_open:
        return graph.at(*size)
    return _large_enough(graph, length, targets)


def _large_enough(graph: Any, length: int, targets: int | None) -> Graph:
    """The graph, without sources beyond the sequence if targets are others; refuse a smaller one."""
    num_targets = length
    sequence = f"{length} tokens"
    if targets is not None:
        num_targets = targets
        sequence = f"{length} tokens and {targets} targets"
    if graph.num_targets < num_targets or graph.num_sources < length:
        raise GraphError(
            f"the sequence has {sequence}; {graph!r} must have at least as many nodes; a pattern, "
            "made with ... for its size, fits any length"
        )
    if targets is not None and graph.num_sources > length:
        rows = range(graph.num_targets)
        return graph._map_graphs(lambda one: one.subgraph(targets=rows, sources=range(length)))
    return graph
