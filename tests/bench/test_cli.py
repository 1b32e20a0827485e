"""``graphattn bench``."""

import json
import shlex

import forked_workers
import pytest
from typer.testing import CliRunner

from graphattn.bench.crew import Crew
from graphattn.cli.app import app


def shell(line):
    return CliRunner().invoke(app, shlex.split(line), prog_name="graphattn")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bench nothing", "'nothing' is no name of the zoo"),
        ("bench prefix", "prefix is a builder and needs its arguments"),
        ("bench 'causal(5)' --suite cpu", "--suite and --quick are for the project's own table; got causal(5) too"),
        ("bench 'causal(5)' --quick", "--suite and --quick are for the project's own table"),
        ("bench --suite nothing", "suite must be a table: cpu"),
        (
            "bench --suite mesh --sizes 5,few",
            "--sizes must be whole numbers such as 1024,4096, or 8x8,16x16, got '5,few'",
        ),
        (
            "bench 'causal(5)' --sizes 5,7",
            "--sizes goes with a graph that is open in its size, such as 'sliding_window(",
        ),
        ("bench 'causal(...)' --sizes 5,few", "--sizes must be whole numbers"),
        ("bench 'causal(...)'", "Pattern(causal(...)) is open in its size; give a number in the place of ..."),
        ("bench 'cell_partition(..., 4)' --sizes 64", "lies on a grid, and 64 nodes do not tell its axes"),
        ("bench --suite mesh --sizes 8x8", "--sizes of the table are numbers of nodes, got 8x8"),
        ("bench 'causal(5)' --peers natten", "peers are auto, dense"),
        ("bench 'causal(5)' --device tpu", "device must be cpu"),
        ("bench 'causal(5)' --device cuda:99", "CUDA devices here; use cpu"),
        ("bench 'causal(5)' --repeats 0", "Invalid value for '--repeats'"),
        ("bench 'causal(5)' --out here.foo", "--out must end in .png"),
        ("bench 'causal(5)' --json nowhere/run.json", "nowhere/run.json is no file in a folder"),
    ],
)
def test_errors_are_one_line_before_anything_runs(line, said, monkeypatch):
    from graphattn.bench import session

    def measure(*_, **__):
        raise AssertionError("it began to measure")

    monkeypatch.setattr(session, "measure", measure)
    done = shell(line)
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output


@pytest.mark.slow
def test_a_sweep_of_a_pattern(tmp_path, monkeypatch):
    monkeypatch.setattr(Crew, "worker", forked_workers.start)
    out, numbers = tmp_path / "run.png", tmp_path / "run.json"
    line = "bench 'sliding_window(..., 5)' --sizes 11,31 --heads 2 --head-dim 7 --peers edges --threads 1"
    done = shell(f"{line} --repeats 2 --limit 5 --json {numbers} --out {out}")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("choice, forward + backward: ") == 2
    assert "sliding_window(..., 5) at 11: edges on 1 thread: agrees" in done.stderr  # no terminal is needed
    assert "sliding_window(..., 5) at 31: AttentionGraph(sliding_window(31, 5)" in done.stdout
    assert done.stdout.endswith(f"picture: {out}\n")
    found = json.loads(numbers.read_text())
    assert [case["name"] for case in found["cases"]] == [f"sliding_window(..., 5) at {size}" for size in (11, 31)]
    assert {(case["heads"], case["head_dim"], case["batch"]) for case in found["cases"]} == {(2, 7, 1)}
    assert [row["peer"] for row in found["cases"][0]["rows"]] == ["auto", "edges"]
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_sweep_of_grids(monkeypatch):
    from graphattn import bench

    made = []

    def run(tasks, **_):
        made.extend(task.make().graph for task in tasks)
        return bench.Report({}, {}, [])

    monkeypatch.setattr(bench, "run", run)
    assert shell("bench 'cell_partition(..., 4)' --sizes 8x8,8x12").exit_code == 0
    assert [graph.num_nodes for graph in made] == [64, 96]


def test_help_names_its_options():
    text = shell("bench --help").stdout
    for words in ("Usage: graphattn bench [OPTIONS] [WHAT]", "--suite", "--sizes", "--peers", "--limit"):
        assert words in text
