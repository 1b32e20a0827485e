"""Differences between the output on a moved structure and the moved output."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ..bounds import difference
from .model import Model, Outputs
from .moves import Double, Move, generator
from .report import SymmetryRow
from .structure import Structure

NUDGE = 1e-4  # of the spread, by which points are moved so that no distances are equal
#: Relative errors that are taken for rounding.
BOUNDS = {torch.float64: 1e-10, torch.float32: 1e-4}


class Trials:
    """A model on a structure, and on what moves make of it.

    Args:
        model: The model.
        structure: The structure as it came.
        bound: The largest relative error that is taken for rounding.
        seed: Of the random moves.
    """

    def __init__(self, model: Model, structure: Structure, bound: float, seed: int) -> None:
        self.model = model
        self.structure = structure
        self.bound = bound
        self.seed = seed
        self.base = model.run(structure)
        self.nudged = self._nudged()
        self.near = model.run(self.nudged)
        self.sizes = {name: self._size(name) for name in self.base}

    def _nudged(self) -> Structure:
        """The structure with its points moved a little, each at random."""
        pos = self.structure.pos
        step = NUDGE * self.structure.spread * self._noise(pos)
        return replace(self.structure, pos=pos + step).settled()

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

    def depends_on_pos(self) -> bool:
        """True if some output changes when points are moved, a little, or far with other vectors."""
        if self._differs(self.near):
            return True
        structure = self.structure
        inputs = dict(structure.inputs)
        for name in structure.vectors:
            inputs[name] = inputs[name] + self._noise(inputs[name])
        far = structure.pos + structure.spread * self._noise(structure.pos)
        try:
            return self._differs(
                self.model.run(replace(structure, pos=far, inputs=inputs).settled())
            )
        except Exception:  # of the model's code, on points that it does not take
            return True

    def _noise(self, x: Tensor) -> Tensor:
        noise = torch.randn(x.shape, generator=generator(self.seed + 60), dtype=torch.float64)
        return noise.to(x)

    def _differs(self, outputs: Outputs) -> bool:
        return any(not torch.equal(self.base[name], outputs[name]) for name in outputs)

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
        if isinstance(move, Double) and kind == "scalar":  # a mean over nodes, or a sum
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
