"""Predictions of files: coloured copies and a table."""

import csv
import shutil
from pathlib import Path

import pytest
import torch
from shape_folders import QUICK

import graphattn as ga
from graphattn.errors import LoaderError, OptionError
from graphattn.training.pages.notes import reads
from graphattn.training.predict import _write_rows
from graphattn.training.reading.scenes import Scenes
from graphattn.training.tasks import Regress, Segment


def test_of_shapes_a_class_and_its_probabilities(classes, tmp_path):
    ga.training.train(classes, tmp_path / "run", **QUICK)
    files = [classes / "flat" / "0.ply", classes / "tall" / "1.ply"]
    lines = ga.training.predict(tmp_path / "run", files, tmp_path / "out")
    with open(tmp_path / "out" / "predictions.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == list(map(str, files))
    for line, row, file in zip(lines, rows, files, strict=True):
        shares = {name: row[f"probability of {name}"] for name in ("flat", "tall")}
        assert sum(map(float, shares.values())) == pytest.approx(1, abs=1e-5)
        assert shares[row["prediction"]] == max(shares.values()) == row["probability"]
        made, given = ga.load(line["ply"]), ga.load(file)
        assert torch.equal(made.pos, given.pos)
        assert {("flat", "tall")[number] for number in made.prediction.tolist()} == {
            row["prediction"]
        }
        assert len(made.color.unique(dim=0)) == 1


def test_contours_of_a_plane_are_trained_on_and_predicted(tmp_path):
    """Two columns, as of GeoJSON and tables of outlines."""
    angle = torch.arange(12) * torch.pi / 6
    for lobes in (2, 3):
        for number in range(6):
            radius = 1 + 0.3 * torch.cos(lobes * angle + number)
            pos = torch.stack((radius * angle.cos(), radius * angle.sin()), 1)
            rows = [f"{x},{y},{k},1\n" for k, (x, y) in enumerate(pos.tolist())]
            path = tmp_path / "shapes" / f"lobes{lobes}" / f"{number}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x,y,order,closed\n" + "".join(rows))
    options = {"embed_dim": 8, "num_layers": 1, "num_heads": 2}
    quick = {**QUICK, "model": "curve", "model_options": options}
    ga.training.train(tmp_path / "shapes", tmp_path / "run", **quick)
    # what lines are made of is read by way of them
    run = ga.training.Run.load(tmp_path / "run")
    assert reads(run, run.read_folder(run.folder)) == "reads distance, spread, degree"
    (line,) = ga.training.predict(tmp_path / "run", [path], tmp_path / "out")
    made = ga.load(line["ply"])
    assert torch.allclose(made.pos[:, :2], pos)
    assert not made.pos[:, 2].any()
    assert made.edge_index.shape == (2, 24)


@pytest.mark.slow
def test_of_points_a_class_each_in_its_colour(parts, tmp_path):
    options = {"widths": [8, 8, 8], "num_heads": 2}
    ga.training.train(
        parts, tmp_path / "run", **{**QUICK, "model_options": options, "epochs": 4, "lr": 0.02}
    )
    (line,) = ga.training.predict(tmp_path / "run", [parts / "0.ply"], tmp_path / "out")
    made = ga.load(line["ply"])
    with pytest.raises(OptionError, match="must not be called predictions"):
        ga.training.predict(tmp_path / "run", [tmp_path / "predictions.ply"], tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "0.csv").read_text("utf-8").splitlines()))
    assert [int(row["prediction"]) for row in rows] == made.prediction.tolist()
    assert len(made.color.unique(dim=0)) == len(made.prediction.unique())


def test_files_that_do_not_fit_are_named_and_those_before_them_are_written(classes, tmp_path):
    ga.training.train(classes, tmp_path / "run", **QUICK)
    ga.save(ga.shapes.Shape(pos=torch.ones(5, 3)), tmp_path / "flat.ply")
    with pytest.raises(LoaderError, match=r"flat.ply: .*5 points at one place"):
        ga.training.predict(
            tmp_path / "run", [classes / "tall" / "0.ply", tmp_path / "flat.ply"], tmp_path / "out"
        )
    assert len((tmp_path / "out" / "predictions.csv").read_text("utf-8").splitlines()) == 2
    with pytest.raises(OptionError, match="got two of '0'"):
        ga.training.predict(tmp_path / "run", [classes / "tall" / "0.ply"] * 2, tmp_path)
    both = [classes / "tall" / "0.ply", classes / "flat" / "0.ply"]
    lines = ga.training.predict(tmp_path / "run", both, tmp_path / "both")
    assert [Path(line["ply"]).relative_to(tmp_path) for line in lines] == [
        Path("both/tall/0.ply"),
        Path("both/flat/0.ply"),
    ]
    with pytest.raises(OptionError, match="would be replaced"):
        ga.training.predict(tmp_path / "run", [classes / "tall" / "0.ply"], classes / "tall")
    with pytest.raises(OptionError, match="would be replaced"):  # by a table of points
        ga.training.predict(tmp_path / "run", [tmp_path / "scan.csv"], tmp_path)
    with pytest.raises(
        OptionError, match=r"name its files, such as .*shapes.\*\.ply, or graphattn ev"
    ):
        ga.training.predict(tmp_path / "run", [classes], tmp_path / "out")
    with pytest.raises(LoaderError, match=r"one file is for .*graphattn predict"):
        ga.training.evaluate(tmp_path / "run", classes / "tall" / "0.ply")
    with pytest.raises(LoaderError, match=r"expected the folder of a run"):
        ga.training.predict(classes, [classes / "tall" / "0.ply"], tmp_path)


def test_a_run_is_measured_where_its_device_is_not(classes, tmp_path):
    ga.training.train(classes, tmp_path / "run", model="perceptron", epochs=1, control=False)
    before = ga.training.evaluate(tmp_path / "run").to_dict()
    told = (tmp_path / "run" / "run.json").read_text("utf-8")
    (tmp_path / "run" / "run.json").write_text(
        told.replace('"device": "cpu"', '"device": "cuda:99"'), encoding="utf-8"
    )
    assert ga.training.evaluate(tmp_path / "run").to_dict() == before
    with pytest.raises(OptionError, match="device must be an available device"):
        ga.training.resume(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(
        told.replace('"model": "perceptron"', '"model": "pct"'), encoding="utf-8"
    )
    with pytest.raises(
        LoaderError, match=r"model.safetensors: expected a state of this run, got that of another"
    ):
        ga.training.evaluate(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(told, encoding="utf-8")
    extra = classes / "tall" / "more.ply"
    shutil.copy(classes / "tall" / "0.ply", extra)
    with pytest.raises(LoaderError, match=r"more.ply: .* a new one\. Try: take it out of the f"):
        ga.training.evaluate(tmp_path / "run")
    extra.unlink()
    (classes / "flat" / "0.ply").unlink()
    with pytest.raises(
        LoaderError, match=r"flat.0.ply: expected the file that training began with, got none"
    ):
        ga.training.evaluate(tmp_path / "run")


def test_a_class_that_the_model_does_not_know_is_named(classes, tmp_path):
    ga.training.train(classes, tmp_path / "run", **QUICK)
    (classes / "flat").rename(classes / "round")
    with pytest.raises(
        LoaderError, match=r"round.0.ply: expected a class of flat, tall, got 'round'"
    ):
        ga.training.evaluate(tmp_path / "run", classes)


@pytest.mark.slow
def test_labels_of_another_folder_are_matched_by_name(classes, tmp_path):
    ga.training.train(classes, tmp_path / "run", **{**QUICK, "epochs": 3, "lr": 0.02})
    whole = ga.training.evaluate(tmp_path / "run", classes)
    for number in range(9):
        (classes / "flat" / f"{number}.ply").unlink()
    with_one = ga.training.evaluate(tmp_path / "run", classes)  # a class may have one shape here
    assert [sum(row) for row in with_one.scores["confusion"]] == [1, 10]
    shutil.rmtree(classes / "flat")
    tall = ga.training.evaluate(tmp_path / "run", classes)
    assert tall.part == "all"
    assert whole.part == "test"
    assert tall.scores["confusion"][0] == [0, 0]
    assert sum(tall.scores["confusion"][1]) == 10


def test_a_las_stays_one_with_every_dimension_and_a_prediction(tmp_path, no_page):
    laspy = pytest.importorskip("laspy")
    (tmp_path / "scans").mkdir()
    for number in range(8):
        pos = torch.rand(30, 3, generator=torch.Generator().manual_seed(number)).double() + 6e6
        kind = 2 + 3 * (pos[:, 2] > 6e6 + 0.5).to(torch.uint8)
        shape = ga.shapes.Shape(
            pos=pos, classification=kind, gps_time=pos[:, 0], user=pos[:, 1].float()
        )
        ga.save(shape, tmp_path / "scans" / f"{number}.laz")
    how = {"ignore": (0, 1), "names": ("ground", "low", "middle", "high")}
    result = ga.training.train(
        tmp_path / "scans",
        tmp_path / "run",
        **how,
        model="perceptron",
        epochs=2,
        control=False,
        features=("position",),
    )
    assert list(result.scores["iou"]) == ["ground", "low", "middle", "high"]
    (line,) = ga.training.predict(
        tmp_path / "run", [tmp_path / "scans" / "1.laz"], tmp_path / "out"
    )
    given, made = (laspy.read(path) for path in (tmp_path / "scans" / "1.laz", line["las"]))
    for name in given.point_format.dimension_names:
        assert (given[name] == made[name]).all(), name
    assert (given.xyz == made.xyz).all()
    assert set(made["prediction"]) <= {2, 3, 4, 5}
    assert float(made["probability"].min()) > 0.25
    (again,) = ga.training.predict(tmp_path / "run", [line["las"]], tmp_path / "again")
    assert (laspy.read(again["las"])["prediction"] == made["prediction"]).all()
    assert ga.training.evaluate(tmp_path / "run").scores == result.scores


def test_a_ply_keeps_every_property(parts, tmp_path):
    shape = ga.load(parts / "1.ply")
    more = {
        "color": torch.eye(3)[torch.arange(len(shape.pos)) % 3],
        "pulse": torch.arange(len(shape.pos)).int(),
    }
    ga.training.train(parts, tmp_path / "run", model="perceptron", epochs=1, control=False)
    ga.save(ga.shapes.Shape(pos=shape.pos, label=shape.y, **more), tmp_path / "scan.ply")
    (line,) = ga.training.predict(tmp_path / "run", [tmp_path / "scan.ply"], tmp_path / "out")
    made = ga.load(line["ply"])
    assert torch.equal(made.y, shape.y)
    assert all(torch.equal(made[name], value) for name, value in more.items())


@pytest.mark.parametrize("task", [Segment("node", ("a", 'b, "c"')), Regress("node")])
def test_the_table_of_points_is_written_in_pieces(tmp_path, monkeypatch, task):
    monkeypatch.setitem(_write_rows.__globals__, "_ROWS", 3)
    answers = torch.rand(7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    answers = torch.stack((answers, 1 - answers), 1) if task.classes else answers
    with open(tmp_path / "rows.csv", "wb") as file:
        _write_rows(task, answers, file)
    rows = list(csv.reader((tmp_path / "rows.csv").open(newline="")))
    shares = [f"probability of {name}" for name in task.classes]
    assert rows[0] == (["prediction", "probability", *shares] if shares else ["prediction"])
    assert len(rows) == 8
    for row, answer in zip(rows[1:], answers, strict=True):
        if task.classes:
            assert row[0] == task.classes[int(answer.argmax())]
            assert list(map(float, row[1:])) == pytest.approx(
                [float(answer.max()), *answer.tolist()], abs=1e-6
            )
        else:
            assert float(row[0]) == float(answer)


def test_a_scan_is_thinned_and_cut_once_to_be_predicted(tmp_path, no_page, monkeypatch):
    (tmp_path / "scans").mkdir()
    for number in range(3):
        pos = torch.rand(400, 3, generator=torch.Generator().manual_seed(number))
        ga.save(
            ga.shapes.Shape(pos=pos, label=(pos[:, 2] > 0.5).int()),
            tmp_path / "scans" / f"{number}.ply",
        )
    ga.training.train(
        tmp_path / "scans", tmp_path / "run", model="perceptron", grid=0.1, epochs=1, control=False
    )
    made, build = [], Scenes.__init__
    monkeypatch.setattr(
        Scenes, "__init__", lambda self, *rest: made.append(rest[-1]) or build(self, *rest)
    )
    for votes in (1, 2):
        ga.training.predict(
            tmp_path / "run", [tmp_path / "scans" / "0.ply"], tmp_path / str(votes), votes=votes
        )
    assert made == [0, 0, 1]
