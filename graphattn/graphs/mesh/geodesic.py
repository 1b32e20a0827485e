"""Geodesic balls: distances along the edges of a mesh."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.limits import refuse_over
from ...graph.listed import listed
from ..arguments import call
from ..points.clouds import coordinates
from ..points.neighbours import distance
from .faces import checked_faces

_LEAF = 64  # vertices whose balls are searched together
_CELLS = 1 << 22


@sizable
@builder
def geodesic_ball(
    pos: Tensor | np.ndarray,
    faces: Tensor,
    r: float,
    *,
    self_loops: bool = True,
) -> AttentionGraph:
    r"""Every vertex reads the vertices within a distance along the surface, not across a gap.

    .. math:: \mathcal{N}(t) = \{ s : d(s, t) \le r \}

    with d the length of the shortest path over mesh edges.

    Args:
        pos: (N, d) floating point coordinates of the vertices, a tensor or a numpy array; any d.
            Measured in float64.
        faces: (F, 3) triangles, (F, 4) quads, or a list of tuples of vertex numbers, in order
            around each face.
        r: The distance, in the units of ``pos``; its border belongs to the ball.
        self_loops: True lets a vertex read itself, at distance 0.
    Returns:
        Listed edges on the device of ``faces``, by target and then by source; symmetric but for
        rounding at the border.
    Raises:
        GraphIndexError: If a face names a vertex outside ``[0, N)``.
        GraphError: If a coordinate is not finite, ``r`` is negative, or the edges would take more
            than 4 GiB.
    Source:
        Dijkstra 1959, by ``scipy.sparse.csgraph.dijkstra``. Paths over edges are never shorter than
        those across faces, which the heat method (Crane et al. 2013) approximates: a ball is at
        most that of the true surface. Degenerate faces add no edge (:func:`mesh_vertices`).
    Example:
        >>> pos = torch.tensor([[0.0, 0], [1, 0], [0, 1], [1, 1], [2, 0.5]])
        >>> faces = torch.tensor([[0, 1, 2], [2, 1, 3], [3, 1, 4]])
        >>> print(geodesic_ball(pos, faces, 1.2))
        AttentionGraph(geodesic_ball(r=1.2): 5 nodes, 17 edges, density 0.68, listed)
        █ █ █ · ·
        █ █ · █ █
        █ · █ █ ·
        · █ █ █ █
        · █ · █ █
    """
    reach = distance(r)
    points = coordinates(pos, "pos").cpu()
    mesh, device = checked_faces(faces, points.shape[0])
    parts = []
    taken = 0
    for target, source in _balls(points.numpy(), mesh.edges()[1].numpy(), reach):
        if self_loops:
            keep = slice(None)
        else:
            keep = target != source
        parts.append(target[keep] * len(points) + source[keep])
        taken += 16 * len(parts[-1])
        refuse_over(taken, f"the first {taken // 16:,} edges of geodesic_ball", "use a smaller r")
    key = torch.from_numpy(np.sort(np.concatenate([np.empty(0, dtype=np.int64), *parts]))).to(
        device
    )
    N = len(points)
    edges = listed(key // max(1, N), key % max(1, N), N, N, has_repeats=False)
    name = call("geodesic_ball", r=reach, self_loops=self_loops)
    return AttentionGraph(edges, name, device)


def _balls(
    pos: np.ndarray,
    ends: np.ndarray,
    reach: float,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs (target, source) of the balls, for groups of neighbouring vertices.

    A path of length ``reach`` goes no farther than that in space: only vertices as near are
    searched.
    """
    from scipy.sparse.csgraph import dijkstra  # slow to import
    from scipy.spatial import cKDTree

    if not len(pos):
        return
    # the lengths of mesh edges as a symmetric matrix (N, N) that stores zeros explicitly
    from scipy.sparse import csr_array

    length = np.sqrt(((pos[ends[:, 0]] - pos[ends[:, 1]]) ** 2).sum(1))
    row, column = np.concatenate((ends, ends[:, ::-1])).T
    step = csr_array((np.concatenate((length, length)), (row, column)), shape=(len(pos), len(pos)))
    tree = cKDTree(pos, leafsize=_LEAF)
    for start in range(0, len(pos), _LEAF):
        chunk = np.sort(tree.indices[start : start + _LEAF])  # vertices that lie together
        low = pos[chunk].min(0)
        high = pos[chunk].max(0)
        farthest = float(np.linalg.norm(high - low)) / 2 + reach
        slack = 1e-9 * (farthest + float(np.abs(pos[chunk]).max()))
        inside = np.sort(
            np.asarray(tree.query_ball_point((low + high) / 2, farthest + slack), dtype=np.int64)
        )
        matrix = step[inside][:, inside]
        indices = np.searchsorted(inside, chunk)
        rows = max(1, _CELLS // len(inside))
        for first in range(0, len(indices), rows):
            distances = dijkstra(matrix, indices=indices[first : first + rows], limit=reach)
            target, source = np.nonzero(distances <= reach)
            yield chunk[first : first + rows][target], inside[source]
