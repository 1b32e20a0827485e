"""A signal ends a training after its step, with a state and the status that belongs to it."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

import fresh_python
import pytest
import torch

import graphattn as ga
from graphattn.distributed.exchange import Processes
from graphattn.errors import Interrupted
from graphattn.training.running import signals
from graphattn.training.running.checkpoint import load_state
from graphattn.training.running.team import Team

HOW = {"epochs": 2, "points": 100, "control": False, "model": "perceptron"}
RESULTS = ("model.safetensors", "checkpoint.safetensors", "log.jsonl", "result.json")


def send_at(share, number):
    """A callback that sends this process a signal, once."""
    sent = []

    def tell(progress):
        if progress.phase == "training" and progress.done >= share and not sent:
            sent.append(True)
            os.kill(os.getpid(), number)

    return tell


@pytest.fixture(autouse=True)
def interrupts():
    """A shell that starts a job in the background has it ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def handlers():
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_a_state_is_written_after_the_step_and_training_goes_on(name, classes, tmp_path):
    ga.training.train(classes, tmp_path / "whole", **HOW)
    run = tmp_path / "run"
    before = handlers()
    number = getattr(signal, name)
    kind = KeyboardInterrupt if name == "SIGINT" else Interrupted
    line = re.escape(f"--resume {shlex.quote(str(run))}")
    words = rf"interrupted by {name} in epoch 2 after batch \d; go on with: .*{line}"
    with pytest.raises(kind, match=words) as error:
        ga.training.train(classes, run, tell=send_at(0.6, number), **HOW)
    if kind is Interrupted:
        assert error.value.code == 128 + number
    assert handlers() == before
    state = load_state(run / "checkpoint.safetensors")[1]["batches"]
    assert state["epoch"] == 1
    assert state["position"] > 0
    ga.training.train(classes, run, **HOW)
    for file in RESULTS:
        assert (run / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_signal_at_the_end_of_an_epoch_waits_for_its_validation(classes, tmp_path):
    with pytest.raises(Interrupted, match="after epoch 1"):
        ga.training.train(classes, tmp_path / "run", tell=send_at(0.5, signal.SIGTERM), **HOW)
    told = load_state(tmp_path / "run" / "checkpoint.safetensors")[1]
    assert [line["epoch"] for line in told["history"]] == [1]
    assert told["batches"]["position"] == 0


def test_a_signal_between_steps_ends_at_once(classes, tmp_path):
    def tell(progress):
        if progress.phase == "reading":
            os.kill(os.getpid(), signal.SIGUSR1)

    with pytest.raises(Interrupted, match="between steps"):
        ga.training.train(classes, tmp_path / "run", tell=tell, **HOW)
    ga.training.train(classes, tmp_path / "run", **HOW)


def test_handlers_of_a_caller_and_of_other_threads_stay(classes, tmp_path):
    received = []
    own = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        ga.training.train(classes, tmp_path / "run", tell=send_at(0.2, signal.SIGTERM), **HOW)
    finally:
        signal.signal(signal.SIGTERM, own)
    assert received == [signal.SIGTERM]
    thread = threading.Thread(
        target=ga.training.train, args=(classes, tmp_path / "thread"), kwargs=HOW
    )
    thread.start()
    thread.join()
    assert (tmp_path / "thread" / "result.json").exists()


HANGS = """
import os, signal, sys, time, threading
from pathlib import Path
from graphattn.training.running import signals
signals.GRACE = 0.4
def send(after):
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {{signal.SIGTERM}})
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGTERM)
with signals.signals(Path("a run")) as sent, sent.steps():
    # other threads get the signal, and this one runs no handler: it waits in a collective
    signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
    threading.Thread(target=lambda: [send(after) for after in {after}]).start()
    time.sleep(5)
"""


def test_a_step_that_does_not_end_is_left_and_two_signals_at_once_are_one():
    done = fresh_python.run(HANGS.format(after=(0.0, 0.05)), expect=143)
    assert "without a step's end in 0.4 s, so its last state stands" in done.stderr
    assert "--resume 'a run'" in done.stderr


def test_a_second_signal_ends_at_once():
    code = HANGS.replace("GRACE = 0.4", "GRACE, signals._TOGETHER = 60, 0.1")
    done = fresh_python.run(code.format(after=(0.0, 0.3)), expect=143)
    assert "interrupted by SIGTERM twice, so its last state stands" in done.stderr


def test_one_process_of_three_was_sent_a_signal_and_all_end_after_the_step(monkeypatch):
    torch.manual_seed(0)
    model, x = torch.nn.Linear(3, 2), torch.randn(5, 3)
    teams = [Team() for _ in range(3)]
    teams[1].signals.number = signal.SIGTERM
    sent = []
    monkeypatch.setattr(Processes, "sum", lambda self, every: (sent.append(every), sum(sent))[1])
    for team in (teams[0], teams[2], teams[1]):
        team.number = 3
        team.add_up(model, model(x).square().mean(), torch.tensor(5.0))
        assert team.must_end(True) == (team is teams[1])  # the last one's sum is of all
    for team in teams:
        assert team.signals.error("after a step").code == 143


JOB = """
import sys, graphattn as ga
ga.training.train(*sys.argv[1:], epochs=4000, patience=0, points=90, workers=2, control=False,
    model="perceptron")
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_signal_to_all_processes_of_a_job_leaves_workers_to_their_parent(name, classes, tmp_path):
    run = tmp_path / "run"
    words = [sys.executable, "-c", JOB, str(classes), str(run)]
    job = subprocess.Popen(words, start_new_session=True, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 200
    while not (run / "log.jsonl").is_file() or not (run / "log.jsonl").stat().st_size:
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(job.pid, getattr(signal, name))
    error = job.communicate(timeout=signals.GRACE - 2)[1]  # or workers hold up the end
    assert job.returncode == 128 + getattr(signal, name), error
    assert load_state(run / "checkpoint.safetensors")[1]["batches"]["epoch"] > 0
    with pytest.raises(ProcessLookupError):
        os.killpg(job.pid, 0)  # no worker is left
