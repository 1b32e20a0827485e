"""Vertices, faces or edges of a triangle mesh as tokens: their features, positions and
neighbours.
"""

import torch
from torch import Tensor

from ...arguments import check_finite, one_of
from ...errors import GraphError
from ...graph.deferred.places import count_of_clouds, counts
from ...graphs import Hierarchy, mesh_edges, mesh_faces, mesh_vertices
from ...graphs.mesh.rings import mesh_edge_ends
from ...graphs.points.hierarchy import Level
from ...kernels.plain.sums import gather, scatter_sum
from ..vectors import angle_between, length_of
from .mesh_geometry import (
    area_vectors,
    checked_triangles,
    in_space,
    mesh_edge_geometry,
    mesh_normals,
)

ELEMENTS = ("vertices", "faces", "edges")
_LARGEST = 1e4  # ratio of an edge to the height of a face: that of a face without area


def mesh_elements(
    pos: Tensor,
    faces: Tensor,
    elements: str = "vertices",
    *,
    hops: int = 1,
    batch: Tensor | None = None,
) -> tuple[Tensor, Hierarchy]:
    """Tokens of a mesh for :class:`graphattn.models.MeshTransformer`: rotation-invariant features,
    and neighbours.

    ==============  ===================================================================================================
    ``"vertices"``  the area around it, its angle defect, and the mean and the largest length of its edges
    ``"faces"``     its area, and its three angles, ascending
    ``"edges"``     the dihedral angle, the two opposite angles and the two ratios of its length to the heights of its
                    faces (at most 1e4), each pair ascending: MeshCNN's features; 0 in place of a face that is not there
    ==============  ===================================================================================================

    Args:
        pos: (N, 3) positions of the vertices, or (N, 2) in a plane.
        faces: (F, 3) triangles without degenerate ones, counter-clockwise from outside.
        elements: "vertices", "faces" or "edges".
        hops: Steps of the neighbourhood: 1 for what shares an edge (of edges, a face).
        batch: (N,) the mesh of every vertex, sorted, if there are several.
    Returns:
        Features (tokens, F), differentiable, and a :class:`graphattn.graphs.Hierarchy` of one level
        with the tokens' positions, normals and graph; a token reads itself, too.
    Raises:
        GraphError: If a face is not a triangle or joins two meshes of the batch.
    Source:
        Hanocka et al. 2019 (MeshCNN), section 3, for edges.
    Example:
        >>> import torch
        >>> pos = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
        >>> faces = torch.tensor([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
        >>> features, shape = mesh_elements(pos, faces, "edges")
        >>> features.shape, shape.levels[0].graph.num_edges
        (torch.Size([6, 5]), 30)
    """
    one_of(elements, "elements", ELEMENTS)
    if isinstance(pos, Tensor):
        check_finite(pos, "pos", error=GraphError)
    mesh, corner = checked_triangles(pos, faces)
    pos = in_space(pos)
    if not bool(mesh.sound.all()):
        raise GraphError(
            f"faces must not be degenerate, got one in row {int((~mesh.sound).nonzero()[0])}; "
            "drop it"
        )
    vertex = mesh.vertex.view(-1, 3).to(pos.device)
    if batch is not None:
        counts(batch, len(pos))
        if bool((batch[vertex] != batch[vertex[:, :1]]).any()):
            raise GraphError("batch must name the mesh of each vertex, and no face joins two")
    across = area_vectors(corner)
    sides = [
        (corner.roll(-1, 1)[:, i] - corner[:, i], corner.roll(1, 1)[:, i] - corner[:, i])
        for i in range(3)
    ]
    angle = torch.cat(
        [angle_between(next_side, previous_side) for next_side, previous_side in sides], 1
    )
    area = length_of(across) / 2
    if elements == "vertices":
        features = _of_vertices(pos, faces, vertex, angle, area)
        place = pos
        normals = mesh_normals(pos, faces)
        first = torch.arange(len(pos), device=pos.device)
        graph = mesh_vertices(faces, len(pos), hops, self_loops=True)
    elif elements == "faces":
        features = torch.cat((area, angle.sort(1).values), 1)
        place = corner.mean(1)
        normals = torch.nn.functional.normalize(across, dim=-1)
        first = vertex[:, 0]
        graph = mesh_faces(faces, hops, self_loops=True)
    else:
        ends = mesh_edge_ends(faces).to(pos.device)
        edge = mesh.edges()[0].to(pos.device)
        place = pos[ends].mean(1)
        features = _of_edges(pos, faces, edge, angle, area, corner, len(ends))
        normals = torch.nn.functional.normalize(mesh_normals(pos, faces)[ends].sum(1), dim=-1)
        first = ends[:, 0]
        graph = mesh_edges(faces, hops, self_loops=True)
    number = None
    if batch is not None:
        number = batch[first]
        if bool((number.diff() < 0).any()):
            raise GraphError("faces must be sorted by mesh, as the vertices are")
    count = count_of_clouds(batch)
    return features, Hierarchy((Level(place, number, (graph,), normals=normals),), count)


def _of_vertices(pos: Tensor, faces: Tensor, vertex: Tensor, angle: Tensor, area: Tensor) -> Tensor:
    corner_vertex = vertex.flatten()
    vertex_area = scatter_sum((area / 3).expand(-1, 3).reshape(-1, 1), corner_vertex, len(pos), 0)
    defect = 2 * torch.pi - scatter_sum(angle.reshape(-1, 1), corner_vertex, len(pos), 0)
    graph = mesh_vertices(faces, len(pos)).edge_index.to(pos.device)
    length = length_of(gather(pos, graph[0], 0) - gather(pos, graph[1], 0))
    degree = torch.bincount(graph[1], minlength=len(pos)).clamp(min=1)[:, None]
    mean = scatter_sum(length, graph[1], len(pos), 0) / degree
    most = pos.new_zeros(len(pos), 1).scatter_reduce(0, graph[1:].t(), length, "amax")
    return torch.cat((vertex_area, defect, mean, most), 1)


def _of_edges(
    pos: Tensor, faces: Tensor, edge: Tensor, angle: Tensor, area: Tensor, corner: Tensor, size: int
) -> Tensor:
    """Dihedral angle, and opposite angles and ratios of the first two faces, of each edge."""
    count = torch.bincount(edge, minlength=size)
    order = torch.argsort(edge, stable=True)
    first = torch.cumsum(count, 0) - count
    length = length_of(corner.roll(-1, 1) - corner).squeeze(-1)
    opposite = angle.roll(1, 1).flatten()  # of the edge from a corner to the next
    square = length.square()
    # times the length
    height = torch.maximum(2 * area, square / _LARGEST).clamp(min=torch.finfo(pos.dtype).tiny)
    ratio = (square / height).flatten()
    pairs = []
    for values in (opposite, ratio):
        sides = [values[order[(first + i).clamp(max=len(order) - 1)]] * (count > i) for i in (0, 1)]
        pairs.append(torch.stack(sides, 1).sort(1).values)
    return torch.cat((mesh_edge_geometry(pos, faces)[:, 1:2], *pairs), 1)
