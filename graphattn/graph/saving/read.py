"""Graphs from untrusted plain data: edges are checked, text is parsed, and no builder is called."""

import ast
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...arguments import whole
from ...errors import GraphAttnError, GraphError, LoaderError, OptionError
from ..expression import METHODS, MOST_CALLS, SIGNS, Expression, function_of
from ..forms import of_runs
from ..graph import AttentionGraph
from ..listed import INTEGERS, check_pairs, checked
from ..pattern import Pattern
from ..per_head import PerHead
from ..relations import Relations
from ..runs import Runs
from ..text import Reader, short
from .tensors import fault, tensor_from_plain
from .write import FORMAT, LONGEST_NAME, LONGEST_TEXT, VERSION

_MOST_GRAPHS = 1 << 16
_KINDS: tuple[
    tuple[set[str], set[str]], ...
] = (  # kinds of graphs: required keys, and allowed keys
    ({"edges", "sizes", "name"}, set()),
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
    version = data.get("version")
    if type(version) is not int or version != VERSION:
        later = type(version) is int and version > VERSION
        raise fault(
            where,
            f"version {VERSION}",
            version,
            "upgrade graphattn" if later else "save the graph again",
        )
    if data.keys() != {"format", "version", "graphs", "value"}:
        raise fault(where, "format, version, graphs and value alone", f"{sorted(map(str, data))}")
    graphs = data["graphs"]
    if not isinstance(graphs, list) or not 1 <= len(graphs) <= _MOST_GRAPHS:
        if isinstance(graphs, list):
            got = f"{len(graphs)} graphs"
        else:
            got = graphs
        raise fault(where, f"a list of 1 to {_MOST_GRAPHS} graphs", got)
    reader = _Reader(tensors, where)
    for plain in graphs:
        reader.read(plain)
    reader.where = f"{where}, value"
    return reader.form(data["value"])


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
    """The graphs so far."""

    def __init__(self, tensors: Sequence[Tensor], base: str) -> None:
        self.tensors = tensors
        self.base = base
        self.where = base
        self.made: list[AttentionGraph | Pattern] = []

    def fault(self, expected: str, got: Any) -> LoaderError:
        return fault(self.where, expected, got)

    def read(self, plain: Any) -> None:
        """Read the next graph."""
        self.where = f"{self.base}, graph {len(self.made)}"
        keys = plain.keys() if isinstance(plain, dict) else set()
        if not any(must <= keys <= must | may for must, may in _KINDS):
            raise self.fault(
                "a graph: its sizes, its name and its edges or runs, or an expression", plain
            )
        made = self._pattern(plain) if "sizes" not in plain else self._graph(plain)
        self.made.append(made)

    # --- one graph

    def _graph(self, plain: dict[str, Any]) -> AttentionGraph:
        sizes = plain["sizes"]
        name = plain["name"]
        if not isinstance(sizes, list) or len(sizes) != 2:
            raise self.fault("sizes to be a list of two, targets and sources", sizes)
        if not isinstance(name, str) or len(name) > LONGEST_NAME or not name.isprintable():
            raise self.fault(f"a name of up to {LONGEST_NAME} printable characters", name)
        T, S = self._made("sizes", lambda: [whole(size, "size", 0, GraphError) for size in sizes])
        if "edges" in plain:
            index = self._tensor(plain["edges"])
            edges = self._made("edges", lambda: checked(index, T, S, "keep"))
            return AttentionGraph(edges, name, index.device)
        runs = self._runs(plain["runs"], T, S)
        if "written" in plain:
            expression = self._expression(plain["written"])
        else:
            expression = None
        if expression is not None and self._made("expression", lambda: expression.is_open):
            raise self.fault("the expression of a graph to have no open size", plain["written"])
        if "device" in plain:
            device = self._tensor(plain["device"]).device
        else:
            device = torch.device("cpu")
        graph = AttentionGraph(of_runs(runs, T, S), name, expression=expression)
        if device.type in ("cpu", "meta"):
            return graph
        return self._made("device", lambda: graph.to(device))

    def _runs(self, plain: Any, T: int, S: int) -> Runs:
        self._made("sizes", lambda: check_pairs(T, S))
        if not isinstance(plain, list) or len(plain) != 3:
            raise self.fault("three tensors of runs: how many of each target, their ends", plain)
        count, lo, hi = (self._tensor(part) for part in plain)
        if any(
            x.ndim != 1 or x.dtype not in INTEGERS or x.device.type != "cpu"
            for x in (count, lo, hi)
        ):
            raise self.fault(
                "runs as integers (T,), (R,), (R,)",
                [(x.dtype, list(x.shape)) for x in (count, lo, hi)],
            )
        count = count.long()
        lo = lo.long()
        hi = hi.long()
        if count.numel() != T or bool((count < 0).any()) or bool((count > lo.numel()).any()):
            raise self.fault(
                f"the number of runs of each of {T:,} targets", f"{count.numel():,} numbers"
            )
        if not int(count.sum()) == lo.numel() == hi.numel():
            raise self.fault(
                f"{int(count.sum()):,} runs", f"{lo.numel():,} and {hi.numel():,} ends"
            )
        row = torch.repeat_interleave(count)
        disjoint = (row[1:] != row[:-1]) | (lo[1:] > hi[:-1])
        if not bool(((lo >= 0) & (lo < hi) & (hi <= S)).all() and disjoint.all()):
            raise self.fault(f"runs that ascend within [0, {S}) and do not touch", "other runs")
        return Runs(row, lo, hi)

    def _pattern(self, plain: dict[str, Any]) -> Pattern:
        expression = self._expression(plain)
        return self._made("expression", lambda: Pattern(expression))

    def _expression(self, plain: Any) -> Expression:
        if not isinstance(plain, dict) or plain.keys() != {"expression", "held"}:
            raise self.fault("an expression and its values", plain)
        text = plain["expression"]
        held = plain["held"]
        if not isinstance(text, str) or len(text) > LONGEST_TEXT:
            raise self.fault(f"an expression of up to {LONGEST_TEXT:,} characters", text)
        if not isinstance(held, list):
            raise self.fault("a list of the expression's values", held)
        names = {f"_{place}": self._held(one) for place, one in enumerate(held)}
        expression = self._made("expression", lambda: _Known(text, names).read())
        if not isinstance(expression, Expression):
            raise self.fault("an expression of at least one call", text)
        return expression

    def _held(self, plain: Any) -> Any:
        if isinstance(plain, dict) and len(plain) == 1:
            ((kind, inside),) = plain.items()
        else:
            ((kind, inside),) = (("", None),)
        if kind == "graph":
            return self._earlier(inside, AttentionGraph)
        if kind not in ("tensor", "array"):
            raise self.fault("one of graph, tensor or array", plain)
        x = self._tensor(inside)
        if kind == "tensor":
            return x
        return self._made("array", x.numpy)

    # --- values of several graphs

    def form(self, plain: Any, inside: bool = False) -> Any:
        """A graph by its number, or a value of several graphs."""
        if not isinstance(plain, dict):
            return self._earlier(plain, AttentionGraph | Pattern)
        if len(plain) == 1:
            ((kind, parts),) = plain.items()
        else:
            ((kind, parts),) = (("", None),)
        if kind == "per_head" and isinstance(parts, list):
            graphs = tuple(self._earlier(number, AttentionGraph) for number in parts)
            return self._made("per_head", lambda: PerHead(graphs))
        if kind == "layers" and isinstance(parts, list) and parts and not inside:
            return [self.form(part, inside=True) for part in parts]
        if kind == "relations" and isinstance(parts, list) and not inside:
            return self._relations(parts)
        raise self.fault("the number of a graph, or one of per_head, relations, layers", plain)

    def _relations(self, pairs: list[Any]) -> Relations:
        if not all(
            isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
        ):
            raise self.fault("relations as pairs of a name and a graph", pairs)
        parts = {name: self._earlier(number, AttentionGraph) for name, number in pairs}
        if len(parts) < len(pairs):
            raise self.fault("every name of a relation once", [name for name, _ in pairs])
        return self._made("relations", lambda: Relations(**parts))

    def _earlier(self, number: Any, kinds: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self.made):
            raise self.fault(f"the number of a graph before it, below {len(self.made)}", number)
        if not isinstance(self.made[number], kinds):
            raise self.fault("a graph that fits there", f"a {type(self.made[number]).__name__}")
        return self.made[number]

    def _tensor(self, plain: Any) -> Tensor:
        if type(plain) is not int:
            return tensor_from_plain(plain, self.where)
        if not 0 <= plain < len(self.tensors):
            raise self.fault(f"the number of a tensor, below {len(self.tensors)}", plain)
        return self.tensors[plain]

    def _made(self, what: str, make: Callable[[], Any]) -> Any:
        """``make()``; its error becomes a LoaderError that names the place."""
        try:
            return make()
        except LoaderError:
            raise
        except (
            GraphAttnError,
            RuntimeError,
            TypeError,
        ) as error:  # torch's own, for a device that is missing
            raise LoaderError(f"{self.where}, {what}: {str(error)[:500]}") from error


class _Known(Reader):
    """An expression of builders, methods and operators."""

    num_calls = 0

    def call(
        self, function: str, args: tuple[Any, ...], options: dict[str, Any], node: ast.AST
    ) -> Expression:
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
            raise OptionError(
                f"{self.source(node)}: no builder is called {name}. Try: upgrade graphattn."
            ) from None
        return Expression(function, args, options)
