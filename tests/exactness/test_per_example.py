"""Graphs of examples are verified and explained, and a wrong one is seen."""

import pytest
import torch

import graphattn as ga
from graphattn.exactness import layer as layers
from graphattn.exactness import operator
from graphattn.graph.kinds import per_example
from graphattn.graphs import causal, cross, full, sliding_window

RANDOM = ga.from_edge_index(torch.tensor([[0, 2, 1, 4], [3, 1, 1, 0]]), 5, 5)
GRAPHS = ga.PerExample([causal(7), RANDOM, sliding_window(6, 3, causal=True)])
HEADS = ga.PerExample([ga.PerHead((causal(5), full(5))), RANDOM])


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "graphs",
    [GRAPHS, HEADS, ga.PerExample([cross(3, 5), cross(4, 2)]), ga.PerExample([causal(5)] * 3)],
    ids=["several", "of heads", "cross", "one"],
)
def test_attention_on_graphs_of_examples_is_exact(graphs: ga.PerExample) -> None:
    report = ga.assert_exact(graphs, dtypes=[torch.float64])
    assert report.worst.error < 1e-12
    assert ga.verify(list(graphs.graphs), dtypes=[torch.float64], gradients=False).ok


@pytest.mark.slow
@pytest.mark.sample(4)
@pytest.mark.parametrize("graphs", [GRAPHS, HEADS], ids=["several", "of heads"])
@pytest.mark.parametrize(
    "options",
    [{}, {"edge_dim": 3}, {"rotary": ga.nn.Rotary(4)}, {"kdim": 6, "vdim": 5}],
    ids=["plain", "edges", "rotary", "others"],
)
def test_a_layer_on_graphs_of_examples_is_exact(graphs: ga.PerExample, options: dict) -> None:
    layer = ga.nn.GraphAttention(16, 4, **options)
    report = ga.assert_exact(layer, graphs, dtypes=[torch.float64])
    assert "graphs of examples" in str(report)


def _without_an_edge(graphs: ga.PerExample) -> ga.PerExample:
    """The last example lacks an edge."""
    last = graphs.graphs[-1]
    fewer = ga.from_edge_index(
        last.edge_index[:, 1:], num_sources=last.num_sources, num_targets=last.num_targets
    )
    return ga.PerExample([*graphs.graphs[:-1], fewer])


def test_an_edge_that_is_not_read_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = _without_an_edge(GRAPHS)
    attention = operator.attention
    monkeypatch.setattr(operator, "attention", lambda q, k, v, graph: attention(q, k, v, wrong))
    assert not ga.verify(GRAPHS, dtypes=[torch.float64], gradients=False).ok


def test_a_layer_that_reads_other_edges_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = _without_an_edge(GRAPHS)
    run = layers._in_examples
    monkeypatch.setattr(
        layers, "_in_examples", lambda layer, x, graph, rest: run(layer, x, wrong, rest)
    )
    layer = ga.nn.GraphAttention(16, 4)
    report = ga.verify(layer, GRAPHS, dtypes=[torch.float64], gradients=False)
    assert not report.ok


def _by_numbers(
    score: torch.Tensor, target: torch.Tensor, num_targets: int, source: torch.Tensor
) -> torch.Tensor:
    factor = torch.log(target + 2.0) / num_targets - 0.3 * (target - source).abs()
    return torch.exp(score) * factor[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("graphs", [GRAPHS, HEADS], ids=["several", "of heads"])
def test_a_normalisation_that_reads_numbers_of_a_row_of_examples_is_seen(
    graphs: ga.PerExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = ga.nn.GraphAttention(16, 4, normalize=_by_numbers)
    options = {"dtypes": [torch.float64], "gradients": False, "backends": ["edges"]}
    assert ga.verify(layer, graphs, **options).ok
    monkeypatch.setattr(per_example, "_blocks", lambda graphs: ())
    assert not ga.verify(layer, graphs, **options).ok


def test_an_explanation_is_of_the_graph_that_runs() -> None:
    of_many = ga.explain(GRAPHS, batch=2)
    assert of_many.graph.num_targets == 21
    assert of_many.request.batch == 2
    assert of_many.chosen != "dense"
    assert "joins the" not in str(of_many)
    of_one = ga.explain([causal(512)] * 8, batch=2)
    assert (of_one.graph.num_targets, of_one.request.batch) == (512, 16)
    assert of_one.chosen == ga.explain(causal(512), batch=16).chosen
    assert [first for first, _, _ in ga.explain(HEADS, heads=4).groups] == [0, 2]


def test_open_graphs_are_verified_at_a_size() -> None:
    graphs = ga.PerExample([causal(...), causal(5)])
    with pytest.raises(ga.GraphError, match="has no size yet"):
        ga.verify(graphs)
    with pytest.raises(ga.GraphError, match="got PerExample"):
        ga.explain(graphs)
    with pytest.raises(ga.GraphError, match=r"verify\(function, one\)"):
        ga.verify(lambda q, k, v: q, GRAPHS)
