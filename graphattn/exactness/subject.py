"""The interface of what is verified: attention on a graph, a caller's own function, a layer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..backends.request import Request
from ..graph import AttentionGraph
from ..graph.deferred.chosen import Chosen
from ..graph.like import GraphLike
from ..nn.normalizers import DenseNormalizer
from .pieces import Piece
from .twins import DenseResult, dense_attention

DenseScore = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Scores (..., H, T, S) of query (..., T, H, D), key (..., S, H, D) and edge features or None."""


class Result(NamedTuple):
    """Output (..., T or R, ...), lse (..., T or R, H) and weights (..., E or e, H).

    ``None`` where they are not requested.
    """

    output: Tensor
    lse: Tensor | None = None
    weights: Tensor | None = None


@dataclass(frozen=True)
class Case:
    """One combination of options; each is measured, since backends have a code path for each."""

    name: str
    bias: bool = False
    softcap: float | None = None
    extras: bool = False  # lse and weights
    alike: bool = False  # values as wide as keys, which fused kernels ask for
    scale: float | None = None  # the subject's own if None


class Leaf(NamedTuple):
    """The owner and the axis of an input: "targets", "sources", "nodes" (both) or "edges"."""

    of: str
    axis: int


@dataclass(frozen=True, eq=False)
class Problem:
    """The operands of dense attention on a piece, and what follows it."""

    query: Tensor  # (..., R, H, D)
    key: Tensor  # (..., U, H_kv, D)
    value: Tensor  # (..., U, H_kv, D_v)
    mask: Tensor  # (R, U)
    scale: float
    bias: Tensor | None = None  # (..., H or 1, R, U)
    softcap: float | None = None
    edge: Tensor | None = None  # (..., R, U, H_kv, D)
    edge_attr: Tensor | None = None  # (..., R, U, F), for the score
    score: DenseScore | None = None
    normalize: DenseNormalizer | None = None
    edge_to: str = "both"
    cap_bias: bool = False
    # whether rounding is known to stay small: no kink, no jump, no sum of both signs
    smooth: bool = True
    finish: Callable[[Tensor], Tensor] = field(default=lambda heads: heads)

    def solve(self, piece: Piece) -> Result:
        """The twin's result."""
        result = self.attend(piece)
        weights = piece.collect(result.weights).transpose(-2, -1)  # (..., e, H)
        return Result(self.finish(result.output), result.lse, weights)

    def attend(self, piece: Piece, copies: Tensor | None = None) -> DenseResult:
        """The same before what follows it; ``copies`` (R, U) says how often each edge counts."""
        if piece.slots is not None:
            return self._row_by_row(piece.slots)
        score = _of_edges(self.score, self.edge_attr)
        options = (
            self.bias,
            self.scale,
            self.softcap,
            copies,
            self.edge,
            score,
            self.normalize,
            self.edge_to,
            self.cap_bias,
        )
        return dense_attention(self.query, self.key, self.value, self.mask, *options)

    def _row_by_row(self, slots: Tensor) -> DenseResult:
        """The same where every row has its own sources: a problem with one target for each row."""
        key, value = (
            x.index_select(-3, slots.flatten()).unflatten(-3, slots.shape)
            for x in (self.key, self.value)
        )
        query = self.query.unsqueeze(-3)  # (..., R, 1, H, D)
        mask = self.mask[:, None, None]  # (R, 1, 1, W)
        bias = self.bias
        if bias is not None:
            bias = bias.movedim(-2, -3).unsqueeze(-2)  # (..., R, H, 1, W)
        edge = self.edge
        if edge is not None:
            edge = edge.unsqueeze(-4)  # (..., R, 1, W, H_kv, D)
        edge_attr = self.edge_attr
        if edge_attr is not None:
            edge_attr = edge_attr.unsqueeze(-3)  # (..., R, 1, W, F)
        score = _of_edges(self.score, edge_attr)
        normalize = self.normalize
        if normalize is not None:
            normalize = partial(_of_single_rows, normalize)
        options = (
            bias,
            self.scale,
            self.softcap,
            None,
            edge,
            score,
            normalize,
            self.edge_to,
            self.cap_bias,
        )
        result = dense_attention(query, key, value, mask, *options)
        return DenseResult(
            result.output.squeeze(-3),
            result.weights.squeeze(-2).movedim(-2, -3),
            result.lse.squeeze(-2),
        )


def _of_edges(
    score: DenseScore | None, edge_attr: Tensor | None
) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The score with its edge features in place."""
    if score is None:
        return None
    return lambda query, key: score(query, key, edge_attr)


def _of_single_rows(normalize: DenseNormalizer, score: Tensor, there: Tensor) -> Tensor:
    """Weights (..., R, H, 1, W) of rows that are problems of their own, computed together."""
    together = normalize(*(x.squeeze(-2).movedim(-2, -3) for x in (score, there)))
    return together.movedim(-3, -2).unsqueeze(-2)


class Subject(Protocol):
    """Something that claims to be attention on a graph."""

    name: str
    graph: AttentionGraph
    backends: tuple[str, ...]
    cases: tuple[Case, ...]
    output_axis: int
    """Where the targets stand in the output."""
    gives_zero: bool
    """True if a target without an edge gives exactly 0 (a layer adds a bias to it)."""
    owns_graph: bool
    """True if it can be run on another graph; a caller's own function cannot."""
    relists: bool
    """True if it can be run on its own edges in another order, given that it takes other graphs."""
    own_code: str | None
    """The name of a caller's code, whose errors are reported, not raised; ``None`` for our own."""
    notes: tuple[str, ...]
    chosen: Chosen | None
    """Where queries and keys choose the edges, of which ``graph`` has all that they may."""
    places: dict[str, Leaf]
    """The inputs that belong to nodes or edges; the other leaves are parameters."""
    floats_per_pair: int
    """Numbers that the twin holds of a pair and a head: 1 for a product, D for a sum of D terms."""

    @property
    def run_on(self) -> GraphLike:
        """The graph that the report names: ``graph``, a choice of its edges, or graphs of heads."""
        ...

    def request(self, case: Case, dtype: torch.dtype) -> Request | None:
        """The request to a backend; ``None`` if no backend of the library runs."""
        ...

    def leaves(self, case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
        """Seeded inputs and parameters by name: equal in every call, rounded to the dtype."""
        ...

    def undecided(self, dtype: torch.dtype) -> Tensor | None:
        """True for targets whose edges a rounding may change, bool (..., T); ``None`` if none."""
        ...

    def run(
        self,
        leaves: dict[str, Tensor],
        case: Case,
        backend: str,
        graph: AttentionGraph | None = None,
    ) -> Result:
        """All targets, by the code under test; ``graph`` in place of the subject's own."""
        ...

    def problem(self, leaves: dict[str, Tensor], case: Case, piece: Piece) -> Problem:
        """The same as dense operands on a piece."""
        ...


def seeded(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """Standard normal numbers, float64 on the CPU, that depend on the name and the seed alone."""
    mixed = seed * 1_000_003 + sum((i + 1) * ord(letter) for i, letter in enumerate(name))
    return torch.randn(shape, generator=torch.Generator().manual_seed(mixed), dtype=torch.float64)


def detached(leaves: dict[str, Tensor], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Leaves without gradients, in a dtype of their own if given."""
    return {name: leaf.detach().to(dtype or leaf.dtype) for name, leaf in leaves.items()}
