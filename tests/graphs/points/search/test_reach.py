"""A radius in other units than the positions is warned of, and no other is."""

import warnings

import pytest
import torch

import graphattn as ga


def lines_of(pos, r, *rest, builder=ga.graphs.radius, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        builder(pos, r, *rest, **options)
    assert all(each.filename == __file__ for each in caught)  # the caller's line
    return [str(each.message) for each in caught]


CLOUD = torch.rand(101, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([7.0, 5, 3])
CELL = torch.diag(torch.tensor([7.0, 5, 3]))
BATCH = torch.arange(101) // 31


@pytest.mark.parametrize("options", [{}, {"self_loops": True}, {"batch": BATCH}, {"cell": CELL}])
def test_a_radius_that_joins_nothing_is_warned_of(options):
    (line,) = lines_of(CLOUD, 1e-3, **options)
    assert line.startswith("r=0.001 joins no two of 101 points, which lie in a box of ")
    assert line.endswith(": is r in the units of pos?")
    assert lines_of(CLOUD, 1.0, **options) == []


def test_a_radius_that_joins_no_query_is_warned_of():
    assert len(lines_of(CLOUD, 1.0, queries=CLOUD[:9] + 1000)) == 1
    assert lines_of(CLOUD, 1.0, queries=CLOUD[:0]) == []


@pytest.mark.parametrize("options", [{}, {"self_loops": True}, {"queries": CLOUD[:3] + 0.1}])
def test_a_radius_that_joins_everything_is_warned_of(options):
    (line,) = lines_of(CLOUD, 700.0, **options)
    assert "r=700 joins all of 101 points" in line
    assert lines_of(CLOUD[:40], 700.0, self_loops=True) == []  # few points may all be joined
    assert lines_of(CLOUD, 700.0, batch=torch.arange(101) // 30) == []


def test_a_radius_of_very_many_images_is_warned_of():
    atoms = torch.rand(8, 3, generator=torch.Generator().manual_seed(0)) * 0.54
    (line,) = lines_of(atoms, 3.0, cell=0.54 * torch.eye(3))
    assert "joins a point to 5," in line
    assert lines_of(atoms * 10, 3.0, cell=5.4 * torch.eye(3)) == []


@pytest.mark.parametrize("k", [1, 3])
def test_balls_that_hold_their_centres_alone_are_warned_of(k):
    (line,) = lines_of(CLOUD, 1e-3, k, builder=ga.graphs.ball_query)
    assert line.startswith("r=0.001 joins no two of 101 points")
    assert lines_of(CLOUD, 1.0, k, builder=ga.graphs.ball_query) == []
    assert len(lines_of(CLOUD, 1.0, k, builder=ga.graphs.ball_query, queries=CLOUD + 99)) == 1


def test_windows_of_one_point_each_are_warned_of():
    (line,) = lines_of(CLOUD, 1e-3, builder=ga.graphs.voxel_windows)
    assert line.startswith("window=0.001 joins no two of 101 points")
    assert line.endswith(": is window in the units of pos?")
    for window in (1.0, 700.0):  # a coarse level may lie in one window
        assert lines_of(CLOUD, window, builder=ga.graphs.voxel_windows) == []


def test_points_without_neighbours_that_are_meant_are_not_warned_of():
    assert lines_of(CLOUD, 0.0) == []
    assert lines_of(CLOUD[:5], 1e-3) == []
    assert lines_of(CLOUD, 1e-3, batch=torch.arange(101)) == []  # each is alone in its cloud


def test_sources_that_no_target_reads_are_warned_of():
    queries = torch.rand(71, 3, generator=torch.Generator().manual_seed(1)) * CLOUD.amax(0)
    (line,) = lines_of(CLOUD, 0.7, queries=queries)
    assert line.startswith("r=0.7 leaves sources that no target reads")
    assert lines_of(CLOUD, 4.0, queries=queries) == []
    assert lines_of(CLOUD, 0.7, queries=queries[:60]) == []  # a few targets may be probes
    assert lines_of(CLOUD, 0.7) == []
    reads_all = ga.graphs.knn(queries, 2, queries=CLOUD).reverse()  # as the warning says
    assert int(reads_all.out_degree.min()) == 2


MAP = CLOUD.double() + torch.tensor([500_000.0, 5_400_000.0, 200.0])  # float32 has steps of 0.5
SEARCHES = {
    "knn": lambda pos: ga.graphs.knn(pos, 5),
    "knn in a batch": lambda pos: ga.graphs.knn(pos, 3, batch=BATCH),
    "knn of an array": lambda pos: ga.graphs.knn(pos.numpy(), 5),
    "knn of queries": lambda pos: ga.graphs.knn(MAP, 5, queries=pos[:9]),
    "radius": lambda pos: ga.graphs.radius(pos, 1.5),
    "periodic radius": lambda pos: ga.graphs.radius(pos, 1.5, cell=CELL.double()),
    "balls": lambda pos: ga.graphs.ball_query(pos, 1.5, 4),
    "recipe": lambda pos: ga.graphs.knn(..., k=5)(pos),
    "windows": lambda pos: ga.graphs.voxel_windows(pos, 1.5),
    "sample": lambda pos: ga.graphs.voxel_downsample(pos, 1.5),
    "cells": lambda pos: ga.graphs.serialized_hierarchy(pos[:1], cell=1.5, levels=2),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("search", SEARCHES)
def test_positions_too_coarse_for_their_neighbours_are_warned_of(search):
    def lines(pos):
        return set(lines_of(pos, 0, builder=lambda pos, _: SEARCHES[search](pos)))

    assert lines(MAP) == set()
    (line,) = lines(MAP.float())
    assert line.startswith("pos lies 5e+06 from the origin, where numbers of float32 are 0.5 apart")
    if search != "knn of queries":
        assert lines((MAP - MAP.mean(0)).float()) == set()  # as the warning says
        assert lines((MAP - MAP.mean(0)).bfloat16().float()) == set()
        assert lines(MAP.float().round()) == set()  # numbers of cells, which are exact


@pytest.mark.parametrize(("dtype", "warned"), [(torch.float16, False), (torch.bfloat16, True)])
def test_a_dtype_may_be_too_coarse_at_the_origin(dtype, warned):
    pos = torch.rand(5_003, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    if dtype == torch.bfloat16:
        pos = pos + 1
    assert len(lines_of(pos, 8, builder=ga.graphs.knn)) == warned
