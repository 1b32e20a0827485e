"""Connectivity: components, cycles, and the sources that every node depends on."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...graph import AttentionGraph, need_square
from ...graph.edges import Edges
from ...plans.whole import all_runs, csr_by_target
from ...printed import Printed
from ..forms import (
    Intervals,
    is_listable,
    looped_axes,
    looped_band,
    looped_intervals,
    residues,
)
from ..paths.walks import BUDGET, OnRuns, too_many


@dataclass(frozen=True, repr=False)
class Connectivity(Printed):
    """Components, roots and cycles found by :func:`connectivity`.

    Args:
        components: Parts without an edge between them, whichever way it points (weak components).
        strong_components: Largest sets of nodes whose nodes all depend on each other.
        roots: Nodes that every node depends on in the end.
        acyclic: True if no cycle is longer than a self-loop.
    """

    components: int
    strong_components: int
    roots: int
    acyclic: bool

    @property
    def quasi_strong(self) -> bool:
        """True if there is a root: quasi-strongly connected."""
        return self.roots > 0

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain Python values."""
        return {**asdict(self), "quasi_strong": self.quasi_strong}

    def in_full(self) -> str:
        return "\n".join(
            f"{name.replace('_', ' ')}: {value}" for name, value in self.to_dict().items()
        )


def connectivity(graph: AttentionGraph) -> Connectivity:
    """Components, cycles and roots of a square graph; exact.

    Self-loops change none of it. Full graphs, causal ones and windows are answered from their form,
    whatever their size; cells, documents and grids, whose axes have at most 2**24 nodes, too; other
    rules and listed edges by scipy.

    Raises:
        GraphError: If the graph is not square, or is a rule too large to list whose form does not
            answer.
    Source:
        Quasi-strong connectivity, "one token that all others attend to, directly or not": Wu et al.
        2024, "On the Role of Attention Masks and LayerNorm in Transformers".
    Example:
        >>> from graphattn.graphs import causal
        >>> connectivity(causal(100_000))
        components: 1
        strong components: 100000
        roots: 1
        acyclic: True
        quasi strong: True
    """
    need_square(graph, "connectivity")
    if graph.num_targets == 0:
        return Connectivity(0, 0, 0, True)
    weak, strong, roots = _closed(graph.edges) or _listed(graph) or _through_a_hub(graph)
    return Connectivity(weak, strong, roots, strong == graph.num_targets)


def num_components(graph: AttentionGraph) -> int:
    """Number of weakly connected components; a node of a bipartite graph is of one side."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    shift = graph.num_targets
    if graph.is_square:
        if graph.num_targets == 0:
            return 0
        closed = _closed(graph.edges)
        if closed is not None:
            return closed[0]
        shift = 0
    size = graph.num_sources + shift
    if size == 0:
        return 0
    if is_listable(graph):
        pairs = (graph.target.cpu(), graph.source.cpu() + shift)
    else:
        pairs = _few_pairs(graph, shift)
    row, column = (nodes.numpy() for nodes in pairs)
    matrix = coo_array((np.ones(len(row)), (row, column)), shape=(size, size))
    return int(connected_components(matrix.tocsr(), directed=False)[0])


def _few_pairs(graph: AttentionGraph, shift: int) -> tuple[Tensor, Tensor]:
    """Fewer pairs with the same components.

    A row and the first source of each run, and neighbours that share a run.
    """
    runs = all_runs(graph)
    if runs is None:
        raise too_many(graph, "counting components")
    step = torch.zeros(graph.num_sources + 1, dtype=torch.int64)
    step.index_add_(0, runs.lo + 1, torch.ones_like(runs.lo))
    step.index_add_(0, runs.hi, -torch.ones_like(runs.hi))
    linked = torch.nonzero(step.cumsum(0) > 0).flatten() + shift  # with the source before
    return torch.cat((runs.row, linked - 1)), torch.cat((runs.lo + shift, linked))


def _closed(edges: Edges) -> tuple[int, int, int] | None:
    """Weak and strong components and roots, from the form of a rule with at least one node."""
    parts = residues(edges)
    if parts is not None:
        answers = [(_closed(part), count) for part, count in parts]
        if any(one is None for one, _ in answers):
            return None
        weak, strong = (sum(one[i] * count for one, count in answers if one) for i in (0, 1))
        alone = len(answers) == 1 and answers[0][1] == 1
        return weak, strong, answers[0][0][2] if alone and answers[0][0] else 0
    axes = looped_axes(edges)
    if axes is not None:
        numbers = [_closed(axis) for axis in axes]
        if any(one is None for one in numbers):
            return None
        every = np.array(numbers, dtype=object).prod(0)
        return int(every[0]), int(every[1]), int(every[2])
    band = looped_band(edges)
    n = edges.num_targets
    if band is not None:
        back, ahead = band
        if back and ahead:
            return 1, 1, n
        if back or ahead:
            return 1, n, 1
        return n, n, int(n == 1)
    rows = looped_intervals(edges)
    if rows is None:
        return None
    return _of_intervals(rows)


def _of_intervals(rows: Intervals) -> tuple[int, int, int]:
    """True if each ``u`` is connected with ``u + 1``: in either direction, or strongly in both."""
    node = torch.arange(rows.lo.numel())
    # u + 1 depends on u; u depends on u + 1
    up = rows.lo[1:] < node[1:]
    down = rows.hi[:-1] > node[1:]
    weak = int((~(up | down)).sum()) + 1
    strong = int((~(up & down)).sum()) + 1
    # A strong component is a stretch; it is a root if it depends on nothing to the left or the
    # right.
    cut = torch.nonzero(~(up & down)).flatten()
    first = torch.cat((torch.zeros(1, dtype=torch.int64), cut + 1))
    last = torch.cat((cut, node[-1:]))
    from_left = torch.cat((torch.zeros(1, dtype=torch.bool), up))[first]
    from_right = torch.cat((down, torch.zeros(1, dtype=torch.bool)))[last]
    return weak, strong, _one((last - first + 1)[~(from_left | from_right)])


def _one(sizes: Tensor) -> int:
    """The nodes of the only component that nothing else leads to, if it is the only one."""
    if sizes.numel() == 1:
        return int(sizes[0])
    return 0


def _listed(graph: AttentionGraph) -> tuple[int, int, int] | None:
    if not is_listable(graph):
        return None
    from scipy.sparse.csgraph import connected_components

    matrix = csr_by_target(graph)
    weak = int(connected_components(matrix, directed=True, connection="weak")[0])
    strong, label = connected_components(matrix, directed=True, connection="strong")
    target = label[np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))]
    source = label[matrix.indices]
    has_input = np.zeros(strong, dtype=bool)
    has_input[target[target != source]] = True
    return weak, int(strong), _one(torch.from_numpy(np.bincount(label)[~has_input]))


def _through_a_hub(graph: AttentionGraph) -> tuple[int, int, int]:
    """One strong component of a large rule whose busiest node all depend on, and it on all."""
    if all_runs(graph) is not None:
        hub = int(graph.out_degree.argmax())
        walk = OnRuns(graph, BUDGET)
        if bool((walk.forward(hub) >= 0).all()) and bool((walk.backward(hub) >= 0).all()):
            return 1, 1, graph.num_targets
    raise too_many(graph, "counting strong components")
