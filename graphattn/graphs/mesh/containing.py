"""Interpolation on a mesh: a query reads the corners of the cell that contains it."""

import numpy as np
import torch
from torch import Tensor

from ...arguments import check_range, check_shape, integers, shown
from ...errors import GraphError, warn
from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.listed import listed
from ..arguments import call
from ..points.clouds import clouds, coordinates, device_of

_QUERIES = 16_384  # at a time
_ROUNDING = 1e-12  # of a distance to a cell, in the cell's size
_FLAT = 1e-20  # of the squared height of a cell above a side, in that of the next side


@sizable
@builder
def containing(
    pos: Tensor | np.ndarray,
    faces: Tensor | np.ndarray,
    *,
    queries: Tensor | np.ndarray | None = None,
    batch: Tensor | None = None,
    queries_batch: Tensor | None = None,
) -> AttentionGraph:
    r"""Every query reads the corners of the cell that contains it, or of the nearest one.

    .. math:: \mathcal{N}(t) = \text{the corners of } \operatorname{argmin}_{c} \min_{p \in c} \|p - q_t\|

    ``ga.nn.edge_geometry(graph, pos, queries, features=("barycentric",))`` gives the weights of
    linear interpolation.

    Args:
        pos: (N, d) coordinates of the mesh's vertices, the sources; d of 2 or 3.
        faces: (F, 3) triangles in the plane or on a surface, or (F, 4) tetrahedra.
        queries: (M, d) coordinates of the targets; a recipe, ``containing(..., faces)``, gets them
            when it is called.
        batch: (N,) the mesh of every vertex, sorted; a query reads its own mesh only.
        queries_batch: (M,) the same for ``queries``.
    Returns:
        Listed edges on the device of ``pos``, by target, then in the order of the cell's corners:
        3 or 4 for each query. Of equally near cells the first counts.
    Raises:
        GraphIndexError: If a cell names a vertex that is not there.
        GraphError: If ``faces`` is no table of triangles or tetrahedra, has none in a mesh with
            queries, or joins two meshes.
    Source:
        Lam et al. 2023 (GraphCast), from the mesh to the grid. Queries outside the mesh of a plane
        or of tetrahedra are warned of, with their number; on a surface in space every query is
        projected to the nearest point.
    Example:
        >>> square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        >>> faces = torch.tensor([[0, 1, 2], [0, 2, 3]])
        >>> print(containing(square, faces, queries=torch.tensor([[0.7, 0.2], [0.2, 0.7]])))
        AttentionGraph(containing(): 4 sources -> 2 targets, 6 edges, density 0.75, listed)
        █ █ █ ·
        █ · █ █
    """
    if queries is None:
        raise GraphError("containing needs queries, the positions (M, d) that read the mesh")
    points = coordinates(pos, "pos")
    targets = coordinates(queries, "queries")
    table = integers(faces, "faces", "(F, 3) or (F, 4)", GraphError)
    check_shape(table, "faces", ("F", "n"), error=GraphError)
    axes = points.shape[1]
    if (table.shape[1], axes) not in ((3, 2), (3, 3), (4, 3)):
        raise GraphError(
            f"faces must be triangles (F, 3) of pos (N, 2) or (N, 3), or tetrahedra (F, 4) of pos "
            f"(N, 3), got {shown(table)} and pos of {axes} axes"
        )
    check_range(table, "faces", len(points), ", the vertices")
    table = table.cpu()
    target = []
    source = []
    distances = []
    for cloud in clouds(points, targets, batch, queries_batch):
        inside = (table >= cloud.point) & (table < cloud.last_point)
        if not torch.equal(inside.any(1), inside.all(1)):
            raise GraphError(f"faces must not join vertices of mesh {cloud.number} and another")
        cells = table[inside.all(1)]
        asked = targets[cloud.query : cloud.last_query].cpu()
        if len(asked) and not len(cells):
            raise GraphError(
                f"faces has none in mesh {cloud.number}, which has {len(asked)} queries"
            )
        nearest, distance = _nearest(points.cpu(), cells, asked)
        source.append(cells[nearest].flatten())
        target.append(torch.arange(cloud.query, cloud.last_query).repeat_interleave(cells.shape[1]))
        distances.append(distance)
    if table.shape[1] == points.shape[1] + 1:
        _warn_of_outside(torch.cat(distances), points)
    device = device_of(pos)
    edges = listed(
        torch.cat(target).to(device), torch.cat(source).to(device), len(targets), len(points)
    )
    return AttentionGraph(edges, call("containing"), device)


def _warn_of_outside(distance: Tensor, points: Tensor) -> None:
    extent = float((points.amax(0) - points.amin(0)).amax())
    outside = distance > 1e-6 * extent
    if bool(outside.any()):
        warn(
            f"{int(outside.sum()):,} of {len(distance):,} queries lie outside the mesh, up to "
            f"{float(distance.amax()):.3g} from it: each reads its nearest cell"
        )


def _nearest(points: Tensor, cells: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest cell of each query (M,), the first of equally near ones, and its distance."""
    from scipy.spatial import cKDTree  # slow to import

    corners = points[cells]
    centres = corners.mean(1)
    radius = (corners - centres[:, None]).norm(dim=2).amax(1)
    # no farther than the nearest corner of any cell, whose distance may be rounded otherwise
    vertices = points[torch.unique(cells)].numpy()
    least = (1 + 1e-9) * torch.from_numpy(cKDTree(vertices).query(queries.numpy())[0])
    found = torch.full((len(queries),), len(cells))
    octave = torch.frexp(radius).exponent
    # A cell of radius r around c is at least |q - c| - r away: cells of one size are found by
    # their centres, the smallest first.
    for size in torch.unique(octave).tolist():
        members = (octave == size).nonzero().flatten()
        tree = cKDTree(centres[members].numpy())
        largest = float(radius[members].amax()) * (1 + _ROUNDING)
        for some in torch.arange(len(queries)).split(_QUERIES):
            near = tree.query_ball_point(queries[some].numpy(), (least[some] + largest).numpy())
            query = some.repeat_interleave(torch.tensor([len(each) for each in near]))
            cell = members[torch.from_numpy(np.concatenate(near).astype(np.int64))]
            _keep_nearest(found, least, query, cell, queries, corners, radius)
    return found, least


def _keep_nearest(
    found: Tensor,
    least: Tensor,
    query: Tensor,
    cell: Tensor,
    queries: Tensor,
    corners: Tensor,
    radius: Tensor,
) -> None:
    """Put nearer cells, and equally near ones of lower number, in the place of those found.

    ``query`` and ``cell`` are pairs (P,).
    """
    q = queries[query]
    c = corners[cell]
    beside = torch.maximum(c.amin(1) - q, q - c.amax(1)).clamp(min=0)  # of the box around the cell
    slack = _ROUNDING * radius[cell]
    may_be = beside.norm(dim=1) <= least[query] + slack
    query = query[may_be]
    cell = cell[may_be]
    slack = slack[may_be]
    distance = closest(c[may_be], q[may_be])[1].sqrt()
    before = least.clone()
    least.scatter_reduce_(0, query, distance, "amin")
    nearer = torch.unique(query[distance + slack < before[query]])
    found[nearer] = len(corners)
    is_near = distance <= least[query] + slack
    found.scatter_reduce_(0, query[is_near], cell[is_near], "amin")


def closest(corners: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """The point of a simplex that is nearest to a query, by its weights, and the squared distance.

    Args:
        corners: (P, k, d) of points, segments, triangles or tetrahedra.
        query: (P, d).
    Returns:
        Weights (P, k) >= 0 of the corners, which sum to 1, and distances (P,). Differentiable; a
        simplex without extent counts by its faces.
    """
    size = corners.shape[1]
    first = corners[:, 0]
    if size == 1:
        return torch.ones_like(first[:, :1]), (query - first).square().sum(1)
    sides = corners[:, 1:] - first[:, None]
    along, is_flat = _solved(sides @ sides.mT, (sides * (query - first)[:, None]).sum(2))
    weights = torch.cat((1 - along.sum(1, keepdim=True), along), 1)
    left = is_flat | (weights < 0).any(1)
    distance = (query - (weights[:, :, None] * corners).sum(1)).square().sum(1)
    rows = left.nonzero().flatten()
    if not len(rows):
        return weights, distance
    # outside: the nearest of the faces
    by_face = []
    for corner in range(size):
        others = [i for i in range(size) if i != corner]
        part, away = closest(corners[rows][:, others], query[rows])
        shares = part.unbind(1)
        shares = (*shares[:corner], torch.zeros_like(away), *shares[corner:])
        by_face.append((torch.stack(shares, 1), away))
    face_weights, face_distance = (torch.stack(each) for each in zip(*by_face, strict=True))
    best = face_distance.argmin(0)
    place = (best, torch.arange(len(rows), device=rows.device))
    weights = weights.index_copy(0, rows, face_weights[place])
    return weights, distance.index_copy(0, rows, face_distance[place])


def _solved(matrix: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Solutions (P, n) of symmetric equations (P, n, n), and which of them have none of their own.

    By elimination, all at a time: torch.linalg solves small matrices one by one.
    """
    rows = [
        [*row.unbind(1), side] for row, side in zip(matrix.unbind(1), right.unbind(1), strict=True)
    ]
    is_flat = torch.zeros_like(right[:, 0], dtype=torch.bool)
    for i, row in enumerate(rows):
        is_flat = is_flat | (row[i] <= _FLAT * matrix[:, i, i])
        row[i] = torch.where(is_flat, 1.0, row[i])
        for below in rows[i + 1 :]:
            share = below[i] / row[i]
            for j in range(i, len(row)):
                below[j] = below[j] - share * row[j]
    solution: list[Tensor] = []
    for i in reversed(range(len(rows))):
        known = sum(x * rows[i][j] for j, x in enumerate(reversed(solution), i + 1))
        solution.append((rows[i][-1] - known) / rows[i][i])
    return torch.stack(solution[::-1], 1), is_flat
