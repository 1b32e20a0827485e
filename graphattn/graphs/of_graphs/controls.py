"""Random graphs as controls: a graph's effect beyond its degrees."""

from typing import Literal

import numpy as np
import torch

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.advice import no_graph
from ...graph.expression import builder
from ...graph.limits import refuse_over
from ...graph.listed import listed
from ..arguments import call, one_of, whole

_ROUNDS = 10  # rounds of swaps, each of which tries nearly every edge
_CELLS = 1 << 22


@builder
def degree_matched_random(
    graph: AttentionGraph, seed: int = 0, *, keep: Literal["in", "both", "symmetric"] = "in"
) -> AttentionGraph:
    r"""A random graph with the degrees of another: a control for which edges there are.

    Every target reads as many sources as before, drawn uniformly without repeats. Self-loops of the
    graph are kept, and none is drawn.

    Args:
        graph: Any graph that repeats no edge.
        seed: The same seed gives the same graph.
        keep: ``"in"`` keeps the in-degree of every target. ``"both"`` keeps the out-degree of every
            source, too: pairs of edges ``a -> b, c -> d`` become ``a -> d, c -> b``, 10 times over,
            wherever both are new. ``"symmetric"`` does so with edges both ways, and keeps them.
    Returns:
        Listed edges by target, then by source. Causality is lost, and symmetry unless it is kept.
    Raises:
        GraphError: If ``graph`` repeats an edge, or is to stay symmetric and is not.
    Source:
        Maslov and Sneppen 2002, "Specificity and stability in topology of protein networks", for
        the swaps. Where the shape must stay and only the nodes be mixed:
        ``graph.relabel(torch.randperm(graph.num_nodes))``.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> graph = sliding_window(100, 9, causal=False)
        >>> control = degree_matched_random(graph, seed=3)
        >>> torch.equal(control.in_degree, graph.in_degree), (control & graph).num_edges < 200
        (True, True)
    """
    if not isinstance(graph, AttentionGraph):
        raise no_graph(graph, "graph must be an AttentionGraph")
    seed = whole(seed, "seed")
    one_of(keep, "keep", ("in", "both", "symmetric"))
    graph.need_no_images("degree_matched_random")
    if graph.has_repeated_edges:
        raise GraphError(
            f"graph must not repeat edges, got {graph!r}; drop copies with graph | graph"
        )
    refuse_over(
        64 * graph.num_edges,
        f"degree_matched_random of {graph.num_edges:,} edges",
        "take a subgraph",
    )
    if keep == "symmetric" and not graph.is_symmetric:
        raise GraphError(f'keep="symmetric" needs a symmetric graph, got {graph!r}; keep="both"')
    random = np.random.default_rng(seed)
    if keep == "in":
        target, source = _redrawn(graph, random)
    elif keep == "both":
        target, source = _swapped(graph, random)
    else:
        target, source = _swapped_both_ways(graph, random)
    name = call("degree_matched_random", graph, seed=seed, keep=keep)
    return _listed(graph, target, source, name)


def swapped_causal(graph: AttentionGraph, seed: int = 0) -> AttentionGraph:
    """As ``degree_matched_random(keep="both")`` of a graph that reads no later node; nor does it."""
    target, source = _swapped(graph, np.random.default_rng(seed), is_causal=True)
    return _listed(graph, target, source, f"swapped_causal({graph.name}, seed={seed})")


def _listed(
    graph: AttentionGraph, target: np.ndarray, source: np.ndarray, name: str
) -> AttentionGraph:
    """A graph of these edges by target, then by source."""
    S = max(1, graph.num_sources)
    key = torch.sort(torch.from_numpy(target) * S + torch.from_numpy(source)).values
    key = key.to(graph.device)
    edges = listed(key // S, key % S, graph.num_targets, graph.num_sources)
    return AttentionGraph(edges, name, graph.device)


def _loops(graph: AttentionGraph) -> np.ndarray:
    """bool (T,): True for nodes of a square graph that read themselves."""
    if not graph.is_square:
        return np.zeros(graph.num_targets, dtype=bool)
    node = torch.arange(graph.num_nodes)
    return graph.edges.contains(node.to(graph.device), node.to(graph.device)).cpu().numpy()


def _redrawn(graph: AttentionGraph, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    loops = _loops(graph)
    choices = graph.num_sources - int(graph.is_square)  # a square graph draws from the others
    target, source = _subsets(graph.in_degree.cpu().numpy() - loops, choices, random)
    if graph.is_square:
        source += source >= target
    alone = np.flatnonzero(loops)
    return np.concatenate((target, alone)), np.concatenate((source, alone))


def _subsets(
    sizes: np.ndarray, choices: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """For every row a uniform subset of ``range(choices)`` of its size, as (row, member)."""
    rows = []
    many = sizes > choices // 8
    members = []
    dense = np.flatnonzero(many & (sizes > 0))
    step = max(1, _CELLS // max(1, choices))
    for first in range(0, len(dense), step):
        chunk = dense[first : first + step]
        order = np.argsort(random.random((len(chunk), choices)), axis=1)
        taken = np.arange(choices) < sizes[chunk][:, None]
        rows.append(np.repeat(chunk, sizes[chunk]))
        members.append(order[taken])
    # Numbers are drawn until enough are distinct: the first distinct ones of a series of draws.
    few = np.where(many, 0, sizes)
    chosen = np.empty(0, dtype=np.int64)
    missing = few
    while missing.any():
        row = np.repeat(np.arange(len(sizes)), missing)
        chosen = np.sort(
            np.concatenate((chosen, row * choices + random.integers(0, choices, len(row))))
        )
        chosen = chosen[np.diff(chosen, prepend=-1) > 0]
        missing = few - np.bincount(chosen // choices, minlength=len(sizes))
    rows.append(chosen // max(1, choices))
    members.append(chosen % max(1, choices))
    return np.concatenate(rows), np.concatenate(members)


def _swapped_both_ways(
    graph: AttentionGraph, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Swaps of edges both ways: of ``{a, b}, {c, d}`` either ``{a, d}, {c, b}`` or ``{a, c}, {b, d}``."""
    target, source = (side.cpu().numpy() for side in (graph.target, graph.source))
    alone = target[target == source]
    low = source[source < target]
    high = target[source < target]
    N = max(1, graph.num_nodes)
    for _ in range(_ROUNDS):
        turned = random.random(len(low)) < 0.5
        low, high = np.where(turned, high, low), np.where(turned, low, high)
        order = random.permutation(len(low))
        half = len(order) // 2
        a = order[:half]
        b = order[half : 2 * half]
        new = np.stack((_key(low[a], high[b], N), _key(low[b], high[a], N)))
        fresh = _absent(new.ravel(), _key(low, high, N)).reshape(new.shape)
        fresh &= np.stack((low[a] != high[b], low[b] != high[a]))
        a = a[fresh.all(0)]
        b = b[fresh.all(0)]
        swapped = high[a]
        high[a] = high[b]
        high[b] = swapped
    return np.concatenate((high, low, alone)), np.concatenate((low, high, alone))


def _key(one: np.ndarray, other: np.ndarray, nodes: int) -> np.ndarray:
    """A number for each pair of nodes, whichever stands first."""
    return np.minimum(one, other) * nodes + np.maximum(one, other)


def _swapped(
    graph: AttentionGraph, random: np.random.Generator, is_causal: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    target, source = (side.cpu().numpy() for side in (graph.target, graph.source))
    loop = (target == source) & graph.is_square
    alone = target[loop]
    source = source[~loop]
    target = target[~loop]
    S = max(1, graph.num_sources)
    for _ in range(_ROUNDS):
        order = random.permutation(len(target))
        half = len(order) // 2
        a = order[:half]
        b = order[half : 2 * half]
        new = np.stack((target[b] * S + source[a], target[a] * S + source[b]))
        fresh = _absent(new.ravel(), target * S + source).reshape(new.shape)
        if graph.is_square:
            fresh &= np.stack((target[b] != source[a], target[a] != source[b]))
        if is_causal:
            fresh &= np.stack((target[b] > source[a], target[a] > source[b]))
        a = a[fresh.all(0)]
        b = b[fresh.all(0)]
        swapped = source[a]
        source[a] = source[b]
        source[b] = swapped
    return np.concatenate((target, alone)), np.concatenate((source, alone))


def _absent(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """True for new numbers that are neither old nor repeated."""
    order = np.argsort(new)
    ascending = new[order]
    old = np.append(np.sort(old), -1)
    again = np.append(ascending[1:] == ascending[:-1], [False])[: len(new)]
    again[1:] |= again[:-1].copy()
    fresh = np.empty(len(new), dtype=bool)
    fresh[order] = ~again & (old[np.searchsorted(old[:-1], ascending)] != ascending)
    return fresh
