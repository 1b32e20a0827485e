"""Tiles: which nodes stand in which block, and that together the blocks are the graph."""

import itertools
import math

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.plans.blocks import grid_cells, survey
from graphattn.plans.tiles import edge_places, tiles

DOCUMENTS = torch.repeat_interleave(torch.arange(40), torch.arange(1, 41))
BIG = {
    "window": lambda: ga.graphs.sliding_window(2048, 129, causal=False),
    "longformer": lambda: (
        ga.graphs.sliding_window(2048, 129, causal=False) | ga.graphs.global_tokens(2048, range(16))
    ),
    "swin": lambda: ga.graphs.window_partition((56, 56), cell=(7, 7), shift=(3, 3)),
    "neighbourhood": lambda: ga.graphs.grid_neighbourhood((40, 30), 7, causal=False),
    "documents": lambda: ga.graphs.documents(DOCUMENTS, causal=False),
    "causal_documents": lambda: (
        ga.graphs.documents(DOCUMENTS, causal=False) & ga.graphs.causal(DOCUMENTS.numel())
    ),
    "prefix": lambda: ga.graphs.prefix(700, 50),
    "swin_without_loops": lambda: ga.graphs.window_partition(
        (28, 28), cell=(7, 7)
    ).without_self_loops(),
    "not_a_window": lambda: ~ga.graphs.sliding_window(300, 65, causal=True),
    "predicate": lambda: ga.from_rule(lambda t, s: (t - s) % 7 < 3, 200),
    "dense_core": lambda: ga.from_mask(
        torch.rand(400, 300, generator=torch.Generator().manual_seed(1)) < 0.2
    ),
}


def pairs(graph):
    """The mask that the tiles spell out, and the pairs of all buckets laid end to end: target,
    source, allowed.
    """
    plan = tiles(graph)
    mask = torch.zeros(graph.num_targets, graph.num_sources, dtype=torch.bool)
    target, source, edge = [], [], []
    row = column = 0
    for bucket in plan.buckets:
        shape = (bucket.blocks, bucket.rows, bucket.columns)
        rows = (
            plan.row.node[row : row + bucket.blocks * bucket.rows]
            .view(bucket.blocks, -1, 1)
            .expand(shape)
        )
        columns = plan.column.node[column : column + bucket.blocks * bucket.columns]
        row, column = row + bucket.blocks * bucket.rows, column + columns.numel()
        allowed = torch.ones(()).bool() if bucket.allowed is None else bucket.allowed[:, 0]
        target.append(rows.flatten())
        source.append(columns.view(bucket.blocks, 1, -1).expand(shape).flatten())
        edge.append(allowed.expand(shape).flatten())
    if plan.buckets:
        target, source, edge = (torch.cat(x) for x in (target, source, edge))
        mask[target[edge], source[edge]] = True
    return mask, target, source, edge


EVERY = [pytest.param(make, id=name) for name, make in {**GRAPHS, **BIG}.items()]


@pytest.mark.sample(4)
@pytest.mark.parametrize("make", EVERY)
def test_the_tiles_spell_out_the_mask(make):
    graph = make()
    mask, target, source, allowed = pairs(graph)
    assert torch.equal(mask, graph.mask())
    (place,) = edge_places(graph)
    if graph.num_edges:
        assert torch.equal(target[place], graph.target)
        assert torch.equal(source[place], graph.source)
        assert allowed[place].all()


@pytest.mark.parametrize("make", EVERY)
def test_every_target_stands_in_one_slot_and_every_source_knows_its_slots(make):
    graph = make()
    plan = tiles(graph)
    reads = graph.in_degree > 0
    assert torch.equal(plan.row.node[plan.output.node[reads]], torch.nonzero(reads).flatten())
    assert (plan.isolated is None) == bool(reads.all())
    for slots in (plan.row, plan.column):
        owner = torch.repeat_interleave(slots.ptr[1:] - slots.ptr[:-1])
        assert torch.equal(slots.node[slots.slot], owner)
        assert slots.slot.unique().numel() == slots.slot.numel()
    assert torch.equal(plan.row.ptr[1:] - plan.row.ptr[:-1], reads.long())
    assert torch.equal(plan.column.ptr[1:] > plan.column.ptr[:-1], graph.out_degree > 0)


@pytest.mark.parametrize(
    ("name", "sizes"), [("swin", {49, 28, 21, 16, 12, 9}), ("documents", None)]
)
def test_disjoint_cliques_are_full_tiles(name, sizes):
    graph = BIG[name]()
    found = survey(graph)
    buckets = tiles(graph).buckets
    if sizes:
        assert found.pairs == graph.num_edges
        assert {bucket.rows for bucket in buckets} == sizes
        assert all(bucket.allowed is None for bucket in buckets)
    assert len(buckets) < 40
    assert sum(b.blocks * b.rows * b.columns for b in buckets) < 1.3 * graph.num_edges


def test_the_blocks_of_a_window_share_a_mask():
    graph = BIG["window"]()
    shared = [
        bucket
        for bucket in tiles(graph).buckets
        if bucket.allowed is not None and len(bucket.allowed) == 1
    ]
    assert max(bucket.blocks for bucket in shared) >= 2048 // 256 - 2
    assert survey(graph).pairs < 3 * graph.num_edges


def test_global_tokens_stand_in_a_block_of_their_own():
    graph = BIG["longformer"]()
    assert (1, 16, 2048, None) in tiles(graph).buckets
    assert survey(graph).pairs < 2 * graph.num_edges


def test_a_shuffled_window_is_found_again():
    window = ga.graphs.sliding_window(3000, 65, causal=False)
    mixed = torch.randperm(3000, generator=torch.Generator().manual_seed(0))
    graph = ga.from_edge_index(mixed[window.edge_index], num_nodes=3000)
    assert survey(graph).pairs < 2 * survey(window).pairs
    assert torch.equal(graph._near_order().sort().values, torch.arange(3000))
    assert torch.equal(pairs(graph)[0], graph.mask())


def test_cells_of_a_grid_are_compact():
    graph = ga.graphs.grid_neighbourhood((64, 64), 7, causal=False)
    cells = grid_cells(graph.edges, 64)
    assert torch.equal(torch.bincount(cells), torch.full((64,), 64))
    assert torch.equal(cells.view(64, 64)[:8, :8], torch.zeros(8, 8, dtype=torch.int64))
    # a row of the image reads seven rows; a box reads less
    assert survey(graph).columns < 3 * graph.num_nodes * 3
    assert grid_cells(ga.graphs.causal(5).edges, 64) is None
    # of one axis: its order is its places
    assert grid_cells(ga.graphs.grid_neighbourhood((64,), 7, causal=False).edges, 16) is None


@pytest.mark.parametrize(
    ("grid", "most"), [((9, 5), 4), ((9, 5), 64), ((7, 5, 3), 8), ((3, 4, 5, 3), 24)]
)
def test_cells_are_boxes_numbered_row_by_row(grid, most):
    """Each of at most so many nodes; a side is what is left of them, shared by the axes that
    follow.
    """
    cells = grid_cells(ga.graphs.grid_neighbourhood(grid, 3, causal=False).edges, most).view(grid)
    sides, left = [], most
    for axis in reversed(range(len(grid))):
        sides.insert(0, max(1, min(grid[axis], int(left ** (1 / (axis + 1)) + 1e-9))))
        left //= sides[0]
    assert math.prod(sides) <= most
    counts = [-(-n // side) for n, side in zip(grid, sides, strict=True)]
    for place in itertools.product(*map(range, grid)):
        number = 0
        for i, side, count in zip(place, sides, counts, strict=True):
            number = number * count + i // side
        assert int(cells[place]) == number


def test_a_graph_with_no_structure_is_refused_only_for_its_memory():
    draw = torch.Generator().manual_seed(0)
    edges = torch.stack(
        (torch.randint(100_000, (200_000,), generator=draw), torch.arange(100_000).repeat(2))
    )
    graph = ga.from_edge_index(edges, num_nodes=100_000, duplicates="merge")
    found = {c.name: c for c in ga.explain(graph, heads=32, dropout_p=0.1).candidates}["tiles"]
    assert "edges fill only" in found.reasons[0]
    assert ga.explain(graph).chosen == "edges"


@pytest.mark.parametrize(
    "name", ["ball", "without loops", "and a node for all", "either", "none of it"]
)
def test_the_grid_is_found_in_what_a_rule_is_made_of(name):
    near = ga.graphs.grid_neighbourhood((9, 5), 3, causal=False)
    graph = {
        "ball": ga.graphs.grid_ball((9, 5), 2),
        "without loops": near.without_self_loops(),
        "and a node for all": near | ga.graphs.global_tokens(45, (0,)),
        "either": ga.graphs.global_tokens(45, (0,)) | near,
        "none of it": ~near,
    }[name]
    assert torch.equal(grid_cells(graph.edges, 4), grid_cells(near.edges, 4))
