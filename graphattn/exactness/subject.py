"""The interface of what is verified: attention on a graph, a caller's own function, a layer."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..backends.request import Request
from ..graph import AttentionGraph
from ..graph.deferred.chosen import Chosen
from ..graph.like import GraphLike
from ..twins.pieces import Piece
from ..twins.problem import Problem, Result


@dataclass(frozen=True)
class Case:
    """One combination of options; each is measured, since backends have a code path for each."""

    name: str
    bias: bool = False
    softcap: float | None = None
    lse: bool = False
    weights: bool = False
    alike: bool = False  # values as wide as keys, which fused kernels ask for
    scale: float | None = None  # the subject's own if None


class Leaf(NamedTuple):
    """The owner and the axis of an input: "targets", "sources", "nodes" (both) or "edges"."""

    of: str
    axis: int


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
        """Dense operands of a piece."""
        ...


def seeded(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """Standard normal numbers, float64 on the CPU, that depend on the name and the seed alone."""
    mixed = seed * 1_000_003 + sum((i + 1) * ord(letter) for i, letter in enumerate(name))
    return torch.randn(shape, generator=torch.Generator().manual_seed(mixed), dtype=torch.float64)


def detached(leaves: dict[str, Tensor], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Leaves without gradients, in a dtype of their own if given."""
    return {name: leaf.detach().to(dtype or leaf.dtype) for name, leaf in leaves.items()}
