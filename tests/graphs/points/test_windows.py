"""Cubes of space, clusters, ball queries and dilated neighbours against their written rules, pair
by pair.
"""

import math

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError, GraphIndexError

SIZES = [0, 1, 2, 37]


def scattered(n, axes=3):
    torch.manual_seed(61)
    pos = torch.rand(n, axes, dtype=torch.float64) * 3 - 1  # below 0, too
    return pos, torch.sort(torch.randint(0, 3, (n,))).values * 2  # clouds 0, 2, 4


def cube(point, window, shift):
    return tuple(math.floor((p - s) / m) for p, m, s in zip(point, window, shift, strict=True))


def same_cube(pos, window, shift, batch):
    cubes = [(cube(p, window, shift), b) for p, b in zip(pos.tolist(), batch.tolist(), strict=True)]
    return torch.tensor([[a == b for b in cubes] for a in cubes], dtype=torch.bool).view(
        len(pos), len(pos)
    )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("window", "shift"),
    [
        (0.5, 0.0),
        (0.5, 0.25),
        (1.0, -7.3),
        ((0.5, 0.9, 2.0), 0.1),
        ((1.0, 3.0, 9.0), (0.5, 0.0, -1.0)),
    ],
)
def test_voxel_windows_are_the_written_rule(n, window, shift):
    pos, batch = scattered(n)
    sides = window if isinstance(window, tuple) else (window,) * 3
    starts = shift if isinstance(shift, tuple) else (shift,) * 3
    wanted = same_cube(pos, sides, starts, batch)
    assert torch.equal(graphs.voxel_windows(pos, window, shift=shift, batch=batch).mask(), wanted)
    assert graphs.voxel_windows(pos, window, shift=shift, batch=batch).num_edges == int(
        wanted.sum()
    )
    alone = same_cube(pos, sides, starts, torch.zeros(n))
    assert torch.equal(graphs.voxel_windows(pos.numpy(), window, shift=shift).mask(), alone)


def test_voxel_ids_count_by_cloud_then_axis():
    pos, batch = scattered(37)
    cubes = [
        (b, *cube(p, (0.7,) * 3, (0.0,) * 3))
        for p, b in zip(pos.tolist(), batch.tolist(), strict=True)
    ]
    number = {each: i for i, each in enumerate(sorted(set(cubes)))}
    assert ga.shapes.voxel_ids(pos, 0.7, batch=batch).tolist() == [number[each] for each in cubes]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("wide", "shift"), [(2.0, 0.0), (2, 0.25), (3.5, 0.1), (1, 0.0)])
def test_stratified_windows_are_the_written_rule(n, wide, shift):
    pos, batch = scattered(n)
    few = torch.arange(0, n, 3).flip(0)
    near = same_cube(pos, (0.8,) * 3, (shift,) * 3, batch)
    far = same_cube(pos, (0.8 * wide,) * 3, (shift * wide,) * 3, batch)
    chosen = torch.zeros(n, dtype=torch.bool)
    chosen[few] = True
    graph = graphs.stratified_windows(pos, 0.8, few, wide=wide, shift=shift, batch=batch)
    assert torch.equal(graph.mask(), near | (far & chosen))
    assert graph.is_rule
    assert not graph.has_repeated_edges  # a sampled point in the near cube is read once
    if wide == 2.0 and n == 37:
        assert graph.num_edges > int(near.sum())  # the control: the wider cubes add some


def test_a_stratified_row_costs_its_cube_and_not_the_sample():
    pos = torch.rand(2003, 3)
    graph = graphs.stratified_windows(pos, 0.1, torch.arange(0, 2003, 2))
    assert graph.edges.runs_per_row < 50  # of 1,002 sampled points, and 1,001 that are not
    assert graph.num_edges == int(graph.mask().sum())


@pytest.mark.parametrize("ids", [[], [0], [2, 0, 2, 5, -1, 0, 5], [-1, -1]])
def test_clusters_read_their_members(ids):
    for count in (None, 7):
        graph = graphs.clusters(torch.tensor(ids, dtype=torch.int64), count)
        C = max([-1, *ids]) + 1 if count is None else count
        wanted = torch.tensor([[i == c for i in ids] for c in range(C)], dtype=torch.bool).view(
            C, len(ids)
        )
        assert torch.equal(graph.mask(), wanted)
        assert torch.equal(graph.reverse().mask(), wanted.T)
        assert graph.num_edges == int(wanted.sum())
    assert graph.is_rule


def first_in_ball(pos, queries, r, k, pad):
    """PointNet++'s loop: the first k in the order of their index; empty slots hold the first one
    found.
    """
    edges = []
    for t, q in enumerate(queries.tolist()):
        found = [
            s
            for s, p in enumerate(pos.tolist())
            if sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) <= r * r
        ]
        found = found[:k]
        if pad and found:
            found += [found[0]] * (k - len(found))
        edges += [(s, t) for s in found]
    return torch.tensor(edges, dtype=torch.int64).view(-1, 2).T


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("r", "k"), [(0.8, 1), (0.8, 5), (9.0, 3), (0.0, 4), (0.9, 50)])
@pytest.mark.parametrize("pad", [True, False])
def test_ball_query_is_the_loop_of_pointnet2(n, r, k, pad):
    pos, batch = scattered(n)
    assert torch.equal(
        graphs.ball_query(pos, r, k, pad=pad).edge_index, first_in_ball(pos, pos, r, k, pad)
    )
    queries = pos[::2] + 0.05
    found = graphs.ball_query(pos, r, k, queries=queries, pad=pad)
    assert torch.equal(found.edge_index, first_in_ball(pos, queries, r, k, pad))
    parts = [torch.nonzero(batch == i)[:, 0] for i in (0, 2, 4)]
    wanted = [first_in_ball(pos[p], pos[p], r, k, pad) + p[:1] for p in parts if len(p)]
    together = graphs.ball_query(pos, r, k, batch=batch, pad=pad)
    assert torch.equal(together.edge_index, torch.cat([torch.empty(2, 0).long(), *wanted], 1))


def test_trap_ball_query_pads_with_its_first_neighbour():
    """A multigraph: under softmax the first neighbour counts as often as it is there."""
    line = torch.tensor([[0.0], [1.0], [3.0], [9.0]])
    queries = torch.tensor([[0.4], [50.0]])
    graph = graphs.ball_query(line, 1.0, 5, queries=queries)
    assert graph.source.tolist() == [0, 1, 0, 0, 0]
    assert graph.has_repeated_edges
    # nobody near: nothing, where the CUDA code reads point 0
    assert graph.in_degree.tolist() == [5, 0]
    value = torch.randn(4, 1, 3)
    zeros = torch.zeros(2, 1, 2), torch.zeros(4, 1, 2)
    out = ga.attention(*zeros, value, graph)
    assert torch.allclose(out[0], (4 * value[0] + value[1]) / 5)
    assert bool((out[1] == 0).all())
    once = graphs.ball_query(line, 1.0, 5, queries=queries, pad=False)
    assert once.equals(graphs.radius(line, 1.0, queries=queries))
    assert torch.allclose(ga.attention(*zeros, value, once)[0], (value[0] + value[1]) / 2)
    bias = torch.tensor([math.log(4.0), 0.0])  # the same as copies: the log of how many
    assert torch.allclose(ga.attention(*zeros, value, once, bias)[0], out[0])


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize(("k", "dilation"), [(1, 4), (3, 2), (4, 3), (5, 1)])
def test_dilated_knn_is_every_dth(k, dilation, self_loops):
    pos, _ = scattered(37)
    pos[5:8] = pos[3]  # ties
    far = torch.zeros(37, 37, dtype=torch.float64)
    for axis in pos.unbind(1):
        far += (axis[:, None] - axis[None, :]) ** 2
    wanted = []
    for t, row in enumerate(far.tolist()):
        order = [s for s in sorted(range(37), key=lambda s: (row[s], s)) if s != t]
        order = [t, *order] if self_loops else order
        wanted += [(s, t) for s in order[: k * dilation : dilation]]
    graph = graphs.knn(pos, k, dilation=dilation, self_loops=self_loops)
    assert torch.equal(graph.edge_index, torch.tensor(wanted).T)
    asked = graphs.knn(pos, k, dilation=dilation, queries=pos[::3] + 0.01)
    assert torch.equal(
        asked.source, graphs.knn(pos, k * dilation, queries=pos[::3] + 0.01).source[::dilation]
    )


def test_dilated_knn_needs_points_as_far_as_its_last():
    pos = torch.rand(8, 3)
    assert graphs.knn(pos, 4, dilation=2).num_edges == 32
    with pytest.raises(GraphError, match="k=4 with dilation=3 needs at least 11 points, got 8"):
        graphs.knn(pos, 4, dilation=3)
    # of 7 others: the 1st, 4th, 7th
    assert graphs.knn(pos, 4, dilation=3, clamp=True).in_degree.tolist() == [3] * 8
    with pytest.raises(GraphError, match="dilation must be a whole number >= 1, got 0"):
        graphs.knn(pos, 2, dilation=0)
    assert graphs.knn(pos, 2, dilation=3).name == "knn(k=2, dilation=3)"


def test_a_sampled_point_that_is_not_there():
    with pytest.raises(
        GraphIndexError, match=r"sampled must be in \[0, 5\), the points, got 0 to 5"
    ):
        graphs.stratified_windows(torch.rand(5, 3), 1.0, torch.tensor([0, 5]))


@pytest.mark.parametrize("side", [0.13, 0.7, 50.0])
def test_what_a_grid_keeps_is_what_a_serialized_hierarchy_takes(side):
    draw = torch.Generator().manual_seed(5)
    pos = torch.rand(400, 3, generator=draw, dtype=torch.float64) * 3 + torch.tensor(
        [6e6, -0.4, 5e5]
    )
    batch = torch.arange(400) // 150
    sample = graphs.voxel_downsample(pos, side, batch)
    assert torch.equal(sample.cell[sample.kept], torch.arange(len(sample.kept)))
    ids = ga.shapes.voxel_ids(pos, side, batch=batch)
    assert torch.equal(ids[sample.kept][sample.cell], ids)  # the way back stays in the cell
    assert torch.equal(sample.batch, batch[sample.kept])
    centre = (pos / side).floor() + 0.5
    far = (pos / side - centre).square().sum(1)
    assert bool((far[sample.kept][sample.cell] <= far).all())
    shape = graphs.serialized_hierarchy(
        pos[sample.kept], sample.batch, cell=side, levels=2, patch=8
    )
    assert len(shape.levels[0].pos) == len(ids.unique())
    with pytest.raises(
        GraphError,
        match=r"two points share a cell; keep one in each, voxel_downsample\(pos, cell\).kept",
    ):
        graphs.serialized_hierarchy(pos, batch, cell=side, levels=2)
    with pytest.raises(GraphError, match="cell must be"):
        graphs.voxel_downsample(pos, 0.0)
