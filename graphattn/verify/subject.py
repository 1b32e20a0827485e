"""What can be verified: one face for attention itself, a caller's own function, and a layer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..backends.request import Request
from ..graph import AttentionGraph
from .sample import Sample
from .twins import dense_attention


class Found(NamedTuple):
    """Output (..., T or R, ...), lse (..., T or R, H) and weights (..., E or e, H); ``None`` where not asked for."""

    output: Tensor
    lse: Tensor | None = None
    weights: Tensor | None = None


@dataclass(frozen=True)
class Case:
    """One combination of options; backends take other routes under other options, so each is measured."""

    name: str
    bias: bool = False
    softcap: float | None = None
    extras: bool = False  # lse and weights
    alike: bool = False  # values as wide as keys, which fused kernels ask for


class Leaf(NamedTuple):
    """Where an input's nodes or edges stand: ``of`` is "targets", "sources", "nodes" (both) or "edges"."""

    of: str
    axis: int


@dataclass(frozen=True, eq=False)
class Problem:
    """The operands of dense attention on a sample, and what follows it."""

    query: Tensor  # (..., R, H, D)
    key: Tensor  # (..., U, H_kv, D)
    value: Tensor  # (..., U, H_kv, D_v)
    mask: Tensor  # (R, U)
    scale: float
    bias: Tensor | None = None  # (..., H or 1, R, U)
    softcap: float | None = None
    edge: Tensor | None = None  # (..., R, U, H_kv, D)
    finish: Callable[[Tensor], Tensor] = field(default=lambda heads: heads)

    def solve(self, piece: Sample) -> Found:
        """The twin's answer."""
        if piece.slots is not None:
            return self._row_by_row(piece, piece.slots)
        found = dense_attention(
            self.query, self.key, self.value, self.mask, self.bias, self.scale, self.softcap, edge=self.edge
        )
        weights = piece.collect(found.weights).transpose(-2, -1)  # (..., e, H)
        return Found(self.finish(found.output), found.lse, weights)

    def _row_by_row(self, piece: Sample, slots: Tensor) -> Found:
        """The same where every row has sources of its own: one dense problem with a single target for each row."""
        key, value = (x.index_select(-3, slots.flatten()).unflatten(-3, slots.shape) for x in (self.key, self.value))
        bias = None if self.bias is None else self.bias.movedim(-2, -3).unsqueeze(-2)  # (..., R, H, 1, W)
        edge = None if self.edge is None else self.edge.unsqueeze(-4)  # (..., R, 1, W, H_kv, D)
        query, mask = self.query.unsqueeze(-3), self.mask[:, None, None]  # (..., R, 1, H, D), (R, 1, 1, W)
        found = dense_attention(query, key, value, mask, bias, self.scale, self.softcap, edge=edge)
        weights = piece.collect(found.weights.squeeze(-2).movedim(-2, -3)).transpose(-2, -1)
        return Found(self.finish(found.output.squeeze(-3)), found.lse.squeeze(-2), weights)


class Subject(Protocol):
    """Something that claims to be attention on a graph."""

    name: str
    graph: AttentionGraph
    backends: tuple[str, ...]
    cases: tuple[Case, ...]
    output_axis: int
    """Where the targets stand in the output."""
    gives_zero: bool
    """Whether a target without an edge gives exactly 0 (a layer adds a bias to it)."""
    owns_graph: bool
    """Whether it can be run on another graph; a caller's own function cannot."""
    own_code: str | None
    """What a caller wrote, in a word: its errors are reported, not raised; ``None`` for the library itself."""
    notes: tuple[str, ...]
    places: dict[str, Leaf]
    """The inputs that belong to nodes or edges; the other leaves are parameters."""

    def request(self, case: Case, dtype: torch.dtype) -> Request | None:
        """What a backend will be asked for; ``None`` if no backend of the library is."""
        ...

    def leaves(self, case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
        """Seeded inputs and parameters by name; the same numbers for every call, rounded to the dtype."""
        ...

    def run(self, leaves: dict[str, Tensor], case: Case, backend: str, graph: AttentionGraph | None = None) -> Found:
        """All targets, by the code under test; ``graph`` in place of the subject's own."""
        ...

    def problem(self, leaves: dict[str, Tensor], case: Case, piece: Sample) -> Problem:
        """The same as dense operands on a sample."""
        ...


def seeded(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """Standard normal numbers, float64 on the CPU, that depend on the name and the seed alone."""
    mixed = seed * 1_000_003 + sum((i + 1) * ord(letter) for i, letter in enumerate(name))
    return torch.randn(shape, generator=torch.Generator().manual_seed(mixed), dtype=torch.float64)
