"""Under torchrun: a killed rank is restarted to the bits of an undisturbed run, and a late one is
counted.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch.distributed as dist
from shape_folders import two_classes

from graphattn.errors import ProcessError
from graphattn.training.running import team
from graphattn.training.running.checkpoint import load_state

COMMAND = """
import os, signal, sys
from graphattn.training import fit
from graphattn.training.running import loop
fit.save_report = lambda *args: None
loop.READ = 2
step = loop.TrainingState._step
def killed(self, batch, epoch, position, *rest):
    here = (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"], str(epoch))
    if "{kill}" and ":".join(here) == "{kill}" and position == 2:
        os.kill(os.getpid(), signal.{signal})
    return step(self, batch, epoch, position, *rest)
loop.TrainingState._step = killed
from graphattn.cli import main
sys.argv[0] = "graphattn"
main()
"""
OPTIONS = ["--epochs", "3", "--points", "90", "--no-control", "--seed", "3", "--model", "pct"]
FILES = ("model.safetensors", "checkpoint.safetensors", "log.jsonl", "result.json")


def torchrun(tmp_path, out, *, restarts=0, kill="", name="SIGKILL"):
    """A finished ``torchrun`` of two processes with the same command, of which one is sent a signal
    once: RANK:RESTART:EPOCH.
    """
    script = tmp_path / f"of_{out.name}.py"
    script.write_text(COMMAND.format(kill=kill, signal=name), encoding="utf-8")
    words = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    words += ["--max-restarts", str(restarts), str(script)]
    words += ["train", str(tmp_path / "shapes"), "--out", str(out), *OPTIONS]
    env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, timeout=400, check=False
    )


def contents(run):
    return {name: (run / name).read_bytes() for name in FILES}


@pytest.mark.slow
def test_killed_ranks_are_restarted_to_the_bits_of_an_undisturbed_run(tmp_path):
    two_classes(tmp_path / "shapes")
    done = torchrun(tmp_path, tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    for rank, name in (("0", "SIGKILL"), ("1", "SIGKILL"), ("1", "SIGTERM"), ("0", "SIGUSR1")):
        out = tmp_path / f"run{rank}{name}"
        done = torchrun(tmp_path, out, restarts=1, kill=f"{rank}:0:1", name=name)
        assert done.returncode == 0, done.stderr
        assert contents(out) == contents(tmp_path / "whole"), (rank, name)
        if name != "SIGKILL" and rank == "0":
            assert f"interrupted by {name} in epoch 2 after batch 2" in done.stderr
    done = torchrun(tmp_path, out)
    assert "is finished" in done.stdout
    assert done.returncode == 0


@pytest.mark.slow
def test_a_signal_to_torchrun_ends_all_ranks_with_a_state(tmp_path):
    two_classes(tmp_path / "shapes")
    out = tmp_path / "run"
    script = tmp_path / "slow.py"
    code = COMMAND.format(kill="", signal="SIGTERM")
    script.write_text(
        code.replace("    return step", "    import time; time.sleep(0.3)\n    return step"),
        encoding="utf-8",
    )
    words = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone", str(script)]
    words += ["train", str(tmp_path / "shapes"), "--out", str(out), *OPTIONS]
    env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    process = subprocess.Popen(
        [sys.executable, *words], env=env, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    end = time.monotonic() + 300
    while not (out / "log.jsonl").is_file() or not (out / "log.jsonl").stat().st_size:
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    error = process.communicate(timeout=60)[1]
    assert process.returncode != 0
    assert "interrupted by SIGTERM in epoch" in error
    assert load_state(out / "checkpoint.safetensors")[1]["batches"]["position"] > 0


def test_a_late_process_is_counted_and_at_last_refused(monkeypatch, capsys):
    store = dist.HashStore()
    monkeypatch.setattr(team, "LATE", 0.02)
    monkeypatch.setattr(team, "_AGAIN", 0.01)
    monkeypatch.setattr(team, "TIMEOUT", 0.3)
    store.add("come", 2)
    with pytest.raises(ProcessError, match=r"1 of 4 processes did not come in 0\.3 s"):
        team._wait_for_all(store, 0, 4)
    assert capsys.readouterr().err.startswith("waiting for 1 of 4 processes\n")
    team._wait_for_all(store, 3, 4)  # all are there
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_processes_without_torchrun_join_and_the_first_says_that_one_is_late(tmp_path):
    two_classes(tmp_path / "shapes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (
        "import sys; from graphattn.training.running import team; from graphattn.training import fit; team.LATE = 0.5; "
        "fit.save_report = lambda *args: None; from graphattn.cli import main; main()"
    )
    words = ["train", str(tmp_path / "shapes"), "--out", str(tmp_path / "run"), *OPTIONS, "--json"]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = []
    for rank in range(2):
        env = os.environ | where | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        env |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", code, *words],
                env=env,
                text=True,
                stderr=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        if rank == 0:
            line = processes[0].stderr.readline()
            assert line == "waiting for 1 of 2 processes\n"
    out = [process.communicate(timeout=300) for process in processes]
    assert json.loads(out[0][0])["scores"]["shapes"] == 4, out
