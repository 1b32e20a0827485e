"""Random graphs, the same for the same seed."""

import numpy as np
import torch
from torch import Tensor

from ...graph import AttentionGraph, need_nodes
from ...graph import runs as _runs
from ...graph.algebra import complement
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.edges import Edges, PairTest
from ...graph.forms import band, of_function
from ...graph.limits import refuse_over
from ...graph.listed import listed as edges_of_list
from ..arguments import call, seeded, whole
from ..arguments import probability as checked_probability

_DRAWN_BYTES = 96  # per edge, during the draw


@sizable
@builder
def random_neighbours(
    num_targets: int,
    k: int,
    seed: int = 0,
    *,
    num_sources: int | None = None,
    avoid: AttentionGraph | None = None,
) -> AttentionGraph:
    r"""Every target reads ``k`` distinct sources drawn at random.

    Args:
        num_targets: T.
        k: Sources of every target.
        seed: The same seed gives the same graph.
        num_sources: S; T by default.
        avoid: Draw only edges that this graph lacks; a target that lacks fewer than ``k`` gets all
            of them. By default any source may be drawn, the target itself included.
    Returns:
        Listed edges by target, then by source.
    Raises:
        GraphError: If ``k`` exceeds S, or ``avoid`` has other nodes.
    Source:
        Zaheer et al. 2020 (BigBird), section 2: r random keys for each query, there between blocks
        (:func:`~graphattn.graphs.block_sparse`), beside a window and global blocks that the draw
        avoids. The draw is Floyd's (Bentley 1987, "A Sample of Brilliance"), without T x S. *What
        differs:* BigBird's code, and Hugging Face's after it, draws from the first blocks alone:
        of 2 r + 5, or of 1,024 tokens where the text has 1,024, 3,072 or 4,096.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> random_neighbours(100, 3, avoid=sliding_window(100, 9, causal=False)).num_edges
        300
    """
    T = whole(num_targets, "num_targets")
    k = whole(k, "k")
    seed = whole(seed, "seed")
    if num_sources is None:
        S = T
    else:
        S = whole(num_sources, "num_sources")
    if avoid is None and T > 0:
        whole(k, "k", below=S + 1, of=", one more than the sources")
    refuse_over(
        _DRAWN_BYTES * T * min(k, S),
        f"random_neighbours of {T:,} x {min(k, S):,} edges",
        "draw fewer",
    )
    free = _free(T, S, avoid)
    rank, sources = _draw(_runs.row_lengths(free, T), min(k, S), seed)
    target, column = torch.nonzero(sources, as_tuple=True)
    source = _at(free, T, target, rank[target, column])
    shown = None
    if avoid is not None:
        shown = f"<{avoid.name}>"
    name = call("random_neighbours", *seeded(seed, T, k), num_sources=num_sources, avoid=shown)
    return AttentionGraph(edges_of_list(target, source, T, S), name)


def _free(T: int, S: int, avoid: AttentionGraph | None) -> _runs.Runs:
    """The sources that each target may draw."""
    edges = band(T, S)
    if avoid is not None:
        need_nodes(avoid, "avoid", T, S)
        edges = complement(avoid.edges)
    row, lo, hi = edges.rows(torch.arange(T))
    keep = hi > lo
    return _runs.Runs(row[keep], lo[keep], hi[keep])


def _draw(lengths: Tensor, k: int, seed: int) -> tuple[Tensor, Tensor]:
    """Up to ``k`` distinct numbers below each length, ascending, and a mask: both (T, k)."""
    random = np.random.default_rng(seed)
    length = lengths.numpy()
    drawn = np.full((len(length), k), np.iinfo(np.int64).max)
    few = np.minimum(k, length)
    for i in range(k):  # a repeated number is replaced by the highest one that this draw allows
        top = length - few + i
        number = random.integers(0, np.where(i < few, top + 1, 1))
        again = (drawn[:, :i] == number[:, None]).any(1)
        drawn[:, i] = np.where(i < few, np.where(again, top, number), drawn[:, i])
    drawn.sort(axis=1)
    return torch.from_numpy(drawn), torch.arange(k) < torch.from_numpy(few)[:, None]


def _at(runs: _runs.Runs, num_rows: int, row: Tensor, rank: Tensor) -> Tensor:
    """The ``rank``-th source of each row."""
    lengths = runs.hi - runs.lo
    of_row = _runs.row_lengths(runs, num_rows)
    start = lengths.cumsum(0) - lengths
    first = of_row.cumsum(0) - of_row
    place = first[row] + rank
    run = torch.searchsorted(start, place, right=True) - 1
    return runs.lo[run] + place - start[run]


@sizable
@builder
def erdos_renyi(
    num_targets: int,
    probability: float,
    seed: int = 0,
    *,
    num_sources: int | None = None,
    listed: bool = True,
) -> AttentionGraph:
    r"""Every pair is an edge with the same probability, independently; self-loops, too.

    Args:
        num_targets: T.
        probability: Probability of each edge, in [0, 1].
        seed: The same seed gives the same graph.
        num_sources: S; T by default.
        listed: List the edges, at a cost proportional to their number. ``False`` gives a rule, a
            different draw, which decides each pair by a hash and stores nothing, at a cost of T * S
            whenever all edges are needed.
    Returns:
        Listed edges by target, then by source, or a rule.
    Raises:
        GraphError: If ``probability`` is outside [0, 1].
    Source:
        Gilbert 1959, "Random graphs"; the expected graph is that of
        ``networkx.gnp_random_graph(directed=True)``. *What differs:* networkx draws no self-loops:
        ``without_self_loops()``. The gaps between edges are drawn as in Batagelj and Brandes 2005,
        "Efficient generation of large random networks".
    Example:
        >>> graph = erdos_renyi(1000, 0.01)
        >>> 9_000 < graph.num_edges < 11_000
        True
        >>> erdos_renyi(1_000_000, 0.5, listed=False).is_rule
        True
    """
    T = whole(num_targets, "num_targets")
    seed = whole(seed, "seed")
    if num_sources is None:
        S = T
    else:
        S = whole(num_sources, "num_sources")
    probability = checked_probability(probability, "probability")
    if listed:
        refuse_over(
            int(48 * T * S * probability), f"erdos_renyi of {T:,} x {S:,} pairs", "use listed=False"
        )
        place = _places(T * S, probability, np.random.default_rng(seed))
        edges: Edges = edges_of_list(place // max(1, S), place % max(1, S), T, S)
    else:
        edges = of_function(T, S, _drawn(float(probability), seed))
    name = call(
        "erdos_renyi", *seeded(seed, T, probability), num_sources=num_sources, listed=listed
    )
    return AttentionGraph(edges, name)


_MASK = (1 << 64) - 1


def _signed(number: int) -> int:
    return (number & _MASK) - (1 << 64) * ((number & _MASK) >> 63)


def _mixed(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 on int64; ``>>`` copies the sign, which is masked away."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def _drawn(probability: float, seed: int) -> PairTest:
    """Every pair with the same probability, by a hash of the pair: the same on every device.

    Source: Steele et al. 2014, "Fast splittable pseudorandom number generators" (SplitMix64), for
    the hash.
    """

    threshold = int(probability * (1 << 53))

    def test(target: Tensor, source: Tensor) -> Tensor:
        golden = _signed(0x9E3779B97F4A7C15)
        key = _mixed(_mixed(torch.tensor(seed, device=target.device) + golden) + target * golden)
        key = _mixed(key + source * golden + golden)
        return (key >> 11) & ((1 << 53) - 1) < threshold

    return test


def _places(total: int, probability: float, random: np.random.Generator) -> Tensor:
    """A sample of ``range(total)``, each with the same probability, ascending."""
    if 0 in (probability, total):
        return torch.empty(0, dtype=torch.int64)
    parts = []
    last = -1
    while True:
        few = int((total - last) * probability * 1.05) + 16
        place = last + np.cumsum(random.geometric(probability, few))
        # a sum that overflows int64 is negative
        beyond = np.flatnonzero((place < 0) | (place >= total))
        if beyond.size:
            parts.append(place[: beyond[0]])
            return torch.from_numpy(np.concatenate(parts))
        parts.append(place)
        last = int(place[-1])
