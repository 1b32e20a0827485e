"""Colour refinement: what no layer along a graph can tell apart."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

_MOST = 24  # a number of sources is divisible by 2 at most so often
STEP, FIRST, SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


def colours(
    inputs: torch.Tensor,
    graphs: Any,
    layers: int | None = None,
    *,
    readout: str = "node",
    token: int = 0,
) -> np.ndarray:
    """Colours of what a model reads out along graphs: two answers of one colour are one.

    At first nodes with the same input have one colour. In every layer those keep one that read the
    same colours in the same shares: softmax is a mean, and counts no sources. No weights, width or
    training tells apart what has one colour; places that a model learns must be in the inputs.

    Args:
        inputs: Tokens (M, N), or features (M, N, F).
        graphs: One graph of all samples, a list of one for each layer, or a tuple of one for each
            sample (of N nodes).
        layers: Number of layers; of a list its length.
        readout: "node"; "mean" of the nodes, or "token".
        token: Which node, of "token".
    Returns:
        uint64 (M, N) of nodes, (M,) of samples.
    Source:
        Weisfeiler and Leman 1968, "The reduction of a graph to canonical form"; Morris et al. 2019,
        "Weisfeiler and Leman Go Neural", and Xu et al. 2019, "How Powerful are Graph Neural
        Networks?" (1-WL bounds messages along edges; what means tell apart); Zhang et al. 2023,
        "Rethinking the Expressive Power of GNNs via Graph Biconnectivity" (GD-WL; 2-WL, the
        folklore one, tells apart what it does, and more). *What differs:* shares in place of
        counts, and hashes of 64 bits.
    Example:
        >>> from graphattn.graphs import circulant
        >>> ring = circulant(6, (1, 5)).with_self_loops()
        >>> len(set(colours(torch.tensor([[0, 0, 0, 1, 0, 0]]), ring, 1)[0].tolist()))
        3
    """
    values = inputs.numpy()
    first = codes_of(values.reshape(values.shape[0] * values.shape[1], -1))
    stack = list(graphs) if isinstance(graphs, list) else [graphs] * (layers or 1)
    first = first.reshape(values.shape[:2])
    if isinstance(graphs, tuple):
        stack = [union(graphs)] * (layers or 1)
        nodes = refine(first.reshape(1, -1), stack).reshape(first.shape)
    else:
        nodes = refine(first, stack)
    if readout == "mean":
        return means(nodes, np.ones(nodes.shape, dtype=bool))
    return nodes[:, token].copy() if readout == "token" else nodes


def refine(
    nodes: np.ndarray,
    graphs: Sequence[Any],
    classes: Callable[[Any], np.ndarray] | None = None,
) -> np.ndarray:
    """Colours (S, N) after a layer along each of the graphs.

    An edge's class, which positions give, is read with its source's colour; with hops or distances
    on all pairs of nodes this is the refinement of GD-WL. But a bias weighs sources, and is not
    itself read: where the classes of what a node reads are independent of the colours, as they are
    where all have one colour, its output is a mean by colours alone.

    Of exp(b_k), b_k the bias of class k, the weight of colour c is a linear form, the sum of
    p(k, c) exp(b_k). The ratios of such forms are equal for all b either if p is, or if the forms
    of each p are multiples of one, so that p(k, c) = q(k) r(c) with equal r. The scores of a
    rotation are no such sums; but no two sources stand at one offset, so that only sources of one
    colour have independent classes.

    Args:
        nodes: uint64 (S, N).
        graphs: One for each layer.
        classes: Of a graph the class of each edge, (E,) or (S, E); one class by default.
    """
    from .loops import refined  # numba takes half a second

    rows = {}
    for graph in dict.fromkeys(graphs):
        of_edges = np.zeros(len(graph.source), dtype=np.int64)
        if classes is not None:
            of_edges = classes(graph)
        rows[graph] = _rows(graph, of_edges)
    for graph in graphs:
        nodes = refined(nodes, *rows[graph])
    return nodes


def mixed(values: np.ndarray) -> np.ndarray:
    """A hash of each number: the finaliser of splitmix64."""
    x = values + STEP
    x = (x ^ (x >> np.uint64(30))) * FIRST
    x = (x ^ (x >> np.uint64(27))) * SECOND
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class _Union:
    """Graphs side by side: edges alone, as a graph of thousands takes time to make."""

    source: torch.Tensor
    target: torch.Tensor
    num_targets: int


def union(graphs: Sequence[Any]) -> _Union:
    nodes = 0
    sources = []
    targets = []
    for graph in graphs:
        sources.append(graph.source + nodes)
        targets.append(graph.target + nodes)
        nodes += graph.num_targets
    return _Union(torch.cat(sources), torch.cat(targets), nodes)


class _EdgesByTarget(NamedTuple):
    """The edges of a graph by target, as the compiled loop takes them."""

    source: np.ndarray
    starts: np.ndarray
    classes: np.ndarray
    shares: np.ndarray


def _rows(graph: Any, classes: np.ndarray) -> _EdgesByTarget:
    source = graph.source.numpy()
    target = graph.target.numpy()
    classes = np.atleast_2d(classes)
    if np.any(target[1:] < target[:-1]):
        order = np.argsort(target, kind="stable")
        source = source[order]
        classes = classes[:, order]
    degrees = np.bincount(target, minlength=graph.num_targets)
    starts = np.concatenate(([0], np.cumsum(degrees)))
    return _EdgesByTarget(
        np.ascontiguousarray(source), starts, np.ascontiguousarray(classes), _shares(degrees)
    )


def _shares(counts: np.ndarray) -> np.ndarray:
    """Factors of sums of so many hashes, after which those of equal distributions are equal.

    A number has an inverse modulo 2^64 if it is odd, so that 2^24 / n, and not 1 / n, is what a sum
    is multiplied by: its upper 40 bits or more stay apart.
    """
    rest = np.maximum(counts, 1).astype(np.uint64)
    powers = np.full(len(rest), _MOST, dtype=np.uint64)
    for _ in range(_MOST):
        even = rest % np.uint64(2) == 0
        rest = np.where(even, rest // np.uint64(2), rest)
        powers -= even.astype(np.uint64)
    inverse = rest
    for _ in range(6):  # Newton's; right bits double
        inverse = inverse * (np.uint64(2) - rest * inverse)
    return inverse << powers


def means(colours: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The colour of the distribution of each sample's nodes."""
    shares = _shares(mask.sum(-1))
    first = mixed(colours) * mask
    second = mixed(mixed(colours) + np.uint64(1)) * mask
    sums = [part.sum(-1, dtype=np.uint64) * shares for part in (first, second)]
    return mixed(mixed(sums[0]) + sums[1])


def codes_of(values: np.ndarray) -> np.ndarray:
    """A number for each row (R,) or (R, K), equal where the rows are."""
    from .loops import of_rows  # numba takes half a second

    if values.dtype.kind == "f":
        values = values + values.dtype.type(0)  # -0 is 0
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    return of_rows(bits.reshape(len(bits), -1))
