"""Lengths and turns of paths along the lines of curves and trees."""

import math

import networkx as nx
import pytest
import torch

import graphattn as ga
from graphattn.errors import OptionError, ShapeError
from graphattn.nn import edge_geometry
from graphattn.nn.points.paths import MOST_LINES


def circle(size):
    angle = torch.arange(size, dtype=torch.float64) * 2 * math.pi / size
    pos = torch.stack((angle.cos(), angle.sin(), 0 * angle), 1)
    ends = torch.stack((torch.arange(size), (torch.arange(size) + 1) % size), 1)
    return pos, ends


@pytest.mark.parametrize("make", ["hops", "full"])
def test_along_a_regular_polygon(make):
    pos, ends = circle(12)
    lines = ga.graphs.mesh_vertices(ends, 12)
    graph = ga.graphs.full(12)
    if make == "hops":
        graph = ga.graphs.mesh_vertices(ends, 12, hops=4, self_loops=True)
    arc, turn = edge_geometry(graph, pos, features=("arc", "turn"), lines=lines).T
    steps = (graph.source - graph.target).abs()
    steps = torch.minimum(steps, 12 - steps)
    steps = steps.double()
    torch.testing.assert_close(arc, steps * 2 * math.sin(math.pi / 12))
    torch.testing.assert_close(turn, (steps - 1).clamp(min=0) * math.pi / 6)


def test_arcs_of_a_tree_are_the_distances_of_networkx():
    tree = nx.random_labeled_tree(60, seed=1)
    pos = torch.rand(60, 3, dtype=torch.float64)
    for a, b in tree.edges:
        tree[a][b]["weight"] = float((pos[a] - pos[b]).norm())
    lines = ga.graphs.mesh_vertices(torch.tensor(list(tree.edges)), 60)
    graph = ga.graphs.knn(pos, 20) | ga.graphs.full(60)
    arc = edge_geometry(graph, pos, features=("arc",), lines=lines)[:, 0]
    hops = dict(nx.all_pairs_shortest_path_length(tree))
    distances = dict(nx.all_pairs_dijkstra_path_length(tree))
    expected = [
        distances[s][t] * (hops[s][t] <= MOST_LINES)
        for s, t in zip(graph.source.tolist(), graph.target.tolist(), strict=True)
    ]
    torch.testing.assert_close(arc, torch.tensor(expected, dtype=torch.float64))


def test_ends_that_no_path_joins_have_none():
    pos = torch.rand(40, 3)
    ends = torch.stack((torch.arange(39), torch.arange(1, 40)), 1)
    lines = ga.graphs.mesh_vertices(ends[ends[:, 0] != 35], 40)
    graph = ga.graphs.full(40)
    arc = edge_geometry(graph, pos, features=("arc",), lines=lines)[:, 0]
    is_far = (graph.source - graph.target).abs() > MOST_LINES
    is_cut = (graph.source > 35) != (graph.target > 35)
    is_none = is_far | is_cut | (graph.source == graph.target)
    assert torch.equal(arc == 0, is_none)


def test_gradients_flow_to_positions():
    pos, ends = circle(7)
    lines = ga.graphs.mesh_vertices(ends, 7)
    graph = ga.graphs.mesh_vertices(ends, 7, hops=2)
    pos = (pos + 0.1 * torch.randn_like(pos)).requires_grad_()
    words = ("arc", "turn")
    assert torch.autograd.gradcheck(
        lambda x: edge_geometry(graph, x, features=words, lines=lines), pos
    )


def test_lines_are_the_same_in_any_order_and_direction():
    pos = torch.rand(10, 3, generator=torch.Generator().manual_seed(1))
    ends = torch.stack((torch.arange(9), torch.arange(1, 10)))
    graph = ga.graphs.full(10)

    def along(edges):
        lines = ga.from_edge_index(edges, num_sources=10, num_targets=10)
        return edge_geometry(graph, pos, features=("arc", "turn"), lines=lines)

    both = torch.cat((ends, ends.flip(0)), 1)
    expected = edge_geometry(
        graph, pos, features=("arc", "turn"), lines=ga.graphs.mesh_vertices(ends.T, 10)
    )
    draw = torch.Generator().manual_seed(0)
    for edges in (both[:, torch.randperm(18, generator=draw)], ends, ends.flip(0)):
        assert torch.equal(along(edges), expected)


def test_a_turn_is_seen_across_points_at_one_place():
    pos = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 2, 0]])
    ends = torch.stack((torch.arange(4), torch.arange(1, 5)), 1)
    graph = ga.from_edge_index(torch.tensor([[0], [4]]), num_sources=5, num_targets=5)
    lines = ga.graphs.mesh_vertices(ends, 5)
    (found,) = edge_geometry(graph, pos, features=("arc", "turn"), lines=lines).tolist()
    assert found == pytest.approx([3, math.pi / 2])


def test_lines_are_of_the_points():
    pos, ends = circle(5)
    with pytest.raises(ShapeError, match="a row for each node of lines"):
        edge_geometry(
            ga.graphs.full(5), pos, features=("arc",), lines=ga.graphs.mesh_vertices(ends, 6)
        )


def test_lines_are_asked_for():
    pos, ends = circle(5)
    with pytest.raises(OptionError, match="lines=mesh_vertices"):
        edge_geometry(ga.graphs.mesh_vertices(ends, 5), pos, features=("arc",))
