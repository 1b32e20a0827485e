"""Tiles with compacted columns: that they are the graph, and how often a source is read again."""

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.graphs import icosphere, knn
from graphattn.kernels.tiles.operator import ends
from graphattn.plans import compacted
from graphattn.plans.compacted import PADDED, SIZES, reuse, tiles_of_sources, tiles_of_targets
from graphattn.plans.grouped import by_source, by_target
from graphattn.shapes import curve_order, icosphere_mesh

DISTINCT = [name for name, build in GRAPHS.items() if not build().has_repeated_edges]


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("name", DISTINCT)
def test_bits_are_the_edges_both_ways(name, rows):
    graph = GRAPHS[name]()
    edges = set(zip(graph.target.tolist(), graph.source.tolist(), strict=True))
    for layout, nodes, turned in (
        (by_target(graph), graph.num_sources, False),
        (by_source(graph), graph.num_targets, True),
    ):
        tiles = compacted.compacted(layout, nodes, rows)
        row, column = (x.tolist() for x in ends(*tiles))
        pairs = zip(column, row, strict=True) if turned else zip(row, column, strict=True)
        assert len(row) == len(edges)
        assert set(pairs) == edges
        assert (tiles.ptr % PADDED == 0).all()
        assert tiles.ptr[-1] == len(tiles.column) == len(tiles.bits)
        for start, stop in zip(tiles.ptr[:-1], tiles.ptr[1:], strict=True):
            used = tiles.bits[start:stop] != 0
            count = int(used.sum())
            assert stop - start - count < PADDED
            assert used[:count].all()
            assert (tiles.column[start:stop][:count].diff() > 0).all()


def along_a_curve(pos):
    return pos[curve_order(pos, "hilbert")]


def edges_per_column(graph):
    """For tiles of 16, 32 and 64 targets."""
    each = [compacted.compacted(by_target(graph), graph.num_sources, rows) for rows in SIZES]
    return [graph.num_edges / int((tiles.bits != 0).sum()) for tiles in each]


def test_along_a_hilbert_curve_a_source_is_read_for_three_to_six_edges():
    """What makes such tiles worth their products: in any order there is nothing to share."""
    draw = torch.Generator().manual_seed(0)
    cloud = torch.rand(20_000, 3, generator=draw, dtype=torch.float64)
    sphere = torch.nn.functional.normalize(cloud - 0.5, dim=1)
    mesh = icosphere(4).relabel(curve_order(icosphere_mesh(4).pos, "hilbert").argsort())
    for graph, least in (
        (knn(along_a_curve(cloud), 16), (3.0, 3.8, 4.7)),
        (knn(along_a_curve(sphere), 16), (3.7, 4.8, 6.1)),
        (mesh, (2.3, 2.9, 3.6)),
    ):
        for found, wanted in zip(edges_per_column(graph), least, strict=True):
            assert wanted < found < wanted + 0.4
    assert max(edges_per_column(knn(cloud, 16))) < 1.1


def test_the_size_of_tiles_is_the_one_that_costs_least():
    """Counted by one sort for all sizes: more rows share more, and have more pairs."""
    for graph in (ga.graphs.sliding_window(500, 129, causal=True), GRAPHS["listed_bipartite"]()):
        costs = {}
        for rows in SIZES:
            tiles = compacted.compacted(by_target(graph), graph.num_sources, rows)
            columns = int((tiles.bits != 0).sum())
            costs[rows] = compacted.Reuse(rows, columns, 0).cost(graph.num_targets)
        chosen = reuse(graph)
        assert chosen.rows == min(costs, key=costs.__getitem__)
        assert chosen.cost(graph.num_targets) == costs[chosen.rows]
        tiles = tiles_of_targets(graph)
        assert tiles.rows == chosen.rows
        assert chosen.widest == int(torch.bincount(torch.repeat_interleave(tiles.ptr.diff())[
            tiles.bits != 0]).max())  # fmt: skip
    assert reuse(ga.graphs.sliding_window(500, 129, causal=True)).rows == 64


def test_tiles_are_made_once():
    graph = GRAPHS["hub"]()
    assert tiles_of_targets(graph) is tiles_of_targets(graph)
    assert tiles_of_sources(graph) is tiles_of_sources(graph)
