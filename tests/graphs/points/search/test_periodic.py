"""Neighbours in cells that repeat, beside loops over images and ASE's neighbour lists."""

import itertools
import math

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError
from graphattn.graphs import knn, radius

DOUBLE = torch.float64


def crystal(seed, atoms, axes=3, spread=2.0):
    """Positions far outside a skewed cell, and the cell."""
    draw = torch.Generator().manual_seed(seed)
    while True:
        cell = 2 * torch.eye(axes, dtype=DOUBLE)
        cell += 0.6 * torch.randn(axes, axes, generator=draw, dtype=DOUBLE)
        if torch.linalg.det(cell).abs() > 2.0**axes / 5:
            break
    pos = torch.rand(atoms, axes, generator=draw, dtype=DOUBLE) @ cell
    return pos + spread * torch.randn(atoms, axes, generator=draw, dtype=DOUBLE), cell


def images(pos, cell, pbc, reach, queries=None):
    """All (target, source, *offset, distance) within a reach, by a loop over cells."""
    queries = pos if queries is None else queries
    heights = 1 / torch.linalg.inv(cell).norm(dim=0)
    far = (pos[None] - queries[:, None]).norm(dim=2).amax()
    most = [int((far + reach) / h) + 1 if on else 0 for h, on in zip(heights, pbc, strict=True)]
    found = []
    for offset in itertools.product(*(range(-m, m + 1) for m in most)):
        steps = torch.tensor(offset, dtype=DOUBLE) @ cell
        distance = ((pos[None] - queries[:, None]) + steps).norm(dim=2)
        for t, s in torch.nonzero(distance <= reach).tolist():
            found.append((t, s, *offset, float(distance[t, s])))
    return found


def rows(graph):
    ends = graph.edge_index.flip(0)
    return [tuple(row) for row in torch.cat((ends, graph.offsets.T)).T.tolist()]


def without_loops(found):
    return sorted(x[:-1] for x in found if x[0] != x[1] or any(x[2:-1]))


@pytest.mark.parametrize(
    ("axes", "atoms", "pbc", "reach"),
    [
        (3, 7, (True, True, True), 1.1),
        (3, 5, (True, True, True), 2.9),  # several images of a pair
        (3, 1, (True, True, True), 3.1),
        (3, 7, (True, False, True), 2.3),
        (3, 11, (False, False, False), 2.9),
        (2, 5, (True, True), 3.1),
        (2, 5, (False, True), 2.3),
        (1, 3, (True,), 5.3),
    ],
)
def test_radius_finds_all_images_and_no_other(axes, atoms, pbc, reach):
    pos, cell = crystal(atoms, atoms, axes)
    expected = images(pos, cell, pbc, reach)
    graph = radius(pos, reach, cell=cell, pbc=pbc)
    assert rows(graph) == without_loops(expected)
    loops = radius(pos, reach, cell=cell, pbc=torch.tensor(pbc), self_loops=True)
    assert rows(loops) == sorted(x[:-1] for x in expected)
    assert radius(pos, reach, cell=cell, pbc=pbc, queries=pos.clone()).equals(loops)
    queries = crystal(97, 13, axes)[0]
    between = radius(pos, reach, cell=cell, pbc=pbc, queries=queries)
    assert rows(between) == sorted(x[:-1] for x in images(pos, cell, pbc, reach, queries))


@pytest.mark.sample(3)
@pytest.mark.parametrize("pbc", [(True, True, True), (False, True, True), (True, False, False)])
@pytest.mark.parametrize(("atoms", "k", "dilation"), [(1, 5, 1), (7, 3, 1), (5, 13, 2)])
def test_knn_takes_the_nearest_images(atoms, k, dilation, pbc):
    pos, cell = crystal(atoms + 1, atoms, spread=0.5)
    expected = {t: [] for t in range(atoms)}
    for found in images(pos, cell, pbc, {1: 23.0, 2: 9.0, 3: 5.0}[sum(pbc)]):
        expected[found[0]].append((found[-1], found[1:-1]))
    for own, graph in (
        (True, knn(pos, k, dilation=dilation, cell=cell, pbc=pbc, self_loops=True)),
        (False, knn(pos, k, dilation=dilation, cell=cell, pbc=pbc)),
    ):
        wanted = []
        for t, near in expected.items():
            near = sorted(near)[0 if own else 1 :]
            wanted += [(t, *image) for _, image in near[: (k - 1) * dilation + 1 : dilation]]
        assert rows(graph) == sorted(wanted)


def test_knn_of_a_cell_that_does_not_repeat_is_knn():
    pos, cell = crystal(3, 11)
    plain = knn(pos, 4)
    graph = knn(pos, 4, cell=cell, pbc=False)
    assert ga.from_edge_index(graph.edge_index, num_nodes=11).equals(plain)
    assert not graph.offsets.any()
    with pytest.raises(GraphError, match="k=13 needs at least 14 points, got 11"):
        knn(pos, 13, cell=cell, pbc=False)
    assert knn(pos, 13, cell=cell, pbc=False, clamp=True).num_edges == 110
    sizes = torch.tensor([1, 10])
    for points, batch in ((pos[:1], None), (pos, torch.arange(2).repeat_interleave(sizes))):
        lone = knn(points, 2, cell=cell, pbc=False, clamp=True, batch=batch)
        wanted = knn(points, 2, clamp=True, batch=batch)
        assert ga.from_edge_index(lone.edge_index, num_nodes=len(points)).equals(wanted)


def test_edges_are_those_of_ase():
    ase = pytest.importorskip("ase")
    neighbour_list = pytest.importorskip("ase.neighborlist").neighbor_list
    draw = np.random.default_rng(5)
    for seed in range(23):
        pos, cell = crystal(seed, int(draw.integers(1, 9)))
        pbc = draw.random(3) < 0.7
        reach = float(draw.uniform(0.5, 3.7))
        atoms = ase.Atoms(numbers=[1] * len(pos), positions=pos.numpy(), cell=cell.numpy(), pbc=pbc)
        i, j, S, D = neighbour_list("ijSD", atoms, reach)
        order = np.lexsort((*S.T[::-1], j, i))
        graph = radius(atoms.positions, reach, cell=atoms.cell, pbc=atoms.pbc)
        assert rows(graph) == [tuple(x) for x in np.column_stack((i, j, S))[order].tolist()]
        vectors = ga.nn.relative_positions(graph, pos)
        torch.testing.assert_close(vectors, -torch.from_numpy(D[order]), rtol=0, atol=1e-12)


def test_every_edge_has_its_reverse_in_a_perfect_crystal():
    """At the border itself, where rounding decides, an edge and its reverse are decided alike."""
    corners = torch.tensor([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]], dtype=DOUBLE)
    cell = 4.05 * torch.eye(3, dtype=DOUBLE)
    pos = corners @ cell + 0.1
    graph = radius(pos, 4.05 / math.sqrt(2), cell=cell)
    assert graph.is_symmetric
    assert radius(pos, 4.05 / math.sqrt(2), cell=cell, queries=pos.clone()).is_symmetric
    assert radius(pos, 3.3, cell=cell).in_degree.tolist() == [12] * 4


def test_the_two_searches_agree(monkeypatch):
    pos, cell = crystal(7, 31, spread=5.0)
    usual = radius(pos, 2.1, cell=cell)
    monkeypatch.setattr("graphattn.graphs.points.search.periodic.ALL_PAIRS", 0)
    assert radius(pos, 2.1, cell=cell).equals(usual)
    monkeypatch.setattr("graphattn.graphs.points.search.periodic._TABLE_BITS", 0)
    assert radius(pos, 2.1, cell=cell).equals(usual)
    monkeypatch.setattr("graphattn.graphs.points.search.periodic._BITS", 0)
    assert radius(pos, 2.1, cell=cell).equals(usual)


def test_a_batch_has_a_cell_for_each_cloud():
    clouds = [crystal(seed, atoms) for seed, atoms in ((0, 5), (1, 1), (2, 7))]
    pos = torch.cat([at for at, _ in clouds])
    cells = torch.stack([cell for _, cell in clouds])
    batch = torch.tensor([0] * 5 + [1] + [2] * 7)
    pbc = torch.tensor([[True, True, True], [True, False, True], [False, True, True]])
    for build in (lambda *a, **o: radius(*a, 2.3, **o), lambda *a, **o: knn(*a, 4, **o)):
        together = build(pos, batch=batch, cell=cells, pbc=pbc)
        apart = [build(at, cell=cell, pbc=on) for (at, cell), on in zip(clouds, pbc, strict=True)]
        union = ga.disjoint_union(apart)
        assert together.equals(union)
        vectors = ga.nn.relative_positions(together, pos)
        alone = [ga.nn.relative_positions(g, at) for g, (at, _) in zip(apart, clouds, strict=True)]
        assert torch.equal(vectors, torch.cat(alone))
    shared = radius(pos, 2.3, batch=batch, cell=cells[0])
    assert shared.equals(
        ga.disjoint_union([radius(at, 2.3, cell=cells[0]) for at, _ in clouds])
    ) is (
        False  # three copies of the cell against one
    )
    assert torch.equal(
        shared.offsets, torch.cat([radius(at, 2.3, cell=cells[0]).offsets for at, _ in clouds])
    )
    recipe = radius(..., r=2.3)
    assert recipe(pos, batch, cell=cells, pbc=pbc).equals(
        radius(pos, 2.3, batch=batch, cell=cells, pbc=pbc)
    )
    with_gap = radius(pos[:6], 2.3, batch=torch.tensor([0] * 5 + [2]), cell=cells, pbc=pbc)
    assert with_gap.num_edges > 0


def test_max_neighbours_keeps_the_nearest_images():
    pos, cell = crystal(4, 5)
    with pytest.raises(GraphError, match="max_neighbours=3 is too few: target 2 has 48 sources"):
        radius(pos, 2.9, cell=cell, max_neighbours=3)
    kept = radius(pos, 2.9, cell=cell, max_neighbours=3, overflow="nearest")
    assert kept.equals(knn(pos, 3, cell=cell))


def test_translations_and_permutations_change_no_edge():
    pos, cell = crystal(6, 11)
    graph = radius(pos, 1.9, cell=cell)
    moved = radius(pos + torch.tensor([3.0, -17.0, 0.7]), 1.9, cell=cell)
    assert moved.equals(graph)
    steps = torch.randint(-5, 6, (11, 3))
    scattered = radius(pos + steps.double() @ cell, 1.9, cell=cell)
    assert torch.equal(scattered.edge_index, graph.edge_index)
    expected = graph.offsets + steps[graph.target] - steps[graph.source]
    assert scattered.num_edges == graph.num_edges
    assert sorted(rows(scattered)) == sorted(
        (t, s, *o)
        for (t, s), o in zip(graph.edge_index.flip(0).T.tolist(), expected.tolist(), strict=True)
    )
    order = torch.randperm(11)
    assert radius(pos[order], 1.9, cell=cell).equals(graph.relabel(order.argsort()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pbc": True}, "pbc needs cell, the lattice vectors of the periodic axes, got none"),
        (
            {"cell": torch.zeros(3, 3)},
            r"a singular one: .*; set pbc to False along axes where nothing repeats",
        ),
        (
            {"cell": torch.ones(3, 3)},
            "independent vectors along its periodic axes, got a singular one",
        ),
        ({"cell": torch.eye(3) * torch.nan}, "cell must be finite, got NaN or infinity"),
        ({"cell": torch.eye(2)}, r"cell must have shape \(..., 3\), got a Tensor \(2, 2\)"),
        (
            {"cell": torch.rand(2, 3, 3)},
            "cell must be one for all clouds, or one for each of 1, got 2",
        ),
        ({"cell": "cubic"}, "cell must be lattice vectors as rows"),
        (
            {"cell": torch.eye(3), "pbc": (True, False)},
            r"pbc must have shape \(B, 3\), got a Tensor \(1, 2\)",
        ),
        ({"cell": torch.eye(3), "pbc": (0, 1, 2)}, "got other numbers than 0 and 1"),
        ({"cell": torch.eye(3) * 1e-4}, "r, cell and pos must be in one unit of length"),
    ],
)
def test_a_wrong_cell_is_refused_in_one_line(options, words):
    with pytest.raises(GraphError, match=words) as error:
        radius(torch.rand(5, 3), 2.0, **options)
    assert "\n" not in str(error.value)


def test_axes_that_do_not_repeat_need_no_vector():
    pos, cell = crystal(8, 7)
    cell[2] = 0
    slab = radius(pos, 2.0, cell=cell, pbc=(True, True, False))
    tall = radius(
        pos, 2.0, cell=torch.cat((cell[:2], torch.tensor([[0.1, 0.2, 9.0]]))), pbc=(1, 1, 0)
    )
    assert rows(slab) == rows(tall)
    assert radius(pos, 2.0, pbc=False).equals(radius(pos, 2.0))
    with pytest.raises(GraphError, match=r"ball_query\(..., r=1.0, k=3\) takes no cell"):
        ga.graphs.ball_query(..., r=1.0, k=3)(pos, cell=cell)


def test_sums_by_float32_positions_are_those_of_their_float64_numbers():
    pos, cell = crystal(9, 13)
    pos, cell = pos.float(), cell.float()
    assert radius(pos, 1.7, cell=cell).equals(radius(pos.double(), 1.7, cell=cell.double()))


def test_integers_and_lists_are_cells():
    pos = torch.rand(3, 2, generator=torch.Generator().manual_seed(0)) * 5
    expected = radius(pos, 2.0, cell=5 * torch.eye(2))
    for cell in ([[5, 0], [0, 5]], 5 * np.eye(2), 5 * torch.eye(2, dtype=torch.int64)):
        assert radius(pos, 2.0, cell=cell).equals(expected)
