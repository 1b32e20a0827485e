"""Training on simulations: what is judged, what goes on, and rollouts that end."""

import json
import pathlib
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import graphattn as ga
from graphattn.errors import GraphError, LoaderError, OptionError, ShapeError
from graphattn.models import MeshGraphNet, Simulator, Window
from graphattn.shapes import Trajectory, load_trajectory, save_trajectory
from graphattn.training import rollout, train
from graphattn.training.models.named import SIMULATED
from graphattn.training.models.stencil import Stencil
from graphattn.training.pages import films
from graphattn.training.pages.charts import curves
from graphattn.training.reading import simulations
from graphattn.training.reading.data import digests
from graphattn.training.reading.simulations import Simulation, Windows
from graphattn.training.run import Run
from graphattn.training.tasks import Simulate

N = 7
CELLS = [("line", torch.stack((torch.arange(N - 1), torch.arange(1, N)), 1))]
QUICK = {
    "task": "simulate",
    "epochs": 2,
    "control": False,
    "model_options": {"embed_dim": 8, "num_heads": 2, "num_layers": 1},
}


def heat(seed, steps=8):
    """A rod that cools towards its ends, which are fixed."""
    u = torch.randn(N, generator=torch.Generator().manual_seed(seed))
    u[0], u[-1] = 1, -1
    states = [u]
    for _ in range(steps - 1):
        u = u.clone()
        u[1:-1] += 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2])
        states.append(u)
    fixed = torch.zeros(N, dtype=torch.bool)
    fixed[[0, -1]] = True
    pos = torch.arange(float(N))[:, None]
    return Trajectory(pos, {"u": torch.stack(states)}, cells=CELLS, fixed=fixed, dt=0.1)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "heat"
    root.mkdir()
    for number in range(6):
        save_trajectory(heat(number), root / f"rod{number}.npz")
    return root


def test_a_stencil_is_exact_where_the_law_is_one(folder, tmp_path):
    result = train(folder, tmp_path / "run", **{**QUICK, "model": "stencil", "model_options": None})
    assert result.scores["skill"] > 0.9999
    assert result.scores["steps"] == 7
    series = rollout(tmp_path / "run", heat(9, steps=2), 20)
    torch.testing.assert_close(series.fields["u"], heat(9, steps=21).fields["u"], atol=1e-3, rtol=0)
    assert series.num_steps == 21
    assert float(series.time[-1]) == pytest.approx(2.0)


def test_a_stencil_reads_images_across_the_border_of_a_cell():
    graph = ga.graphs.radius(torch.tensor([[0.1], [0.9]]), 0.3, cell=torch.ones(1, 1))
    stencil = Stencil(1, 1, axes=1)
    x = torch.tensor([[1.0], [3.0]])
    inside, across = (
        stencil(x, ga.graphs.hierarchy(torch.tensor(pos), graph=graph))
        for pos in ([[0.1], [0.9]], [[1.1], [1.9]])
    )
    torch.testing.assert_close(inside, across)
    plain = ga.graphs.radius(torch.tensor([[0.1], [-0.1]]), 0.3)
    same = stencil(x, ga.graphs.hierarchy(torch.tensor([[0.1], [-0.1]]), graph=plain))
    torch.testing.assert_close(inside, same)


def test_labels_of_windows_need_no_graph():
    one = heat(0)
    windows = Windows([one], [0], Simulation(window=Window.of([one])), None, is_whole=False)
    assert [y.shape for y in windows.labels] == [(N, 3, 1)] * 7


@pytest.mark.slow
def test_whole_trajectories_are_held_out_and_judged(folder, tmp_path):
    run = tmp_path / "run"
    result = train(folder, run, **{**QUICK, "control": ["stencil", "perceptron", "random"]})
    record = json.loads((run / "run.json").read_text("utf-8"))
    assert sorted(map(len, record["split"].values())) == [1, 1, 4]
    names = set(record["split"]["train"])
    seen = [load_trajectory(folder / name) for name in sorted(names)]
    window = Window.of(seen)
    assert record["inputs"]["simulation"]["window"]["mean"] == list(window.mean)
    assert set(result.controls) == {"stencil", "perceptron", "random"}
    assert result.over("stencil").mean < 0
    assert len({one.scores["skill"] for one in result.controls.values()}) == 3
    assert ga.training.evaluate(run).scores == result.scores
    page = (run / "report.html").read_text("utf-8")
    assert "Error over lead time" in page
    assert page.count("data:image/png") == 4  # two curves, lead times, one film


@pytest.mark.parametrize("name", SIMULATED)
def test_each_model_simulates(name, folder, tmp_path):
    options = {**QUICK, "epochs": 1, "model": name, "model_options": None}
    result = train(folder, tmp_path / "run", **options)
    assert torch.isfinite(result.answers[0]).all()
    series = rollout(tmp_path / "run", heat(9, steps=2), 3)
    assert torch.equal(series.fields["u"][:, 0, 0], torch.ones(4))


def test_a_training_that_is_gone_on_with_gives_the_same_bits(folder, tmp_path):
    whole = train(folder, tmp_path / "whole", **QUICK, unroll=2, pushforward=True)
    lines = []

    def stop(line):
        lines.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(folder, tmp_path / "parts", on_epoch=stop, **QUICK, unroll=2, pushforward=True)
    assert len(lines) == 1
    again = ga.training.resume(tmp_path / "parts")
    assert again.scores == whole.scores
    assert torch.equal(again.answers[0], whole.answers[0])


def test_trajectories_that_do_not_fit_into_memory_are_maps_of_a_file(tmp_path, monkeypatch):
    for number in range(3):
        one = heat(number)
        fields = {"u": one.fields["u"], "v": one.fields["u"].double() + 1}
        forcing = {"sun": torch.rand(8, N, 2)}
        given = Trajectory(one.pos, fields, cells=CELLS, fixed=one.fixed, forcing=forcing)
        save_trajectory(given, tmp_path / f"{number}.npz")
    inside = simulations.TrajectoryFolder(tmp_path)
    monkeypatch.setattr(simulations, "_ROOM", 2000)
    outside = simulations.TrajectoryFolder(tmp_path)
    assert not inside.notes
    assert outside.notes[0].endswith("(TMPDIR), not in memory")
    for one, other in zip(inside, outside, strict=True):
        ours, theirs = one.tensors(), other.tensors()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert digests(inside) == digests(outside)
    maps = pathlib.Path("/proc/self/maps")
    if maps.is_file():
        assert maps.read_text().count("trajectory.safetensors") >= 2
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(LoaderError, match=r"none: expected room for [\d,]+ bytes, .*TMPDIR="):
        simulations.TrajectoryFolder(tmp_path)


def test_a_rollout_ends_at_a_bound_and_names_the_step():
    one = heat(0)
    window = Window.of([one])

    class Doubling(torch.nn.Module):
        def forward(self, x, shape):
            return x[:, :1] * 60

    recipe = ga.graphs.hierarchy(..., graph=ga.graphs.mesh_cells(...))
    model = Simulator(lambda features, out_dim: Doubling(), window, levels=recipe)
    with pytest.warns(UserWarning, match=r"ends after (\d) of 7 steps: step \d is NaN or 100"):
        series = rollout(model, one)
    assert 1 < series.num_steps < 8
    assert torch.isfinite(series.fields["u"]).all()
    assert torch.equal(series.fields["u"][:, 0, 0], torch.ones(series.num_steps))


def test_particles_make_their_graph_at_every_step():
    draw = torch.Generator().manual_seed(0)
    pos = torch.rand(1, 9, 2, generator=draw) + torch.linspace(0, 1, 6)[:, None, None]
    drift = Trajectory(pos, {"pos": pos})
    sizes = []

    class Still(torch.nn.Module):
        def forward(self, x, shape):
            sizes.append(shape.levels[0].pos)
            return torch.zeros(9, 2)

    window = Window.of([drift], history=2, predict="acceleration")
    recipe = ga.graphs.hierarchy(..., graph=ga.graphs.radius(..., 0.3))
    series = rollout(Simulator(lambda *widths: Still(), window, levels=recipe), drift)
    torch.testing.assert_close(series.pos, pos)  # no acceleration is a drift
    torch.testing.assert_close(torch.stack(sizes), pos[1:5])


def test_graphs_of_particles_are_made_anew_within_a_window():
    draw = torch.Generator().manual_seed(0)
    flights = []
    for _ in range(2):
        pos = torch.rand(6, 9, 2, generator=draw)
        flights.append(Trajectory(pos, {"pos": pos}))
    window = Window.of(flights, history=2, predict="state")
    recipe = ga.graphs.hierarchy(..., graph=ga.graphs.radius(..., 0.3))
    torch.manual_seed(0)
    make = partial(MeshGraphNet, embed_dim=8, num_layers=1, axes=2)
    model = Simulator(make, window, levels=recipe).eval()
    parts = [window(flight, 1, 4) for flight in flights]
    shape = ga.graphs.Hierarchy.join([recipe(flight.pos[1]) for flight in flights])
    states = model(torch.cat([x for x, _ in parts]), shape).movedim(1, 0)
    stepped = [rollout(model, flight, 4).fields["pos"][2:] for flight in flights]
    torch.testing.assert_close(states, torch.cat(stepped, 1))
    states[-1].sum().backward()  # through all steps
    sizes = {recipe(pos).levels[0].graph.num_edges for pos in (flights[0].pos[1], stepped[0][0])}
    assert len(sizes) > 1  # the graph did change


def test_graphs_of_cells_stay_where_nodes_move():
    recipe = ga.graphs.hierarchy(..., graph=ga.graphs.mesh_cells(...))
    one = heat(0)
    shape = recipe(one.pos, faces=one.cells)
    assert recipe.moved(shape, 2 * one.pos).levels[0].graph is shape.levels[0].graph
    contacts = ga.graphs.mesh_cells(...) | ga.graphs.radius(..., 0.1)
    with pytest.raises(GraphError, match="graph must be of cells or of positions alone"):
        ga.graphs.hierarchy(..., graph=contacts).moved(shape, one.pos)


def test_particles_are_trained_on(tmp_path):
    root = tmp_path / "drift"
    root.mkdir()
    for seed in range(5):
        draw = torch.Generator().manual_seed(seed)
        speed = torch.rand(9, 2, generator=draw) / 20
        steps = torch.arange(6.0)[:, None, None]
        pos = torch.rand(1, 9, 2, generator=draw) + steps * speed + 0.01 * steps**2
        save_trajectory(Trajectory(pos, {"pos": pos}), root / f"{seed}.npz")
    options = {**QUICK, "history": 2, "predict": "acceleration"}
    with pytest.raises(OptionError, match="graph must be a recipe where trajectories have no"):
        train(root, tmp_path / "run", **options)
    options |= {"graph": "radius(..., 0.5)", "unroll": 2, "control": ["random"]}
    result = train(root, tmp_path / "run", **options)
    assert result.scores["skill"] > 0.9  # the acceleration is constant, and so its mean
    assert not result.notes  # on the integral of positions
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert page.count("data:image/png") == 4  # two curves, lead times, one film


def test_fields_on_a_sphere_are_read_by_the_compass_and_drawn_on_a_map(tmp_path):
    lat, lon = torch.meshgrid(torch.tensor([-45.0, 45]), torch.arange(0, 360, 60.0), indexing="ij")
    pos = ga.graphs.on_sphere(lat, lon).float()
    swing = torch.stack([torch.ones(12), -torch.ones(12)]).repeat(3, 1) * pos[:, 0]
    globe = Trajectory(pos, {"u": 3 + swing})
    for number in range(3):
        save_trajectory(globe, tmp_path / f"{number}.npz")
    options = {**QUICK, "epochs": 1, "graph": "knn(..., 3)", "weight": "latitude"}
    result = train(tmp_path, tmp_path / "run", **options)
    record = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    assert record["options"]["edges"] == ["compass"]
    assert result.notes[0].startswith("the integral of u stays in the truth, and changes in the")
    options |= {"graph": "knn(..., 3); icosphere(1)", "model": "encode-process-decode"}
    train(tmp_path, tmp_path / "globe", **options)
    shape = Run.load(tmp_path / "globe").inputs.levels_of(globe, globe.pos)
    assert [len(level.pos) for level in shape.levels] == [12, 42]
    assert shape.levels[1].graph.equals(ga.graphs.icosphere(1))
    assert shape.levels[1].up.num_edges == 3 * 12  # the corners of the triangle around each
    assert int(shape.levels[1].down.out_degree.min()) > 0
    places = films.places(globe)
    assert places[:, 1].tolist() == pytest.approx(lat.flatten().tolist(), abs=1e-4)
    assert places[:, 0].min() == pytest.approx(-120, abs=1e-3)


def test_a_rollout_of_other_units_or_with_a_jump_says_so(folder, tmp_path):
    run = tmp_path / "run"
    train(folder, run, **{**QUICK, "model": "stencil", "model_options": None})
    like = heat(9)

    def given(u, pos=like.pos):
        return Trajectory(pos, {"u": u}, cells=CELLS, fixed=like.fixed, dt=0.1, name="a.npz")

    u = like.fields["u"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rollout(run, given(u))
    with pytest.warns(UserWarning, match=r"a.npz is unlike those of training, .*: u 27\d.* to 27"):
        rollout(run, given(u + 273))
    with pytest.warns(UserWarning, match=r"spacing of points 1e\+03 \(in training 1 to 1\)"):
        rollout(run, given(u, like.pos * 1000))
    jump = torch.cat((u[:5], heat(3).fields["u"][5:] * 5))
    (tmp_path / "warm").mkdir()
    save_trajectory(given(u + 273), tmp_path / "warm" / "a.npz")
    with pytest.warns(UserWarning, match="a.npz is unlike those of training"):
        ga.training.evaluate(run, tmp_path / "warm")
    with pytest.warns(UserWarning, match=r"change in a step of u .*, most from step 4 \(in train"):
        rollout(run, given(jump))


@pytest.mark.filterwarnings("ignore:sea is NaN")
def test_weather_is_trained_on_with_forcing_and_rolled_out_in_its_own_coordinates(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5py")
    lat, lon = torch.tensor([50.0, 0, -50]), torch.arange(0, 360, 60.0)
    dims = ("time", "lat", "lon")
    for number in range(3):
        u = torch.rand(6, 3, 6, generator=torch.Generator().manual_seed(number)).numpy()
        sea = np.where(lat[:, None] > 0, np.nan, u).astype("float32")
        data = {"u": (dims, u, {"units": "m s-1"}), "sun": (dims, u + 1), "land": (dims[1:], u[0])}
        data["sea"] = (dims, sea)
        time = torch.arange(6).numpy() * 6
        coordinates = {
            "lat": lat,
            "lon": lon,
            "time": ("time", time, {"units": "hours since 2020"}),
        }
        (tmp_path / "wind").mkdir(exist_ok=True)
        xarray.Dataset(data, coordinates).to_netcdf(tmp_path / "wind" / f"{number}.nc")
    options = {"task": "simulate", "model": "stencil", "control": False, "graph": "knn(..., 3)"}
    with pytest.warns(UserWarning, match="sea is NaN at 6 of 18 nodes at every step"):
        train(tmp_path / "wind", tmp_path / "run", **options, forcing=["sun"])
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "1 held-out trajectory simulated" in page
    assert "sea is NaN at 6 of 18 nodes at every step" in page  # as the terminal says
    assert "u (m s-1)" in page
    assert "steps of 6 h, rollouts of 5 steps" in page
    assert "--out answers.nc" in page
    window = Run.load(tmp_path / "run").inputs.simulation.window
    assert (list(window.fields), list(window.forcing)) == (["u", "sea"], ["land", "sun"])
    assert (window.dt, ga.training.evaluate(tmp_path / "run").scores["steps"]) == (6, 5)
    one = load_trajectory(tmp_path / "wind" / "1.nc")
    save_trajectory(rollout(tmp_path / "run", one, 4), tmp_path / "ahead.nc")
    ahead = xarray.open_dataset(tmp_path / "ahead.nc")
    assert ahead.u.dims == dims
    assert str(ahead.time.values[4])[:13] == "2020-01-02T00"
    start = xarray.open_dataset(tmp_path / "wind" / "1.nc").isel(time=[2])
    start.to_netcdf(tmp_path / "start.nc")
    with pytest.raises(OptionError, match=r"steps must be at most 0, where .*\(sun\) is known"):
        rollout(tmp_path / "run", load_trajectory(tmp_path / "start.nc"), 4)
    with pytest.raises(ShapeError, match=r'0.nc: forcing must be "u", "sun" or "sea", got'):
        train(tmp_path / "wind", tmp_path / "other", **options, forcing=["snu"])


def test_forcing_must_be_known_as_far_as_steps_go():
    one = heat(0)
    forced = Trajectory(
        one.pos, dict(one.fields), cells=one.cells, forcing={"sun": torch.rand(8, N)}
    )
    window = Window.of([forced])
    model = Simulator(lambda features, out_dim: Stencil(features, out_dim, axes=1), window)
    with pytest.raises(
        OptionError, match=r"steps must be at most 7, where .*\(sun\) is known, got 9"
    ):
        rollout(model, forced, 9)
    moves = replace(one, pos=one.pos.expand(8, N, 1))
    moved = Simulator(
        lambda features, out_dim: Stencil(features, out_dim, axes=1), Window.of([one])
    )
    with pytest.raises(OptionError, match=r"steps must be at most 7, .*\(pos\) is known, got 9"):
        rollout(moved, moves, 9)
    stays = replace(forced, forcing={"sun": forced.forcing["sun"][:1]}, constant=["sun"])
    cells = ga.graphs.hierarchy(..., graph=ga.graphs.mesh_cells(...))
    series = rollout(model, stays, 9, levels=cells)
    assert torch.equal(series.forcing["sun"], forced.forcing["sun"][:1].expand(10, N, 1))


def test_options_of_shapes_and_of_simulations_are_not_mixed(folder, tmp_path):
    with pytest.raises(OptionError, match="sample is for shapes"):
        train(folder, tmp_path / "run", **QUICK, sample=5)
    globe = {"graph": "mesh_cells(...); icosphere(1)", "model": "encode-process-decode"}
    with pytest.raises(OptionError, match="is for nodes on the unit sphere around 0"):
        train(folder, tmp_path / "run", **QUICK, **globe)
    with pytest.raises(OptionError, match="control='forest' does not fit the task"):
        train(folder, tmp_path / "run", **{**QUICK, "control": ["forest"]})
    with pytest.raises(OptionError, match="fields is for task='simulate'"):
        train(folder, tmp_path / "run", fields=["u"])
    moving = heat(7)
    moving = Trajectory(moving.pos.expand(8, N, 1) * 1.0, dict(moving.fields), cells=CELLS, dt=0.1)
    object.__setattr__(moving, "pos", moving.pos + torch.rand(8, N, 1))
    save_trajectory(moving, folder / "rod7.npz")
    with pytest.raises(OptionError, match="unroll must be 1 where nodes move and pos is not"):
        train(folder, tmp_path / "run", **QUICK, unroll=2)


def test_the_command_line_trains_and_rolls_out(folder, tmp_path, monkeypatch):
    from graphattn.cli.app import app

    run = str(tmp_path / "run")
    words = ["train", str(folder), "--out", run, "--task", "simulate", "--fields", "u", "--json"]
    words += ["--noise", "auto", "--steps", "5", "--epochs", "1", "--no-control"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["scores"]["steps"] == 5
    series = str(tmp_path / "series.npz")
    words = ["rollout", run, str(folder / "rod0.npz"), "--steps", "12", "--out", series, "--json"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert load_trajectory(series).num_steps == 13
    monkeypatch.setattr("graphattn.training.rollout", None)  # refused before the rollout
    for out in ("none/series.npz", "series.nc", "series.vtu"):
        words[words.index("--out") + 1] = str(tmp_path / out)
        assert CliRunner().invoke(app, words).exit_code == 2


def test_the_loss_of_steps_and_the_score_of_rollouts_have_an_axis_each():
    line = {"epoch": 1, "loss": 0.1, "val_loss": 40.0, "val_skill": 0.5, "best": True}
    task = Simulate("node", ("u",))
    losses, scores = curves([line, line | {"epoch": 2}], task).axes
    assert [float(drawn.get_ydata()[0]) for drawn in losses.lines] == [0.1]
    assert float(scores.lines[0].get_ydata()[0]) == 0.5
