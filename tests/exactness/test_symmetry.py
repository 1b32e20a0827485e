"""``verify(symmetry=...)``: symmetric models pass, and what breaks another is named."""

import json

import pytest
import torch
from torch import nn
from torch_geometric.nn import LSTMAggregation, MessagePassing, PointNetConv, PPFConv
from torch_geometric.nn.models import dimenet, visnet
from torch_geometric.nn.models.schnet import SchNet

import graphattn as ga
from graphattn.errors import ExactnessError, GraphError, OptionError, ShapeError

N = 13
CELL = torch.tensor([[3.1, 0.2, 0.0], [-0.4, 2.9, 0.3], [0.1, 0.5, 3.3]], dtype=torch.float64)
MOTIONS = ("rotations", "reflections", "translations")


def points(number=N, axes=3, seed=0):
    return torch.randn(
        number, axes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def lattice(side=3):
    return torch.cartesian_prod(*[torch.arange(side, dtype=torch.float64)] * 3)


def near(graph, pos):
    """Numbers of nodes, of distances alone."""
    d = ga.nn.edge_geometry(graph, pos, features=("distance",))
    return pos.new_zeros(len(pos)).index_add(0, graph.target, torch.exp(-d[:, 0]))


def causes(report):
    """Kind and input of each cause, by symmetry."""
    return {name: (cause.kind, cause.input) for cause in report.causes for name in cause.symmetries}


@pytest.mark.sample(3)
@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("graph", [ga.graphs.knn(..., k=4), lambda pos: ga.graphs.radius(pos, 1.7)])
def test_a_model_of_distances_holds_all(graph, axes):
    report = ga.verify(near, graph, pos=points(axes=axes), symmetry="all")
    assert report.ok
    assert report.causes == ()
    assert {row.symmetry for row in report.rows} == {*MOTIONS, "permutations"}
    assert "SYMMETRIC" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["ok"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("pbc", [(True, True, True), (True, False, True)])
def test_a_crystal_holds_all_through_several_images(fixed, pbc):
    pos = points(5) * 2
    graph = ga.graphs.radius(..., r=3.5, pbc=pbc)
    if fixed:
        graph = graph(pos, cell=CELL)
        assert graph.has_repeated_edges
    report = ga.verify(near, graph, pos=pos, cell=CELL, pbc=pbc, symmetry="all")
    assert report.ok
    cases = {row.case for row in report.rows if row.symmetry == "cells"}
    assert len(cases) == 3


@pytest.mark.parametrize("weight", [1e-8, 0.3])
def test_a_planted_absolute_coordinate_is_named(weight):
    def planted(graph, pos):
        return near(graph, pos) + weight * pos[:, 1]

    report = ga.verify(planted, ga.graphs.knn(..., k=5), pos=points(), symmetry="all")
    assert report.broken == MOTIONS
    assert causes(report)["translations"] == ("coordinates", "pos[:, 1]")
    assert causes(report)["rotations"] == ("directions", "pos[:, 1]")
    broken = [row.error for row in report.rows if row.symmetry == "translations"]
    assert 0.1 * weight < broken[0] < 20 * weight


def test_coordinates_among_features_are_named():
    pos = points()
    x = torch.cat((points(axes=2, seed=1), 3 * pos), 1)

    def model(x, graph, pos):
        return near(graph, pos) * torch.sigmoid(x).sum(1)

    report = ga.verify(model, ga.graphs.knn(pos, 4), pos=pos, x=x, symmetry="all")
    assert {cause.input for cause in report.causes} == {"x[:, 2:5]"}
    assert report.broken == MOTIONS
    assert "x[:, 2:5] are coordinates" in report.notes[0]
    centred = torch.cat((points(axes=2, seed=1), pos - pos.mean(0)), 1)
    report = ga.verify(model, ga.graphs.knn(pos, 4), pos=pos, x=centred, symmetry="all")
    assert report.broken == ("rotations", "reflections")


def test_labels_that_happen_to_follow_an_axis_are_no_coordinates():
    pos = lattice(2)
    kind = pos[:, :1].clone()

    def model(x, graph, pos):
        return near(graph, pos) * (1 + x[:, 0])

    assert ga.verify(model, ga.graphs.full(8), pos=pos, x=kind, symmetry="all").ok


def test_vectors_of_edges_are_vectors_of_a_name():
    pos = points()
    graph = ga.graphs.knn(pos, 4)
    vectors = ga.nn.relative_positions(graph, pos)

    def model(edge_attr, graph, pos):
        length = edge_attr.norm(dim=1)
        return pos.new_zeros(len(pos)).index_add(0, graph.target, torch.exp(-length))

    options = {"pos": pos, "symmetry": "all", "edge_attr": vectors}
    assert ga.verify(model, graph, vectors=["edge_attr"], **options).ok

    def first(edge_attr, graph, pos):
        return pos.new_zeros(len(pos)).index_add(0, graph.target, torch.exp(edge_attr[:, 0]))

    report = ga.verify(first, graph, **options)
    assert report.broken == ("rotations", "reflections")
    assert causes(report)["rotations"] == ("features", "edge_attr[:, 0:3]")


def test_an_input_that_turns_is_found():
    pos = points()
    velocity = points(seed=2)

    def model(v, graph, pos):
        d = ga.nn.relative_positions(graph, pos)
        along = (d * v[graph.source, -3:]).sum(1)
        return pos.new_zeros(len(pos)).index_add(0, graph.target, torch.tanh(along))

    graph = ga.graphs.knn(pos, 4)
    options = {"pos": pos, "symmetry": ["rotations", "reflections"]}
    assert ga.verify(model, graph, v=velocity, vectors="v", **options).ok
    report = ga.verify(model, graph, v=velocity, **options)
    assert causes(report)["rotations"] == ("features", "v")
    assert 'vectors=("v",)' in str(report)
    wide = torch.cat((points(axes=2, seed=3), velocity), 1)
    report = ga.verify(model, graph, v=wide, **options)
    assert causes(report)["rotations"] == ("features", "v[:, 2:5]")


def test_components_of_a_vector_input_are_found():
    def model(v, graph, pos):
        return near(graph, pos) + v[:, 0] ** 2

    report = ga.verify(
        model, ga.graphs.knn(points(), 4), pos=points(), v=points(seed=3), vectors="v",
        symmetry="rotations",
    )  # fmt: skip
    assert causes(report)["rotations"] == ("directions", "v")


def forces(graph, pos):
    pos = pos.detach().requires_grad_()
    return torch.autograd.grad(near(graph, pos).sum(), pos)[0]


def test_outputs_have_kinds():
    def model(graph, pos):
        energy = near(graph, pos)
        push = forces(graph, pos)
        return {
            "energy": energy.sum(),
            "atoms": energy,
            "forces": push,
            "moved": pos + push,
            "dipole": (energy[:, None] * (pos - pos.mean(0))).mean(0),
            "order": torch.arange(len(pos)),
        }

    kinds = {
        "energy": "scalar",
        "atoms": "scalars",
        "forces": "vectors",
        "moved": "points",
        "dipole": "vector",
        "order": None,
    }
    recipe = ga.graphs.knn(..., k=4)
    assert ga.verify(model, recipe, pos=points(), symmetry="all", output=kinds).ok
    report = ga.verify(forces, recipe, pos=points(), symmetry="rotations")
    assert causes(report)["rotations"] == ("output", "output")
    assert 'output="vectors"' in str(report)
    report = ga.verify(near, recipe, pos=points(), symmetry="permutations", output="scalar")
    assert 'output="scalars"' in report.causes[0].words


def test_ties_among_neighbours_are_named():
    def middle(graph, pos):
        shift = pos[graph.source] - pos[graph.target]
        return pos.new_zeros(len(pos), 3).index_add(0, graph.target, shift).norm(dim=1)

    report = ga.verify(middle, ga.graphs.knn(..., k=4), pos=lattice(), symmetry="permutations")
    assert causes(report)["permutations"] == ("ties", "graph")
    assert "edges are others" in str(report)

    def inside(pos):
        return middle(ga.graphs.knn(pos, 4), pos)

    report = ga.verify(inside, pos=lattice(), symmetry="permutations")
    assert causes(report)["permutations"] == ("ties", "pos")


def test_a_builder_that_reads_coordinates_is_named():
    def boxes(pos):
        return ga.graphs.radius(pos * torch.tensor([1.0, 1.0, 3.0], dtype=pos.dtype), 2.0)

    report = ga.verify(near, boxes, pos=points(), symmetry="all")
    assert report.broken == ("rotations", "reflections")
    assert causes(report)["rotations"] == ("graph", "graph")


def test_frames_with_a_sign_of_chance_are_named():
    def model(pos):
        centred = pos - pos.mean(0)
        _, axes = torch.linalg.eigh(centred.T @ centred)
        flip = axes.gather(0, axes.abs().argmax(0)[None]).sign()
        return torch.tanh(centred @ (axes * flip)).sum(1)

    report = ga.verify(model, pos=points(seed=4), symmetry=["rotations", "translations"])
    assert report.broken == ("rotations",)
    assert causes(report)["rotations"] == ("frames", "pos")


@pytest.mark.slow
def test_handedness_is_named():
    def model(graph, pos):
        d = ga.nn.relative_positions(graph, pos).reshape(len(pos), 4, 3)
        return torch.linalg.det(d[:, :3])

    report = ga.verify(model, ga.graphs.knn(..., k=4), pos=points(), symmetry=MOTIONS)
    assert report.broken == ("reflections",)
    assert causes(report)["reflections"] == ("handedness", "pos")
    assert "changes its sign" in str(report)
    with_one = ga.verify(
        lambda graph, pos: near(graph, pos) + model(graph, pos),
        ga.graphs.knn(..., k=4),
        pos=points(),
        symmetry="reflections",
    )
    assert "mirror image" in str(with_one)


def test_chance_is_named_before_all_else():
    layer = nn.Dropout()
    report = ga.verify(
        lambda graph, pos: layer(near(graph, pos)),
        ga.graphs.knn(..., k=4),
        pos=points(),
        symmetry="all",
    )
    assert [cause.kind for cause in report.causes] == ["chance"]
    assert "eval()" in str(report)


def test_the_order_of_nodes_and_of_edges_is_told_apart():
    graph = ga.graphs.knn(points(), 4)

    def nodes(graph, pos):
        return near(graph, pos) * torch.arange(len(pos))

    report = ga.verify(nodes, graph, pos=points(), symmetry="permutations")
    assert causes(report)["permutations"] == ("order", "nodes")
    aggregate = LSTMAggregation(1, 1).double()

    def edges(edge_index, pos):
        source, target = edge_index
        length = (pos[source] - pos[target]).norm(dim=1, keepdim=True)
        order = torch.argsort(target, stable=True)
        return aggregate(length[order], target[order], dim_size=len(pos))

    report = ga.verify(edges, graph, pos=points(), symmetry="permutations")
    assert causes(report)["permutations"] == ("order", "edge_index")


def test_mistakes_with_cells_are_told_apart():
    pos = points(5) * 2
    graph = ga.graphs.radius(..., r=2.5)

    def without_images(graph, pos):
        d = (pos[graph.source] - pos[graph.target]).norm(dim=1)
        return pos.new_zeros(len(pos)).index_add(0, graph.target, torch.exp(-d))

    options = {"pos": pos, "cell": CELL, "symmetry": "cells"}
    report = ga.verify(without_images, graph, **options)
    assert ("cell", "pos") in [(cause.kind, cause.input) for cause in report.causes]
    report = ga.verify(near, lambda pos: ga.graphs.radius(pos, 2.5), **options)
    assert causes(report)["cells"] == ("graph", "graph")
    report = ga.verify(lambda graph, pos, cell: near(graph, pos) + cell[0, 0], graph, **options)
    assert "cell" in [cause.input for cause in report.causes]
    report = ga.verify(lambda graph, pos: near(graph, pos) / len(pos), graph, **options)
    assert [cause.input for cause in report.causes] == ["size of the cell"]
    total = ga.verify(lambda graph, pos: near(graph, pos).sum(), graph, output="scalar", **options)
    mean = ga.verify(lambda graph, pos: near(graph, pos).mean(), graph, output="scalar", **options)
    assert total.ok
    assert mean.ok


def test_the_cell_turns_with_the_positions():
    """Left as it was, it breaks any model (equiformer_v2, issue 5)."""
    graph = ga.graphs.radius(..., r=2.5)
    pos = points(5) * 2
    assert ga.verify(near, graph, pos=pos, cell=CELL, symmetry="rotations").ok
    kept = ga.verify(
        near,
        lambda pos: ga.graphs.radius(pos, 2.5, cell=CELL),
        pos=pos,
        cell=CELL,
        symmetry="rotations",
    )
    assert causes(kept)["rotations"] == ("graph", "graph")


def test_forces_that_vanish_by_symmetry_are_measured_beside_those_of_moved_points():
    cell = 3 * torch.eye(3, dtype=torch.float64)
    recipe = ga.graphs.radius(..., r=1.2)
    assert ga.verify(forces, recipe, pos=lattice(), cell=cell, symmetry="all", output="vectors").ok


def test_a_model_may_change_what_it_gets():
    pos = points()

    def model(graph, pos, x):
        pos.requires_grad_()
        x += 1
        (slope,) = torch.autograd.grad(near(graph, pos).sum(), pos)
        return slope * x

    x = torch.ones(N, 1, dtype=torch.float64)
    report = ga.verify(
        model, ga.graphs.knn(..., k=4), pos=pos, x=x, symmetry="all", output="vectors"
    )
    assert report.ok
    assert bool((x == 1).all())
    assert not pos.requires_grad


def test_clouds_of_a_batch_stay_sorted():
    def model(batch, graph, pos):
        assert bool((batch[1:] >= batch[:-1]).all())
        return pos.new_zeros(2).index_add(0, batch, near(graph, pos))

    batch = torch.tensor([0] * 6 + [1] * 7)
    assert ga.verify(
        model, ga.graphs.knn(..., k=3), pos=points(), batch=batch, symmetry="all", output="scalar"
    ).ok


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (torch.zeros(4, dtype=torch.int64), r"batch must have shape \(13,\), got a Tensor \(4,\)"),
        (torch.zeros(N), r"output must have shape \(13, ...\), got a Tensor \(\)"),
        (torch.full((N,), -1), "got -1 to -1"),
    ],
)
def test_a_batch_numbers_the_structure_of_each_point(batch, words):
    with pytest.raises(ShapeError, match=words):
        ga.verify(lambda pos, batch: pos.norm(), pos=points(), batch=batch, symmetry="all")


@pytest.mark.parametrize("reads", ["distances", "components"])
def test_a_crystal_of_one_atom_depends_on_its_cell(reads):
    def model(graph, pos, cell):
        if reads == "components":
            return near(graph, pos) * cell[0, 1]
        return near(graph, pos)

    report = ga.verify(
        model, ga.graphs.radius(..., r=3.5), pos=points(1), cell=CELL, symmetry="all"
    )
    assert report.untested == ()
    assert report.ok == (reads == "distances")


def test_crystals_of_a_batch_turn_and_permute():
    cells = torch.stack((CELL, CELL * 1.3))
    pos = points(11) * 2
    batch = torch.tensor([0] * 4 + [1] * 7)
    graph = ga.graphs.radius(pos, 2.3, batch=batch, cell=cells)
    report = ga.verify(
        lambda graph, pos, batch: near(graph, pos),
        graph,
        pos=pos,
        cell=cells,
        batch=batch,
        symmetry=[*MOTIONS, "permutations"],
    )
    assert report.ok
    with pytest.raises(OptionError, match="on one structure with one cell"):
        ga.verify(near, graph, pos=pos, cell=cells, symmetry="cells")


@pytest.mark.parametrize("mixed", [True, False])
def test_structures_that_a_batch_mixes_are_found(mixed):
    """All of them may move as one, and each alone."""
    batch = torch.tensor([0] * 6 + [1] * 4 + [2] * 3)

    def centred(pos, batch):
        if mixed:
            return (pos - pos.mean(0)).norm(dim=1), pos
        sums = pos.new_zeros(3, pos.shape[1]).index_add(0, batch, pos)
        means = sums / batch.bincount()[:, None]
        return (pos - means[batch]).norm(dim=1), pos[:, None, :]

    report = ga.verify(
        centred, pos=points(), batch=batch, symmetry="translations", output=["scalars", "points"]
    )
    assert report.ok != mixed
    if mixed:
        assert causes(report) == {"translations": ("batch", "batch")}


def test_half_the_precision_is_said():
    report = ga.verify(near, ga.graphs.knn(..., k=4), pos=points().float(), symmetry="all")
    assert report.ok
    assert report.rows[0].bound == 1e-4
    assert "model.double()" in str(report)


def test_an_output_that_ignores_positions_is_not_passed():
    """As that of a DimeNet++ at its start, whose last matrix is 0."""
    report = ga.verify(lambda pos: pos.norm() * 0, pos=points(), symmetry="all", output="scalar")
    assert not report.ok
    assert "NOTHING TESTED" in str(report)
    steps = ga.verify(
        lambda pos: torch.pdist(pos).sum().round(), pos=points(), symmetry="all", output="scalar"
    )
    assert steps.ok


def test_an_output_that_ignores_positions_is_named_beside_another():
    report = ga.verify(
        lambda pos: (torch.pdist(pos).sum(), torch.zeros_like(pos)),
        pos=points(),
        symmetry="all",
        output=["scalar", "vectors"],
    )
    assert not report.ok
    assert report.untested == ("output[1]",)
    assert "NOTHING TESTED of output[1]" in str(report)


@pytest.mark.parametrize(("dtype", "offset"), [(torch.float32, 1e5), (torch.float64, 1e11)])
def test_a_break_beside_a_large_constant_is_not_passed(dtype, offset):
    """As total energies, beside which what positions change is within the limit."""
    report = ga.verify(lambda pos: offset + pos[:, 0], pos=points().to(dtype), symmetry=MOTIONS)
    assert all(row.ok for row in report.rows)
    assert not report.ok


@pytest.mark.parametrize("some", [True, False])
def test_nan_is_no_symmetry_and_no_chance(some):
    def model(pos):
        result = pos.norm(dim=1)
        if some:
            return torch.cat((result[:-1], result[-1:] * torch.nan))
        return result * torch.nan

    report = ga.verify(model, pos=points(), symmetry="all")
    assert not report.ok
    (cause,) = report.causes
    assert (cause.kind, cause.input) == ("output", "output")
    assert "NaN" in cause.words


def test_a_buffer_that_is_filled_anew_is_read_before():
    buffer = torch.zeros(N, dtype=torch.float64)
    report = ga.verify(lambda pos: buffer.copy_(pos[:, 0]), pos=points(), symmetry="all")
    assert report.broken == MOTIONS


def test_float32_within_a_model_is_rounding():
    report = ga.verify(
        lambda graph, pos: near(graph, pos.float()),
        ga.graphs.knn(points(), 4),
        pos=points(),
        symmetry=MOTIONS,
    )
    assert report.ok
    assert report.rows[0].bound == 1e-4
    assert "limit of float32" in str(report)


def test_points_far_from_the_origin_are_rounded():
    """As coordinates of a map."""
    pos = points() + torch.tensor([5e5, 5e6, 100.0])
    report = ga.verify(near, ga.graphs.knn(pos, 4), pos=pos, symmetry="all")
    assert report.ok
    assert 1e-10 < report.rows[0].bound < 1e-6
    assert "verify pos - pos.mean(0)" in str(report)
    planted = ga.verify(lambda pos: torch.sin(pos[:, 1]), pos=pos, symmetry="all")
    assert planted.broken == MOTIONS


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(15, 21))
def test_a_sign_of_chance_is_seen_whatever_the_seed(seed):
    """Three rotations kept it with seeds 16, 17 and 18."""

    def model(pos):
        centred = pos - pos.mean(0)
        frame = torch.linalg.eigh(centred.T @ centred)[1]
        return centred @ frame[:, 2]

    assert not ga.verify(model, pos=points(11), symmetry="rotations", seed=seed).ok


def test_points_in_a_plane_do_not_show_handedness():
    flat = points()
    flat[:, 2] = 0

    def volume(pos):
        return torch.pdist(pos).sum() + torch.linalg.det(pos[:3] - pos[3])

    report = ga.verify(volume, pos=flat, symmetry="all", output="scalar")
    assert "handedness is not seen" in str(report)
    assert "handedness" not in str(
        ga.verify(volume, pos=points(), symmetry="rotations", output="scalar")
    )


class Normed(nn.Module):
    """Batch norm of distances, with a gradient inside."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(1, dtype=torch.float64)

    def forward(self, pos):
        result = self.norm(torch.cdist(pos, pos).sum(1, keepdim=True))
        (result**2).sum().backward(retain_graph=True)
        return result


@pytest.mark.slow
def test_a_module_is_left_as_it_was():
    model = Normed()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    assert ga.verify(model, pos=points(), symmetry="all").ok
    assert model.training
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert model.norm.weight.grad is None


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda m: torch.compile(m, backend="eager")])
def test_the_model_within_a_wrapper_says_what_it_takes(wrap):
    class Sums(nn.Module):
        def forward(self, pos):
            return (pos - pos.mean(0)).norm(dim=1)

    assert ga.verify(wrap(Sums()), pos=points(), symmetry="all").ok


def test_a_model_without_a_signature_is_to_be_wrapped():
    model = torch.jit.trace(nn.Softmax(1), (points(),))
    with pytest.raises(OptionError, match="wrap it: lambda pos"):
        ga.verify(model, pos=points(), symmetry="all")


@pytest.mark.parametrize("pack", [lambda x: (x,), lambda x: {"energy": x}])
def test_one_output_in_a_tuple_or_dict_has_the_one_kind(pack):
    report = ga.verify(
        lambda pos: pack(torch.pdist(pos).sum()), pos=points(), symmetry="all", output="scalar"
    )
    assert report.ok


def test_rows_of_edges_of_a_ring_are_not_taken_for_rows_of_nodes():
    ring = ga.from_edge_index(
        torch.stack((torch.arange(N), torch.arange(1, N + 1) % N)), num_nodes=N
    )
    weight = torch.rand(N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def model(graph, pos, edge_weight):
        length = ga.nn.relative_positions(graph, pos).norm(dim=1)
        return pos.new_zeros(N).index_add(0, graph.target, edge_weight * length)

    assert ga.verify(model, ring, pos=points(), symmetry="all", edge_weight=weight).ok


def test_a_model_that_raises_on_a_moved_structure_is_reported():
    def model(graph, pos):
        if len(pos) > 5:
            raise RuntimeError("five atoms only")
        return near(graph, pos)

    report = ga.verify(
        model, ga.graphs.radius(..., r=2.5), pos=points(5) * 2, cell=CELL, symmetry="cells"
    )
    assert not report.ok
    assert "five atoms only" in str(report)
    with pytest.raises(ExactnessError, match="NOT SYMMETRIC"):
        ga.assert_exact(
            model, ga.graphs.radius(..., r=2.5), pos=points(5) * 2, cell=CELL, symmetry="cells"
        )


# --- models of PyG


def all_pairs(pos, batch):
    edge_index = ga.graphs.full(len(pos)).without_self_loops().edge_index
    return edge_index, (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=1)


@pytest.mark.slow
def test_schnet_of_pyg_is_symmetric():
    torch.manual_seed(0)
    model = SchNet(
        hidden_channels=8, num_filters=8, num_interactions=2, num_gaussians=7,
        interaction_graph=all_pairs,
    ).double()  # fmt: skip
    z = torch.randint(1, 9, (N,), generator=torch.Generator().manual_seed(1))
    report = ga.verify(model, pos=points(), z=z, symmetry="all", output="scalar")
    assert report.ok
    assert report.worst.error < 1e-12
    assert report.subject == "SchNet"


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def radius_graph(pos, r, batch=None, loop=False, max_num_neighbors=32, **options):
    """What PyG takes from torch_cluster, which need not be installed."""
    return ga.graphs.radius(pos.detach(), r, batch=batch, self_loops=loop).edge_index


def triplets(edge_index, num_nodes):
    """Pairs of edges k -> j -> i, which PyG takes from torch_sparse."""
    source, target = edge_index
    meet = (target[:, None] == source) & (source[:, None] != target)
    first, second = torch.nonzero(meet).unbind(1)
    k, j, i = source[first], source[second], target[second]
    return target, source, i, j, k, first, second


@pytest.mark.slow
def test_vectors_and_forces_of_visnet_of_pyg_turn(double, monkeypatch):
    monkeypatch.setattr(visnet, "radius_graph", radius_graph)
    torch.manual_seed(0)
    model = visnet.ViSNet(
        num_heads=2, num_layers=2, hidden_channels=8, num_rbf=6, cutoff=3.0, derivative=True
    )
    z = torch.randint(1, 9, (N,), generator=torch.Generator().manual_seed(1))
    batch = torch.zeros(N, dtype=torch.int64)
    options = {"pos": points(), "z": z, "batch": batch, "symmetry": "all"}
    assert ga.verify(model, output=["scalar", "vectors"], **options).ok
    report = ga.verify(model, output=["scalar", "scalars"], **options)
    assert causes(report)["rotations"] == ("output", "output[1]")


@pytest.mark.slow
def test_angles_of_dimenet_of_pyg_are_invariant(double, monkeypatch):
    monkeypatch.setattr(dimenet, "radius_graph", radius_graph)
    monkeypatch.setattr(dimenet, "triplets", triplets)
    torch.manual_seed(0)
    options = {"hidden_channels": 8, "out_channels": 1, "num_blocks": 1, "int_emb_size": 4}
    options |= {"basis_emb_size": 4, "out_emb_channels": 8, "num_spherical": 2, "num_radial": 3}
    model = dimenet.DimeNetPlusPlus(cutoff=3.0, output_initializer="glorot_orthogonal", **options)
    z = torch.randint(1, 9, (N,), generator=torch.Generator().manual_seed(1))
    assert ga.verify(model, pos=points(), z=z, symmetry="all", output="scalar").ok


class Egnn(MessagePassing):
    """Equations 3 to 6 of Satorras et al. 2021; ``mistaken`` adds a vector, not its length."""

    def __init__(self, mistaken=False):
        super().__init__(aggr="sum")
        self.mistaken = mistaken
        self.edge = nn.Sequential(nn.Linear(9 + 3 * mistaken, 7), nn.SiLU())
        self.gate = nn.Linear(7, 1)
        self.node = nn.Linear(11, 4)

    def forward(self, x, pos, edge_index):
        total = self.propagate(edge_index, x=x, pos=pos, size=(len(x), len(x)))
        return self.node(torch.cat((x, total[:, 3:]), 1)), pos + total[:, :3]

    def message(self, x_i, x_j, pos_i, pos_j):
        away = pos_i - pos_j
        invariants = [x_i, x_j, away.square().sum(1, keepdim=True)]
        if self.mistaken:
            invariants.append(away)
        m = self.edge(torch.cat(invariants, 1))
        return torch.cat((away * self.gate(m), m), 1)


def test_coordinates_of_an_egnn_turn_and_move():
    torch.manual_seed(0)
    graph = ga.graphs.knn(points(), 4)
    options = {"pos": points(), "x": points(axes=4, seed=6), "symmetry": "all"}
    options |= {"output": ["scalars", "points"]}
    assert ga.verify(Egnn().double(), graph, **options).ok
    report = ga.verify(Egnn(mistaken=True).double(), graph, **options)
    assert report.broken == ("rotations", "reflections")
    assert causes(report)["rotations"] == ("directions", "pos")


def test_ppf_conv_of_pyg_is_symmetric_and_pointnet_is_not():
    torch.manual_seed(0)
    normal = nn.functional.normalize(points(seed=5), dim=1)
    x = points(axes=4, seed=6)
    graph = ga.graphs.knn(points(), 4)
    options = {"pos": points(), "x": x, "symmetry": "all"}
    ppf = PPFConv(nn.Linear(8, 5)).double()
    assert ga.verify(ppf, graph, normal=normal, vectors=["normal"], **options).ok
    report = ga.verify(ppf, graph, normal=normal, **options)
    assert causes(report)["rotations"] == ("features", "normal")
    report = ga.verify(PointNetConv(nn.Linear(7, 5)).double(), graph, **options)
    assert report.broken == ("rotations", "reflections")
    assert causes(report)["rotations"] == ("directions", "pos")


# --- arguments


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"symmetry": "spins"},
            OptionError,
            "symmetry must be .rotations., .reflections.,",
        ),
        ({"symmetry": []}, OptionError, "at least one symmetry"),
        ({"symmetry": "cells"}, OptionError, "cells need cell"),
        ({"pos": None}, ShapeError, "pos must be a tensor"),
        ({"pos": torch.zeros(3)}, ShapeError, "pos must be floating point"),
        ({"pos": torch.zeros(3, 2).half()}, ShapeError, "float64 or float32"),
        ({"pos": torch.full((3, 2), torch.nan)}, ShapeError, "finite"),
        ({"pos": torch.zeros(3, 1), "symmetry": "rotations"}, OptionError, "at least 2 axes"),
        ({"pbc": True}, OptionError, "pbc needs cell"),
        ({"output": "energy"}, OptionError, 'output must be "scalar", "vector", "scalars",'),
        (
            {"output": "vectors"},
            ShapeError,
            r"output must have shape \(..., 3\), got a Tensor \(13,\)",
        ),
        ({"output": ["scalars", "vectors"]}, OptionError, "output names output"),
        ({"vectors": ["v"]}, OptionError, "vectors must name inputs"),
        ({"z": torch.zeros(N)}, OptionError, "z must be an argument of the model"),
        ({"backends": ["edges"]}, OptionError, "backends, at_most"),
        (
            {"graph": ga.graphs.full(5)},
            GraphError,
            "graph must have 13 targets and 13 sources, got AttentionGraph",
        ),
        ({"graph": "knn"}, GraphError, "a recipe"),
        ({"tolerance": 0.0}, OptionError, "tolerance must be"),
        ({"cell": torch.eye(2)}, OptionError, "as many axes"),
    ],
)
def test_arguments_are_checked(options, error, words):
    options = {"pos": points(), "symmetry": "translations", **options}
    graph = options.pop("graph", ga.graphs.knn(points(), 4))
    with pytest.raises(error, match=words):
        ga.verify(near, graph, **options)


def test_edges_made_anew_have_no_inputs():
    graph = ga.graphs.knn(..., k=4)
    with pytest.raises(OptionError, match="makes the edges anew"):
        ga.verify(
            lambda e, graph, pos: near(graph, pos), graph, pos=points(), e=torch.zeros(N * 4),
            symmetry="all",
        )  # fmt: skip


def test_all_symmetries_of_a_periodic_graph_need_its_cell():
    pos = points(5) * 2
    graph = ga.graphs.radius(pos, 2.5, cell=CELL)

    def no_images(pos, graph):
        return (pos[graph.source] - pos[graph.target]).norm(dim=1).sum().expand(len(pos), 1)

    with pytest.raises(OptionError, match="pass cell=cell"):
        ga.verify(no_images, graph, pos=pos, symmetry="all")
    assert not ga.verify(no_images, graph, pos=pos, cell=CELL, symmetry="all").ok
