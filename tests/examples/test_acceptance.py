"""The acceptance table: what is there is reported, what is missing is run, and nothing twice."""

import json
from importlib import import_module

import acceptance
import generated_shapes
import pytest
from acceptance import Task, told


@pytest.mark.slow
def test_an_ended_command_goes_on_and_tells_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(import_module("graphattn.training.fit"), "save_report", lambda *args: None)
    few = {"each": 4, "test": 2, "rings": 12, "around": 6}
    options = {**acceptance.TASKS["geodesic"].options, "epochs": 1}
    task = Task(
        "distances",
        "relative error",
        0.04,
        make=generated_shapes.geodesic,
        many=few,
        options=options,
        beside=acceptance.shortest_paths,
        sign=-1,
    )
    monkeypatch.setattr(acceptance, "TASKS", {"geodesic": task, "parts": acceptance.TASKS["parts"]})
    asked = [
        str(tmp_path / "runs"),
        "--tasks",
        "geodesic",
        "--seeds",
        "1",
        "--out",
        str(tmp_path / "table"),
    ]
    acceptance.main(asked)
    (row, missing) = json.loads((tmp_path / "table" / "acceptance.json").read_text("utf-8"))["rows"]
    assert (row["seeds"], row["epochs"], missing["seeds"]) == (1, 1, 0)
    over = {name: one["over_seeds"]["mean"] for name, one in row["controls"].items()}
    assert over == {
        name: row["of_seeds"][0] - one["score"]["mean"] for name, one in row["controls"].items()
    }
    assert row["beside"]["Dijkstra / constant"]["mean"] < row["beside"]["Dijkstra"]["mean"]
    words = (tmp_path / "table" / "acceptance.md").read_text("utf-8")
    assert "| parts | miou >= 0.85 | not run" in words
    (where,) = row["machines"]
    assert f"* geodesic: {where['processor']}" in words
    assert "machines" not in missing
    (line,) = (tmp_path / "runs" / "trials.jsonl").read_text("utf-8").splitlines()

    # killed before its line: the run itself is on the disk
    (tmp_path / "runs" / "trials.jsonl").write_text("", encoding="utf-8")
    monkeypatch.setattr(generated_shapes, "save", None)
    acceptance.main(asked)
    (again,) = (tmp_path / "runs" / "trials.jsonl").read_text("utf-8").splitlines()
    assert json.loads(again)["differences"] == json.loads(line)["differences"]
    capsys.readouterr()
    acceptance.main(asked)
    assert "CPU s" not in capsys.readouterr().out


def test_differences_are_paired_over_seeds_and_over_shapes():
    seeds = [
        {
            "score": 0.8,
            "controls": {"random": 0.7},
            "differences": {"random": [0.0, 0.2]},
            "beside": {},
            "epochs": 3,
            "cpu_s": 9.0,
        },
        {
            "score": 0.9,
            "controls": {"random": 0.7},
            "differences": {"random": [0.2, 0.2]},
            "beside": {},
            "epochs": 3,
            "cpu_s": 9.0,
        },
    ]
    row = told("parts", Task("parts of clouds", "miou", 0.85), seeds)
    assert row["reached"] == 1
    over = row["controls"]["random"]
    assert [over[key]["mean"] for key in ("over_seeds", "over_shapes")] == pytest.approx(
        [0.15, 0.15]
    )
    assert [over[key]["seeds"] for key in ("over_seeds", "over_shapes")] == [2, 4]


def test_the_summary_has_the_better_layer_of_pyg_and_minutes_of_the_model_alone():
    record = {
        "score": 0.8,
        "controls": {"perceptron": 0.25},
        "differences": {},
        "beside": {"forest": 0.7, "PyG EdgeConv": 0.5, "PyG PointTransformerConv": 0.6},
        "epochs": 3,
        "cpu_s": 900.0,
        "model_s": 90.0,
    }
    task = acceptance.TASKS["parts"]
    (line,) = acceptance.summary([told("parts", task, [record])])[2:]
    cells = "| **0.800** |  | 0.700 | 0.600 |  |  | 0.250 | 1.5 |"
    assert line == f"| {task.words} (parts) | miou {cells}"


def test_what_a_formula_exceeds_is_not_bold():
    record = {
        "score": 0.05,
        "controls": {"random": 0.06},
        "differences": {},
        "beside": {"Dijkstra": 0.07, "Dijkstra / constant": 0.04},
        "epochs": 3,
        "cpu_s": 900.0,
    }
    task = acceptance.TASKS["geodesic"]
    (line,) = acceptance.summary([told("geodesic", task, [record])])[2:]
    assert (
        line
        == f"| {task.words} (geodesic) | relative error | 0.050 |  |  |  | 0.040 | 0.060 |  | 15.0 |"
    )


def test_a_row_keeps_the_machine_and_the_days_of_its_seeds():
    first = {
        "processor": "P",
        "cores": 2,
        "versions": {"torch": "3"},
        "date": "2026-11-23T23:59:00+00:00",
    }
    later = first | {"date": "2026-11-24T00:01:00+00:00"}
    rows = [
        {"task": "parts", "seeds": 2, "machines": [first, later]},
        {"task": "heat", "seeds": 1, "machines": [later | {"processor": "Q"}]},
        {"task": "relief", "seeds": 3},
        {"task": "others", "seeds": 0},
    ]
    assert acceptance.places(rows) == [
        "* parts: P, 2 cores, torch 3, 2026-11-23 to 2026-11-24",
        "* heat: Q, 2 cores, torch 3, 2026-11-24",
        "* relief: a machine that was not kept",
    ]


def test_tubes_are_closed_and_their_label_is_the_exact_distance(tmp_path):
    import trimesh

    import graphattn as ga

    generated_shapes.geodesic(tmp_path, each=1, rings=12, around=6)
    mesh = ga.load(tmp_path / "000.ply")
    solid = trimesh.Trimesh(mesh.pos.numpy(), mesh.face.T.numpy(), process=False)
    assert solid.is_watertight
    assert solid.volume > 0
    away = mesh.mark == 0
    assert bool((mesh.y[away] >= -1e-5).all())
    assert bool((mesh.edges >= mesh.y - 1e-5).all())
    # an edge from the mark is the shortest walk to its other end
    ahead = mesh.edges[away] - mesh.y[away]
    assert float(ahead.min()) < 1e-5 < float(ahead.max())
