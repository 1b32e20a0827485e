"""Ceilings by colour refinement: what no layer can tell apart has one answer."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from .arms import Graphs
from .comparison import Comparison
from .data import NOT_ASKED
from .fitting import Reading
from .metrics import CLASSES
from .network import Model, Network
from .own import CustomModel

_VISITS = 1 << 24  # of edges, in all samples of a layer, that are refined
_AT_ONCE = 1 << 21
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def ceilings(comparison: Comparison, graphs: Graphs) -> dict[str, float]:
    """The largest share of answers that can be right, by positions, where it is below 1.

    Attention along a graph gives nodes of one colour one state: those with the same input (and
    place, if it is learned) whose sources have the same colours, edge class by edge class, in every
    layer before. So a node is named at most by the most frequent answer of its colour, and a sample
    by that of its colours together (readout "mean"). With positions "pairs" an edge's class is that
    of its pair.

    None of edges that are chosen, nor of a user's module, which is given places and may read them,
    nor of answers about pairs of nodes, or that are no classes.

    Source:
        Weisfeiler and Leman 1968, "The reduction of a graph to canonical form"; Xu et al. 2019,
        "How Powerful are Graph Neural Networks?" (the bound). Colours are sums of hashes of 64
        bits, so that two differ with a probability of 1 - 2^-64.
    """
    if isinstance(comparison.model, CustomModel) or graphs.chooses:
        return {}
    if comparison.data.kind != CLASSES or comparison.readout == "edge":
        return {}
    found = {}
    for positions in comparison.positions:
        share = _share(comparison, graphs, positions)
        if share < 1:
            found[positions] = share
    return found


def _share(comparison: Comparison, graphs: Graphs, positions: str) -> float:
    """The share of answers that are the most frequent ones of their colours."""
    codes = []
    answers = []
    for of_samples, targets in _colours(comparison, graphs, positions):
        asked = targets != NOT_ASKED
        codes.append(of_samples[asked])
        answers.append(targets[asked])
    answer = np.concatenate(answers)
    _, colour = np.unique(np.concatenate(codes), return_inverse=True)
    pairs, counts = np.unique(np.stack((colour, answer)), axis=1, return_counts=True)
    most = np.zeros(int(colour.max()) + 1, dtype=np.int64)
    np.maximum.at(most, pairs[0], counts)
    return float(most.sum() / len(answer))


def _colours(
    comparison: Comparison, graphs: Graphs, positions: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Colours of what is read out, and the targets, of some samples at a time."""
    data = comparison.data
    assert isinstance(comparison.model, Model)
    with torch.random.fork_rng(devices=[]):
        network = Network(comparison.model, data, comparison.readout, positions, comparison.token)
    read = Reading(data, graphs)
    edges = max(graph.num_edges for graph in (graphs.layers or graphs.few().each))
    count = min(len(data), max(1, _VISITS // max(1, edges)))
    for chosen in torch.arange(count).split(max(1, _AT_ONCE // max(1, edges))):
        of_nodes = _refined(comparison, network, read, chosen, positions)
        if comparison.readout == "mean":
            colours = of_nodes.sum(-1, dtype=np.uint64)
        elif comparison.readout == "token":
            colours = of_nodes[:, comparison.token]
        else:
            colours = of_nodes
        yield colours, data.targets[chosen].numpy()


def _refined(
    comparison: Comparison, network: Any, read: Reading, chosen: torch.Tensor, positions: str
) -> np.ndarray:
    """Colours (samples, nodes) after all layers; 0 of padding."""
    layers, places, pos, kept, pairs, _ = read.given(chosen)
    inputs = comparison.data.inputs[chosen].numpy()
    if inputs.ndim == 2:
        inputs = inputs[..., None]
    colours = np.zeros(inputs.shape[:2], dtype=np.uint64)
    for column in np.moveaxis(inputs, -1, 0):
        colours = _mixed(colours + _bits(column))
    if positions == "learned":
        colours = _mixed(colours + _mixed(places.numpy().astype(np.uint64)))
    if len(layers) == 1:
        layers = layers * comparison.model.layers
    at = places
    flat = colours
    if kept is not None:  # samples with graphs of their own, side by side in one
        at = places.expand(kept.shape)[kept]
        flat = colours[kept.numpy()][None]
        pos = _of_kept(pos, kept)
    for graph in layers:
        classes = _classes(network, graph, at, pos, kept, pairs, positions)
        flat = _round(flat, graph, classes)
    if kept is None:
        return flat
    result = np.zeros_like(colours)
    result[kept.numpy()] = flat[0]
    return result


def _of_kept(values: torch.Tensor | None, kept: torch.Tensor) -> torch.Tensor | None:
    if values is None:
        return None
    return values[kept]


def _classes(network: Any, graph: Any, at: torch.Tensor, *rest: Any) -> np.ndarray:
    """Class of each edge, (E,) or (samples, E), as the model's tables or rotations have it."""
    *where, positions = rest
    if positions in ("rotary", "alibi"):
        return (at[graph.target] - at[graph.source]).numpy()
    if len(network.tables):
        with torch.no_grad():
            return network._values(graph, at, *where).numpy()
    return np.zeros(graph.num_edges, dtype=np.int64)


def _round(colours: np.ndarray, graph: Any, classes: np.ndarray) -> np.ndarray:
    """Each node's colour with the multiset of its edges' classes and their sources' colours."""
    source = graph.source.numpy()
    target = graph.target.numpy()
    order = np.argsort(target, kind="stable")
    of_edges = classes[..., order].astype(np.uint64)
    messages = _mixed(colours[:, source[order]] + _mixed(of_edges + np.uint64(1)))
    before = np.zeros((len(colours), 1), dtype=np.uint64)
    sums = np.concatenate((before, np.cumsum(messages, axis=1, dtype=np.uint64)), axis=1)
    ends = np.searchsorted(target[order], np.arange(graph.num_targets + 1))
    return _mixed(_mixed(colours) + sums[:, ends[1:]] - sums[:, ends[:-1]])


def _bits(values: np.ndarray) -> np.ndarray:
    """Numbers as integers of 64 bits, equal where the numbers are."""
    if values.dtype.kind == "f":
        return (values.astype(np.float64) + 0.0).view(np.uint64)  # -0 is 0
    return values.astype(np.uint64)


def _mixed(values: np.ndarray) -> np.ndarray:
    """A hash of each number: the finaliser of splitmix64."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))
