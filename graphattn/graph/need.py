"""The check of one graph: what is a list, a pattern or somebody else's is refused with what to pass instead."""

from typing import Any

from .advice import no_graph
from .graph import AttentionGraph


def need_graph(graph: Any, what: str) -> None:
    """Raise a GraphError, with what to pass instead, unless this is one graph."""
    if not isinstance(graph, AttentionGraph):
        raise no_graph(graph, f"{what} needs an AttentionGraph")
