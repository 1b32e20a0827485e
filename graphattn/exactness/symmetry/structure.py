"""Points with all that a model reads beside them, in a form that symmetries can move."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.edge_index import from_edge_index
from ...nn.geometry import relative_positions

Builder = Callable[[Tensor, Tensor | None, Tensor | None], AttentionGraph]
"""A graph of positions, a cell or None, and a batch or None."""

SAME = 1e-6  # of its size, what a column may differ from coordinates that it repeats


class Coordinates(NamedTuple):
    """Columns of an input that repeat coordinates: of points, or of the edges between them.

    Args:
        name: The input.
        columns: The columns (c,) of its rows.
        weight: (d, c), the columns in terms of coordinates.
        level: (c,), their mean where they are relative to the points; ``None`` if absolute.
    """

    name: str
    columns: Tensor
    weight: Tensor
    level: Tensor | None

    @property
    def words(self) -> str:
        """The columns as Python writes them: ``x[:, 3:6]``."""
        return columns_of(self.name, self.columns.tolist())


def columns_of(name: str, columns: list[int]) -> str:
    """Columns of an input as Python writes them: ``x[:, 3:6]``."""
    first = columns[0]
    last = columns[-1]
    if len(columns) == 1:
        return f"{name}[:, {first}]"
    if columns == list(range(first, last + 1)):
        return f"{name}[:, {first}:{last + 1}]"
    return f"{name}[:, {columns}]"


@dataclass(frozen=True, eq=False)
class Structure:
    """Points, a cell, edges and inputs.

    Args:
        pos: (N, d) positions.
        cell: (d, d) or (C, d, d) lattice vectors; ``None`` without a cell.
        graph: The edges; ``None`` if the model makes its own.
        inputs: What else the model reads, by name.
        of: "nodes", "edges" or "whole" for each input.
        vectors: Names of the inputs that turn with the points; their last axis has d numbers.
        build: What makes the graph anew after a move; ``None`` if its edges move along.
        copies: Columns of inputs that repeat coordinates.
    """

    pos: Tensor
    cell: Tensor | None
    graph: AttentionGraph | None
    inputs: Mapping[str, Any]
    of: Mapping[str, str]
    vectors: frozenset[str]
    build: Builder | None = None
    copies: tuple[Coordinates, ...] = field(default=())

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.pos)

    @property
    def axes(self) -> int:
        """Axes of the positions."""
        return self.pos.shape[1]

    @property
    def spread(self) -> float:
        """Standard deviation of the positions from their mean, 1.0 if there is none."""
        apart = self.pos - self.pos.mean(0)
        return float(apart.square().mean().sqrt()) or 1.0

    @property
    def distance(self) -> float:
        """The largest coordinate, in units of the spread."""
        return float(self.pos.abs().amax()) / self.spread

    @property
    def is_flat(self) -> bool:
        """True if the points lie in a plane, or on a line of a plane."""
        apart = (self.pos - self.pos.mean(0)).double()
        return int(torch.linalg.matrix_rank(apart, rtol=1e-6)) < self.axes

    def rows(self, kind: str, index: Tensor) -> dict[str, Any]:
        """The inputs, with those rows of the inputs of "nodes" or "edges"."""
        moved = dict(self.inputs)
        for name, x in self.inputs.items():
            if self.of[name] == kind:
                moved[name] = x[index]
        return moved

    def settled(self) -> "Structure":
        """The structure after a move: edges made anew, repeated coordinates set."""
        result = self
        if self.build is not None:
            result = replace(
                result, graph=self.build(self.pos, self.cell, self.inputs.get("batch"))
            )
        if not self.copies:
            return result
        inputs = dict(result.inputs)
        for copy in self.copies:
            x = inputs[copy.name].clone(memory_format=torch.contiguous_format)
            basis = basis_of(result, self.of[copy.name])
            if copy.level is None:
                values = basis @ copy.weight
            else:
                values = (basis - basis.mean(0)) @ copy.weight + copy.level
            x.view(len(x), -1)[:, copy.columns] = values.to(x.dtype)
            inputs[copy.name] = x
        return replace(result, inputs=inputs)

    def with_coordinates(self) -> "Structure":
        """The structure with the columns of inputs that repeat coordinates."""
        copies = []
        for name, kind in self.of.items():
            x = self.inputs[name]
            if kind != "whole" and name not in self.vectors and x.is_floating_point():
                copies += _copies(name, x, basis_of(self, kind), absolute=kind == "nodes")
        return replace(self, copies=tuple(copies))


def basis_of(structure: Structure, kind: str) -> Tensor:
    """Coordinates of the rows of an input, float64: positions of nodes, vectors of edges."""
    if kind == "nodes":
        return structure.pos.double()
    assert structure.graph is not None
    return relative_positions(structure.graph, structure.pos).double()


def _copies(name: str, x: Tensor, basis: Tensor, absolute: bool) -> list[Coordinates]:
    """Columns that are linear in coordinates, with more values than labels have."""
    number = len(x)
    columns = x.detach().reshape(number, -1).double()
    if number < basis.shape[1] + 5:
        return []
    design = torch.cat((basis, torch.ones_like(basis[:, :1])), 1)
    weight = torch.linalg.lstsq(design, columns).solution
    if not bool(weight.isfinite().all()):
        return []
    spread = columns.std(0, correction=0)
    off = (design @ weight - columns).abs().amax(0)
    repeats = (spread > 0) & (off <= SAME * spread)
    for column in repeats.nonzero().flatten().tolist():
        repeats[column] = 2 * len(columns[:, column].unique()) > number
    copies = []
    level = weight[-1].abs() <= SAME * columns.abs().amax(0)
    for chosen, is_absolute in ((repeats & level, True), (repeats & ~level, False)):
        places = chosen.nonzero().flatten()
        if places.numel() == 0:
            continue
        mean = None
        if not is_absolute and absolute:
            mean = columns[:, places].mean(0)
        copies.append(Coordinates(name, places, weight[:-1, places], mean))
    return copies


def graph_of_edges(
    source: Tensor,
    target: Tensor,
    num_nodes: int,
    offsets: Tensor | None = None,
    cell: Tensor | None = None,
    batch: Tensor | None = None,
) -> AttentionGraph:
    """A graph of edges in their order, copies kept, with images where there are offsets."""
    return from_edge_index(
        torch.stack((source, target)),
        num_nodes=num_nodes,
        duplicates="keep",
        offsets=offsets,
        cell=cell,
        batch=batch,
    )
