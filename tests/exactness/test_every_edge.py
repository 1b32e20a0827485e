"""One edge too few or too many is seen and named at every target, up to the pairs that a twin
compares.
"""

import pytest
import torch
from graph_table import GRAPHS
from torch.nn import functional as F

import graphattn as ga
from graphattn.exactness import engine, verify
from graphattn.nn import GraphAttention
from graphattn.twins import pieces
from graphattn.twins.pieces import sample

ROW = 131
WINDOW = ga.graphs.sliding_window(151, 5, causal=True)
FLOAT64 = {"dtypes": (torch.float64,)}


@pytest.fixture(autouse=True)
def no_graph_is_taken_whole(monkeypatch):
    """As a graph of 257 nodes and more is; these are smaller."""
    monkeypatch.setattr(pieces, "EXHAUSTIVE", 1 << 10)


def masked(mask):
    return lambda *qkv: F.scaled_dot_product_attention(
        *(x.transpose(0, 1) for x in qkv), attn_mask=mask
    ).transpose(0, 1)


def edited(graph, target, source):
    """The graph's mask with one pair turned over."""
    mask = graph.mask()
    mask[target, source] ^= True
    return mask


def test_row_131_is_not_in_the_sample():
    assert ROW not in sample(WINDOW, 19).targets.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (130, "edge 130 -> 131 of the graph is not read"),
        pytest.param(5, "edge 5 -> 131 is read, but not", marks=pytest.mark.slow),
    ],
)
def test_one_wrong_edge_of_a_function_outside_the_sample(source, words):
    report = verify(masked(edited(WINDOW, ROW, source)), WINDOW, at_most=19, **FLOAT64)
    assert not report.ok
    assert words in report.diagnosis
    assert "1 of 151 targets is wrong" in report.diagnosis
    assert "ga.from_mask(m).equals(g)" in report.diagnosis


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "compared"), [(1 << 22, 151), (0, 19)])
def test_a_right_function_is_exact_and_the_report_says_on_what(monkeypatch, limit, compared):
    monkeypatch.setattr(engine, "EVERYTHING", limit)
    report = verify(masked(WINDOW.mask()), WINDOW, at_most=19)
    assert report.ok, report
    assert (report.measured, report.total) == (compared, 151)
    share = {151: "all 151 targets (", 19: "19 of 151 targets, the others were not looked at ("}
    begin = f"EXACT: outputs and gradients agree at {share[compared]}"
    assert str(report).splitlines()[-1].startswith(begin)
    assert "pairs without an edge, at 3 of 151 targets" in str(report)


@pytest.mark.slow
def test_float32_alone_sees_it_too():
    assert not verify(
        masked(edited(WINDOW, ROW, 130)), WINDOW, at_most=19, dtypes=(torch.float32,)
    ).ok


@pytest.mark.slow
@pytest.mark.parametrize("source", [pytest.param(130, marks=pytest.mark.slow), 5])
def test_one_wrong_edge_of_a_layer_outside_the_sample(monkeypatch, source):
    right, other = GraphAttention.forward, ga.from_mask(edited(WINDOW, ROW, source))

    def wrong(self, x, graph, score_bias=None, **options):
        graph = other if score_bias is None else graph
        return right(self, x, graph, score_bias=score_bias, **options)

    monkeypatch.setattr(GraphAttention, "forward", wrong)
    report = verify(
        GraphAttention(12, 3), WINDOW, at_most=19, backends=("dense",), gradients=False, **FLOAT64
    )
    assert not report.ok
    assert "target 131" in report.diagnosis


def test_one_wrong_gradient_outside_the_sample():
    """A gradient that only target 131 sends is scaled."""

    class Louder(torch.autograd.Function):
        @staticmethod
        def forward(ctx, output):
            return output.clone()

        @staticmethod
        def backward(ctx, grad):
            grad = grad.clone()
            grad[ROW] *= 1.001
            return grad

    attend = masked(WINDOW.mask())
    report = verify(lambda *qkv: Louder.apply(attend(*qkv)), WINDOW, at_most=19, **FLOAT64)
    assert {row.quantity for row in report.rows if not row.ok} == {
        "grad query",
        "grad key",
        "grad value",
    }
    assert "the output is right" in report.diagnosis


@pytest.mark.slow
@pytest.mark.parametrize("gradients", [True, False])
def test_the_invariants_try_every_pair_of_a_small_graph(gradients):
    graph = ga.graphs.causal(7)
    for source, broken in (
        (1, "every neighbour is read"),
        (6, "non-neighbours are not read, bit for bit"),
    ):
        for target in (4, 5):
            report = verify(
                masked(edited(graph, target, source)), graph, gradients=gradients, **FLOAT64
            )
            claims = {check.claim for check in report.checks if not check.ok}
            expected = {broken}
            if gradients and source == 6:
                expected.add("the gradient of a non-neighbour is exactly 0")
            assert claims == expected
    right = str(verify(masked(graph.mask()), graph, gradients=gradients, **FLOAT64))
    assert "all 28 edges" in right
    assert "all 21 pairs without an edge" in right


# --- the arguments


@pytest.mark.slow
def test_sizes_are_spelt_as_in_explain():
    graph = GRAPHS["causal"]()
    report = verify(graph, heads=6, kv_heads=2, head_dim=7, value_dim=3, **FLOAT64)
    assert report.ok
    assert "6 heads on 2, widths 7 and 3" in report.subject


def test_progress_is_told():
    steps = []
    verify(masked(GRAPHS["causal"]().mask()), GRAPHS["causal"](), progress=steps.append, **FLOAT64)
    assert steps == [
        "the dense twin, float64, plain",
        "callable, float64, plain",
        "callable, invariants",
    ]
