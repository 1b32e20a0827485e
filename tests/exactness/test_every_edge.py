"""One edge too few or too many, anywhere, is seen and named: on graphs larger than the sample too."""

import pytest
import torch
from graph_table import GRAPHS
from torch.nn import functional as F

import graphattn as ga
from graphattn.exactness import engine, verify
from graphattn.exactness.pieces import sample
from graphattn.exactness.report import EQUAL_LOGITS
from graphattn.nn import GraphAttention, Rotary

ROW = 271
WINDOW = ga.graphs.sliding_window(311, 9)
FLOAT64 = {"dtypes": (torch.float64,)}


def masked(mask):
    return lambda *qkv: F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in qkv), attn_mask=mask).transpose(
        0, 1
    )


def edited(graph, target, source):
    """The graph's mask with one pair turned over."""
    mask = graph.mask()
    mask[target, source] ^= True
    return mask


@pytest.fixture(params=["everything", "a sample"])
def how_much(request, monkeypatch):
    """Graphs compared at every target, and those too large for that."""
    if request.param == "a sample":
        monkeypatch.setattr(engine, "EVERYTHING", 0)
    return request.param


def test_row_271_is_not_in_the_sample():
    assert ROW not in sample(WINDOW, 19).targets.tolist()


@pytest.mark.parametrize(
    ("source", "words"), [(270, "edge 270 -> 271 of the graph is not read"), (5, "edge 5 -> 271 is read, but not")]
)
def test_one_wrong_edge_of_a_function_outside_the_sample(how_much, source, words):
    report = verify(masked(edited(WINDOW, ROW, source)), WINDOW, at_most=19, **FLOAT64)
    assert not report.ok
    assert words in report.diagnosis
    assert f"1 of {'311' if how_much == 'everything' else '19'} targets is wrong" in report.diagnosis
    assert "ga.from_mask(m).equals(g)" in report.diagnosis


def test_a_right_function_is_exact_and_the_report_says_on_what(how_much):
    report = verify(masked(WINDOW.mask()), WINDOW, at_most=19)
    assert report.ok, report
    assert report.total == 311
    verdict = str(report).splitlines()[-1]
    if how_much == "everything":
        assert report.measured == 311
        assert verdict.startswith("EXACT: all")
    else:
        assert report.measured == 19
        assert "EXACT on 19 of 311 targets, the others with equal logits alone" in verdict
    assert "pairs without an edge, at 3 of 311 targets" in str(report)


def test_float32_alone_sees_it_too(how_much):
    assert not verify(masked(edited(WINDOW, ROW, 270)), WINDOW, at_most=19, dtypes=(torch.float32,)).ok


@pytest.mark.parametrize("source", [270, 5])
def test_one_wrong_edge_of_a_layer_outside_the_sample(monkeypatch, how_much, source):
    right, other = GraphAttention.forward, ga.from_mask(edited(WINDOW, ROW, source))

    def wrong(self, x, graph, score_bias=None, **options):
        graph = other if score_bias is None else graph
        return right(self, x, graph, score_bias=score_bias, **options)

    monkeypatch.setattr(GraphAttention, "forward", wrong)
    report = verify(GraphAttention(12, 3), WINDOW, at_most=19, backends=("dense",), gradients=False, **FLOAT64)
    assert not report.ok
    assert "target 271" in report.diagnosis


@pytest.mark.slow
def test_two_wrong_edges_among_half_a_million_are_seen():
    """Far too many targets for the twin; equal logits find the two wrong ones, and they join the sample."""
    graph = ga.graphs.sliding_window(70_001, 9)
    index = graph.edge_index
    lost, invented = index[:, 500_000], torch.tensor([[5], [60_000]])
    index = torch.cat((index[:, :500_000], index[:, 500_001:], invented), 1)
    other = ga.from_edge_index(index, num_nodes=70_001)
    report = verify(
        lambda q, k, v: ga.attention(q, k, v, other, backend="message_passing"),
        graph,
        heads=(1, 1),
        widths=(2, 2),
        gradients=False,
        at_most=19,
        **FLOAT64,
    )
    assert report.measured == 19
    (check,) = (check for check in report.checks if check.claim == EQUAL_LOGITS)
    assert check.detail.startswith("2 of them differ, most of all target ")
    assert "2 of 19 targets are wrong" in report.diagnosis
    assert any(f"target {target} " in report.diagnosis for target in (int(lost[1]), 60_000))


def compared_with_equal_logits(report):
    return [(check.ok, check.tried) for check in report.checks if check.claim == EQUAL_LOGITS]


@pytest.mark.parametrize(
    ("options", "compared"),
    [
        ({}, True),
        ({"num_kv_heads": 1, "qk_norm": 1e-6, "root_weight": True, "softcap": 2.0, "rotary": Rotary(4)}, True),
        ({"kdim": 5, "vdim": 7}, True),
        ({"score": "gaussian"}, False),
        ({"normalize": "sigmoid"}, False),
        ({"edge_dim": 3}, False),
    ],
)
def test_a_layer_with_softmax_is_compared_at_all_targets(monkeypatch, options, compared):
    monkeypatch.setattr(engine, "EVERYTHING", 0)
    report = verify(
        GraphAttention(12, 3, **options), WINDOW, at_most=19, backends=("message_passing",), gradients=False, **FLOAT64
    )
    assert report.ok, report
    assert compared_with_equal_logits(report) == [(True, "all 311 targets")] * compared
    assert ("the others were not looked at" in str(report)) is not compared


def test_a_function_that_raises_where_logits_are_equal_is_verified_on_the_sample(monkeypatch):
    monkeypatch.setattr(engine, "EVERYTHING", 0)
    right = masked(WINDOW.mask())

    def picky(query, key, value):
        if not query.any():
            raise ValueError("no queries")
        return right(query, key, value)

    report = verify(picky, WINDOW, at_most=19, **FLOAT64)
    assert report.ok, report
    assert compared_with_equal_logits(report) == []


def test_equal_logits_are_compared_in_the_widest_dtype_that_runs(monkeypatch):
    monkeypatch.setattr(engine, "EVERYTHING", 0)
    right, seen = masked(WINDOW.mask()), []

    def narrow(query, key, value):
        if query.dtype == torch.float64:
            raise TypeError("float32 only")
        seen.append((query.dtype, bool(query.any())))
        return right(query, key, value)

    dtypes = (torch.bfloat16, torch.float32, torch.float64)
    report = verify(narrow, WINDOW, heads=(3, 3), at_most=19, dtypes=dtypes, gradients=False)
    assert compared_with_equal_logits(report) == [(True, "all 311 targets")]
    assert seen[0] == (torch.float32, False)


def test_one_wrong_gradient_outside_the_sample():
    """A gradient that only target 271 sends is scaled."""

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
    assert {row.quantity for row in report.rows if not row.ok} == {"grad query", "grad key", "grad value"}
    assert "the output is right" in report.diagnosis


@pytest.mark.parametrize("gradients", [True, False])
def test_the_invariants_try_every_pair_of_a_small_graph(gradients):
    graph = ga.graphs.causal(7)
    for source, broken in ((1, "every neighbour is read"), (6, "non-neighbours are not read, bit for bit")):
        for target in (4, 5):
            report = verify(masked(edited(graph, target, source)), graph, gradients=gradients, **FLOAT64)
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
    by_name = verify(graph, heads=6, kv_heads=2, head_dim=7, value_dim=3, **FLOAT64)
    assert by_name == verify(graph, heads=(6, 2), widths=(7, 3), **FLOAT64)
    assert by_name.ok
    assert "6 heads on 2, widths 7 and 3" in by_name.subject


def test_progress_is_told():
    steps = []
    verify(masked(GRAPHS["causal"]().mask()), GRAPHS["causal"](), progress=steps.append, **FLOAT64)
    assert steps == ["the dense twin, float64, plain", "callable, float64, plain", "callable, invariants"]
