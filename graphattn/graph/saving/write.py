"""Graphs to plain data: rules as the calls that made them, listed edges as tensors."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import GraphError
from ..advice import no_graph
from ..expression import MOST_CALLS, Expression
from ..graph import AttentionGraph
from ..layers import Layer
from ..pattern import Pattern
from ..per_head import PerHead
from ..relations import Relations
from .tensors import tensor_to_plain

FORMAT, VERSION = "graphattn", 1
MOST_EDGES = 1 << 22  # of a rule that no calls are known for: 4,194,304
_MOST_WALKED = 1 << 26  # runs that may be walked to list them
Savable = AttentionGraph | Pattern | PerHead | Relations | list[Layer] | tuple[Layer, ...]


def to_plain(graph: Savable, tensors: list[Tensor] | None = None, keep_device: bool = False) -> dict[str, Any]:
    """What JSON can hold of a graph.

    Args:
        graph: One, a pattern, graphs of heads, relations, or a list of layers.
        tensors: Where tensors are put; the data then holds their places. Within the data by default.
        keep_device: Whether devices are recorded, each by an empty tensor on it.

    Raises:
        GraphError: If it is none, or holds what is no plain data.
    """
    writer = _Writer(tensors, keep_device)
    writer.add(graph)
    return {"format": FORMAT, "version": VERSION, "nodes": writer.nodes}


class _Writer:
    """The nodes so far, and the numbers of those that may come again, by identity."""

    def __init__(self, tensors: list[Tensor] | None, keep_device: bool) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.tensors, self.keep_device = tensors, keep_device
        self.numbers: dict[int, int] = {}

    def add(self, value: Any) -> int:
        """The number of its node, a new one where it has none."""
        if id(value) not in self.numbers:
            node = self._node(value)
            self.nodes.append(node)
            self.numbers[id(value)] = len(self.nodes) - 1
        return self.numbers[id(value)]

    def _node(self, value: Any) -> dict[str, Any]:
        if isinstance(value, AttentionGraph):
            return self._graph(value)
        if isinstance(value, Pattern):
            return self._call(value.expression)
        if isinstance(value, PerHead):
            return {"per_head": [self.add(graph) for graph in value.graphs]}
        if isinstance(value, Relations):
            return {"relations": [[name, self.add(part)] for name, part in value.parts.items()]}
        if isinstance(value, list | tuple) and value and all(isinstance(layer, Layer) for layer in value):
            return {"list": [self.add(layer) for layer in value]}
        expected = "graph must be an AttentionGraph, Pattern, PerHead, Relations or list of layers"
        if isinstance(value, list | tuple):
            raise GraphError(f"{expected}, got {'an empty list' if not value else 'a list of something else'}")
        raise no_graph(value, expected)

    def _graph(self, graph: AttentionGraph) -> dict[str, Any]:
        known = graph.is_rule and graph.expression is not None and _saved_by_edges(graph.expression) is None
        node = self._call(graph.expression) if known and graph.expression else self._edges(graph)
        node["name"] = graph.name
        if self.keep_device and graph.device.type != "cpu":
            node["device"] = self._tensor(torch.empty(0, device=graph.device))
        return node

    def _edges(self, graph: AttentionGraph) -> dict[str, Any]:
        if graph.is_rule:
            _refuse_many(graph)
        sides = {"num_targets": graph.num_targets, "num_sources": graph.num_sources}
        largest = max(sides.values())
        dtype = next(d for d in (torch.int16, torch.int32, torch.int64) if largest <= torch.iinfo(d).max)
        node = {"edges": self._tensor(graph._listed().edge_index.to(dtype)), **sides}
        return {**node, "rule": True} if graph.is_rule else node

    def _call(self, call: Expression) -> dict[str, Any]:
        """The node of a call, after those of the graphs that it joins."""
        if call.num_calls > MOST_CALLS:
            raise GraphError(f"a pattern of {call.num_calls} calls cannot be saved; of up to {MOST_CALLS} can")
        todo: list[tuple[Any, bool]] = [(child, False) for child in call.children()][::-1]
        while todo:  # no recursion: an expression may be 256 calls deep
            part, ready = todo.pop()
            if isinstance(part, AttentionGraph):
                self.add(part)
            elif id(part) not in self.numbers:
                made = None if ready else _saved_by_edges(part)
                if ready:
                    self._append(part, self._plain_call(part))
                elif made is not None:
                    self._append(part, {**self._edges(made), "name": made.name})
                else:
                    todo += [(part, True), *[(child, False) for child in part.children()][::-1]]
        return self._plain_call(call)

    def _append(self, part: Expression, node: dict[str, Any]) -> None:
        self.nodes.append(node)
        self.numbers[id(part)] = len(self.nodes) - 1

    def _plain_call(self, call: Expression) -> dict[str, Any]:
        node = {"call": call.function, "args": [self._value(arg) for arg in call.args]}
        options = [[name, self._value(value)] for name, value in call.options.items()]
        return {**node, "options": options} if options else node

    def _value(self, value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if isinstance(value, bool | int | float | str | None):
            return value
        if value is ...:
            return {"open": True}
        if isinstance(value, tuple):
            return [self._value(item) for item in value]
        if isinstance(value, Expression | AttentionGraph):
            return {"node": self.numbers[id(value)]}
        if isinstance(value, Tensor):
            return {"tensor": self._tensor(value)}
        if isinstance(value, np.ndarray):
            return {"array": self._tensor(_from_numpy(value))}
        raise GraphError(f"an argument of a graph cannot be saved: a {type(value).__name__} is no plain data")

    def _tensor(self, x: Tensor) -> Any:
        if self.tensors is None:
            return tensor_to_plain(x)
        self.tensors.append(x.detach())
        return len(self.tensors) - 1


def _saved_by_edges(call: Expression) -> AttentionGraph | None:
    """The graph of a call that is not saved as a call: another machine may find other neighbours, or take too long."""
    if call.is_listed and not call.is_open:
        made = call.build()
        return None if made.is_rule else made
    return None


def _from_numpy(array: np.ndarray) -> Tensor:
    try:
        return torch.from_numpy(np.ascontiguousarray(array))
    except TypeError as error:
        raise GraphError(f"an array of {array.dtype} cannot be saved: {error}") from None


def _refuse_many(graph: AttentionGraph) -> None:
    walked = graph.edges.num_runs
    if walked <= _MOST_WALKED and graph.num_edges <= MOST_EDGES:
        return
    many = f"{graph.num_edges:,}" if walked <= _MOST_WALKED else "too many to count"
    raise GraphError(
        f"{graph.name} is a rule that no calls of builders are known for (it was made by a function, or in more than "
        f"{MOST_CALLS} calls), so its edges are saved; they are {many}, limit {MOST_EDGES:,}. Save graph.explicit(), "
        "which has no limit, or build it of fewer calls of builders"
    )
