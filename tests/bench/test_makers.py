"""Graphs that only the benchmark makes, and the table of shapes."""

import pytest
import torch

from graphattn.bench.makers import big_bird, icosphere, morton_code, near_points, points, power_law, sphere_rings
from graphattn.bench.shapes import SHAPES, SUITES, shapes
from graphattn.errors import OptionError


@pytest.mark.parametrize("level", [0, 1, 3])
def test_an_icosphere_is_a_closed_surface(level):
    count, faces = icosphere(level)
    assert (count, len(faces)) == (10 * 4**level + 2, 20 * 4**level)
    sides = torch.cat([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    assert len(sides.unique(dim=0)) == len(sides)  # each directed side once: every face turns the same way
    assert torch.equal(sides.unique(dim=0), sides.flip(1).unique(dim=0))  # and its twin is there: no border
    assert count - len(sides) // 2 + len(faces) == 2
    degree = torch.bincount(sides[:, 0], minlength=count)
    assert torch.bincount(degree).nonzero().flatten().tolist() == ([5] if level == 0 else [5, 6])


def test_rings_take_the_nearest_level_and_have_loops():
    assert sphere_rings(40_962).num_targets == 40_962
    graph = sphere_rings(600)
    assert graph.num_targets == 642
    assert graph.num_edges == 2 * 30 * 4**3 + 642


def test_points_in_morton_order_are_near_their_successors():
    sorted_, shuffled = points(3001, sorted_along_curve=True), points(3001, sorted_along_curve=False)
    assert torch.equal(sorted_.sort(0).values, shuffled.sort(0).values)
    assert bool((morton_code(sorted_).diff() >= 0).all())
    steps = [float(pos.diff(dim=0).norm(dim=1).mean()) for pos in (sorted_, shuffled)]
    assert steps[0] < 0.3 * steps[1]
    assert near_points(101, 7, shuffled=True).num_edges == 707


def test_a_power_law_has_hubs_and_distinct_edges():
    graph = power_law(3001)
    assert (graph.num_edges, graph.has_repeated_edges) == (60_020, False)
    for degree in (graph.in_degree, graph.out_degree):
        assert int(degree.max()) > 20 * int(degree.median())
    assert int(graph.in_degree.argmax()) != int(graph.out_degree.argmax())
    assert torch.equal(power_law(101).edge_index, power_law(101).edge_index)


def test_big_bird_by_hand():
    graph = big_bird(7 * 5, block=5, random_blocks=2)
    mask = graph.mask().view(7, 5, 7, 5)
    blocks = mask.any(3).any(1)
    assert torch.equal(blocks, mask.all(3).all(1))
    near = (torch.arange(7)[:, None] - torch.arange(7)).abs() <= 1
    assert bool(blocks[near].all())
    assert bool(blocks[[0, 6]].all() & blocks[:, [0, 6]].all())
    rest = blocks & ~near
    rest[[0, 6]] = rest[:, [0, 6]] = False
    assert rest.sum(1).tolist() == [0, 2, 2, 2, 2, 2, 0]
    assert big_bird(103, block=64).num_targets == 103  # a last block that is cut


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_every_shape_can_be_made_in_any_size(shape):
    for size in (shape.quick_nodes // 7, shape.quick_nodes):
        graph = shape.make(size)
        assert 0.4 * size <= graph.num_targets <= 2.5 * size
        assert graph.num_edges > 0


def test_the_table_has_the_sizes_that_are_published():
    assert len(shapes("cpu")) == len(SHAPES) == 13
    assert {shape.name: shape.num_nodes for shape in shapes("cpu")}["knn16"] == 16_384
    assert [shape.name for shape in shapes("mesh,knn16-shuffled,mesh")] == ["mesh", "knn16_shuffled"]
    assert shapes("sequence,full") == shapes("sequence")
    assert set(SHAPES).isdisjoint(SUITES)
    with pytest.raises(OptionError, match=r"suite must be a table: cpu.* shapes: knn16.* got 'nope'"):
        shapes("mesh,nope")
