"""Inputs that a folder and options give a model: features, levels and points that are drawn."""

import pytest
import torch
from shape_folders import labelled_points, measured_meshes

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.shapes import Shape, ShapeFolder
from graphattn.training import Options
from graphattn.training.chosen import task_of
from graphattn.training.reading.default_inputs import inputs_of
from graphattn.training.reading.inputs import OF_ATOMS


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


def test_the_elements_of_atoms_are_read(tmp_path):
    for number in range(4):
        atoms = Shape(pos=torch.rand(9, 3), z=torch.arange(1, 10), energy=torch.tensor([number]))
        ga.save(atoms, tmp_path / f"{number}.npz")
    shapes = ShapeFolder(tmp_path, label="energy", task="regress")
    task = task_of("regress", shapes, [0, 1, 2, 3])
    assert inputs_of("unet", task, shapes, [0, 1], Options()).features[-2:] == OF_ATOMS
