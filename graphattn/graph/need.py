"""The check of one graph: what is a list, a pattern or somebody else's is refused with what to pass instead."""

from typing import Any

from ..errors import GraphError
from .advice import no_graph
from .graph import AttentionGraph


def need_graph(graph: Any, what: str) -> None:
    """Raise a GraphError, with what to pass instead, unless this is one graph."""
    if isinstance(graph, list | tuple) and any(isinstance(one, AttentionGraph) for one in graph):
        raise GraphError(
            f"{what} needs one AttentionGraph, got a {type(graph).__name__} of {len(graph)}; ask about each, "
            "or about the edges that some of them has: functools.reduce(operator.or_, graphs)"
        )
    if not isinstance(graph, AttentionGraph):
        raise no_graph(graph, f"{what} needs an AttentionGraph")
