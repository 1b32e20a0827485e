"""Symmetries: what each makes of a structure, and of an output of a known kind."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.images import Images
from .structure import Structure, graph_of_edges

#: Kinds of outputs, and what they are.
KINDS = {
    "scalar": "numbers of the whole structure, which no symmetry changes: an energy",
    "vector": "vectors (..., d) of the whole structure, which turn along: a dipole",
    "scalars": "numbers (N, ...) of nodes, which permute with them",
    "vectors": "vectors (N, ..., d) of nodes, which turn along: forces",
    "points": "positions (N, ..., d) of nodes, which turn and move along",
}
OF_NODES = ("scalars", "vectors", "points")
TURNING = ("vector", "vectors", "points")


class Move(Protocol):
    """A symmetry operation."""

    @property
    def symmetry(self) -> str:
        """The symmetry's name."""
        ...

    @property
    def case(self) -> str:
        """The kind of operation, in words."""
        ...

    def moved(self, structure: Structure) -> Structure:
        """The structure moved, before it is settled."""
        ...

    def expected(self, structure: Structure, kind: str, output: Tensor) -> Tensor:
        """The output on the moved structure, if that on the structure is ``output``."""
        ...


def generator(seed: int) -> torch.Generator:
    """Random numbers of a seed, on the CPU."""
    return torch.Generator().manual_seed(seed)


# --- motions of space


@dataclass(frozen=True, eq=False)
class Turn:
    """All points and vectors times an orthogonal matrix (d, d): a rotation or a reflection."""

    symmetry: str
    case: str
    matrix: Tensor

    def moved(self, structure: Structure) -> Structure:
        """Positions, cell, the graph's cell and vectors, turned."""
        turn = self.matrix.to(structure.pos)
        inputs = dict(structure.inputs)
        for name in structure.vectors:
            inputs[name] = inputs[name] @ turn.to(inputs[name])
        cell = structure.cell
        if cell is not None:
            cell = cell @ turn.to(cell)
        graph = structure.graph
        if graph is not None and graph.images is not None:
            images = graph.images
            graph = _with_images(graph, replace(images, cells=images.cells @ turn.to(images.cells)))
        pos = structure.pos @ turn
        return replace(structure, pos=pos, cell=cell, graph=graph, inputs=inputs)

    def expected(self, structure: Structure, kind: str, output: Tensor) -> Tensor:
        """Vectors and points turn."""
        if kind in TURNING:
            return output @ self.matrix.to(output)
        return output


def rotation(axes: int, seed: int) -> Tensor:
    """A random rotation (d, d), float64, by the QR product of normal numbers."""
    normal = torch.randn(axes, axes, generator=generator(seed), dtype=torch.float64)
    q, r = torch.linalg.qr(normal)
    q = q * r.diagonal().sign()
    if float(torch.linalg.det(q)) < 0:
        q[:, 0] = -q[:, 0]
    return q


def rotation_about(axes: int, axis: int, angle: float) -> Tensor:
    """A rotation (d, d) of the two axes after ``axis``, which it leaves where it is if d is 3."""
    turn = torch.eye(axes, dtype=torch.float64)
    first = (axis + 1) % axes
    second = (axis + 2) % axes
    cosine = torch.cos(torch.tensor(angle, dtype=torch.float64))
    sine = torch.sin(torch.tensor(angle, dtype=torch.float64))
    turn[first, first] = cosine
    turn[second, second] = cosine
    turn[first, second] = sine
    turn[second, first] = -sine
    return turn


@dataclass(frozen=True, eq=False)
class Shift:
    """All points moved by one vector (d,), or each by its own (N, d), equal within a structure."""

    vector: Tensor
    symmetry: str = "translations"
    case: str = "by random vectors"

    def moved(self, structure: Structure) -> Structure:
        """Positions, moved; cell, edges and vectors stay."""
        return replace(structure, pos=structure.pos + self.vector.to(structure.pos))

    def expected(self, structure: Structure, kind: str, output: Tensor) -> Tensor:
        """Points move along."""
        if kind == "points":
            return output + _rows_like(self.vector, output)
        return output


def _rows_like(vectors: Tensor, output: Tensor) -> Tensor:
    """Vectors (d,) or (N, d) to be added to an output (N, ..., d)."""
    vectors = vectors.to(output)
    if vectors.dim() == 1:
        return vectors
    return vectors.reshape(len(vectors), *[1] * (output.dim() - 2), -1)


# --- order of nodes and edges


@dataclass(frozen=True, eq=False)
class Shuffle:
    """Nodes in another order: node ``i`` is the former node ``order[i]``."""

    order: Tensor
    symmetry: str = "permutations"
    case: str = "nodes in another order"

    def moved(self, structure: Structure) -> Structure:
        """Rows of nodes permuted, nodes of edges renamed; edges keep their order."""
        order = self.order.to(structure.pos.device)
        graph = structure.graph
        if graph is not None:
            graph = graph.relabel(order.argsort())
        inputs = structure.rows("nodes", order)
        return replace(structure, pos=structure.pos[order], graph=graph, inputs=inputs)

    def expected(self, structure: Structure, kind: str, output: Tensor) -> Tensor:
        """Rows permuted."""
        if kind in OF_NODES:
            return output[self.order.to(output.device)]
        return output


@dataclass(frozen=True, eq=False)
class ShuffleEdges:
    """Edges listed in another order."""

    seed: int
    symmetry: str = "permutations"
    case: str = "edges in another order"

    def moved(self, structure: Structure) -> Structure:
        """Edges and their rows, permuted."""
        graph = structure.graph
        assert graph is not None
        order = torch.randperm(graph.num_edges, generator=generator(self.seed))
        order = order.to(graph.device)
        source = graph.source[order]
        target = graph.target[order]
        if graph.images is None:
            shuffled = graph_of_edges(source, target, graph.num_nodes)
        else:
            listed = graph_of_edges(source, target, graph.num_nodes)
            shuffled = _with_images(listed, graph.images.at(order))
        inputs = structure.rows("edges", order)
        return replace(structure, graph=shuffled, inputs=inputs, build=None)

    def expected(self, structure: Structure, kind: str, output: Tensor) -> Tensor:
        """Nothing changes."""
        return output


# --- cells


@dataclass(frozen=True, eq=False)
class Wrap:
    """Lattice vectors added to atoms, ``steps`` (N, d) of them."""

    steps: Tensor
    symmetry: str = "cells"
    case: str = "lattice vectors added to atoms"

    def moved(self, structure: Structure) -> Structure:
        """Positions moved, and offsets of edges so that they read what they read."""
        pos = structure.pos + self._vectors(structure)
        graph = structure.graph
        if graph is None or graph.images is None:
            return replace(structure, pos=pos)
        images = graph.images
        steps = self.steps.to(images.offsets.device)
        offsets = images.offsets + steps[graph.target] - steps[graph.source]
        graph = _with_images(graph, replace(images, offsets=offsets))
        return replace(structure, pos=pos, graph=graph)

    def _vectors(self, structure: Structure) -> Tensor:
        cell = one_cell(structure)
        return self.steps.to(cell) @ cell

    def expected(self, structure: Structure, kind: str, output: Tensor) -> Tensor:
        """Points move with their atoms."""
        if kind != "points":
            return output
        return output + _rows_like(self._vectors(structure), output)


@dataclass(frozen=True, eq=False)
class Recell:
    """Other vectors of the same lattice: ``matrix @ cell``, of integers with determinant 1 or -1."""

    matrix: Tensor
    symmetry: str = "cells"
    case: str = "other vectors of the lattice"

    def moved(self, structure: Structure) -> Structure:
        """Cell and offsets in terms of the new vectors."""
        assert structure.cell is not None
        cell = self.matrix.to(structure.cell) @ structure.cell
        graph = structure.graph
        if graph is None or graph.images is None:
            return replace(structure, cell=cell)
        images = graph.images
        inverse = torch.linalg.inv(self.matrix.double()).round().to(images.offsets)
        offsets = (images.offsets[:, :, None] * inverse).sum(1)
        cells = self.matrix.to(images.cells) @ images.cells
        graph = _with_images(graph, replace(images, offsets=offsets, cells=cells))
        return replace(structure, cell=cell, graph=graph)

    def expected(self, structure: Structure, kind: str, output: Tensor) -> Tensor:
        """Nothing changes."""
        return output


@dataclass(frozen=True, eq=False)
class Doubled:
    """A crystal as a cell of twice the size along an axis: each node twice."""

    axis: int
    symmetry: str = "cells"
    case: str = "a doubled cell"

    def moved(self, structure: Structure) -> Structure:
        """Two copies of all nodes and edges; the second is one lattice vector further."""
        assert structure.cell is not None
        size = structure.num_nodes
        device = structure.pos.device
        vector = one_cell(structure)[self.axis].to(structure.pos)
        pos = torch.cat((structure.pos, structure.pos + vector))
        factors = torch.ones(structure.axes, 1)
        factors[self.axis] = 2
        cell = structure.cell * factors.to(structure.cell)
        twice = torch.arange(size, device=device).repeat(2)
        inputs = structure.rows("nodes", twice)
        graph = structure.graph
        if graph is not None:
            edges = torch.arange(graph.num_edges, device=device).repeat(2)
            edge_inputs = structure.rows("edges", edges)
            for name, kind in structure.of.items():
                if kind == "edges":
                    inputs[name] = edge_inputs[name]
            graph = self._doubled(graph)
        return replace(structure, pos=pos, cell=cell, graph=graph, inputs=inputs)

    def _doubled(self, graph: AttentionGraph) -> AttentionGraph:
        size = graph.num_nodes
        copy = torch.arange(2, device=graph.device).repeat_interleave(graph.num_edges)
        source = graph.source.repeat(2)
        target = graph.target.repeat(2) + size * copy
        images = graph.images
        if images is None:
            return graph_of_edges(source + size * copy, target, 2 * size)
        offsets = images.offsets.repeat(2, 1)
        step = offsets[:, self.axis] + copy
        source = source + size * (step % 2)
        offsets[:, self.axis] = step.div(2, rounding_mode="floor")
        cell = images.cells[0].clone()
        cell[self.axis] *= 2
        return graph_of_edges(source, target, 2 * size, offsets, cell)

    def expected(self, structure: Structure, kind: str, output: Tensor) -> Tensor:
        """Rows of nodes twice, points of the second copy a lattice vector further."""
        if kind not in OF_NODES:
            return output
        second = output
        if kind == "points":
            second = output + one_cell(structure)[self.axis].to(output)
        return torch.cat((output, second))


def one_cell(structure: Structure) -> Tensor:
    """The lattice vectors (d, d)."""
    assert structure.cell is not None
    return structure.cell.reshape(structure.axes, structure.axes)


def _with_images(graph: AttentionGraph, images: Images) -> AttentionGraph:
    """The graph with other images."""
    size = graph.num_nodes
    if images.cell_of_edge is None:
        return graph_of_edges(graph.source, graph.target, size, images.offsets, images.cells[0])
    batch = torch.zeros(size, dtype=torch.int64, device=graph.device)
    batch[graph.target] = images.cell_of_edge
    return graph_of_edges(graph.source, graph.target, size, images.offsets, images.cells, batch)


# --- which moves a symmetry has


def moves_of(
    symmetry: str, structure: Structure, periodic: tuple[int, ...], seed: int
) -> Iterator[Move]:
    """The moves that are tried of a symmetry."""
    axes = structure.axes
    size = structure.num_nodes
    if symmetry == "rotations":
        for trial in range(8):  # a sign of chance stays in all of them once in 256 times
            yield Turn(symmetry, "about random axes", rotation(axes, seed + trial))
    elif symmetry == "reflections":
        for trial in range(4):
            turn = rotation(axes, seed + 10 + trial)
            turn[:, 0] = -turn[:, 0]
            yield Turn(symmetry, "in random planes", turn)
    elif symmetry == "translations":
        for trial in range(2):
            vector = torch.randn(axes, generator=generator(seed + 20 + trial), dtype=torch.float64)
            yield Shift(3 * structure.spread * vector)
        if structure.inputs.get("batch") is not None:
            yield apart(structure, seed + 25)
    elif symmetry == "permutations":
        for trial in range(3):
            yield Shuffle(shuffled(structure, seed + 30 + trial))
        if structure.graph is not None and structure.graph.num_edges > 1:
            yield ShuffleEdges(seed + 40)
    else:
        for trial in range(2):
            draw = generator(seed + 50 + trial)
            steps = torch.zeros(size, axes, dtype=torch.int64)
            steps[:, list(periodic)] = torch.randint(-2, 3, (size, len(periodic)), generator=draw)
            yield Wrap(steps)
        if len(periodic) > 1:
            yield Recell(_sheared(axes, periodic))
        for axis in periodic:
            yield Doubled(axis)


def apart(structure: Structure, seed: int) -> Shift:
    """Each structure of a batch moved by a vector of its own."""
    batch = structure.inputs["batch"].cpu()
    vectors = torch.randn(
        int(batch.max()) + 1, structure.axes, generator=generator(seed), dtype=torch.float64
    )
    offsets = 3 * structure.spread * vectors[batch.long()]
    return Shift(offsets, case="each structure by its own")


def shuffled(structure: Structure, seed: int) -> Tensor:
    """A random order of the nodes; a ``batch`` stays sorted."""
    order = torch.randperm(structure.num_nodes, generator=generator(seed))
    batch = structure.inputs.get("batch")
    if batch is None:
        return order
    return order[torch.argsort(batch.cpu()[order], stable=True)]


def _sheared(axes: int, periodic: tuple[int, ...]) -> Tensor:
    """Integers (d, d) that make other vectors of a lattice: one added to the next."""
    matrix = torch.eye(axes, dtype=torch.int64)
    for first, second in pairwise(periodic):
        matrix[first, second] = 1
    matrix[periodic[-1]] += matrix[periodic[0]]
    return matrix
