"""Colour refinement: what no layer along a graph can tell apart."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ..arms import Graphs
from ..comparison import Comparison
from ..data import Data
from ..fitting import scaled
from ..network import Network
from .hashes import mixed

_AT_ONCE = 1 << 21  # edges, in all samples, that are refined together
_MOST = 24  # a number of sources is divisible by 2 at most so often


class Refinement:
    """Colours of what a model of a study reads out along the graphs of an arm.

    Two answers of one colour are one, whatever the weights. At first nodes with the same input, and
    place if it is learned, have one colour. In every layer those keep one that read the same
    colours in the same shares: softmax is a mean, and counts no sources. An edge's class, which
    positions give, is read with its source's colour; with hops or distances on all pairs of nodes
    this is the refinement of GD-WL. But a bias weighs sources, and is not itself read: where the
    classes of what a node reads are independent of the colours, as they are where all have one
    colour, its output is a mean by colours alone. A sample's colour is the distribution of its
    nodes' (readout "mean"), an edge's that of both of its ends.

    Of exp(b_k), b_k the bias of class k, the weight of colour c is a linear form, the sum of
    p(k, c) exp(b_k). The ratios of such forms are equal for all b either if p is, or if the forms
    of each p are multiples of one, so that p(k, c) = q(k) r(c) with equal r. The scores of a
    rotation are no such sums; but no two sources stand at one offset, so that only sources of one
    colour have independent classes.

    Args:
        comparison: With a :class:`Model`.
        graphs: Of an arm; no edge is chosen.
        positions: Of the model.

    Source:
        Weisfeiler and Leman 1968, "The reduction of a graph to canonical form"; Morris et al. 2019,
        "Weisfeiler and Leman Go Neural", and Xu et al. 2019, "How Powerful are Graph Neural
        Networks?" (1-WL bounds messages along edges; what means tell apart); Zhang et al. 2023,
        "Rethinking the Expressive Power of GNNs via Graph Biconnectivity" (GD-WL; 2-WL, the
        folklore one, tells apart what it does, and more: no arm of a study comes to that, as none
        has states of pairs). *What differs:* shares in place of counts, and hashes of 64 bits.
    """

    def __init__(self, comparison: Comparison, graphs: Graphs, positions: str) -> None:
        self.comparison = comparison
        self.positions = positions
        self.graphs = graphs
        self.most_edges = max(graph.num_edges for graph in (graphs.layers or graphs.few().each))
        self.at_once = max(1, _AT_ONCE // max(1, self.most_edges))
        self.pos = scaled(comparison.data)
        model: Any = comparison.model
        with torch.random.fork_rng(devices=[]):
            self.network = Network(
                model, comparison.data, comparison.readout, positions, comparison.token
            )

    def of_answers(self, samples: torch.Tensor) -> np.ndarray:
        """Colours (S,), or (S, N) of nodes and (S, E) of edges that are asked.

        Samples whose answers are settled before the last layer keep the colours of before it: those
        with a colour of which all answers are the same.
        """
        data = self.comparison.data
        nodes = first_colours(data, samples, self.positions)
        result = self._read_out(nodes, samples)
        unsettled = torch.from_numpy(_unsettled(result, data, samples)).nonzero().squeeze(-1)
        if len(unsettled) == 0:
            return result
        for part in unsettled.split(self.at_once):
            chosen = samples[part]
            of_nodes = self._refined(nodes[part.numpy()], chosen)
            result[part.numpy()] = self._read_out(of_nodes, chosen)
        return result

    def _refined(self, colours: np.ndarray, chosen: torch.Tensor) -> np.ndarray:
        """Colours (S, N) after the layers; 0 of padding."""
        from .refinement_loops import refined  # numba takes half a second

        data = self.comparison.data
        layers = self.graphs.layers
        places = torch.arange(data.num_nodes)
        pos, pairs = (None if x is None else x[chosen] for x in (self.pos, data.pairs))
        mask = None
        flat = colours
        if not layers:  # samples with graphs of their own, side by side in one
            layers = (_union([self.graphs.each[i] for i in chosen.tolist()]),)
            mask = torch.from_numpy(_there(data, chosen))
            places = places.expand(mask.shape)[mask]
            flat = colours[mask.numpy()][None]
            if pos is not None:
                pos = pos[mask]
        rows = {}
        for graph in dict.fromkeys(layers):
            rows[graph] = _rows(graph, self._classes(graph, places, pos, mask, pairs))
        if len(layers) == 1:
            layers = layers * self.comparison.model.layers
        for graph in layers:
            flat = refined(flat, *rows[graph])
        if mask is None:
            return flat
        result = np.zeros_like(colours)
        result[mask.numpy()] = flat[0]
        return result

    def _classes(self, graph: Any, places: torch.Tensor, *where: Any) -> np.ndarray:
        """Class of each edge, (E,) or (S, E), as the model's tables or rotations have it."""
        back = (places[graph.target] - places[graph.source]).numpy()
        if self.positions == "rotary":
            return back
        if self.positions == "alibi":
            return np.abs(back)
        if len(self.network.tables):
            with torch.no_grad():
                return self.network._values(graph, places, *where).numpy()
        return np.zeros(len(graph.source), dtype=np.int64)

    def _read_out(self, colours: np.ndarray, samples: torch.Tensor) -> np.ndarray:
        """Colours of what is read out of nodes (S, N)."""
        readout = self.comparison.readout
        if readout == "mean":
            return _means(colours, _there(self.comparison.data, samples))
        if readout == "token":
            return colours[:, self.comparison.token].copy()
        if readout == "node":
            return colours.copy()
        edges: Any = self.comparison.data.asked_edges
        ends = edges[samples].numpy()
        target = np.take_along_axis(colours, ends[..., 0], 1)
        source = np.take_along_axis(colours, ends[..., 1], 1)
        return mixed(mixed(target) + source)


@dataclass(frozen=True, eq=False)
class _Union:
    """Graphs side by side: edges alone, as a graph of thousands takes time to make."""

    source: torch.Tensor
    target: torch.Tensor
    num_targets: int


def _union(graphs: list[Any]) -> _Union:
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


def _means(colours: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The colour of the distribution of each sample's nodes."""
    shares = _shares(mask.sum(-1))
    first = mixed(colours) * mask
    second = mixed(mixed(colours) + np.uint64(1)) * mask
    sums = [part.sum(-1, dtype=np.uint64) * shares for part in (first, second)]
    return mixed(mixed(sums[0]) + sums[1])


def _there(data: Data, samples: torch.Tensor) -> np.ndarray:
    """True for nodes that are no padding, (S, N)."""
    if data.sizes is None:
        return np.ones((len(samples), data.num_nodes), dtype=bool)
    return (torch.arange(data.num_nodes) < data.sizes[samples].unsqueeze(-1)).numpy()


def first_colours(data: Data, samples: torch.Tensor, positions: str = "none") -> np.ndarray:
    """Colours of nodes (S, N) by their inputs, and places where they are learned; 0 of padding."""
    inputs = data.inputs[samples].numpy()
    colours = codes_of(inputs.reshape(inputs.shape[0] * inputs.shape[1], -1))
    colours = colours.reshape(inputs.shape[:2])
    if positions == "learned":
        # a token has the hash of its number, too: token 1 at place 0 is not token 0 at place 1
        colours = mixed(mixed(colours) + mixed(np.arange(data.num_nodes, dtype=np.uint64)))
    return colours * _there(data, samples)


def _unsettled(colours: np.ndarray, data: Data, samples: torch.Tensor) -> np.ndarray:
    """True for samples with a colour of which answers differ, (S,)."""
    is_asked = data.asked[samples].numpy()
    targets = codes_of(data.targets[samples].numpy()[is_asked])
    _, colour = np.unique(colours[is_asked], return_inverse=True)
    least = np.full(len(is_asked.ravel()), np.iinfo(np.uint64).max, dtype=np.uint64)
    most = np.zeros_like(least)
    np.minimum.at(least, colour, targets)
    np.maximum.at(most, colour, targets)
    result = np.zeros(is_asked.shape, dtype=bool)
    result[is_asked] = (least < most)[colour]
    return result.reshape(len(samples), -1).max(1)


def codes_of(values: np.ndarray) -> np.ndarray:
    """A number for each row (R,) or (R, K), equal where the rows are."""
    from .refinement_loops import of_rows  # as above

    if values.dtype.kind == "f":
        values = values + values.dtype.type(0)  # -0 is 0
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    return of_rows(bits.reshape(len(bits), -1))
