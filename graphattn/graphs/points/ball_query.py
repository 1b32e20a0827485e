"""PointNet++'s ball query: a fixed number of sources, some of them repeated."""

import numpy as np
import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.limits import refuse_over
from ..arguments import call, whole
from .clouds import clouds, device_of
from .neighbours import checked_points, distance, graph_of
from .search.balls import NearPairs, within
from .search.reach import warn_of_balls, warn_of_rounding


@sizable
@builder
def ball_query(
    pos: Tensor | np.ndarray,
    r: float,
    k: int,
    *,
    queries: Tensor | np.ndarray | None = None,
    batch: Tensor | None = None,
    queries_batch: Tensor | None = None,
    pad: bool = True,
) -> AttentionGraph:
    r"""The first ``k`` points by index within a distance; if there are fewer, the first repeats.

    .. math:: \mathcal{N}(t) = \text{the first } k \text{ of } \{ s : \|p_s - p_t\|^2 \le r^2 \} \text{ by index}

    Args:
        pos: (N, d) floating point coordinates of the sources, a tensor or a numpy array; any d.
            Compared in float64.
        r: The distance, in the units of ``pos``; its border belongs to the ball.
        k: Sources of a target.
        queries: (M, d) coordinates of the targets, if these are other points; ``pos`` itself by
            default, so that a point is in its own ball.
        batch: (N,) cloud of every point, sorted; a point reads its own cloud only. A missing number
            is an empty cloud.
        queries_batch: (M,) the same for ``queries``.
        pad: Repeat the first source until there are ``k``: a multigraph, in which attention counts
            that source once for each copy. ``False`` keeps each source once.
    Returns:
        Listed edges on the device of ``pos``, by target, then by index, copies last. A target whose
        ball is empty reads nothing.
    Raises:
        GraphError: If the edges would take more than 4 GiB, a coordinate is not finite (the row is
            named), or ``batch`` is not sorted.
    Source:
        Qi et al. 2017 (PointNet++); its CUDA code takes sources by index, pads with the first, and
        reads point 0 where the ball is empty. *What differs:* such a target reads nothing, and the
        border counts. For the nearest points of a ball, each once, see
        :func:`~graphattn.graphs.radius`.
    Example:
        >>> line = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
        >>> graph = ball_query(line, 2.0, 3)
        >>> graph
        AttentionGraph(ball_query(r=2.0, k=3): 4 nodes, 12 edges, density 0.75, listed, repeated edges)
        >>> graph.source.view(4, 3).tolist()
        [[0, 1, 0], [0, 1, 2], [1, 2, 1], [3, 3, 3]]
    """
    reach = distance(r)
    most = whole(k, "k", 1)
    points, targets, query_points, size = checked_points(pos, queries, False)
    edges = []
    taken = 0
    repeats = False
    limit = torch.full((size[0],), reach * reach, dtype=torch.float64, device=points.device)
    for pairs in within(
        points,
        query_points,
        limit,
        by_index=True,
        clouds=clouds(points, targets, batch, queries_batch),
    ):
        target, source, padded = _first_by_index(pairs, most, pad, taken)
        taken = taken + target.numel()
        repeats |= padded
        edges.append((target, source))
    name = call("ball_query", r=r, k=most, pad=pad)
    graph = graph_of(edges, size, device_of(pos), name, repeats)
    warn_of_balls(graph, reach, points, query_points)
    warn_of_rounding(graph, points, query_points, pos, queries)
    return graph


def _first_by_index(
    pairs: NearPairs,
    most: int,
    pad: bool,
    taken: int,
) -> tuple[Tensor, Tensor, bool]:
    """Targets and sources: the ``most`` points of lowest index, padded with the first.

    Then True if any were padded. A GraphError if these and the ``taken`` edges before them are too
    many.
    """
    counts = torch.bincount(pairs.query - pairs.first, minlength=pairs.last - pairs.first)
    row = torch.nonzero(counts).flatten()
    if pad:
        taken += most * row.numel()
    else:
        taken += int(counts.clamp(max=most).sum())
        longest = 0
        if counts.numel():
            longest = int(counts.amax())
        most = min(most, longest)
    refuse_over(
        16 * taken, f"the first {taken:,} edges of ball_query", "use a smaller k or fewer queries"
    )
    start = (torch.cumsum(counts, 0) - counts)[row][:, None]
    counts = counts[row][:, None]
    place = torch.arange(most, device=row.device)
    exists = place < counts
    source = pairs.point[start + torch.where(exists, place, 0)]
    target = (row + pairs.first)[:, None].expand_as(source)
    if pad:
        return target.flatten(), source.flatten(), not bool(exists.all())
    return target[exists], source[exists], False
