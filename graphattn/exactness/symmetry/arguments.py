"""Input validation for ``verify(symmetry=...)``: the structure and the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...arguments import (
    check_finite,
    check_range,
    check_shape,
    floats,
    one_of,
    positive,
    several,
    shown,
    whole,
)
from ...errors import GraphError, OptionError, ShapeError
from ...graph import AttentionGraph, Pattern, need_graph, need_nodes
from ...graph.images import checked_cell
from .measure import BOUNDS
from .model import ModelUnderTest, check_kinds
from .structure import Builder, Structure

SYMMETRIES = ("rotations", "reflections", "translations", "permutations", "cells")


@dataclass(frozen=True, eq=False)
class Question:
    """The checked arguments.

    Args:
        model: The model.
        structure: What it is run on.
        symmetries: Names of the symmetries.
        periodic: Axes along which the cell repeats.
        tolerance: The largest error that is taken for rounding; ``None`` as the dtypes say.
        seed: Of the random moves.
    """

    model: ModelUnderTest
    structure: Structure
    symmetries: tuple[str, ...]
    periodic: tuple[int, ...]
    tolerance: float | None
    seed: int


def question(
    subject: Any,
    graph: Any,
    symmetry: Any,
    pos: Any,
    cell: Any,
    pbc: Any,
    output: Any,
    vectors: Any,
    tolerance: Any,
    seed: Any,
    inputs: Mapping[str, Any],
) -> Question:
    """The arguments of ``verify``, checked."""
    check_kinds(output)
    model = ModelUnderTest(subject, output)
    pos = floats(pos, "pos", "(N, d) of positions", 2).detach()
    if pos.dim() != 2 or 0 in pos.shape:
        raise ShapeError(f"pos must be (N, d) of at least one point, got {tuple(pos.shape)}")
    if pos.dtype not in BOUNDS:
        raise ShapeError(f"pos must be float64 or float32, got {shown(pos)}; pass pos.double()")
    check_finite(pos, "pos")
    symmetries = _symmetries(symmetry, pos.shape[1], cell)
    if cell is not None:
        cell = checked_cell(cell, pos.shape[1], OptionError).detach().to(pos)
    periodic = _periodic(pbc, pos.shape[1], cell)
    _check_batch(inputs.get("batch"), len(pos))
    edges, build = _edges(graph, pos, cell, inputs)
    is_periodic = edges is not None and edges.images is not None
    if symmetry == "all" and cell is None and is_periodic:  # "cells" would be left out silently
        raise OptionError(
            'symmetry="all" of a periodic graph includes cells, which need cell and pbc; pass '
            "cell=cell, as to radius or knn, or name the other symmetries"
        )
    if "cells" in symmetries:
        _check_one_cell(cell, inputs, periodic)
    of = {name: _of(name, x, len(pos), edges) for name, x in inputs.items()}
    _check_edges(of, build)
    tensors = {name: x.detach() for name, x in inputs.items() if isinstance(x, Tensor)}
    inputs = {**inputs, **tensors}
    turning = _vectors(vectors, inputs, pos.shape[1])
    structure = Structure(pos, cell, edges, inputs, of, turning, build).with_coordinates()
    model.check(structure)
    if tolerance is not None:
        tolerance = positive(tolerance, "tolerance")
    return Question(model, structure, symmetries, periodic, tolerance, whole(seed, "seed"))


def _symmetries(symmetry: Any, axes: int, cell: Any) -> tuple[str, ...]:
    """Names of symmetries; "all" is all that the structure has."""
    if symmetry == "all":
        return tuple(
            name
            for name in SYMMETRIES
            if (name != "cells" or cell is not None) and (name != "rotations" or axes > 1)
        )
    names = [symmetry]
    if not isinstance(symmetry, str):
        names = several(symmetry, "symmetry", f"must name some of {', '.join(SYMMETRIES)}")
    for name in names:
        one_of(name, "symmetry", SYMMETRIES, hint=', or "all"')
    if not names:
        raise OptionError("symmetry must name at least one symmetry, got none")
    if "rotations" in names and axes == 1:
        raise OptionError("rotations need positions of at least 2 axes, got 1; check reflections")
    return tuple(dict.fromkeys(names))


def _periodic(pbc: Any, axes: int, cell: Any) -> tuple[int, ...]:
    """The axes along which the cell repeats, by default all."""
    if cell is None:
        if pbc is not None:
            raise OptionError("pbc needs cell, the lattice vectors of the periodic axes, got none")
        return ()
    if pbc is None:
        return tuple(range(axes))
    flags = torch.as_tensor(pbc).reshape(-1)
    if flags.numel() == 1:
        flags = flags.expand(axes)
    if flags.dtype != torch.bool or flags.numel() != axes:
        raise OptionError(f"pbc must be True or False for each of {axes} axes, got {shown(pbc)}")
    return tuple(torch.nonzero(flags).flatten().tolist())


def _check_one_cell(cell: Any, inputs: Mapping[str, Any], periodic: tuple[int, ...]) -> None:
    """Refuse the symmetry of cells without one cell of one structure."""
    if cell is None or not periodic:
        raise OptionError("cells need cell, the lattice vectors as rows, and an axis that repeats")
    if inputs.get("batch") is not None or (cell.dim() == 3 and len(cell) != 1):
        raise OptionError("cells are checked on one structure with one cell; leave out batch")


def _check_batch(batch: Any, num_nodes: int) -> None:
    """Refuse numbers of structures that are not one for each point."""
    if batch is not None:
        check_shape(batch, "batch", (num_nodes,), "the number of each point's structure")
        check_range(batch, "batch", num_nodes, ", the structures", ShapeError)


def _edges(
    graph: Any, pos: Tensor, cell: Any, inputs: Mapping[str, Any]
) -> tuple[AttentionGraph | None, Builder | None]:
    """The edges, and what makes them anew after a move; ``None`` if they are fixed."""
    if graph is None:
        return None, None
    if isinstance(graph, AttentionGraph):
        need_nodes(graph, "graph", len(pos), len(pos))
        return graph.materialise(), None
    builder = _builder(graph)
    edges = builder(pos, cell, inputs.get("batch"))
    return edges, builder


def _builder(graph: Any) -> Builder:
    """The builder of edges from positions: a recipe, or a function of positions and a cell."""
    if isinstance(graph, Pattern):
        recipe = graph

        def of_recipe(pos: Tensor, cell: Tensor | None, batch: Tensor | None) -> AttentionGraph:
            if cell is None:
                return recipe(pos, batch).materialise()
            return recipe(pos, batch, cell=cell).materialise()

        return of_recipe
    if not callable(graph):
        raise GraphError(
            "graph must be an AttentionGraph, a recipe such as ga.graphs.knn(..., k=8), or a "
            f"function of pos, got {shown(graph)}"
        )
    maker = ModelUnderTest(graph, "scalar")

    def build(pos: Tensor, cell: Tensor | None, batch: Tensor | None) -> AttentionGraph:
        options = {"cell": cell, "batch": batch}
        keywords = {name: x for name, x in options.items() if x is not None and maker.takes(name)}
        try:
            maker.signature.bind(pos, **keywords)
        except TypeError as why:
            names = ", ".join(("pos", *keywords))
            raise GraphError(f"graph must be a function graph({names}): {why}") from None
        edges = graph(pos, **keywords)
        need_graph(edges, "what graph(pos) returns")
        return edges.materialise()

    return build


def _of(name: str, x: Any, num_nodes: int, graph: AttentionGraph | None) -> str:
    """Kind of the rows of an input: nodes, edges, or no rows that move."""
    if name in ("graph", "edge_index"):
        raise OptionError(f"{name} is made of the graph; pass it after the model")
    if not isinstance(x, Tensor) or x.dim() == 0:
        return "whole"
    kinds = []
    if len(x) == num_nodes:
        kinds.append("nodes")
    if graph is not None and len(x) == graph.num_edges:
        kinds.append("edges")
    if name.startswith("edge"):  # of a ring, which has as many edges as nodes
        kinds.reverse()
    return (*kinds, "whole")[0]


def _check_edges(of: Mapping[str, str], build: Builder | None) -> None:
    """Refuse inputs of edges that are made anew."""
    if build is None:
        return
    for name, kind in of.items():
        if kind == "edges":
            raise OptionError(
                f"{name} has a row for each edge, and graph makes the edges anew after each move; "
                f"pass the graph of pos, or make {name} in the model"
            )


def _vectors(vectors: Any, inputs: Mapping[str, Any], axes: int) -> frozenset[str]:
    """Names of the inputs that turn with the points."""
    if isinstance(vectors, str):
        vectors = (vectors,)
    names = several(vectors, "vectors", "must be names of inputs")
    for name in names:
        x = inputs.get(name)
        if not isinstance(x, Tensor):
            input_names = ", ".join(inputs) or "none"
            raise OptionError(f"vectors must name inputs ({input_names}), got {shown(name)}")
        check_shape(floats(x, name, "(..., d)", 1), name, (..., axes), "vectors turn with pos")
    return frozenset(names)
