"""BART: the encoder-decoder with learned positions, norms after its branches and one table of tokens for both sides."""

from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import kinds_checked, probability, width
from ..graph.layers import Layers
from ..graphs import full
from ..nn import LearnedPosition
from .example import example, tokens
from .stacks import Decoder, Encoder
from .tokens import check_tokens
from .writer import TextToText


@example(lambda new, p: new(11, 8, 2, 1, max_len=9, dropout=p), tokens(7, 5))
class BART(TextToText):
    """Tokens read and tokens written; the logits of the next token written.

    Args:
        vocab_size: V.
        embed_dim: C.
        num_heads: H.
        num_layers: Blocks of the encoder.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        num_decoder_layers: Blocks of the decoder, as many by default.
        max_len: Learned positions of either side.
        tied: Whether the head's weights are those of the tokens.
        embed_scale: Factor on the tokens' vectors, where they are read.
        norm_first: False, and with True a norm after the last block of either side (mBART).
        dropout: On the embeddings, and as in the blocks.
        options: Further arguments of :class:`~graphattn.nn.TransformerBlock`.

    Source: Lewis et al. 2020, section 2. Equal to ``BartForConditionalGeneration`` of ``transformers``,
    :func:`graphattn.models.from_hf`, whose positions have two rows more, at the start, that nobody reads.

    Example:
        >>> import torch, graphattn as ga
        >>> model = BART(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2, max_len=16)
        >>> source, target = torch.randint(11, (3, 7)), torch.randint(11, (3, 5))
        >>> model(source, target).shape  # (B, T, V)
        torch.Size([3, 5, 11])
        >>> model(source, target, ga.graphs.sliding_window(..., 3, causal=False)).shape  # another connectivity
        torch.Size([3, 5, 11])
    """

    @kinds_checked()
    def __init__(
        self,
        vocab_size: int = 50265,
        embed_dim: int = 768,
        num_heads: int = 12,
        num_layers: int = 6,
        hidden: int | None = None,
        *,
        num_decoder_layers: int | None = None,
        max_len: int = 1024,
        tied: bool = True,
        embed_scale: float = 1.0,
        norm_first: bool = False,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        vocab_size, embed_dim = width(vocab_size, "vocab_size"), width(embed_dim, "embed_dim")
        self.embedding, self.embed_scale = nn.Embedding(vocab_size, embed_dim), embed_scale
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.source_position, self.source_norm = LearnedPosition(max_len, embed_dim), nn.LayerNorm(embed_dim)
        self.max_len = max_len
        self.target_position, self.target_norm = LearnedPosition(max_len, embed_dim), nn.LayerNorm(embed_dim)
        self.dropout = nn.Dropout(probability(dropout, "dropout"))
        sizes: Any = (embed_dim, num_heads, hidden)
        depth = num_layers if num_decoder_layers is None else num_decoder_layers
        self.encoder = Encoder(num_layers, *sizes, norm_first=norm_first, dropout=dropout, **options)
        self.decoder = Decoder(depth, *sizes, norm_first=norm_first, dropout=dropout, **options)
        self.head = nn.Linear(embed_dim, vocab_size, bias=False)
        if tied:
            self.tie()

    def encode(self, source: Tensor, graph: Layers | None = None, lengths: Tensor | None = None) -> Tensor:
        """The memory (..., S, C) of tokens (..., S); what is beyond the lengths is not read."""
        check_tokens("source", source, self.embedding.num_embeddings)
        x = self.dropout(self.source_norm(self.source_position(self.embedding(source) * self.embed_scale)))
        return self.encoder(x, FULL if graph is None else graph, lengths=lengths)

    def _written(self, target: Tensor, past: int) -> Tensor:
        check_tokens("target", target, self.embedding.num_embeddings)
        at = torch.arange(past, past + target.shape[-1], device=target.device)
        return self.dropout(self.target_norm(self.target_position(self.embedding(target) * self.embed_scale, at)))


FULL = full(...)
