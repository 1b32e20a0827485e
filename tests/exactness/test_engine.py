"""What verify does with its arguments, with large graphs, and with what it is given to verify."""

import json
import math

import pytest
import torch
from graph_table import GRAPHS
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from graphattn.backends import BACKENDS, sdpa
from graphattn.errors import GraphError, OptionError, ShapeError
from graphattn.exactness import Report, engine, measure, verify
from graphattn.exactness.report import Check, Refusal, Row
from graphattn.graph import AttentionGraph
from graphattn.graph.forms import band
from graphattn.graph.listed import checked
from graphattn.graphs import full, knn
from graphattn.nn import GraphAttention

CAUSAL = GRAPHS["causal"]()
RANDOM = GRAPHS["listed_random"]()


def torch_sdpa(query, key, value, **options):
    return F.scaled_dot_product_attention(
        *(x.transpose(0, 1) for x in (query, key, value)), **options
    ).transpose(0, 1)


def test_every_option_is_away_from_its_default_and_every_gradient_measured():
    report = verify(GRAPHS["cross"](), dtypes=(torch.float64,))
    assert {row.case for row in report.rows} == {
        "plain",
        "score_bias",
        "all options",
        "weights",
        "scale 0",
        "scale below 0",
    }
    measured = {
        row.quantity
        for row in report.rows
        if row.case in ("all options", "weights") and row.backend == "message_passing"
    }
    inputs = {"query", "key", "value", "score_bias"}
    expected = {"output", "lse", "weights"} | {
        f"{kind} {name}" for kind in ("grad", "second") for name in inputs
    }
    assert measured == expected
    assert len(report.checks) >= 6


def test_all_backends_agree_in_float64_to_1e_12():
    report = verify(CAUSAL, dtypes=(torch.float64,))
    assert {row.backend for row in report.rows} == set(BACKENDS)
    assert {row.bound for row in report.rows} == {1e-12}
    assert report.ok


@pytest.mark.parametrize("case", ["scale 0", "scale below 0"])
def test_a_backend_that_scales_after_masking_is_seen(monkeypatch, case):
    monkeypatch.setattr(sdpa, "above_zero", lambda query, scale: (query, scale))
    for dtype in (torch.float64, torch.bfloat16):
        report = verify(CAUSAL, dtypes=(dtype,), backends=("dense",))
        assert case in {row.case for row in report.rows if not row.ok}
        assert "plain" not in {row.case for row in report.rows if not row.ok}


def test_a_scale_of_the_callers_is_the_only_one():
    report = verify(CAUSAL, scale=-0.2, backends=("dense",))
    cases = {"plain", "score_bias", "all options", "weights"}
    assert {row.case for row in report.rows} == cases


def test_narrow_errors_are_held_to_dense_torch_in_the_same_dtype():
    report = verify(CAUSAL, dtypes=(torch.bfloat16,))
    output = [row.bound for row in report.rows if row.quantity == "output"]
    assert all(2**-7 < bound < 0.05 for bound in output)
    assert len(set(output)) > 1  # each case has a dense error of its own
    worse = verify(
        lambda q, k, v: torch_sdpa(q, k, v, is_causal=True) * 1.03, CAUSAL, dtypes=(torch.bfloat16,)
    )
    assert not worse.ok


def test_order_and_labels_are_checked():
    claims = {
        check.claim for check in verify(GRAPHS["listed_bipartite"](), backends=("dense",)).checks
    }
    assert {
        "the order of the edges does not matter",
        "the labels of the nodes do not matter",
    } <= claims


def test_a_callers_own_attention():
    report = verify(lambda q, k, v: torch_sdpa(q, k, v, is_causal=True), CAUSAL)
    assert report.ok, report
    assert {row.backend for row in report.rows} == {"callable"}
    assert {"grad query", "grad key", "grad value"} <= {row.quantity for row in report.rows}
    with sdpa_kernel(SDPBackend.MATH):  # the fused one of torch 2.15 has NaN where the scale is 0
        capped = verify(
            lambda q, k, v: torch_sdpa(q, k, v, is_causal=True, scale=0.0), CAUSAL, scale=0.0
        )
    assert capped.ok, capped


def test_a_function_that_runs_in_some_dtypes_only():
    def only_float32(q, k, v):
        if q.dtype != torch.float32:
            raise TypeError("float32 only")
        return torch_sdpa(q, k, v, is_causal=True)

    report = verify(only_float32, CAUSAL)
    assert report.ok
    assert {row.dtype for row in report.rows} == {"float32"}
    assert "torch.float64 it raised TypeError: float32 only" in str(report)


def test_a_function_that_never_runs_proves_nothing():
    def fails(q, k, v):
        raise RuntimeError("no")

    report = verify(fails, CAUSAL)
    assert not report.ok
    assert "NOTHING MEASURED" in str(report)
    assert report.worst is None


def test_a_function_without_gradients():
    def forward_only(q, k, v):
        with torch.no_grad():
            return torch_sdpa(q, k, v, is_causal=True)

    report = verify(forward_only, CAUSAL)
    assert not report.ok
    assert "grad query, grad key, grad value: zero" in report.diagnosis
    report = verify(forward_only, CAUSAL, gradients=False)
    assert report.ok, report
    assert {row.quantity for row in report.rows} == {"output"}
    assert "gradients not measured" in report.notes


@pytest.mark.sample(3)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("is_causal", [True, False])
def test_a_function_that_refuses_gradients(is_causal, gradients):
    def refuses(q, k, v):
        if q.requires_grad:
            raise NotImplementedError("no backward on the CPU")
        return torch_sdpa(q, k, v, is_causal=is_causal, enable_gqa=True)

    report = verify(refuses, CAUSAL, gradients=gradients)
    assert report.ok is (is_causal and not gradients)
    assert "grouping" not in str(report)
    if gradients:
        assert report.diagnosis.endswith("verify its outputs alone with gradients=False")
    else:
        assert is_causal or "mask ignored" in report.diagnosis


def test_a_forced_backend_that_refuses_is_listed_with_its_reasons():
    report = verify(GRAPHS["repeated_edges"](), backends=("dense",), dtypes=(torch.float32,))
    assert {row.case for row in report.rows} == {"plain", "scale 0", "scale below 0"}
    assert {refusal.case for refusal in report.refusals} == {"score_bias", "all options", "weights"}
    assert "each copy of an edge has its own bias" in report.refusals[0].reasons[0]


# --- large graphs


def large_ring(num_nodes):
    node = torch.arange(num_nodes)
    source = torch.cat([(node + step) % num_nodes for step in (1, 7, 101)])
    return AttentionGraph(
        checked(torch.stack((source, node.repeat(3))), num_nodes, num_nodes), "ring"
    )


@pytest.fixture
def sampled(monkeypatch):
    """No graph is small enough to be compared at every target, except where one dense problem holds
    it.
    """
    monkeypatch.setattr(engine, "EVERYTHING", 0)


@pytest.mark.slow
def test_a_large_graph_is_sampled_and_says_so(sampled):
    report = verify(
        large_ring(20_011), dtypes=(torch.float64,), backends=("dense", "message_passing")
    )
    assert report.ok, report
    assert (report.measured, report.total) == (256, 20_011)
    assert "agree at 256 of 20,011 targets, the others were not looked at" in str(report)
    assert "dense does not run" in str(report)
    claims = {check.claim for check in report.checks}
    assert claims >= {"a removed edge is seen", "non-neighbours are not read, bit for bit"}


@pytest.mark.slow
def test_a_mistake_at_one_kind_of_target_is_seen_on_a_large_graph(sampled):
    """The busiest target is always in the sample."""
    N = 307
    node = torch.arange(1, N)
    hub = torch.stack((torch.cat((node, node)), torch.cat((torch.zeros_like(node), node))))
    graph = AttentionGraph(checked(hub, N, N), "hub")
    from graphattn.functional import attention

    def wrong_at_the_hub(q, k, v):
        output = attention(q, k, v, graph)
        return torch.cat((output[:1] * (1 + 1e-9), output[1:]))

    report = verify(wrong_at_the_hub, graph, at_most=17, dtypes=(torch.float64,))
    assert report.measured <= 17
    assert "1 of" in report.diagnosis
    assert "target 0 (in-degree 306)" in report.diagnosis


@pytest.mark.slow
def test_a_long_rule_stays_a_rule():
    """The rule is never listed: the twin sees the runs of a few rows only."""
    graph = AttentionGraph(band(100_003, 100_003, 0, 19), "window of 20")
    calls = []

    def own(q, k, v):
        calls.append(q.shape)
        position = torch.arange(20)
        place = (torch.arange(q.shape[0])[:, None] - position).clamp(min=0)
        score = torch.einsum("thd,twhd->thw", q, k[place]) * q.shape[-1] ** -0.5
        score = score.masked_fill(
            (torch.arange(q.shape[0])[:, None] < position)[:, None], -torch.inf
        )
        return torch.einsum("thw,twhd->thd", torch.softmax(score, -1), v[place])

    report = verify(
        own, graph, heads=1, head_dim=2, dtypes=(torch.float32,), gradients=False, at_most=31
    )
    assert report.ok, report
    assert calls[0][0] == 100_003


def test_what_memory_does_not_allow_is_refused_unless_named(monkeypatch):
    monkeypatch.setattr(measure, "free_bytes", lambda device: 1_000)
    report = verify(RANDOM)
    assert not report.ok
    assert any(
        "500 may be taken; name it in backends=" in reason
        for r in report.refusals
        for reason in r.reasons
    )
    assert verify(RANDOM, backends=tuple(BACKENDS)).ok


def test_free_memory_is_known():
    assert 1 << 24 < measure.free_bytes(torch.device("cpu")) < 1 << 50


# --- arguments


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (OptionError, "takes one graph", lambda: verify(CAUSAL, CAUSAL)),
        (GraphError, r"has no size yet.* pattern\(num_nodes\)$", lambda: verify(full(...))),
        (
            GraphError,
            r"verify the graph of one, recipe\(pos, batch\)$",
            lambda: verify(knn(..., 3)),
        ),
        (GraphError, r"recipe\(pos, batch\)$", lambda: verify(GraphAttention(6, 2), knn(..., 3))),
        (GraphError, "got NoneType; wrap an edge_index", lambda: verify(torch_sdpa)),
        (GraphError, "got Tensor", lambda: verify(GraphAttention(6, 2), torch.zeros(2, 0))),
        (OptionError, "subject must be", lambda: verify(7, CAUSAL)),
        (OptionError, "'flash'", lambda: verify(CAUSAL, backends=("flash",))),
        (
            OptionError,
            r"got pos=a Tensor \(7, 3\) of float32; positions are read with symmetry",
            lambda: verify(len, CAUSAL, pos=torch.ones(7, 3)),
        ),
        (OptionError, "at_most must be at least 1", lambda: verify(CAUSAL, at_most=0)),
        (OptionError, "got head_count=3", lambda: verify(CAUSAL, head_count=3)),
        (
            OptionError,
            "its sizes are its own",
            lambda: verify(GraphAttention(6, 2), CAUSAL, heads=2),
        ),
        (OptionError, "heads must be a whole number", lambda: verify(CAUSAL, heads=(3, 3))),
        (OptionError, "got widths=3", lambda: verify(CAUSAL, widths=3)),
        (OptionError, "kv_heads goes with heads", lambda: verify(CAUSAL, kv_heads=3)),
        (
            OptionError,
            "a multiple of kv_heads, got 3 and 2",
            lambda: verify(CAUSAL, heads=3, kv_heads=2),
        ),
        (ShapeError, r"\(13, 3, 5\)", lambda: verify(lambda q, k, v: v.transpose(0, 1), CAUSAL)),
        (
            ShapeError,
            r"what <lambda>\(query, key, value\) returns must be a tensor \(13, 3, 5\), got None",
            lambda: verify(lambda q, k, v: None, CAUSAL),
        ),
        (
            ShapeError,
            r"returns must be a tensor \(13, 3, 5\), got a ndarray \(13, 3, 5\) of float64",
            lambda: verify(lambda q, k, v: v.detach().numpy(), CAUSAL),
        ),
    ],
)
def test_refusals_say_what_is_wrong(error, words, call):
    with pytest.raises(error, match=words):
        call()


def test_a_layer_is_left_as_it_was():
    torch.manual_seed(0)
    layer = GraphAttention(12, 3, dropout=0.5).train()
    layer.q_proj.weight.grad = torch.ones(12, 12)
    before = {name: parameter.clone() for name, parameter in layer.named_parameters()}
    report = verify(layer, CAUSAL)
    assert report.ok, report
    assert any("dropout" in note for note in report.notes)
    assert layer.training
    assert layer.backend == "auto"
    assert all(parameter.requires_grad for parameter in layer.parameters())
    assert all(torch.equal(before[name], parameter) for name, parameter in layer.named_parameters())
    assert float(layer.q_proj.weight.grad.sum()) == 144.0


def test_it_draws_nothing_from_the_global_generator():
    state = torch.get_rng_state()
    first = verify(CAUSAL, backends=("dense",))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(7)
    assert verify(CAUSAL, backends=("dense",)) == first
    layer, drawn = GraphAttention(8, 2, dropout=0.5), torch.get_rng_state()
    assert verify(layer, CAUSAL, dtypes=(torch.float64,), backends=("dense",)).ok
    assert torch.equal(torch.get_rng_state(), drawn)
    assert verify(CAUSAL, backends=("dense",), seed=1) != first


# --- the report


def some_report(**changes):
    rows = (
        Row("dense", "float64", "plain", "output", 2e-16, 1e-12),
        Row("dense", "float64", "plain", "grad key", 3e-13, 1e-12),
        Row("edges", "bfloat16", "plain", "output", 2e-2, 1e-2),
    )
    fields = {
        "subject": "a thing",
        "graph": "a graph",
        "measured": 3,
        "total": 5,
        "rows": rows,
        "checks": (
            Check("dense", "it holds", True),
            Check("edges", "it holds", False, "it does not"),
        ),
        "refusals": (Refusal("tiles", "plain", ("too large", "too wide")),),
    }
    return Report(**(fields | changes))


def test_the_report_prints_narrowly_and_completely():
    report = some_report(notes=("measured at night",), diagnosis="all of them; upside down")
    text = str(report)
    assert max(map(len, text.splitlines())) <= 100
    for word in (
        "3 of 5 targets",
        "grad key",
        "WRONG",
        "BROKEN",
        "it does not",
        "too wide",
        "at night",
        "upside down",
    ):
        assert word in text
    assert text.splitlines()[-1] == "NOT EXACT: 2 of 5 checks fail"
    head = text.splitlines()[4:6]
    assert "gradients" in head[0]
    assert head[1].split() == ["backend", "dtype", "error", "limit", "error", "limit"]
    rows = text.splitlines()[6:8]
    assert (
        len({line.index(verdict) for line, verdict in zip(rows, ("ok", "WRONG"), strict=True)}) == 1
    )


def test_the_report_judges():
    report = some_report()
    assert not report.ok
    assert report.worst.backend == "edges"
    fine = some_report(rows=report.rows[:2], checks=report.checks[:1])
    assert fine.ok
    assert fine.worst.quantity == "grad key"
    assert not some_report(checks=report.checks).ok
    assert not some_report(rows=report.rows[:2]).ok
    assert not some_report(rows=(), checks=()).ok
    assert not Row("x", "float64", "plain", "output", math.nan, 1.0).ok


def test_the_report_is_json():
    rows = (
        Row("x", "float64", "plain", "output", math.inf, 1e-12),
        Row("x", "float64", "plain", "lse", math.nan, 1.0),
    )
    result = json.loads(json.dumps(some_report(rows=rows).to_dict(), allow_nan=False))
    assert result["rows"][0]["error"] == "inf"
    assert result["rows"][1]["ok"] is False
    assert result["ok"] is False
    assert result["targets_measured"] == 3
    assert result["refusals"][0]["reasons"] == ["too large", "too wide"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal", "repeated_edges", "union_of_rules"])
def test_a_real_report_fits_a_hundred_columns(name):
    lines = str(verify(GRAPHS[name]())).splitlines()
    assert max(map(len, lines[2:])) <= 100
