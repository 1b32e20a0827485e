"""Positions, clouds and faces for patterns, and calls of builders with them."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import integers
from ..errors import GraphError
from .advice import no_positions

if TYPE_CHECKING:
    from .graph import AttentionGraph

#: Arguments of builders that may be open, beside sizes.
PLACES = ("pos", "faces")


class Places:
    """The arguments of a recipe, which the builders check.

    Args:
        pos: Positions (N, d); ``None`` for a mesh without positions.
        batch: int64 (N,), the cloud of each node, sorted.
        queries: Positions (M, d) of the targets, if these are other points.
        queries_batch: int64 (M,), the cloud of each query.
        faces: Faces (F, n) of a mesh.
    """

    def __init__(self, pos: Any, batch: Any, queries: Any, queries_batch: Any, faces: Any) -> None:
        for name, x in (("pos", pos), ("queries", queries)):
            if x is not None and (not isinstance(x, Tensor | np.ndarray) or x.ndim != 2):
                raise GraphError(no_positions(x, name))
        self.pos, self.batch, self.queries, self.queries_batch, self.faces = pos, batch, queries, queries_batch, faces

    def build(
        self, function: Callable[..., Any], blanks: list[str], rest: list[Any], options: dict[str, Any], call: str
    ) -> "AttentionGraph":
        """The graph of a builder that takes positions or faces."""
        for name in blanks:
            if getattr(self, name) is None:
                given = "recipe(pos, batch, faces=faces)" if name == "faces" else "recipe(pos, batch)"
                raise GraphError(f"{call} needs {name}, got none; pass {given}")
        takes = inspect.signature(function).parameters
        more = {"queries": self.queries, "batch": self.batch, "queries_batch": self.queries_batch}
        options = options | {name: value for name, value in more.items() if value is not None and name in takes}
        if self.queries is not None and "queries" not in takes:
            raise GraphError(f"{call} has one set of nodes, and takes no queries; leave them out")
        args = [*(getattr(self, name) for name in blanks), *rest]
        if "num_vertices" in takes and self.pos is not None and "num_vertices" not in options and len(args) == 1:
            options["num_vertices"] = len(self.pos)
        made: AttentionGraph = function(*args, **options)
        return made

    def joined(self, make: "Callable[[int, int], AttentionGraph]") -> "AttentionGraph":
        """The graphs ``make(targets, sources)`` of all clouds, side by side, on the device of the points."""
        from .graph import disjoint_union

        if self.pos is None:
            raise GraphError("the number of nodes is open without positions; pass recipe(pos, faces=faces)")
        targets = self.pos if self.queries is None else self.queries
        of_targets = self.batch if self.queries is None else self.queries_batch
        if (self.batch is None) != (of_targets is None):
            raise GraphError("with queries, give both batch and queries_batch, or neither: a query reads its own cloud")
        if self.batch is None:
            graph = make(len(targets), len(self.pos))
        else:
            rows, columns = counts(of_targets, len(targets)), counts(self.batch, len(self.pos))
            pairs = [(rows.get(cloud, 0), columns.get(cloud, 0)) for cloud in sorted(rows | columns)]
            graph = disjoint_union([make(*pair) for pair in pairs])
        return graph.to(self.pos.device) if isinstance(self.pos, Tensor) else graph


def counts(batch: object, rows: int) -> dict[int, int]:
    """Number of points of each cloud that is not empty."""
    numbers = integers(batch, "batch", "(N,)", GraphError)
    if numbers.shape != (rows,) or bool((numbers.diff() < 0).any()):
        raise GraphError(f"batch must name the cloud of each of {rows} points, sorted, got {tuple(numbers.shape)}")
    cloud, count = torch.unique_consecutive(numbers, return_counts=True)
    return dict(zip(cloud.tolist(), count.tolist(), strict=True))


def count_of_clouds(batch: Tensor | None) -> int:
    """B of a sorted batch, empty clouds before the last point included; 1 without a batch."""
    return 1 if batch is None else int(batch[-1]) + 1 if len(batch) else 0


def no_places(given: dict[str, Any]) -> None:
    """Refuse clouds, queries and faces without positions."""
    for name, value in given.items():
        if value is not None:
            raise GraphError(f"{name} needs positions, got no pos; pass recipe(pos, batch)")
