"""A model that reads a source, with the interface of :func:`graphattn.models.generate`."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import ShapeError
from ...graph import AttentionGraph, PerHead
from ...graph.kinds.layers import Layers, layers_of
from ...graph.like import GraphLike, need_fixed
from ...graphs import causal
from ...nn import KeyValueCache
from ...nn.blocks import Graph
from ..generation.continuation import rows


@dataclass
class HeldMemory:
    """Each layer's keys and values of a memory, and the graph from it to the whole target."""

    layers: list[KeyValueCache]
    graph: AttentionGraph | PerHead | None
    lengths: Tensor | None
    read: Tensor
    """int64 (B,): the source of each sequence."""

    def reorder(self, batch: Tensor) -> None:
        """Select the sequences ``batch`` (int64 (B',)), in that order; a shared source stays."""
        before = self.read
        self.read = self.read[batch]
        if torch.equal(before, self.read):
            return
        for layer in self.layers:
            layer.reorder(batch)
        if self.lengths is not None:
            self.lengths = self.lengths[batch.to(self.lengths.device)]


class DecoderWithMemory:
    """A decoder with its memory, as a model of the generated tokens, like a :class:`GPT`.

    Made by ``model.reading(source)``. With caches it computes the memory's keys and values once.

    Args:
        model: ``decode(tokens, memory, graph, memory_graph, caches)`` returns logits, where with
            caches the memory is the result of ``decoder.hold(memory)``; with ``lengths=`` if there
            are lengths.
        memory: (..., S, C), the output of the encoder.
        memory_graph: At least as many targets as the whole sequence, and S sources; all pairs by
            default.
        lengths: int64 (...), of padded sources.

    Example:
        >>> import graphattn as ga
        >>> model = ga.models.T5(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2).eval()
        >>> source, start = torch.randint(11, (3, 7)), torch.zeros(3, 1, dtype=torch.int64)
        >>> ga.models.generate(model.reading(source), start, max_new_tokens=4).shape
        torch.Size([3, 5])
        >>> near = ga.graphs.sliding_window(..., 2, causal=True)  # another connectivity of what is written
        >>> ga.models.generate(model.reading(source), start, near, max_new_tokens=4).shape
        torch.Size([3, 5])
    """

    def __init__(
        self,
        model: Any,
        memory: Tensor,
        memory_graph: Graph | None = None,
        lengths: Tensor | None = None,
    ) -> None:
        self.model = model
        self.memory = memory
        self.memory_graph = memory_graph
        self.lengths = lengths
        self.graph = layers_of(causal(..., ...), len(model.decoder.layers))
        self.max_len: int | None = getattr(model, "max_len", None)

    def begin(self, batch: int, length: int) -> list[Any]:
        """A cache for each layer, and the memory's keys and values.

        Raises:
            ShapeError: If there is neither one source for each sequence nor one for all, or the
                memory's graph does not fit.
        """
        memory = self.memory.reshape(-1, *self.memory.shape[-2:])
        graph = _sized(self.memory_graph, length, memory.shape[-2])
        if self.lengths is None:
            lengths = None
        else:
            lengths = self.lengths.reshape(-1)
        source_ids = torch.arange(len(memory), device=memory.device)
        if len(memory) not in (1, batch):
            raise ShapeError(
                f"there must be one source for each prompt, or one for all, got {batch} prompts "
                f"and {len(memory)} sources; source.repeat_interleave(n, 0) repeats each for n "
                "prompts"
            )
        held = HeldMemory(self.model.decoder.hold(memory), graph, lengths, source_ids)
        held.reorder(torch.arange(batch, device=memory.device) % len(memory))
        return [*(KeyValueCache() for _ in self.graph), held]

    def __call__(
        self, tokens: Tensor, graph: Layers | None = None, *, caches: list[Any] | None = None
    ) -> Tensor:
        """Logits (..., T, V) of the token after each; with caches, of continuations."""
        if caches is None:
            return self._decode(self.lengths, tokens, self.memory, graph, self.memory_graph)
        *layer_caches, memory = caches
        first = layer_caches[0].length
        last = layer_caches[0].length + tokens.shape[-1]
        if memory.graph is None:
            reads = None
        else:
            reads = rows(
                memory.graph, range(first, last), range(memory.graph.num_sources), tokens.device
            )
        return self._decode(memory.lengths, tokens, memory.layers, graph, reads, layer_caches)

    def _decode(self, lengths: Tensor | None, *operands: Any) -> Tensor:
        if lengths is None:
            return self.model.decode(*operands)
        return self.model.decode(*operands, lengths=lengths)


def _sized(graph: Any, length: int, num_sources: int) -> Any:
    """The graph from a memory to a sequence of that length."""
    if graph is None:
        return None
    if isinstance(graph, GraphLike):
        graph = graph.at(length, num_sources)
    need_fixed(
        graph, "memory_graph must be an AttentionGraph, PerHead or Pattern, the same for all layers"
    )
    if graph.num_targets < length or graph.num_sources != num_sources:
        raise ShapeError(
            f"memory_graph needs {num_sources} sources, those of the memory, and a target for each "
            f"of {length} tokens; got {graph!r}"
        )
    return graph
