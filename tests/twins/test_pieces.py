"""The dense pieces of a graph hold exactly the edges into their targets."""

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.exactness import measure
from graphattn.exactness.layer import LayerSubject
from graphattn.exactness.measure import twins
from graphattn.exactness.operator import GraphSubject
from graphattn.nn import GraphAttention
from graphattn.twins import pieces
from graphattn.twins.pieces import all_pieces, longest_sum, piece_of, sample


@pytest.mark.sample(3)
@pytest.mark.parametrize("budget", [1 << 20, 23])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_edge_into_the_sample_has_a_place_of_its_own(monkeypatch, name, budget):
    monkeypatch.setattr(pieces, "BUDGET", budget)
    graph = GRAPHS[name]()
    piece = sample(graph, at_most=5)
    assert piece.complete == (piece.targets.numel() == graph.num_targets)
    inside = torch.isin(graph.target, piece.targets)
    assert torch.equal(piece.edge.sort().values, torch.nonzero(inside).flatten())
    assert torch.equal(piece.targets[piece.row], graph.target[piece.edge])
    assert torch.equal(piece.columns[piece.column], graph.source[piece.edge])
    assert int(piece.mask.sum()) == piece.edge.numel()  # no two edges share a place
    values = torch.arange(1.0, graph.num_edges + 1)[:, None]
    assert torch.equal(piece.collect(piece.spread(values)[..., 0]), values[piece.edge, 0])
    assert float(piece.spread(values)[~piece.mask].abs().sum()) == 0.0


def test_a_small_graph_is_taken_whole_and_a_large_one_is_not(monkeypatch):
    assert sample(GRAPHS["full"](), at_most=3).complete
    monkeypatch.setattr(pieces, "BUDGET", 300)
    graph = GRAPHS["union_of_blocks"]()
    piece = sample(graph, at_most=11)
    assert not piece.complete
    assert 1 < piece.targets.numel() <= 11
    assert piece.mask.numel() <= 300
    assert {0, graph.num_targets - 1} <= set(piece.targets.tolist())
    assert int(graph.in_degree.max()) in graph.in_degree[piece.targets].tolist()
    assert int(graph.in_degree.min()) in graph.in_degree[piece.targets].tolist()


def test_the_choice_is_seeded(monkeypatch):
    monkeypatch.setattr(pieces, "BUDGET", 400)
    graph = GRAPHS["longformer"]()
    chosen = [sample(graph, at_most=9, seed=seed).targets.tolist() for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "row_by_row"),
    [(name, (0, 3, 128)[i % 3]) for i, name in enumerate(GRAPHS) if "zero" not in name]
    + [pytest.param(*more, marks=pytest.mark.slow) for more in (("hub", 0), ("longformer", 3))],
)
def test_the_twin_in_pieces_is_the_twin(monkeypatch, name, row_by_row):
    monkeypatch.setattr(pieces, "ROW_BY_ROW", row_by_row)
    monkeypatch.setattr(pieces, "AT_ONCE", 128)
    graph = GRAPHS[name]()
    torch.manual_seed(0)
    piece, parts = sample(graph), all_pieces(graph)
    assert sorted(torch.cat([part.targets for part in parts]).tolist()) == list(
        range(graph.num_targets)
    )
    for subject in (GraphSubject(graph), LayerSubject(GraphAttention(12, 3, edge_dim=5), graph)):
        case = subject.cases[-1]
        whole, _ = twins(subject, case, torch.float64, [piece])
        summed, _ = twins(subject, case, torch.float64, parts)
        for quantity in ("output", "lse") if case.lse else ("output",):
            torch.testing.assert_close(summed[quantity], whole[quantity], rtol=1e-12, atol=1e-12)
        if not (case.lse or case.weights):  # weights come in another order, and with another mix
            assert summed.keys() == whole.keys()
            for quantity, value in whole.items():
                torch.testing.assert_close(summed[quantity], value, rtol=1e-11, atol=1e-11)


def test_a_graph_beyond_the_limit_is_not_taken_apart():
    window = ga.graphs.sliding_window(1009, 9, causal=True)
    assert all_pieces(window, 10_000) is None
    assert all_pieces(window, 1 << 18) is not None
    assert all_pieces(window, 1 << 18, floats_per_pair=8) is None


def test_dense_torch_in_a_narrow_dtype_is_one_product_where_that_fits(monkeypatch):
    """Gradients summed over pieces round less than dense torch does, and would hold it to a bound
    below its own.
    """
    monkeypatch.setattr(pieces, "ROW_BY_ROW", 0)
    monkeypatch.setattr(pieces, "AT_ONCE", 128)
    graph = GRAPHS["longformer"]()
    subject, parts = GraphSubject(graph), all_pieces(graph)
    assert len(parts) > 1
    case = subject.cases[0]
    _, (one,) = twins(subject, case, torch.float32, [sample(graph)])
    _, (fits,) = twins(subject, case, torch.float32, parts)
    assert all(torch.equal(fits[name], value) for name, value in one.items())
    monkeypatch.setattr(measure, "EVERYTHING", 0)
    _, (too_large,) = twins(subject, case, torch.float32, parts)
    assert not all(torch.equal(too_large[name], value) for name, value in one.items())


def test_the_longest_sum_is_of_a_target_or_of_a_source_in_all_pieces_together():
    graph = ga.graphs.sliding_window(300, 3, causal=True) | ga.graphs.global_tokens(300, [7])
    several = all_pieces(graph)
    assert several is not None
    assert len(several) > 1
    for parts in (several, [piece_of(graph, torch.arange(300))]):
        assert longest_sum(parts) == 300
        for piece in parts:
            assert torch.equal(piece.sources, graph.source[piece.edge])
    assert longest_sum([piece_of(graph, torch.tensor([0, 1]))]) == 3
