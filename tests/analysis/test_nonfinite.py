"""Case B6: find_nonfinite names the node or the edge."""

import math
import sys

import pytest
import torch
from attention_formula import biases, tensors
from graph_table import GRAPHS

import graphattn as ga
from graphattn.analysis.nonfinite import find_nonfinite
from graphattn.errors import GraphError, ShapeError

INF, NAN = math.inf, math.nan


def case():
    graph = GRAPHS["listed_bipartite"]()
    return graph, tensors(graph, (2,), requires_grad=False), biases(graph, (2,)).detach()


def test_finite_is_empty():
    graph, inputs, bias = case()
    assert find_nonfinite(*inputs, graph, bias) == []
    bias[:, 3] = -INF  # an edge removed
    assert find_nonfinite(*inputs, graph, bias) == []


def test_nodes_are_named():
    graph, (q, k, v), _ = case()
    t, s = int(graph.target[0]), int(graph.source[1])
    q[1, t, 2, 0], k[0, s, 1, 2], v[:, s, 0] = NAN, INF, -INF
    found = find_nonfinite(q, k, v, graph)
    assert [(x.what, x.number, x.count, x.ends) for x in found] == [
        ("query", t, 1, None),
        ("key", s, 1, None),
        ("value", s, 14, None),
    ]
    assert found[1].spoils == int(graph.out_degree[s])
    assert str(found[0]) == f"query of target {t} is nan: read by 1 target"
    assert str(found[2]).startswith(
        f"value of source {s} is -inf and 13 more: read by {found[1].spoils} target"
    )


def test_the_number_that_is_named_is_the_first():
    graph, (q, k, v), _ = case()
    s = int(graph.source[1])
    k[0, s, 0, 1], k[0, s, 1, 2] = -INF, INF
    (found,) = find_nonfinite(q, k, v, graph)
    assert (found.value, found.count) == (-INF, 2)


def test_a_source_that_nobody_reads_is_named_and_harmless():
    graph = GRAPHS["unused_sources"]()
    q, k, v = tensors(graph, requires_grad=False)
    k[0] = NAN
    (only,) = find_nonfinite(q, k, v, graph)
    assert str(only) == "key of source 0 is nan and 14 more: read by no targets"
    assert ga.attention(q, k, v, graph).isfinite().all()


def test_biases_are_named_by_edge():
    graph, inputs, bias = case()
    bias[1, 11, 4] = INF
    bias[0, 17] = NAN
    found = find_nonfinite(*inputs, graph, bias)
    ends = [(int(graph.source[e]), int(graph.target[e])) for e in (11, 17)]
    assert [(x.what, x.number, x.ends, x.count) for x in found] == [
        ("score_bias", 11, ends[0], 1),
        ("score_bias", 17, ends[1], 6),
    ]
    assert (
        str(found[0])
        == f"score_bias of edge 11 ({ends[0][0]} -> {ends[0][1]}) is inf: read by 1 target"
    )


@pytest.mark.parametrize("at_once", [1, 7, 1 << 14])
def test_a_product_that_overflows_is_named_by_edge(at_once, monkeypatch):
    monkeypatch.setattr(sys.modules[find_nonfinite.__module__], "_EDGES_AT_ONCE", at_once)
    graph, inputs, bias = case()
    q, k, v = (x.float() for x in inputs)
    q[:, graph.target[5], 0], k[:, graph.source[5], 0] = 1e25, 1e25
    found = find_nonfinite(q, k, v, graph, bias)
    assert [(x.what, x.number, x.ends) for x in found] == [
        ("score", 5, (int(graph.source[5]), int(graph.target[5]))),
    ]
    assert found[0].value == INF
    output = ga.attention(q, k, v, graph, bias)
    assert output.isnan().any((0, 2, 3)).nonzero().flatten().tolist() == [int(graph.target[5])]
    assert find_nonfinite(q, k, v, graph, bias, softcap=3.0) == []
    bias[:, 5] = -INF
    assert find_nonfinite(q, k, v, graph, bias) == []


def test_a_sum_that_overflows_is_no_fault():
    graph, (q, k, v), _ = case()
    half = v.half().fill_(60_000.0)
    assert find_nonfinite(q.half(), k.half(), half, graph) == []
    assert find_nonfinite(q.float(), k.float(), v.float().fill_(3e38), graph) == []


def test_arguments_are_checked():
    graph, (q, k, v), _ = case()
    with pytest.raises(ShapeError, match="query has 12 nodes"):
        find_nonfinite(q[:, 1:], k, v, graph)


def test_graphs_of_heads_are_searched_each_for_its_own_heads_and_edge_tensors_refused():
    graph = ga.PerHead((ga.graphs.self_loops(4), ga.graphs.causal(4)))
    x, bias = torch.ones(4, 2, 3), torch.zeros(graph.num_edges, 2)
    assert find_nonfinite(x, x, x, graph, bias) == []
    x[1, 0, 0] = torch.nan
    assert {(found.what, found.number) for found in find_nonfinite(x, x, x, graph)} == {
        ("query", 1), ("key", 1), ("value", 1)
    }  # fmt: skip
    with pytest.raises(GraphError, match="graph must be an AttentionGraph or a PerHead"):
        find_nonfinite(x, x, x, ga.nn.EdgeTensors(ga.graphs.causal(4)))
