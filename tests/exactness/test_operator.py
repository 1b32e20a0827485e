"""Heads that are grouped, or that come first; arguments in another's place; layers that raise;
threads.
"""

import pytest
import torch
from graph_table import GRAPHS
from torch.nn import functional as F

import graphattn as ga
from graphattn.errors import GraphError
from graphattn.exactness import layer, operator, verify
from graphattn.nn import GraphAttention

CAUSAL = GRAPHS["causal"]()
WINDOW = ga.graphs.sliding_window(1009, 9, causal=True)
FLOAT64 = {"dtypes": (torch.float64,)}


def sdpa(query, key, value, **options):
    return F.scaled_dot_product_attention(
        *(x.transpose(0, 1) for x in (query, key, value)), **options
    ).transpose(0, 1)


def repeated(q, k, v):
    """The common slip: repeat in place of repeat_interleave."""
    times = q.shape[1] // k.shape[1]
    return sdpa(q, k.repeat(1, times, 1), v.repeat(1, times, 1), is_causal=True)


def grouped(q, k, v):
    return sdpa(q, k, v, is_causal=True, enable_gqa=True)


def ungrouped(q, k, v):
    return sdpa(q, k, v, is_causal=True)


def test_heads_grouped_wrongly_are_seen_without_asking():
    report = verify(repeated, CAUSAL)
    assert not report.ok
    assert "heads grouped by tiling" in report.diagnosis
    assert "with 3 heads on 3 it is exact" in report.diagnosis
    assert verify(repeated, CAUSAL, heads=3).ok


def test_the_heads_and_widths_are_printed():
    report = verify(grouped, CAUSAL)
    assert report.ok, report
    assert "4 heads on 2, widths 5 and 5" in str(report)
    assert report.notes == ()


def test_a_function_without_grouped_heads_is_verified_without_and_it_is_said():
    report = verify(ungrouped, CAUSAL)
    assert report.ok, report
    assert "3 heads on 3, widths 5 and 5" in str(report)
    assert "heads 3 on 3: grouping of heads not tested" in str(report)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"is_causal": True}, {"attn_mask": CAUSAL.mask()}, {"is_causal": True, "x": 1}]
)
def test_heads_first_is_named_whether_it_raises_or_is_wrong(options):
    gqa = {"enable_gqa": True} if options.pop("x", 0) else {}
    report = verify(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options, **gqa), CAUSAL
    )
    assert not report.ok
    assert "it expects heads first" in report.diagnosis
    wrong = verify(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), CAUSAL)
    assert "heads first" not in (wrong.diagnosis or "")


@pytest.mark.slow
def test_another_layout_is_not_blamed_for_an_edge_outside_the_sample():
    mask = WINDOW.mask()
    mask[777, 776] = False
    report = verify(
        lambda *qkv: sdpa(*qkv, attn_mask=mask, enable_gqa=True), WINDOW, at_most=19, **FLOAT64
    )
    assert "edge 776 -> 777 of the graph is not read" in report.diagnosis
    assert "3 heads on 3" not in report.diagnosis


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (GraphError, r"graphattn.from_mask\(mask\)", lambda: verify(grouped, CAUSAL.mask())),
        (GraphError, r"graphattn.from_edge_index", lambda: verify(grouped, CAUSAL.edge_index)),
    ],
)
def test_what_is_in_the_place_of_a_layer_or_a_graph_is_named(error, words, call):
    with pytest.raises(error, match=words):
        call()


class WithLoops(GraphAttention):
    """A layer with a bug: biases no longer fit the edges."""

    def forward(self, x, graph, **options):
        return super().forward(x, graph.with_self_loops(), **options)


@pytest.mark.slow
def test_a_layer_that_raises_in_one_case_is_measured_in_the_others():
    report = verify(WithLoops(12, 3), CAUSAL.without_self_loops())
    assert not report.ok
    assert {row.case for row in report.rows} == {"plain"}
    assert "self-loops added" in report.diagnosis
    assert "the layer raised ShapeError in case score_bias: score_bias must have shape" in str(
        report
    )
    assert report.to_dict()["refusals"][0]["fault"]


@pytest.mark.slow
def test_a_layer_that_raises_is_not_exact_even_if_the_rest_is():
    class Picky(GraphAttention):
        def forward(self, x, graph, score_bias=None):
            if score_bias is not None:
                raise ValueError("no biases today")
            return super().forward(x, graph)

    report = verify(Picky(12, 3), CAUSAL, **FLOAT64)
    assert all(row.ok for row in report.rows)
    assert not report.ok
    assert "no biases today" in str(report)
    assert str(report).splitlines()[-1].startswith("NOT EXACT: 4 of")


@pytest.mark.slow
def test_a_layer_whose_forward_takes_no_biases_is_verified_without():
    class Plain(GraphAttention):
        def forward(self, x, graph):
            return super().forward(x, graph)

    report = verify(Plain(12, 3), CAUSAL, **FLOAT64)
    assert report.ok, report
    assert any("forward does not take one" in note for note in report.notes)


@pytest.mark.slow
def test_a_layer_that_raises_on_other_graphs_breaks_the_claims():
    class Frozen(GraphAttention):
        def forward(self, x, graph):
            if not graph.equals(CAUSAL):
                raise ValueError("another graph")
            return super().forward(x, graph)

    report = verify(Frozen(12, 3), CAUSAL, **FLOAT64)
    assert not report.ok
    assert "the layer raised ValueError: another graph" in str(report)


def test_small_graphs_take_one_thread_and_give_the_others_back(monkeypatch):
    before, right, seen = torch.get_num_threads(), operator.attention, []

    def spied(*args, **options):
        seen.append(torch.get_num_threads())
        return right(*args, **options)

    monkeypatch.setattr(operator, "attention", spied)
    torch.set_num_threads(3)
    try:
        assert verify(CAUSAL, backends=("dense",), **FLOAT64).ok
        assert set(seen) == {1, 3}
        assert seen.count(3) == 2  # the same bits twice, in the caller's threads
        with pytest.raises(ZeroDivisionError):
            verify(CAUSAL, progress=lambda step: 1 / 0)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("make", [lambda: CAUSAL, lambda: GraphAttention(12, 3)])
def test_no_biases_are_made_for_too_many_edges(monkeypatch, make):
    monkeypatch.setattr(operator, "MOST_EDGES", 90)
    monkeypatch.setattr(layer, "MOST_EDGES", 90)
    subject = make()
    report = verify(subject, *[CAUSAL] * (subject is not CAUSAL), backends=("dense",), **FLOAT64)
    assert report.ok, report
    assert {row.case for row in report.rows} <= {"plain", "softcap"}
    assert any("91 edges (limit 90)" in note for note in report.notes)


def test_graphs_of_heads_are_verified_side_by_side(monkeypatch):
    graph = ga.PerHead((CAUSAL, ga.graphs.full(13)))
    report = verify(graph, **FLOAT64)
    assert report.ok, report
    assert report.total == 26
    right = operator.attention
    monkeypatch.setattr(
        operator, "attention", lambda q, k, v, graph: right(q, k, v, graph.graphs[0])
    )
    assert not verify(graph, **FLOAT64).ok


def test_running_out_of_memory_is_no_fault():
    def hungry(query, key, value):
        if query.dtype == torch.float64:
            raise torch.OutOfMemoryError("tried to allocate 7 GiB")
        return grouped(query, key, value)

    report = verify(hungry, CAUSAL)
    assert report.ok, report
    assert "in torch.float64 it ran out of memory: tried to allocate 7 GiB" in str(report)
