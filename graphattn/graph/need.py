"""The check of a graph argument: lists, patterns and foreign objects are refused with advice."""

from typing import Any

from .advice import no_graph
from .graph import AttentionGraph


def need_graph(graph: Any, what: str) -> None:
    """Raise a GraphError with advice unless ``graph`` is one AttentionGraph."""
    if not isinstance(graph, AttentionGraph):
        raise no_graph(graph, f"{what} needs an AttentionGraph")
