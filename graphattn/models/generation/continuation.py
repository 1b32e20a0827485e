"""A sequence that grows: a model, what it has computed so far, and the graph of what it reads next."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph, Pattern, PerHead, Schedule
from ...graph.schedule import Layer
from ...nn import KeyValueCache
from ...questions import leaks
from ..stacks import Graphs


class Continuation:
    """A model on a sequence that grows to a known length, computing each token once.

    The graph of the whole sequence is fixed at the start. New tokens are its next targets, which read the keys and
    values of all so far: a bipartite graph, ``graph.subgraph(targets=new, sources=all_so_far)``.

    Args:
        model: Tokens (B, n), a list of graphs and ``caches=`` to logits (B, n, V); it says its ``num_layers``.
        graph: Of the whole sequence: one for all layers or a schedule. A larger graph is cut to its first nodes; a
            pattern is sized.
        prompt: Tokens that are there at the start; they may read each other in any direction.
        length: Tokens at the end.

    Raises:
        GraphError: If the graph is too small, or a token hears of one that is not written when it is computed; the
            message names the shortest way.

    Example:
        >>> import graphattn as ga
        >>> model = ga.models.gpt2(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2).eval()
        >>> tokens, graph = torch.randint(11, (3, 7)), ga.graphs.sliding_window(..., 3)
        >>> continuation = Continuation(model, graph, prompt=4, length=7)
        >>> steps = [continuation(tokens[:, :4]), continuation(tokens[:, 4:5]), continuation(tokens[:, 5:])]
        >>> torch.allclose(torch.cat(steps, 1), model(tokens, graph), atol=1e-6)
        True
    """

    def __init__(self, model: Any, graph: Graphs, prompt: int, length: int) -> None:
        self.model = model
        given = [graph] * model.num_layers if isinstance(graph, Layer) else list(graph)
        whole = {id(layer): _whole(layer, length) for layer in given}
        self.layers = Schedule.of([whole[id(layer)] for layer in given], model.num_layers)
        place = (torch.arange(length) - prompt + 1).clamp(min=0)  # the prompt is there at once
        found = leaks(self.layers, place)
        if found:
            raise GraphError(
                f"a token would hear of one that is not written yet (tokens {prompt} to {length - 1} are written one "
                f"by one; the prompt is there at once):\n{found}\nTake away edges from later sources, as graph & "
                "causal(...) does, or make the prompt longer"
            )
        self.caches = [KeyValueCache() for _ in self.layers]

    @property
    def written(self) -> int:
        """Tokens so far."""
        return self.caches[0].length

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits (B, n, V) of the tokens that follow ``tokens`` (B, n), the next ones of the sequence."""
        first, last = self.written, self.written + tokens.shape[-1]
        steps = {id(layer): _rows(layer, first, last) for layer in self.layers}
        return self.model(tokens, [steps[id(layer)] for layer in self.layers], caches=self.caches)

    def reorder(self, batch: Tensor) -> None:
        """Go on with the sequences ``batch`` (int64 (B',)) of the first dimension, in that order."""
        for cache in self.caches:
            cache.reorder(batch)


def _whole(layer: Any, length: int) -> Any:
    """The graph of a layer between the tokens of the whole sequence."""
    if isinstance(layer, PerHead):
        return _each(layer, lambda graph: _whole(graph, length))
    graph = layer(length) if isinstance(layer, Pattern) else layer
    if not isinstance(graph, AttentionGraph):
        return graph  # for Schedule to refuse
    if not graph.is_square or graph.num_nodes < length:
        raise GraphError(
            f"the whole sequence has {length} tokens, prompt and new ones; {graph!r} must have as many nodes or more. "
            "A pattern, made with ... for its size, fits any length"
        )
    return graph if graph.num_nodes == length else graph.subgraph(range(length))


def _rows(layer: Any, first: int, last: int) -> AttentionGraph | PerHead:
    """Targets ``first`` to ``last - 1`` and all sources before ``last``."""
    if isinstance(layer, PerHead):
        return _each(layer, lambda graph: _rows(graph, first, last))
    return layer.subgraph(targets=range(first, last), sources=range(last))


def _each(heads: PerHead, make: Callable[[AttentionGraph], Any]) -> PerHead:
    """Graphs of heads, each made another; heads that shared one still do."""
    made = {graph: make(graph) for graph in dict.fromkeys(heads.graphs)}
    return PerHead(tuple(made[graph] for graph in heads.graphs))
