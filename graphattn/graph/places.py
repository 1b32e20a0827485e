"""Positions, clouds and faces that a pattern waits for, and builders called with them."""

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

#: Arguments of builders that may wait, beside sizes.
PLACES = ("pos", "faces")


class Places:
    """What a recipe is called with; the builders check it.

    Args:
        pos: Positions (N, d); ``None`` of a mesh without.
        batch: int64 (N,), the cloud of each, sorted.
        queries: Positions (M, d) of the targets, where these are others.
        queries_batch: Their clouds.
        faces: Of a mesh.
    """

    def __init__(self, pos: Any, batch: Any, queries: Any, queries_batch: Any, faces: Any) -> None:
        for name, x in (("pos", pos), ("queries", queries)):
            if x is not None and (not isinstance(x, Tensor | np.ndarray) or x.ndim != 2):
                raise GraphError(no_positions(x, name))
        self.pos, self.batch, self.queries, self.queries_batch, self.faces = pos, batch, queries, queries_batch, faces

    def build(
        self, function: Callable[..., Any], blanks: list[str], rest: list[Any], options: dict[str, Any], call: str
    ) -> "AttentionGraph":
        """The graph of a builder that waits for places."""
        for name in blanks:
            if getattr(self, name) is None:
                given = f"recipe(pos, batch{', faces=faces' * (name == 'faces')})"
                raise GraphError(f"{call} waits for {name}, which is not given: {given}")
        takes = inspect.signature(function).parameters
        more = {"queries": self.queries, "batch": self.batch, "queries_batch": self.queries_batch}
        options = options | {name: value for name, value in more.items() if value is not None and name in takes}
        if self.queries is not None and "queries" not in takes:
            raise GraphError(f"{call} has one set of nodes, and takes no queries")
        args = [*(getattr(self, name) for name in blanks), *rest]
        if "num_vertices" in takes and self.pos is not None and "num_vertices" not in options and len(args) == 1:
            options["num_vertices"] = len(self.pos)
        made: AttentionGraph = function(*args, **options)
        return made

    def joined(self, make: "Callable[[int, int], AttentionGraph]") -> "AttentionGraph":
        """The graphs that ``make(targets, sources)`` gives of the clouds' sizes, side by side, where the points are."""
        from .graph import disjoint_union

        if self.pos is None:
            raise GraphError("positions tell how many nodes there are; pass recipe(pos, faces=faces)")
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
    """Points of each cloud that has some."""
    numbers = integers(batch, "batch", "(N,)", GraphError)
    if numbers.shape != (rows,) or bool((numbers.diff() < 0).any()):
        raise GraphError(f"batch must name the cloud of each of {rows} points, sorted, got {tuple(numbers.shape)}")
    cloud, count = torch.unique_consecutive(numbers, return_counts=True)
    return dict(zip(cloud.tolist(), count.tolist(), strict=True))


def count_of_clouds(batch: Tensor | None) -> int:
    """B of a sorted batch, empty clouds before the last point's among them; one cloud without a batch."""
    return 1 if batch is None else int(batch[-1]) + 1 if len(batch) else 0


def no_places(given: dict[str, Any]) -> None:
    """Refuse clouds, queries and faces where there are no positions."""
    for name, value in given.items():
        if value is not None:
            raise GraphError(f"{name} goes with positions: recipe(pos, batch), got no pos")
