"""Causes of a broken symmetry: hypotheses, each tried by running the model once more.

A cause is named where the symmetry holds without it: with columns of features left as they are, an
input that turns along, an output of another kind, edges that move along, points without ties.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from .measure import Trials
from .moves import KINDS, OF_NODES, TURNING, Move, Shift, Shuffle, Turn, moves_of, rotation_about
from .report import Cause
from .structure import Structure, columns_of

MOTIONS = ("rotations", "reflections", "translations")
SMALL_TURN = 1e-3  # radians
MOST_MOVES = 3  # that are tried of each hypothesis
MOST_WINDOWS = 64  # of columns that may be vectors


def by_chance(symmetries: Sequence[str], apart: float) -> Cause:
    """The cause where two runs on the same structure differ."""
    return Cause(
        tuple(symmetries),
        "chance",
        "the model",
        f"two calls on the same inputs differ by {apart:.1g} of their size; random numbers are in it "
        "(dropout left on? call eval(); frames drawn at random?), or something kept between calls",
    )


def by_numbers(symmetries: Sequence[str], names: Sequence[str]) -> Cause:
    """The cause where outputs are not finite before anything is moved."""
    return Cause(
        tuple(symmetries),
        "output",
        ", ".join(names),
        "NaN or infinite on the structure as it came; nothing can be said of its symmetry "
        "(points that repeat? a distance of 0 has no slope and no direction)",
    )


def causes_of(
    trials: Trials, broken: Sequence[str], periodic: tuple[int, ...]
) -> tuple[Cause, ...]:
    """A cause for each broken symmetry, those with the same cause together."""
    by_cause: dict[tuple[str, str, str], list[str]] = {}
    for symmetry in broken:
        case = _Case(trials, symmetry, periodic, tuple(broken))
        for kind, source, words in case.explained():
            by_cause.setdefault((kind, source, words), []).append(symmetry)
    return tuple(Cause(tuple(names), *cause) for cause, names in by_cause.items())


Explanation = tuple[str, str, str]
"""Kind, input and words of a cause."""


class _Case:
    """One broken symmetry.

    Args:
        trials: The model and the structure.
        symmetry: The symmetry.
        periodic: Axes along which the cell repeats.
        broken: All symmetries that are broken.
    """

    def __init__(
        self, trials: Trials, symmetry: str, periodic: tuple[int, ...], broken: tuple[str, ...]
    ) -> None:
        self.trials = trials
        self.structure = trials.structure
        self.symmetry = symmetry
        self.broken = broken
        moves = moves_of(symmetry, self.structure, periodic, trials.seed)
        failed = [move for move in moves if not trials.holds([move])]
        self.moves = failed[:MOST_MOVES]

    def explained(self) -> list[Explanation]:
        """The first hypothesis that holds, or the plainest description."""
        hypotheses: list[Callable[[], list[Explanation]]] = [
            self._features,
            self._output,
            self._edges,
            self._ties,
            self._undeclared,
            self._declared,
        ]
        if self.symmetry == "translations":
            hypotheses.append(self._axes)
        elif self.symmetry in MOTIONS:
            hypotheses += [self._handedness, self._directions]
        elif self.symmetry == "permutations":
            hypotheses.append(self._order)
        else:
            hypotheses.append(self._cell)
        for hypothesis in hypotheses:
            causes = hypothesis()
            if causes:
                return causes
        return [("unknown", "pos", "no known cause explains it")]

    def _holds(self, structure: Structure) -> bool:
        return self.trials.holds(self.moves, structure)

    def _features(self) -> list[Explanation]:
        """Columns of features that repeat coordinates."""
        if self.symmetry not in MOTIONS:
            return []
        copies = self.structure.copies
        words = (
            "these features are coordinates, and the model reads them as numbers; leave them out, or "
            "pass them as vectors"
        )
        if copies and self._holds(replace(self.structure, copies=())):
            return [("features", copy.words, words) for copy in copies]
        return []

    def _output(self) -> list[Explanation]:
        """Outputs of another kind than was named."""
        if self.symmetry == "cells":
            return []
        explanations = []
        for name, kind in self.trials.model.kinds.items():
            if self._is(name, kind):
                continue
            shape = self.trials.base[name].shape
            has_nodes = shape[:1] == (self.structure.num_nodes,)
            has_axes = shape[-1:] == (self.structure.axes,)
            for other in (*OF_NODES, *KINDS):
                fits = (has_nodes or other not in OF_NODES) and (has_axes or other not in TURNING)
                if fits and self._is(name, other):
                    description = KINDS[other].partition(":")[0]
                    words = f'{self.symmetry} hold for output="{other}"; {description}'
                    explanations.append(("output", name, words))
                    break
        return explanations

    def _is(self, name: str, kind: str) -> bool:
        """True if an output is of a kind under all moves; a model that raises is not."""
        for move in self.moves:
            try:
                error = self.trials.errors(move, kinds={name: kind})[name]
            except Exception:  # of the model's code, on a structure that it may not take
                return False
            if not error <= self.trials.bound:
                return False
        return True

    def _edges(self) -> list[Explanation]:
        """Edges that the builder makes otherwise on the moved points."""
        structure = self.structure
        if structure.build is None or structure.graph is None:
            return []
        if not self._holds(replace(structure, build=None)):
            return []
        move = self.moves[0]
        carried = move.moved(structure).graph
        rebuilt = move.moved(structure).settled().graph
        assert carried is not None
        assert rebuilt is not None
        # number of edges of the one graph that the other has not
        rows = [_rows(graph) for graph in (carried, rebuilt)]
        changed = len(rows[0] - rows[1])
        difference = f"{changed} of {carried.num_edges} edges are others on the moved points"
        if self._holds(self.trials.nudged):
            return [
                (
                    "ties",
                    "graph",
                    f"{difference}; ties among neighbours, which are equally far; take "
                    "radius with r between shells rather than knn, or move the points a little",
                )
            ]
        words = f"{difference}; the builder reads more than distances"
        if self.symmetry == "cells":
            words = f"{difference}; give the builder the cell, radius(pos, r, cell=cell)"
        return [("graph", "graph", words)]

    def _ties(self) -> list[Explanation]:
        """Equal distances, or directions that symmetry leaves open, which the model decides on."""
        if not self._holds(self.trials.nudged):
            return []
        return [
            (
                "ties",
                "pos",
                "it holds once the points are moved a little; ties among neighbours, which are "
                "equally far, or frames that a symmetric neighbourhood leaves open",
            )
        ]

    def _undeclared(self) -> list[Explanation]:
        """An input that turns with the points, which ``vectors`` does not name."""
        if self.symmetry not in ("rotations", "reflections"):
            return []
        structure = self.structure
        axes = structure.axes
        for name, kind in structure.of.items():
            x = structure.inputs[name]
            if kind == "whole" or name in structure.vectors or not x.is_floating_point():
                continue
            if x.shape[-1] == axes:
                turning = replace(structure, vectors=structure.vectors | {name})
                if self._holds(turning):
                    words = f'it turns with pos; name it in vectors=("{name}",)'
                    return [("features", name, words)]
            if x.dim() != 2:
                continue
            for first in range(min(x.shape[1] - axes + 1, MOST_WINDOWS)):
                moves = [_TurnColumns(move, name, first) for move in self.moves]
                if x.shape[1] > axes and self.trials.holds(moves):
                    words = columns_of(name, list(range(first, first + axes)))
                    remedy = "they turn with pos; pass these columns as an input named in vectors"
                    return [("features", words, remedy)]
        return []

    def _declared(self) -> list[Explanation]:
        """An input that ``vectors`` names, and that does not turn, or is read by its components."""
        if self.symmetry not in ("rotations", "reflections"):
            return []
        for name in sorted(self.structure.vectors):
            if self._holds(replace(self.structure, vectors=self.structure.vectors - {name})):
                words = "it is read as numbers that do not turn; take it by lengths and angles"
                return [("directions", name, words)]
            inputs = dict(self.structure.inputs)
            inputs[name] = torch.zeros_like(inputs[name])
            if self._holds(replace(self.structure, inputs=inputs)):
                words = "its components are read as numbers; take it by lengths and angles"
                return [("directions", name, words)]
        return []

    def _axes(self) -> list[Explanation]:
        """Coordinates that are read as they are, axis by axis."""
        if all(move.case == "each structure by its own" for move in self.moves):
            words = (
                "structures of a batch are mixed; a mean or an edge over all points in place of "
                "those of a structure"
            )
            return [("batch", "batch", words)]
        axes = self.structure.axes
        far = 3 * self.structure.spread
        bad = []
        for axis in range(axes):
            vector = torch.zeros(axes, dtype=torch.float64)
            vector[axis] = far
            if not self.trials.holds([Shift(vector)]):
                bad.append(axis)
        words = (
            "absolute coordinates are read; take differences of positions, or distances "
            "(ga.nn.relative_positions)"
        )
        if len(bad) in (0, axes):
            return [("coordinates", "pos", words)]
        return [("coordinates", columns_of("pos", bad), words)]

    def _handedness(self) -> list[Explanation]:
        """A structure and its mirror image that are distinguished, where rotations hold."""
        if self.symmetry != "reflections" or "rotations" in self.broken:
            return []
        if not self.trials.holds(moves_of("rotations", self.structure, (), self.trials.seed)):
            return []  # which the caller did not ask about
        flipped = []
        for move in self.moves:
            after = self.trials.model.run(move.moved(self.structure).settled())
            for name, before in self.trials.base.items():
                kind = self.trials.model.kinds[name]
                apart = after[name] + move.expected(self.structure, kind, before)
                size = self.trials.sizes[name]
                flipped.append(float(apart.abs().amax()) <= self.trials.bound * size)
        if flipped and all(flipped):
            words = "the output changes its sign in a mirror; a cross product is in it"
        else:
            words = (
                "rotations hold, reflections do not; a cross product, a frame or an angle with a sign "
                "distinguishes a structure from its mirror image"
            )
        return [("handedness", "pos", words)]

    def _directions(self) -> list[Explanation]:
        """Directions of space that are read, or decide between frames."""
        axes = self.structure.axes
        small = [
            Turn(self.symmetry, "", rotation_about(axes, axis, SMALL_TURN)) for axis in range(axes)
        ]
        if "translations" not in self.broken and self.trials.holds(small):
            return [
                (
                    "frames",
                    "pos",
                    "small turns change nothing and large ones do; frames, or another choice by "
                    "directions of space: the sign of an eigenvector, the largest component, a grid",
                )
            ]
        if axes == 3:
            for axis, move in enumerate(_about_each(self.symmetry)):
                if self.trials.holds([move]):
                    words = "this direction of space is read; turns about it change nothing"
                    return [("directions", f"pos[:, {axis}]", words)]
        return [
            (
                "directions",
                "pos",
                "components of positions or of their differences are read as numbers; take lengths and "
                "angles, or vectors that turn along (ga.nn.EquivariantAttention)",
            )
        ]

    def _order(self) -> list[Explanation]:
        """The order of nodes or of edges."""
        cases = {type(move) for move in self.moves}
        if Shuffle in cases:
            words = (
                "the order of nodes is read; an embedding of their numbers, a recurrent layer, or a "
                "graph of the model's own that depends on it"
            )
            return [("order", "nodes", words)]
        return [("order", "edge_index", "the order of edges is read; sum or average over them")]

    def _cell(self) -> list[Explanation]:
        """Images that are not read, a cell that is read by its components, or its size."""
        graph = self.structure.graph
        explanations = []
        for case in dict.fromkeys(move.case for move in self.moves):
            if case.startswith("lattice vectors"):
                words = (
                    "positions are read without images; pos[target] - pos[source] lacks the edge's "
                    "offset: ga.nn.relative_positions(graph, pos)"
                )
                source = "pos"
                if graph is not None and graph.images is None:
                    source = "graph"
                    words = "its edges have no images; make it with radius(pos, r, cell=cell)"
                explanations.append(("cell", source, words))
            elif case.startswith("other vectors"):
                words = (
                    "the vectors of the cell are read as numbers; take its volume, or angles to it"
                )
                explanations.append(("cell", "cell", words))
            else:
                words = (
                    "a cell of twice the size gives another answer; something depends on the number "
                    "of atoms, or an atom meets each neighbour through one image alone"
                )
                explanations.append(("cell", "size of the cell", words))
        return explanations


def _rows(graph: object) -> set[tuple[int, ...]]:
    columns = [graph.source[:, None], graph.target[:, None]]  # type: ignore[attr-defined]
    offsets = graph.offsets  # type: ignore[attr-defined]
    if offsets is not None:
        columns.append(offsets)
    return set(map(tuple, torch.cat(columns, 1).tolist()))


def _about_each(symmetry: str) -> list[Turn]:
    """Turns about each of three axes; mirrors that keep it, of reflections."""
    moves = []
    for axis in range(3):
        matrix = rotation_about(3, axis, 1.0)
        if symmetry == "reflections":
            flip = torch.ones(3, dtype=torch.float64)
            flip[(axis + 1) % 3] = -1
            matrix = matrix @ torch.diag(flip)
        moves.append(Turn(symmetry, "", matrix))
    return moves


class _TurnColumns:
    """A turn with some columns of an input that turn along, too."""

    def __init__(self, move: Move, name: str, first: int) -> None:
        self.move = move
        self.symmetry = move.symmetry
        self.case = move.case
        self.name = name
        self.first = first
        self.expected = move.expected

    def moved(self, structure: Structure) -> Structure:
        """The structure turned, with these columns."""
        assert isinstance(self.move, Turn)
        result = self.move.moved(structure)
        x = result.inputs[self.name].clone()
        columns = slice(self.first, self.first + structure.axes)
        x[:, columns] = x[:, columns] @ self.move.matrix.to(x)
        return replace(result, inputs={**result.inputs, self.name: x})
