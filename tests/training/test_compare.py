"""Runs beside each other, runs that start from others, averages, half precision, and the table of a
log.
"""

import csv
import json
import re

import pytest
import torch
from safetensors.torch import load_file
from shape_folders import QUICK, measured_meshes

import graphattn as ga
from graphattn.errors import LoaderError, OptionError
from graphattn.training.pages.charts import curves
from graphattn.training.running.checkpoint import read_tensors
from graphattn.training.running.loop import Schedule, TrainingState
from graphattn.training.tasks import Classify, Regress


@pytest.mark.slow
def test_runs_are_compared_on_the_shapes_that_both_held_out(classes, parts, tmp_path):
    results = [
        ga.training.train(classes, tmp_path / name, lr=lr, **QUICK)
        for name, lr in (("a", 1e-6), ("b", 0.01))
    ]
    ga.training.train(classes, tmp_path / "c", seed=1, **QUICK)
    rows = ga.training.compare([tmp_path / name for name in "abc"])
    scores = [result.scores["accuracy"] for result in results]
    assert [row["score"] for row in rows[:2]] == scores
    assert rows[1]["difference"] == pytest.approx(scores[1] - scores[0])
    held_out = [
        json.loads((tmp_path / name / "result.json").read_text("utf-8"))["each"].keys()
        for name in "ac"
    ]
    assert rows[2]["shapes"] == len(held_out[0] & held_out[1]) < 4 == rows[1]["shapes"]
    ga.training.train(parts, tmp_path / "d", epochs=1, control=False)
    with pytest.raises(OptionError, match="of one task and its classes"):
        ga.training.compare([tmp_path / "a", tmp_path / "d"])
    (tmp_path / "b" / "result.json").unlink()
    with pytest.raises(LoaderError, match="a run that has ended"):
        ga.training.compare([tmp_path / "a", tmp_path / "b"])


@pytest.mark.slow
def test_a_run_starts_from_another_and_says_what_is_new(classes, tmp_path):
    ga.training.train(classes, tmp_path / "a", **QUICK)
    first, words = load_file(tmp_path / "a" / "model.safetensors"), []
    torch.save({**first, "head.last.weight": torch.zeros(5, 8)}, tmp_path / "other.pt")
    still = {
        **QUICK,
        "lr": 1e-30,
        "weight_decay": 0.0,
        "tell": lambda progress: words.append(progress.words),
    }
    for name, start in (("b", tmp_path / "a"), ("c", tmp_path / "other.pt")):
        ga.training.train(classes, tmp_path / name, start=start, **still)
        own = load_file(tmp_path / name / "model.safetensors")
        same = [torch.equal(own[key], first[key]) for key in own]
        assert same.count(False) == (name == "c")
    assert any("of another size: head.last.weight (2, 8), there (5, 8)" in line for line in words)
    (tmp_path / "odd.pt").write_bytes(b"no tensors")
    for start, match in (("none", "no such file"), ("odd.pt", "expected a state dict of tensors")):
        with pytest.raises(LoaderError, match=match):
            ga.training.train(classes, tmp_path / "d", start=tmp_path / start, **QUICK)
    assert not (tmp_path / "d").exists()


@pytest.mark.slow
def test_epochs_are_called_back_and_are_a_table(parts, tmp_path):
    lines = []
    ga.training.train(
        parts, tmp_path / "run", epochs=2, control=("perceptron",), on_epoch=lines.append
    )
    assert [(line["phase"], line["epoch"]) for line in lines] == [
        (phase, n) for phase in ("training", "control perceptron") for n in (1, 2)
    ]
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").open()))
    assert [float(row["val_miou"]) for row in rows] == [line["val_miou"] for line in lines[:2]]
    assert {"IoU of 0", "IoU of 1"} < set(rows[0])  # the IoU of each class


@pytest.mark.slow
def test_the_epoch_with_the_best_iou_is_kept_and_not_the_one_with_the_least_loss(
    parts, tmp_path, monkeypatch
):
    made = iter([(0.5, 1.0), (0.9, 3.0), (0.6, 0.5)])

    def told(model, task, data, how, *, loss=False):
        iou, value = next(made)
        monkeypatch.setattr(type(task), "scores", lambda self, *both: {"miou": iou})
        return [torch.zeros(len(y), 2) for y in data.labels()], value

    with monkeypatch.context():
        monkeypatch.setattr("graphattn.training.running.loop.answers_of", told)
        lines = []
        with pytest.raises(StopIteration):
            ga.training.train(
                parts, tmp_path / "run", epochs=4, control=False, on_epoch=lines.append
            )
    assert [line["best"] for line in lines] == [True, True, False]


@pytest.mark.slow
def test_an_average_of_parameters_is_kept_and_goes_on_to_the_same_bits(classes, tmp_path):
    how = {**QUICK, "epochs": 2, "average": 0.5}

    def stop(progress):
        if progress.epoch is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ga.training.train(classes, tmp_path / "a", tell=stop, **how)
    ga.training.resume(tmp_path / "a")
    ga.training.train(classes, tmp_path / "b", **how)
    ga.training.train(classes, tmp_path / "plain", **{**how, "average": 0.0})
    a, b, plain = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "b", "plain"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["head.last.weight"], plain["head.last.weight"])


@pytest.mark.slow
def test_half_precision_learns_nearly_the_same(classes, tmp_path, monkeypatch):
    dtypes, step = set(), TrainingState._step

    def watched(self, *rest):
        hook = self.model.head.last.register_forward_hook(lambda layer, x, y: dtypes.add(y.dtype))
        loss = step(self, *rest)
        hook.remove()
        return loss

    monkeypatch.setattr(TrainingState, "_step", watched)
    losses = []
    for amp in (True, False):
        ga.training.train(classes, tmp_path / str(amp), amp=amp, on_epoch=losses.append, **QUICK)
    assert dtypes == {torch.bfloat16, torch.float32}
    assert losses[0]["loss"] == pytest.approx(losses[1]["loss"], abs=0.02)
    assert losses[0]["loss"] != losses[1]["loss"]
    with pytest.raises(OptionError, match=r"average must be a number in \[0, 1\)"):
        Schedule(1, 1, average=1.0)


@pytest.mark.slow
def test_a_start_says_sizes_settings_and_what_it_has_seen(classes, tmp_path):
    ga.training.train(classes, tmp_path / "a", **QUICK)
    words, still = [], {**QUICK, "lr": 1e-30, "weight_decay": 0.0, "start": tmp_path / "a"}
    how = {
        **still,
        "seed": 1,
        "features": ("distance",),
        "tell": lambda progress: words.append(progress.words),
    }
    result = ga.training.train(classes, tmp_path / "b", **how)
    (line,) = (line for line in words if line.startswith("starts from"))
    assert re.search(r"embedding.first.weight \(\d+, 1\), there \(\d+, 8\)", line)
    assert "seed=1 (0)" in line
    assert "features=('distance',) (('distance', 'outward', 'spread'))" in line
    assert any("was trained on" in note for note in result.notes)
    other = load_file(tmp_path / "b" / "model.safetensors")
    assert float(other["embedding.first.mean"].abs().sum()) > 0  # measured, as no other run's fit
    assert not ga.training.train(classes, tmp_path / "c", **still).notes
    with pytest.raises(LoaderError, match=r"parameters of perceptron, got .*Try: the model"):
        ga.training.train(
            classes, tmp_path / "d", model="perceptron", **{**still, "model_options": {}}
        )


@pytest.mark.parametrize("name", ["state_dict", "model"])
def test_a_state_dict_within_the_state_of_a_loop_is_read(tmp_path, name):
    torch.save({name: {"module.a": torch.ones(2)}, "epoch": 3}, tmp_path / "loop.pt")
    assert read_tensors(tmp_path / "loop.pt")["a"].tolist() == [1, 1]
    torch.save({"epoch": 3}, tmp_path / "none.pt")
    (tmp_path / "words.txt").write_text("hello\n", encoding="utf-8")
    for file, match in (
        ("none.pt", "got: a dict of epoch"),
        ("words.txt", "got: a file that torch does not read"),
    ):
        with pytest.raises(LoaderError, match=match):
            read_tensors(tmp_path / file)


def test_runs_that_held_out_nothing_are_not_compared(classes, tmp_path):
    for name, test in (("a", 0.2), ("b", 0.0)):
        ga.training.train(
            classes, tmp_path / name, model="perceptron", epochs=1, control=False, test=test
        )
    with pytest.raises(OptionError, match=r"must have held out shapes \(--test\), got .*b"):
        ga.training.compare([tmp_path / "a", tmp_path / "b"])


def test_numbers_are_compared_over_the_variance_of_the_first_run(tmp_path, no_page):
    meshes = measured_meshes(tmp_path / "meshes")
    how = {"model": "perceptron", "epochs": 1, "control": False, "test": 0.5}
    results = [ga.training.train(meshes, tmp_path / str(seed), seed=seed, **how) for seed in (0, 1)]
    squares = [
        {
            name: (y - p).square().mean()
            for name, y, p in zip(one.names, one.labels, one.predictions, strict=True)
        }
        for one in results
    ]
    both = squares[0].keys() & squares[1].keys()
    spread = torch.cat(results[0].labels).double().var(correction=0)
    wanted = sum((squares[0][name] - squares[1][name]) / spread for name in both) / len(both)
    assert 0 < len(both) < 4
    row = ga.training.compare([tmp_path / "0", tmp_path / "1"])[1]
    assert row["difference"] == pytest.approx(float(wanted), rel=1e-4)


def test_a_curve_of_one_epoch_is_a_dot():
    task = Classify("shape", ("a", "b"))
    losses, _ = curves(
        [{"epoch": 1, "loss": 0.5, "val_loss": 0.6, "val_accuracy": 0.7, "best": True}], task
    ).axes
    assert [line.get_marker() for line in losses.lines] == ["o", "o"]


@pytest.mark.parametrize(("best", "metric", "top"), [(1.0, "accuracy", 1.0), (0.93, "r2", None)])
def test_an_axis_of_shares_ends_at_1_and_a_smoothed_loss_says_so(best, metric, top):
    task = Classify("shape", ("a", "b")) if top else Regress("shape")
    lines = [
        {"epoch": n, "loss": 0.5, "val_loss": 0.6, f"val_{metric}": best - 0.3 / n, "best": n == 4}
        for n in (1, 2, 4)
    ]
    losses, scores = curves([*lines, {**lines[-1], "epoch": 5, f"val_{metric}": best}], task).axes
    if top:
        assert scores.get_ylim()[1] == top
        assert not any(line.get_clip_on() for line in scores.lines)
    assert ("smoothed" in losses.get_title(loc="left")) == (metric == "accuracy")


def test_runs_on_other_labels_are_not_compared(tmp_path, no_page):
    folder = tmp_path / "scans"
    folder.mkdir()
    for number in range(8):
        pos = torch.rand(31, 3, generator=torch.Generator().manual_seed(number))
        ga.save(
            ga.shapes.Shape(pos=pos, label=pos[:, 0].clone(), wet=pos[:, 1].clone()),
            folder / f"{number}.ply",
        )
    quick = {"model": "perceptron", "epochs": 1, "control": False}
    for name, label in (("usual", None), ("named", "label"), ("wet", "wet")):
        ga.training.train(folder, tmp_path / name, label=label, **quick)
    rows = ga.training.compare([tmp_path / "usual", tmp_path / "named"])
    assert (rows[1]["shapes"], rows[1]["difference"]) == (2, 0.0)
    with pytest.raises(
        OptionError,
        match=r"must be trained on the same labels, got the usual label in .* and wet in",
    ):
        ga.training.compare([tmp_path / "usual", tmp_path / "wet"])


def test_runs_that_leave_out_other_values_are_not_compared(parts, tmp_path):
    quick = {"model": "perceptron", "epochs": 1, "control": False, "names": ("a", "b")}
    for name, ignore in (("a", ()), ("b", (7,))):
        ga.training.train(parts, tmp_path / name, ignore=ignore, **quick)
    assert ga.training.compare([tmp_path / name for name in "ab"])[1]["shapes"] == 2, (
        "no label was left out"
    )
    for path in parts.iterdir():
        shape = ga.load(path)
        shape.y[3] = 7
        ga.save(shape, path)
    ga.training.train(parts, tmp_path / "c", ignore=(7,), **quick)
    with pytest.raises(
        OptionError, match=r"got the usual label in .* and the usual label without 7 in"
    ):
        ga.training.compare([tmp_path / name for name in "ac"])


@pytest.mark.slow
@pytest.mark.parametrize("names", [("file", "prediction"), ("loss", "epoch"), ("val_miou", "ply")])
def test_a_class_called_as_a_column_replaces_none(parts, classes, tmp_path, names):
    quick = {"model": "perceptron", "epochs": 2, "control": False}
    lines = []
    ga.training.train(parts, tmp_path / "points", names=names, on_epoch=lines.append, **quick)
    rows = list(csv.DictReader((tmp_path / "points" / "metrics.csv").open()))
    for row, line in zip(rows, lines, strict=True):
        told = [int(row["epoch"]), float(row["loss"]), float(row["val_miou"])]
        assert told == [line["epoch"], line["loss"], line["val_miou"]]
        assert [float(row[f"IoU of {name}"]) for name in names] == list(line["val_iou"].values())
    for old, new in zip(("flat", "tall"), names, strict=True):
        (classes / old).rename(classes / new)
    ga.training.train(classes, tmp_path / "run", **quick)
    files = [classes / names[0] / "0.ply", classes / names[1] / "3.ply"]
    told = ga.training.predict(tmp_path / "run", files, tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "predictions.csv").open()))
    assert [row["file"] for row in rows] == [line["file"] for line in told] == list(map(str, files))
    for row, line in zip(rows, told, strict=True):
        assert row["written"] == line["ply"]
        assert row["prediction"] in names
        assert float(row["probability"]) == max(
            float(row[f"probability of {name}"]) for name in names
        )
