"""Sequences: a graph that is made of them is given back edge by edge, and no other is taken for
one.
"""

import pytest
import torch
from graph_table import GRAPHS

from graphattn import from_mask, from_rule, graphs
from graphattn.convert import to_mask
from graphattn.plans.sequences import Sequences, sequences


def mask_of(plan: Sequences):
    """What each node of the sequences reads, bool (T, T), by the definition of the windows."""
    ends = plan.ends.long()
    own = torch.repeat_interleave(ends.diff())
    t, s = torch.arange(len(own)).unsqueeze(1), torch.arange(len(own))
    near = (own.unsqueeze(1) == own) & ((t - s <= plan.before) | (plan.before < 0))
    return near & ((s - t <= plan.after) | (plan.after < 0))


LENGTHS = torch.tensor([3, 1, 7, 7, 2])
DOCUMENTS = graphs.documents(torch.repeat_interleave(LENGTHS), causal=False)
MADE_OF = {
    "full": (graphs.full(7), (1, 7, -1, -1)),
    "causal": (graphs.causal(7), (1, 7, -1, 0)),
    "window": (graphs.sliding_window(31, 5, causal=True), (1, 31, 4, 0)),
    "both ways": (graphs.sliding_window(31, 5, causal=False), (1, 31, 2, 2)),
    "documents": (DOCUMENTS, (5, 7, -1, -1)),
    "causal documents": (DOCUMENTS & graphs.causal(20), (5, 7, -1, 0)),
    "windows of documents": (DOCUMENTS & graphs.sliding_window(20, 3, causal=True), (5, 7, 2, 0)),
    "cells": (graphs.block_local(12, 4, causal=False), (3, 4, -1, -1)),
    "self": (graphs.self_loops(5), (5, 1, -1, -1)),
}


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("name", MADE_OF)
def test_graphs_of_sequences(name, listed):
    graph, (number, *rest) = MADE_OF[name]
    plan = sequences(graph.materialise() if listed else graph)
    assert plan is not None
    assert (len(plan.ends) - 1, *plan[1:]) == (number, *rest)
    assert torch.equal(mask_of(plan), to_mask(graph))


@pytest.mark.parametrize("name", GRAPHS)
def test_of_the_table_those_that_are_found_are_the_same_graphs(name):
    graph = GRAPHS[name]()
    plan = None if graph.has_repeated_edges else sequences(graph)
    if plan is not None:
        assert torch.equal(mask_of(plan), to_mask(graph))
    found = (
        "full",
        "causal",
        "window",
        "wide_window",
        "self_loops",
        "packed_documents",
        "one_node",
    )
    assert (plan is not None) == (name in found)


@pytest.mark.parametrize(
    "graph",
    [
        graphs.sliding_window(31, 5, causal=True) | graphs.global_tokens(31, [0]),
        graphs.causal(9) - graphs.self_loops(9),
        from_rule(lambda t, s: t != 3, 7),
        graphs.sliding_window(31, 5, causal=True, dilation=2),
        from_mask(torch.ones(3, 5, dtype=torch.bool)),
        graphs.sliding_window(9, 3, causal=True) - from_rule(lambda t, s: (t == 4) & (s == 2), 9),
        graphs.full(0),
    ],
    ids=[
        "hub",
        "without itself",
        "reads nobody",
        "gaps",
        "not square",
        "an edge removed",
        "no nodes",
    ],
)
def test_other_graphs_are_none(graph):
    assert sequences(graph) is None
