"""The graphs that every format is tried on, each with its edges counted pair by pair,
independently.
"""

import numpy as np
import torch

from graphattn import graphs
from graphattn.convert import from_edge_index, from_rule
from graphattn.graph import AttentionGraph, disjoint_union
from graphattn.graph.forms import band

# 5 sources, 7 targets; targets 1 and 4 are isolated
ISOLATED = [[4, 0, 2, 3, 1, 4, 0, 2], [6, 0, 2, 5, 0, 3, 3, 6]]


def counted(num_targets, num_sources, copies) -> np.ndarray:
    counts = np.zeros((num_targets, num_sources), dtype=int)
    for t in range(num_targets):
        for s in range(num_sources):
            counts[t, s] = copies(t, s)
    return counts


def listed(edge_index, num_sources, num_targets) -> tuple[AttentionGraph, np.ndarray]:
    graph = from_edge_index(edge_index, num_sources, num_targets, duplicates="keep")
    counts = np.zeros((num_targets, num_sources), dtype=int)
    for s, t in zip(*edge_index, strict=True):
        counts[t, s] += 1
    return graph, counts


def _cells(t, s):  # a grid of 4 rows and 9 columns, in cells of 2 x 3
    return (t // 9 // 2, t % 9 // 3) == (s // 9 // 2, s % 9 // 3)


TABLE: dict[str, tuple[AttentionGraph, np.ndarray]] = {
    "full": (graphs.full(7), counted(7, 7, lambda t, s: 1)),
    "causal": (graphs.causal(7), counted(7, 7, lambda t, s: s <= t)),
    "window": (
        graphs.sliding_window(13, window=3, causal=True),
        counted(13, 13, lambda t, s: 0 <= t - s < 3),
    ),
    "cross": (AttentionGraph(band(5, 11), "cross"), counted(5, 11, lambda t, s: 1)),
    "causal cross": (AttentionGraph(band(7, 3, 0), "cross"), counted(7, 3, lambda t, s: s <= t)),
    "strided": (
        AttentionGraph(band(7, 11, -6, 9, 3, 1), "strided"),
        counted(7, 11, lambda t, s: t - s + 1 >= -6 and (t - s + 1) % 3 == 0),
    ),
    "cells": (graphs.window_partition((4, 9), cell=(2, 3)), counted(36, 36, _cells)),
    "longformer": (
        graphs.sliding_window(11, window=2, causal=True) | graphs.global_tokens(11, [0, 5]),
        counted(11, 11, lambda t, s: 0 <= t - s < 2 or t in (0, 5) or s in (0, 5)),
    ),
    "without loops": (graphs.causal(5) - graphs.self_loops(5), counted(5, 5, lambda t, s: s < t)),
    "rule": (
        from_rule(lambda t, s: (3 * t + s) % 5 < 2, 7, 11),
        counted(7, 11, lambda t, s: (3 * t + s) % 5 < 2),
    ),
    "packed": (
        disjoint_union([graphs.causal(2), graphs.causal(3)]),
        counted(5, 5, lambda t, s: s <= t and (s < 2) == (t < 2)),
    ),
    "isolated targets": listed(ISOLATED, 5, 7),
    "hub": listed([[*range(13), *[6] * 12], [*[6] * 13, *range(6), *range(7, 13)]], 13, 13),
    "unsorted": listed([[2, 0, 1, 0, 2], [1, 2, 0, 1, 2]], 3, 3),
    "repeated edges": listed([[1, 2, 1, 0, 1, 2], [2, 0, 2, 1, 2, 0]], 3, 3),
    "repeated cross edges": listed([[1, 4, 1, 0], [2, 0, 2, 1]], 5, 3),
    "no edges": listed([[], []], 5, 5),
    "no edges across": listed([[], []], 5, 3),
    "one node": listed([[0], [0]], 1, 1),
    "one node alone": listed([[], []], 1, 1),
    "zero nodes": listed([[], []], 0, 0),
    "zero sources": listed([[], []], 0, 3),
    "zero targets": (AttentionGraph(band(0, 5), "none"), counted(0, 5, lambda t, s: 1)),
}

SIMPLE = [name for name, (_, counts) in TABLE.items() if not (counts > 1).any()]
REPEATED = [name for name, (_, counts) in TABLE.items() if (counts > 1).any()]
PAIRED = [name for name in SIMPLE if TABLE[name][1].size]


def counts_of(graph: AttentionGraph) -> np.ndarray:
    """How often each pair is an edge, from the columns of ``edge_index`` alone."""
    counts = np.zeros((graph.num_targets, graph.num_sources), dtype=int)
    for s, t in graph.edge_index.t().tolist():
        counts[t, s] += 1
    return counts


def softmax_over(counts: np.ndarray, query, key, value) -> torch.Tensor:
    """Attention written out target by target, every copy of an edge counted; no mask, no
    infinity.
    """
    out = torch.zeros(query.shape[0], value.shape[1], dtype=value.dtype)
    for t in range(query.shape[0]):
        sources = [s for s in range(key.shape[0]) for _ in range(counts[t, s])]
        if sources:
            weight = torch.softmax(key[sources] @ query[t] / query.shape[1] ** 0.5, 0)
            out[t] = weight @ value[sources]
    return out
