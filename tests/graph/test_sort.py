"""Edges counted into place against one plain sort."""

import pytest
import torch

import graphattn as ga
from graphattn.graph.sort import countable, counted, rows_of, transposed

SIZES = [
    (0, 0, 3),
    (7, 1, 1),
    (9_001, 1, 5),
    (9_001, 113, 1),
    (20_011, 307, 211),
    (20_011, 3, 70_001),
    (8_209, 2**20, 2),
]


@pytest.mark.parametrize(("size", "rows", "columns"), SIZES)
def test_the_order_is_that_of_a_stable_sort_of_pairs(size, rows, columns):
    generator = torch.Generator().manual_seed(0)
    row, column = (
        torch.randint(n, (size,), generator=generator) if size else torch.empty(0).long()
        for n in (rows, columns)
    )
    found = counted(row, column, rows, columns)
    key, place = torch.sort(row * columns + column, stable=True)
    assert torch.equal(found.place.long(), place)
    assert torch.equal(rows_of(found.ptr) * columns + found.column, key)
    assert found.ptr.dtype == torch.int64
    assert found.ptr.numel() == rows + 1
    flipped = transposed(found, columns)
    key, place = torch.sort(found.column.long() * rows + rows_of(found.ptr), stable=True)
    assert torch.equal(flipped.place.long(), place)
    assert torch.equal(rows_of(flipped.ptr) * rows + flipped.column, key)


def test_a_few_edges_among_a_great_many_nodes_are_not_counted():
    index = torch.zeros(20_011, dtype=torch.int64)
    assert countable(index, 80_044, 1)
    assert not countable(index, 80_045, 1)
    assert not countable(index[:11], 1, 1)


def test_copies_among_many_edges_are_found_and_named():
    edge_index = torch.stack((torch.arange(20_011) % 307, torch.arange(20_011) // 307))
    ga.from_edge_index(edge_index, num_sources=307, num_targets=67)
    edge_index[:, 17_003] = edge_index[:, 5]
    with pytest.raises(ga.errors.GraphError, match="edges 5 and 17003 are both 5 -> 0"):
        ga.from_edge_index(edge_index, num_sources=307, num_targets=67)
    merged = ga.from_edge_index(edge_index, num_sources=307, num_targets=67, duplicates="merge")
    assert merged.num_edges == 20_010
    assert torch.equal(merged.edge_index, edge_index[:, torch.arange(20_011) != 17_003])
