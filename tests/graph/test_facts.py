"""Which graphs SDPA's ``is_causal`` stands for: all of the lower triangle, and nothing else, of any
shape.
"""

import itertools

import pytest
import torch

import graphattn as ga

SHAPES = [(T, S) for T in range(5) for S in range(4) if T * S <= 8]


def graphs_of(T, S):
    """Every graph of T targets and S sources that lists no edge twice: a mask for each."""
    for cells in itertools.product((False, True), repeat=T * S):
        yield torch.tensor(cells, dtype=torch.bool).reshape(T, S)


@pytest.mark.parametrize(("T", "S"), SHAPES)
def test_a_lower_triangle_is_all_of_it_in_every_graph_of_a_few_nodes(T, S):
    triangle, full = torch.ones(T, S, dtype=torch.bool).tril(), torch.ones(T, S, dtype=torch.bool)
    for mask in graphs_of(T, S):
        graph = ga.from_mask(mask)
        assert graph._is_lower_triangle == torch.equal(mask, triangle), mask
        assert graph.is_full == torch.equal(mask, full), mask


@pytest.mark.parametrize(("T", "S"), [(13, 5), (5, 13), (7, 7)])
def test_dense_reads_no_edge_that_a_near_triangle_lacks(T, S):
    query, (key, value) = (
        torch.randn(T, 2, 4, dtype=torch.float64),
        torch.randn(2, S, 2, 4, dtype=torch.float64),
    )
    triangle = torch.ones(T, S, dtype=torch.bool).tril()
    few = triangle.clone()
    few[S:] = False
    few[S:, 0] = True  # as many edges as the formula of a triangle gives without its factor S
    one_less, elsewhere = triangle.clone(), triangle.clone()
    one_less[min(T, S) - 1, 0] = elsewhere[min(T, S) - 1, 0] = False
    elsewhere[0, 1] = True  # as many edges as the triangle
    for mask in (triangle, few, one_less, elsewhere):
        dense, plain = (
            ga.attention(query, key, value, ga.from_mask(mask), backend=backend)
            for backend in ("dense", "message_passing")
        )
        torch.testing.assert_close(dense, plain, rtol=0, atol=1e-12)


def test_a_repeated_edge_does_not_make_up_for_one_that_is_missing():
    edges = torch.tensor([[0, 0, 0], [0, 1, 1]])  # three edges, as a triangle of two nodes has
    graph = ga.from_edge_index(edges, num_nodes=2, duplicates="keep")
    assert not graph._is_lower_triangle
    assert not ga.from_edge_index(edges.repeat(1, 2)[:, :4], num_nodes=2, duplicates="keep").is_full
