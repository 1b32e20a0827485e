"""Graphs from untrusted plain data: edges are checked, text is parsed, and no builder is called."""

import ast
import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...arguments import integers, whole
from ...errors import GraphAttnError, GraphError, LoaderError, OptionError
from ...missing import renamed
from ..deferred.expression import METHODS, MOST_CALLS, SIGNS, Expression, function_of
from ..deferred.pattern import Pattern
from ..deferred.text import Reader, short
from ..forms import of_runs
from ..graph import AttentionGraph
from ..images import images_of_edges
from ..kinds.layers import Layer
from ..kinds.per_example import PerExample
from ..kinds.per_head import PerHead
from ..kinds.relations import Relations
from ..listed import check_pairs, checked
from ..runs import Runs
from . import version_2
from .tensors import fields, tensor_from_plain
from .write import FORMAT, LONGEST_NAME, LONGEST_TEXT, VERSION

_OLDEST = 2  # version that is read
_MOST_GRAPHS = 1 << 16
# of Python, numpy and torch for data of another structure, or a device that is missing
_REFUSALS = (
    ArithmeticError,
    AttributeError,
    GraphAttnError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def from_plain(
    data: Any,
    tensors: Sequence[Tensor] = (),
    *,
    where: str = "data",
) -> Any:
    """The graph of data that :func:`to_plain` made.

    Args:
        data: The data.
        tensors: The tensors that it names by number.
        where: Its source, for errors.

    Raises:
        LoaderError: If it is not such data, or of another version.
    """
    reader = _Reader(tensors, where)
    try:
        return reader.value(data)
    except LoaderError:
        raise
    except _REFUSALS as error:
        reason = str(error)[:500]
        if not isinstance(error, GraphAttnError):
            reason = (
                f"expected what graphattn saved, got other data ({type(error).__name__}: "
                f"{reason}). Try: load what graphattn saved, unchanged."
            )
        raise LoaderError(f"{reader.where}: {reason}") from error


def parsed(text: str | bytes, where: str) -> Any:
    """The value of a JSON text.

    Raises:
        LoaderError: If it is not JSON.
    """
    try:
        return json.loads(text)
    # UnicodeDecodeError, JSONDecodeError, a number of 5000 digits
    except (RecursionError, TypeError, ValueError) as error:
        reason = str(error)[:200]
    raise LoaderError(
        f"{where}: expected JSON, got: {reason}. Try: load what graphattn saved, unchanged."
    )


class _Reader:
    """Reader of one saved value, with the graphs that it has read; errors are Python's.

    Attributes:
        where: The place that is read.
    """

    def __init__(self, tensors: Sequence[Tensor], base: str) -> None:
        self.tensors = tensors
        self.version = VERSION
        self.base = base
        self.where = base
        self.graphs: list[AttentionGraph | Pattern] = []

    def value(self, data: dict[str, Any]) -> Any:
        """The saved value."""
        if data["format"] != FORMAT:
            raise ValueError(f'format is not "{FORMAT}"')
        self.version = whole(data["version"], "version")
        if not _OLDEST <= self.version <= VERSION:
            raise LoaderError(
                f"{self.where}: expected version {_OLDEST} to {VERSION}, got {self.version}. "
                "Try: upgrade graphattn, or save the graph again."
            )
        _, _, graphs, value = fields(data, "format", "version", "graphs", "value")
        if len(graphs) > _MOST_GRAPHS:
            raise ValueError(f"more than {_MOST_GRAPHS} graphs")
        for number, plain in enumerate(graphs):
            self.where = f"{self.base}, graph {number}"
            self.graphs.append(self._graph(plain))
        self.where = f"{self.base}, value"
        return self.form(value)

    # --- one graph

    def _graph(self, plain: dict[str, Any]) -> AttentionGraph | Pattern:
        if "expression" in plain:
            return Pattern(self._expression(plain))
        T, S = (whole(size, "size", 0, GraphError) for size in plain["sizes"])
        name = plain["name"]
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise ValueError(f"a name has up to {LONGEST_NAME} printable characters")
        if "edges" in plain:
            fields(plain, "edges", "sizes", "name", optional=("images",))
            self.where += ", edges"
            index = self._tensor(plain["edges"])
            edges = checked(index, T, S, "keep")
            if "images" in plain:
                offsets, cells, *numbers = map(self._tensor, plain["images"])
                cell_of_edge = None
                if len(cells) > 1:
                    (cell_of_edge,) = numbers
                edges.images = images_of_edges(offsets, cells, cell_of_edge, edges.target)
            return AttentionGraph(edges, name, index.device)
        fields(plain, "runs", "sizes", "name", optional=("written", "device"))
        runs = self._runs(plain["runs"], T, S)
        expression = None
        if "written" in plain:
            expression = self._expression(plain["written"])
            if expression.is_open:
                raise ValueError("the expression of a graph has an open size")
        graph = AttentionGraph(of_runs(runs, T, S), name, expression=expression)
        if "device" in plain:
            device = self._tensor(plain["device"]).device
            if device.type != "meta":
                return graph.to(device)
        return graph

    def _runs(self, plain: list[Any], T: int, S: int) -> Runs:
        check_pairs(T, S)
        count, lo, hi = (integers(self._tensor(part), "runs", "(n,)") for part in plain)
        inside = (count >= 0) & (count <= lo.numel())
        size = int(count.where(inside, -1).sum())
        if not bool(inside.all()) or (count.shape, lo.shape, hi.shape) != ((T,), (size,), (size,)):
            raise ValueError("numbers of runs, and their ends, that do not fit")
        row = torch.repeat_interleave(count)
        inside = (lo >= 0) & (lo < hi) & (hi <= S)
        disjoint = (row[1:] != row[:-1]) | (lo[1:] > hi[:-1])
        if not bool(inside.all() & disjoint.all()):
            raise ValueError(f"runs must ascend within [0, {S}) and not touch")
        return Runs(row, lo, hi)

    def _expression(self, plain: dict[str, Any]) -> Expression:
        self.where += ", expression"
        text, values = fields(plain, "expression", "held")
        if len(text) > LONGEST_TEXT:
            raise ValueError(f"an expression has up to {LONGEST_TEXT:,} characters")
        names = {f"_{place}": self._held(one) for place, one in enumerate(values)}
        expression = _Builders(text, names, self.version).read()
        if not isinstance(expression, Expression):
            raise TypeError("an expression of no call")
        return expression

    def _held(self, plain: dict[str, Any]) -> Any:
        ((kind, inside),) = plain.items()
        if kind == "graph":
            return _at(self.graphs, inside)
        x = self._tensor(inside)
        if kind == "array":
            return x.numpy()
        return x

    def _tensor(self, plain: Any) -> Tensor:
        if isinstance(plain, dict):
            return tensor_from_plain(plain)
        return _at(self.tensors, plain)

    # --- values of several graphs

    def form(self, plain: Any) -> Any:
        """A graph by its number, or a value of several graphs."""
        if not isinstance(plain, dict):
            return _at(self.graphs, plain)
        ((kind, parts),) = plain.items()
        if kind == "relations":
            graphs = {name: _at(self.graphs, number) for name, number in parts}
            if len(graphs) < len(parts):
                raise ValueError("relations of one name")
            return Relations(**graphs)
        if kind == "per_head":
            return PerHead(tuple(_at(self.graphs, number) for number in parts))
        values = [self.form(part) for part in parts]
        if kind == "per_example":
            return PerExample(tuple(values))
        if kind != "layers" or not values or not all(isinstance(x, Layer) for x in values):
            raise ValueError("layers of something else")
        return values


def _at(values: Sequence[Any], number: int) -> Any:
    """A value by its number, which does not count from the end."""
    if number < 0:
        raise IndexError(number)
    return values[number]


class _Builders(Reader):
    """An expression of builders, methods and operators."""

    num_calls = 0

    def __init__(self, text: str, names: dict[str, Any], version: int) -> None:
        super().__init__(text, names)
        self.version = version

    def call(
        self,
        function: str,
        args: tuple[Any, ...],
        options: dict[str, Any],
        node: ast.AST,
    ) -> Expression:
        if self.version == _OLDEST:
            function, args, options = version_2.of_today(function, args, options)
        self.num_calls += 1
        if self.num_calls > MOST_CALLS:
            raise OptionError(f"an expression has at most {MOST_CALLS} calls, got more")
        operands: tuple[Any, ...] = ()
        if function in SIGNS:
            operands = args
        elif function in METHODS:
            operands = args[:1]
        if not all(isinstance(operand, Expression | AttentionGraph) for operand in operands):
            raise OptionError(f"{self.source(node)}: {function} takes graphs")
        try:
            function_of(function)
        except KeyError:
            name = short(function)
            advice = renamed(function) or ". Try: upgrade graphattn."
            raise OptionError(f"{self.source(node)}: no builder is called {name}{advice}") from None
        return Expression(function, args, options)
