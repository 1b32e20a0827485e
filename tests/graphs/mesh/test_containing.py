"""The cell that contains a query, beside scipy's search in a triangulation."""

import numpy as np
import pytest
import torch
from scipy.spatial import Delaunay

import graphattn as ga
from graphattn import disjoint_union
from graphattn.errors import GraphError, GraphIndexError, OptionError
from graphattn.graphs import containing, hierarchy, icosphere, knn, on_sphere, radius
from graphattn.graphs.mesh.containing import closest


def triangulated(axes, num_points, seed=0):
    rng = np.random.default_rng(seed)
    pos = rng.random((num_points, axes))
    return torch.from_numpy(pos), Delaunay(pos)


@pytest.mark.parametrize("axes", [2, 3])
def test_the_cell_of_scipy(axes):
    pos, mesh = triangulated(axes, 60)
    queries = torch.rand(200, axes, generator=torch.Generator().manual_seed(1)).double()
    inside = torch.from_numpy(mesh.find_simplex(queries.numpy())) >= 0
    cells = torch.from_numpy(mesh.simplices).long()
    with pytest.warns(UserWarning, match=f"{int((~inside).sum())} of 200 queries lie outside"):
        graph = containing(pos, cells, queries=queries)
    wanted = cells[torch.from_numpy(mesh.find_simplex(queries.numpy())).long()]
    corners = graph.source.view(200, -1)
    assert torch.equal(corners[inside], wanted[inside])
    weights = ga.nn.edge_geometry(graph, pos, queries, features=("barycentric",))
    place = (weights * pos[graph.source]).view(200, -1, axes).sum(1)
    torch.testing.assert_close(place[inside], queries[inside], atol=1e-12, rtol=0)
    assert bool((weights >= 0).all())
    # a linear function is interpolated exactly; with another corner it is not
    linear = pos @ torch.arange(1.0, axes + 1, dtype=torch.float64)
    values = (weights[:, 0] * linear[graph.source]).view(200, -1).sum(1)
    wrong = (weights[:, 0] * linear[graph.source.roll(1)]).view(200, -1).sum(1)
    exact = queries @ torch.arange(1.0, axes + 1, dtype=torch.float64)
    assert float((values - exact)[inside].abs().max()) < 1e-12
    assert float((wrong - exact)[inside].abs().max()) > 0.01


def test_the_nearest_cell_of_all_of_a_surface():
    generator = torch.Generator().manual_seed(2)
    pos = torch.randn(30, 3, generator=generator).double()
    faces = torch.randint(0, 30, (50, 3), generator=generator)  # some without extent
    queries = torch.randn(40, 3, generator=generator).double()
    every = pos[faces].repeat(40, 1, 1)
    distance = closest(every, queries.repeat_interleave(50, 0))[1].view(40, 50)
    graph = containing(pos, faces, queries=queries)
    found = graph.source.view(40, 3)
    own = closest(pos[found], queries)[1]
    torch.testing.assert_close(own, distance.amin(1), atol=1e-12, rtol=0)


def test_the_nearest_point_of_a_cell_is_no_farther_than_any_other():
    generator = torch.Generator().manual_seed(3)
    corners = torch.randn(20, 4, 3, generator=generator).double()
    query = 2 * torch.randn(20, 3, generator=generator).double()
    weights, squared = closest(corners, query)
    shares = torch.distributions.Dirichlet(torch.full((4,), 0.5)).sample((500, 20)).double()
    others = ((shares[..., None] * corners).sum(2) - query).square().sum(-1)
    assert bool((others >= squared - 1e-12).all())
    assert torch.allclose(weights.sum(1), torch.ones(20).double())
    inputs = (corners[:5].requires_grad_(), query[:5].requires_grad_())
    assert torch.autograd.gradcheck(lambda c, q: closest(c, q), inputs)


def test_every_query_reads_its_own_mesh():
    pos, mesh = triangulated(2, 20)
    cells = torch.from_numpy(mesh.simplices).long()
    queries = pos[:4] * 0.9 + 0.05
    alone = containing(pos, cells, queries=queries)
    batch = torch.arange(2)
    both = containing(
        pos.repeat(2, 1),
        torch.cat((cells, cells + 20)),
        queries=queries.repeat(2, 1),
        batch=batch.repeat_interleave(20),
        queries_batch=batch.repeat_interleave(4),
    )
    assert both.equals(disjoint_union([alone, alone]))


def test_a_query_far_away_reads_the_cell_at_the_border():
    pos, mesh = triangulated(2, 20)
    cells = torch.from_numpy(mesh.simplices).long()
    with pytest.warns(UserWarning, match="1 of 1 queries"):
        graph = containing(pos, cells, queries=torch.tensor([[1e9, 0.5]]).double())
    assert int(pos[:, 0].argmax()) in graph.source.tolist()


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"faces": torch.tensor([[0, 1]])}, GraphError, r"triangles \(F, 3\)"),
        (
            {"faces": torch.tensor([[0, 1, 2, 3]])},
            GraphError,
            r"tetrahedra \(F, 4\) of pos \(N, 3\)",
        ),
        (
            {"faces": torch.tensor([[0, 1, 7]])},
            GraphIndexError,
            r"faces must be in \[0, 4\), the vertices, got 0 to 7",
        ),
        ({"faces": torch.zeros(0, 3).long()}, GraphError, "none in mesh 0"),
        ({"queries": None}, GraphError, "needs queries"),
    ],
)
def test_bad_meshes(changed, error, message):
    given = {"pos": torch.rand(4, 2), "faces": torch.tensor([[0, 1, 2]])}
    given |= {"queries": torch.rand(2, 2), **changed}
    with pytest.raises(error, match=message):
        containing(**given)


def test_barycentric_weights_are_of_cells():
    pos = torch.rand(9, 2)
    with pytest.raises(OptionError, match=r"graphs\.containing"):
        ga.nn.edge_geometry(knn(pos, 2), pos, features=("barycentric",))


def test_the_graphs_of_graphcast():
    """From the grid within .6 of the longest edge of the mesh, back from the triangle around."""
    mesh = ga.shapes.icosphere_mesh(1)
    ring = icosphere(1, multimesh=False)
    longest = float((mesh.pos[ring.source] - mesh.pos[ring.target]).norm(dim=1).max())
    lat, lon = torch.linspace(-90, 90, 10), torch.arange(0, 360, 20.0)
    grid = on_sphere(*torch.meshgrid(lat, lon, indexing="ij"))
    levels = hierarchy(
        grid,
        coarse=(mesh.pos, icosphere(1)),
        graph=knn(..., 4),
        down=radius(..., 0.6 * longest),
        up=containing(..., mesh.faces),
    ).levels
    near = torch.cdist(mesh.pos, grid) <= 0.6 * longest
    assert torch.equal(levels[1].down.mask(), near)
    assert levels[1].graph.equals(icosphere(1))
    every = mesh.pos[mesh.faces].repeat(len(grid), 1, 1)
    distance = closest(every, grid.repeat_interleave(len(mesh.faces), 0))[1]
    best = distance.view(len(grid), -1).argmin(1)
    assert torch.equal(levels[1].up.source.view(-1, 3)[:, 0], mesh.faces[best][:, 0])


def test_points_that_read_none_are_counted():
    mesh = ga.shapes.icosphere_mesh(2)
    grid = mesh.pos[:12].flip(1)
    coarse = (mesh.pos, icosphere(2))
    with pytest.warns(UserWarning, match=r"^some points read none by down=radius\(r=0.3\)"):
        levels = hierarchy(grid, coarse=coarse, graph=knn(..., 4), down=radius(..., 0.3)).levels
    assert int(levels[1].down.in_degree.min()) == 0 < int(levels[1].up.in_degree.min())


def test_coarse_points_of_two_clouds():
    pos = torch.rand(20, 2)
    batch = torch.arange(2).repeat_interleave(10)
    coarse = (torch.rand(4, 2), ga.graphs.full(4))
    shape = hierarchy(pos, batch, coarse=coarse, graph=knn(..., 3), up=knn(..., 2))
    assert len(shape.levels[1].pos) == 8
    assert shape.levels[1].graph.equals(disjoint_union([coarse[1]] * 2))
    assert torch.equal(shape.levels[1].batch, torch.arange(2).repeat_interleave(4))
