"""One edge too few or too many, anywhere, is seen and named: on graphs larger than the sample too."""

import pytest
import torch
from graph_table import GRAPHS
from torch.nn import functional as F

import graphattn as ga
from graphattn.nn import GraphAttention
from graphattn.verify import cover, engine, verify
from graphattn.verify.layer import LayerSubject
from graphattn.verify.measure import twins
from graphattn.verify.operator import GraphSubject
from graphattn.verify.sample import sample

pytestmark = pytest.mark.usefixtures("one_thread")

ROW = 777
WINDOW = ga.graphs.sliding_window(1009, 9)
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


@pytest.fixture(params=["everything", "one output"])
def how_much(request, monkeypatch):
    """Graphs compared in everything at every target, and those too large for that."""
    if request.param == "one output":
        monkeypatch.setattr(engine, "EVERYTHING", 0)
    return request.param


def test_row_777_is_not_in_the_sample():
    assert ROW not in sample(WINDOW, 19).targets.tolist()


@pytest.mark.parametrize(
    ("source", "words"), [(776, "edge 776 -> 777 of the graph is not read"), (5, "edge 5 -> 777 is read, but not")]
)
def test_one_wrong_edge_of_a_function_outside_the_sample(how_much, source, words):
    report = verify(masked(edited(WINDOW, ROW, source)), WINDOW, at_most=19, **FLOAT64)
    assert not report.ok
    assert words in report.diagnosis
    assert "1 of 1,009 targets is wrong" in report.diagnosis
    assert "ga.from_mask(m).equals(g)" in report.diagnosis


def test_a_right_function_is_exact_and_the_report_says_on_what(how_much):
    report = verify(masked(WINDOW.mask()), WINDOW, at_most=19)
    assert report.ok, report
    assert report.covered == report.total == 1009
    verdict = str(report).splitlines()[-1]
    if how_much == "everything":
        assert report.measured == 1009
        assert verdict.startswith("EXACT: all")
    else:
        assert report.measured == 19
        assert "one output at all targets and in gradients at 19 of 1,009" in verdict
    assert "pairs without an edge, at 3 of 1,009 targets" in str(report)


def test_float32_alone_sees_it_too(how_much):
    assert not verify(masked(edited(WINDOW, ROW, 776)), WINDOW, at_most=19, dtypes=(torch.float32,)).ok


@pytest.mark.parametrize("source", [776, 5])
def test_one_wrong_edge_of_a_layer_outside_the_sample(monkeypatch, how_much, source):
    right, other = GraphAttention.forward, ga.from_mask(edited(WINDOW, ROW, source))

    def wrong(self, x, graph, score_bias=None, **options):
        graph = other if score_bias is None else graph
        return right(self, x, graph, score_bias=score_bias, **options)

    monkeypatch.setattr(GraphAttention, "forward", wrong)
    report = verify(GraphAttention(12, 3), WINDOW, at_most=19, backends=("dense",), gradients=False, **FLOAT64)
    assert not report.ok
    assert "target 777" in report.diagnosis


def test_one_wrong_gradient_outside_the_sample():
    """A gradient that only target 777 sends is scaled."""

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


# --- the twin, piece by piece


@pytest.mark.parametrize("row_by_row", [0, 3, 128])
@pytest.mark.parametrize("name", [name for name in GRAPHS if "zero" not in name])
def test_the_twin_in_pieces_is_the_twin(monkeypatch, name, row_by_row):
    monkeypatch.setattr(cover, "ROW_BY_ROW", row_by_row)
    monkeypatch.setattr(cover, "AT_ONCE", 128)
    graph = GRAPHS[name]()
    torch.manual_seed(0)
    piece, pieces = sample(graph), cover.cover(graph, 1 << 22)
    assert sorted(torch.cat([part.targets for part in pieces]).tolist()) == list(range(graph.num_targets))
    for subject in (GraphSubject(graph), LayerSubject(GraphAttention(12, 3, edge_dim=5), graph)):
        case = subject.cases[-1]
        whole, _ = twins(subject, case, torch.float64, piece)
        parts, _ = twins(subject, case, torch.float64, piece, pieces)
        for quantity in ("output", "lse") if case.extras else ("output",):
            torch.testing.assert_close(parts.values[quantity], whole.values[quantity], rtol=1e-12, atol=1e-12)
        if not case.extras:  # weights come in another order, and with another mix
            assert parts.values.keys() == whole.values.keys()
            for quantity, value in whole.values.items():
                torch.testing.assert_close(parts.values[quantity], value, rtol=1e-11, atol=1e-11)


def test_a_graph_beyond_the_limit_is_not_covered():
    assert cover.cover(WINDOW, 10_000) is None
    assert not cover.affordable(WINDOW, 10_000)
    assert cover.affordable(WINDOW, 1 << 18)


# --- the arguments


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
