"""Numbers into ratios, verdicts, tables and JSON."""

import json

import pytest
from bench_rows import MACHINE, case, row

from graphattn.bench import Report
from graphattn.bench.problem import BOTH, FORWARD


@pytest.fixture
def report():
    return Report(dict(MACHINE), {"repeats": 7, "limit_s": 20.0, "peers": []}, [case()])


def test_ratios_are_of_medians_to_auto():
    it = case()
    assert it.ratio(it.row("PyG"), FORWARD) == 25.0
    assert it.ratio(it.row("edges"), BOTH) == pytest.approx(5 / 6)
    assert it.ratio(it.row("FlexAttention"), BOTH) is None
    assert it.row("nobody") is None


def test_the_choice_is_judged_by_the_best_that_was_measured():
    found = case().choice(FORWARD)
    assert found == {"chosen": "dense", "best": "edges", "auto_over_best": 2.0, "within_target": False}
    assert case().choice(BOTH)["within_target"]
    alone = case()
    alone.rows = alone.rows[:1]
    assert alone.choice(FORWARD) is None


def test_a_peer_counts_at_its_best_of_several_numbers_of_threads():
    two, one = row("PyG", [30.0], [90.0]), row("PyG", [40.0], [70.0, 50.0])
    best = two.faster_of(one, 2, 1)
    assert best.times_ms == {FORWARD: [30.0], BOTH: [70.0, 50.0]}
    assert best.threads == {FORWARD: 2, BOTH: 1}
    assert best.notes == [
        "forward: on 2 threads, 30 ms; on 1 thread 40 ms",
        "forward + backward: on 1 thread, 60 ms; on 2 threads 90 ms",
    ]
    lost = row("PyG", refused=["no answer"])
    assert two.faster_of(lost, 2, 1) is two
    assert lost.faster_of(one, 2, 1) is one


def test_the_best_of_the_others_is_named(report):
    it = report.cases[0]
    assert it.best_other(FORWARD).name == "FlexAttention"
    assert it.to_dict()["best_other"] == {FORWARD: "FlexAttention", BOTH: "PyG"}
    assert "best of the others, forward + backward: PyG, 15 times the time of auto" in str(report)
    it.row("PyG").threads = {BOTH: 1}
    assert "forward + backward: PyG on 1 thread, 15 times" in str(report)


def test_json_has_all_numbers(report, tmp_path):
    path = tmp_path / "run.json"
    report.save(str(path))
    found = json.loads(path.read_text())
    assert found == report.to_dict()
    assert set(found) == {"schema", "machine", "settings", "interrupted", "cases", "pairs", "choices", "figures"}
    (it,) = found["cases"]
    assert it["choice"][FORWARD]["best"] == "edges"
    rows = {row["peer"]: row for row in it["rows"]}
    assert rows["SDPA"]["modes"] == {}
    assert rows["SDPA"]["refused"] == ["only for a full graph"]
    assert set(rows["FlexAttention"]["modes"]) == {FORWARD}
    assert rows["PyG"]["modes"][FORWARD] == {
        "ratio_to_auto": 25.0,
        "median_ms": 50.0,
        "quartiles_ms": [45.0, 55.0],
        "times_ms": [40.0, 60.0, 50.0],
        "plan_ms": 1.5,
        "peak_bytes": 3_000_000,
        "difference": 2e-7,
        "threads": None,
        "edges_per_ms": 20.0,
        "times_floor": 100.0,
    }


def test_the_table_says_everything(report):
    text = str(report)
    assert "a processor, threads: 2, torch 2.x" in text
    assert "busy" not in text
    lines = {line.split("  ")[1].strip(): line.split() for line in text.splitlines() if line.startswith("  ")}
    assert lines["PyG"] == ["PyG", "25", "50", "±10%", "15", "90", "±0%", "1.5", "3", "2e-05", "100", "2e-07"]
    assert lines["FlexAttention"][3:7] == ["±0%", "-", "-", "1.5"]
    for words in (
        "choice, forward: auto (dense) takes 2.00 of the best (edges), NOT within the target of 1.3",
        "choice, forward + backward: auto (dense) takes 1.20 of the best (edges), within the target",
        "explain expected, forward: dense 3 ms, edges 4 ms",
        "SDPA: not run: only for a full graph",
        "PyG: forward: 3 of 7 turns",
        "FlexAttention: no backward pass",
    ):
        assert words in text
    report.machine["load_before"] = 3.0
    assert "the machine was busy: load 3.0 on 2 cores before the run" in str(report)
