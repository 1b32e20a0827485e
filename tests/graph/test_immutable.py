"""Graphs never disagree with themselves: nothing that a user can write to is what a graph is made
of.
"""

import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga

WRITES = {
    "in place": lambda x: x.zero_(),
    "through numpy": lambda x: x.numpy().fill(0),
    "through .data": lambda x: x.data.zero_(),
    "through a view": lambda x: x.view(-1).detach().zero_(),
}
TENSORS = {
    "edge_index": lambda g: g.edge_index,
    "source": lambda g: g.source,
    "target": lambda g: g.target,
    "in_degree": lambda g: g.in_degree,
    "out_degree": lambda g: g.out_degree,
    "mask": lambda g: g.mask(),
    "to_pyg": lambda g: ga.convert.to_pyg(g).edge_index,
    "weights": lambda g: ga.EdgeWeights(g, torch.ones(g.num_edges, 1)).graph.edge_index,
}


def square(kind: str) -> ga.AttentionGraph:
    listed = ga.from_edge_index(torch.tensor([[3, 1, 4, 2, 0], [1, 3, 0, 4, 2]]), num_nodes=5)
    return {
        "listed": listed,
        "rule": ga.graphs.sliding_window(5, 3, causal=True),
        "union": ga.graphs.full(5) - listed,
    }[kind]


@pytest.mark.sample(4)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
@pytest.mark.parametrize("kind", ["listed", "rule", "union"])
def test_a_write_into_what_a_graph_hands_out_does_not_reach_it(kind, tensor, write):
    graph = square(kind)
    before, mask = graph.edge_index, graph.mask()
    write(tensor(graph))
    assert torch.equal(graph.edge_index, before)
    assert torch.equal(graph.mask(), mask)
    assert torch.equal(graph.contains(torch.arange(5)[:, None], torch.arange(5)), mask)
    x = torch.randn(5, 1, 4, generator=torch.Generator().manual_seed(0))
    outputs = [
        ga.attention(x, x, x, graph, backend=name) for name in ("dense", "edges", "message_passing")
    ]
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0])


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_hands_out_copies(name):
    graph = GRAPHS[name]()
    before = graph.edge_index
    graph.edge_index.zero_(), graph.source.zero_(), graph.target.zero_()
    assert torch.equal(graph.edge_index, before)


OF_TENSORS = {
    "documents": lambda x: ga.graphs.documents(x, causal=False),
    "bidirectional_segments": lambda x: ga.graphs.bidirectional_segments(x),
    "ranked": lambda x: ga.graphs.causal_by_rank(x),
    "cross_documents": lambda x: ga.graphs.cross_documents(x, x),
    "clusters": lambda x: ga.graphs.clusters(x),
    "ancestors": lambda x: ga.graphs.ancestors(x - 1),
    "siblings": lambda x: ga.graphs.siblings(x - 1),
    "between_types": lambda x: ga.graphs.between_types(x, 0, 1),
    "voxel_windows": lambda x: ga.graphs.voxel_windows(x[:, None].double(), 1.0),
    "relabel": lambda x: ga.graphs.causal(5).relabel(torch.argsort(x)),
    "subgraph": lambda x: ga.graphs.causal(5).subgraph(x > 0),
    "from_edge_index": lambda x: ga.from_edge_index(torch.stack((x, x)).unique(dim=1), num_nodes=5),
}


@pytest.mark.parametrize("make", OF_TENSORS.values(), ids=OF_TENSORS)
@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_a_graph_keeps_its_own_copy_of_what_it_was_made_of(make, kind):
    given = torch.tensor([0, 0, 1, 1, 2])
    numpy = given.numpy()
    graph = make(given if kind == "torch" else torch.as_tensor(numpy))
    mask = graph.mask()
    numpy[:] = np.array([2, 1, 0, 0, 1])
    assert torch.equal(graph.mask(), mask)
    assert torch.equal(
        graph.contains(torch.arange(graph.num_targets)[:, None], torch.arange(graph.num_sources)),
        mask,
    )
    assert bool(mask.any())


def test_a_rule_of_numbers_in_numpy_keeps_its_own_copy():
    labels = np.array([0, 0, 1, 1])
    graph = ga.graphs.documents(labels, causal=False)
    labels[:] = 0
    assert graph.num_edges == 8


def test_relations_hand_out_copies():
    parts = {
        "hub": ga.graphs.global_tokens(6, (0,)),
        "near": ga.graphs.sliding_window(6, 3, causal=True),
    }
    relations = ga.graphs.Relations(**parts)
    number = relations.relation
    relations.relation.fill_(7)
    relations.parts.clear()
    assert torch.equal(relations.relation, number)
    assert relations.parts == parts
    assert relations.count() == {"hub": 11, "near": int((number == 1).sum())}


def test_a_copy_of_a_graph_is_not_written_to_with_the_first():
    graph = square("listed")
    before = graph.edge_index
    for copied in (deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        graph.edge_index.zero_()
        assert torch.equal(copied.edge_index, before)
