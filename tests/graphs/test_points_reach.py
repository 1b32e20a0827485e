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


@pytest.mark.parametrize("options", [{}, {"include_self": True}, {"batch": BATCH}, {"cell": CELL}])
def test_a_radius_that_joins_nothing_is_warned_of(options):
    (line,) = lines_of(CLOUD, 1e-3, **options)
    assert line.startswith("r=0.001 joins no two of 101 points, which lie in a box of ")
    assert line.endswith(": is r in the units of pos?")
    assert lines_of(CLOUD, 1.0, **options) == []


def test_a_radius_that_joins_no_query_is_warned_of():
    assert len(lines_of(CLOUD, 1.0, queries=CLOUD[:9] + 1000)) == 1
    assert lines_of(CLOUD, 1.0, queries=CLOUD[:0]) == []


@pytest.mark.parametrize("options", [{}, {"include_self": True}, {"queries": CLOUD[:3] + 0.1}])
def test_a_radius_that_joins_everything_is_warned_of(options):
    (line,) = lines_of(CLOUD, 700.0, **options)
    assert "r=700 joins all of 101 points" in line
    assert lines_of(CLOUD[:40], 700.0, include_self=True) == []  # few points may all be joined
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
