"""Files of each release are read by this version: graphs, runs and trials."""

import csv
import runpy
import shutil
from importlib import import_module
from pathlib import Path

import pytest
import shape_folders

import graphattn as ga
from graphattn.study.records import Records, read_plan

HERE = Path(__file__).parent
GRAPHS = runpy.run_path(str(HERE / "write.py"))["GRAPHS"]
RELEASES = sorted(HERE.glob("files_of_*"))


@pytest.fixture(params=RELEASES, ids=lambda folder: folder.name)
def release(request):
    return request.param


def test_there_are_files_of_the_first_release():
    assert RELEASES[0].name == "files_of_0_2"


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_are_those_that_were_saved(release, name):
    wanted = GRAPHS[name]()
    for file in release.glob(f"{name}.*"):
        graph = ga.load(file)
        assert type(graph) is type(wanted)
        if name == "pattern":
            graph, wanted = graph(9), wanted(9)
        if name == "heads":
            for one, other in zip(graph.graphs, wanted.graphs, strict=True):
                assert one.equals(other)
        else:
            assert graph.equals(wanted)


def test_a_run_predicts_what_it_predicted(release, tmp_path):
    shutil.copytree(release / "run", tmp_path / "run")
    (line,) = ga.training.predict(tmp_path / "run", [release / "shape.ply"], tmp_path / "out")
    (told,) = csv.DictReader((release / "predictions.csv").open())
    assert line["prediction"] == told["prediction"]
    assert line["probability"] == pytest.approx(float(told["probability"]), abs=1e-4)


@pytest.mark.slow
def test_a_run_goes_on(release, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("graphattn.training.fit"), "save_report", lambda *args: None)
    shutil.copytree(release / "run", tmp_path / "run")
    shapes = shape_folders.two_classes(tmp_path / "shapes")  # the same clouds as then
    words = []
    how = shape_folders.QUICK
    ga.training.train(shapes, tmp_path / "run", tell=lambda p: words.append(p.words), **how)
    assert any("is finished" in word for word in words)
    ga.training.train(shapes, tmp_path / "run", **how | {"epochs": 2})
    assert len((tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()) == 2


def test_trials_are_read_with_their_chain_of_hashes(release):
    records = Records(release / "study")
    assert len(records.of_key) > 3
    assert records.broken == []
    assert all(records.done(key) for key in records.of_key)
    assert records.reach(read_plan(release / "study").get("end"))
