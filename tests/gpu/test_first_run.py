"""``make gpu`` on a machine without a GPU: a rehearsal on the CPU, and on a device that is not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import graphattn as ga
from graphattn.graph import sort
from graphattn.plans.grouped import by_source

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ABSENT = ("numba", "llvmlite", "scipy", "matplotlib", "typer", "click", "rich", "pytest", "hypothesis", "trimesh")


def first_run(*words, absent=(), folder=None):
    """Its exit status, what it says, and its file; ``absent`` packages cannot be imported."""
    env = {**os.environ, "PYTHONPATH": ""}
    if absent:
        code = f"import sys; sys.modules.update(dict.fromkeys({tuple(absent)!r}))"
        (folder / "sitecustomize.py").write_text(code)
        env["PYTHONPATH"] = str(folder)
    out = folder / "gpu.json"
    done = subprocess.run(
        [sys.executable, str(HERE / "first_run.py"), "--out", str(out), *words],
        capture_output=True, text=True, cwd=folder, env=env,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, json.loads(out.read_text()) if out.exists() else None


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_is_content(tmp_path):
    status, said, found = first_run(folder=tmp_path)
    assert (status, found) == (0, None)
    assert said.startswith("no CUDA device here (torch ")
    assert "--device cpu" in said


def test_a_rehearsal_on_a_bare_machine_writes_one_file(tmp_path):
    """Every part of the file, without the packages that a GPU machine may lack."""
    words = ("--device", "cpu", "--only", "attention, float32", "--every", "67")
    status, said, found = first_run(*words, absent=ABSENT, folder=tmp_path)
    assert status == 0, said
    assert found["complete"]
    assert found["commit"] == "" or len(found["commit"]) == 40
    assert {"date", "device", "driver", "versions", "torch", "seconds", "left_out"} <= set(found)
    names = [case["name"] for case in found["cases"]]
    assert names == ["attention, float32, causal"]
    assert all(case["name"].startswith("attention, float32") for case in found["cases"])
    results = {result["backend"]: result for result in found["cases"][0]["results"]}
    for backend in ("dense", "tiles", "message_passing"):
        assert results[backend]["ok"] is True
        assert 0 <= results[backend]["error"] <= results[backend]["bound"] < 1e-4
    assert results["edges"]["ok"] is None
    assert "numba is not installed" in " ".join(results["edges"]["refused"])
    assert found["cases"][0]["seconds"] > 0


def test_edges_are_grouped_without_scipy(monkeypatch):
    """Which a machine with a GPU may lack; sorted, where scipy would count many edges into place."""
    made = [ga.graphs.random_sources(900, 11) for _ in range(2)]
    wanted = by_source(made[0])
    monkeypatch.setattr(sort, "find_spec", lambda name: None)
    assert not sort.countable(made[1].source, 900, 900)
    assert all(torch.equal(a, b) for a, b in zip(by_source(made[1]), wanted, strict=True))


LIFE_AND_DEATH = """
import os, sys
from types import ModuleType, SimpleNamespace

def well(device):
    return [{"backend": "dense", "ok": True}]

def die(device):
    os._exit(9)

module = sys.modules["gpu_cases"] = ModuleType("gpu_cases")
module.raised = str
module.cases = lambda: [SimpleNamespace(name=n, run=r) for n, r in
    (("a taste", well), ("death", die), ("the next", well))]
"""


def test_what_does_not_fit_is_listed_and_a_lost_process_is_replaced(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(LIFE_AND_DEATH)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = ["--device", "cpu", "--only", "t", "--out", str(tmp_path / "gpu.json")]
    done = subprocess.run([sys.executable, str(HERE / "first_run.py"), *words], capture_output=True, text=True, env=env)
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert done.returncode == 1, done.stderr
    assert found["wrong"] == ["death"]
    assert [case["name"] for case in found["cases"]] == ["a taste", "death", "the next"]
    assert [case["results"][0]["ok"] for case in found["cases"]] == [True, False, True]
    assert "ended with 9" in found["cases"][1]["results"][0]["raised"]


REFUSED = """
import no_device, torch
print("the device is built")
x = torch.randn(5, 3).to("cuda").requires_grad_()
(grad,) = torch.autograd.grad((x * 2).sum(), x)
assert grad.is_cuda and grad.tolist() == [[2.0] * 3] * 5
assert (x + torch.tensor(1.0)).device.type == "cuda" and not x.cpu().is_cuda
half, bias = x.half()[None, None], torch.zeros(5, 5, device="cuda")
tries = (lambda: x + torch.ones(3), lambda: torch.ones(9)[torch.arange(3, device="cuda")], lambda: x.detach().numpy(),
         lambda: torch.nn.functional.scaled_dot_product_attention(half, half, half, bias))
for wrong in tries:
    try:
        wrong()
    except (RuntimeError, TypeError):
        continue
    raise SystemExit("not refused")
print("what a device would refuse is refused")
"""
OPERANDS = """
import varlen_definition
from gpu_cases import cases
from graphattn.backends import device
device._triton_refuses = lambda device: ()  # its operators run on the CPU in the end, as all do here
torch.set_num_threads(1)
found = [case for case in cases() if not case.name.startswith(("compiled", "large"))]
table = [case for case in found if case.name.startswith(("attention", "layer"))]
seen = set()
with varlen_definition.registered():
    for case in [*table[::83], *(case for case in found if case not in table)]:
        for result in case.run(torch.device("cuda", 0)):
            assert result["ok"] is not False, (case.name, result)
            seen |= {result.get("backend")} if result["ok"] else set()
            print(case.name, "right" if result["ok"] else "left out")
assert {"dense", "tiles", "edges", "message_passing"} <= seen, seen
print("every operand is on the device")
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What a process says that has the device that is not there."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests"), str(HERE)))
    env = {**os.environ, "NO_DEVICE": str(tmp_path_factory.mktemp("device")), "PYTHONPATH": paths}
    words = [sys.executable, "-c", REFUSED + OPERANDS]
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=ROOT)
    if "the device is built" not in done.stdout:
        pytest.skip(f"no compiler for torch's headers: {done.stderr[-300:]}")
    return done.stdout + done.stderr


def test_the_device_that_is_not_there_refuses_what_a_device_would(told):
    assert "what a device would refuse is refused" in told, told


def test_every_operand_is_on_the_device(told):
    """Some cases of ``make gpu`` and what is not of the table, forward and backward, on the device that is not
    there; compiled code apart, which it cannot run."""
    assert "every operand is on the device" in told, told
    assert "tiles by varlen_attn right" in told, told
