"""A network and a forest are compared across folds of few whole shapes, and either answers."""

from dataclasses import replace

import pytest
import torch

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.shapes import Shape, ShapeFolder
from graphattn.training import Options, Run
from graphattn.training.folds import fold_runs
from graphattn.training.models.forest import Forest
from graphattn.training.reading.scenes import prepared
from graphattn.training.resolve import resolve
from graphattn.training.run import FOLDS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Flat and tall clouds, 20 each."""
    root = tmp_path_factory.mktemp("shapes")
    draw = torch.Generator().manual_seed(1)
    for name, height in (("flat", 0.3), ("tall", 1.0)):
        (root / name).mkdir()
        for number in range(20):
            pos = torch.rand(30, 3, generator=draw) * torch.tensor([1.0, 1.0, height])
            ga.save(Shape(pos=pos), root / name / f"{number}.ply")
    return root


def run_of(folder, out, **options):
    return resolve(Options(model="best", **options), ShapeFolder(folder), out)


def test_each_shape_that_is_not_held_out_is_answered_for_once(folder, tmp_path):
    run = run_of(folder, tmp_path / "run")
    runs = fold_runs(run, ShapeFolder(folder))
    assert [one.path.name for one in runs] == list(FOLDS)
    tests = [name for one in runs for name in one.split["test"]]
    assert sorted(tests) == sorted([*run.split["train"], *run.split["val"]])
    for one in runs:
        parts = [set(names) for names in one.split.values()]
        assert sum(map(len, parts)) == len(set.union(*parts)) == len(tests)
        flat = sum(name.startswith("flat") for name in one.split["test"])
        assert abs(2 * flat - len(one.split["test"])) <= 1


def test_there_are_no_folds_of_points_or_of_many_shapes(folder, tmp_path, monkeypatch):
    run = run_of(folder, tmp_path / "run", val=0.3)
    monkeypatch.setattr("graphattn.training.folds._ENOUGH", 12)
    assert fold_runs(run, ShapeFolder(folder)) == []


def test_networks_of_folds_have_not_seen_what_their_run_starts_from(folder, tmp_path):
    first = run_of(folder, tmp_path / "first")
    first.save()
    shapes = ShapeFolder(folder)
    same = run_of(folder, tmp_path / "run")
    other = replace(same, files=dict.fromkeys(same.files, "of other shapes"))
    for run, start in ((same, ""), (other, str(first.path))):
        runs = fold_runs(replace(run, start=str(first.path)), shapes)
        assert {one.start for one in runs} == {start}


@pytest.mark.slow
def test_what_answers_is_chosen_across_folds(folder, tmp_path):
    options = {"epochs": 2, "model": "best", "control": False}
    result = ga.training.train(folder, tmp_path / "run", **options)
    choice = result.choice
    assert choice["folds"] == len(FOLDS)
    assert "in 4 folds" in str(result)
    assert choice["scores"][choice["name"]] == result.scores["accuracy"]
    # its forest knows the validation part
    run = Run.load(tmp_path / "run")
    shapes = run.read_folder(folder)
    number = {shapes.name(at): at for at in range(len(shapes))}
    known = [number[name] for part in ("train", "val") for name in run.split[part]]
    batches = prepared(run.inputs, shapes, known).batches(run.schedule.points)
    forest = Forest(run.features, run.task.out_dim, readout="shape")
    forest.fit(run.task, batches, run.schedule.seed)
    assert torch.equal(run.trained_model().forest.threshold, forest.threshold)
    for name, score in choice["scores"].items():
        other = ga.training.evaluate(tmp_path / "run", model=name)
        assert other.scores["accuracy"] == score
    file = folder / "flat" / "0.ply"
    answers = [
        ga.training.predict(tmp_path / "run", [file], tmp_path / name, model=name)[0]["probability"]
        for name in ("forest", "network")
    ]
    assert answers[0] != answers[1]
    again = ga.training.train(folder, tmp_path / "run", **options)
    assert again.choice == choice


def test_a_part_is_asked_of_a_run_that_has_it(folder, tmp_path):
    ga.training.train(folder, tmp_path / "run", model="forest", control=False)
    with pytest.raises(OptionError, match="is for a run of --model best"):
        ga.training.evaluate(tmp_path / "run", model="network")
