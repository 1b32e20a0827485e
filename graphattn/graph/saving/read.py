"""Graphs from plain data that anybody may have written: every name is looked up, every number checked."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...arguments import whole
from ...errors import GraphAttnError, GraphError, LoaderError
from ..algebra import join_cost
from ..expression import LISTING, METHODS, MOST_CALLS, SIGNS, function_of
from ..forms import of_runs
from ..graph import AttentionGraph
from ..listed import checked
from ..pattern import Pattern, sizable
from ..per_head import PerHead
from ..relations import Relations
from .budget import Budget
from .tensors import fault, tensor_from_plain
from .write import FORMAT, VERSION

_MOST_NODES = 1 << 16
_LONGEST_NAME = 1 << 12  # characters
_DEEPEST = 8
_BYTES_PER_EDGE = 64  # computed for a list of edges, about
_KINDS = {  # what a node of each kind may hold
    "call": {"call", "args", "options", "name", "device"},
    "edges": {"edges", "num_targets", "num_sources", "rule", "name", "device"},
    "per_head": {"per_head"},
    "relations": {"relations"},
    "list": {"list"},
}


def from_plain(data: Any, tensors: Sequence[Tensor] = (), *, where: str = "data", max_bytes: int, fix: str) -> Any:
    """The graph that :func:`to_plain` made data of.

    Args:
        data: The data.
        tensors: Those beside it.
        where: What an error says that the data is.
        max_bytes: Bytes of numbers that making the graph may compute.
        fix: What to try where these are too few.

    Raises:
        LoaderError: If it is no such data, of another version, or too costly.
    """
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise fault(where, f'a saved graph, {{"format": "{FORMAT}", "version": ..., "nodes": [...]}}', data)
    version, nodes = data.get("version"), data.get("nodes")
    if type(version) is not int or version < 1:
        raise fault(where, "version to be a whole number >= 1", version)
    if version > VERSION:
        raise LoaderError(
            f"{where}: expected version {VERSION}, got {version}. Try: upgrade graphattn, this one is older than what "
            "saved it."
        )
    if data.keys() != {"format", "version", "nodes"}:
        raise fault(where, "format, version and nodes alone", f"{sorted(map(str, data))}")
    if not isinstance(nodes, list) or not 1 <= len(nodes) <= _MOST_NODES:
        got = f"{len(nodes)} nodes" if isinstance(nodes, list) else nodes
        raise fault(where, f"a list of 1 to {_MOST_NODES} nodes", got)
    used = _used(nodes)
    for number in range(len(nodes) - 1):
        if number not in used:
            raise fault(f"{where}, node {number}", "every node but the last to be part of a later one", nodes[number])
    reader = _Reader(tensors, where, Budget(max_bytes, fix))
    for node in nodes:
        reader.read(node)
    return reader.made[-1]


def _used(nodes: list[Any]) -> set[int]:
    """The numbers that stand where nodes are named, before anything is made: what nothing names costs nothing."""
    used: set[int] = set()
    todo = list(nodes)
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            for key in part.keys() & {"node", "per_head", "list", "relations"}:
                named = part[key] if isinstance(part[key], list) else [part[key]]
                flat = [number for one in named for number in (one if isinstance(one, list) else [one])]
                used |= {number for number in flat if isinstance(number, int)}
            todo += part.values()
        elif isinstance(part, list):
            todo += [one for one in part if isinstance(one, dict | list)]
    return used


class _Reader:
    """What the nodes so far are, and how many calls each is made of."""

    def __init__(self, tensors: Sequence[Tensor], base: str, budget: Budget) -> None:
        self.tensors, self.base, self.budget = tensors, base, budget
        self.made: list[Any] = []
        self.calls: list[int] = []
        self.joined: list[int] = []  # the nodes that the one being read is made of

    @property
    def where(self) -> str:
        return f"{self.base}, node {len(self.made)}"

    def fault(self, expected: str, got: Any) -> LoaderError:
        return fault(self.where, expected, got)

    def read(self, node: Any) -> None:
        """One node more."""
        kinds = [kind for kind in _KINDS if isinstance(node, dict) and kind in node]
        if len(kinds) != 1 or not node.keys() <= _KINDS[kinds[0]]:
            raise self.fault(f"a node of one kind ({', '.join(_KINDS)}) and nothing else", node)
        self.joined = []
        made = getattr(self, f"_{kinds[0]}")(node)
        self.calls.append(1 + sum(self.calls[number] for number in self.joined) if kinds[0] == "call" else 1)
        if self.calls[-1] > MOST_CALLS:
            raise self.fault(f"a graph of up to {MOST_CALLS} calls", f"{self.calls[-1]}")
        self.made.append(self._as_told(made, node) if isinstance(made, AttentionGraph) else made)

    # --- kinds of nodes

    def _call(self, node: dict[str, Any]) -> AttentionGraph | Pattern:
        name, options = node["call"], node.get("options", [])
        function = self._function(name)
        args = [self._value(arg) for arg in self._items(node.get("args"), "args")]
        given = {key: self._value(value) for key, value in self._pairs(options, "options")}
        of_graphs = args if name in SIGNS else args[:1] if name in METHODS else []
        num_graphs = 1 if name == "~" or name in METHODS else 2 if name in SIGNS else 0
        if len(of_graphs) != num_graphs or not all(isinstance(item, AttentionGraph | Pattern) for item in of_graphs):
            raise self.fault(f"{name} of {num_graphs} graphs", node)
        made = self._making(name, lambda: _called(name, function, args, given))
        if not isinstance(made, AttentionGraph | Pattern):
            raise self.fault("a call that gives a graph", f"{name}, which gives a {type(made).__name__}")
        if isinstance(made, AttentionGraph):
            sizes = {"T": made.num_targets, "S": made.num_sources}
            self._making(name, lambda: [whole(size, side, 0, GraphError) for side, size in sizes.items()])
            self.budget.spend(0 if made.is_rule else _BYTES_PER_EDGE * made.num_edges)
            if name == "@":
                cost = self._making(name, lambda: join_cost(*(arg.edges for arg in args)))
                self.budget.spend(_BYTES_PER_EDGE * cost)
        return made

    def _function(self, name: Any) -> Callable[..., Any]:
        try:
            return function_of(name)
        except (KeyError, TypeError):
            raise self.fault("the name of a builder, of a method or a sign", name) from None

    def _edges(self, node: dict[str, Any]) -> AttentionGraph:
        index, is_rule = self._tensor(node["edges"]), node.get("rule", False)
        if type(is_rule) is not bool:
            raise self.fault("rule to be true or false", is_rule)

        def make() -> AttentionGraph:
            T, S = (whole(node.get(side), side, 0, GraphError) for side in ("num_targets", "num_sources"))
            self.budget.spend(_BYTES_PER_EDGE * index.shape[-1])
            edges = checked(index, T, S, "keep")
            if not is_rule:
                return AttentionGraph(edges, device=index.device)
            runs = edges.distinct().rows(torch.arange(T))
            return AttentionGraph(of_runs(runs, T, S), device=index.device)

        return self._making("edges", make)

    def _per_head(self, node: dict[str, Any]) -> PerHead:
        graphs = self._graphs(node["per_head"], AttentionGraph)
        return self._making("per_head", lambda: PerHead(graphs))

    def _relations(self, node: dict[str, Any]) -> Relations:
        pairs = self._pairs(node["relations"], "relations")
        parts = {name: self._graph(number, AttentionGraph) for name, number in pairs}
        return self._making("relations", lambda: Relations(**parts))

    def _list(self, node: dict[str, Any]) -> list[Any]:
        return list(self._graphs(node["list"], (AttentionGraph, PerHead, Pattern)))

    # --- parts of nodes

    def _as_told(self, graph: AttentionGraph, node: dict[str, Any]) -> AttentionGraph:
        """The graph with the name and on the device that its node tells."""
        name = node.get("name", graph.name)
        if not isinstance(name, str) or len(name) > _LONGEST_NAME or not name.isprintable():
            raise self.fault(f"a name of up to {_LONGEST_NAME} printable characters", name)
        if "device" in node and (device := self._tensor(node["device"]).device).type != "meta":
            graph = self._making("device", lambda: graph.to(device))
        return replace(graph, name=name)

    def _value(self, plain: Any, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise self.fault(f"arguments nested up to {_DEEPEST} deep", "more")
        if isinstance(plain, bool | int | str | None):
            return plain
        if isinstance(plain, float) and math.isfinite(plain):
            return plain
        if isinstance(plain, list):
            return tuple(self._value(item, depth + 1) for item in plain)
        if not isinstance(plain, dict) or len(plain) != 1:
            raise self.fault("an argument: a number, a word, a list, or one of node, tensor, array, float, open", plain)
        ((kind, inside),) = plain.items()
        if kind == "node":
            return self._graph(inside, (AttentionGraph, Pattern))
        if kind in ("tensor", "array"):
            x = self._tensor(inside)
            return x if kind == "tensor" else self._making("array", x.numpy)
        if kind == "float" and inside in ("nan", "inf", "-inf"):
            return float(inside)
        if kind == "open" and inside is True:
            return ...
        raise self.fault("an argument: node, tensor, array, float or open", plain)

    def _items(self, given: Any, what: str) -> list[Any]:
        if not isinstance(given, list):
            raise self.fault(f"{what} to be a list", given)
        return given

    def _graph(self, number: Any, kinds: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self.made):
            raise self.fault(f"the number of an earlier node, below {len(self.made)}", number)
        if not isinstance(self.made[number], kinds):
            raise self.fault("a graph that fits there", f"a {type(self.made[number]).__name__}")
        self.joined.append(number)
        return self.made[number]

    def _graphs(self, numbers: Any, kinds: Any) -> tuple[Any, ...]:
        return tuple(self._graph(number, kinds) for number in self._items(numbers, "graphs"))

    def _pairs(self, pairs: Any, what: str) -> list[tuple[str, Any]]:
        for pair in self._items(pairs, what):
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise self.fault(f"{what} to be a list of pairs, name and value", pair)
        if len({name for name, _ in pairs}) < len(pairs):
            raise self.fault(f"every name of {what} once", [name for name, _ in pairs])
        return [(name, value) for name, value in pairs]

    def _tensor(self, plain: Any) -> Tensor:
        if type(plain) is not int:
            return tensor_from_plain(plain, self.where)
        if not 0 <= plain < len(self.tensors):
            raise self.fault(f"the number of a tensor, below {len(self.tensors)}", plain)
        return self.tensors[plain]

    def _making(self, what: Any, make: Callable[[], Any]) -> Any:
        """``make()`` within the budget; whatever it says against the data is a LoaderError."""
        try:
            with self.budget, torch.no_grad():
                return make()
        except LoaderError as error:
            raise LoaderError(f"{self.where}, {what}: {error}") from None
        except GraphAttnError as error:
            raise LoaderError(f"{self.where}, {what}: {str(error)[:500]}") from error
        except Exception as error:  # anything: the arguments are whatever a stranger wrote
            raise LoaderError(f"{self.where}, {what}: {type(error).__name__}: {str(error)[:500]}") from error


def _called(name: str, function: Callable[..., Any], args: list[Any], options: dict[str, Any]) -> Any:
    """What the call gives; a call that lists edges is refused before it takes its time: files hold the edges."""
    if any(arg is ... for arg in args):
        return sizable(function)(*args, **options)
    graphs = [arg for arg in args if isinstance(arg, AttentionGraph)]
    joined = {"@": 2, "k_hop": 1}.get(name)
    lists = joined == len(graphs) and all(not graph.is_rule for graph in graphs)
    if name in LISTING or lists:
        raise LoaderError(f"{name} lists edges here; a saved graph holds these themselves")
    return function(*args, **options)
