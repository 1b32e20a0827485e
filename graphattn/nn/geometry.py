"""Geometry of edges between points: relative positions, and angles between surfaces."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..arguments import check_shape, floats, one_of, several
from ..errors import OptionError, ShapeError
from ..graph import AttentionGraph
from ..graph.images import Images, checked_cell, moved
from ..graph.like import GraphLike
from ..graph.modes import without_autocast
from ..graphs.mesh.containing import closest
from ..kernels.modes import can_read_values
from ..kernels.plain.sums import gather, scatter_sum
from .biases.constant import need_edges, of_edges, sources, targets
from .points.paths import paths
from .vectors import angle_between, cosine, dot, length_of


def relative_positions(
    graph: GraphLike, pos: Tensor, queries: Tensor | None = None, *, cell: Tensor | None = None
) -> Tensor:
    r"""The position of the target of each edge relative to its source, :math:`p_t - p_s`.

    In a cell that repeats, relative to the image that the edge reads,
    :math:`p_t - (p_s + o_{ts} L)`, with the graph's ``offsets`` :math:`o` and lattice vectors
    :math:`L`. The sign is that of the Point Transformer's equations, of PTv3's code and of PyG's
    ``PointPairFeatures``.

    Args:
        graph: The graph of the edges.
        pos: (..., S, d) positions of the sources, and of the targets unless ``queries`` are given.
        queries: (..., T, d) positions of the targets, if these are other points.
        cell: (d, d) lattice vectors in place of those that the graph has from its builder, (C, d,
            d) of several cells: after a deformation, or for derivatives with respect to the cell
            (stresses).
    Returns:
        (..., E, d) in the graph's edge order and the units of ``pos``; differentiable any number of
        times.
    Raises:
        ShapeError: If there is not one row for each source and each target, or their axes or
            devices differ, or ``cell`` does not fit the graph.
    Example:
        >>> import torch, graphattn as ga
        >>> pos = torch.tensor([[0.0, 0.0], [1.0, 0.0], [3.0, 1.0]])
        >>> relative_positions(ga.graphs.knn(pos, 1), pos).tolist()
        [[-1.0, 0.0], [1.0, 0.0], [2.0, 1.0]]
        >>> ring = ga.graphs.radius(torch.tensor([[0.5], [3.5]]), 1.0, cell=torch.tensor([[4.0]]))
        >>> relative_positions(ring, torch.tensor([[0.5], [3.5]])).tolist()
        [[1.0], [-1.0]]
    """
    of_sources, of_targets = _ends(graph, pos, queries, "pos", "queries")
    vectors = of_targets - of_sources
    images = graph.images
    if images is None:
        if cell is not None:
            raise ShapeError(
                "cell is of a graph with image offsets, got one without; make it with "
                "radius(pos, r, cell=cell)"
            )
        return vectors
    return vectors - _shifts(graph, images, cell, vectors)


def _shifts(graph: GraphLike, images: Images, cell: Tensor | None, vectors: Tensor) -> Tensor:
    """Lattice vectors added to the source of each edge, (E, d), as ``vectors`` (..., E, d)."""
    axes = images.cells.shape[-1]
    if cell is None:
        if graph._is_constant:
            return of_edges(graph.union(), _shift, device=vectors.device).to(vectors.dtype)
        return images.shifts().to(vectors)
    cells = checked_cell(cell, axes, ShapeError)
    if cells.dim() == 2:
        cells = cells.expand_as(images.cells)
    if len(cells) != len(images.cells):
        raise ShapeError(
            f"cell must be ({axes}, {axes}), or have {len(images.cells)} cells as the graph, got "
            f"{tuple(cells.shape)}"
        )
    images = images.to(vectors.device)
    return moved(images.offsets, cells.to(vectors.dtype), images.cell_of_edge)


def _shift(graph: AttentionGraph) -> Tensor:
    assert graph.images is not None
    return graph.images.shifts()


#: Features of :func:`edge_geometry`, and their widths for positions on 3 axes.
FEATURES = {
    "offset": 3,
    "distance": 1,
    "direction": 3,
    "pair": 4,
    "alignment": 3,
    "frame": 3,
    "bend": 2,
    "compass": 4,
    "barycentric": 1,
    "arc": 1,
    "turn": 1,
}
_OF_NORMALS = ("pair", "alignment", "frame", "bend")


def edge_geometry(
    graph: GraphLike,
    pos: Tensor,
    queries: Tensor | None = None,
    *,
    features: Sequence[str] = ("offset", "distance"),
    normals: Tensor | None = None,
    queries_normals: Tensor | None = None,
    cell: Tensor | None = None,
    lines: AttentionGraph | None = None,
) -> Tensor:
    r"""Features of edges between points, side by side, with :math:`d = p_t - p_s`.

    =================  ====  ===============================================================================================
    ``"offset"``       axes  :math:`d`
    ``"distance"``     1     :math:`|d|`
    ``"direction"``    axes  :math:`d / |d|`, and 0 of points at one place
    ``"pair"``         4     :math:`|d|, \angle(n_s, d), \angle(n_t, d), \angle(n_s, n_t)`: PyG's ``PointPairFeatures``
    ``"alignment"``    3     :math:`|\cos|` of these angles: the same for normals without a sign, which PCA gives
    ``"frame"``        3     :math:`-d` in the target's frame of :func:`local_frames`
    ``"bend"``         2     :math:`-2 n_s \cdot d / |d|^2`, :math:`2 n_t \cdot d / |d|^2`: curvature along the edge at
                             its ends, 1 / R on a sphere of radius R with normals outwards, and 0 of points at one place
    ``"compass"``      4     :math:`-d` to the east, to the north and up at the target, and the great circle, of points on
                             a sphere around 0; its length has the units of ``pos``. At a pole east is along y
    ``"barycentric"``  1     the weight of the source in a graph of :func:`graphattn.graphs.containing`, at the
                             point of the cell that is nearest to the target
    ``"arc"``          1     the length of the path along ``lines`` that joins the ends, 0 if it has more than 16 lines
    ``"turn"``         1     the sum of the angles by which it turns, likewise
    =================  ====  ===============================================================================================

    Distances, pairs, alignments, frames, bends, arcs and turns are invariant under rotations of all points. In a
    cell that repeats, d is the vector to the image that the edge reads.

    Args:
        graph: The graph of the edges; square or bipartite.
        pos: (..., S, d) positions of the sources, as in :func:`relative_positions`, as are
            ``queries`` (..., T, d).
        features: Names from the table, in the order of the result.
        normals: (..., S, 3) unit normals of the sources, for the features of normals.
        queries_normals: (..., T, 3) unit normals of the targets, if these are other points.
        cell: Lattice vectors in place of the graph's, as in :func:`relative_positions`.
        lines: The points that each is joined with along a curve or a tree, such as
            ``mesh_vertices(edges, len(pos))``, for "arc" and "turn" of ``pos`` (N, 3).
    Returns:
        (..., E, F) in the graph's edge order.
    Raises:
        OptionError: If a name is unknown, or normals or lines are missing.
        ShapeError: If a tensor does not fit the graph.
    Source:
        Drost et al. 2010 for pairs; Taubin 1995, equation 5, for bends.
    Example:
        >>> import torch, graphattn as ga
        >>> pos = torch.rand(50, 3)
        >>> graph = ga.graphs.knn(pos, k=8, queries=pos[:7])
        >>> edge_geometry(graph, pos, pos[:7]).shape
        torch.Size([56, 4])
    """
    features = several(features, "features", f"must name some of {', '.join(FEATURES)}")
    for word in features:
        one_of(word, "features", tuple(FEATURES))
    d = relative_positions(graph, pos, queries, cell=cell)
    ends: Any = ()
    if any(word in _OF_NORMALS for word in features):
        if normals is None or (queries is None) != (queries_normals is None):
            raise OptionError(
                f"features={tuple(features)} need normals, and queries_normals exactly with queries"
            )
        ends = _ends(graph, normals, queries_normals, "normals", "queries_normals")
    if ends:
        # the same vectors, each axis contiguous in memory: what is computed of them is
        # vectorised
        d, *ends = (x.movedim(-1, 0).contiguous().movedim(0, -1) for x in (d, *ends))
    if {"arc", "turn"} & {*features}:
        along = _along(graph, lines, pos, queries)
    distance = length_of(d)
    formulas: dict[str, Callable[[], Tensor]] = {
        "offset": lambda: d,
        "distance": lambda: distance,
        "direction": lambda: d / distance.masked_fill(distance == 0, 1.0),
        "pair": lambda: torch.cat(
            [distance, *(angle_between(*pair) for pair in _pairs(d, *ends))], -1
        ),
        "alignment": lambda: torch.cat([cosine(*pair).abs() for pair in _pairs(d, *ends)], -1),
        "bend": lambda: _bends(d, *ends),
        "frame": lambda: _in_frames(
            graph, pos, queries, normals if queries is None else queries_normals, d, cell
        ),
        "compass": lambda: _compass(graph, pos, queries, d),
        "barycentric": lambda: _barycentric(graph, pos, queries),
        "arc": lambda: along[:, :1],
        "turn": lambda: along[:, 1:],
    }
    return torch.cat([formulas[word]() for word in features], -1)


def local_frames(
    graph: GraphLike,
    pos: Tensor,
    normals: Tensor,
    queries: Tensor | None = None,
    *,
    cell: Tensor | None = None,
) -> Tensor:
    """An orthonormal frame at each target, equivariant to rotations: the normal, a tangent and
    their product.

    The tangent points to the mean direction of the target's sources, weighed by the cube of their
    distance. If that is undefined (no sources, or a symmetric set), the tangent is an arbitrary
    one, without equivariance.

    Args:
        graph: The graph of the edges.
        pos: (S, 3) positions of the sources.
        normals: (T, 3) unit normals of the targets.
        queries: (T, 3) positions of the targets, if these are other points.
        cell: Lattice vectors in place of the graph's, as in :func:`relative_positions`.
    Returns:
        (T, 3, 3): the tangent, the second tangent, the normal, as rows: ``frames @ vector`` is the
        vector in the frame.
    """
    d = -relative_positions(graph, pos, queries, cell=cell)
    floats(normals, "normals", "(T, 3)", 2)
    check_shape(pos, "pos", (..., 3))
    check_shape(normals, "normals", (graph.num_targets, 3))
    target = targets(graph, d.device)
    size = graph._num_target_rows
    pull = graph._own_targets(scatter_sum(d * length_of(d) ** 2, target, size, 0), 0)
    least = torch.finfo(d.dtype).eps ** 0.5 * graph._own_targets(
        scatter_sum(length_of(d) ** 3, target, size, 0), 0
    )
    along = pull - (pull * normals).sum(-1, keepdim=True) * normals
    axis = torch.nn.functional.one_hot(normals.detach().abs().argmin(-1), 3).to(d.dtype)
    other = axis - (axis * normals).sum(-1, keepdim=True) * normals
    tangent = torch.nn.functional.normalize(
        torch.where(length_of(along) > least, along, other), dim=-1
    )
    return torch.stack((tangent, torch.linalg.cross(normals, tangent), normals), -2)


def local_pca(
    graph: GraphLike, pos: Tensor, queries: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Normals of the targets from their sources, without a sign, and the spread of the sources.

    Args:
        graph: The sources of each target's normal, itself included:
            ``knn(pos, 16, self_loops=True)``.
        pos: (S, d) positions of the sources; ``queries`` is for :func:`relative_positions` only, as
            there.
    Returns:
        Unit vectors (T, d) along which the sources spread least, and the standard deviations (T, d)
        along the principal axes, ascending, with sum of squares 1. Computed in float64; for a
        target with fewer than two sources the first axis and zeros.
    Source:
        Hoppe et al. 1992, section 3.1.
    """
    d = -relative_positions(graph, pos, queries).double()
    target = targets(graph, d.device)
    size = graph._num_target_rows
    count = torch.bincount(target, minlength=size).clamp(min=1)[:, None]
    spread = d - gather(scatter_sum(d, target, size, 0) / count, target, 0)
    covariance = (
        scatter_sum(spread[:, :, None] * spread[:, None, :], target, size, 0) / count[:, None]
    )
    covariance = graph._own_targets(covariance, 0)
    values, vectors = torch.linalg.eigh(covariance)
    values = values.clamp(min=0)
    total = values.sum(-1, keepdim=True)
    relative = (values / total.masked_fill(total == 0, 1.0)).sqrt()
    return vectors[..., 0].to(pos.dtype), relative.to(pos.dtype)


def _ends(
    graph: GraphLike, of_sources: Tensor, of_targets: Tensor | None, source: str, target: str
) -> tuple[Tensor, Tensor]:
    """The rows of the two ends of each edge, (..., E, d)."""
    need_edges(graph)
    if of_targets is None:
        of_targets = of_sources
        target = source
    sides = (of_sources, of_targets)
    names = (source, target)
    for name, x, size in zip(names, sides, (graph.num_sources, graph.num_targets), strict=True):
        floats(x, name, "(..., points, axes)", 2)
        check_shape(x, name, (..., size, "axes"), "a row for each node of the graph there")
    device = sides[0].device
    source_rows, target_rows = graph.ends(*sides)
    at_sources = rows_of(source_rows, sources(graph, device))
    return at_sources, rows_of(target_rows, targets(graph, device))


def rows_of(x: Tensor, index: Tensor) -> Tensor:
    """Rows by index; with gradients, and without a compiler, the backward is deterministic."""
    if x.requires_grad and can_read_values(x):
        return gather(x, index, -2)
    return x.index_select(-2, index)


def sums_of(x: Tensor, index: Tensor, size: int) -> Tensor:
    """Sums (..., size, H) of the rows of ``x`` (..., E, H) that share an index; deterministic, as
    the gradients of :func:`rows_of`.
    """
    if not can_read_values(x):
        return x.new_zeros(*x.shape[:-2], size, x.shape[-1]).index_add(-2, index, x)
    return scatter_sum(x, index, size, -2)


def _pairs(d: Tensor, of_sources: Tensor, of_targets: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    return (of_sources, d), (of_targets, d), (of_sources, of_targets)


def _bends(d: Tensor, of_sources: Tensor, of_targets: Tensor) -> Tensor:
    squared = dot(d, d)
    along = 2 * d / squared.masked_fill(squared == 0, 1.0)
    return torch.cat((-dot(of_sources, along), dot(of_targets, along)), -1)


def _in_frames(
    graph: GraphLike,
    pos: Tensor,
    queries: Tensor | None,
    normals: Tensor | None,
    d: Tensor,
    cell: Tensor | None,
) -> Tensor:
    assert normals is not None
    frames = local_frames(graph, pos, normals, queries, cell=cell).flatten(-2)
    frames = graph.ends(pos[..., :0], frames)[1]
    of_edges = rows_of(frames, targets(graph, d.device)).unflatten(-1, (3, 3))
    with without_autocast(d.device.type):
        return (of_edges @ -d.unsqueeze(-1)).squeeze(-1)


def _compass(graph: GraphLike, pos: Tensor, queries: Tensor | None, d: Tensor) -> Tensor:
    """The source to the east, to the north and up of the target, and the great circle."""
    if d.shape[-1] != 3:
        raise ShapeError(
            f'"compass" needs pos with 3 axes, got {d.shape[-1]}; graphs.on_sphere(lat, lon) makes them'
        )
    source, target = _ends(graph, pos, queries, "pos", "queries")
    x, y, z = target.unbind(-1)
    is_pole = (x == 0) & (y == 0)
    out = torch.where(is_pole, 1.0, torch.hypot(x.masked_fill(is_pole, 1.0), y))
    cos_lon = torch.where(is_pole, 1.0, x / out)
    sin_lon = y / out
    height = length_of(target)
    up = target / height.masked_fill(height == 0, 1.0)
    east = torch.stack((-sin_lon, cos_lon, torch.zeros_like(z)), -1)
    north = torch.linalg.cross(up, east)
    parts = [-dot(d, axis) for axis in (east, north, up)]
    return torch.cat((*parts, angle_between(source, target) * height), -1)


def _along(
    graph: GraphLike, lines: AttentionGraph | None, pos: Tensor, queries: Tensor | None
) -> Tensor:
    """Lengths and turns of paths along lines, (E, 2)."""
    if lines is None or queries is not None or not isinstance(graph, AttentionGraph):
        raise OptionError(
            '"arc" and "turn" need the lines of a curve or a tree, and a graph of its points: '
            "lines=mesh_vertices(edges, len(pos))"
        )
    return paths(graph, lines, pos)


def _barycentric(graph: GraphLike, pos: Tensor, queries: Tensor | None) -> Tensor:
    """The weights of the corners in the point of their cell that is nearest to the target."""
    source, target = _ends(graph, pos, queries, "pos", "queries")
    size = source.shape[-2] // max(1, graph.num_targets)
    numbers = torch.arange(graph.num_targets, device=source.device).repeat_interleave(size)
    if size not in (3, 4) or not torch.equal(targets(graph, source.device), numbers):
        raise OptionError(
            '"barycentric" needs 3 or 4 sources for each target, the corners of a cell: '
            "graphs.containing(pos, faces, queries=queries)"
        )
    corners = source.unflatten(-2, (-1, size))
    weights, _ = closest(
        corners.flatten(0, -3), target.unflatten(-2, (-1, size))[..., 0, :].flatten(0, -2)
    )
    return weights.reshape(*source.shape[:-1], 1)
