"""Edges by target and by source against a plain sort, and how long what is derived lives."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.graph.edges import Edges
from graphattn.plans import grouped
from graphattn.plans.cache import cached
from graphattn.plans.grouped import _index_dtype, by_source, by_target, distance, ends


@pytest.mark.parametrize("name", GRAPHS)
def test_both_groupings_name_every_edge_once(name):
    graph = GRAPHS[name]()
    into, out_of = by_target(graph), by_source(graph)
    given = list(zip(graph.target.tolist(), graph.source.tolist(), strict=True))
    target = torch.repeat_interleave(torch.arange(graph.num_targets), into.ptr.diff())
    by_t = list(zip(target.tolist(), into.node.tolist(), strict=True))
    assert by_t == [given[e] for e in into.edge.tolist()] == sorted(given)
    source = torch.repeat_interleave(torch.arange(graph.num_sources), out_of.ptr.diff())
    by_s = list(zip(out_of.node.tolist(), source.tolist(), strict=True))
    assert by_s == [by_t[p] for p in out_of.edge.tolist()]
    assert sorted(by_s, key=lambda edge: (edge[1], edge[0])) == by_s
    assert sorted(out_of.edge.tolist()) == list(range(graph.num_edges))


RULES = [name for name, build in GRAPHS.items() if not build().edges.is_listed]


@pytest.mark.parametrize("sources_at_once", [1, 7, 1 << 18])
@pytest.mark.parametrize("name", RULES)
def test_the_sources_of_a_rule_are_written_part_by_part(name, sources_at_once, monkeypatch):
    monkeypatch.setattr(grouped, "IN_CACHE", sources_at_once)
    graph = GRAPHS[name]()
    assert torch.equal(grouped._sources(graph), graph.edges.pairs()[1].int())


def test_a_rule_is_planned_without_a_list_of_its_pairs(monkeypatch):
    """Pairs of int64 and their copies would take six times the memory of the layout."""

    def refuse(self):
        raise AssertionError("listed")

    graph = ga.graphs.sliding_window(9_001, 257, causal=True)
    monkeypatch.setattr(Edges, "pairs", refuse)
    assert grouped.rows_by_target(graph).node.dtype == torch.int32
    assert grouped.rows_by_source(graph).edge.numel() == graph.num_edges


@pytest.mark.parametrize("name", GRAPHS)
def test_the_distance_of_a_rule_is_that_of_its_pairs(name):
    graph = GRAPHS[name]()
    target, source = ends(graph)
    total = (target - source).abs().sum().item()
    assert distance(graph) == pytest.approx(total / max(1, graph.num_edges), rel=1e-12)


def test_offsets_are_int64_and_indices_int32_only_where_they_fit():
    assert by_target(ga.graphs.causal(5)).ptr.dtype == torch.int64
    assert by_source(ga.graphs.causal(5)).ptr.dtype == torch.int64
    # one dtype for nodes and edges
    wide = SimpleNamespace(num_targets=3, num_sources=5, num_edges=2**31)
    assert _index_dtype(wide) == torch.int64
    wide.num_edges -= 1
    assert _index_dtype(wide) == torch.int32


def test_many_edges_are_grouped_as_few_are(monkeypatch):
    edge_index = torch.randint(211, (2, 10_007), generator=torch.Generator().manual_seed(0))

    def groupings():
        graph = ga.from_edge_index(edge_index, num_nodes=223, duplicates="keep")
        return [*by_target(graph), *by_source(graph)]

    counted = groupings()
    monkeypatch.setattr("graphattn.graph.sort.FEW", 2**40)
    assert all(torch.equal(x, y) for x, y in zip(counted, groupings(), strict=True))


def test_what_is_derived_is_made_once_and_goes_with_its_graph():
    graph, calls = ga.graphs.causal(5), []
    for _ in range(3):
        cached(graph, "test", lambda: calls.append(1))
    assert calls == [1]
    plan = weakref.ref(cached(graph, "another", lambda: torch.zeros(1)))
    del graph
    gc.collect()
    assert plan() is None
