"""Peers agree, take turns, and are refused with a reason; no time is asserted."""

import json

import pytest
import torch

from graphattn import from_edge_index, from_mask, graphs
from graphattn.backends import BACKENDS
from graphattn.bench import AttentionCall, Peer, PeerComparison, compare
from graphattn.bench import machine as machines
from graphattn.bench.peers import BOTH, FORWARD, MODES, PyG, all_peers
from graphattn.bench.timing import Contender, measure
from graphattn.errors import OptionError

torch.manual_seed(0)
ISOLATED = torch.rand(11, 7) < 0.4
ISOLATED[3] = False
GRAPHS = {
    "isolated target": from_mask(ISOLATED),
    "window": graphs.sliding_window(13, 5, causal=True),
    "full": graphs.full(7),
    "causal": graphs.causal(11),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "batch"), [(name, 1 + i % 2 * 2) for i, name in enumerate(GRAPHS)]
)
def test_all_peers_agree_in_output_and_gradients(name, batch):
    result = compare(GRAPHS[name], heads=3, head_dim=5, batch=batch, dtype=torch.float64, repeats=1)
    assert {row.name for row in result.rows} == {"auto", *BACKENDS, "SDPA", "PyG"}
    assert result.rows[0].name == "auto"
    for row in result.rows:
        assert set(row.difference) == set(MODES) or "edges" in " ".join(row.refused), row
        assert max(row.difference.values()) < 1e-12
        assert {mode: len(ms) for mode, ms in row.ms.items()} == {FORWARD: 1, BOTH: 1}
        assert min(*row.first_ms.values(), *row.ms[FORWARD], *row.ms[BOTH]) > 0


class Scripted(Contender):
    """Answers and times from a script."""

    def __init__(self, name, turns, answer=0.0, asked=None):
        super().__init__(PyG(), AttentionCall(graphs.causal(5)), 1)
        self.name, self.turns, self.number, self.asked = name, iter(turns), answer, asked

    def answer(self):
        return {mode: [torch.full((2,), self.number)] for mode in MODES}

    def first(self, mode):
        return 9.0

    def turn(self, mode):
        if self.asked is not None:
            self.asked.append(self.name)
        ms = next(self.turns)
        if isinstance(ms, Exception):
            raise ms
        return ms


def test_each_round_begins_with_another():
    asked = []
    rows = measure([Scripted(name, [2.0] * 6, asked=asked) for name in "abc"], repeats=3)
    assert "".join(asked) == "abcbcacab" * 2
    assert [row.ms[BOTH] for row in rows] == [[2.0] * 3] * 3


def test_turns_end_at_the_limit():
    (row,) = measure([Scripted("a", [2_000.0] * 9)], repeats=7, limit=5.0)
    assert row.ms == {FORWARD: [2_000.0] * 3, BOTH: [2_000.0] * 3}


@pytest.mark.parametrize("answer", [0.5, float("inf"), float("nan")])
def test_a_wrong_answer_is_not_timed(answer):
    rows = measure([Scripted("a", [1.0] * 2), Scripted("b", [1.0] * 2, answer)], repeats=1)
    assert [bool(row.ms) for row in rows] == [True, False]
    assert "not timed: its answer differs from ours, forward by " in rows[1].refused[0]
    assert "not timed" in str(PeerComparison(AttentionCall(graphs.causal(5)), rows))


def test_an_error_ends_one_peer_alone():
    rows = measure(
        [Scripted("a", [1.0, RuntimeError("no\ncompiler")]), Scripted("b", [1.0] * 4)], repeats=2
    )
    assert rows[0].refused == ["RuntimeError: no"]
    assert rows[1].ms == {FORWARD: [1.0] * 2, BOTH: [1.0] * 2}


def test_what_does_not_fit_is_refused_with_both_sizes(monkeypatch):
    monkeypatch.setattr(machines, "free_bytes", lambda device: 3_000_000_000)
    large = AttentionCall(graphs.sliding_window(40_000, 257, causal=True))
    for name, words in (
        ("SDPA", "40,000 x 40,000"),
        ("PyG", "(E, H, D)"),
        ("message_passing", "both passes"),
    ):
        (reason,) = all_peers()[name].reasons_against(large)
        assert words in reason
        assert "half of what is free is 1.5 GB" in reason
    assert all_peers()["auto"].reasons_against(large) == []


def test_sdpa_refuses_repeated_edges_and_has_no_mask_where_none_is_needed(monkeypatch):
    twice = from_edge_index([[0, 0], [1, 1]], num_nodes=2, duplicates="keep")
    (reason,) = all_peers()["SDPA"].reasons_against(AttentionCall(twice))
    assert "repeated edges" in reason
    monkeypatch.setattr(machines, "free_bytes", lambda device: 1_000)
    assert all_peers()["SDPA"].reasons_against(AttentionCall(graphs.causal(4_000))) == []


@pytest.mark.slow
def test_others_run_on_one_thread_too():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        result = compare(graphs.causal(5), peers=["PyG"], repeats=1)
    finally:
        torch.set_num_threads(before)
    assert [(row.name, row.threads) for row in result.rows] == [("auto", 2), ("PyG", 2), ("PyG", 1)]


def test_a_result_prints_and_is_json():
    torch.manual_seed(0)
    problem = AttentionCall(graphs.causal(5))
    result = PeerComparison(
        problem, measure([Scripted("a", [2.0] * 4), Scripted("b", [3.0] * 4)], repeats=2)
    )
    other = result.rows[1]
    other.name = "other"
    assert result.ratio(result.fastest(FORWARD, "other"), FORWARD) == 1.5
    assert "other, 1 thread 1.5 3 ±0% 1.5 3 ±0% 9 0e+00" in " ".join(str(result).split())
    assert json.loads(json.dumps(result.to_dict()))["rows"][1]["ms"][FORWARD] == [3.0, 3.0]


def test_a_peer_that_does_not_exist_is_refused():
    with pytest.raises(
        OptionError, match=r'peers must be "auto", "dense".*or "PyG", got \'natten\''
    ):
        compare(graphs.causal(5), peers=["natten"])


def test_a_peer_of_ones_own_takes_part():
    class Mean(Peer):
        name = "mean"

        def prepare(self, problem, query, key, value):
            return lambda: value.mean(0, keepdim=True).expand_as(query) + 0 * (query + key)

    contenders = [
        Contender(peer, AttentionCall(graphs.full(7)), 1) for peer in (all_peers()["auto"], Mean())
    ]
    assert "differs from ours" in measure(contenders, repeats=1)[1].refused[0]


def test_the_machine_is_described():
    facts = {**machines.machine("cpu"), "load_before": 0.1}
    assert {"date", "processor", "cores", "system", "versions"} <= set(facts)
    assert "torch 2" in machines.heading(facts)
    assert "the machine was busy" in machines.heading({**facts, "load_before": 99.0})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu():
    result = compare(graphs.sliding_window(257, 17, causal=True), device="cuda", repeats=2)
    assert all(
        row.ms for row in result.rows if row.name in ("auto", "message_passing", "PyG", "SDPA")
    )
