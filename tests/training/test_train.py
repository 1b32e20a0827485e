"""Training on folders: what is refused, what is written, what the control reads."""

import json
import shutil
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from shape_folders import QUICK

import graphattn as ga
from graphattn.errors import LoaderError, OptionError
from graphattn.training.running.loop import TrainingState


def test_a_run_says_what_it_was_made_of(classes, tmp_path):
    result = ga.training.train(classes, tmp_path / "run", seed=5, **QUICK)
    told = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    files = {f"{name}/{number}.ply" for name in ("flat", "tall") for number in range(10)}
    assert {name for part in told["split"].values() for name in part} == files == set(told["files"])
    assert told["said"] == "14 train, 2 val, 4 test (drawn by seed 5, each class in these parts)"
    assert sorted(result.names) == sorted(told["split"]["test"])
    assert torch.__version__.startswith(told["versions"]["torch"].partition("+")[0])
    assert {"loss", "val_loss", "val_accuracy"} < set(
        json.loads((tmp_path / "run" / "log.jsonl").read_text("utf-8"))
    )
    assert ga.training.evaluate(tmp_path / "run").scores == result.scores


def test_a_run_is_not_written_over(classes, tmp_path):
    ga.training.train(classes, tmp_path / "run", **QUICK)
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(OptionError, match="holds a run that differs: seed is 0 there, 1 here"):
        ga.training.train(classes, tmp_path / "run", seed=1, **QUICK)
    assert (tmp_path / "run" / "run.json").read_bytes() == before


@pytest.mark.slow
def test_a_file_that_has_changed_is_named(classes, tmp_path):
    ga.training.train(classes, tmp_path / "run", **QUICK)
    shape = ga.load(classes / "flat" / "3.ply")
    shape.pos[2, 1] += 1
    ga.save(shape, classes / "flat" / "3.ply")
    with pytest.raises(
        LoaderError,
        match=r"flat.3.ply: expected the file that training began with, got one that has c",
    ):
        ga.training.resume(tmp_path / "run")
    shutil.rmtree(classes / "flat")
    with pytest.raises(LoaderError, match=r"flat.0.ply: .* got none"):
        ga.training.resume(tmp_path / "run")


@pytest.mark.slow
def test_a_folder_that_has_moved_is_trained_on(classes, tmp_path):
    first = ga.training.train(classes, tmp_path / "run", **QUICK)
    again = ga.training.resume(tmp_path / "run", classes.rename(tmp_path / "moved"))
    assert again.scores == first.scores


def wrong(folder, tmp_path, words, error=OptionError, **how):
    with pytest.raises(error, match=words):
        ga.training.train(folder, tmp_path / "run", **{**QUICK, **how})
    assert not (tmp_path / "run").exists()


def test_options_that_cannot_be_are_refused_before_anything_is_written(classes, tmp_path):
    wrong(classes, tmp_path, 'model must be "unet"', model="transformer")
    wrong(classes, tmp_path, "model='mesh' needs meshes", model="mesh")
    wrong(classes, tmp_path, "model_options: unet", model_options={"wide": 3})
    wrong(
        classes,
        tmp_path,
        "one recipe, or one for each of 2 levels, got 3",
        graph="full(...); full(...); full(...)",
    )
    wrong(classes, tmp_path, "open in its positions", graph="causal(5)")
    wrong(classes, tmp_path, 'augment must be "rotation"', augment=("spin",))
    with pytest.raises(TypeError, match="unexpected keyword argument 'momentum'"):
        ga.training.train(classes, tmp_path / "run", momentum=0.9)
    wrong(classes, tmp_path, "epochs must be a whole number >= 1", epochs=0)
    wrong(classes, tmp_path, "lr must be a finite number > 0, got nan", lr=float("nan"))
    wrong(classes, tmp_path, "device must be an available device", device="cuda:99")
    wrong(classes, tmp_path, "sample must be 0 for all points, or at least 2", sample=1)
    wrong(classes, tmp_path, "features must name at least one", features=())
    wrong(
        classes,
        tmp_path,
        "expected labels to segment, got none; its properties: none",
        LoaderError,
        task="segment",
    )
    wrong(
        classes,
        tmp_path,
        "expected labels to regress, got none.*--task classify",
        LoaderError,
        task="regress",
    )
    wrong(classes, tmp_path, "0.ply: .*heat", LoaderError, features=("heat",))
    wrong(classes, tmp_path, "0.ply: k=300 needs", LoaderError, graph="knn(..., 300)")


def test_labels_in_other_numbers_than_points_are_named(tmp_path):
    (tmp_path / "odd").mkdir()
    for number in range(4):
        torch.manual_seed(number)
        many = 6 if number == 2 else 7
        ga.save(
            ga.shapes.Shape(pos=torch.rand(7, 3), y=torch.arange(many)),
            tmp_path / "odd" / f"{number}.npz",
        )
    wrong(
        tmp_path / "odd",
        tmp_path,
        r"2.npz: expected a label for each point, got 6 for 7",
        LoaderError,
    )


@pytest.mark.slow
def test_whole_numbers_are_regressed_where_that_is_asked(classes, tmp_path):
    lines = [
        f"{path.relative_to(classes)},{number}"
        for number, path in enumerate(sorted(classes.glob("*/*.ply")))
    ]
    (classes / "labels.csv").write_text("\n".join(lines), encoding="utf-8")
    result = ga.training.train(classes, tmp_path / "run", task="regress", **QUICK)
    assert set(result.scores) == {"r2", "rmse", "mae", "values"}


def test_a_run_is_no_shape(classes):
    with pytest.raises(OptionError, match="out must be a folder of its own, got that of the"):
        ga.training.train(classes, classes, **QUICK)
    assert not (classes / "run.json").exists()
    before = repr(ga.shapes.ShapeFolder(classes))
    for name, mark in (("run", "run.json"), ("answers", "predictions.csv")):
        (classes / name).mkdir()
        (classes / name / mark).write_text("{}", "utf-8")
        shutil.copy(next(classes.rglob("*.ply")), classes / name / "0.ply")
    assert repr(ga.shapes.ShapeFolder(classes)) == before


def test_of_equal_scores_the_epoch_with_less_loss_is_kept():
    state = SimpleNamespace(by_metric=True, task=SimpleNamespace(metric="miou"))
    older = {"val_miou": 1.0, "val_loss": 0.5}
    better = partial(TrainingState._better, state)
    assert better({"val_miou": 1.0, "val_loss": 0.1}, older)
    assert not better({"val_miou": 1.0, "val_loss": 0.5}, older)
    assert not better({"val_miou": 0.9, "val_loss": 0.1}, older)
    assert better({"val_miou": 1.1, "val_loss": 0.9}, older)
