"""Words for what a run's scores hide: files in other units, properties not read, classes never
found, a short reach.
"""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from shape_folders import labelled_points, measured_meshes

import graphattn as ga
from graphattn.errors import LoaderError, OptionError
from graphattn.statistics.paired import Difference
from graphattn.training import Options
from graphattn.training.pages.notes import notes, reads
from graphattn.training.resolve import resolve
from graphattn.training.tasks import Segment
from graphattn.viz.colours import error_of

PLAIN = {"model": "perceptron", "epochs": 2, "control": False}


@pytest.fixture
def measured(tmp_path, no_page):
    """Points with an intensity from 0 to 1 and a property more, and a run that reads the
    intensity.
    """
    folder = labelled_points(tmp_path / "scans")
    for path in folder.iterdir():
        shape = ga.load(path)
        more = {"intensity": torch.rand(len(shape.pos)), "pulse": torch.rand(len(shape.pos))}
        ga.save(ga.shapes.Shape(pos=shape.pos, label=shape.y, **more), path)
    said = []
    tell = lambda progress: said.append(progress.words)  # noqa: E731
    ga.training.train(
        folder, tmp_path / "run", features=("position", "intensity"), tell=tell, **PLAIN
    )
    return folder, "\n".join(said)


def test_a_property_that_is_not_read_is_named(measured):
    assert (
        "reads position, intensity; not read: 'pulse' (--features position,intensity,NAME reads one)"
        in measured[1]
    )


def test_a_file_in_other_units_is_warned_of_by_the_name_of_the_feature(measured, tmp_path, recwarn):
    shape = ga.load(measured[0] / "3.ply")
    lines = ga.training.predict(tmp_path / "run", [measured[0] / "3.ply"], tmp_path / "same")
    assert not [
        each
        for each in recwarn
        if issubclass(each.category, UserWarning) and "unlike" in str(each.message)
    ]
    assert lines[0]["unlike"] == ""
    shape.intensity = shape.intensity * 65535
    ga.save(shape, tmp_path / "scan.ply")
    with pytest.warns(
        UserWarning, match=r"scan.ply is unlike .*: intensity .* \(in training 0.0\S+ to 0.9\S+\)"
    ):
        (line,) = ga.training.predict(tmp_path / "run", [tmp_path / "scan.ply"], tmp_path / "out")
    assert line["unlike"].startswith("intensity ")
    (tmp_path / "other").mkdir()
    for number in range(2):
        shape.intensity = torch.rand(len(shape.pos)) * 1e-3
        ga.save(shape, tmp_path / "other" / f"{number}.ply")
    with pytest.warns(UserWarning, match=r"0.ply is unlike .*: intensity"):
        ga.training.evaluate(tmp_path / "run", tmp_path / "other")


def test_points_of_another_spacing_are_warned_of(tmp_path, no_page):
    folder = measured_meshes(tmp_path / "meshes")
    ga.training.train(folder, tmp_path / "run", **PLAIN)
    shape = ga.load(folder / "0.ply")
    shape.pos = shape.pos * 1000
    ga.save(shape, tmp_path / "millimetres.ply")
    with pytest.warns(UserWarning, match=r"millimetres.ply is unlike .*spacing of points"):
        ga.training.predict(tmp_path / "run", [tmp_path / "millimetres.ply"], tmp_path / "out")


@pytest.mark.slow
def test_a_class_that_is_never_found_is_said_in_the_terminal_and_on_the_page(tmp_path):
    folder = labelled_points(tmp_path / "parts")
    for path in folder.iterdir():
        shape = ga.load(path)
        label = torch.zeros(len(shape.pos), dtype=torch.int32)
        label[:2] = 1
        ga.save(ga.shapes.Shape(pos=torch.rand(len(label), 3), label=label), path)
    result = ga.training.train(folder, tmp_path / "run", balance=False, **PLAIN)
    assert "no point of '1' is found: IoU 0.000" in str(result)
    assert "\n  0: IoU 0.9" in str(result)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "is found: IoU 0.000" in page
    assert f"graphattn predict {tmp_path / 'run'} NEW/*.ply --out answers" in page
    # loss, score, classes; then label, prediction and error of a shape
    assert len(re.findall("<img ", page.partition("<h2>Shapes")[0])) == 3
    assert len(re.findall("<img ", page.partition("<h2>Shapes")[2].partition("</figure>")[0])) == 3
    assert result.to_dict()["notes"] == result.notes == ga.training.evaluate(tmp_path / "run").notes


def test_a_model_of_short_reach_names_one_that_reads_the_whole_shape(tmp_path, no_page):
    folder = measured_meshes(tmp_path / "meshes")
    result = ga.training.train(folder, tmp_path / "run", epochs=1, control=False, model="mesh")
    assert "reads 2 rings of a mesh" in str(result)
    assert "--model mesh-unet reads the whole shape" in str(result)


def test_damaged_ranges_are_named(measured, tmp_path):
    (tmp_path / "run" / "ranges.json").write_text('{"position": [1]}', encoding="utf-8")
    with pytest.raises(ga.errors.LoaderError, match=r"ranges.json: .*four numbers"):
        ga.training.predict(tmp_path / "run", [measured[0] / "3.ply"], tmp_path / "out")


def test_unequal_classes_are_weighted_and_that_is_said(tmp_path, no_page):
    folder = labelled_points(tmp_path / "parts")
    for path in folder.iterdir():
        shape = ga.load(path)
        label = torch.zeros(len(shape.pos), dtype=torch.int32)
        label[::10] = 2  # no file has class 1
        ga.save(ga.shapes.Shape(pos=shape.pos + label[:, None], label=label), path)
    said = []
    tell = lambda progress: said.append(progress.words)  # noqa: E731
    result = ga.training.train(folder, tmp_path / "run", tell=tell, **PLAIN)
    rare = float(result.task.weights[2])
    assert rare > 2 > 1 > result.task.weights[0]
    assert (
        f"classes are weighted, rare ones more (--no-balance for none): 0 0.83, 2 {rare:.2g}"
        in "\n".join(said)
    )
    log = [
        json.loads(line)
        for line in (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()
    ]
    assert set(log[-1]["val_iou"]) == {"0", "1", "2"}
    assert "not there" not in str(result), "no file has it"
    loss = result.task.loss(torch.zeros(2, 3), torch.tensor([0, 2]))
    assert float(loss) == pytest.approx(1.0986 * (rare + result.task.weights[0]) / 2, abs=1e-3)
    alike = ga.training.train(folder, tmp_path / "alike", balance=False, **PLAIN)
    assert alike.task.weights == ()
    with pytest.raises(OptionError, match="balance is for the loss of a network"):
        ga.training.train(folder, tmp_path / "forest", balance=True, model="forest", control=False)
    shapes = ga.shapes.ShapeFolder(folder)
    words = {}
    for model in ("forest", "best"):
        run = resolve(Options(model=model, control=False), shapes, tmp_path / model)
        words[model] = reads(run, shapes)
    assert "weighted" not in words["forest"]
    assert "weighted in the loss of the network, not in the forest, rare" in words["best"]


def test_units_that_differ_between_files_of_training_and_rare_classes_are_said(tmp_path, no_page):
    folder, said = labelled_points(tmp_path / "scans"), []
    for number, path in enumerate(sorted(folder.iterdir())):
        shape = ga.load(path)
        shape.intensity = torch.rand(len(shape.pos)) * (65535 if number < 4 else 1)
        shape.y[3] = 3 if number == 4 else shape.y[3]  # 2 is a class without a label
        ga.save(shape, path)
    how = {
        **PLAIN,
        "epochs": 1,
        "val": 0,
        "test": 0,
        "tell": lambda progress: said.append(progress.words),
    }
    with pytest.warns(
        UserWarning,
        match=r"intensity of \d.ply \(up to \d\S+\) is in other units than that of [4-9].ply",
    ):
        ga.training.train(folder, tmp_path / "run", **how)
    assert "classes of few labels to train on: 3 (1)" in "\n".join(said)


def test_labels_of_one_class_and_functions_that_are_none_are_refused(tmp_path, no_page):
    (tmp_path / "one").mkdir()
    for number in range(4):
        ga.save(
            ga.shapes.Shape(pos=torch.rand(9, 3), label=torch.ones(9).int()),
            tmp_path / "one" / f"{number}.ply",
        )
    with pytest.raises(
        LoaderError, match=r"labels of two classes or more, got only '1' in the part to train"
    ):
        ga.training.train(tmp_path / "one", tmp_path / "run")
    for name in ("on_epoch", "tell"):
        with pytest.raises(OptionError, match=f"{name} must be a function"):
            ga.training.train(tmp_path / "none", tmp_path / "run", **{name: 3})


def test_a_share_wrong_is_one_of_the_labels():
    task = Segment("node", ("a", "b"))
    assert float(task.error(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, -1, -1]))) == 0.5
    colours = error_of(np.array([0, 0, -1]), np.array([0, 1, 1]))
    assert [name for name, _ in colours.labels] == ["right", "wrong", "no label"]
    assert len(np.unique(colours.rgb, axis=0)) == 3


def test_epochs_are_chosen_by_loss_where_the_validation_part_lacks_classes(
    tmp_path, no_page, monkeypatch
):
    """A mean IoU over the classes that are there is 1.000 of a tile of one class."""
    labelled_points(tmp_path / "train")
    (tmp_path / "val").mkdir()
    shape = ga.load(tmp_path / "train" / "0.ply")
    shape.y[:] = 1
    ga.save(shape, tmp_path / "val" / "0.ply")
    losses = iter([0.9, 0.5, 0.7])

    def answers(model, task, data, how, *, loss=False):
        return [torch.eye(2)[[1] * len(y)] for y in data.labels()], next(losses, 0.0)

    monkeypatch.setattr("graphattn.training.running.loop.answers_of", answers)
    words, lines = [], []
    options = {"epochs": 3, "patience": 9, "tell": lambda progress: words.append(progress.words)}
    result = ga.training.train(
        tmp_path, tmp_path / "run", on_epoch=lines.append, **{**PLAIN, **options}
    )
    note = (
        "the validation part has no label of 0: the epoch is chosen by its loss, not by its "
        "mean IoU"
    )
    assert any(f"note: {note}" in text for text in words[:1])
    assert note in result.notes
    assert [line["val_miou"] for line in lines] == [1.0] * 3
    assert [line["best"] for line in lines] == [True, True, False]


def test_a_validation_part_with_every_class_is_not_noted(measured):
    assert "no label of" not in measured[1]


@pytest.mark.parametrize("lacks", [False, True])
def test_a_run_that_ends_early_says_why_and_its_scores_come_before_the_controls(
    tmp_path, no_page, lacks
):
    folder = labelled_points(tmp_path / "scans")
    if lacks:
        (folder / "val").mkdir()
        shape = ga.load(folder / "9.ply")
        shape.y[:] = 1
        ga.save(shape, folder / "val" / "9.ply")
        (folder / "train").mkdir()
        for path in folder.glob("*.ply"):
            path.rename(folder / "train" / path.name)
    words = []
    options = {"epochs": 9, "patience": 2, "lr": 1e-30, "control": ("forest",)}
    tell = lambda progress: words.append(progress.words)  # noqa: E731
    result = ga.training.train(folder, tmp_path / "run", tell=tell, **{**PLAIN, **options})
    measure = "loss" if lacks else "mean IoU"
    why = (
        f"ends after epoch 3 of 9: epoch 1 has the best {measure} of the validation part, and of "
        "the next 2 none has a"
    )
    place = {
        part: next(n for n, text in enumerate(words) if part in text)
        for part in (why, "held out", "control: ")
    }
    assert place[why] < place["held out"] < place["control: "]
    assert words[place["held out"]] == result.in_words
    assert "held out" not in words[-1]
    assert "a random forest, on the same split" in words[-1]


def test_classes_of_las_that_no_point_has_are_not_listed(tmp_path, no_page):
    (tmp_path / "tiles").mkdir()
    for number in range(6):
        pos = torch.rand(60, 3, generator=torch.Generator().manual_seed(number))
        kind = (2 + 4 * (pos[:, 2] > 0.5)).to(torch.uint8)
        if number % 2:
            kind[5] = 9
        ga.save(ga.shapes.Shape(pos=pos, classification=kind), tmp_path / "tiles" / f"{number}.las")
    words = []
    tell = lambda progress: words.append(progress.words)  # noqa: E731
    options = {"features": ("position",), "val": 0, "tell": tell}
    result = ga.training.train(tmp_path / "tiles", tmp_path / "run", **{**PLAIN, **options})
    assert words[0].startswith(
        "ShapeFolder(6 shapes to segment, 60 to 60 points; files with labels: ground, building, "
        "water)\n"
    )
    assert "vegetation" not in result.in_words
    assert "never classified" not in result.in_words


@pytest.mark.parametrize(("model", "hint"), [("unet", True), ("best", False)])
def test_a_network_that_loses_to_the_forest_names_the_better_of_both(model, hint):
    run = SimpleNamespace(
        model=model,
        unlike_start=lambda: [],
        note_of_unfinished=lambda: "",
        unfinished_control=lambda name: "",
        options={},
    )
    result = SimpleNamespace(
        task=SimpleNamespace(name="segment", readout="node"),
        scores={},
        controls={"forest": None},
        over=lambda name: Difference(-0.2, -0.3, -0.1, 7),
        reach=None,
    )
    (line,) = notes(run, result)
    assert line.startswith(f"a random forest scores more than {model}, by +0.200 [")
    assert ("--model best answers by the better of a network and a forest" in line) is hint
