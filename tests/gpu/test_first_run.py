"""``make gpu`` on a machine without a GPU: a rehearsal on the CPU, and on a device that is not
there."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import first_run as gpu_run
import pytest
import torch

import graphattn as ga
from graphattn.graph import sort
from graphattn.plans.grouped import by_source

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ABSENT = (
    "numba",
    "llvmlite",
    "scipy",
    "matplotlib",
    "typer",
    "click",
    "rich",
    "pytest",
    "hypothesis",
    "trimesh",
)


def first_run(*words, absent=(), folder=None, planted=False, path=None):
    """Its exit status, what it says, and its file; ``absent`` packages cannot be imported."""
    env = {**os.environ, "PYTHONPATH": ""}
    if absent:
        code = f"import sys; sys.modules.update(dict.fromkeys({tuple(absent)!r}))"
        (folder / "sitecustomize.py").write_text(code, encoding="utf-8")
        env["PYTHONPATH"] = str(folder)
    if planted:
        env["GPU_PLANTED"] = str(HERE / "planted.py")
    if path is not None:
        env["PATH"] = f"{path}{os.pathsep}{env['PATH']}"
    out = folder / "gpu.json"
    done = subprocess.run(
        [sys.executable, str(HERE / "first_run.py"), "--out", str(out), *words],
        capture_output=True, text=True, cwd=folder, env=env,
    )  # fmt: skip
    return (
        done.returncode,
        done.stdout + done.stderr,
        json.loads(out.read_text("utf-8")) if out.exists() else None,
    )


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
    part = found["parts"]["correctness"]
    assert part["complete"]
    assert part["commit"] == "" or len(part["commit"]) == 40
    assert {
        "date",
        "command",
        "device",
        "driver",
        "versions",
        "seconds",
        "left_out",
        "ceilings",
    } <= set(part)
    (case,) = part["cases"]
    assert (case["name"], case["group"], case["differ"]) == (
        "attention, float32, causal",
        "table",
        [],
    )
    results = {result["backend"]: result for result in case["results"]}
    for backend in ("dense", "tiles", "message_passing"):
        assert results[backend]["ok"] is True
        assert 0 <= results[backend]["error"] <= results[backend]["bound"] < 1e-4
    assert results["edges"]["ok"] is None
    assert "llvmlite is not installed" in " ".join(results["edges"]["refused"])
    assert case["seconds"] > 0


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A run of planted faults: its status, its lines, its file, and the folder."""
    folder = tmp_path_factory.mktemp("planted")
    words = ("--device", "cpu", "--only", "planted", "--case-seconds", "25")
    return *first_run(*words, folder=folder, planted=True), folder


def test_each_planted_fault_is_told_for_what_it_is(planted):
    status, said, found, _ = planted
    assert status == 1, said
    part = found["parts"]["correctness"]
    assert part["complete"]
    assert part["left_out"] == []
    results = {case["name"].removeprefix("planted: "): case for case in part["cases"]}
    right = {name for name, case in results.items() if all(r["ok"] for r in case["results"])}
    assert right == {"right", "right after it", "right in a new context", "right, and prints"}
    lines = {
        line.split(": ")[1]: line for line in said.splitlines() if line.startswith("planted: ")
    }
    assert "killed by signal 9" in lines["killed"]
    assert "hangs: killed after 25.0 s" in lines["hangs"]
    assert "edges plain, output: 0.01 > " in lines["wrong result"]
    assert "edges plain, output: NaN or infinite > " in lines["NaN"]
    assert "edges two runs differ in bits" in lines["other bits"]
    assert "RuntimeError: raised by the plant" in lines["raises"]
    assert "dense or edges RuntimeError: Triton Error [CUDA]" in lines["loses its context"]
    assert "blocking" in results["wrong result"]
    assert "blocking" not in results["hangs"]


def test_few_lines_are_printed_and_failures_are_last(planted):
    lines = planted[1].strip().splitlines()
    assert len(lines) <= 40
    first = next(number for number, line in enumerate(lines) if " failures; " in line)
    assert len(lines) - first - 1 == 7
    assert lines[first].startswith("7 failures; ")


SANITIZER = """#!/bin/sh
while [ "$1" != "--target-processes" ]; do echo "$1" >> "$0.said"; shift; done
shift 2
grep -q racecheck "$0.said" && echo "========= ERROR SUMMARY: 1 hazard" && exit 9
exec "$@"
"""


def test_again_runs_what_failed_and_the_sanitizer_around_tiny_cases(planted):
    """With a sanitizer that finds a hazard when it looks for races."""
    folder = planted[3]
    tool = folder / "compute-sanitizer"
    tool.write_text(SANITIZER, encoding="utf-8")
    tool.chmod(0o755)
    words = (
        "--device",
        "cpu",
        "--part",
        "again",
        "--only",
        "nothing compiles",
        "--case-seconds",
        "25",
    )
    status, said, found = first_run(*words, folder=folder, planted=True, path=folder)
    assert status == 1
    part = found["parts"]["again"]
    assert "correctness" in found["parts"]
    wrong = [
        case["name"]
        for case in found["parts"]["correctness"]["cases"]
        if "right" not in case["name"]
    ]
    assert [case["name"] for case in part["cases"]] == wrong
    failed = part["sanitizer"]["memcheck of what failed"]
    assert failed["status"] != 0  # the first of them kills its process
    assert part["left_out"] == []
    memcheck = part["sanitizer"]["memcheck"]
    assert memcheck["status"] == 0
    assert memcheck["said"].count('"case"') == 6
    assert memcheck["said"].count('"ok": false') == 0
    assert "compute-sanitizer, racecheck: ========= ERROR SUMMARY: 1 hazard" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--every", "0"), "--every must be above 0, got 0"),
        (("--budget", "-1"), "--budget must be above 0, got -1.0"),
        (("--cases", "a; b"), "--cases is for --part again, got --part correctness"),
        (("--device", "gpu"), "--device must be cuda or cpu, got gpu"),
        (
            ("--out", "absent/gpu.json"),
            "--out must be in a folder that exists, got absent/gpu.json",
        ),
        (("--out", "broken.json"), "--out must hold JSON, got broken.json"),
        (("--part", "all"), "invalid choice: 'all'"),
    ],
)
def test_wrong_arguments_cost_no_import(tmp_path, words, said):
    (tmp_path / "broken.json").write_text('{"schema": 2,', encoding="utf-8")
    status, told, _ = first_run(*words, folder=tmp_path)
    assert status == 2
    assert said in told


def test_a_name_without_a_case_is_told_with_the_closest(tmp_path):
    words = ("--device", "cpu", "--part", "again", "--only", "nothing compiles")
    status, said, _ = first_run(*words, "--cases", "edges, float32, casual", folder=tmp_path)
    assert status == 1
    assert (
        "there is no case 'edges, float32, casual'; the closest are edges, float32, causal" in said
    )


def test_a_choice_of_nothing_is_a_failure(tmp_path):
    status, said, _ = first_run(
        "--device", "cpu", "--part", "tune", "--only", "HELD 17", folder=tmp_path
    )
    assert status == 1
    assert "--only: no name has 'HELD 17' in it" in said


def test_a_run_that_is_ended_from_outside_prints_what_it_has(tmp_path):
    words = [
        sys.executable,
        str(HERE / "first_run.py"),
        "--device",
        "cpu",
        "--only",
        "planted: hangs",
    ]
    env = {**os.environ, "GPU_PLANTED": str(HERE / "planted.py")}
    run = subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "gpu.json").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    run.terminate()
    said, _ = run.communicate(timeout=30)
    assert run.returncode == 1
    assert said.splitlines()[-1] == "ended from outside before its end"


class Children:
    """A server whose child answers for each case: the second is wrong."""

    ended = 0
    silent_s = None

    def __init__(self):
        self.left = []

    def answers(self, job, limit):
        for number, name in enumerate(job["names"]):
            self.left.append(limit.until)
            yield {"case": {"name": name, "results": [{"ok": number != 1}]}}


def test_time_is_kept_for_what_failed(tmp_path):
    """Of the cases after it; one that runs meanwhile is ended earlier, and not blamed."""
    words = {
        "part": "correctness",
        "budget": 100.0,
        "case_seconds": 45.0,
        "out": tmp_path / "gpu.json",
    }
    run = gpu_run.Run(argparse.Namespace(**words, device="cpu", only="", every=1))
    run.server = Children()
    run.found |= {"cases": [], "left_out": []}
    run._run_cases(["a", "b", "c"], "a group", kept_s=30.0)
    assert run.server.left == [run.until, run.until, run.until - 30.0]
    run._run_cases(["d"], "a group", kept_s=100.0)
    assert len(run.found["cases"]) == 3


@pytest.mark.parametrize("while_it_runs", [True, False])
def test_a_server_that_dies_costs_one_case(tmp_path, while_it_runs):
    """Its imports are paid for again; between two jobs it costs no case."""
    server = gpu_run.Server(tmp_path / "stderr")
    try:
        assert server.started(60.0) is not None
        job = {"do": "about", "device": "cpu"}
        limit = gpu_run.Limit(60.0, time.monotonic() + 120.0)
        if while_it_runs:
            answers = server.answers(job, limit)
            next(answers)
        os.kill(server.process.pid, signal.SIGKILL)
        if while_it_runs:
            assert list(answers) == []
            assert server.how() == "lost: the process that forks is gone"
        else:
            server.process.wait()
        assert [sorted(answer) for answer in server.answers(job, limit)] == [["about"]]
    finally:
        server.stop()


def test_the_most_that_is_printed_fits_what_comes_back(tmp_path, capsys):
    """40 lines and 12,000 characters, the failures last."""
    words = {
        "part": "correctness",
        "budget": 100.0,
        "case_seconds": 45.0,
        "out": tmp_path / "gpu.json",
    }
    run = gpu_run.Run(argparse.Namespace(**words, device="cpu", only="", every=1))
    run.lines = [f"line {number} " + "x" * 999 for number in range(99)]
    run.failures = [f"failure {number}: " + "y\n" * 999 for number in range(99)]
    assert run._end(1) == 1
    said = capsys.readouterr().out
    assert len(said.splitlines()) == 40
    assert len(said) <= 12_000
    assert said.splitlines()[-1].startswith("failure ")
    assert len(json.loads((tmp_path / "gpu.json").read_text("utf-8")).get("parts")) == 0


def test_sdpa_is_given_four_axes(monkeypatch):
    """With three, torch on a GPU has no fused kernel, and the peer's time would be a slow one's."""
    import gpu_figures

    figure = next(figure for figure in gpu_figures.FIGURES if figure.name == "full")
    problem = gpu_figures._problem(figure, torch.device("cpu"))
    leaves = problem.inputs()[:3]
    assert leaves[0].dim() == 3
    seen = []
    run = torch.nn.functional.scaled_dot_product_attention

    def watched(query, *rest, **options):
        seen.append(query.dim())
        return run(query, *rest, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    output = gpu_figures._sdpa(problem, None, leaves)()
    assert seen == [4]
    wanted = ga.attention(*leaves, problem.graph, backend="message_passing")
    torch.testing.assert_close(output.reshape(wanted.shape), wanted)


def test_an_output_that_is_not_ours_is_told():
    rows = [
        {"who": "edges", "norm": 3.0},
        {"who": "tiles", "norm": 3.01},
        {"who": "PyG", "norm": 3.2},
    ]
    assert gpu_run._other_numbers("a shape", rows) == ["a shape: PyG has norm 3.2, ours 3"]
    rows[2]["norm"] = float("nan")
    assert gpu_run._other_numbers("a shape", rows) == ["a shape: PyG has norm nan, ours 3"]


def test_figures_are_ours_first_and_then_the_closest_peer(tmp_path):
    status, said, found = first_run(
        "--device", "cpu", "--part", "figures", "--only", "a", "--every", "7", folder=tmp_path
    )
    assert status == 0, said
    part = found["parts"]["figures"]
    assert part["complete"]
    names = [row["name"] for row in part["figures"]]
    assert names[0] == "a prepared call"
    assert part["figures"][-1]["who"].startswith("SDPA")
    for row in part["figures"]:
        assert row["card"] == "CPU"
        assert row["training_ms"] > 0
    assert part["ceilings"]["copy_gb_per_s"] > 0


def test_tuning_is_walked_through_without_a_gpu(tmp_path):
    import gpu_tune

    status, said, found = first_run("--device", "cpu", "--part", "tune", folder=tmp_path)
    assert status == 0, said
    rows = found["parts"]["tune"]["rows"]
    assert len(rows) == len(gpu_tune.SHAPES) * len(gpu_tune.VARIANTS)
    assert all(row["left_out"] for row in rows)


def test_a_machine_that_cannot_import_says_why(tmp_path):
    status, said, _ = first_run("--device", "cpu", absent=("torch_geometric",), folder=tmp_path)
    assert status == 1
    assert "cannot be imported" in said
    assert "torch_geometric" in said


def test_the_points_of_figures_lie_along_a_curve():
    """32 consecutive targets share sources, as in data that is ordered for speed."""
    import gpu_figures

    for graph in (ga.graphs.knn(gpu_figures._points(4096).cpu(), 11), gpu_figures._multimesh(4)):
        pairs = torch.unique(graph.target // 32 * graph.num_nodes + graph.source)
        assert graph.num_edges / len(pairs) > 2


def test_edges_are_grouped_without_scipy(monkeypatch):
    """Which a machine with a GPU may lack; sorted, where scipy would count many edges into
    place."""
    made = [ga.graphs.random_neighbours(900, 11) for _ in range(2)]
    wanted = by_source(made[0])
    monkeypatch.setattr(sort, "find_spec", lambda name: None)
    assert not sort.countable(made[1].source, 900, 900)
    assert all(torch.equal(a, b) for a, b in zip(by_source(made[1]), wanted, strict=True))


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
found = [case for case in cases() if case.group not in ("torch.compile", "large")]
table = [case for case in found if case.group in ("table", "layers", "edges", "tiles")]
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


JOBS = """
import no_device, torch
print("the device is built")
import gpu_figures, gpu_jobs, gpu_tune
from graphattn.backends import device
device._triton_refuses = lambda device: ()
torch.set_num_threads(1)
gpu_figures.FLUSHED = 1 << 10
shapes = [f._replace(graph=lambda _, make=f.graph: make(False), batch=1) for f in gpu_figures.FIGURES]
gpu_figures.FIGURES = tuple(shapes)
gpu_figures.STEPS = {name: (step[0], 2, 300) for name, step in gpu_figures.STEPS.items()}
rows = []

def say(answer):
    rows.extend([answer["row"]] if "row" in answer else [])

gpu_jobs.about(say, "cuda")
for name, who in (("anemoi, h_to_h", "ours"), ("anemoi, h_to_h", "PyG"), ("documents", "ours"),
                  ("full", "SDPA"), ("a step of the U-Net", "ours")):
    gpu_jobs.figure(say, "cuda", name, who, 1000.0)
gpu_jobs.tune(say, "cuda", gpu_tune.SHAPES[0], "HELD 16")
gpu_jobs.tune(say, "cuda", gpu_tune.SHAPES[0], "as it is")
for row in rows:
    assert "raised" not in row, row
    assert row["training_ms"] > 0 and row["peak_bytes"] == 0, row
    assert ("replay_ms" in row and "replay_refused" not in row) or row["name"].startswith("a step"), row
    assert row.get("dtype") in (None, "torch.float16", "torch.bfloat16"), row
ours, peer = [row for row in rows if row.get("name") == "anemoi, h_to_h"]
assert ours["multiple_of_floor"] > 0 and abs(ours["norm"] / peer["norm"] - 1) < 0.01, (ours, peer)
assert rows[-1]["norm"] == rows[-2]["norm"], rows
print("the jobs are done")
"""


def test_figures_and_variants_run_as_on_a_gpu(tmp_path):
    """Their branches for CUDA, which a rehearsal on the CPU does not take."""
    paths = os.pathsep.join(
        map(str, (ROOT, ROOT / "tests", HERE, ROOT / "examples" / "benchmarks"))
    )
    env = {**os.environ, "NO_DEVICE": str(tmp_path), "PYTHONPATH": paths}
    words = [sys.executable, "-c", JOBS]
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=ROOT)
    if "the device is built" not in done.stdout:
        pytest.skip(f"no compiler for torch's headers: {done.stderr[-300:]}")
    assert "the jobs are done" in done.stdout, done.stdout + done.stderr


def test_every_operand_is_on_the_device(told):
    """Some cases of ``make gpu`` and what is not of the table, forward and backward, on the
    device that is not there; compiled code apart, which it cannot run."""
    assert "every operand is on the device" in told, told
    assert "tiles by varlen_attn right" in told, told
    assert "compacted, dropped as by edges right" in told, told
