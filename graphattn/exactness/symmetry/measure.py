"""Differences between the output on a moved structure and the moved output."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ..bounds import difference
from .model import ModelUnderTest, Outputs, named
from .moves import Doubled, Move, Turn, generator
from .report import SymmetryRow
from .structure import Structure

NUDGE = 1e-4  # of the spread, by which points are moved so that no distances are equal
#: Relative errors that are taken for rounding.
BOUNDS = {torch.float64: 1e-10, torch.float32: 1e-4}
FAR = 64  # roundings of the largest coordinate, relative to the spread, in an output
STRETCH = 0.05  # of lengths, by which an output is asked if it depends on them
LEAST_CHANGE = 10  # in bounds, of an output by other positions, below which no break is seen


class Trials:
    """A model on a structure, and on what moves make of it.

    Args:
        model: The model.
        structure: The structure as it came.
        tolerance: The largest relative error that is taken for rounding; ``None`` as the dtypes say.
        seed: Of the random moves.
    """

    def __init__(
        self, model: ModelUnderTest, structure: Structure, tolerance: float | None, seed: int
    ) -> None:
        self.model = model
        self.structure = structure
        self.seed = seed
        result = model.raw(structure)
        self.base = model.checked(result, structure)
        # of the rounding in the outputs: float32 if that of positions or an output is
        self.dtype = torch.float64
        for x in (structure.pos, *named(result).values()):
            if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64:
                self.dtype = torch.float32
        if tolerance is None:
            rounding = FAR * torch.finfo(structure.pos.dtype).eps * structure.distance
            tolerance = max(BOUNDS[self.dtype], rounding)
        self.bound = tolerance
        # the structure with its points moved a little, each at random
        pos = self.structure.pos
        step = NUDGE * self.structure.spread * self._noise(pos)
        self.nudged = replace(self.structure, pos=pos + step).settled()
        self.near = model.run(self.nudged)
        self.sizes = {name: self._size(name) for name in self.base}

    def _size(self, name: str) -> float:
        """The largest number of an output, or of its change where symmetry makes it vanish."""
        base = self.base[name]
        change = self.near[name] - base
        if self.model.kinds[name] == "points":
            base = base - base.mean(0)
        largest = 0.0
        for x in (base, change):
            if x.numel():
                largest = max(largest, float(x.abs().amax()))
        return largest or 1.0

    def untested(self) -> tuple[str, ...]:
        """Outputs that hardly change when points are moved: a little, or far and stretched.

        Vectors change with them, and the cell is stretched: it may hold one atom.
        """
        still = self._still(self.base, self.near)
        if not still:
            return ()
        structure = self.structure
        inputs = dict(structure.inputs)
        for name in structure.vectors:
            inputs[name] = inputs[name] + self._noise(inputs[name])
        far = structure.pos + structure.spread * self._noise(structure.pos)
        try:
            # a matrix near 1, which turns nothing and keeps no lengths
            one = torch.eye(structure.axes, dtype=torch.float64)
            stretch = Turn("", "", one + STRETCH * self._noise(one))
            other = stretch.moved(replace(structure, pos=far, inputs=inputs))
            moved = self.model.run(other.settled())
        except Exception:  # of the model's code, on points that it does not take
            return ()
        return self._still(still, moved)

    def _noise(self, x: Tensor) -> Tensor:
        noise = torch.randn(x.shape, generator=generator(self.seed + 60), dtype=torch.float64)
        return noise.to(x)

    def _still(self, names: Iterable[str], outputs: Outputs) -> tuple[str, ...]:
        """Outputs whose change is so small that a broken symmetry is within the bound."""
        least = {name: LEAST_CHANGE * self.bound * self.sizes[name] for name in names}
        return tuple(
            name for name in names if _apart(outputs[name], self.base[name]) <= least[name]
        )

    def not_finite(self) -> tuple[str, ...]:
        """Outputs with NaN or infinite numbers on the structure as it came."""
        return tuple(name for name, x in self.base.items() if not bool(x.isfinite().all()))

    def repeats(self) -> float:
        """The largest relative difference between two runs on the same structure."""
        again = self.model.run(self.structure)
        errors = [difference(again[name], self.base[name]) / self.sizes[name] for name in again]
        return max(errors)

    def errors(
        self,
        move: Move,
        structure: Structure | None = None,
        kinds: Mapping[str, str] | None = None,
    ) -> dict[str, float]:
        """Relative errors of the outputs under a move.

        Args:
            move: The move.
            structure: The structure that is moved, in place of the one that came.
            kinds: Kinds of some outputs in place of those that were named.
        """
        before = self.base
        if structure is None:
            structure = self.structure
        else:
            before = self.model.run(structure)
        after = self.model.run(move.moved(structure).settled())
        of = {**self.model.kinds, **(kinds or {})}
        return {
            name: self._error(move, structure, of[name], x, after[name]) / self.sizes[name]
            for name, x in before.items()
        }

    def _error(
        self, move: Move, structure: Structure, kind: str, before: Tensor, after: Tensor
    ) -> float:
        """The largest difference of an output from what it should be."""
        expected = move.expected(structure, kind, before)
        error = _apart(after, expected)
        if isinstance(move, Doubled) and kind == "scalar":  # a mean over nodes, or a sum
            error = min(error, _apart(after, 2 * expected))
        return error

    def holds(self, moves: Iterable[Move], structure: Structure | None = None) -> bool:
        """True if all outputs are within the bound under all moves; a model that raises is not."""
        for move in moves:
            try:
                errors = self.errors(move, structure)
            except Exception:  # of the model's code, on a structure that it may not take
                return False
            if not all(error <= self.bound for error in errors.values()):
                return False
        return True

    def rows(self, moves: Iterable[Move]) -> list[SymmetryRow]:
        """A row for each case and output, of the worst of its moves."""
        worst: dict[tuple[str, str, str], SymmetryRow] = {}
        for move in moves:
            raised = ""
            try:
                errors = self.errors(move)
            except Exception as why:  # of the model's code, which is reported
                words = (str(why) or "?").splitlines()[0]
                raised = f"{type(why).__name__}: {words}"
                errors = dict.fromkeys(self.base, float("inf"))
            for name, error in errors.items():
                key = (move.symmetry, move.case, name)
                row = SymmetryRow(*key, error, self.bound, raised)
                before = worst.get(key)
                if before is None or not row.error <= before.error:
                    worst[key] = row
        return list(worst.values())


def _apart(x: Tensor, y: Tensor) -> float:
    """The largest difference; inf for other shapes or places of NaN."""
    if x.shape != y.shape:
        return float("inf")
    return difference(x, y)
