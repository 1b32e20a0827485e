"""Forms of a graph in which questions are cheap: axes, or one interval per row."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph import runs as _runs
from ..graph.edges import Edges
from ..graph.forms import band
from ..graph.limits import every_node
from ..graph.runs import Runs
from ..plans.whole import runs_of

MOST_LISTED = 1 << 24  # edges up to which a rule is listed for a question


def looped_axes(edges: Edges) -> tuple[Edges, ...] | None:
    """The square axes of a grid if each has all its self-loops; each then decides alone."""
    if not edges.axes:
        return None
    for axis in edges.axes:
        node = every_node(axis.num_targets)
        if axis.num_targets != axis.num_sources or not bool(axis.contains(node, node).all()):
            return None
    return edges.axes


@dataclass(frozen=True, eq=False)
class Intervals:
    """Target ``t`` reads the sources ``lo[t] .. hi[t] - 1``; both ends rise, and neighbours touch.

    So what a run of targets reads is again an interval, from the first one's ``lo`` to the last
    one's ``hi``.
    """

    lo: Tensor
    hi: Tensor


def intervals(runs: Runs | None, num_targets: int) -> Intervals | None:
    """One interval per row, or None; rows without an edge may be at the start and the end only."""
    if runs is None or runs.row.numel() == 0 or bool((runs.row[1:] == runs.row[:-1]).any()):
        return None
    first = int(runs.row[0])
    last = int(runs.row[-1])
    if last - first + 1 != runs.row.numel():
        return None
    before = runs.lo[:1].expand(first)
    after = runs.hi[-1:].expand(num_targets - 1 - last)
    lo = torch.cat((before, runs.lo, after))
    hi = torch.cat((before, runs.hi, after))
    rising = bool((lo[1:] >= lo[:-1]).all()) and bool((hi[1:] >= hi[:-1]).all())
    if rising and bool((lo[1:] <= hi[:-1]).all()):
        return Intervals(lo, hi)
    return None


def looped_intervals(edges: Edges) -> Intervals | None:
    """The intervals of a square set of edges with its missing self-loops added."""
    n = edges.num_targets
    if edges.is_listed and edges.count() > MOST_LISTED >> 2:
        runs = None
    else:
        runs = runs_of(edges)
    if runs is None:
        return None
    node = torch.arange(n)
    if torch.equal(runs.row, node) and bool(((runs.lo <= node + 1) & (runs.hi >= node)).all()):
        return intervals(
            Runs(node, torch.minimum(runs.lo, node), torch.maximum(runs.hi, node + 1)), n
        )
    return intervals(_runs.union(runs, Runs(node, node, node + 1), n), n)


def looped_band(edges: Edges) -> tuple[int, int] | None:
    """Farthest steps back and ahead in a square band with self-loops, if its rows are intervals."""
    diagonals = _square_band(edges)
    if not diagonals or diagonals.step > 1:
        return None
    back = diagonals[-1]
    ahead = -diagonals[0]
    if min(back, ahead) >= -1:
        return (max(0, back), max(0, ahead))
    return None


def residues(edges: Edges) -> list[tuple[Edges, int]] | None:
    """The separate bands, with their counts, into which a square band of steps falls."""
    diagonals = _square_band(edges)
    if diagonals is None or diagonals.step == 1 or diagonals.start % diagonals.step:
        return None
    step = diagonals.step
    size = edges.num_targets
    lo = diagonals.start // step
    hi = (diagonals.stop - 1) // step
    short, longer = divmod(size, step)
    # classes of places mod step: some are longer by one
    kinds = [
        (short + 1, longer),
        (short, step - longer),
    ]
    return [(band(length, length, lo, hi), count) for length, count in kinds if length and count]


def _square_band(edges: Edges) -> range | None:
    if edges.num_targets == edges.num_sources:
        return edges.diagonals
    return None


def is_listable(graph: AttentionGraph) -> bool:
    """True if its edges may be listed to answer a question."""
    if not graph.is_rule:
        return True
    walks = graph.edges.num_runs
    return walks <= 16 * MOST_LISTED and graph.num_edges <= MOST_LISTED
