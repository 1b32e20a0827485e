"""A warning of graphs along which a model that writes text reads later tokens."""

import warnings
from collections.abc import Iterable
from typing import Any

import torch

from ..errors import GraphAttnError
from ..graph import AttentionGraph, runs
from .graph_option import is_graph

_PROBED = 64  # tokens at which a pattern is asked


def warn_of_known(slots: Iterable[Any]) -> None:
    """Warn of the first layer whose graph, or pattern of any size, reads later tokens.

    Args:
        slots: Of the layers that write text.
    """
    for slot in slots:
        graph: Any = slot.graph
        if not is_graph(graph):
            continue
        try:
            sized = graph.at(_PROBED)
        except GraphAttnError:  # a pattern of other sizes
            continue
        if warn_of_later_tokens(slot, [sized], stacklevel=3):
            return


def _is_end_of_causal(graph: AttentionGraph) -> bool:
    """True if the targets are the last of the sources, and none reads a later one."""
    cached = graph.num_sources - graph.num_targets
    if cached <= 0:
        return False
    row, _, hi = runs.nonempty(graph.edges.rows(torch.arange(graph.num_targets)))
    return bool((hi <= row + cached + 1).all())


def warn_of_later_tokens(slot: Any, graphs: Iterable[Any], stacklevel: int = 2) -> bool:
    """Warn, and return True, if a graph lets a layer read later tokens than it writes."""
    for graph in graphs:
        for edges in (head.union() for head in graph.of_heads):
            if edges.is_causal or _is_end_of_causal(edges):
                continue
            warnings.warn(
                f"{slot.place.name}: the model predicts each token from the earlier ones, and "
                f"along {edges.name} tokens read later ones, which in training are the answers; "
                "pass graph & graphattn.graphs.causal(...), unless their labels are left out",
                stacklevel=stacklevel + 1,
            )
            return True
    return False
