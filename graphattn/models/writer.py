"""What models share that read a source and write tokens: T5."""

from typing import Any

from torch import Tensor, nn

from ..graph.foreign_names import names_checked
from ..graph.layers import Layers
from ..graphs import causal
from ..nn import KeyValueCache
from ..nn.blocks import Graph
from ..nn.cache import tokens_held
from .padding import memory_up_to
from .reading import Reading
from .stacks import Decoder

CAUSAL = causal(..., ...)


class Writer(nn.Module):
    """A decoder that reads a memory. A subclass makes the parts, and :meth:`_written`."""

    embedding: nn.Embedding
    decoder: Decoder
    head: nn.Linear

    def tie(self) -> None:
        """Give the head the tokens' weights; once more after ``to_empty`` or ``load_state_dict(assign=True)``."""
        self.head.weight = self.embedding.weight

    def decode(
        self,
        target: Tensor,
        memory: Tensor | list[KeyValueCache],
        graph: Layers | None = None,
        memory_graph: Graph | None = None,
        caches: list[KeyValueCache] | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Logits (..., T, V) from a memory; with a cache for each layer, of tokens that continue earlier ones.

        The memory may be what ``decoder.hold(memory)`` made of it; lengths are of its examples.
        """
        x = self._written(target, 0 if caches is None else tokens_held(caches, len(self.decoder.layers)))
        memory_graph, bias = memory_up_to(lengths, memory, memory_graph, x)
        graph = CAUSAL if graph is None else graph
        return self._logits(
            self.decoder(x, graph, memory, memory_graph, memory_bias=bias, caches=caches, **self._own())
        )

    def _written(self, target: Tensor, past: int) -> Tensor:
        """What the decoder's first block reads, (..., T, C), of tokens that follow ``past`` others."""
        raise NotImplementedError

    def _own(self) -> dict[str, Any]:
        """What else the decoder is given."""
        return {}

    def _logits(self, x: Tensor) -> Tensor:
        return self.head(x)


class TextToText(Writer):
    """A writer whose source is tokens, too. A subclass also writes ``encode(source, graph, lengths)``."""

    @names_checked
    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_graph: Layers | None = None,
        target_graph: Layers | None = None,
        memory_graph: Graph | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Logits (..., T, V) of the token after each of the target's.

        Args:
            source: Integers (..., S), the tokens read.
            target: Integers (..., T), the tokens written so far, the start token (T5's is 0) first.
            source_graph: Of S nodes; the model's own by default, which is full if it was given none.
            target_graph: Of T nodes; causal by default.
            memory_graph: T targets and S sources; all of them by default.
            lengths: Integers (...), of sources that are padded at their end: what follows is not read.

        Raises:
            ShapeError: If tokens or lengths are not integers, or do not fit the graphs.
            PositionIndexError: If a token is outside the vocabulary, or beyond the positions.
        """
        memory = self.encode(source, source_graph, lengths)
        return self.decode(target, memory, target_graph, memory_graph, lengths=lengths)

    def reading(
        self,
        source: Tensor,
        source_graph: Layers | None = None,
        memory_graph: Graph | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> Reading:
        """The model having read a source, as :func:`~graphattn.models.generate` takes it; the encoder runs now.

        Args:
            source: Integers (..., S).
            source_graph: As of :meth:`forward`.
            memory_graph: A target for each token that is to be written, start tokens included, and S sources.
            lengths: As of :meth:`forward`.
        """
        return Reading(self, self.encode(source, source_graph, lengths), memory_graph, lengths)

    def encode(self, source: Tensor, graph: Layers | None = None, lengths: Tensor | None = None) -> Tensor:
        """The memory (..., S, C) of tokens (..., S); what is beyond the lengths is not read."""
        raise NotImplementedError
