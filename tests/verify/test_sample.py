"""The dense piece of a graph holds exactly the edges into its targets."""

import pytest
import torch
from graph_table import GRAPHS

from graphattn.verify.sample import sample


@pytest.mark.parametrize("budget", [1 << 20, 23])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_edge_into_the_sample_has_a_place_of_its_own(name, budget):
    graph = GRAPHS[name]()
    piece = sample(graph, at_most=5, budget=budget)
    assert piece.complete == (piece.targets.numel() == graph.num_targets)
    inside = torch.isin(graph.target, piece.targets)
    assert torch.equal(piece.edge.sort().values, torch.nonzero(inside).flatten())
    assert torch.equal(piece.targets[piece.row], graph.target[piece.edge])
    assert torch.equal(piece.columns[piece.column], graph.source[piece.edge])
    assert int(piece.mask.sum()) == piece.edge.numel()  # no two edges share a place
    values = torch.arange(1.0, graph.num_edges + 1)[:, None]
    assert torch.equal(piece.collect(piece.spread(values)[..., 0]), values[piece.edge, 0])
    assert float(piece.spread(values)[~piece.mask].abs().sum()) == 0.0


def test_a_small_graph_is_taken_whole_and_a_large_one_is_not():
    assert sample(GRAPHS["full"](), at_most=3).complete
    graph = GRAPHS["union_of_blocks"]()
    piece = sample(graph, at_most=11, budget=300)
    assert not piece.complete
    assert 1 < piece.targets.numel() <= 11
    assert piece.mask.numel() <= 300
    assert {0, graph.num_targets - 1} <= set(piece.targets.tolist())
    assert int(graph.in_degree.max()) in graph.in_degree[piece.targets].tolist()
    assert int(graph.in_degree.min()) in graph.in_degree[piece.targets].tolist()


def test_the_choice_is_seeded():
    graph = GRAPHS["longformer"]()
    chosen = [sample(graph, at_most=9, budget=400, seed=seed).targets.tolist() for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]
