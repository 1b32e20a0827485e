"""``graphattn train``, ``evaluate`` and ``predict``: each task from its folder to its files."""

import os
import re
import shlex
import signal

import pytest
import torch
from shape_folders import labelled_points, measured_meshes, two_classes

import graphattn as ga
from graphattn.shapes.files.raw import READERS
from graphattn.training.running.loop import TrainingState

TASKS = {
    "classify": (two_classes, '{"widths": [8, 8], "num_heads": 2}', "accuracy", "of shapes right"),
    "segment": (labelled_points, '{"widths": [8, 8, 8], "num_heads": 2}', "miou", "mean IoU"),
    "regress": (measured_meshes, '{"widths": [8, 8], "num_heads": 2}', "r2", "R2"),
}
PICTURES = {
    "classify": "Which class is taken for which",
    "segment": "Classes",
    "regress": "Predicted against true",
}


@pytest.mark.parametrize("command", ["train", "predict"])
def test_help_names_every_format_of_shapes(shell, command):
    words = re.findall(r"\.\w+", shell(f"{command} --help").stdout.partition("Arguments:")[0])
    assert READERS.keys() - {*words} == {".coff", ".noff"}  # of .off


def test_options_are_read_by_the_types_of_their_fields(shell, tmp_path, monkeypatch):
    seen = {}

    def stop(folder, run, **options):
        seen.update(options)
        raise ga.errors.OptionError("seen")

    monkeypatch.setattr(ga.training, "train", stop)
    words = "--ignore 0,2 --names a,b --features position,color --epochs 3 --lr 0.5 --no-balance"
    more = "--amp --from run --model-options '{\"widths\": [8]}' --no-control"
    assert shell.error(f"train {tmp_path} --out run {words} {more}") == "seen"
    del seen["tell"], seen["finish"]
    assert seen == {
        "ignore": (0, 2),
        "names": ("a", "b"),
        "features": ("position", "color"),
        "epochs": 3,
        "lr": 0.5,
        "balance": False,
        "amp": True,
        "start": "run",
        "model_options": {"widths": [8]},
        "control": (),
    }
    assert "Invalid value for '--epochs'" in shell.error(f"train {tmp_path} --out run --epochs 0")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_folder_becomes_a_model_a_page_and_coloured_files(shell, tmp_path, task):
    make, options, metric, words = TASKS[task]
    folder, run = make(tmp_path / "shapes"), tmp_path / "run"
    small = f"--model-options {shlex.quote(options)} --epochs 2 --control perceptron,random"
    done = shell(f"train {folder} --task {task} --out {run} {small} --seed 2")
    assert done.exit_code == 0, done.output
    assert re.search(r"epoch 1: loss \d.*, \d+:\d\d left\nepoch 2: ", done.stdout)
    held, beside = (
        rf"held out: .*{words}.*\n(  .*\n)*",
        rf"a perceptron without edges, on the same split: .*{words}",
    )
    assert re.search(held + "control: a perceptron", done.stdout), "scores come before the controls"
    assert re.search(beside, done.stdout)
    page = (run / "report.html").read_text("utf-8")
    assert PICTURES[task] in page
    figures = re.findall("<figure>(.*?)<figcaption>", page, re.DOTALL)
    assert len(figures) == page.count("<figcaption>") > 0
    assert all("data:image/png" in figure for figure in figures)
    assert page.count("data:image/png") >= 2 + len(figures)  # learning, and a picture of the task

    told = shell.json(f"evaluate {run} {folder}")
    assert told["part"] == "test"
    assert told["controls"]["random"]["difference"]["shapes"] == told["files"]
    assert re.search(rf"held out: .*{words}", shell(f"evaluate {run}").stdout)
    assert (
        f"{told['scores'][metric]:.3f}" in done.stdout
        or f"{told['scores'][metric]:.1%}" in done.stdout
    )

    files = sorted(folder.rglob("*.ply"))[:2]
    done = shell(f"predict {run} {' '.join(map(str, files))} --out {tmp_path / 'out'}")
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 2
    for file in files:
        made = ga.load(tmp_path / "out" / file.name)
        assert len(made.prediction) == len(ga.load(file).pos)
        assert "color" in made


@pytest.mark.slow
def test_resume_takes_what_the_run_says(shell, tmp_path):
    run = tmp_path / "run"
    two_classes(tmp_path / "shapes")
    shell(f"train {tmp_path / 'shapes'} --out {run} --epochs 1 --no-control --model perceptron")
    assert "--lr is for a new one" in shell.error(f"train --resume {run} --lr 3")
    assert "--out RUN, or --resume RUN" in shell.error(f"train {tmp_path / 'shapes'}")
    for out in ("", f"--out {tmp_path / 'r'}"):
        words = "nofolder: expected a folder of shapes, got one that does not exist"
        assert words in shell.error(f"train {tmp_path / 'nofolder'} {out}")
    differs = shell.error(f"train {tmp_path / 'shapes'} --out {run} --no-control")
    assert "holds a run that differs: " in differs
    assert "model is perceptron there, unet here" in differs
    assert "must be a JSON object" in shell.error(
        f"train {tmp_path / 'shapes'} --out r --model-options 3"
    )
    assert "expected the folder of a run" in shell.error(f"evaluate {tmp_path}")
    again = shell.json(f"train --resume {run}")
    assert again["scores"] == shell.json(f"evaluate {run}")["scores"]


@pytest.mark.slow
def test_labels_and_names_are_said_on_the_line(shell, tmp_path, monkeypatch):
    # a page takes longer than the rest
    monkeypatch.setattr("graphattn.training.fit.save_report", lambda *args: None)
    folder = labelled_points(tmp_path / "scans")
    for path in folder.iterdir():
        shape = ga.load(path)
        ga.save(ga.shapes.Shape(pos=shape.pos, kind=shape.y + 1), path)
    (tmp_path / "names.txt").write_text("2, upper part\n1 lower\n", encoding="utf-8")
    small = "--label kind --ignore 0 --model perceptron --epochs 1 --no-control"
    for number, names in enumerate((tmp_path / "names.txt", "'lower,upper part'")):
        told = shell.json(f"train {folder} --out {tmp_path / str(number)} {small} --names {names}")
        assert told["classes"] == ["lower", "upper part"]
    assert "--label NAME" in shell.error(f"train {folder} --out {tmp_path / 'no'}")
    bare = tmp_path / "bare"
    bare.mkdir()
    ga.save(ga.shapes.Shape(pos=torch.rand(9, 3)), bare / "0.ply")
    said = shell.error(f"evaluate {tmp_path / '1'} {bare}")  # which has no --label
    assert "expected the property kind to segment, got none" in said
    assert "Try: the property kind in each file, as in training; graphattn predict needs" in said
    assert "--label" not in said
    assert "--ignore must be comma-separated whole numbers" in shell.error(
        f"train {folder} --out {tmp_path / 'no'} --ignore -1"
    )
    assert "no file 'nofile.txt' is there" in shell.error(
        f"train {folder} --out {tmp_path / 'no'} --names nofile.txt"
    )
    assert shell.json(f"evaluate {tmp_path / '1'} {folder}")["part"] == "test"
    done = shell(f"predict {tmp_path / '1'} {folder / '0.ply'} --out {tmp_path / 'out'}")
    assert done.stdout.endswith(f"-> {tmp_path / 'out' / '0.ply'}\n")
    assert "upper part" in (tmp_path / "out" / "0.csv").read_text("utf-8")


@pytest.mark.slow
def test_an_interrupted_command_says_how_it_goes_on(shell, tmp_path, monkeypatch, request):
    folder, run = two_classes(tmp_path / "shapes"), tmp_path / "a run"
    command = f"train {folder} --out {shlex.quote(str(run))} --no-control --model perceptron"
    loop = TrainingState._step
    # a shell that starts pytest in the background ignores it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 138)):

        def step(self, *words, number=number):
            os.kill(os.getpid(), number)
            return loop(self, *words)

        monkeypatch.setattr(TrainingState, "_step", step)
        done = shell(f"{command} --points 100 --epochs 1")
        assert done.exit_code == status, done.output
        said = f"interrupted by {number.name} in epoch 1 after batch"
        assert done.stderr.splitlines()[-1].startswith(said)
        assert done.stderr.endswith(f"go on with: graphattn train --resume '{run}'\n")
    monkeypatch.undo()
    monkeypatch.setattr("graphattn.training.fit.save_report", lambda *args: None)
    assert "--lr is for a new one" in shell.error(f"train --resume '{run}' --lr 3")
    told = shell.json(f"{command} --points 100 --epochs 1")
    assert told["scores"]["shapes"] == 4
    assert "is finished" in shell(f"{command} --points 100 --epochs 1").stdout
