"""Geometry of edges of points and meshes, pooling, and biases of places."""

import math

import pytest
import torch
import trimesh
from scipy.spatial import Delaunay
from torch_geometric.data import Data
from torch_geometric.transforms import PointPairFeatures

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphAttnError
from graphattn.nn import (
    edge_geometry,
    local_frames,
    local_pca,
    mesh_edge_geometry,
    relative_positions,
)


def unit(n, seed=1):
    random = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(
        torch.randn(n, 3, generator=random, dtype=torch.float64), dim=1
    )


def cloud(n=23, seed=0):
    return torch.rand(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(seed=3):
    return torch.linalg.qr(unit(3, seed))[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_offsets_are_taken_in_the_dtype_of_the_positions(dtype):
    pos = cloud()
    far = pos + torch.tensor([500_000.0, 5_400_000.0, 200.0])  # of a map
    graph = graphs.knn(pos, 4)
    x = torch.randn(23, 6).to(dtype)
    torch.manual_seed(0)
    layer = ga.nn.GraphAttention(6, 2, edge_dim=3, score="subtraction").to(dtype)
    of_offsets = layer(x, graph, edge_attr=relative_positions(graph, pos).to(dtype))
    for places in (pos, far):
        torch.testing.assert_close(layer(x, graph, positions=places), of_offsets, atol=1e-6, rtol=0)
    pair = far[:7], far
    graph = graphs.knn(far, 4, queries=far[:7])
    assert layer(x[:7], graph, context=x, positions=pair).dtype == dtype


BOX = trimesh.creation.box()
SPHERE = trimesh.creation.icosphere(subdivisions=3)


def of_mesh(mesh):
    return torch.tensor(mesh.vertices), torch.tensor(mesh.faces).long()


def test_square_and_bipartite_graphs_have_one_call():
    pos, queries = cloud(), cloud(7, 2)
    for graph, given in (
        (graphs.knn(pos, 4), None),
        (graphs.knn(pos, 4, queries=queries), queries),
    ):
        targets = pos if given is None else given
        offset = targets[graph.target] - pos[graph.source]
        assert torch.equal(relative_positions(graph, pos, given), offset)
        made = edge_geometry(graph, pos, given, features=("distance", "offset", "direction"))
        length = offset.norm(dim=1, keepdim=True)
        torch.testing.assert_close(made, torch.cat([length, offset, offset / length], 1))
    batch = torch.stack((pos, 2 * pos))
    graph = graphs.knn(pos, 4)
    assert torch.equal(relative_positions(graph, batch)[1], relative_positions(graph, 2 * pos))


def test_pairs_are_pygs_and_do_not_turn():
    pos, normal = cloud(), unit(23)
    graph = graphs.knn(pos, 5)
    made = edge_geometry(graph, pos, features=["pair"], normals=normal)
    wanted = PointPairFeatures()(Data(pos=pos, norm=normal, edge_index=graph.edge_index)).edge_attr
    torch.testing.assert_close(made, wanted, rtol=0, atol=1e-12)
    turn, words = rotation(), ("distance", "pair", "alignment", "frame")
    one = edge_geometry(graph, pos, features=words, normals=normal)
    other = edge_geometry(graph, pos @ turn.T, features=words, normals=normal @ turn.T)
    if torch.linalg.det(turn) < 0:  # a reflection exchanges one tangent
        other[:, -2] *= -1
    torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    flipped = edge_geometry(graph, pos, features=["alignment"], normals=-normal)
    torch.testing.assert_close(flipped, one[:, 5:8])


def test_features_of_points_at_one_place_have_gradients():
    pos = (
        cloud(5)
        .index_fill(0, torch.tensor([1]), 0)
        .index_fill(0, torch.tensor([2]), 0)
        .requires_grad_()
    )
    graph, normals = graphs.full(5), unit(5).requires_grad_()
    features = tuple(ga.nn.geometry.FEATURES.keys() - {"barycentric", "arc", "turn"})
    made = edge_geometry(graph, pos, features=features, normals=normals)
    for grad in torch.autograd.grad(made.square().sum(), (pos, normals)):
        assert bool(grad.isfinite().all())
        assert float(grad.abs().max()) > 0
    assert torch.autograd.gradcheck(
        lambda x: edge_geometry(graphs.knn(x, 2), x), cloud(4).requires_grad_()
    )


def test_frames_are_orthonormal_and_normals_of_a_plane_are_its_own():
    pos, normal = cloud(), unit(23)
    graph = graphs.knn(pos, 5)
    frames = local_frames(graph, pos, normal)
    torch.testing.assert_close(
        frames @ frames.mT, torch.eye(3).double().expand(23, 3, 3), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(frames[:, 2], normal)
    alone = local_frames(graphs.self_loops(23), pos, normal)  # nothing tells a tangent
    torch.testing.assert_close(
        alone @ alone.mT, torch.eye(3).double().expand(23, 3, 3), rtol=0, atol=1e-12
    )
    flat = pos * torch.tensor([1.0, 1.0, 0.0])
    normals, spread = local_pca(graphs.knn(flat, 6, self_loops=True), flat)
    torch.testing.assert_close(normals.abs(), torch.tensor([0.0, 0.0, 1.0]).double().expand(23, 3))
    torch.testing.assert_close(spread.square().sum(1), torch.ones(23).double())
    assert float(spread[:, 0].max()) < 1e-6
    assert float(local_pca(graphs.self_loops(23), pos)[1].max()) == 0


def test_mesh_edges_have_the_angles_of_trimesh_and_the_laplacian_of_a_plane():
    for mesh in (BOX, SPHERE):
        pos, faces = of_mesh(mesh)
        length, dihedral, _ = mesh_edge_geometry(pos, faces).unbind(1)
        ends = ga.shapes.mesh_edge_ends(faces)
        torch.testing.assert_close(length, (pos[ends[:, 0]] - pos[ends[:, 1]]).norm(dim=1))
        sides = zip(mesh.face_adjacency_edges.tolist(), mesh.face_adjacency_angles, strict=True)
        row = {tuple(sorted(edge)): angle for edge, angle in sides}
        wanted = torch.tensor([row[tuple(edge)] for edge in ends.tolist()])
        torch.testing.assert_close(dihedral, wanted, rtol=0, atol=1e-6)  # all ridges
        torch.testing.assert_close(mesh_edge_geometry(pos, faces.flip(1))[:, 1], -dihedral)
        normals = ga.nn.mesh_normals(pos, faces)
        assert float((normals * torch.nn.functional.normalize(pos, dim=1)).sum(1).min()) > 0.8
    grid = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0)).double()
    grid[5] += torch.tensor([0.2, -0.1])
    corner = torch.tensor([i * 4 + j for i in range(3) for j in range(3)])[:, None]
    faces = torch.cat((corner + torch.tensor([0, 4, 1]), corner + torch.tensor([1, 4, 5])))
    pos = torch.cat((grid, torch.zeros(16, 1)), 1).requires_grad_()
    graph = graphs.mesh_vertices(faces)
    made = mesh_edge_geometry(pos, faces, graph)
    assert float(made[:, 1].detach().abs().max()) < 1e-6
    inner = torch.tensor([5, 6, 9, 10])
    laplacian = (
        torch.zeros(16, 3)
        .double()
        .index_add(0, graph.target, made[:, 2:] * relative_positions(graph, pos))
    )
    assert float(laplacian.detach()[inner].abs().max()) < 1e-12  # of linear functions
    assert bool(torch.autograd.grad(made.sum(), pos)[0].isfinite().all())
    with_loops = mesh_edge_geometry(pos, faces, graph.with_self_loops())
    assert float(with_loops.detach().sum()) == pytest.approx(float(made.detach().sum()))


def test_a_mesh_of_a_plane_lies_in_space():
    plane = Delaunay(cloud()[:, :2])
    pos = torch.from_numpy(plane.points)
    faces = torch.from_numpy(plane.simplices).long()
    flat = torch.nn.functional.pad(pos, (0, 1))
    normals = ga.nn.mesh_normals(pos, faces)
    assert normals.unique(dim=0).tolist() == [[0, 0, 1]]  # counter-clockwise
    assert torch.equal(ga.nn.mesh_normals(pos, faces.flip(1)), -normals)
    assert torch.equal(mesh_edge_geometry(pos, faces), mesh_edge_geometry(flat, faces))
    start = torch.tensor([3])
    assert torch.equal(
        ga.nn.heat_distance(pos, faces, start), ga.nn.heat_distance(flat, faces, start)
    )
    for elements in ("vertices", "faces", "edges"):
        x, shape = ga.nn.mesh_elements(pos, faces, elements)
        of_flat, in_space = ga.nn.mesh_elements(flat, faces, elements)
        assert torch.equal(x, of_flat)
        assert torch.equal(shape.levels[0].pos, in_space.levels[0].pos)
    with pytest.raises(GraphAttnError, match="pos must have shape"):
        ga.nn.mesh_normals(pos[:, :1], faces)


def test_heat_reaches_a_sphere_by_great_circles():
    pos, faces = of_mesh(SPHERE)
    distance = ga.nn.heat_distance(pos, faces, torch.tensor([0]))
    wanted = (pos @ pos[0]).clamp(-1, 1).acos()
    assert float((distance - wanted).abs().max()) < 0.1
    assert float((distance - wanted).abs().mean()) < 0.03
    assert float(distance[0]) == 0
    two = torch.cat((pos, pos + 9)), torch.cat((faces, faces + len(pos)))
    far = ga.nn.heat_distance(*two, torch.tensor([0]))
    torch.testing.assert_close(far[: len(pos)], distance, rtol=0, atol=1e-6)
    assert bool(far[len(pos) :].isinf().all())


@pytest.mark.parametrize("how", ["mean", "max", "sum"])
def test_pooling_is_by_columns_of_the_mask(how):
    graph = graphs.radius(cloud(), 0.3, queries=cloud(9, 5))
    assert int(graph.in_degree.min()) == 0
    x, mask = torch.randn(2, 23, 5, dtype=torch.float64), graph.mask()
    found = ga.nn.pool(x, graph, how)
    for t in range(9):
        rows = x[:, mask[t]]
        wanted = (
            getattr(rows, {"max": "amax"}.get(how, how))(1)
            if mask[t].any()
            else torch.zeros(2, 5).double()
        )
        torch.testing.assert_close(found[:, t], wanted)


def test_interpolation_has_the_weights_of_the_bias():
    pos, queries, x = (
        cloud(),
        torch.cat((cloud(5, 2), cloud()[:2])),
        torch.randn(2, 23, 5, dtype=torch.float64),
    )
    graph = graphs.knn(pos, 3, queries=queries)
    bias = ga.nn.inverse_distance_bias(graph, pos, queries)
    weights = torch.zeros(7, 23).double().index_put((graph.target, graph.source), bias.exp())
    found = ga.nn.inverse_distance_interpolate(x, graph, pos, queries)
    torch.testing.assert_close(found, weights / weights.sum(1, keepdim=True) @ x)
    torch.testing.assert_close(found[:, 5:], x[:, :2])


def test_one_line_takes_positions_as_the_point_transformer_does():
    pos, queries, x, y = (
        cloud(),
        cloud(7, 2),
        torch.randn(23, 8).double(),
        torch.randn(7, 8).double(),
    )
    layer = ga.nn.GraphAttention(8, 8, edge_dim=3, score="subtraction").double()
    graph = graphs.knn(pos, 4)
    wanted = layer(x, graph, edge_attr=pos[graph.target] - pos[graph.source])
    torch.testing.assert_close(layer(x, graph, positions=pos), wanted)
    down = graphs.knn(pos, 4, queries=queries)
    wanted = layer(y, down, context=x, edge_attr=queries[down.target] - pos[down.source])
    torch.testing.assert_close(layer(y, down, context=x, positions=(queries, pos)), wanted)


def test_biases_of_places():
    pos = cloud().float()
    graph = graphs.knn(pos, 4)
    offset = pos[graph.target] - pos[graph.source]
    bias = ga.nn.OffsetBias(2)
    first, _, last = bias.mlp
    torch.testing.assert_close(
        bias(graph, pos), (offset @ first.weight.T + first.bias).relu() @ last.weight.T
    )
    contextual, (q, k) = (
        ga.nn.ContextualTable(2, 4, 3, step=0.1, values=True),
        torch.randn(2, 23, 2, 4),
    )
    steps = (offset / 0.1).floor().clamp(-3, 2).long() + 3
    of_query, of_key, of_value = (
        sum(own[axis, steps[:, axis]] for axis in range(3)) for own in contextual.parameters()
    )
    wanted = (q[graph.target] / 2 * of_query + k[graph.source] * of_key).sum(-1)
    torch.testing.assert_close(contextual(graph, q, k, pos), wanted)
    alpha = torch.rand(graph.num_edges, 2)
    wanted = torch.zeros(23, 2, 4).index_add(0, graph.target, alpha[..., None] * of_value)
    torch.testing.assert_close(contextual.averaged(graph, alpha, pos), wanted)
    waves = ga.nn.FourierFeatures(3, 4, sigma=2.0)
    angle = 2 * math.pi * pos @ waves.frequencies.T
    torch.testing.assert_close(waves(pos), torch.cat((angle.sin(), angle.cos()), 1))
    layer, x = ga.nn.GraphAttention(8, 2), torch.randn(23, 8)
    layer(x, graph, score_bias=bias(graph, pos)).sum().backward()
    assert float(first.weight.grad.abs().max()) > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda pos, graph: relative_positions(graph, pos[:5]),
            r"pos must have shape \(..., 23, axes\), got a Tensor \(5, 3\)",
        ),
        (
            lambda pos, graph: relative_positions(graphs.cross(5, 23), pos),
            r"pos must have shape \(..., 5, axes\), got a Tensor \(23, 3\)",
        ),
        (
            lambda pos, graph: edge_geometry(graph, pos, features=["pear"]),
            'features must be "offset"',
        ),
        (lambda pos, graph: edge_geometry(graph, pos, features=["pair"]), "need normals"),
        (lambda pos, graph: mesh_edge_geometry(pos, [(0, 1, 2, 3)]), "faces must be triangles"),
        (
            lambda pos, graph: mesh_edge_geometry(pos, [(0, 1, 2)], graph),
            "has an edge .* that is not in the mesh",
        ),
        (
            lambda pos, graph: ga.nn.heat_distance(pos, [(0, 1, 2)], [23]),
            r"start must be in \[0, 23\), the vertices, got 23 to 23",
        ),
        (
            lambda pos, graph: ga.nn.pool(pos[:5], graph),
            r"x must have shape \(..., 23, C\), got a Tensor \(5, 3\)",
        ),
        (
            lambda pos, graph: ga.nn.OffsetBias(2, axes=2)(graph, pos),
            r"pos must have shape \(..., 2\), got a Tensor \(23, 3\)",
        ),
    ],
)
def test_refusals(make, message):
    pos = cloud()
    with pytest.raises(GraphAttnError, match=message):
        make(pos, graphs.knn(pos, 3))


@pytest.mark.parametrize("rotary", [True, False])
def test_a_pair_of_positions_has_the_order_of_the_pair_x(rotary):
    """PyG's (sources, targets); beside a context, which is given after x, (targets, sources)."""
    torch.manual_seed(0)
    sources, targets, of_sources, of_targets = (torch.randn(5, n) for n in (8, 8, 2, 2))
    graph = graphs.full(5)
    options = {"rotary": ga.nn.Rotary(8, num_axes=2)} if rotary else {"edge_dim": 2}
    layer = ga.nn.GraphAttention(8, 1, **options)
    as_pair = layer((sources, targets), graph, positions=(of_sources, of_targets))
    expected = layer(targets, graph, context=sources, positions=(of_targets, of_sources))
    assert torch.equal(as_pair, expected)
    swapped = layer((sources, targets), graph, positions=(of_targets, of_sources))
    assert not torch.allclose(swapped, expected)
    for wrong in ((of_sources,), (of_sources, of_targets, of_targets), ()):
        with pytest.raises(
            ga.errors.ShapeError, match="positions must be a tensor or a pair of tensors"
        ):
            layer((sources, targets), graph, positions=wrong)
