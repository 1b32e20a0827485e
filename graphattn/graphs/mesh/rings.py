"""Meshes: a vertex, a face or an edge reads its neighbours."""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.listed import listed
from ...graph.sort import offsets, rows_of, sorted_keys
from ..arguments import call, one_of, whole
from .faces import Faces, checked_faces


@sizable
@builder
def mesh_vertices(
    faces: Tensor,
    num_vertices: int | None = None,
    hops: int = 1,
    *,
    self_loops: bool = False,
) -> AttentionGraph:
    r"""Every vertex reads the vertices within ``hops`` edges of it, of a mesh, a curve or a tree.

    .. math:: \mathcal{N}(t) = \{ s \ne t : \text{a path of at most } h \text{ mesh edges joins } s \text{ and } t \}

    Args:
        faces: (F, 3) triangles, (F, 4) quads, or a list of tuples of vertex numbers, in order
            around each face; (E, 2) edges of a curve, a tree or any network.
        num_vertices: Number of vertices; one more than the largest number in ``faces`` by default.
        hops: h, the longest path.
        self_loops: True lets a vertex read itself, too, for layers without a residual connection.
    Returns:
        Listed edges on the device of ``faces``, by target and then by source; symmetric. A mesh
        edge is an edge once in each direction, however many faces share it.
    Raises:
        GraphIndexError: If a face names a vertex outside ``[0, num_vertices)``.
        GraphError: If ``hops < 1``, ``faces`` is not a table of integers with at least 3 columns,
            or its rows are tetrahedra, other cells, or elements of second order: most share three
            corners with another row.
    Source:
        *What differs* from PyG's ``FaceToEdge``, which reads four corners as tetrahedra, and
        trimesh's ``edges_unique``: degenerate faces
        add no edge, not even a self-loop. A face is degenerate if it has fewer than three distinct
        vertices or comes back to one; a vertex repeated at once is padding and is dropped.
        :func:`mesh_report` counts them.
    Example:
        >>> print(mesh_vertices(torch.tensor([[0, 1, 2], [2, 1, 3]])))
        AttentionGraph(mesh_vertices(): 4 nodes, 10 edges, density 0.625, listed)
        · █ █ ·
        █ · █ █
        █ █ · █
        · █ █ ·
    """
    hops = whole(hops, "hops", 1)
    mesh, device = checked_faces(faces, num_vertices, least=2)
    step = torch.cat((mesh.vertex, mesh.follower)), torch.cat((mesh.follower, mesh.vertex))
    name = call("mesh_vertices", hops=hops, self_loops=self_loops)
    return ring(step, mesh.num_vertices, hops, self_loops, name, device)


@sizable
@builder
def mesh_faces(
    faces: Tensor,
    hops: int = 1,
    *,
    share: Literal["edge", "vertex"] = "edge",
    self_loops: bool = False,
) -> AttentionGraph:
    r"""Every face reads the faces within ``hops`` shared edges (or vertices) of it.

    .. math:: \mathcal{N}(t) = \{ s \ne t : \text{faces } t \text{ and } s \text{ share an edge} \} \quad (h = 1)

    Args:
        faces: (F, 3) triangles, (F, 4) quads, or a list of tuples of vertex numbers, in order
            around each face.
        hops: h, the longest path over neighbouring faces.
        share: Neighbouring faces share an ``"edge"`` or a ``"vertex"``.
        self_loops: True lets a face read itself too.
    Returns:
        Listed edges over all F faces on the device of ``faces``, by target and then by source;
        symmetric. All faces at a mesh edge are neighbours of each other, however many there are.
    Raises:
        GraphIndexError: If a face names a negative vertex.
        GraphError: If ``hops < 1``, ``share`` is neither word, or ``faces`` is not a table of
            integers with at least 3 columns.
    Source:
        Hu et al. 2022 (SubdivNet) for faces that share an edge. *What differs* from trimesh's
        ``face_adjacency``: faces at an edge of three or more faces are neighbours too (trimesh
        leaves such edges out), and degenerate faces (see :func:`mesh_vertices`) keep their number
        but have no neighbours.
    Example:
        >>> print(mesh_faces(torch.tensor([[0, 1, 2], [2, 1, 3], [3, 1, 4]]), self_loops=True))
        AttentionGraph(mesh_faces(self_loops=True): 3 nodes, 7 edges, density 0.778, listed)
        █ █ ·
        █ █ █
        · █ █
    """
    hops = whole(hops, "hops", 1)
    one_of(share, "share", ("edge", "vertex"))
    mesh, device = checked_faces(faces, None)
    if share == "edge":
        shared = mesh.edges()[0]
    else:
        shared = mesh.vertex
    num_shared = 0
    if shared.numel():
        num_shared = int(shared.max()) + 1
    incidence = _matrix(mesh.face, shared, len(mesh.sound), num_shared)
    step = _pairs(incidence @ incidence.T)
    name = call("mesh_faces", hops=hops, share=share, self_loops=self_loops)
    return ring(step, len(mesh.sound), hops, self_loops, name, device)


@sizable
@builder
def mesh_edges(faces: Tensor, hops: int = 1, *, self_loops: bool = False) -> AttentionGraph:
    r"""Every edge of a mesh reads the other edges of its faces: four between two triangles.

    .. math:: \mathcal{N}(t) = \{ s \ne t : \text{a face has both edges } t \text{ and } s \} \quad (h = 1)

    Args:
        faces: (F, 3) triangles, (F, 4) quads, or a list of tuples of vertex numbers, in order
            around each face.
        hops: h, the longest path over neighbouring edges.
        self_loops: True lets an edge read itself too.
    Returns:
        Listed edges of the graph on the device of ``faces``, by target and then by source;
        symmetric. Its nodes are the
        edges of the mesh, each once: node i joins the vertices ``mesh_edge_ends(faces)[i]``.
    Raises:
        GraphIndexError: If a face names a negative vertex.
        GraphError: If ``hops < 1``, or ``faces`` is not a table of integers with at least 3
            columns.
    Source:
        Hanocka et al. 2019 (MeshCNN): the 1-ring of an edge. *What differs:* an edge at the
        boundary reads two, one of three faces six, and MeshCNN's order of the four (up to a flip)
        belongs to a layer.
    Example:
        >>> print(mesh_edges(torch.tensor([[0, 1, 2], [2, 1, 3]])))
        AttentionGraph(mesh_edges(): 5 nodes, 12 edges, density 0.48, listed)
        · █ █ · ·
        █ · █ · ·
        █ █ · █ █
        · · █ · █
        · · █ █ ·
    """
    hops = whole(hops, "hops", 1)
    mesh, device = checked_faces(faces, None)
    edge, ends = mesh.edges()
    incidence = _matrix(mesh.face, edge, len(mesh.sound), len(ends))
    step = _pairs(incidence.T.tocsr() @ incidence)
    name = call("mesh_edges", hops=hops, self_loops=self_loops)
    return ring(step, len(ends), hops, self_loops, name, device)


def mesh_edge_ends(faces: Tensor) -> Tensor:
    """The two vertices of every edge of a mesh, in the order of :func:`mesh_edges`.

    Args:
        faces: As for :func:`mesh_edges`.
    Returns:
        int64 (E, 2) on the device of ``faces``: the lower vertex first, ascending by it and then by
        the other.
    Example:
        >>> mesh_edge_ends(torch.tensor([[0, 1, 2], [2, 1, 3]])).tolist()
        [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]
    """
    mesh, device = checked_faces(faces, None)
    return mesh.edges()[1].to(device)


class MeshReport(NamedTuple):
    """The counts of :func:`mesh_report`."""

    num_faces: int
    num_vertices: int
    num_edges: int
    degenerate_faces: int
    duplicate_faces: int
    boundary_edges: int
    non_manifold_edges: int
    unused_vertices: int


def mesh_report(faces: Tensor, num_vertices: int | None = None) -> MeshReport:
    """Counts of irregular faces and edges of a mesh, all of which the builders accept.

    Args:
        faces: As for :func:`mesh_vertices`.
        num_vertices: The same.
    Returns:
        Counts. Edges are undirected and counted once. Degenerate faces (see :func:`mesh_vertices`)
        count as faces and are left out of all else. A duplicate has the vertices of an earlier
        face, in any order. Boundary edges have one face, non-manifold ones more than two; a
        duplicate counts as a face here.
    Example:
        >>> report = mesh_report(torch.tensor([[0, 1, 2], [2, 0, 1], [1, 2, 3], [3, 3, 1]]), 5)
        >>> report.degenerate_faces, report.duplicate_faces, report.non_manifold_edges, report.unused_vertices
        (1, 1, 1, 1)
    """
    mesh, _ = checked_faces(faces, num_vertices)
    edge, ends = mesh.edges()
    per_edge = torch.bincount(edge, minlength=ends.shape[0])
    return MeshReport(
        num_faces=mesh.sound.numel(),
        num_vertices=mesh.num_vertices,
        num_edges=ends.shape[0],
        degenerate_faces=int((~mesh.sound).sum()),
        duplicate_faces=_duplicates(mesh),
        boundary_edges=int((per_edge == 1).sum()),
        non_manifold_edges=int((per_edge > 2).sum()),
        unused_vertices=mesh.num_vertices - torch.unique(mesh.vertex).numel(),
    )


def _duplicates(mesh: Faces) -> int:
    """True for faces with the same set of vertices as an earlier face."""
    order = torch.argsort(mesh.face * max(1, mesh.num_vertices) + mesh.vertex)
    vertex = mesh.vertex[order]
    sizes = torch.bincount(mesh.face, minlength=mesh.sound.numel())
    first = torch.cumsum(sizes, 0) - sizes
    count = 0
    for size in torch.unique(sizes[sizes > 0]).tolist():
        sets = vertex[first[sizes == size][:, None] + torch.arange(size)]
        count += sets.shape[0] - torch.unique(sets, dim=0).shape[0]
    return count


def _matrix(row: Tensor, column: Tensor, rows: int, columns: int) -> Any:
    """The scipy.sparse matrix with a True at every (row, column), given by row."""
    from scipy.sparse import csr_matrix  # slow to import

    ptr = offsets(torch.bincount(row, minlength=rows))
    return csr_matrix(
        (np.ones(row.numel(), dtype=bool), column.numpy(), ptr.numpy()), (rows, columns)
    )


def _pairs(matrix: Any) -> tuple[Tensor, Tensor]:
    """The rows and columns of the entries of a matrix by rows, int64 (E,) each."""
    ptr, column = (torch.from_numpy(x.astype(np.int64)) for x in (matrix.indptr, matrix.indices))
    return rows_of(ptr), column


def ring(
    step: tuple[Tensor, Tensor],
    size: int,
    hops: int,
    self_loops: bool,
    name: str,
    device: torch.device,
) -> AttentionGraph:
    """All pairs joined by at most ``hops`` steps, which are symmetric and may repeat."""
    key = torch.add(step[1], step[0], alpha=size)
    if self_loops or hops > 1:
        key = torch.cat((key, torch.arange(size) * (size + 1)))
    key = torch.unique_consecutive(sorted_keys(key))
    target = torch.div(key, max(1, size), rounding_mode="floor")
    source = key - target * size
    if hops > 1:
        near = reach = _matrix(target, source, size, size)
        for _ in range(hops - 1):
            wider = reach @ near
            if wider.nnz == reach.nnz:
                break
            reach = wider
        target, source = _pairs(reach.tocsc())  # the same matrix, its rows in order
    if not self_loops:
        keep = target != source
        target = target[keep]
        source = source[keep]
    edges = listed(target.to(device), source.to(device), size, size, has_repeats=False)
    return AttentionGraph(edges, name, device)
