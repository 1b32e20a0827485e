"""Every set of edges answers every question as its boolean matrix would."""

from unittest.mock import patch

import numpy as np
import torch
from brute_force import any_edge_set, edge_sets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphattn as ga
from graphattn.graph import EMPTY, FULL, PARTIAL, AttentionGraph
from graphattn.graph import edges as edges_room
from graphattn.graph import runs as run_lists
from graphattn.graph.edges import Edges

MANY = settings(deadline=None, max_examples=24, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])


def tensor(mask: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(mask))


def asked(edges: Edges) -> torch.Tensor:
    """The whole table, from ``contains``."""
    t, s = torch.arange(edges.num_targets)[:, None], torch.arange(edges.num_sources)[None, :]
    return edges.contains(t, s).expand(edges.num_targets, edges.num_sources)


def check_everything(edges: Edges, mask: np.ndarray) -> None:
    T, S = mask.shape
    expected = tensor(mask)
    assert (edges.num_targets, edges.num_sources) == (T, S)
    assert torch.equal(asked(edges), expected)
    if edges.test is not None:
        t, s = torch.arange(T)[:, None], torch.arange(S)[None, :]
        assert torch.equal(edges.test(t, s).expand(T, S), expected)
    target, source = edges.pairs()
    assert torch.equal(torch.stack((target, source), 1), expected.nonzero())
    assert edges.count() == int(mask.sum())
    assert torch.equal(edges.degrees(), expected.sum(1))


@MANY
@given(any_edge_set())
def test_contains_pairs_count_degrees(case):
    check_everything(*case)


@MANY
@given(any_edge_set())
def test_flip_is_the_transpose(case):
    edges, mask = case
    check_everything(edges.flip(), mask.T)
    check_everything(edges.flip().flip(), mask)


@MANY
@given(any_edge_set(), st.data())
def test_runs_of_chosen_rows(case, data):
    edges, mask = case
    T, S = mask.shape
    rows = data.draw(st.lists(st.integers(0, T - 1), max_size=7)) if T else []
    runs = edges.rows(torch.tensor(rows, dtype=torch.int64))
    found = np.zeros((len(rows), S), dtype=int)
    for row, lo, hi in zip(*(part.tolist() for part in runs), strict=True):
        assert 0 <= lo <= hi <= S
        found[row, lo:hi] += 1
    assert np.array_equal(found, mask[rows].astype(int))  # and no run overlaps another
    kept = [(r, lo) for r, lo, hi in zip(*(part.tolist() for part in runs), strict=True) if hi > lo]
    assert kept == sorted(kept)


@MANY
@given(any_edge_set(), st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 5, 1 << 22]))
def test_tiles(case, height, width, budget):
    edges, mask = case
    T, S = mask.shape
    rows, columns = -(-T // height), -(-S // width)
    counts, classes = np.zeros((2, rows, columns), dtype=np.int64)
    for i in range(rows):
        for j in range(columns):
            tile = mask[i * height : (i + 1) * height, j * width : (j + 1) * width]
            counts[i, j] = tile.sum()
            classes[i, j] = FULL if tile.all() else PARTIAL if tile.any() else EMPTY
    graph = AttentionGraph(edges)
    with patch.object(edges_room, "ROWS_BUDGET", budget):
        assert graph.block_counts((height, width)).tolist() == counts.tolist()
        assert graph._block_classes((height, width)).tolist() == classes.tolist()
        check_everything(edges, mask)


@MANY
@given(any_edge_set())
def test_the_graph_says_the_same(case):
    edges, mask = case
    graph, expected = AttentionGraph(edges), tensor(mask)
    assert torch.equal(graph.mask(), expected)
    assert graph.num_edges == int(mask.sum())
    assert graph.density == (mask.mean() if mask.size else 0.0)
    assert torch.equal(graph.in_degree, expected.sum(1))
    assert torch.equal(graph.out_degree, expected.sum(0))
    dense = torch.zeros_like(expected)
    dense[graph.target, graph.source] = True
    assert torch.equal(dense, expected)
    assert len(repr(graph).splitlines()) == 1
    assert torch.equal(graph.materialise().mask(), expected)
    assert graph.equals(graph.materialise())
    assert graph.materialise().equals(graph)


@FEW
@given(st.integers(1, 9).flatmap(lambda n: edge_sets(n, n, 1)))
def test_facts_are_computed(case):
    edges, mask = case
    graph, N = AttentionGraph(edges), len(mask)
    found = ga.facts(graph)
    assert found.full == graph.is_full == bool(mask.all())
    assert found.causal == (not np.triu(mask, 1).any())
    assert found.symmetric == np.array_equal(mask, mask.T)
    assert graph._is_lower_triangle == np.array_equal(mask, np.tri(N, dtype=bool))
    assert found.self_loops == mask.diagonal().sum()
    assert found.isolated_targets == (~mask.any(1)).sum()
    assert found.unused_sources == (~mask.any(0)).sum()
    assert found.max_in_degree == mask.sum(1).max()
    assert found.max_out_degree == mask.sum(0).max()
    assert found.density == mask.mean()


@FEW
@given(edge_sets(5, 7, 0), edge_sets(5, 7, 0))
def test_operations_on_runs(first, second):
    (a, x), (b, y) = first, second
    rows = torch.arange(5)
    for runs, mask in (
        (run_lists.union(a.rows(rows), b.rows(rows), 7), x | y),
        (run_lists.intersection(a.rows(rows), b.rows(rows), 7), x & y),
        (run_lists.complement(a.rows(rows), 5, 7), ~x),
        (run_lists.from_dense(tensor(x)), x),
    ):
        assert torch.stack(run_lists.expand(runs), 1).tolist() == np.argwhere(mask).tolist()
        assert run_lists.row_lengths(runs, 5).tolist() == mask.sum(1).tolist()


def test_equal_rows_are_found_and_rows_of_equal_hashes_are_told_apart():
    mask = torch.randint(
        0, 2, (211, 5), generator=torch.Generator().manual_seed(0), dtype=torch.bool
    )
    row, *ends = run_lists.from_dense(mask)
    first = (mask[:, None] == mask).all(-1).int().argmax(1)
    assert torch.equal(run_lists.first_alike(row, torch.stack(ends), 211), first)
    with patch.object(run_lists, "mixed", torch.zeros_like):
        collided = run_lists.first_alike(row, torch.stack(ends), 211)
    assert torch.equal(mask[collided], mask)
    assert not torch.equal(collided, first)
