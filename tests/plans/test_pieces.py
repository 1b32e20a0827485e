"""Pieces: that together they are the edges, each once, and as few as borders allow."""

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.plans.pieces import VECTORS, cuts, pieces, work

BIG = {
    "window": lambda: ga.graphs.sliding_window(211, 65, causal=False),
    "global": lambda: (
        ga.graphs.sliding_window(211, 33, causal=False) | ga.graphs.global_tokens(211, [5, 100])
    ),
    "cells": lambda: ga.graphs.window_partition((14, 14), cell=(7, 7), shift=(3, 3)),
    "a hole": lambda: ga.from_mask(torch.arange(48).div(16).floor().ne(1)[:, None].expand(48, 40)),
    "short gaps": lambda: ga.from_mask(torch.arange(45).remainder(15).lt(12).expand(50, 45)),
    "stretches at random": lambda: ga.from_mask(
        torch.rand(9, 40, generator=torch.Generator().manual_seed(1))
        .lt(0.6)
        .repeat_interleave(8, 0)
        .repeat_interleave(5, 1)
    ),
}
ALL = {name: make for name, make in {**GRAPHS, **BIG}.items() if not make().has_repeated_edges}


def mask_of(plan, graph):
    """The number of times that the pieces name each pair."""
    mask = torch.zeros(graph.num_targets, graph.num_sources, dtype=torch.int64)
    size = VECTORS * plan.lanes
    for block in range(plan.num_blocks):
        for first, n, vectors, masks in plan.pieces[plan.ptr[block] : plan.ptr[block + 1]].tolist():
            lanes = torch.arange(vectors >> 2, (vectors >> 2) + (vectors & 3)) * plan.lanes
            lanes = (lanes[:, None] + torch.arange(plan.lanes)).flatten()
            lanes = lanes[block * size + lanes < graph.num_targets]
            reads = torch.ones(n, lanes.numel(), dtype=torch.bool)
            if masks >= 0:
                reads = (plan.masks[masks : masks + n, None] >> lanes) & 1 != 0
            targets = plan.targets[block * size + lanes].long()
            sources = plan.sources[first : first + n].long()
            mask[targets] += torch.zeros_like(mask[targets]).index_add(1, sources, reads.long().T)
    return mask


@pytest.mark.parametrize("lanes", [2, 16])
@pytest.mark.parametrize("name", ALL)
def test_the_pieces_are_the_edges(name, lanes):
    graph = ALL[name]()
    plan = pieces(graph, lanes)
    assert torch.equal(mask_of(plan, graph), graph.mask().long())
    first, count = plan.pieces[:, 2] >> 2, plan.pieces[:, 2] & 3
    assert bool((count >= 1).all())  # the kernel has no function for no vectors
    assert bool((first + count <= VECTORS).all())


@pytest.mark.parametrize("name", ["window", "global", "no_edges", "zero_targets"])
def test_cuts_have_all_blocks_and_the_sources_that_these_read(name):
    graph = ALL[name]()
    plan = pieces(graph, 2)
    parts = cuts(graph, 2, 8)
    assert parts.first[0] == 0
    assert parts.first[-1] == plan.num_blocks
    for cut in range(parts.number):
        read = torch.zeros(graph.num_sources, dtype=torch.bool)
        listed = torch.zeros_like(read)
        first, last = plan.ptr[parts.first[cut : cut + 2]].tolist()
        for source, n, _, _ in plan.pieces[first:last].tolist():
            read[source : source + n] = True
        lo, hi = parts.span_ptr[cut : cut + 2].tolist()
        for start, stop in parts.spans[lo:hi].tolist():
            listed[start:stop] = True
        assert torch.equal(read, listed)
        hull = parts.place[cut + 1] - parts.place[cut]
        assert hull == (parts.spans[hi - 1, 1] - parts.spans[lo, 0] if hi > lo else 0)
        assert hull <= parts.hull


def test_a_plan_is_as_large_as_the_borders():
    plan = pieces(ga.graphs.sliding_window(100_000, 257, causal=False), 16)
    assert sum(x.nbytes for x in plan[1:]) < 5e6
    full = pieces(ga.graphs.full(4096), 16)
    assert len(full.pieces) == full.num_blocks
    assert full.masks.numel() == 0


def test_hubs_are_collected_and_cells_put_together():
    few = ga.graphs.sliding_window(2048, 33, causal=False)
    hubs = few | ga.graphs.global_tokens(2048, range(0, 2048, 256))
    assert pieces(hubs, 16).work < pieces(few, 16).work + 2 * 2048 * 48
    swin = ga.graphs.window_partition((28, 28), cell=(7, 7), shift=(3, 3))
    assert pieces(swin, 16).work < 6 * swin.num_edges


def test_a_long_list_is_judged_by_a_sample():
    graph = ga.graphs.sliding_window(20_000, 9, causal=False).materialise()
    assert 0.8 < work(graph, 16) / pieces(graph, 16).work < 1.25
