"""Graphs to plain data: their edges as tensors, and the calls that made them as text."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import GraphError
from ..advice import no_graph
from ..deferred.expression import MOST_CALLS, Expression
from ..deferred.pattern import Pattern
from ..graph import AttentionGraph
from ..kinds.layers import Layer
from ..kinds.per_example import PerExample
from ..kinds.per_head import PerHead
from ..kinds.relations import Relations
from .tensors import tensor_to_plain

FORMAT = "graphattn"
VERSION = 3
LONGEST_TEXT = 1 << 16  # characters of an expression
LONGEST_NAME = 1 << 12  # characters of a name
_EXPECTED = (
    "graph must be an AttentionGraph, Pattern, PerHead, PerExample, Relations or list of layers"
)
Savable = (
    AttentionGraph | Pattern | PerHead | PerExample | Relations | list[Layer] | tuple[Layer, ...]
)


def to_plain(
    graph: Savable,
    tensors: list[Tensor] | None = None,
    keep_device: bool = False,
) -> dict[str, Any]:
    """A graph as JSON data.

    Args:
        graph: A graph, a pattern, graphs of heads or examples, relations, or a list of layers.
        tensors: A list that takes the tensors; the data then holds their indices. Within the data
            by default.
        keep_device: True to record the devices of rules, each by an empty tensor on it.

    Raises:
        GraphError: If ``graph`` is of another type, or too large to be saved.
    """
    writer = _Writer(tensors, keep_device)
    value = writer.form(graph)
    return {"format": FORMAT, "version": VERSION, "graphs": writer.graphs, "value": value}


class _Writer:
    """Writer of one value; each of its graphs is written once, where it comes first."""

    def __init__(self, tensors: list[Tensor] | None, keep_device: bool) -> None:
        self.graphs: list[dict[str, Any]] = []
        self.tensors = tensors
        self.keep_device = keep_device
        self.numbers: dict[int, int] = {}
        self.objects: list[Any] = []  # keeps the objects alive, since an id may be reused

    def form(self, value: Any) -> Any:
        """The number of a graph, or the structure of a value of several graphs."""
        if isinstance(value, AttentionGraph | Pattern):
            return self.number(value)
        if isinstance(value, PerHead):
            return {"per_head": [self.number(graph) for graph in value.graphs]}
        if isinstance(value, PerExample):
            return {"per_example": [self.form(graph) for graph in value.graphs]}
        if isinstance(value, Relations):
            return {"relations": [[name, self.number(part)] for name, part in value.parts.items()]}
        if isinstance(value, list | tuple):
            if not value or not all(isinstance(layer, Layer) for layer in value):
                raise GraphError(f"{_EXPECTED}, got {value!r}")
            return {"layers": [self.form(layer) for layer in value]}
        raise no_graph(value, _EXPECTED)

    def number(self, graph: AttentionGraph | Pattern) -> int:
        """The index of a graph among those written."""
        if id(graph) not in self.numbers:
            if isinstance(graph, Pattern):
                plain = self._pattern(graph)
            else:
                plain = self._graph(graph)
            self.graphs.append(plain)
            self.objects.append(graph)
            self.numbers[id(graph)] = len(self.graphs) - 1
        return self.numbers[id(graph)]

    def _graph(self, graph: AttentionGraph) -> dict[str, Any]:
        sizes = [graph.num_targets, graph.num_sources]
        dtypes = (torch.int16, torch.int32, torch.int64)
        dtype = next(dtype for dtype in dtypes if max(sizes) <= torch.iinfo(dtype).max)
        name = "".join(c if c.isprintable() else " " for c in graph.name[:LONGEST_NAME])
        if not graph.is_rule:
            edges: dict[str, Any] = {
                "edges": self._tensor(graph._listed().edge_index.to(dtype)),
                "sizes": sizes,
                "name": name,
            }
            if graph.images is not None:
                images = graph.images
                parts = [images.offsets, images.cells]
                if images.cell_of_edge is not None:
                    parts.append(images.cell_of_edge)
                edges["images"] = [self._tensor(part) for part in parts]
            return edges
        stored = graph.edges.stored()
        if stored is None:
            raise GraphError(
                f"{graph.name} has about {graph.edges.num_runs:,} intervals of sources, too many "
                "to be saved; save graph.materialise(), or a pattern such as causal(...)"
            )
        runs = [self._tensor(part.to(dtype)) for part in (stored.ptr.diff(), stored.lo, stored.hi)]
        plain: dict[str, Any] = {"runs": runs, "sizes": sizes, "name": name}
        written = None
        if graph.expression is not None:
            written = self._expression(graph.expression)
        if written is not None:
            plain["written"] = written
        if self.keep_device and graph.device.type != "cpu":
            plain["device"] = self._tensor(torch.empty(0, device=graph.device))
        return plain

    def _pattern(self, pattern: Pattern) -> dict[str, Any]:
        if pattern.expression.has_functions:
            raise GraphError(
                f"{pattern!r} has a function, which cannot be saved; save the code that makes it"
            )
        plain = self._expression(pattern.expression)
        if plain is None:
            raise GraphError(
                f"a pattern of more than {MOST_CALLS} calls or {LONGEST_TEXT:,} characters cannot "
                "be saved; pass its long arguments as tensors"
            )
        return plain

    def _expression(self, expression: Expression) -> dict[str, Any] | None:
        """The text, and the values that it names ``_0``, ``_1``, ...; None if it is too long."""
        if expression.num_calls > MOST_CALLS:
            return None
        values: list[Any] = []
        text = expression.text(values)
        if len(text) > LONGEST_TEXT:
            return None
        return {"expression": text, "held": [self._held(value) for value in values]}

    def _held(self, value: Any) -> dict[str, Any]:
        if isinstance(value, AttentionGraph):
            return {"graph": self.number(value)}
        if isinstance(value, Tensor):
            return {"tensor": self._tensor(value)}
        return {"array": self._tensor(torch.from_numpy(np.array(value, order="C")))}

    def _tensor(self, x: Tensor) -> Any:
        if self.tensors is None:
            return tensor_to_plain(x)
        self.tensors.append(x.detach())
        return len(self.tensors) - 1
