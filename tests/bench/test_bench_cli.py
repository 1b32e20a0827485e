"""``graphattn bench``."""

import json
import shlex

import pytest
from typer.testing import CliRunner

from graphattn.cli.bench import app


def shell(line):
    return CliRunner().invoke(app, shlex.split(line), prog_name="graphattn")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bench nothing", "nothing is no pattern"),
        ("bench causal", "causal needs --size N"),
        ("bench causal --size 5 --suite cpu", "--suite and --quick are for the project's own table; got causal too"),
        ("bench causal --size 5 --quick", "--suite and --quick are for the project's own table"),
        ("bench --suite nothing", "suite must be a table: cpu"),
        ("bench --suite mesh --sizes 5,few", "--sizes must be whole numbers such as 1024,4096, got '5,few'"),
        ("bench cloud.xyz --k 5 --sizes 5,7", "--sizes goes with a pattern that takes --size, or with --suite"),
        ("bench causal --sizes 5,few", "--size must be a whole number, got 'few'"),
        ("bench causal --size 5 --sizes 5", "--size is given twice"),
        ("bench causal --size 5 --peers natten", "peers are auto, dense"),
        ("bench causal --size 5 --device tpu", "device must be cpu"),
        ("bench causal --size 5 --device cuda:99", "CUDA devices here; use cpu"),
        ("bench causal --size 5 --repeats 0", "Invalid value for '--repeats'"),
        ("bench causal --size 5 --out here.foo", "--out must end in .png"),
        ("bench causal --size 5 --json nowhere/run.json", "nowhere/run.json is no file in a folder"),
        ("bench --k 5", "WHAT, a pattern or a file, comes before its options; got --k first"),
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


def test_a_sweep_of_a_pattern(tmp_path):
    out, numbers = tmp_path / "run.png", tmp_path / "run.json"
    line = "bench window --window 5 --sizes 11,31 --heads 2 --head-dim 7 --peers edges --threads 1"
    done = shell(f"{line} --repeats 2 --limit 5 --json {numbers} --out {out}")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("choice, forward + backward: ") == 2
    assert "window 31: AttentionGraph(sliding_window(31, 5)" in done.stdout
    assert done.stdout.endswith(f"picture: {out}\n")
    found = json.loads(numbers.read_text())
    assert [case["name"] for case in found["cases"]] == ["window 11", "window 31"]
    assert {(case["heads"], case["head_dim"], case["batch"]) for case in found["cases"]} == {(2, 7, 1)}
    assert [row["peer"] for row in found["cases"][0]["rows"]] == ["auto", "edges"]
    assert out.read_bytes().startswith(b"\x89PNG")


def test_help_names_patterns_and_options():
    text = shell("bench --help").stdout
    assert "Usage: graphattn bench [WHAT] [OPTIONS OF WHAT] [OPTIONS]" in text
    for words in ("--suite", "--sizes", "--peers", "--limit", "sliding_window"):
        assert words in text
    assert "bench" in shell("--help").stdout
