"""``graphattn bench``."""

import json
import shlex

import pytest
from typer.testing import CliRunner

from graphattn.cli.app import app


def shell(line):
    return CliRunner().invoke(app, shlex.split(line), prog_name="graphattn")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bench nothing", "'nothing' is no name of the zoo"),
        ("bench prefix", "prefix is a builder and needs its arguments"),
        ("bench 'causal(5)' --sizes 5,7", "--sizes goes with a graph that is open in its size, such as 'sliding"),
        ("bench 'causal(...)' --sizes 5,few", "--sizes must be whole numbers such as 1024,4096, or 8x8,16x16"),
        ("bench 'causal(...)'", "Pattern(causal(...)) is open in its size; give a number in the place of ..."),
        ("bench 'window_partition(..., 4)' --sizes 64", "needs the axes of a grid, and got 64 nodes"),
        ("bench 'causal(5)' --peers natten", 'peers must be "auto", "dense"'),
        ("bench 'causal(5)' --device tpu", "device must be an available device"),
        ("bench 'causal(5)' --device cuda:99", "device must be an available device"),
        ("bench 'causal(5)' --repeats 0", "Invalid value for '--repeats'"),
    ],
)  # fmt: skip
def test_errors_are_one_line_before_anything_runs(line, said, monkeypatch):
    from graphattn.bench import timing

    def measure(*_, **__):
        raise AssertionError("it began to measure")

    monkeypatch.setattr(timing, "measure", measure)
    done = shell(line)
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output


def test_a_sweep_of_a_pattern():
    line = (
        "bench 'sliding_window(..., 5, causal=True)' --sizes 11,31 --heads 2 --head-dim 7 --peers dense "
        "--repeats 2"
    )
    done = shell(line)
    assert done.exit_code == 0, done.output
    assert "AttentionGraph(sliding_window(11, 5, causal=True)" in done.stdout
    assert "AttentionGraph(sliding_window(31, 5, causal=True)" in done.stdout
    assert done.stdout.count("\n  dense, ") == 2
    found = json.loads(shell(f"{line} --json").stdout)
    assert found["settings"] == {"repeats": 2, "limit_s": 20.0}
    assert [graph["heads"] for graph in found["graphs"]] == [2, 2]
    assert [row["name"] for row in found["graphs"][0]["rows"]] == ["auto", "dense"]


def test_a_sweep_of_grids():
    done = shell(
        "bench 'window_partition(..., 4)' --sizes 8x8,8x12 --peers auto --repeats 1 --head-dim 8"
    )
    assert done.exit_code == 0, done.output
    assert "window_partition((8, 8), (4, 4)): 64 nodes" in done.stdout
    assert "window_partition((8, 12), (4, 4)): 96 nodes" in done.stdout
