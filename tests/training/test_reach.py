"""What a simulator reads beside what moves in a step, on data whose speed is known."""

from functools import partial

import pytest
import torch

import graphattn as ga
from graphattn.models import MeshTransformer, Simulator, Window
from graphattn.shapes import Trajectory
from graphattn.training.reach import isolated_nodes, reach_of

N = 61
ROD = [("line", torch.stack((torch.arange(N - 1), torch.arange(1, N)), 1))]
X = torch.arange(N)[:, None] * 0.5


def carried(edges, steps=9):
    """A bump that goes a number of edges in a step along a rod of edges of 0.5."""
    at = 15 + edges * torch.arange(float(steps))[:, None]
    return Trajectory(X, {"u": torch.exp(-(((torch.arange(N) - at) / 6) ** 2))}, cells=ROD)


def reach(trajectory, layers, levels=None):
    recipe = levels or ga.graphs.hierarchy(..., graph=ga.graphs.mesh_cells(...))
    processor = partial(
        MeshTransformer,
        embed_dim=8,
        num_heads=2,
        num_layers=layers,
        axes=trajectory.pos.shape[-1],
        edges=("distance",),
        spectrum=0,
    )
    model = Simulator(processor, Window.of([trajectory]))
    return reach_of(
        model, trajectory, recipe(trajectory.positions(0), faces=trajectory.cells or None)
    )


@pytest.mark.parametrize("edges", [1, 3])
def test_a_front_is_as_fast_as_it_is(edges):
    measured = reach(carried(edges), layers=3)
    assert measured.moved == pytest.approx(0.5 * edges)
    assert measured.edge == pytest.approx(0.5)
    # three layers read three edges, and the fourth not
    assert measured.read == pytest.approx(0.5 * 4)
    assert measured.is_enough


def test_too_few_layers_for_a_step_are_said():
    measured = reach(carried(4), layers=2)
    assert (measured.moved, measured.read) == (pytest.approx(2.0), pytest.approx(1.5))
    assert not measured.is_enough
    words = measured.in_words("0.1 s", "m")
    assert words.startswith("fronts move by up to 2 m (4.0 edges) in a step of 0.1 s, as")
    assert "but the model reads every node nearer than 1.5 m (3.0 edges): take more" in words


def test_of_what_grows_no_speed_is_said():
    grows = Trajectory(X, {"u": torch.arange(9.0)[:, None] ** 2 * torch.ones(N)}, cells=ROD)
    measured = reach(grows, layers=2)
    assert measured.moved is None
    assert measured.is_enough
    assert "cannot be read off" in measured.in_words("1", "")


def test_nodes_that_move_come_from_two_sides():
    pos = torch.rand(1, 20, 2, generator=torch.Generator().manual_seed(0))
    pos = pos + torch.arange(5.0)[:, None, None] * torch.tensor([0.3, 0.4])
    drift = Trajectory(pos, {"pos": pos})
    levels = ga.graphs.hierarchy(..., graph=ga.graphs.radius(..., 0.9))
    measured = reach(drift, 1, levels)
    assert measured.moved == pytest.approx(0.5, abs=1e-4)
    assert measured.needed == pytest.approx(1.0, abs=1e-4)
    assert measured.read >= 0.9


def test_fixed_nodes_that_jump_are_no_front():
    one = carried(1)
    u = one.fields["u"].clone()
    u[:, -1, 0] = torch.arange(9.0) % 2 * 9
    fixed = torch.arange(N) == N - 1
    measured = reach(Trajectory(X, {"u": u}, cells=ROD, fixed=fixed), layers=2)
    assert measured.moved == pytest.approx(0.5)


def test_nodes_that_read_none_are_counted_and_named():
    lat, lon = torch.meshgrid(
        torch.tensor([-80.0, 0, 80]), torch.arange(0, 360, 30.0), indexing="ij"
    )
    pos = ga.graphs.on_sphere(lat, lon).float()
    globe = Trajectory(pos, {"u": torch.zeros(2, 36)}, name="a.nc")
    near = ga.graphs.hierarchy(..., graph=ga.graphs.radius(..., 0.1))(pos)
    words = isolated_nodes(globe, near)
    assert words.startswith(
        "a.nc: 12 of 36 nodes read no other (node 12 at latitude and longitude 0, 0;"
    )
    assert words.count(" at latitude and longitude ") == 3
    assert not isolated_nodes(
        globe, ga.graphs.hierarchy(..., graph=ga.graphs.radius(..., 0.6))(pos)
    )
