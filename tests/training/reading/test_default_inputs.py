"""Inputs that a folder and options give a model: features, levels and points that are drawn."""

import pytest
import torch
from shape_folders import labelled_points, measured_meshes

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.shapes import Shape, ShapeFolder
from graphattn.training import Options
from graphattn.training.chosen import task_of
from graphattn.training.controls import control_of
from graphattn.training.models.named import MODELS
from graphattn.training.reading.default_inputs import inputs_of
from graphattn.training.reading.inputs import OF_ATOMS
from graphattn.training.resolve import resolve


def inputs_for(folder, model="unet", **options):
    shapes = ShapeFolder(folder)
    numbers = list(range(len(shapes)))
    task = task_of(shapes.task, shapes, numbers)
    return inputs_of(model, task, shapes, numbers, Options(**options))


@pytest.mark.parametrize("turned", [False, True])
def test_features_stand_in_the_order_of_the_files_whatever_keys_says(tmp_path, monkeypatch, turned):
    """PyG's ``keys()`` is a set's list: processes of one training would read other orders."""
    for path in labelled_points(tmp_path / "scans").iterdir():
        shape = ga.load(path)
        rows = {"intensity": torch.rand(len(shape.pos)), "color": torch.rand(len(shape.pos), 3)}
        ga.save(Shape(pos=shape.pos, label=shape.y, **rows), path)
    names = list(dict(ga.load(path).items()))
    order = tuple(name for name in names if name in ("intensity", "color"))
    monkeypatch.setattr(Shape, "keys", lambda self: sorted(self.to_dict(), reverse=turned))
    assert inputs_for(tmp_path / "scans").features[-2:] == order


def test_one_recipe_is_for_every_level_of_a_scene(tmp_path):
    folder = labelled_points(tmp_path / "scans")
    recipe = "knn(..., 3, clamp=True)"
    assert inputs_for(folder, grid=0.7, graph=recipe).graph == (recipe,) * 4
    assert inputs_for(folder, grid=0, graph=recipe).graph == (recipe,) * 3
    with pytest.raises(OptionError, match="one recipe, or one for each of 4 levels, got 3"):
        inputs_for(folder, grid=0.7, graph="; ".join([recipe] * 3))


@pytest.mark.parametrize("options", [{"grid": 0}, {}])
def test_blocks_of_clouds_that_are_not_thinned_are_refused(tmp_path, options):
    folder = labelled_points(tmp_path / "scans")
    with pytest.raises(OptionError, match=r"thinned to a grid, got block=9 and grid=0; give grid"):
        inputs_for(folder, block=9, **options)
    assert inputs_for(folder, block=9, grid=0.7).block == 9


def test_a_sample_of_points_with_labels_is_refused_before_shapes_are_read(tmp_path):
    with pytest.raises(OptionError, match="sample must be 0 where each point has a label, got 7"):
        ga.training.train(measured_meshes(tmp_path / "meshes"), tmp_path / "run", sample=7)


def test_neurons_of_many_points_are_no_scans(tmp_path, monkeypatch):
    monkeypatch.setattr("graphattn.training.reading.default_inputs.MANY", 9)
    rows = [f"{n} {1 + n % 3} {n} {n * n % 7} 0 1 {n - 1 or -1}" for n in range(1, 10)]
    for number in range(5):
        (tmp_path / f"{number}.swc").write_text("\n".join(rows), encoding="utf-8")
    options = {"label": "type", "ignore": (0,)}
    shapes = ShapeFolder(tmp_path, **options)
    for up in (None, "z"):
        run = resolve(Options(**options, up=up), shapes, tmp_path / "run")
        assert run.model == "curve"
        assert run.inputs.grid == 0
        assert run.inputs.upward == (up or "")
    with pytest.raises(OptionError, match="grid must be 0 for model='curve'"):
        resolve(Options(**options, grid=0.5), shapes, tmp_path / "run")
    with pytest.raises(OptionError, match="block requires clouds that are thinned to a grid"):
        resolve(Options(**options, block=0.5), shapes, tmp_path / "run")


@pytest.fixture
def molecules(tmp_path):
    for number in range(10):
        atoms = Shape(pos=torch.rand(9, 3), z=torch.arange(1, 10), energy=torch.tensor([number]))
        ga.save(atoms, tmp_path / f"{number}.npz")
    return ShapeFolder(tmp_path, label="energy", task="regress")


def test_elements_and_radii_are_read_by_controls_too(molecules, tmp_path):
    task = task_of("regress", molecules, [0, 1, 2, 3])
    assert inputs_of("unet", task, molecules, [0, 1], Options()).features[-2:] == OF_ATOMS
    words = ("distance", "log_radius", *OF_ATOMS)
    run = resolve(Options(model="best", features=words), molecules, tmp_path / "run")
    for name in ("perceptron", "forest"):
        assert {*words[1:]} <= {*control_of(run, name, molecules).inputs.features}


@pytest.mark.parametrize("words", [("composition", "distance"), ("distance", "composition")])
def test_counts_of_elements_are_fitted_by_a_linear_model_wherever_they_stand(
    molecules, tmp_path, words
):
    run = resolve(Options(model="best", features=words), molecules, tmp_path / "run")
    assert run.inputs.features == ("distance", "composition")
    assert run.options == {"network_features": 1, "linear_features": 119}
    alone = resolve(Options(model="best", features=words[:1]), molecules, tmp_path / "run")
    assert alone.options == {}
    with pytest.raises(OptionError, match="must leave atoms that composition counts, got drop"):
        resolve(Options(augment=("drop",)), molecules, tmp_path / "run")


def test_a_network_of_curves_reads_all_but_the_covariances(tmp_path):
    line = torch.stack((torch.arange(8), torch.arange(1, 9)))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(5):
            curve = Shape(pos=torch.rand(9, 3), width=torch.rand(9), edge_index=line)
            ga.save(curve, tmp_path / name / f"{number}.npz")
    shapes = ShapeFolder(tmp_path)

    def run_of(*words):
        return resolve(Options(model="best", features=words or None), shapes, tmp_path / "run")

    assert run_of().options == {"network_features": 8}
    run = run_of("local", "distance", "spread", "degree", "width")
    assert run.inputs.features == ("distance", "spread", "degree", "width", "local")
    assert run.new_model().network_features == 9
    assert run_of("local").new_model().network_features == 27


def test_a_recipe_of_lines_is_that_of_the_finest_level(tmp_path):
    for number, name in enumerate("aabb"):
        (tmp_path / name).mkdir(exist_ok=True)
        text = "x,y,z,order\n" + "\n".join(f"{step},{number},0,{step}" for step in range(9))
        (tmp_path / name / f"{number}.csv").write_text(text)
    recipe = "mesh_vertices(..., hops=4) | knn(..., 3, clamp=True)"
    usual = MODELS["unet"].of_shape.graph
    for number, graph in enumerate((recipe, f"{recipe}, knn(..., 2, clamp=True)"), 1):
        inputs = inputs_for(tmp_path, graph=graph)
        assert inputs.graph == (graph, *usual[1:])
        levels = inputs(ga.load(tmp_path / "a" / "0.csv"), "0.csv").levels
        assert [len(level.graphs) for level in levels.levels] == [number, 1]
