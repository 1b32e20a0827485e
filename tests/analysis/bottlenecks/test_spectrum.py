"""Spectral gaps by numpy's eigenvalues and known formulas; conditions of universality by
enumeration; tile fill.
"""

from importlib import import_module
from itertools import pairwise, permutations
from math import cos, pi

import numpy as np
import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn import GraphAttnError, analysis, graphs
from graphattn.graph.listed import checked

SQUARE = [name for name, make in GRAPHS.items() if make().is_square and make().num_targets > 1]


def gap(graph):
    walk = torch.zeros(graph.num_targets, graph.num_targets, dtype=torch.float64)
    for s, t in graph.edge_index.t().tolist():
        walk[t, s] += 1
    walk /= walk.sum(1, keepdim=True).clamp(min=1)
    return 1 - np.sort(np.abs(np.linalg.eigvals(walk.numpy())))[-2]


def ring(size, reach=1):
    node = torch.arange(size)
    edges = [torch.stack(((node + d) % size, node)) for d in range(-reach, reach + 1)]
    return ga.from_edge_index(torch.cat(edges, 1), num_nodes=size)


def test_gaps_with_a_formula():
    assert analysis.spectral_gap(graphs.full(9)) == pytest.approx(1)
    assert analysis.spectral_gap(graphs.causal(9)) == pytest.approx(0.5)
    assert analysis.spectral_gap(graphs.window_partition((6, 6), (3, 3))) == pytest.approx(0)
    # an even cycle alternates
    assert analysis.spectral_gap(ring(12) - graphs.self_loops(12)) == pytest.approx(0)
    for size in (7, 12):
        assert analysis.spectral_gap(ring(size)) == pytest.approx(
            1 - (1 + 2 * cos(2 * pi / size)) / 3
        )


def listable(monkeypatch, answer):
    module = import_module("graphattn.analysis.bottlenecks.spectrum")
    monkeypatch.setattr(module, "_DENSE", 8)
    monkeypatch.setattr(module, "is_listable", lambda graph: answer)


@pytest.mark.parametrize("as_matrix", [True, False])
def test_large_and_small_ways_agree(monkeypatch, as_matrix):
    listable(monkeypatch, as_matrix)
    ordinary = [
        ring(41, 3),
        GRAPHS["longformer"](),
        GRAPHS["wide_window"](),
        GRAPHS["directed_ring"](),
        GRAPHS["hub"](),
    ]
    triangular = [GRAPHS["causal"](), GRAPHS["window"](), GRAPHS["packed_documents"]()]
    for graph in ordinary + triangular:
        assert analysis.spectral_gap(graph) == pytest.approx(gap(graph), abs=1e-7), graph
    for graph in triangular:
        assert analysis.connectivity(graph).acyclic


def test_gaps_that_cost_too_much_are_refused():
    with pytest.raises(GraphAttnError, match="operations"):
        analysis.spectral_gap(graphs.sliding_window(1_000_000, 3, causal=False))
    with pytest.raises(GraphAttnError, match="at least 2 nodes"):
        analysis.spectral_gap(graphs.full(1))


def random_graph(size, edges, seed):
    place = torch.randperm(size**2, generator=torch.Generator().manual_seed(seed))[:edges]
    return ga.AttentionGraph(checked(torch.stack((place % size, place // size)), size, size))


def enumerated(graphs_of_layers):
    """Star, Hamiltonian path and everything read in the end, by trying all orders and many
    layers.
    """
    masks = [graph.mask() for graph in graphs_of_layers]
    union = torch.stack(masks).any(0)
    n = union.shape[0]
    others = union | torch.eye(n, dtype=torch.bool)
    star = [v for v in range(n) if bool(others[v].all()) and bool(others[:, v].all())]
    path = any(all(bool(union[b, a]) for a, b in pairwise(p)) for p in permutations(range(n)))
    reads_all, full = torch.eye(n), False
    for _ in range(n * n + 2):
        for mask in masks:
            reads_all = ((mask.float() @ reads_all) > 0).float()
        full = full or bool(reads_all.all())
    loops = all(bool(mask.diagonal().all()) for mask in masks)
    return loops, star[0] if star else None, path, full


def test_conditions_of_universality_are_those_of_enumeration():
    seen = set()
    for seed in range(60):
        layers = [random_graph(5, 4 + (seed + i) % 13, 100 * seed + i) for i in range(1 + seed % 2)]
        if seed % 3:
            layers = [layer.with_self_loops() for layer in layers]
        found = analysis.universality(layers)
        answer = (found.self_loops, found.star, found.hamiltonian_path, found.reads_everything)
        assert answer == enumerated(layers), (seed, found)
        loops, star, path, reads_all = answer
        assert found.universal == (loops and (star is not None or (path and reads_all)))
        seen.add((loops, star is not None, path, reads_all))
    assert len(seen) > 6  # the cases differ


@pytest.mark.parametrize("n", [3, 5, 7])
def test_the_graph_that_takes_longest_to_fill_is_waited_for(n):
    """Wielandt's: a circle and one chord, full after (n - 1)^2 + 1 steps and not before."""
    circle = torch.stack((torch.arange(n), torch.arange(1, n + 1) % n))
    graph = ga.from_edge_index(torch.cat((circle, torch.tensor([[n - 1], [1]])), 1), num_nodes=n)
    power = np.linalg.matrix_power(graph.mask().numpy().astype(object), (n - 1) ** 2)
    assert not (power > 0).all()
    assert analysis.universality(graph).reads_everything


def test_loops_of_one_layer_do_not_keep_what_another_forgets():
    """A ring passes all on and keeps nothing, so that loops in the other layer alone never let a
    node depend on all.
    """
    ring, alone = graphs.circulant(5, (1,)), graphs.self_loops(5)
    for layers in ([ring, alone], [alone, ring], [ring]):
        found = analysis.universality(layers)
        assert not found.self_loops
        assert found.reads_everything is False
    assert analysis.universality([ring | alone, alone]).reads_everything


def test_universality_of_the_papers_graphs():
    size = 64
    bigbird = graphs.sliding_window(size, 3, causal=False) | graphs.global_tokens(size, (0,))
    assert analysis.universality(bigbird).star_graph
    strided = analysis.universality(
        [graphs.sliding_window(size, 3, causal=False), graphs.window_partition((8, 8), (8, 1))]
    )
    assert (strided.star, strided.sparse_transformer, strided.universal) == (None, True, True)
    causal = analysis.universality(graphs.causal(size))
    assert (causal.hamiltonian_path, causal.reads_everything, causal.universal) == (
        True,
        False,
        False,
    )
    cells = analysis.universality(graphs.window_partition((8, 8), (4, 4)))
    assert (cells.hamiltonian_path, cells.universal) == (False, False)
    assert "theorem applies: no" in str(cells)
    assert causal.to_dict()["universal"] is False
    grid = (
        graphs.grid_neighbourhood((5, 7), (3, 3), causal=False)
        .materialise()
        .relabel(torch.randperm(35, generator=torch.Generator().manual_seed(0)))
    )
    assert analysis.universality(grid).hamiltonian_path  # found by search
    large = analysis.universality(graphs.sliding_window(1_000_000, 257, causal=False))
    assert (large.hamiltonian_path, large.reads_everything) == (True, True)


def counted_tiles(mask, tile):
    """Tiles with an edge, and the share of their pairs that are edges."""
    found = [
        part
        for rows in mask.split(tile[0], 0)
        for part in rows.split(tile[1], 1)
        if bool(part.any())
    ]
    return len(found), int(mask.sum()) / max(1, sum(part.numel() for part in found))


@pytest.mark.parametrize("name", list(GRAPHS))
def test_tile_fill_is_counted_from_the_mask(name):
    graph = GRAPHS[name]()
    found = analysis.tile_fill(graph, (3, 5))
    touched, fill = counted_tiles(graph.mask(), (3, 5))
    assert (found.touched, found.fill) == (touched, pytest.approx(fill))
    assert found.tiles == -(-graph.num_targets // 3) * -(-graph.num_sources // 5)


def test_reordering_finds_the_neighbours_again():
    size = 300
    window = graphs.sliding_window(size, 9, causal=False)
    shuffled = window.materialise().relabel(
        torch.randperm(size, generator=torch.Generator().manual_seed(0))
    )
    before, after = analysis.tile_fill(window, (16, 16)), analysis.tile_fill(shuffled, (16, 16))
    assert after.touched > 4 * before.touched
    assert after.touched_after <= 1.2 * before.touched
    assert after.order == "reverse Cuthill-McKee"
    assert str(after).endswith("full")
    swin = graphs.window_partition((16, 16), (4, 4))
    boxes = analysis.tile_fill(swin, (16, 16))
    assert (boxes.order, boxes.touched_after, boxes.fill_after) == ("boxes of the grid", 16, 1.0)
    assert boxes.fill == pytest.approx(0.25)
    wide = analysis.tile_fill(graphs.sliding_window(100_000, 257, causal=True))
    assert (wide.order, wide.touched_after, wide.to_dict()["fill_after"]) == (None, None, None)
    with pytest.raises(GraphAttnError, match="tile must be"):
        analysis.tile_fill(window, (0, 4))
    with pytest.raises(
        GraphAttnError,
        match=r"tile_fill would take 1,000,000,000,000 looks at a tile \(limit 268,435,456\)",
    ):
        analysis.tile_fill(graphs.causal(1_000_000), (1, 1))
