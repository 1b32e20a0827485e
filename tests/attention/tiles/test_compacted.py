"""Tiles with compacted sources as a way of the backend: when it runs, and what explain says."""

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn import attention, graphs
from graphattn.backends import BACKENDS, device, rates
from graphattn.backends.choose import explain_choice
from graphattn.backends.request import Request
from graphattn.backends.tiles import backend as tiles
from graphattn.backends.tiles import compacted as tiles_compacted
from graphattn.bench import calibrate

CUDA = Request(8, 8, 64, 64, dtype=torch.bfloat16, device=torch.device("cuda", 0))
NEAR, MESH = tiles_compacted.trials()


@pytest.fixture(autouse=True)
def _with_triton(monkeypatch):
    monkeypatch.setattr(device, "_triton_refuses", lambda device: ())


def measured(monkeypatch, ns):
    monkeypatch.setattr(rates, "_read_rates", lambda *about: {"tiles": {"compacted": ns}})


def test_it_is_taken_where_it_was_measured_to_be_quick_and_nowhere_else(monkeypatch):
    backend = BACKENDS["tiles"]
    assert backend.way(NEAR, CUDA) != "compacted"
    measured(monkeypatch, 1.0)
    assert backend.way(NEAR, CUDA) != "compacted"
    measured(monkeypatch, 1e-5)
    assert backend.way(NEAR, CUDA) == backend.work(NEAR, CUDA)[0] == "compacted"
    assert backend.way(NEAR, CUDA._replace(device=torch.device("cpu"))) == "blocks"
    assert backend.bytes_needed(NEAR, CUDA) < 1e7


def test_a_cloud_whose_other_tiles_would_hold_too_much_runs_on_it(monkeypatch):
    """Those are not even planned."""
    draw = torch.Generator().manual_seed(0)
    pos = torch.rand(5000, 3, generator=draw, dtype=torch.float64)
    cloud = graphs.knn(pos[ga.shapes.curve_order(pos, "hilbert")], 16)
    request = CUDA._replace(batch=16)
    monkeypatch.setattr(tiles, "MAX_BYTES", 1 << 24)
    assert "it would hold" in str(BACKENDS["tiles"].reasons_against(cloud, request))
    monkeypatch.setattr(tiles, "survey", None)
    measured(monkeypatch, 1e-5)
    assert explain_choice(cloud, request).chosen == "tiles"


def test_explain_prints_the_reuse_and_what_speaks_against_it(monkeypatch):
    told = str(explain_choice(NEAR, CUDA))
    assert "tiles of 32 targets with compacted sources read one for 7.7 edges" in told
    told = str(explain_choice(MESH, CUDA))
    assert "tiles of 16 targets with compacted sources read one for 2.4 edges" in told
    hub = NEAR | graphs.global_tokens(4096, [7])
    monkeypatch.setattr(tiles_compacted, "WIDEST", 4000)
    told = str(explain_choice(hub, CUDA))
    assert "no tiles with compacted sources: a tile would have 4,096 columns" in told
    assert "compacted" not in str(explain_choice(NEAR, Request(8, 8, 64, 64)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edge_features": True}, "edge features change a key from edge to edge"),
        ({"score": True}, "a custom score is a function of each edge"),
        ({"normalize": True, "of_rows": True}, "supports softmax only"),
        ({"value_dim": 0}, "an axis has size 0"),
        ({"value_dim": 130}, "heads of a width up to 128, got 64 and 130"),
        ({"device": torch.device("cpu")}, "the tensors are on cpu"),
    ],
)
def test_reasons_against_it(change, words):
    (reason,) = tiles_compacted.reasons_against(MESH, CUDA._replace(**change))
    assert words in reason


def test_what_it_supports_has_no_reason_against_it(monkeypatch):
    for change in (
        {"softcap": True},
        {"lse": True},
        {"kv_heads": 2},
        {"dtype": torch.float64},
        {"score_bias": True, "dropout": True},
    ):
        assert not tiles_compacted.reasons_against(MESH, CUDA._replace(**change))
    (reason,) = tiles_compacted.reasons_against(GRAPHS["repeated_edges"](), CUDA)
    assert "edges are repeated" in reason
    monkeypatch.setattr(tiles_compacted, "WIDEST", 30)
    for name in ("hub", "full"):
        graph = GRAPHS[name]()
        reasons = tiles_compacted.reasons_against(graph, CUDA)
        assert bool(reasons) is (name == "hub")


def test_edges_that_are_too_many_are_not_listed(monkeypatch):
    monkeypatch.setattr(tiles_compacted, "reuse", None)
    for graph in (
        graphs.sliding_window(1 << 20, 1 << 13, causal=True),
        graphs.sliding_window(1 << 16, 513, causal=True),
    ):
        reasons = tiles_compacted.reasons_against(graph, CUDA)
        assert "sources in the mean, over 256" in reasons[-1]


def test_calibration_takes_it_only_if_it_agrees(monkeypatch):
    """On the CPU, as if its tensors were on CUDA."""
    cpu = torch.device("cpu")
    reasons, run = tiles_compacted.reasons_against, tiles.tiles_run
    own = [GRAPHS["union_of_rules"](), GRAPHS["listed_bipartite"]()]

    def as_on_cuda(graph, request):
        if "compacted" not in rates._tried.get("tiles", {}):
            return {}
        request = request._replace(device=torch.device("cuda", 0))
        return {} if reasons(graph, request) else {"compacted": 0.0}

    def runs(graph, inputs, lse):
        if BACKENDS["tiles"].way(graph, Request.of(inputs, lse=lse)) == "compacted":
            return tiles_compacted.compacted_run(graph, inputs, lse)
        return run(graph, inputs, lse)

    monkeypatch.setattr(BACKENDS["tiles"], "_compacted_ms", as_on_cuda)
    monkeypatch.setattr(tiles, "tiles_run", runs)
    monkeypatch.setattr(calibrate, "BATCH", 1)
    assert calibrate.reason_against_trial("tiles", "compacted", own, cpu) == ""
    with rates.tried("tiles", "compacted"):
        spent = {torch.float32: 3.0, torch.bfloat16: 1.5}
        monkeypatch.setattr(calibrate, "_milliseconds", lambda *_, dtype: spent[dtype])
        told = calibrate._of_trial("tiles", "compacted", own[0], cpu, 0.5)
    units = tiles_compacted.work(own[0]) * calibrate.HEADS * 2 * calibrate.WIDTH
    assert told == {"compacted": 2.5e6 / units, "compacted, halves": 0.4}

    def one_edge_less(graph, device):
        tiles = whole(graph, device)
        return tiles._replace(bits=tiles.bits & ~1)

    whole = tiles_compacted.tiles_of_targets
    monkeypatch.setattr(tiles_compacted, "tiles_of_targets", one_edge_less)
    assert "its error is" in calibrate.reason_against_trial("tiles", "compacted", own, cpu)


def test_the_cpu_never_takes_it(monkeypatch):
    monkeypatch.setattr(tiles_compacted, "compacted_run", None)
    measured(monkeypatch, 1e-9)
    x = torch.randn(4096, 1, 4)
    assert attention(x, x, x, NEAR, backend="tiles").shape == (4096, 1, 4)
