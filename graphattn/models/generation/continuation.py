"""A growing sequence: a model, its caches, and the graphs of its next tokens."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...analysis.paths.leaks import leaks
from ...arguments import check_finite, several, whole
from ...convert import from_mask
from ...errors import GraphAttnError, GraphError, ShapeError
from ...graph import AttentionGraph, PerExample, PerHead
from ...graph.kinds.layers import Layer, Layers, layers_of, number_of_examples
from ...graph.like import GraphLike
from ...graph.modes import lru_cache
from ...graph.runs import row_lengths
from ...graphs import cross
from ...nn import KeyValueCache
from ...plans.whole import all_runs

_LISTED = 1 << 20  # limit of the pairs of targets and sources that are tested one by one


class Continuation:
    """A model on a sequence that grows to a known length, computing each token once.

    The graph of the whole sequence is fixed at the start. New tokens are its next targets, which
    read the keys and values of those so far: a bipartite graph,
    ``graph.subgraph(targets=new, sources=held)``, of T new targets and S past and new sources, one
    row if one token is written. Sources that no later target reads are dropped: a layer on a window
    holds a window.

    Args:
        model: Has a ``graph`` for its layers; ``begin(batch, length)``, which returns a list of
            caches that can be reordered (those of the layers first, if they are
            :class:`~graphattn.nn.KeyValueCache`); and steps:
            ``model(tokens, graphs, caches=caches)`` returns the logits (B, n, V) after n further
            tokens.
        graph: The graph of the whole sequence: one for all layers or a list; the model's own by
            default. A larger graph is cut to its first nodes; a pattern is sized.
        prompt: Number of tokens at the start; they may read each other in any direction.
        length: Number of tokens at the end.
        batch: Number of sequences.

    Raises:
        GraphError: If the graph is too small, or a token depends on one that is not written when it
            is computed; the message names the shortest way.

    Example:
        >>> import graphattn as ga
        >>> model = ga.models.GPT.gpt2(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2).eval()
        >>> tokens, graph = torch.randint(11, (3, 7)), ga.graphs.sliding_window(..., 3, causal=True)
        >>> write = Continuation(model, graph, prompt=4, length=7)
        >>> prompt = write(tokens[:, :4])
        >>> print(write.rows(2)[0])  # two new targets; two sources in the cache, and the new ones
        AttentionGraph(rows of sliding_window(7, 3, causal=True): 4 sources -> 2 targets, 6 edges, density 0.75, listed)
        █ █ █ ·
        · █ █ █
        >>> logits = torch.cat((prompt, write(tokens[:, 4:6]), write(tokens[:, 6:])), 1)
        >>> torch.allclose(logits, model(tokens, graph), atol=1e-6)
        True
    """

    def __init__(
        self, model: Any, graph: Layers | None, prompt: int, length: int, batch: int = 1
    ) -> None:
        self.model = model
        self.length = length
        self.written = 0
        self.layers = graphs_of_layers(model, graph, prompt, length)
        self.caches = model.begin(batch, length)
        pairs = list(zip(self.layers, self.caches, strict=False))
        if all(isinstance(cache, KeyValueCache) for _, cache in pairs):
            self.cached_layers = pairs
        else:
            self.cached_layers = []
        self.reads = {id(layer): reads_of(layer, length) for layer, _ in self.cached_layers}

    def rows(self, number: int, device: torch.device | str = "cpu") -> list[Any]:
        """The graph of each layer from held and new tokens to the next ``number`` tokens."""
        last = self.written + number
        if last > self.length:
            raise ShapeError(
                f"{self.written} of {self.length} tokens are written; {number} more do not fit"
            )
        layers_by_id = {id(layer): layer for layer in self.layers}
        steps = {
            name: self._rows(layer, range(self.written, last), device)
            for name, layer in layers_by_id.items()
        }
        return [steps[id(layer)] for layer in self.layers]

    def _rows(
        self, layer: Any, targets: range, device: torch.device | str
    ) -> AttentionGraph | PerHead:
        reads = self.reads.get(id(layer))
        if reads is None:
            first = 0
        else:
            first = reads.first[targets.start]
        if reads is not None and len(targets) == 1 and reads.all[targets.start]:
            return every(1, targets.stop - first, torch.device(device))
        return rows(layer, targets, range(first, targets.stop), device)

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits (B, n, V) of the tokens that follow ``tokens`` (B, n) in the sequence."""
        number = tokens.shape[-1]
        graphs = self.rows(number, tokens.device)
        for layer, cache in self.cached_layers:
            first = self.reads[id(layer)].first[self.written]
            if first > cache.dropped:
                cache.drop(first)
        logits = self.model(tokens, graphs, caches=self.caches)
        self.written += number
        return logits

    def following(self, tokens: Tensor, eos: int | None) -> Tensor:
        """Logits (B, V) of the next token, float32 or wider; refuse NaN and infinity."""
        logits = self(tokens)[:, -1]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        most = logits.amax(-1)
        check_finite(
            most,
            f"the largest logits of sequences after token {self.written - 1}",
            "; look for NaN or inf in the model's parameters",
            GraphAttnError,
        )
        if eos is not None:
            whole(eos, "eos", 0, below=logits.shape[-1], of=", the number of logits")
        return logits

    def reorder(self, batch: Tensor) -> None:
        """Select the sequences ``batch`` (int64 (B',)) of the first dimension, in that order."""
        for cache in self.caches:
            cache.reorder(batch)


def graphs_of_layers(model: Any, graph: Layers | None, prompt: int, length: int) -> tuple[Any, ...]:
    """The graph of each layer for tokens written one by one after a prompt, or a leak's error."""
    graphs = _per_layer(model.graph, graph)
    sized = {id(layer): _whole(layer, length) for layer in graphs}
    layers = layers_of([sized[id(layer)] for layer in graphs], len(model.graph))
    for layer in layers:
        if isinstance(layer, PerExample):
            raise GraphError(
                f"a Continuation takes one graph for all its sequences, got {layer!r}; pass one of "
                "its .graphs, or call generate"
            )
    refuse_leaks(
        [layer._map_graphs(lambda graph: first_nodes(graph, length)) for layer in layers],
        prompt,
        length,
    )
    return layers


def refuse_leaks(layers: Layers, prompt: int, length: int) -> None:
    """Refuse graphs in which a token depends on one that is written after it is computed."""
    place = (torch.arange(length) - prompt + 1).clamp(min=0)  # the prompt is written at once
    leak = leaks(layers, place)
    if leak:
        raise GraphError(
            f"a token would depend on one that is not written yet (tokens {prompt} to {length - 1} "
            f"are written one by one; the prompt at once):\n{leak}\nRemove edges from later "
            "sources, as graph & causal(...) does, or make the prompt longer"
        )


def _per_layer(defaults: Any, graph: Layers | None) -> list[Any]:
    """The graph of each layer as it came, or the model's own."""
    if graph is None:
        graph = defaults
    if isinstance(graph, Layer) or not isinstance(graph, Iterable):
        return [graph] * len(defaults)
    return several(graph, "graph", "must be a graph, or one for each layer")


def graphs_of_sequences(defaults: Any, graph: Layers | None) -> list[list[Any]]:
    """The graphs of the layers for each sequence of a batch; one entry if all share them.

    Raises:
        GraphError: If two layers have other numbers of examples.
    """
    graphs = _per_layer(defaults, graph)
    columns = []
    for example in range(number_of_examples(graphs)):
        column = []
        for layer in graphs:
            if isinstance(layer, PerExample):
                layer = layer.graphs[example]
            column.append(layer)
        columns.append(column)
    return columns


def _whole(layer: Any, length: int) -> Any:
    if not isinstance(layer, GraphLike):
        return layer  # for layers_of to refuse
    return layer.at(length)._map_graphs(lambda graph: _large_enough(graph, length))


def _large_enough(graph: Any, length: int) -> Any:
    if not graph._is_fixed:
        return graph
    if not graph.is_square or graph.num_nodes < length:
        raise GraphError(
            f"the graph must have at least {length} nodes, one for each token of prompt and "
            f"answer, got {graph!r}; a pattern, made with ... for its size, fits any length"
        )
    return graph


def first_nodes(graph: AttentionGraph, length: int) -> AttentionGraph:
    """The graph between its first nodes."""
    if graph.num_nodes == length:
        return graph
    return graph.subgraph(range(length))


class Reads(NamedTuple):
    """The sources of each target of a sequence and of those after it."""

    first: list[int]
    """The first source that it or a later target reads, or itself."""
    all: list[bool]
    """True if it reads all sources from that one up to itself, each once."""


def reads_of(layer: AttentionGraph | PerHead, length: int) -> Reads:
    """The sources of each of the first ``length`` targets, in any head."""
    heads = dict.fromkeys(layer.of_heads)
    firsts, alls = zip(*(_reads_of(graph, length) for graph in heads), strict=True)
    first = torch.stack(firsts).amin(0)
    every = torch.stack(
        [
            is_interval & (head_first == first)
            for head_first, is_interval in zip(firsts, alls, strict=True)
        ]
    ).all(0)
    return Reads(first.tolist(), every.tolist())


def _reads_of(graph: AttentionGraph, length: int) -> tuple[Tensor, Tensor]:
    node = torch.arange(length)
    runs = all_runs(graph)
    if runs is None:
        return torch.zeros_like(node), torch.zeros_like(node, dtype=torch.bool)
    every = torch.arange(graph.num_targets)
    lowest = every.scatter_reduce(0, runs.row, runs.lo, "amin")[:length]
    end = (every + 1).scatter_reduce(0, runs.row, runs.hi, "amax")[:length]
    first = lowest.flip(0).cummin(0).values.flip(0)
    degree = row_lengths(runs, graph.num_targets)[:length]
    is_interval = (degree == node + 1 - first) & (end == node + 1)
    return first, is_interval & (not graph.has_repeated_edges)


@lru_cache(1024)
def every(num_targets: int, num_sources: int, device: torch.device) -> AttentionGraph:
    """All pairs; cached, with its plans, since most steps are of this kind."""
    return cross(num_targets, num_sources).to(device)


def rows(
    layer: AttentionGraph | PerHead, targets: range, sources: range, device: torch.device | str
) -> AttentionGraph | PerHead:
    """The graph from some sources to some targets; a few rows of a rule are listed, for speed."""
    return layer._map_graphs(lambda graph: _rows_of_one(graph, targets, sources, device))


def _rows_of_one(
    graph: AttentionGraph, targets: range, sources: range, device: torch.device | str
) -> AttentionGraph:
    if len(targets) * len(sources) > _LISTED or graph.has_repeated_edges:
        return graph.subgraph(targets=targets, sources=sources).to(device)
    node = partial(torch.arange, device=graph.device)
    mask = graph.contains(
        node(targets.start, targets.stop)[:, None], node(sources.start, sources.stop)
    )
    if bool(mask.all()):
        return every(len(targets), len(sources), torch.device(device))
    return replace(from_mask(mask).to(device), name=f"rows of {graph.name}")
