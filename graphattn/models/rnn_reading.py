"""A recurrent decoder as a model that writes: its state is what it keeps of the tokens so far."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from ..graph import AttentionGraph, Pattern
from ..nn.blocks import EVERY
from .reading import of_batch, sized_memory

if TYPE_CHECKING:
    from .rnn import Seq2Seq


@dataclass
class RecurrentState:
    """Where a recurrent decoder stands: what it keeps of the tokens so far, and of the source.

    Args:
        now: (B, C), after the last token.
        last: (B, C), the encoder's last state.
        memory: (B, S, C), the encoder's states.
        keys: (B, S, C), made of them once; ``None`` without attention.
        lengths: Integers (B,), of sources that are padded.
        graph: What each token of the whole sequence reads.
        length: Tokens so far.
    """

    now: Tensor
    last: Tensor
    memory: Tensor
    keys: Tensor | None
    lengths: Tensor | None
    graph: AttentionGraph | None = None
    length: int = 0

    def reorder(self, batch: Tensor) -> None:
        """Go on with the sequences ``batch`` (int64 (B',)), in that order."""
        for name in ("now", "last", "memory", "keys", "lengths"):
            kept: Tensor | None = getattr(self, name)
            setattr(self, name, None if kept is None else kept[batch.to(kept.device)])


class RecurrentReading:
    """A :class:`Seq2Seq` that has read a source: a model of the tokens that it writes, one after the other.

    ``model.reading(source)`` makes it. There is no graph between the tokens: each reads the state after the one before.

    Example:
        >>> import torch, graphattn as ga
        >>> model = ga.models.Seq2Seq(11, 13, embed_dim=6, hidden=8)
        >>> source, start = torch.randint(11, (3, 7)), torch.zeros(3, 1, dtype=torch.int64)
        >>> ga.models.generate(model.reading(source), start, max_new_tokens=4).shape
        torch.Size([3, 5])
    """

    graph = None

    def __init__(self, model: "Seq2Seq", state: RecurrentState, graph: AttentionGraph | Pattern | None) -> None:
        self.model, self.state, self.memory_graph = model, state, graph

    def begin(self, batch: int, length: int) -> list[RecurrentState]:
        """The state before the first token.

        Raises:
            ShapeError: If there are not as many sources as sequences, nor one for all, or the graph does not fit.
        """
        memory, graph = self.state.memory, EVERY if self.memory_graph is None else self.memory_graph
        reads = None if self.model.attention is None else sized_memory(graph, length, memory.shape[1])
        state = replace(self.state, graph=reads)
        state.reorder(of_batch(len(memory), batch, memory.device))
        return [state]

    def __call__(self, tokens: Tensor, graph: None = None, *, caches: list[RecurrentState] | None = None) -> Tensor:
        """Logits (B, T, V) of the token after each; with what :meth:`begin` made, of tokens that continue others."""
        [state] = self.begin(*tokens.shape) if caches is None else caches
        first, state.length = state.length, state.length + tokens.shape[-1]
        reads = None if state.graph is None else state.graph.subgraph(targets=range(first, state.length))
        return self.model.step(tokens, state, reads)[0]
