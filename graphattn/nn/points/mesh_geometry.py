"""Geometry of triangle meshes: normals, edges with their angles, and distance along the surface."""

import numpy as np
import torch
from torch import Tensor

from ...arguments import check_range, floats, positive
from ...arguments import integers as checked_integers
from ...errors import GraphError, ShapeError
from ...graph import AttentionGraph, need_graph
from ...graph.like import GraphLike
from ...graph.modes import outside_modes
from ...graphs.mesh.faces import Faces, checked_faces
from ...kernels.plain.sums import gather, scatter_sum
from ...plans.edge_tensors import EdgeTensors
from ..vectors import angle_between, length_of


def mesh_normals(pos: Tensor, faces: Tensor) -> Tensor:
    """Unit normals (N, 3) of vertices: those of their faces weighed by area; 0 for a vertex without
    a face.

    Args:
        pos: (N, 3) positions of the vertices; or (N, 2), of a mesh of a plane, whose normals are
            (0, 0, 1), or (0, 0, -1) where its faces turn clockwise.
        faces: (F, 3) triangles, counter-clockwise from outside.
    """
    mesh, corner = checked_triangles(pos, faces)
    total = scatter_sum(
        area_vectors(corner).repeat_interleave(3, 0), mesh.vertex.to(pos.device), len(pos), 0
    )
    return torch.nn.functional.normalize(total, dim=-1)


def mesh_edge_geometry(
    pos: Tensor, faces: Tensor, graph: AttentionGraph | EdgeTensors | None = None
) -> Tensor:
    r"""Length, dihedral angle and cotangent weight of every edge of a triangle mesh.

    The dihedral angle is that between the normals of its two faces: 0 if they are flat, positive on
    a ridge, negative in a valley, and 0 without exactly two faces. The cotangent weight is
    :math:`(\cot\alpha + \cot\beta) / 2`, with the angles opposite to the edge.

    Args:
        pos: (N, 3) positions of the vertices, or (N, 2) in a plane.
        faces: (F, 3) triangles; all counter-clockwise from outside, or ridges and valleys are
            exchanged.
        graph: A graph of the vertices whose edges are mesh edges, such as ``mesh_vertices(faces)``;
            self-loops may be among them. Of a shard, its own edges, and positions and faces of the
            whole mesh.
    Returns:
        (M, 3), differentiable, in the order of :func:`graphattn.shapes.mesh_edge_ends`, which is
        that of the nodes of :func:`graphattn.graphs.mesh_edges`; with a graph (E, 3) in its edge
        order, zeros for self-loops.
    Raises:
        ShapeError: If ``pos`` is neither (N, 3) nor (N, 2).
        GraphError: If a face is not a triangle, or an edge of ``graph`` is not in the mesh.
    Source:
        Pinkall and Polthier 1993 for cotangents.
    """
    mesh, corner = checked_triangles(pos, faces)
    edge, ends = (x.to(pos.device) for x in mesh.edges())
    if not len(ends):
        features = pos.new_zeros(0, 3)
    else:
        start = gather(pos, ends[:, 0], 0)
        end = gather(pos, ends[:, 1], 0)
        cotangent = scatter_sum(_cotangents(corner).flatten(), edge, len(ends), 0) / 2
        features = torch.cat(
            (length_of(end - start), _dihedral(mesh, corner, edge, ends), cotangent[:, None]), 1
        )
    if graph is None:
        return features
    return _along(graph, features, ends, len(pos))


@outside_modes
def heat_distance(pos: Tensor, faces: Tensor, start: Tensor, *, time: float = 1.0) -> Tensor:
    """Distance along the surface from every vertex to the nearest of some, by the heat method.

    Args:
        pos: (N, 3) positions of the vertices, or (N, 2) in a plane; no gradient flows.
        faces: (F, 3) triangles.
        start: int64 (K,), the vertices at distance 0.
        time: Time of heat flow, in squares of the mean length of edges; more is smoother.
    Returns:
        (N,) in the dtype of ``pos``, computed in float64 on the CPU; infinite without a path.
    Source:
        Crane et al. 2013, "Geodesics in Heat". Errors are a few per cent on regular meshes. For
        paths over edges only, which are too long, see ``scipy.sparse.csgraph.dijkstra``.
    """
    from scipy.sparse import coo_array, diags_array  # slow to import
    from scipy.sparse.csgraph import connected_components
    from scipy.sparse.linalg import splu

    exact = floats(pos, "pos", "(N, 3)", 2).detach().double().cpu()
    mesh, corner = checked_triangles(exact, faces)
    time = positive(time, "time")
    ids = checked_integers(start, "start", "(K,)", GraphError).cpu()
    check_range(ids, "start", len(pos), ", the vertices")
    if not ids.numel():
        raise GraphError("start must name at least one vertex, got none")
    # of the angle opposite to the edge j -> j + 1
    vertex = mesh.vertex.view(-1, 3)
    cotangent = _cotangents(corner)
    edge = corner.roll(-1, 1) - corner
    across = area_vectors(corner)
    area = across.norm(dim=1) / 2
    N = len(pos)
    head = vertex.flatten().numpy()
    tail = vertex.roll(-1, 1).flatten().numpy()
    weight = (cotangent / 2).flatten().numpy()
    adjacent = coo_array(
        (np.r_[weight, weight], (np.r_[head, tail], np.r_[tail, head])), (N, N)
    ).tocsr()
    laplacian = diags_array(adjacent.sum(1)) - adjacent
    mass = np.bincount(head, np.repeat(area.numpy() / 3, 3), N)
    mass[mass == 0] = 1.0  # vertices without a face
    if len(edge):
        step = time * float(edge.norm(dim=2).mean()) ** 2
    else:
        step = 1.0
    result = np.zeros(N)
    result[ids.numpy()] = 1.0
    heat = torch.from_numpy(splu((diags_array(mass) + step * laplacian).tocsc()).solve(result))
    opposite = edge.roll(-1, 1)  # the edge opposite to corner j
    gradient = (
        heat[vertex][..., None] * torch.linalg.cross(across[:, None].expand_as(opposite), opposite)
    ).sum(1)
    flow = -torch.nn.functional.normalize(gradient, dim=1)
    along = (edge * flow[:, None]).sum(2) * cotangent / 2  # of the edge j -> j + 1, out of its head
    source = np.bincount(head, along.flatten().numpy(), N) - np.bincount(
        tail, along.flatten().numpy(), N
    )
    distance = splu((laplacian + 1e-10 * diags_array(mass / mass.mean())).tocsc()).solve(-source)
    piece = connected_components(adjacent != 0)[1]
    result = np.full(N, np.inf)
    for number in np.unique(piece[ids.numpy()]):
        in_piece = piece == number
        result[in_piece] = (
            distance[in_piece] - distance[ids.numpy()[piece[ids.numpy()] == number]].mean()
        )
    result[ids.numpy()] = 0.0
    return torch.from_numpy(np.maximum(result, 0.0)).to(pos)


def checked_triangles(pos: Tensor, faces: Tensor) -> tuple[Faces, Tensor]:
    """The sound faces, and the positions (F, 3, 3) of their corners."""
    pos = in_space(pos)
    mesh = checked_faces(faces, len(pos))[0]
    if bool((torch.bincount(mesh.face, minlength=len(mesh.sound))[mesh.sound] != 3).any()):
        raise GraphError("faces must be triangles for angles; split larger ones, as trimesh does")
    return mesh, gather(pos, mesh.vertex.to(pos.device), 0).view(-1, 3, 3)


def in_space(pos: Tensor) -> Tensor:
    """Positions (N, 3); those of a plane, (N, 2), with a third coordinate of 0."""
    floats(pos, "pos", "(N, 3) or (N, 2)", 2)
    if pos.shape[1] not in (2, 3):
        raise ShapeError(f"pos must have shape (N, 3) or (N, 2), got {tuple(pos.shape)}")
    return torch.nn.functional.pad(pos, (0, 3 - pos.shape[1]))


def area_vectors(corner: Tensor) -> Tensor:
    """Vectors (F, 3) along each face's normal, of twice its area in length."""
    return torch.linalg.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])


def _cotangents(corner: Tensor) -> Tensor:
    """Cotangents (F, 3) of the angle opposite to the edge from corner j to the next."""
    apex = corner.roll(1, 1)
    a = corner - apex
    b = corner.roll(-1, 1) - apex
    across = length_of(torch.linalg.cross(a, b)).squeeze(-1)
    return (a * b).sum(-1) / across.masked_fill(across == 0, torch.inf)


def _dihedral(mesh: Faces, corner: Tensor, edge: Tensor, ends: Tensor) -> Tensor:
    """(M, 1)."""
    normal = area_vectors(corner)
    count = torch.bincount(edge, minlength=len(ends))
    order = torch.argsort(edge, stable=True)
    first = torch.cumsum(count, 0) - count
    interior = torch.nonzero(count == 2).flatten()
    # corners, three to a face
    left = order[first[interior]]
    right = order[first[interior] + 1]
    tail = mesh.vertex.to(edge.device)
    # faces of opposite orientation
    orientation = torch.where(tail[left] == tail[right], -1.0, 1.0).to(corner)[:, None]
    n = normal[left // 3]
    m = normal[right // 3] * orientation
    apex = corner[right // 3, (right + 2) % 3]
    rises = ((apex - corner[left // 3, left % 3]) * n).sum(-1, keepdim=True)
    angle = angle_between(n, m) * torch.where(rises > 0, -1.0, 1.0).to(corner)
    return corner.new_zeros(len(ends), 1).index_copy(0, interior, angle)


def _along(graph: AttentionGraph | EdgeTensors, values: Tensor, ends: Tensor, size: int) -> Tensor:
    """The row of each graph edge's mesh edge."""
    if isinstance(graph, GraphLike):
        graph = graph._whole_graph
    need_graph(graph, "mesh_edge_geometry")
    source, target = graph.edge_index.to(values.device)
    key = ends[:, 0] * size + ends[:, 1]
    edge_key = torch.minimum(source, target) * size + torch.maximum(source, target)
    row = torch.searchsorted(key, edge_key).clamp(max=max(0, len(key) - 1))
    loop = source == target
    if len(key):
        on_mesh = key[row] == edge_key
    else:
        on_mesh = loop & False
    wrong = torch.nonzero(~on_mesh & ~loop).flatten()
    if wrong.numel():
        s = int(source[wrong[0]])
        t = int(target[wrong[0]])
        raise GraphError(
            f"{graph.name} has an edge {s} -> {t} that is not in the mesh; pass "
            "mesh_vertices(faces)"
        )
    return gather(
        torch.cat((values, values.new_zeros(1, 3))), torch.where(loop, len(values), row), 0
    )
