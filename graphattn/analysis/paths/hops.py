"""The diameter of a directed graph: layers until every node depends on all that it ever will."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ...arguments import whole
from ...errors import GraphError
from ...graph import AttentionGraph, need_square
from ...graph.edges import Edges
from ...graphs.network.trees import tree_depth
from ...printed import Printed
from ..forms import Intervals, looped_axes, looped_band, looped_intervals, residues
from .walks import BUDGET, OnMatrix, OnRuns, walk

_SQUARED = 1024  # nodes up to which products of dense masks answer
_FAR = 1 << 62
_CHUNK = 1 << 20


@dataclass(frozen=True, repr=False)
class Hops(Printed):
    """Number of layers found by :func:`hops`.

    Args:
        layers: Edges of the longest of all shortest paths: after so many layers no node depends on
            anything new.
        everything: True if every node then depends on every node; ``layers`` is then the diameter.
        past: True if no node reads a later one, and every node then depends on every earlier one.
    """

    layers: int
    everything: bool
    past: bool

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain Python values."""
        return asdict(self)

    def in_full(self) -> str:
        outcome = f"every node depends on {in_the_end(self.everything, self.past)}"
        if not (self.everything or self.past):
            outcome = "nothing changes any more: some nodes never depend on some others"
        return f"after {self.layers:,} layer{'s' * (self.layers != 1)} {outcome}"


def in_the_end(everything: bool, past: bool) -> str:
    """The nodes that a node depends on when nothing more changes, in words."""
    if everything:
        return "every node"
    if past:
        return "every earlier one"
    return "not every node"


def hops(graph: AttentionGraph, budget: int = BUDGET) -> Hops:
    r"""Layers until every node depends on all that it ever will: the diameter of a connected graph.

    .. math:: \max_{s \ne t, \; d(s, t) < \infty} d(s, t), \quad d \text{ in edges}

    Every node keeps what it has (a self-loop or a residual connection, as with ``residual=True`` in
    ``receptive_field``): without, a distance says nothing about layers. So ``k`` layers reach
    everything within ``k`` edges. Of a causal graph, whose nodes can depend on earlier ones alone,
    :attr:`Hops.past` says whether they then depend on all of these.

    Exact. Full graphs, causal ones and windows are answered from their form, whatever their size;
    documents, cells and grids, whose axes have at most 2**24 nodes, too; other graphs by
    breadth-first searches, as few as bounds on the eccentricities allow.

    Args:
        graph: A square graph.
        budget: Edges that the searches may look at in all.
    Raises:
        GraphError: If the graph is not square; if the answer costs more than ``budget``, with the
            bounds found.
    Source:
        Takes and Kosters 2013, "Computing the Eccentricity Distribution of Large Graphs", for the
        bounds; here on each strong component of a directed graph.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> print(hops(sliding_window(100_000, window=257, causal=False)))
        after 782 layers every node depends on every node
        >>> print(hops(sliding_window(100_000, window=257, causal=True)))
        after 391 layers every node depends on every earlier one
    """
    need_square(graph, "hops")
    budget = whole(budget, "budget", 1, GraphError)
    if graph.num_targets <= 1:
        return Hops(0, True, True)
    result = _closed(graph.edges)
    if result is not None:
        layers, everything = result
    elif graph.num_targets <= _SQUARED:
        layers, everything = _by_squaring(graph.mask())
    else:
        layers, everything = _by_searches(graph, walk(graph, budget), budget)
    return Hops(layers, everything, not everything and _reads_past(graph))


def _reads_past(graph: AttentionGraph) -> bool:
    """True if all paths run ahead, and every node is reached from every earlier one.

    From a node to the next one there is then no way but an edge, and these edges are a way from
    each to all later ones.
    """
    if graph.edges.diagonals is not None:
        return 1 in graph.edges.diagonals and graph.edges.diagonals[0] >= 0
    for first in range(1, graph.num_targets, _CHUNK):
        node = torch.arange(first, min(first + _CHUNK, graph.num_targets), device=graph.device)
        if not bool(graph.contains(node, node - 1).all()):
            return False
    return graph.is_causal


def _closed(edges: Edges) -> tuple[int, bool] | None:
    parts = residues(edges)
    if parts is not None:
        answers = [_closed(part) for part, _ in parts]
        alone = sum(count for _, count in parts) == 1
        closed_forms = [one for one in answers if one is not None]
        if closed_forms and len(closed_forms) == len(answers):
            return (max(k for k, _ in closed_forms), alone and closed_forms[0][1])
        return None
    axes = looped_axes(edges)
    if axes is not None:  # with self-loops, a path may stay in place on one axis
        along = [_closed(axis) for axis in axes]
        closed_forms = [one for one in along if one is not None]
        if len(closed_forms) == len(along):
            return (max(k for k, _ in closed_forms), all(e for _, e in closed_forms))
        return None
    band = looped_band(edges)
    n = edges.num_targets
    if band is not None:
        return max((-(-(n - 1) // far) for far in band if far), default=0), n == 1 or all(band)
    rows = looped_intervals(edges)
    if rows is None:
        return None
    return _of_intervals(rows)


def _of_intervals(rows: Intervals) -> tuple[int, bool]:
    """Hops where each node depends on an interval after ``k`` layers."""
    lo = rows.lo
    last = rows.hi - 1
    layers = max(int(tree_depth(lo).max()), int(tree_depth(last).max()))
    n = lo.numel()
    left = torch.arange(n)
    right = torch.arange(n)
    everything = bool((lo[1:] < left[1:]).all()) and bool((last[:-1] > right[:-1]).all())
    return layers, everything


def _by_squaring(mask: Tensor) -> tuple[int, bool]:
    """Powers of the mask with self-loops, doubled until nothing is new; then the least one."""
    n = mask.shape[0]
    power = (mask.cpu() | torch.eye(n, dtype=torch.bool)).float()
    powers = [power]
    while True:
        wider = ((power @ power) > 0).float()
        if torch.equal(wider, power):
            break
        powers.append(wider)
        power = wider
    now = torch.eye(n, dtype=torch.float32)
    layers = 0
    for k in reversed(range(len(powers))):
        longer = ((now @ powers[k]) > 0).float()
        if not torch.equal(longer, power):
            now = longer
            layers = layers + (1 << k)
    if not torch.equal(now, power):
        layers = layers + 1
    return layers, bool(power.all())


def _by_searches(graph: AttentionGraph, way: OnMatrix | OnRuns, budget: int) -> tuple[int, bool]:
    """Search from one node after another until no other can be farther from anything.

    In a strong component, ``v`` is from everything at most as far as from ``w``, and ``w`` from
    that; and at least as far as from ``w`` itself. Nodes whose bounds promise most are searched in
    turn with the most central ones.
    """
    n = graph.num_targets
    upper = torch.full((n,), _FAR)
    lower = torch.zeros(n, dtype=torch.int64)
    best = 0
    turn = 0
    everything = False
    node = int(graph.out_degree.argmax())
    while True:
        ahead = way.forward(node)
        back = way.backward(node)
        reach = int(ahead.max())
        best = max(best, reach, int(back.max()))
        component = (ahead >= 0) & (back >= 0)
        everything = everything or (turn == 0 and bool(component.all()))
        upper = torch.where(component, torch.minimum(upper, back + reach), upper)
        lower = torch.maximum(lower, back)
        upper[node] = reach
        hopeful = torch.nonzero(upper > best).flatten()
        if hopeful.numel() == 0:
            return best, everything
        if way.cost > budget:
            if int(upper.max()) == _FAR:
                most = ""
            else:
                most = f" and at most {int(upper.max()):,}"
            raise GraphError(
                f"hops of {graph.name}: at least {best:,}{most}; {turn + 1:,} searches looked at "
                f"{way.cost:,} edges (limit {budget:,}), and {hopeful.numel():,} of {n:,} nodes "
                f"may still be farther from something: try budget={8 * budget}, or ask the same of "
                "a smaller size"
            )
        turn += 1
        if turn % 2:
            chosen = upper[hopeful].argmax()
        else:
            chosen = lower[hopeful].argmin()
        node = int(hopeful[chosen])
