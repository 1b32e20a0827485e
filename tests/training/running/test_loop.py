"""The loop: killed anywhere it goes on to the same bits, and it stops when nothing improves."""

import errno
import json
import os
import signal

import fresh_python
import pytest
import safetensors.torch
import torch
from shape_folders import two_classes

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.training.running.checkpoint import load_state, save_state

HOW = {
    "epochs": 2,
    "seed": 3,
    "points": 90,
    "seconds": 0.0,  # a state after every batch
    "control": False,
    "augment": ("rotation", "jitter"),
    "model_options": {"widths": [8, 8], "num_heads": 2, "dropout": 0.3},
}
KILLED = """
import os, signal, graphattn as ga
def tell(progress):
    if progress.phase == "training" and progress.done > 0.7: os.kill(os.getpid(), signal.SIGKILL)
ga.training.train({folder!r}, {out!r}, tell=tell, **{how!r})
"""
RESULTS = ("model.safetensors", "checkpoint.safetensors", "log.jsonl", "result.json")


def contents(run):
    return {name: (run / name).read_bytes() for name in RESULTS}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder, and what a run on it leaves that nothing interrupts."""
    above = tmp_path_factory.mktemp("whole")
    folder = two_classes(above / "shapes")
    ga.training.train(folder, above / "run", **HOW)
    return folder, contents(above / "run")


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bits(whole, tmp_path, no_page):
    folder, wanted = whole
    killed = tmp_path / "killed"
    code = KILLED.format(folder=str(folder), out=str(killed), how=HOW)
    assert fresh_python.run(code).returncode in (
        -signal.SIGKILL,
        128 + signal.SIGKILL,
        signal.SIGKILL,
    )
    state = load_state(killed / "checkpoint.safetensors")[1]["batches"]
    assert state["epoch"] == 1
    assert state["position"] > 0
    assert not (killed / "model.safetensors").exists()
    ga.training.resume(killed)
    assert contents(killed) == wanted
    ga.training.resume(killed)  # of a run that has ended nothing changes
    assert contents(killed) == wanted


@pytest.mark.slow
def test_a_full_disk_loses_nothing_that_was_written(whole, tmp_path, monkeypatch):
    folder, wanted = whole
    full = tmp_path / "full"
    synchronise, left = os.fsync, [9]

    def fsync(number):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synchronise(number)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(LoaderError, match=r"checkpoint.safetensors: .*No space left"):
        ga.training.train(folder, full, **HOW)
    monkeypatch.undo()
    assert [name for name in os.listdir(full) if name.endswith(".tmp")] == []
    assert load_state(full / "checkpoint.safetensors")[1]["batches"]["position"] > 0
    ga.training.resume(full)
    assert contents(full) == wanted


def test_every_step_has_a_rate_above_zero(classes, tmp_path, monkeypatch):
    shares = []
    rate = ga.training.Schedule.rate

    def recorded(self, done):
        shares.append(done)
        return rate(self, done)

    monkeypatch.setattr(ga.training.Schedule, "rate", recorded)
    how = {"epochs": 2, "points": 90, "control": False, "model": "perceptron"}
    ga.training.train(classes, tmp_path / "run", **how)
    assert shares == pytest.approx([step / len(shares) for step in range(len(shares))])
    schedule = ga.training.Run.load(tmp_path / "run").schedule
    assert rate(schedule, shares[-1]) > 1e-3 * schedule.lr


@pytest.mark.slow
def test_training_stops_when_validation_does_not_improve(classes, tmp_path):
    how = {**HOW, "epochs": 9, "patience": 2, "augment": (), "lr": 1e-30}
    ga.training.train(classes, tmp_path / "run", **how)
    lines = [
        json.loads(line)
        for line in (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()
    ]
    assert [line["best"] for line in lines] == [True, False, False]
    assert len({line["val_loss"] for line in lines}) == 1


def test_a_state_of_another_version_is_said_to_be_one(tmp_path):
    save_state(tmp_path / "a.safetensors", {"x": torch.zeros(2)}, {})
    content = (tmp_path / "a.safetensors").read_bytes().replace(b"told", b"said")
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(
        LoaderError, match="expected a state of training, got: one of another version of graphattn"
    ):
        load_state(tmp_path / "a.safetensors")


@pytest.mark.parametrize("length", [640, 1408])
def test_the_length_of_a_state_is_not_taken_for_a_pickle(length, tmp_path):
    """Of its header, with which a .safetensors begins: 80 02 or 80 05, as pickles of protocols 2
    and 5 do.
    """
    empty = safetensors.torch.save(
        {"x": torch.zeros(2)}, {"graphattn": json.dumps({"digest": 16 * "0", "told": {"said": ""}})}
    )
    told = {"said": "a" * (length - int.from_bytes(empty[:8], "little"))}
    save_state(tmp_path / "state.safetensors", {"x": torch.zeros(2)}, told)
    assert (tmp_path / "state.safetensors").read_bytes()[:2] == length.to_bytes(2, "little")
    assert load_state(tmp_path / "state.safetensors")[1] == told
