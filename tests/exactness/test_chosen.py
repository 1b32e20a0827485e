"""Graphs chosen by content: attention is dense attention on the edges that queries and keys choose."""

import pytest
import torch

import graphattn as ga
from graphattn.backends import chosen
from graphattn.errors import ExactnessError, GraphError

CENTROIDS = torch.randn(5, 5)
PATTERNS = {
    "top_k": ga.graphs.top_k(..., 4),
    "blocks within": ga.graphs.top_k(..., 2, blocks=3, within=ga.graphs.causal(...)) | ga.graphs.self_loops(...),
    "routed": ga.graphs.routed(..., CENTROIDS) & ga.graphs.causal(...),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_attention_is_exact_on_the_edges_that_are_chosen(name):
    report = ga.assert_exact(PATTERNS[name](13), dtypes=(torch.float64, torch.float32))
    assert {row.backend for row in report.rows} == {"dense", "tiles", "edges", "message_passing"}
    assert "Chosen(" in str(report)
    assert "none was removed, shuffled or renamed" in str(report)


def test_other_edges_than_those_chosen_are_seen(monkeypatch):
    right = chosen.chosen_edges
    monkeypatch.setattr(chosen, "chosen_edges", lambda graph, query, key: right(graph, query.roll(1, -3), key))
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


def test_what_is_not_compared_is_refused():
    with pytest.raises(GraphError, match="a layer is verified on edges that no content chooses"):
        ga.verify(ga.nn.GraphAttention(8, 2), PATTERNS["top_k"](11))
    with pytest.raises(GraphError, match="a choice is verified whole, up to 65,536 pairs"):
        ga.verify(PATTERNS["top_k"](300))
