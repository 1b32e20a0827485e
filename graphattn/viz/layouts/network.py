"""A small network where a spring layout puts it: what is joined is near."""

from typing import Any

import numpy as np

from ...errors import GraphError
from ...graph.graph import AttentionGraph
from ..colours import Index
from ..style import INK, TEXT, fitting
from .base import CloseUp
from .points import Points

_MOST_NODES = 1_000  # a layout takes seconds beyond


class NetworkLayout(Points):
    """Nodes of a square graph.

    Args:
        graph: At most 1,000 nodes.
        names: A word per node, or ``None``.

    Raises:
        GraphError: If there are more nodes.
    """

    def __init__(self, graph: AttentionGraph, names: list[str] | None) -> None:
        if graph.num_nodes > _MOST_NODES:
            raise GraphError(
                f'layout "network" draws at most {_MOST_NODES} nodes, this graph has '
                f"{graph.num_nodes}; "
                'draw a subgraph, pass pos, or use layout "sequence"'
            )
        target, source = graph.edges.pairs()
        pairs = list(zip(source.tolist(), target.tolist(), strict=True))
        import networkx  # slow to import

        network = networkx.Graph(pairs)
        network.add_nodes_from(range(graph.num_nodes))
        positions = networkx.spring_layout(network, seed=0, iterations=200)
        super().__init__(
            np.array([positions[node] for node in range(graph.num_nodes)]).reshape(-1, 2)
        )
        self.names = names

    def close_up(self, target: int, sources: Index, below: float) -> CloseUp | None:
        return None

    def remarks(self) -> list[str]:
        return ["Places are computed from the edges; if nodes have real ones, pass pos=."]

    def label(self, ax: Any, target: int, sources: Index) -> None:
        """Names of a target and of as many of its sources, in order, as fit without touching."""
        from matplotlib import patheffects

        if self.names is None:
            return
        halo = [patheffects.withStroke(linewidth=2.2, foreground="white")]
        taken: list[Any] = []
        for node in dict.fromkeys([target, *sources.tolist()]):
            right = node == target or self.source_at[node, 0] >= self.target_at[target, 0]
            shift = -7
            if right:
                shift = 7
            align = "right"
            if right:
                align = "left"
            weight = "normal"
            if node == target:
                weight = "bold"
            text = ax.annotate(
                fitting(self.names[node]),
                self.source_at[node],
                (shift, 0),
                textcoords="offset points",
                **{
                    "ha": align,
                    "va": "center",
                    "fontsize": TEXT - 1,
                    "color": INK,
                },
                **{
                    "weight": weight,
                    "path_effects": halo,
                    "zorder": 10,
                },
            )
            box = text.get_window_extent()
            if any(box.overlaps(other) for other in taken):
                text.remove()
            else:
                taken.append(box)
