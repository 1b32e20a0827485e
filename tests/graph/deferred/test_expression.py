"""Every graph knows the calls that made it, and the calls make it again."""

import pickle

import pytest
import torch

import graphattn as ga
from graphattn.graph.deferred.expression import builders
from graphattn.graphs.expression import from_expression

SMALL = ga.graphs.sliding_window(7, 3, causal=True)
LISTED = ga.from_edge_index(torch.tensor([[0, 1, 2], [2, 2, 5]]), num_nodes=7)


@pytest.mark.sample(12)
@pytest.mark.parametrize("named", list(ga.graphs.zoo().values()), ids=lambda named: named.name)
def test_the_expression_of_a_named_pattern_makes_it_again(named):
    graph = named.graph()
    if graph.expression is None:
        assert not graph.is_rule  # only edges that somebody listed have no other way to be written
        return
    assert graph.expression.build().equals(graph)


def test_most_of_the_zoo_has_expressions():
    without = [named.name for named in ga.graphs.zoo().values() if named.graph().expression is None]
    assert len(without) < 25


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "text",
    [
        "sliding_window(7, 3, causal=True) | global_tokens(7, (0,))",
        "(sliding_window(7, 3, causal=True) | causal(7)) & full(7)",
        "sliding_window(7, 3, causal=True) - (causal(7) - self_loops(7))",
        "sliding_window(7, 3, causal=True) - causal(7) - self_loops(7)",
        "~sliding_window(7, 3, causal=True) | causal(7)",
        "~(sliding_window(7, 3, causal=True) | causal(7))",
        "(causal(7) @ full(7)).reverse()",
        "sliding_window(7, 3, causal=True).k_hop(2)",
        "sliding_window(7, 3, causal=True).without_self_loops().with_self_loops()",
        "causal(6).with_global_tokens(1)",
        "block_sparse(causal(3) | self_loops(3), 2)",
        "composite(((full(2), None), (cross(3, 2), causal(3))))",
        "disjoint_union((full(2), causal(3)))",
        "window_partition((4, 6), (2, 3), shift=1)",
    ],
)
def test_an_expression_reads_as_it_was_written(text):
    graph = from_expression(text)
    assert str(graph.expression) == text
    assert from_expression(str(graph.expression)).equals(graph)
    assert graph.expression.build().equals(graph)


@pytest.mark.parametrize(
    "change", [lambda g: g.subgraph([3, 1, 2]), lambda g: g.relabel([6, 5, 4, 3, 2, 1, 0])]
)
@pytest.mark.parametrize(
    "graph", [SMALL, LISTED | SMALL, ga.graphs.knn(torch.arange(7.0)[:, None] ** 2, k=2)]
)
def test_chosen_nodes_are_part_of_the_expression(graph, change):
    changed = change(graph)
    assert changed.expression.build().equals(changed)
    assert not changed.expression.build().equals(SMALL)


def test_edges_that_somebody_listed_have_no_expression():
    assert LISTED.expression is None
    assert (LISTED | LISTED.reverse()).expression is None
    assert LISTED.with_self_loops().expression is None


def test_a_rule_beside_listed_edges_keeps_both():
    graph = LISTED | SMALL
    sign, (left, right) = graph.expression.function, graph.expression.args
    assert sign == "|"
    assert left.equals(LISTED)
    assert str(right) == "sliding_window(7, 3, causal=True)"


def test_a_graph_of_a_function_has_no_expression():
    assert ga.from_rule(lambda t, s: s <= t, 5).expression is None


@pytest.mark.slow
def test_an_expression_does_not_grow_for_ever():
    graph = ga.graphs.self_loops(600)
    for token in range(300):
        graph = graph | ga.graphs.global_tokens(600, (token,))
        assert graph.expression is None or graph.expression.num_calls <= 256
    assert graph.num_edges == 600 * 600 - 300 * 299


def test_names_and_devices_leave_the_expression_as_it_is():
    assert SMALL.to("cpu").expression is SMALL.expression
    assert SMALL.materialise().expression is SMALL.expression


def test_an_expression_holds_copies_of_tensors():
    labels = torch.tensor([0, 0, 1, 1])
    graph = ga.graphs.documents(labels, causal=False)
    labels.zero_()
    assert graph.expression.build().num_edges == 8


def test_an_expression_is_pickled_with_its_graph():
    graph = SMALL | ga.graphs.documents(torch.tensor([0, 0, 0, 1, 1, 1, 1]), causal=False)
    assert str(pickle.loads(pickle.dumps(graph)).expression) == str(graph.expression)


def test_every_builder_of_the_catalogue_writes_expressions():
    assert set(ga.graphs.BUILDERS) <= set(builders())


def test_a_graph_does_not_keep_what_outweighs_its_edges():
    scores = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    assert ga.graphs.top_k(scores, 2).expression is None
    assert ga.graphs.top_k(scores, 100).expression is not None


def test_a_write_into_an_expression_does_not_reach_its_graph():
    graph = ga.graphs.documents(torch.tensor([0, 0, 1, 1]), causal=False)
    mask = graph.mask()
    graph.expression.args[0].zero_()
    assert torch.equal(graph.mask(), mask)
    assert graph.num_edges == int(mask.sum()) == 8
    assert torch.equal(
        ga.attention(*[torch.ones(4, 1, 2)] * 3, graph, backend="edges"), torch.ones(4, 1, 2)
    )


def test_arrays_in_a_list_are_copied_too():
    ids = torch.tensor([0, 0, 1, 1])
    graph = ga.graphs.causal_by_rank(ids)
    before = graph.mask()
    ids.zero_()
    assert torch.equal(graph.mask(), before)
