"""Graphs from untrusted plain data: edges are checked, text is parsed, and no builder is called."""

import ast
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...arguments import whole
from ...errors import GraphAttnError, GraphError, LoaderError, OptionError
from ...missing import renamed
from ..deferred.expression import METHODS, MOST_CALLS, SIGNS, Expression, function_of
from ..deferred.pattern import Pattern
from ..deferred.text import Reader, short
from ..forms import of_runs
from ..graph import AttentionGraph
from ..images import Images, images_of_edges
from ..kinds.per_example import PerExample
from ..kinds.per_head import PerHead
from ..kinds.relations import Relations
from ..listed import INTEGERS, Listed, check_pairs, checked
from ..runs import Runs
from . import version_2
from .tensors import fault, has_keys, is_index, is_list, is_text, tensor_from_plain
from .write import FORMAT, LONGEST_NAME, LONGEST_TEXT, VERSION

_OLDEST = 2  # version that is read
_MOST_GRAPHS = 1 << 16
# kinds of graphs: required keys, and allowed keys
_KINDS: tuple[tuple[set[str], set[str]], ...] = (
    ({"edges", "sizes", "name"}, {"images"}),
    ({"runs", "sizes", "name"}, {"written", "device"}),
    ({"expression", "held"}, set()),
)


def from_plain(data: Any, tensors: Sequence[Tensor] = (), *, where: str = "data") -> Any:
    """The graph of data that :func:`to_plain` made.

    Args:
        data: The data.
        tensors: The tensors beside the data.
        where: The name of the data in errors.

    Raises:
        LoaderError: If the data is not a saved graph, or of another version.
    """
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise fault(
            where, f'a saved graph, {{"format": "{FORMAT}", "version": ..., "graphs": [...]}}', data
        )
    version = _checked_version(data.get("version"), where)
    if data.keys() != {"format", "version", "graphs", "value"}:
        raise fault(where, "format, version, graphs and value alone", f"{sorted(map(str, data))}")
    graphs = data["graphs"]
    expected = f"a list of 1 to {_MOST_GRAPHS} graphs"
    if not isinstance(graphs, list):
        raise fault(where, expected, graphs)
    if not 1 <= len(graphs) <= _MOST_GRAPHS:
        raise fault(where, expected, f"{len(graphs)} graphs")
    reader = _Reader(tensors, where, version)
    for plain in graphs:
        reader.read(plain)
    reader.where = f"{where}, value"
    return reader.form(data["value"])


def _checked_version(version: Any, where: str) -> int:
    advice = "save the graph again"
    if type(version) is int:
        if _OLDEST <= version <= VERSION:
            return version
        if version > VERSION:
            advice = "upgrade graphattn"
    raise fault(where, f"version {_OLDEST} to {VERSION}", version, advice)


def parsed(text: str | bytes, where: str) -> Any:
    """The value of a JSON text.

    Raises:
        LoaderError: If the text is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        reason = "nesting too deep"
    except ValueError as error:  # UnicodeDecodeError, JSONDecodeError, a number of 5000 digits
        reason = str(error)[:200]
    raise LoaderError(
        f"{where}: expected JSON, got: {reason}. Try: load what graphattn saved, unchanged."
    )


class _Reader:
    """Reader of one saved value, with the graphs that it has read."""

    def __init__(self, tensors: Sequence[Tensor], base: str, version: int) -> None:
        self.tensors = tensors
        self.version = version
        self.base = base
        self.where = base
        self.graphs: list[AttentionGraph | Pattern] = []

    def fault(self, expected: str, got: Any) -> LoaderError:
        return fault(self.where, expected, got)

    def read(self, plain: Any) -> None:
        """Read the next graph."""
        self.where = f"{self.base}, graph {len(self.graphs)}"
        keys: set[Any] = set()
        if isinstance(plain, dict):
            keys = set(plain)
        if not any(required <= keys <= required | allowed for required, allowed in _KINDS):
            raise self.fault(
                "a graph: its sizes, its name and its edges or runs, or an expression", plain
            )
        if "sizes" in keys:
            self.graphs.append(self._graph(plain))
        else:
            expression = self._expression(plain)
            self.graphs.append(self._checked("expression", lambda: Pattern(expression)))

    # --- one graph

    def _graph(self, plain: dict[str, Any]) -> AttentionGraph:
        sizes = plain["sizes"]
        name = plain["name"]
        if not is_list(sizes, 2):
            raise self.fault("sizes to be a list of two, targets and sources", sizes)
        is_name = is_text(name, LONGEST_NAME) and name.isprintable()
        if not is_name:
            raise self.fault(f"a name of up to {LONGEST_NAME} printable characters", name)
        T, S = self._checked(
            "sizes", lambda: [whole(size, "size", 0, GraphError) for size in sizes]
        )
        if "edges" in plain:
            index = self._tensor(plain["edges"])
            edges: Listed = self._checked("edges", lambda: checked(index, T, S, "keep"))
            if "images" in plain:
                edges.images = self._images(plain["images"], edges)
            return AttentionGraph(edges, name, index.device)
        runs = self._runs(plain["runs"], T, S)
        expression = None
        if "written" in plain:
            plain = plain["written"]
            expression = self._expression(plain)
            if self._checked("expression", lambda: expression.is_open):
                raise self.fault("the expression of a graph to have no open size", plain)
            expression = expression
        if "device" in plain:
            device = self._tensor(plain["device"]).device
        else:
            device = torch.device("cpu")
        graph = AttentionGraph(of_runs(runs, T, S), name, expression=expression)
        if device.type in ("cpu", "meta"):
            return graph
        return self._checked("device", lambda: graph.to(device))

    def _images(self, plain: Any, edges: Listed) -> Images | None:
        expected = "offsets (E, d), cells (C, d, d) and the cell of each edge, of several"
        if not isinstance(plain, list) or len(plain) not in (2, 3):
            raise self.fault(expected, plain)
        offsets, cells, *numbers = map(self._tensor, plain)
        if cells.dim() != 3 or (len(cells) > 1) != (len(numbers) == 1):
            raise self.fault(expected, f"cells of shape {tuple(cells.shape)}")
        cell_of_edge = None
        if numbers:
            cell_of_edge = numbers[0]
        return self._checked(
            "images", lambda: images_of_edges(offsets, cells, cell_of_edge, edges.target)
        )

    def _runs(self, plain: Any, T: int, S: int) -> Runs:
        self._checked("sizes", lambda: check_pairs(T, S))
        if not is_list(plain, 3):
            raise self.fault("three tensors of runs: how many of each target, their ends", plain)
        parts = [self._tensor(part) for part in plain]
        if not all(map(_is_integer_row, parts)):
            raise self.fault(
                "runs as integers (T,), (R,), (R,)", [(x.dtype, list(x.shape)) for x in parts]
            )
        count, lo, hi = (part.long() for part in parts)
        possible = (count >= 0) & (count <= lo.numel())
        if count.numel() != T or not bool(possible.all()):
            raise self.fault(
                f"the number of runs of each of {T:,} targets", f"{count.numel():,} numbers"
            )
        if not int(count.sum()) == lo.numel() == hi.numel():
            raise self.fault(
                f"{int(count.sum()):,} runs", f"{lo.numel():,} and {hi.numel():,} ends"
            )
        row = torch.repeat_interleave(count)
        inside = (lo >= 0) & (lo < hi) & (hi <= S)
        disjoint = (row[1:] != row[:-1]) | (lo[1:] > hi[:-1])
        if not bool(inside.all() & disjoint.all()):
            raise self.fault(f"runs that ascend within [0, {S}) and do not touch", "other runs")
        return Runs(row, lo, hi)

    def _expression(self, plain: Any) -> Expression:
        if not has_keys(plain, {"expression", "held"}):
            raise self.fault("an expression and its values", plain)
        text = plain["expression"]
        values = plain["held"]
        if not is_text(text, LONGEST_TEXT):
            raise self.fault(f"an expression of up to {LONGEST_TEXT:,} characters", text)
        if not isinstance(values, list):
            raise self.fault("a list of the expression's values", values)
        names = {f"_{place}": self._held(one) for place, one in enumerate(values)}
        expression = self._checked(
            "expression", lambda: _Builders(text, names, self.version).read()
        )
        if not isinstance(expression, Expression):
            raise self.fault("an expression of at least one call", text)
        return expression

    def _held(self, plain: Any) -> Any:
        kind, inside = _only_item(plain)
        if kind == "graph":
            return self._earlier(inside, AttentionGraph)
        if kind not in ("tensor", "array"):
            raise self.fault("one of graph, tensor or array", plain)
        x = self._tensor(inside)
        if kind == "tensor":
            return x
        return self._checked("array", x.numpy)

    # --- values of several graphs

    def form(self, plain: Any) -> Any:
        """A graph by its number, or a value of several graphs."""
        kind, parts = _kind_and_parts(plain)
        if kind == "relations":
            return self._relations(parts)
        if kind == "layers" and parts:
            return [self._layer(part) for part in parts]
        return self._layer(plain)

    def _layer(self, plain: Any) -> Any:
        """A graph by its number, or graphs of heads or of examples."""
        kind, parts = _kind_and_parts(plain)
        if kind != "per_example":
            return self._example(plain)
        examples = [self._example(part) for part in parts]
        return self._checked("per_example", lambda: PerExample(tuple(examples)))

    def _example(self, plain: Any) -> Any:
        """A graph by its number, or graphs of heads."""
        if not isinstance(plain, dict):
            return self._earlier(plain, AttentionGraph | Pattern)
        kind, parts = _kind_and_parts(plain)
        if kind != "per_head":
            raise self.fault(
                "the number of a graph, or one of per_head, per_example, relations, layers", plain
            )
        graphs = tuple(self._earlier(number, AttentionGraph) for number in parts)
        return self._checked("per_head", lambda: PerHead(graphs))

    def _relations(self, pairs: list[Any]) -> Relations:
        if not all(is_list(pair, 2) and isinstance(pair[0], str) for pair in pairs):
            raise self.fault("relations as pairs of a name and a graph", pairs)
        parts = {name: self._earlier(number, AttentionGraph) for name, number in pairs}
        if len(parts) < len(pairs):
            raise self.fault("every name of a relation once", [name for name, _ in pairs])
        return self._checked("relations", lambda: Relations(**parts))

    def _earlier(self, number: Any, kinds: Any) -> Any:
        if not is_index(number, len(self.graphs)):
            raise self.fault(f"the number of a graph before it, below {len(self.graphs)}", number)
        if not isinstance(self.graphs[number], kinds):
            raise self.fault("a graph that fits there", f"a {type(self.graphs[number]).__name__}")
        return self.graphs[number]

    def _tensor(self, plain: Any) -> Tensor:
        if type(plain) is not int:
            return tensor_from_plain(plain, self.where)
        if not is_index(plain, len(self.tensors)):
            raise self.fault(f"the number of a tensor, below {len(self.tensors)}", plain)
        return self.tensors[plain]

    def _checked(self, subject: str, make: Callable[[], Any]) -> Any:
        """``make()``; its error becomes a LoaderError that names the place."""
        try:
            return make()
        except LoaderError:
            raise
        # RuntimeError and TypeError are torch's, for a device that is missing
        except (GraphAttnError, RuntimeError, TypeError) as error:
            raise LoaderError(f"{self.where}, {subject}: {str(error)[:500]}") from error


def _is_integer_row(x: Tensor) -> bool:
    """True for integers (n,) on the CPU."""
    return x.dtype in INTEGERS and (x.ndim, x.device.type) == (1, "cpu")


def _only_item(plain: Any) -> tuple[Any, Any]:
    """The key and the value of a dictionary of one item; an empty key for anything else."""
    if isinstance(plain, dict) and len(plain) == 1:
        return next(iter(plain.items()))
    return "", None


def _kind_and_parts(plain: Any) -> tuple[Any, list[Any]]:
    """The kind of a value of several graphs, and its parts; an empty kind for anything else."""
    kind, parts = _only_item(plain)
    if isinstance(parts, list):
        return kind, parts
    return "", []


class _Builders(Reader):
    """An expression of builders, methods and operators."""

    num_calls = 0

    def __init__(self, text: str, names: dict[str, Any], version: int) -> None:
        super().__init__(text, names)
        self.version = version

    def call(
        self, function: str, args: tuple[Any, ...], options: dict[str, Any], node: ast.AST
    ) -> Expression:
        if self.version == 2:
            function, args, options = version_2.of_today(function, args, options)
        self.num_calls += 1
        if self.num_calls > MOST_CALLS:
            raise OptionError(f"an expression has at most {MOST_CALLS} calls, got more")
        if function in SIGNS:
            operands = args
        elif function in METHODS:
            operands = args[:1]
        else:
            operands = ()
        if not all(isinstance(operand, Expression | AttentionGraph) for operand in operands):
            raise OptionError(f"{self.source(node)}: {function} takes graphs")
        try:
            function_of(function)
        except KeyError:
            name = short(function)
            advice = renamed(function) or ". Try: upgrade graphattn."
            raise OptionError(f"{self.source(node)}: no builder is called {name}{advice}") from None
        return Expression(function, args, options)
