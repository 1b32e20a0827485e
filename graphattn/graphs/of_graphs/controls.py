"""Random graphs as controls: a graph's effect beyond its degrees."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch

from ...errors import GraphError, warn
from ...graph import AttentionGraph, need_square
from ...graph.deferred.expression import builder
from ...graph.limits import refuse_over
from ...graph.listed import listed
from ..arguments import call, one_of, whole

_ROUNDS = 10  # rounds of swaps, each of which tries nearly every edge
_AGAIN = 16  # draws that may return to the graph's own edges
_FEW = 1 << 14  # edges of which as many draws take a moment
_CELLS = 1 << 22
WITHIN = 0.05
"""Share by which the mean reach of a graph that is matched in it may differ."""
_NEAR = 0.04  # annealing ends there
_STARTS = 3
_CLOSE = 0.9  # share of swaps tried that may close a triangle
_TRIES = 400  # swaps tried for each edge in an attempt
_WORDS = 2_000_000_000  # 64 bits each, that all attempts may read: 10 s
# Pairs: a swap that is so much worse is taken with probability 1/e at first. Where one attempt ends
# too far away, the next one begins there.
_HEATS = (1.0, 2.0, 3.0)


@builder
def degree_matched_random(
    graph: AttentionGraph,
    seed: int = 0,
    *,
    keep: Literal["degrees", "in-degrees"] = "degrees",
    layers: int | None = None,
) -> AttentionGraph:
    r"""A random graph with the degrees of another: a control for which edges there are.

    Pairs of edges ``a -> b, c -> d`` become ``a -> d, c -> b``, 10 times over, wherever both are
    new, so that every in-degree, every out-degree and all self-loops stay. A symmetric graph stays
    symmetric, and one that reads no later node reads none. Such a graph mostly reaches more nodes
    in a few layers than an ordered one does; ``layers`` asks for one that does not.

    Args:
        graph: Any graph that repeats no edge.
        seed: The same seed gives the same graph.
        keep: ``"in-degrees"`` keeps the in-degree of every target and self-loops alone: as many
            sources as before are drawn uniformly, of all nodes.
        layers: Number of layers in which a node shall depend on as many nodes as before, in the
            mean, within 5 %: further swaps bring 2, 3, ... layers there by simulated annealing.
    Returns:
        Listed edges by target, then by source. Where no swap is possible, as in a star, a causal
        window or all pairs, the same edges, with a warning.
    Raises:
        GraphError: If ``graph`` repeats an edge; with ``layers``, if it is not square, if no swap
            is possible, or if no such graph is found.
    Source:
        Maslov and Sneppen 2002, "Specificity and stability in topology of protein networks", for
        the swaps. In the terms of Orsini et al. 2015, "Quantifying randomness in real networks",
        they keep the 1K distribution, degrees node by node. With ``layers`` clustering rises with
        the overlap of neighbourhoods, but neither it nor joint degrees (2K, 2.5K) are fixed.
        Where the shape must stay and only the nodes be mixed:
        ``graph.relabel(torch.randperm(graph.num_nodes))``.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> graph = sliding_window(100, 9, causal=False)
        >>> control = degree_matched_random(graph, seed=3)
        >>> torch.equal(control.in_degree, graph.in_degree), control.is_symmetric
        (True, True)
        >>> from graphattn.analysis import receptive_field
        >>> near = degree_matched_random(graph, seed=3, layers=2)
        >>> [round(float(receptive_field([g] * 2).sizes[-1].double().mean()))
        ...  for g in (graph, near, control)]
        [16, 17, 49]
    """
    control = rewiring(graph, seed, keep=keep, layers=layers)
    if is_same(graph, control):
        warn(_no_other(graph, keep))
    return control


def rewiring(
    graph: AttentionGraph,
    seed: int,
    *,
    keep: Literal["degrees", "in-degrees"] = "degrees",
    layers: int | None = None,
) -> AttentionGraph:
    """The graph of :func:`degree_matched_random`, without its warning."""
    seed = whole(seed, "seed")
    one_of(keep, "keep", ("degrees", "in-degrees"))
    graph._need_set("degree_matched_random")
    if layers is not None:
        layers = whole(layers, "layers", 1)
        _check_layers(graph, keep)
    refuse_over(
        64 * graph.num_edges,
        f"degree_matched_random of {graph.num_edges:,} edges",
        "take a subgraph",
    )
    random = np.random.default_rng(seed)
    options: dict[str, Any] = {}
    if keep == "in-degrees":
        target, source = _others(graph, _redrawn, random)
        options["keep"] = keep
    elif layers is None:
        target, source = _others(graph, _swapped, random)
    else:
        target, source = _matched_in_reach(graph, layers, random)
        options["layers"] = layers
    name = call("degree_matched_random", graph, seed=seed, **options)
    control = _listed(graph, target, source, name)
    return control._made_by("degree_matched_random", graph, seed, **options)


def _others(
    graph: AttentionGraph,
    draw: Callable[[AttentionGraph, np.random.Generator, int], tuple[np.ndarray, np.ndarray]],
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Drawn edges, again while those of a small graph are its own: few others may exist.

    ``draw`` takes a number of rounds: an even one returns where each round makes the same swap. In
    more than ``_ROUNDS`` fewer pairs are swapped at once, which exclude each other less.
    """
    S = max(1, graph.num_sources)
    edges = np.sort(graph.target.cpu().numpy() * S + graph.source.cpu().numpy())
    target, source = draw(graph, random, _ROUNDS)
    for more in range(1, 1 + _AGAIN * (graph.num_edges <= _FEW)):
        if not np.array_equal(edges, np.sort(target * S + source)):
            break
        target, source = draw(graph, random, _ROUNDS + more)
    return target, source


def is_same(graph: AttentionGraph, control: AttentionGraph) -> bool:
    """True if a graph and its control have the same edges."""
    S = max(1, graph.num_sources)
    before = torch.sort(graph.target * S + graph.source).values
    return torch.equal(before, control.target * S + control.source)


def _no_other(graph: AttentionGraph, keep: str) -> str:
    """The warning that a control has the edges of its graph, and what to try."""
    how = {"degrees": "by swaps", "in-degrees": "at random"}[keep]
    words = (
        f"no other graph with the {keep} of {graph.name} was found {how}: the result has its edges"
    )
    loops = torch.from_numpy(_loops(graph)).long()
    degrees = graph.in_degree.cpu() - loops
    choices = graph.num_sources - int(graph.is_square)
    if bool(((degrees == 0) | (degrees == choices)).all()):
        return f"{words}; none has its in-degrees, so take another graph"
    if keep == "in-degrees":
        return f"{words}; try another seed"
    return f'{words}; keep="in-degrees" draws sources anew, and graph.relabel moves nodes'


def _check_layers(graph: AttentionGraph, keep: str) -> None:
    if keep != "degrees":
        raise GraphError(f'layers needs keep="degrees", got {keep!r}; leave out one of them')
    need_square(graph, "layers")
    # rows of bits of each layer, several times over
    refuse_over(
        graph.num_nodes**2,
        f"reach of {graph.num_nodes:,} nodes",
        "take a subgraph, or leave out layers",
    )


def _swapped(
    graph: AttentionGraph,
    random: np.random.Generator,
    rounds: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Edges after swaps that keep all that :func:`degree_matched_random` keeps by default."""
    if graph.is_square and graph.is_symmetric:
        return _swapped_both_ways(graph, random, rounds)
    return _swapped_one_way(graph, random, rounds, graph.is_square and graph.is_causal)


def _matched_in_reach(
    graph: AttentionGraph,
    layers: int,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Swapped edges, and further swaps until nodes depend on as many others as before.

    Annealing may end too far away: it begins anew from other swaps, a few times.
    """
    from .reach_loops import reach_of, total_of  # numba takes half a second

    N = graph.num_nodes
    edges = np.sort(graph.target.cpu().numpy() * N + graph.source.cpu().numpy())
    ptr, sources = _rows(edges // N, edges % N, N)
    goals = [total_of(reach_of(ptr, sources, layer)) for layer in range(1, layers + 1)]
    totals = []
    left = _WORDS
    for _ in range(_STARTS):
        target, source = _others(graph, _swapped, random)
        if np.array_equal(edges, np.sort(target * N + source)):
            raise GraphError(
                f"no other graph with the degrees of {graph!r} is found by swaps; take "
                'keep="in-degrees", or graph.relabel(torch.randperm(graph.num_nodes))'
            )
        total, left, target, source = _annealed(graph, target, source, goals, left, random)
        if not _is_far(total, goals[-1]):
            return target, source
        totals.append(total)
    nearest = min(totals, key=lambda total: abs(total - goals[-1]))
    raise GraphError(
        f"no graph with the degrees and the reach of {graph!r} is found: in {layers} layers a node "
        f"depends on {goals[-1] / N:.1f} nodes, and on {nearest / N:.1f} after swaps; try another "
        "seed, or graph.relabel(torch.randperm(graph.num_nodes))"
    )


def _annealed(
    graph: AttentionGraph,
    target: np.ndarray,
    source: np.ndarray,
    goals: list[int],
    left: int,
    random: np.random.Generator,
) -> tuple[int, int, np.ndarray, np.ndarray]:
    """Pairs that depend on each other in the last layer, words that are left, and edges.

    ``goals`` are pairs by layer; an attempt may read half of the words that are ``left`` before it.
    """
    from .reach_loops import Cooling, Ends, anneal, reach_of, total_of  # numba takes half a second

    N = graph.num_nodes
    alone = target[target == source]
    ptr, sources = _rows(target, source, N)
    reader_ptr, readers = _rows(source, target, N)
    row = np.repeat(np.arange(N), np.diff(ptr))
    edges = Ends(ptr, sources, reader_ptr, readers, row)
    total = goals[0]
    steps = [(layer, heat) for layer in range(2, len(goals) + 1) for heat in _HEATS]
    for layer, heat in steps:  # a layer that is near enough takes no swap
        if heat == _HEATS[0] and _is_far(total, goals[layer - 2]):
            break
        cooling = Cooling(
            layers=layer,
            goal=goals[layer - 1],
            tolerance=int(_NEAR * goals[layer - 1]),
            tries=_TRIES * len(row),
            most_words=1 + left // 2,
            heat=heat,
            closing=_CLOSE,
        )
        total, words_read = anneal(edges, cooling, graph.is_symmetric, graph.is_causal, random)
        left -= words_read
    total = total_of(reach_of(ptr, sources, len(goals)))
    return total, left, np.concatenate((row, alone)), np.concatenate((sources, alone))


def _is_far(total: int, goal: int) -> bool:
    """True if reach is not matched."""
    return abs(total - goal) > WITHIN * goal


def _rows(
    row: np.ndarray,
    member: np.ndarray,
    rows: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Members by row, without the row itself: where each row begins, and its members."""
    others = row != member
    row = row[others]
    member = member[others]
    ptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows))))
    return ptr, member[np.lexsort((member, row))]


def _listed(
    graph: AttentionGraph,
    target: np.ndarray,
    source: np.ndarray,
    name: str,
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


def _redrawn(
    graph: AttentionGraph,
    random: np.random.Generator,
    rounds: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Uniform sources, of which one round is enough."""
    loops = _loops(graph)
    choices = graph.num_sources - int(graph.is_square)  # a square graph draws from the others
    target, source = _subsets(graph.in_degree.cpu().numpy() - loops, choices, random)
    if graph.is_square:
        source += source >= target
    alone = np.flatnonzero(loops)
    return np.concatenate((target, alone)), np.concatenate((source, alone))


def _subsets(
    sizes: np.ndarray,
    choices: int,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """For every row a uniform subset of ``range(choices)`` of its size, as (row, member)."""
    rows = []
    is_dense = sizes > choices // 8
    members = []
    dense = np.flatnonzero(is_dense & (sizes > 0))
    step = max(1, _CELLS // max(1, choices))
    for first in range(0, len(dense), step):
        chunk = dense[first : first + step]
        order = np.argsort(random.random((len(chunk), choices)), axis=1)
        is_member = np.arange(choices) < sizes[chunk][:, None]
        rows.append(np.repeat(chunk, sizes[chunk]))
        members.append(order[is_member])
    # Numbers are drawn until enough are distinct: the first distinct ones of a series of draws.
    sparse_sizes = np.where(is_dense, 0, sizes)
    chosen = np.empty(0, dtype=np.int64)
    missing = sparse_sizes
    while missing.any():
        row = np.repeat(np.arange(len(sizes)), missing)
        chosen = np.sort(
            np.concatenate((chosen, row * choices + random.integers(0, choices, len(row))))
        )
        chosen = chosen[np.diff(chosen, prepend=-1) > 0]
        missing = sparse_sizes - np.bincount(chosen // choices, minlength=len(sizes))
    rows.append(chosen // max(1, choices))
    members.append(chosen % max(1, choices))
    return np.concatenate(rows), np.concatenate(members)


def _swapped_both_ways(
    graph: AttentionGraph,
    random: np.random.Generator,
    rounds: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Swaps of edges both ways: of ``{a, b}, {c, d}`` either ``{a, d}, {c, b}`` or ``{a, c}, {b, d}``."""
    target, source = (side.cpu().numpy() for side in (graph.target, graph.source))
    alone = target[target == source]
    low = source[source < target]
    high = target[source < target]
    N = max(1, graph.num_nodes)
    for _ in range(rounds):
        turned = random.random(len(low)) < 0.5
        low, high = np.where(turned, high, low), np.where(turned, low, high)
        order = random.permutation(len(low))
        half = _pairs(len(order), rounds, random)
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


def _pairs(edges: int, rounds: int, random: np.random.Generator) -> int:
    """Number of pairs of edges that a round of swaps tries."""
    half = edges // 2
    if rounds > _ROUNDS and half:
        return int(random.integers(1, half + 1))
    return half


def _key(one: np.ndarray, other: np.ndarray, nodes: int) -> np.ndarray:
    """A number for each pair of nodes, whichever stands first."""
    return np.minimum(one, other) * nodes + np.maximum(one, other)


def _swapped_one_way(
    graph: AttentionGraph,
    random: np.random.Generator,
    rounds: int,
    is_causal: bool,
) -> tuple[np.ndarray, np.ndarray]:
    target, source = (side.cpu().numpy() for side in (graph.target, graph.source))
    loop = (target == source) & graph.is_square
    alone = target[loop]
    source = source[~loop]
    target = target[~loop]
    S = max(1, graph.num_sources)
    for _ in range(rounds):
        order = random.permutation(len(target))
        half = _pairs(len(order), rounds, random)
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
    is_repeated = np.append(ascending[1:] == ascending[:-1], [False])[: len(new)]
    is_repeated[1:] |= is_repeated[:-1].copy()
    fresh = np.empty(len(new), dtype=bool)
    fresh[order] = ~is_repeated & (old[np.searchsorted(old[:-1], ascending)] != ascending)
    return fresh
