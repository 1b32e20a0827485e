"""Open expressions evaluated: their builders called with a size, or with positions."""

import inspect
import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...arguments import whole
from ...errors import GraphError
from ..graph import AttentionGraph, disjoint_union
from .expression import Expression, built, function_of
from .places import PLACES, counts


def leaves_open(call: Expression, names: tuple[str, ...]) -> bool:
    """True if ``...`` stands for one of these arguments, here or in an operand."""
    if call.args and call.args[0] is ...:
        return any(name in names for name in blanks_of(call))
    return any(
        leaves_open(child, names) for child in call.children() if isinstance(child, Expression)
    )


def blanks_of(call: Expression) -> list[str]:
    """The arguments that ``...`` stands for."""
    names = list(inspect.signature(function_of(call.function)).parameters)
    return [name for name, value in zip(names, call.args, strict=False) if value is ...]


def takes_sources(call: Expression) -> bool:
    """True if ``...`` stands for targets and for sources in every builder."""
    if call.args and call.args[0] is ...:
        return len(blanks_of(call)) == 2
    parts = [child for child in call.children() if isinstance(child, Expression)]
    return all(takes_sources(part) for part in parts if part.is_open)


class OfSize:
    """Evaluation of a pattern at a size."""

    def __init__(self, size: Any, num_sources: Any) -> None:
        self.size = size
        self.num_sources = num_sources

    def build(self, call: Expression) -> AttentionGraph:
        size = self.size
        num_sources = self.num_sources
        blanks = blanks_of(call)
        rest = map(built, call.args[len(blanks) :])
        options = _options(call)
        on_grid = "size" in blanks
        build = function_of(call.function)
        if not set(blanks).isdisjoint(PLACES):
            raise GraphError(
                f"{call} needs {' and '.join(blanks)}, and got a size; make the graph first: "
                "recipe(pos, batch, faces=faces)"
            )
        if isinstance(size, tuple):
            if not on_grid:
                size = math.prod(whole(length, "size", 0, GraphError) for length in size)
        elif on_grid and isinstance(size, int):
            raise GraphError(
                f"{call} needs the axes of a grid, and got {size} nodes; call the pattern with "
                "its axes first: pattern((height, width))"
            )
        if len(blanks) == 2:
            if num_sources is None:
                num_sources = size
            return build(size, num_sources, *rest, **options)
        graph: AttentionGraph = build(size, *rest, **options)
        if num_sources not in (None, graph.num_sources):
            raise GraphError(
                f"{call} of {size} targets has {graph.num_sources} sources, expected "
                f"{num_sources}; for its last targets, as with a cache, pass a subgraph("
                f"targets=range(first, {num_sources})) of pattern({num_sources}), or a pattern of "
                "both sizes, such as cross(..., ...)"
            )
        return graph

    def with_tokens(self, call: Expression) -> "OfSize":
        """Evaluation of the operand of ``with_global_tokens``: a size counts the new nodes, too."""
        if not isinstance(self.size, int):
            return self
        number = dict(zip(("graph", "number"), call.args, strict=False)).get("number")
        if number is None:
            number = call.options.get("number", 1)
        num_sources = self.num_sources
        if num_sources is not None:
            num_sources -= number
        return OfSize(self.size - number, num_sources)

    def complement(self, graph: AttentionGraph) -> AttentionGraph:
        return ~graph


class OfPlaces:
    """Evaluation of a pattern at positions, or at the sizes of the clouds; the builders check them.

    Args:
        pos: Positions (N, d); ``None`` for a mesh without positions.
        batch: int64 (N,), the cloud of each node, sorted.
        queries: Positions (M, d) of the targets, if these are other points.
        queries_batch: int64 (M,), the cloud of each query.
        faces: Faces (F, n) of a mesh, or kinds and tables of its cells.
        cell: Lattice vectors (d, d) or (B, d, d) of a cell that repeats.
        pbc: bool (d,) or (B, d), the axes along which it repeats.
    """

    def __init__(
        self,
        pos: Any,
        batch: Any,
        queries: Any,
        queries_batch: Any,
        faces: Any,
        cell: Any = None,
        pbc: Any = None,
    ) -> None:
        self.pos = pos
        self.batch = batch
        self.queries = queries
        self.queries_batch = queries_batch
        self.faces = faces
        self.cells = faces
        self.cell = cell
        self.pbc = pbc

    def build(self, call: Expression) -> AttentionGraph:
        blanks = blanks_of(call)
        function = function_of(call.function)
        if set(blanks).isdisjoint(PLACES):
            return self.joined(lambda targets, sources: OfSize(targets, sources).build(call))
        for name in blanks:
            if getattr(self, name) is None:
                raise GraphError(
                    f"{call} needs {name}, got none; pass recipe(pos, batch, faces=faces)"
                )
        parameters = inspect.signature(function).parameters
        for name in ("queries", "cell"):
            if getattr(self, name) is not None and name not in parameters:
                raise GraphError(f"{call} takes no {name}; leave it out, or use radius or knn")
        options = _options(call)
        for name in ("queries", "batch", "queries_batch", "cell", "pbc"):
            value = getattr(self, name)
            if value is not None and name in parameters:
                options[name] = value
        args = [*(getattr(self, name) for name in blanks), *map(built, call.args[len(blanks) :])]
        names_size = "num_vertices" in parameters and len(args) == 1
        if names_size and self.pos is not None:
            options.setdefault("num_vertices", len(self.pos))
        return function(*args, **options)

    def with_tokens(self, call: Expression) -> "OfPlaces":
        if self.batch is not None:
            raise GraphError(
                f"{call} would join the clouds of a batch; disjoint_union joins graphs of one "
                "cloud each"
            )
        return self

    def complement(self, graph: AttentionGraph) -> AttentionGraph:
        """The complement within each cloud."""
        if self.batch is None:
            return ~graph
        return ~graph & self.joined(function_of("cross"))

    def joined(self, make: Callable[[int, int], AttentionGraph]) -> AttentionGraph:
        """The graphs ``make(targets, sources)`` of all clouds side by side, on their device."""
        if self.pos is None:
            raise GraphError(
                "the number of nodes is open without positions; pass recipe(pos, faces=faces)"
            )
        if self.queries is None:
            targets = self.pos
            of_targets = self.batch
        else:
            targets = self.queries
            of_targets = self.queries_batch
        if (self.batch is None) != (of_targets is None):
            raise GraphError(
                "with queries, give both batch and queries_batch, or neither: a query reads its "
                "own cloud"
            )
        if self.batch is None:
            graph = make(len(targets), len(self.pos))
        else:
            rows = counts(of_targets, len(targets))
            columns = counts(self.batch, len(self.pos))
            pairs = [
                (rows.get(cloud, 0), columns.get(cloud, 0)) for cloud in sorted(rows | columns)
            ]
            graph = disjoint_union([make(*pair) for pair in pairs])
        if isinstance(self.pos, Tensor):
            return graph.to(self.pos.device)
        return graph


def filled(part: Any, at: OfSize | OfPlaces) -> Any:
    """An argument with its open expressions evaluated; everything else as it is."""
    if not isinstance(part, Expression) or not part.is_open:
        return built(part)
    if part.args[0] is ...:
        return at.build(part)
    if part.function == "with_global_tokens":
        at = at.with_tokens(part)
    args = [filled(arg, at) for arg in part.args]
    if part.function == "~":
        return at.complement(args[0])
    return function_of(part.function)(*args, **_options(part))


def _options(call: Expression) -> dict[str, Any]:
    return {name: built(value) for name, value in call.options.items()}
