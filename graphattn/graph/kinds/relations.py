"""Typed unions: every edge carries the number of its part."""

from dataclasses import dataclass, field
from functools import reduce

import torch
from torch import Tensor

from ...errors import singular
from ..graph import AttentionGraph, need_graph
from ..immutable import Immutable
from ..modes import cached_property, not_compiled


@not_compiled
@dataclass(frozen=True, eq=False, repr=False, init=False)
class Relations(Immutable):
    """A union of named graphs that numbers the relation of every edge, for a bias of each.

    An edge that several parts have belongs to the first of them.

    Args:
        parts: Graphs of the same targets and sources, by name.

    Raises:
        GraphError: If there are no parts, or their nodes differ.

    Example:
        >>> from graphattn.graphs import global_tokens, sliding_window
        >>> etc = Relations(hub=global_tokens(6, (0,)), near=sliding_window(6, 3, causal=False))
        >>> etc.count()
        {'hub': 11, 'near': 13}
        >>> table = torch.tensor([[0.5], [-1.0]])  # relations x heads: a parameter
        >>> x = torch.ones(6, 1, 4)
        >>> import graphattn as ga
        >>> ga.attention(x, x, x, etc.graph, score_bias=table[etc.relation]).shape
        torch.Size([6, 1, 4])
    """

    _parts: dict[str, AttentionGraph]
    _remedy = (
        "pass relations.graph, and score_bias=table[relations.relation] for a bias of each relation"
    )

    graph: AttentionGraph = field(init=False)

    def __init__(self, **parts: AttentionGraph) -> None:
        for name, part in parts.items():
            need_graph(part, f"relation {name}")
        object.__setattr__(self, "_parts", dict(parts))
        object.__setattr__(self, "graph", reduce(AttentionGraph._union, parts.values()))

    @property
    def parts(self) -> dict[str, AttentionGraph]:
        """The graphs by name; a copy."""
        return dict(self._parts)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the relations, in the order of their numbers."""
        return tuple(self._parts)

    @property
    def num_relations(self) -> int:
        """The number of relations."""
        return len(self._parts)

    @property
    def relation(self) -> Tensor:
        """int64 (E,): the number of each edge's relation, in the order of ``graph``; a copy."""
        return self._relation.clone()

    @cached_property
    def _relation(self) -> Tensor:
        target = self.graph.target
        source = self.graph.source
        number = torch.full_like(target, -1)
        for i, part in reversed(list(enumerate(self._parts.values()))):
            number[part.contains(target, source)] = i
        return number

    def count(self) -> dict[str, int]:
        """The number of edges of each relation."""
        counts = torch.bincount(self._relation, minlength=self.num_relations).tolist()
        return dict(zip(self.names, counts, strict=True))

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={part.name}" for name, part in self._parts.items())
        return singular(f"Relations({parts}: {self.graph.num_edges} edges)")
