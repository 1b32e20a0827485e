"""A command that is repeated begins or continues a run, and what differs is named."""

import json

import pytest
import torch
from shape_folders import QUICK, cloud, two_classes

import graphattn as ga
from graphattn.errors import LoaderError, OptionError
from graphattn.training import Run
from graphattn.training.running.checkpoint import load_state


class Leave(Exception):
    """An end of a training that no signal announces."""


def leave_at(share):
    def tell(progress):
        if progress.phase == "training" and progress.done >= share:
            raise Leave

    return tell


def begun(words):
    """A callback, and the words that a run begins with, which it fills."""
    return lambda progress: words.append(progress.words) if progress.phase == "begin" else None


HOW = {**QUICK, "epochs": 3, "points": 100, "seconds": 0.0, "model": "perceptron"}
HOW.pop("model_options")
RESULTS = ("model.safetensors", "checkpoint.safetensors", "log.jsonl", "result.json")


def contents(run):
    return {name: (run / name).read_bytes() for name in RESULTS}


def test_the_same_command_goes_on_to_the_same_bits(classes, tmp_path):
    ga.training.train(classes, tmp_path / "whole", **HOW)
    run = tmp_path / "run"
    for share in (0.0, 0.75):
        with pytest.raises(Leave):
            ga.training.train(classes, run, tell=leave_at(share), **HOW)
        assert not (run / "model.safetensors").exists()
    assert load_state(run / "checkpoint.safetensors")[1]["batches"]["epoch"] == 2
    ga.training.train(classes, run, **HOW | {"seconds": 30.0})
    assert contents(run) == contents(tmp_path / "whole")


def test_what_differs_from_the_run_is_named_and_nothing_is_written(classes, tmp_path):
    run = tmp_path / "run"
    ga.training.train(classes, run, **HOW)
    before = contents(run) | {"run.json": (run / "run.json").read_bytes()}
    for other, words in (
        ({"lr": 0.02}, "lr is 0.003 there, 0.02 here"),
        ({"seed": 4}, "seed is 0 there, 4 here"),
        ({"control": ["forest"]}, "control is none there, forest here"),
        ({"augment": ["jitter", "drop"]}, "augment is rotation there, jitter,drop here"),
        ({"points": 70, "amp": True}, "amp is False there, True here; points is 100 there, 70"),
    ):
        with pytest.raises(OptionError, match=rf"out: .*run holds a run that differs: .*{words}"):
            ga.training.train(classes, run, **HOW | other)
    ga.save(cloud(0.3, 2), classes / "flat" / "2.ply")
    with pytest.raises(OptionError, match=r"differs: flat/2.ply has changed; name another folder"):
        ga.training.train(classes, run, **HOW)
    (classes / "flat" / "3.ply").rename(classes / "flat" / "33.ply")
    with pytest.raises(OptionError) as error:
        ga.training.train(classes, run, **HOW)
    assert {" flat/2.ply has changed", " flat/3.ply is gone", " flat/33.ply is new"} <= set(
        str(error.value).partition("differs:")[2].split(";")
    )
    # it follows from the files
    assert "split" not in str(error.value).replace(str(run), "")
    assert before == contents(run) | {"run.json": (run / "run.json").read_bytes()}


def test_options_that_are_not_given_are_those_of_the_run(classes, tmp_path):
    run = tmp_path / "run"
    how = HOW | {"epochs": 2, "lr": 0.02, "seed": 5, "patience": 3, "features": ("position",)}
    with pytest.raises(Leave):
        ga.training.train(classes, run, tell=leave_at(0.5), **how)
    before = Run.load(run)
    ga.training.train(classes, run)
    assert Run.load(run) == before
    assert len(before.history()) == 2
    ga.training.train(classes, run, epochs=3, workers=0)
    after = Run.load(run).schedule
    assert (after.epochs, after.patience, after.lr, after.seed) == (3, 8, 0.02, 5)
    with pytest.raises(OptionError, match=r"differs: lr is 0.02 there, 0.003 here; name another"):
        ga.training.train(classes, run, lr=0.003, seed=5)
    ga.training.train(classes, run, **how | {"epochs": None, "patience": None})
    assert Run.load(run).schedule == after
    ga.save(cloud(0.3, 2), classes / "flat" / "2.ply")
    with pytest.raises(OptionError, match=r"differs: flat/2.ply has changed; name another folder"):
        ga.training.train(classes, run)


def test_a_run_that_has_not_begun_to_train_takes_other_settings(classes, tmp_path):
    def leave(progress):
        if progress.phase == "reading" and progress.done == 1:
            raise Leave

    run = tmp_path / "run"
    with pytest.raises(Leave):
        ga.training.train(classes, run, tell=leave, **HOW)
    ranges = run / "ranges.json"
    ranges.write_text("of files that have changed", encoding="utf-8")
    ga.save(cloud(0.3, 2), classes / "flat" / "2.ply")
    ga.training.train(classes, run, **HOW | {"lr": 0.02})
    assert Run.load(run).schedule.lr == 0.02
    assert ranges.read_text("utf-8") != "of files that have changed"


def test_a_finished_run_needs_no_state_but_to_go_on(classes, tmp_path):
    run = tmp_path / "run"
    scores = ga.training.train(classes, run, **HOW).scores
    kept = contents(run)
    (run / "checkpoint.safetensors").unlink()
    moved = classes.rename(tmp_path / "moved")
    words = []
    assert ga.training.train(moved, run, tell=begun(words), **HOW).scores == scores
    assert f"{run} is finished; more --epochs go on" in words
    assert ga.training.evaluate(run).scores == scores  # where the shapes are now
    with pytest.raises(LoaderError, match=r"checkpoint\.safetensors: "):
        ga.training.train(moved, run, **HOW | {"epochs": 4})
    ga.training.train(moved, run, **HOW)
    for name in ("model.safetensors", "log.jsonl", "result.json"):
        assert (run / name).read_bytes() == kept[name]


@pytest.mark.slow
def test_a_run_without_its_controls_is_not_finished(classes, tmp_path):
    def leave(progress):
        if progress.phase.startswith("control") or progress.words.startswith("control"):
            raise Leave

    run = tmp_path / "run"
    how = HOW | {"control": ["forest"], "model": "pct", "epochs": 1}
    with pytest.raises(Leave):
        ga.training.train(classes, run, tell=leave, **how)
    for finish, controls in ((True, []), (True, []), (False, ["forest"])):
        words = []
        result = ga.training.train(classes, run, finish=finish, tell=begun(words), **how)
        assert list(result.controls) == controls
        assert not any("is finished" in word for word in words)
    words = []
    ga.training.resume(run, tell=begun(words))
    assert f"{run} is finished; more --epochs go on" in words


@pytest.mark.slow
def test_a_control_that_has_not_ended_is_marked(classes, tmp_path):
    def leave(progress):
        if progress.phase == "control perceptron" and progress.done > 0.5:
            raise Leave

    run = tmp_path / "run"
    how = HOW | {"control": ["perceptron"], "model": "pct"}
    with pytest.raises(Leave):
        ga.training.train(classes, run, tell=leave, **how)
    words = "unfinished control: 1 of 3 epochs of a perceptron without edges are trained"
    assert words in ga.training.train(classes, run, finish=True, **how).notes
    assert words in ga.training.evaluate(run).notes
    assert not ga.training.resume(run).notes


@pytest.mark.slow
def test_a_finished_run_says_so_and_more_epochs_go_on(classes, tmp_path):
    run = tmp_path / "run"
    how = HOW | {"control": ["perceptron"], "model": "pct", "epochs": 1}
    ga.training.train(classes, run, **how)
    words = []
    ga.training.train(classes, run, tell=begun(words), **how)
    assert f"{run} is finished; more --epochs go on" in words
    words.clear()
    ga.training.train(classes, run, tell=begun(words), **how | {"epochs": 2})
    assert not any("is finished" in word for word in words)
    for folder in (run, run / "perceptron"):
        assert len((folder / "log.jsonl").read_text("utf-8").splitlines()) == 2
        assert Run.load(folder).schedule.epochs == 2
    ga.training.resume(run, epochs=3, workers=0)
    assert len((run / "log.jsonl").read_text("utf-8").splitlines()) == 3


@pytest.mark.slow
def test_a_run_that_has_not_ended_is_marked_where_it_is_read(classes, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(LoaderError, match=r"expected a trained model, got none yet"):
        ga.training.train(classes, tmp_path / "none", finish=True, **HOW)
    how = HOW | {"control": ["forest"], "model": "pct"}
    with pytest.raises(Leave):
        ga.training.train(classes, run, tell=leave_at(0.9), **how)
    words = f"unfinished: 2 of 3 epochs are trained; go on with: graphattn train --resume {run}"
    assert ga.training.evaluate(run).notes[0] == words
    with pytest.warns(UserWarning, match="run is unfinished: 2 of 3 epochs are trained"):
        ga.training.predict(run, [classes / "flat" / "0.ply"], tmp_path / "out")
    ga.training.train(classes, tmp_path / "other", **HOW | {"seed": 0})
    with pytest.raises(LoaderError, match=r"expected a run that has ended.* with --finish"):
        ga.training.compare([run, tmp_path / "other"])

    ga.training.train(classes, run, finish=True, **how)
    told = json.loads((run / "result.json").read_text("utf-8"))
    assert {"no control yet: a random forest has no trained epoch", words} <= set(told["notes"])
    assert len((run / "log.jsonl").read_text("utf-8").splitlines()) == 2
    rows = ga.training.compare([run, tmp_path / "other"])
    assert [row["unfinished"] for row in rows] == ["2 of 3 epochs", ""]

    ga.training.resume(run)  # it goes on from its state, and what was finished makes room
    ga.training.train(classes, tmp_path / "whole", **how)
    assert contents(run) == contents(tmp_path / "whole")


@pytest.mark.slow  # it draws the page
def test_a_page_says_that_its_run_is_unfinished(tmp_path):
    folder = two_classes(tmp_path / "shapes")
    with pytest.raises(Leave):
        ga.training.train(folder, tmp_path / "run", tell=leave_at(0.9), **HOW)
    ga.training.resume(tmp_path / "run", finish=True)
    assert "unfinished: 2 of 3 epochs are trained" in (tmp_path / "run" / "report.html").read_text(
        "utf-8"
    )


@pytest.mark.slow
def test_a_run_that_ran_out_of_memory_says_what_to_do_and_goes_on_to_the_same_bits(
    classes, tmp_path, monkeypatch
):
    """A GPU that is full at its first step, then at its fifth, played by the optimizer."""
    ga.training.train(classes, tmp_path / "whole", **HOW)
    step = torch.optim.AdamW.step
    run = tmp_path / "run"
    for last in (1, 5):
        left = iter(range(last, -1, -1))

        def full(optimizer, *rest, left=left):
            if next(left) == 1:
                raise torch.OutOfMemoryError(
                    "CUDA out of memory. Tried to allocate 2.00 GiB.\nmore"
                )
            return step(optimizer, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(torch.optim.AdamW, "step", full)
            words = r"memory of cpu, got 100 in epoch \d, batch \d of \d: CUDA out of memory. Tried"
            with pytest.raises(OptionError, match=words) as error:
                ga.training.train(classes, run, **HOW)
        assert "once memory is free" in str(error.value)
        assert "more" not in str(error.value)
        assert isinstance(error.value.__cause__, torch.OutOfMemoryError)
        assert (run / "checkpoint.safetensors").exists() == (last > 1)
    ga.training.train(classes, run, **HOW)
    assert contents(run) == contents(tmp_path / "whole")


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "model.safetensors"])
def test_a_state_without_the_settings_it_was_trained_with_is_refused(name, classes, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / name).write_bytes(b"of a run that is gone")
    with pytest.raises(OptionError, match=rf"holds {name} of a run without its run.json; name ano"):
        ga.training.train(classes, run, **HOW)
    assert [file.name for file in run.iterdir() if not file.name.startswith(".")] == [name]
