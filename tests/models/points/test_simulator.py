"""What a simulator reads and predicts: what is given is put back, and no truth leaks in."""

from functools import partial

import pytest
import torch

import graphattn as ga
from graphattn.errors import ShapeError
from graphattn.models import MeshTransformer, Simulator, Window
from graphattn.shapes import Trajectory

PREDICTED = ("difference", "state", "acceleration")


def rod(steps=9, seed=0, **options):
    """Five nodes in a row, of which the last is fixed in ``u``."""
    draw = torch.Generator().manual_seed(seed)
    fields = {
        "u": torch.randn(steps, 5, 2, generator=draw) * 3 + 200,
        "p": torch.randn(steps, 5, 1, generator=draw),
    }
    fixed = {"u": torch.tensor([False] * 4 + [True])}
    cells = [("line", torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4]]))]
    forcing = {"sun": torch.rand(steps, 5, 1, generator=draw)}
    given = {"cells": cells, "fixed": fixed, "forcing": forcing, "kinds": torch.arange(5) % 2}
    return Trajectory(torch.arange(5.0)[:, None], fields, **(given | options))


def simulator(window, **options):
    torch.manual_seed(1)
    return Simulator(
        partial(MeshTransformer, embed_dim=8, num_heads=2, axes=1, edges=("offset",), spectrum=0),
        window,
        **options,
    )


def levels(trajectory):
    return ga.graphs.hierarchy(trajectory.pos, graph=trajectory.graph())


@pytest.mark.parametrize("predict", PREDICTED)
def test_fixed_nodes_get_what_is_given_at_every_step(predict):
    one = rod()
    window = Window.of([one], history=2, predict=predict)
    x, truth = window(one, 3, 4)
    states = simulator(window).eval()(x, levels(one))
    assert states.shape == (5, 4, 3)
    torch.testing.assert_close(states[4, :, :2], truth[4, 2:, :2], rtol=0, atol=0)
    assert not torch.isclose(states[:4, :, 2], truth[:4, 2:, 2]).any()
    assert (truth[4, 0, :2] == 0).all()
    assert (truth[:4, 0] > 0).all()


def test_no_later_state_of_a_free_node_is_read():
    one = rod()
    window = Window.of([one], history=2)
    x, _ = window(one, 3, 3)
    fields = {name: value.clone() for name, value in one.fields.items()}
    fields["u"][4:, :4] += 1
    fields["p"][4:] += 1
    other, _ = window(_changed(one, fields), 3, 3)
    assert torch.equal(x, other)
    fields["u"][4:, 4] += 1  # a fixed node's is given
    assert not torch.equal(x, window(_changed(one, fields), 3, 3)[0])


def _changed(one, fields):
    return Trajectory(
        one.pos, fields, cells=one.cells, fixed=one.fixed, forcing=one.forcing, kinds=one.kinds
    )


@pytest.mark.parametrize("predict", PREDICTED)
def test_the_truth_is_reached_by_a_processor_that_knows_it(predict):
    one = rod()
    window = Window.of([one], history=2, predict=predict)
    x, truth = window(one, 1, 1)
    u = window.states(one)
    targets = {
        "difference": u[2] - u[1],
        "state": u[2],
        "acceleration": u[2] - 2 * u[1] + u[0],
    }
    target = (targets[predict] - torch.tensor(window.shift)) / torch.tensor(window.scale)

    class Oracle(torch.nn.Module):
        def forward(self, x, shape):
            assert x.shape == (5, window.features)
            return target

    model = Simulator(lambda features, out_dim: Oracle(), window)
    torch.testing.assert_close(model(x, None)[:, 0], truth[:, 2], rtol=1e-6, atol=1e-4)
    assert window.loss(model(x, None), truth) < 1e-6


def test_steps_of_a_window_are_steps_from_its_own_states():
    one = rod()
    window = Window.of([one], history=2)
    model = simulator(window).eval()
    x, _ = window(one, 1, 3)
    whole = model(x, levels(one))
    past = window.states(one)[:2].movedim(0, 1)
    for step in range(3):
        state = model(window.inputs(one, past, 1 + step), levels(one))[:, 0]
        torch.testing.assert_close(state, whole[:, step])
        past = torch.stack((past[:, 1], state), 1)


def test_noise_is_on_what_is_read_in_training_alone_and_not_on_fixed_nodes():
    one = rod()
    window = Window.of([one], history=2)
    model = simulator(window, noise=0.5)
    read = []
    model.processor.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    x, _ = window(one, 3)
    for is_training in (False, True, True):
        model.train(is_training)(x, levels(one))
    clean, *noisy = read
    assert not torch.equal(*noisy)
    differs = noisy[0] != clean
    # columns: difference and state of u (2) and p (1); then what is fixed and forcing
    assert differs[:4, :6].all()
    assert differs[4, :6].tolist() == [False, False, True] * 2
    assert not differs[:4, 9:].any()


def particles(steps=6):
    """Four particles in a row that drift; the last is fixed."""
    pos = torch.arange(4.0)[None, :, None] + 0.1 * torch.arange(float(steps))[:, None, None]
    fixed = torch.tensor([False] * 3 + [True])
    pos[:, 3] = 3.0
    return Trajectory(pos, {"pos": pos}, fixed=fixed)


def test_accelerations_correct_the_noise_of_differences_alone():
    one = particles()
    window = Window.of([one], history=3, predict="acceleration")
    read = []

    class Still(torch.nn.Module):
        def forward(self, x, shape):
            read.append((x, shape.levels[0].pos))
            return torch.zeros(4, 1)

    model = Simulator(lambda features, out_dim: Still(), window, noise=0.5)
    x, truth = window(one, 3)
    graph = ga.graphs.radius(one.pos[3], 1.5)
    states = model(x, ga.graphs.hierarchy(one.pos[3], graph=graph))
    speed = read[0][0][:, 1] * window.change[0]  # of the last step, in columns of differences
    torch.testing.assert_close(states[:, 0, 0] - one.pos[3, :, 0], speed)
    assert (speed[:3] - 0.1).abs().min() > 1e-4
    assert states[3, 0, 0] == truth[3, 2, 0] == 3
    # edges are measured where the noise has moved the nodes
    assert (read[0][1] - one.pos[3])[:3].abs().min() > 1e-4
    assert torch.equal(read[0][1][3], one.pos[3, 3])
    model.eval()(x, ga.graphs.hierarchy(one.pos[3], graph=graph))
    assert torch.equal(read[1][1], one.pos[3])


def test_positions_that_jump_are_warned_of_until_they_are_unwrapped():
    x = 0.3 + torch.arange(9.0)[:, None, None] * 0.03 + torch.arange(0, 1, 0.1)[None, :, None]
    pos = torch.cat((x, x.flip(1)), 2)
    wrapped = Trajectory(pos % 1, {"pos": pos % 1})
    with pytest.warns(UserWarning, match="pos jumps by up to 0.97 in a step along axis 0"):
        Window.of([wrapped])
    whole = wrapped.unwrapped(torch.eye(2))
    window = Window.of([whole])  # warnings are errors
    assert window.change == pytest.approx([0.03, 0.03], rel=1e-4)
    assert torch.equal(whole.fields["pos"], whole.pos)
    torch.testing.assert_close(whole.pos - whole.pos[:1], pos - pos[:1])
    on_places = Trajectory(pos[0] % 1, {"pos": pos % 1}).unwrapped(torch.eye(2))
    assert torch.equal(on_places.fields["pos"], whole.pos)
    along = wrapped.unwrapped(torch.eye(2), pbc=(True, False)).pos
    torch.testing.assert_close(along[..., 1], pos[..., 1] % 1)
    torch.testing.assert_close(along[..., 0], whole.pos[..., 0])


def test_coarser_points_that_are_kept_move_along():
    one = particles()
    shape = ga.graphs.hierarchy(one.pos[0], points=[torch.tensor([1, 3])])
    moved = shape.at(one.pos[2])
    assert torch.equal(moved.levels[1].pos, one.pos[2, [1, 3]])
    assert moved.levels[1].down is shape.levels[1].down


def test_no_gradient_passes_through_steps_unless_asked():
    one = rod()
    window = Window.of([one])
    gradients = []
    for pushforward in (False, True):
        model = simulator(window, pushforward=pushforward)
        x, _ = window(one, 2, 3)
        x.requires_grad_()
        model(x, levels(one))[:, 2].square().sum().backward()
        gradients.append(bool(x.grad[:4, :3].any()))
    assert gradients == [True, False]


def test_statistics_have_a_floor_for_what_is_constant():
    one = rod()
    fields = {"u": one.fields["u"], "p": torch.full((9, 5, 1), 7.0)}
    window = Window.of([_changed(one, fields)])
    assert window.names == ["u.0", "u.1", "p"]
    assert window.deviation[2] == window.scale[2] == 1
    assert window.change[2] == 0  # and so no noise
    assert window.mean[2] == pytest.approx(7)
    u = one.fields["u"].double()
    assert window.mean[:2] == pytest.approx(u.mean((0, 1)).tolist())
    assert window.deviation[:2] == pytest.approx(u.std((0, 1), correction=0).tolist(), rel=1e-6)
    free = u[:, :4].diff(dim=0)
    assert window.scale[:2] == pytest.approx(free.std((0, 1), correction=0).tolist(), rel=1e-6)


def test_what_does_not_fit_is_named():
    window = Window.of([rod()])
    with pytest.raises(ShapeError, match="time must go in steps of 1 as in all"):
        window.check(rod(dt=0.5))
    with pytest.raises(ShapeError, match=r"forcing must have the channels \{'sun': 1\}"):
        window.check(rod(forcing={}))
    with pytest.raises(ShapeError, match="kinds must be below 2"):
        window.check(rod(kinds=torch.full((5,), 2)))
    with pytest.raises(ShapeError, match="x must be inputs of the model's window"):
        simulator(window)(torch.zeros(5, 7), levels(rod()))
