"""Graphs chosen by content: attention is dense attention on the edges that queries and keys
choose.
"""

import pytest
import torch

import graphattn as ga
from graphattn.errors import ExactnessError, GraphError, OptionError
from graphattn.graph.deferred import chosen
from graphattn.nn import GraphAttention, Rotary

CENTROIDS = torch.randn(5, 5, generator=torch.Generator().manual_seed(2))
PATTERNS = {
    "top_k": ga.graphs.top_k(..., 4),
    "blocks within": ga.graphs.top_k(..., 2, blocks=3, within=ga.graphs.causal(...))
    | ga.graphs.self_loops(...),
    "routed": ga.graphs.routed(..., CENTROIDS) & ga.graphs.causal(...),
}


def seeded_layer(embed_dim=8, **options):
    torch.manual_seed(4)
    return GraphAttention(embed_dim, 2, **options)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PATTERNS)
def test_attention_is_exact_on_the_edges_that_are_chosen(name):
    report = ga.assert_exact(PATTERNS[name](13), dtypes=(torch.float64, torch.float32))
    assert {row.backend for row in report.rows} == {"dense", "tiles", "edges", "message_passing"}
    assert "Chosen(" in str(report)
    assert "none was removed, shuffled or renamed" in str(report)


def test_other_edges_than_those_chosen_are_seen(monkeypatch):
    right = chosen.chosen_edges
    monkeypatch.setattr(
        chosen,
        "chosen_edges",
        lambda choose, union, query, key: right(choose, union, query.roll(1, -3), key),
    )
    with pytest.raises(ExactnessError):
        ga.assert_exact(PATTERNS["top_k"](13), backends=("dense",), dtypes=(torch.float64,))


def test_a_function_is_compared_on_the_edges_that_its_queries_choose():
    graph = PATTERNS["top_k"](11)

    def few(query, key, value):
        return ga.attention(query, key, value, graph)

    def other(query, key, value):
        return ga.attention(query, key, value, ga.graphs.top_k(..., 5)(11))

    assert ga.verify(few, graph).ok
    assert not ga.verify(other, graph).ok


LAYERS = {
    "grouped heads, normed and turned": (
        {"num_kv_heads": 1, "qk_norm": 1e-3, "rotary": Rotary(4)},
        14,
    ),
    "keys and values of a context": ({"kdim": 5, "vdim": 6}, (7, 12)),
    "cosines": ({"score": "cosine", "normalize": "sum"}, 11),
    "keys by a matrix": ({"score": "general", "softcap": 1.5}, 11),
    "edge features": ({"score": "additive", "edge_dim": 3, "normalize": "sparsemax"}, 9),
    "edge features of the value": (
        {"score": "cosine", "edge_dim": 3, "edge_to": "value", "normalize": "sink"},
        9,
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_exact_on_the_edges_that_its_queries_and_keys_choose(name):
    options, size = LAYERS[name]
    layer = seeded_layer(**options)
    report = ga.assert_exact(layer, PATTERNS["top_k"](size))
    measured = {row.quantity for row in report.rows}
    assert {
        "output",
        "second x",
        *(f"grad {name}" for name, _ in layer.named_parameters()),
    } <= measured
    assert {"edges", "message_passing"} <= {row.backend for row in report.rows}
    assert max(row.error for row in report.rows if row.dtype == "float64") <= 1e-12


@pytest.mark.parametrize("name", ["blocks within", "routed"])
def test_a_layer_is_exact_on_blocks_and_routes(name):
    ga.assert_exact(
        seeded_layer(head_dim=5, embed_dim=10), PATTERNS[name](13), backends=("dense", "edges")
    )


def test_a_choice_that_half_precision_decides_is_not_compared():
    graph, layer = PATTERNS["top_k"](16), seeded_layer(qk_norm=1e-3, rotary=Rotary(4))
    report = ga.assert_exact(layer, graph, dtypes=(torch.bfloat16,), backends=("dense", "edges"))
    assert "not compared: at a tie" in str(report)


def test_an_edge_that_a_layer_should_not_have_chosen_is_seen(monkeypatch):
    layer, graph, right = seeded_layer(), PATTERNS["top_k"](13), chosen.chosen_edges
    assert ga.verify(layer, graph, backends=("dense",)).ok

    def with_one_swapped(choose, union, query, key):
        is_chosen = right(choose, union, query, key).clone()
        first, last = (
            is_chosen[0, :13, 0].nonzero().min(),
            (~is_chosen[0, :13, 0]).nonzero().max(),
        )
        is_chosen[0, first, 0], is_chosen[0, last, 0] = False, True
        return is_chosen

    monkeypatch.setattr(chosen, "chosen_edges", with_one_swapped)
    report = ga.verify(layer, graph, backends=("dense",), dtypes=(torch.float64,))
    wrong = {row.quantity for row in report.rows if not row.ok}
    assert {"output", "grad x", "grad q_proj.weight", "grad v_proj.weight"} <= wrong


def test_a_layer_on_another_choice_is_seen():
    layer, graph = seeded_layer(), PATTERNS["top_k"](13)
    layer.forward = lambda x, graph, **rest: GraphAttention.forward(
        layer, x, ga.graphs.top_k(..., 5)(13), **rest
    )
    assert not ga.verify(layer, graph, backends=("dense",)).ok


def test_what_is_not_compared_is_refused():
    with pytest.raises(OptionError, match="its sizes are its own"):
        ga.verify(seeded_layer(), PATTERNS["top_k"](11), heads=2)
    for subject in ((), (seeded_layer(),)):
        with pytest.raises(GraphError, match="a choice is verified whole, up to 65,536 pairs"):
            ga.verify(*subject, PATTERNS["top_k"](300))
        with pytest.raises(GraphError, match="has no size yet"):
            ga.verify(*subject, PATTERNS["top_k"])
