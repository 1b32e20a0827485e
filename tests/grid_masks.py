"""Masks of rules on grids, pair by pair in two loops."""

import itertools
import math

import torch


def mask_of(targets, sources, rule):
    """``rule(t, s)`` on the coordinates of two row-major grids; bool (T, S)."""
    nodes = list(itertools.product(*map(range, sources)))
    rows = [[bool(rule(t, s)) for s in nodes] for t in itertools.product(*map(range, targets))]
    return torch.tensor(rows, dtype=torch.bool).reshape(math.prod(targets), len(nodes))


def assert_follows(graph, size, rule):
    """The rule on one grid, by every way to ask."""
    wanted = mask_of(size, size, rule)
    assert torch.equal(graph.mask(), wanted)
    assert torch.equal(graph.edge_index, wanted.nonzero().T.flip(0))
    assert graph.num_edges == wanted.sum()
    assert graph.is_rule
