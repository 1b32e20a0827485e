"""Runs in processes of their own, on graphs so small that they are quick; no time is asserted."""

import os
import signal
from importlib import metadata
from math import inf

import bench_rows
import forked_workers
import pytest
import torch

from graphattn import bench, from_mask, graphs
from graphattn.bench import first_calls, session
from graphattn.bench import measure as measuring
from graphattn.bench import turns as taking_turns
from graphattn.bench.crew import Crew, LostError
from graphattn.bench.problem import BOTH, FORWARD
from graphattn.bench.result import Row
from graphattn.errors import OptionError

pytestmark = pytest.mark.slow

LITTLE = bench.Effort(repeats=3, limit=100)
SHORT = bench.Effort(repeats=3, limit=5)  # of scripted answers, which take no time


@pytest.fixture(scope="module")
def report():
    torch.manual_seed(0)
    problems = {
        "lonely": bench.Problem(from_mask(torch.rand(11, 7) < 0.3), 3, 5, batch=2),
        "causal": bench.Problem(graphs.causal(13), 2, 7),
        "window": bench.Problem(graphs.sliding_window(4001, 17), 4, 8),
    }
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Crew, "worker", forked_workers.start)
        found = bench.run(
            problems, peers=("edges", "message-passing", "pyg", "SDPA + mask", "sdpa"), threads=1, effort=LITTLE,
            done=lambda report: told.append(len(report.cases)),
        )  # fmt: skip
    assert told == [1, 2, 3]
    return found


def test_everyone_ran_and_agrees(report):
    for case in report.cases[:2]:
        ran = [row for row in case.rows if row.last is not None]
        assert [row.name for row in ran][:5] == ["auto", "edges", "message_passing", "PyG", "SDPA + mask"]
        for row in ran:
            assert {mode: len(times) for mode, times in row.times_ms.items()} == {FORWARD: 3, BOTH: 3}
            assert min(min(times) for times in row.times_ms.values()) > 0
            assert set(row.plan_ms) == set(row.peak_bytes) == {FORWARD, BOTH}
            assert max(row.difference.values()) < 1e-5
            assert row.refused == row.notes == []
        assert case.choice(FORWARD)["best"] in ("edges", "message_passing")
        assert case.chosen in case.estimated_ms
    assert [row.refused for row in report.cases[0].rows if row.name == "SDPA"] == [
        ["only for a full or a causal graph; another one needs the mask"]
    ]
    assert report.cases[1].row("SDPA").last == BOTH


def test_the_machine_is_described(report):
    machine = report.machine
    assert machine["threads"] == 1
    assert machine["stream_gb_per_s"] > 0.1
    assert machine["versions"]["torch"] == metadata.version("torch")
    assert {"date", "processor", "cores", "load_before", "command", "system"} <= set(machine)
    assert report.settings == {
        "repeats": 3,
        "limit_s": 100,
        "budget_s": None,
        "peers": ["auto", "edges", "message_passing", "PyG", "SDPA + mask", "SDPA"],
    }
    assert str(report)


def test_memory_is_of_the_call_alone(report):
    """68,017 edges make (E, H, D) tensors of 8.7 MB; PyG holds several at once, the fused kernels none."""
    peak = {row.name: row.peak_bytes.get(FORWARD) for row in report.cases[2].rows}
    one = 4001 * 17 * 4 * 8 * 4
    assert peak["PyG"] > 2 * one
    assert peak["edges"] < one


def test_a_peer_that_hangs_or_dies_takes_nobody_along():
    with Crew("cpu", 1) as crew:
        with pytest.raises(LostError, match=r"no answer within 0 s \(about\); ended"):
            crew.ask("edges", "about", seconds=0.01)
        assert not crew.runs("edges")
        crew.start("edges")
        process = crew._running["edges"][0]
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(LostError, match=r"ended with signal 9 \(out of memory\?\)"):
            crew.ask("edges", "about")
        assert crew.ask("edges", "about")["threads"] == 1  # another one takes its place
        with pytest.raises(LostError, match="AttributeError"):
            crew.ask("edges", "juggle")
        process = crew._running["edges"][0]
    assert process.poll() is not None


class Script:
    """A crew that answers from a script."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def runs(self, name):
        return self.answers.get("runs", True)

    def ask(self, name, command, *arguments, seconds=0.0):
        self.asked.append((name, command))
        answer = self.answers[command]
        if isinstance(answer, Exception):
            raise answer
        return answer(*arguments) if callable(answer) else answer


def first(**answers):
    from graphattn.bench.worker import Fresh

    usual = {"open": ([], ""), "check": {FORWARD: 0.0, BOTH: 0.0}, "fresh": Fresh(1.0, 5.0, 7)}
    crew, row = Script(**{**usual, **answers}), Row("PyG", "", False)
    problem, told = bench.Problem(graphs.causal(5)), []
    first_calls.first_calls([(row, 1, crew)], "causal", problem, LITTLE, "reference", told.append)
    assert told[0].startswith("causal: PyG on 1 thread: ")  # whatever came of it
    return row, crew


def test_a_wrong_answer_is_not_timed():
    for far in (0.5, float("inf"), float("nan")):
        row, crew = first(check={FORWARD: 1e-6, BOTH: far})
        assert row.times_ms == {}
        assert row.refused == [
            f"its answer differs from ours: forward + backward by {far:.2g} (allowed 0.0002); not timed"
        ]
        assert ("PyG", "fresh") not in crew.asked


def test_whoever_fails_says_why():
    assert first(check=LostError("RuntimeError: no compiler"))[0].refused == ["RuntimeError: no compiler"]
    assert first(open=(["too large"], ""))[0].refused == ["too large"]
    row, _ = first(open=([], "no backward pass"), check={FORWARD: 0.0})
    assert (row.notes, set(row.times_ms)) == (["no backward pass"], {FORWARD})
    row, _ = first(fresh=LostError("no answer within 260 s"))
    assert row.notes == ["forward: no answer within 260 s"]


def test_turns_end_at_the_limit_and_begin_with_another_each_round():
    rows = [Row(name, "", False, times_ms={FORWARD: [1.0]}, plan_ms={FORWARD: 5.0}) for name in ("a", "b")]
    crew = Script(turn=2_000.0)
    taking_turns.turns([(row, 1, crew) for row in rows], FORWARD, SHORT, inf)
    assert [name for name, _ in crew.asked] == ["a", "b", "b", "a"]  # a third of 2 s would pass 5 s
    assert rows[0].times_ms == {FORWARD: [2_000.0, 2_000.0]}
    assert rows[0].notes == ["forward: 2 of 3 turns, within its 5 s"]
    assert rows[0].plan_ms == {FORWARD: 0.0}


def test_a_first_call_beyond_the_limit_is_the_only_one():
    row = Row("a", "", False, times_ms={FORWARD: [19_000.0]}, plan_ms={FORWARD: 19_500.0})
    taking_turns.turns([(row, 1, Script())], FORWARD, SHORT, inf)
    assert row.times_ms == {FORWARD: [19_000.0]}
    assert row.notes == ["forward: the first call alone, within its 5 s"]
    slow = Row("c", "", False, times_ms={FORWARD: [9_000.0]}, plan_ms={FORWARD: 9_500.0})
    taking_turns.turns([(slow, 1, Script(turn=6_000.0))], FORWARD, SHORT, inf)
    assert slow.times_ms == {FORWARD: [6_000.0]}  # one warm turn
    lost = Row("b", "", False, times_ms={FORWARD: [1.0]}, plan_ms={FORWARD: 5.0})
    taking_turns.turns([(lost, 1, Script(runs=False))], FORWARD, SHORT, inf)
    assert lost.times_ms == {FORWARD: [1.0]}


def test_a_budget_that_is_spent_leaves_three_turns():
    row, crew = Row("a", "", True, times_ms={FORWARD: [1.0]}, plan_ms={FORWARD: 5.0}), Script(turn=2.0)
    taking_turns.turns([(row, 1, crew)], FORWARD, bench.Effort(repeats=9), until=0.0)
    assert (row.times_ms, row.notes) == ({FORWARD: [2.0] * 3}, [])


def test_ctrl_c_keeps_what_was_measured():
    answers = iter([2.0, 3.0, KeyboardInterrupt()])

    def turn(mode):
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    row = Row("a", "", True, times_ms={FORWARD: [1.0]}, plan_ms={FORWARD: 5.0})
    with pytest.raises(KeyboardInterrupt):
        taking_turns.turns([(row, 1, Script(turn=turn))], FORWARD, LITTLE, inf)
    assert row.times_ms == {FORWARD: [2.0, 3.0]}


def test_an_interrupted_run_reports_the_cases_before(monkeypatch):
    made = []

    def measure(name, problem, *rest):
        if made:
            raise KeyboardInterrupt
        made.append(bench_rows.case(name))
        return made[0]

    monkeypatch.setattr(Crew, "ask", lambda *asked, **more: {"threads": 1, "stream_gb_per_s": 9.0})
    monkeypatch.setattr(session, "measure", measure)
    problem, told, done = bench.Problem(graphs.causal(5)), [], []
    report = bench.run(
        dict.fromkeys("abc", problem), effort=bench.Effort(budget=90), say=told.append,
        done=lambda report: done.append(len(report.cases)),
    )  # fmt: skip
    assert (report.interrupted, report.cases, done) == (True, made, [1, 1])
    assert told[1:] == ["a (1 of 3, about 30 s)", "b (2 of 3, about 45 s)"]


def test_a_number_of_threads_that_is_slower_is_not_tried_again():
    def run(name, threads, factor, ours=False):
        made = bench_rows.row(name, [factor], [2 * factor], ours=ours)
        made.at_ms = {threads: {FORWARD: factor, BOTH: 2 * factor}}
        return made, threads

    slower = {}
    best = measuring._best([run("PyG", 2, 8.0), run("PyG", 1, 4.0)], slower, "mesh")
    assert (best.threads, best.at_ms[2][FORWARD]) == ({FORWARD: 1, BOTH: 1}, 8.0)
    assert slower == {("PyG", 2): "not tried on 2 threads: on mesh that took 2 times as long"}
    assert measuring._best([run("PyG", 1, 5.0)], slower, "knn").notes == list(slower.values())
    own = measuring._best([run("auto", 2, 3.0, True), run("auto", 1, 1.0, True)], slower, "mesh")
    assert (own.ms(FORWARD), own.at_ms[1][FORWARD], len(slower)) == (3.0, 1.0, 1)


def test_what_is_asked_for_is_checked():
    problem = {"causal": bench.Problem(graphs.causal(5))}
    with pytest.raises(OptionError, match=r"peers are auto, dense.*PyG compiled.*got 'natten'"):
        bench.run(problem, peers=("natten",))
    with pytest.raises(OptionError, match=r"device must be cpu, cuda, cuda:1 or the like, got 'tpu'"):
        bench.run(problem, device="tpu")
    with pytest.raises(OptionError, match=r"finds .* CUDA devices here; use cpu"):
        bench.run(problem, device="cuda:99")


def test_a_suite_is_made_shape_by_shape():
    tasks = list(bench.suite("mesh,swin", sizes=(100, 400), heads=2))
    assert [task.name for task in tasks] == ["mesh 100", "mesh 400", "swin 100", "swin 400"]
    problem = tasks[2].make()
    assert (problem.heads, problem.head_dim, problem.batch) == (2, 32, 8)
    assert problem.graph.num_targets == 49
    assert [task.make().graph.num_targets for task in bench.suite("full", quick=True)] == [512]
    assert [task.only_ours for task in bench.suite("knn16,knn16_million")] == [False, True]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu():
    problem = bench.Problem(graphs.sliding_window(257, 17), device="cuda")
    found = bench.run(
        {"window": problem}, peers=("message_passing", "PyG", "SDPA + mask"), device="cuda", effort=LITTLE
    )
    assert "gpu" in found.machine
    for row in found.cases[0].rows:
        if row.name in ("auto", "message_passing", "PyG", "SDPA + mask"):
            assert row.last == BOTH
            assert row.peak_bytes[BOTH] > 0
