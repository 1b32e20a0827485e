"""Graphs per head: one layer whose heads read along different edges."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..arguments import several, whole
from ..errors import GraphError
from .advice import no_graph
from .graph import AttentionGraph
from .immutable import Immutable
from .modes import constant_result, not_compiled


class Group(NamedTuple):
    """Heads ``[first, last)`` read along ``graph``, which is ``graphs[number]``."""

    number: int
    graph: AttentionGraph
    first: int
    last: int


@not_compiled
@dataclass(frozen=True, eq=False, repr=False)
class PerHead(Immutable):
    """A graph for each head, or for each of n equal groups of heads, in order.

    Head ``h`` of H reads along ``graphs[h // (H / n)]``, as grouped-query heads share a key.
    Tensors of edges (score biases, edge features, weights) are in the edge order of :meth:`union`;
    where a head lacks an edge its weight is 0, and the bias is not read.

    Args:
        graphs: Graphs of the same targets and sources, without repeated edges.

    Raises:
        GraphError: If there are no graphs, one repeats an edge, or their nodes or devices differ.

    Source: Child et al. 2019 (Sparse Transformer), section 4.2, "a separate head for each"; Dong et
    al. 2021 (CSWin).

    Example:
        >>> from graphattn.graphs import window_partition
        >>> rows, columns = window_partition((4, 6), (1, 6)), window_partition((4, 6), (4, 1))
        >>> PerHead((rows, columns))  # half of the heads read rows, the others columns
        PerHead(window_partition((4, 6), (1, 6)), window_partition((4, 6), (4, 1)): 24 nodes)
    """

    graphs: tuple[AttentionGraph, ...]
    _memo: dict[str | int, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.graphs, AttentionGraph) or not isinstance(self.graphs, Iterable):
            raise GraphError(
                f"PerHead takes a tuple of graphs, got {type(self.graphs).__name__}; one graph is "
                "(graph,)"
            )
        graphs = tuple(
            several(self.graphs, "graphs", "must be a tuple of AttentionGraphs", GraphError)
        )
        object.__setattr__(self, "graphs", graphs)
        if not graphs:
            raise GraphError("PerHead needs at least one graph, got none")
        for graph in graphs:
            if not isinstance(graph, AttentionGraph):
                advice = " (for patterns, ga.patch takes lambda n: PerHead((first(n), second(n))))"
                if type(graph).__name__ != "Pattern":
                    advice = ""
                raise no_graph(graph, f"PerHead holds AttentionGraphs{advice}")
            sizes = (graph.num_targets, graph.num_sources)
            first = (graphs[0].num_targets, graphs[0].num_sources)
            if sizes != first:
                raise GraphError(
                    f"PerHead needs the same nodes for all heads, got (targets, sources) {first} "
                    f"and {sizes}"
                )
            if graph.has_repeated_edges:
                raise GraphError(
                    f"PerHead holds sets of edges, and {graph!r} repeats some; drop them with "
                    "graph | graph"
                )
        if len({graph.device for graph in graphs if not graph.is_rule}) > 1:
            raise GraphError("PerHead holds graphs on several devices; move them with .to(device)")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memo": {}}

    @property
    def num_targets(self) -> int:
        """T, the nodes that read."""
        return self.graphs[0].num_targets

    @property
    def num_sources(self) -> int:
        """S, the nodes that are read."""
        return self.graphs[0].num_sources

    @property
    def num_edges(self) -> int:
        """E, the number of edges of the union."""
        return _count(self)

    @property
    def is_rule(self) -> bool:
        """True if every graph is a closed form."""
        return all(graph.is_rule for graph in self.graphs)

    @property
    def device(self) -> torch.device:
        """The device of the listed graphs."""
        return next(
            (graph.device for graph in self.graphs if not graph.is_rule), self.graphs[0].device
        )

    def union(self) -> AttentionGraph:
        """The edges of any head."""
        if "union" not in self._memo:
            self._memo["union"] = reduce(or_, dict.fromkeys(self.graphs))
        return self._memo["union"]

    def groups(self, num_heads: int) -> list[Group]:
        """The graphs with their heads; adjacent heads of the same graph form one group.

        Raises:
            GraphError: If ``num_heads`` is not a multiple of the number of graphs.
        """
        n = len(self.graphs)
        num_heads = whole(num_heads, "num_heads", 1, GraphError)
        if num_heads % n:
            raise GraphError(
                f"PerHead of {n} graphs needs a multiple of {n} heads, got {num_heads}"
            )
        groups = []
        first = 0
        for i, graph in enumerate(self.graphs):
            if i + 1 == n or self.graphs[i + 1] is not graph:
                last = (i + 1) * (num_heads // n)
                groups.append(Group(i, graph, first, last))
                first = last
        return groups

    def in_union(self, number: int) -> Tensor:
        """int64 (E_i,): the index of each edge of ``graphs[number]`` in the edge order of the
        union.
        """
        if number not in self._memo:
            union = self.union()._listed()
            graph = self.graphs[number]
            wanted = graph.target * self.num_sources + graph.source
            self._memo[number] = union.order[
                torch.searchsorted(union.key, wanted.to(union.key.device))
            ]
        index: Tensor = self._memo[number]
        return index

    def to(self, device: torch.device | str) -> "PerHead":
        """The same graphs with their index tensors on another device."""
        moved = {id(graph): graph.to(device) for graph in self.graphs}
        return PerHead(tuple(moved[id(graph)] for graph in self.graphs))

    def __repr__(self) -> str:
        if self.num_targets == self.num_sources:
            nodes = f"{self.num_targets} nodes"
        else:
            nodes = f"{self.num_sources} sources -> {self.num_targets} targets"
        return f"PerHead({', '.join(graph.name for graph in self.graphs)}: {nodes})"

    def __str__(self) -> str:
        return "\n".join([repr(self), *(str(graph) for graph in dict.fromkeys(self.graphs))])


@constant_result  # Python that torch.compile does not trace
def _count(graph: PerHead) -> int:
    return graph.union().num_edges
