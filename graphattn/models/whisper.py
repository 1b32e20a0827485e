"""Whisper: an encoder that reads a spectrogram, through two convolutions, and a decoder that writes text."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..arguments import kinds_checked, probability, width
from ..errors import ShapeError
from ..graph.foreign_names import names_checked
from ..graph.layers import Layers
from ..graphs import full
from ..nn import GraphAttention, LearnedPosition
from ..nn.blocks import Graph
from ..nn.positions import even
from .example import example, features, tokens
from .reading import Reading
from .stacks import Decoder, Encoder
from .tokens import check_tokens
from .writer import Writer


@example(
    lambda new, p: new(11, 8, 2, 1, num_mels=5, max_frames=8, max_len=9, dropout=p),
    lambda b: features(5, 16)(b) + tokens(7)(b),
)
class Whisper(Writer):
    """A spectrogram read and tokens written; the logits of the next token written.

    Norms before every branch, keys without a bias, sinusoids for the positions of frames, learned ones for tokens.

    Args:
        vocab_size: V.
        embed_dim: C.
        num_heads: H.
        num_layers: Blocks of the encoder.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        num_decoder_layers: Blocks of the decoder, as many by default.
        num_mels: Bands of the spectrogram.
        max_frames: Positions of the encoder, each of two columns of the spectrogram.
        max_len: Positions of the decoder.
        dropout: On the embeddings, and as in the blocks.
        options: Further arguments of :class:`~graphattn.nn.TransformerBlock`.

    Source: Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision", section 2.2; by default
    "tiny". Equal to ``WhisperForConditionalGeneration`` of ``transformers``, :func:`graphattn.models.from_hf`.

    Example:
        >>> import graphattn as ga
        >>> model = Whisper(11, 8, 2, 2, num_mels=5, max_frames=16, max_len=9)
        >>> sound, tokens = torch.randn(3, 5, 32), torch.randint(11, (3, 7))
        >>> model(sound, tokens).shape  # (B, T, V)
        torch.Size([3, 7, 11])
        >>> model(sound, tokens, ga.graphs.sliding_window(..., 5, causal=False)).shape  # another connectivity
        torch.Size([3, 7, 11])
    """

    @kinds_checked()
    def __init__(
        self,
        vocab_size: int = 51865,
        embed_dim: int = 384,
        num_heads: int = 6,
        num_layers: int = 4,
        hidden: int | None = None,
        *,
        num_decoder_layers: int | None = None,
        num_mels: int = 80,
        max_frames: int = 1500,
        max_len: int = 448,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        vocab_size, embed_dim = width(vocab_size, "vocab_size"), even("embed_dim", embed_dim)
        self.first = nn.Conv1d(width(num_mels, "num_mels"), embed_dim, 3, padding=1)
        self.second = nn.Conv1d(embed_dim, embed_dim, 3, stride=2, padding=1)
        self.frame_position = LearnedPosition(max_frames, embed_dim).requires_grad_(False)
        self.frame_position.weight.copy_(sinusoids(max_frames, embed_dim))
        self.max_len = max_len
        self.embedding, self.position = nn.Embedding(vocab_size, embed_dim), LearnedPosition(max_len, embed_dim)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.dropout = nn.Dropout(probability(dropout, "dropout"))
        depth = num_layers if num_decoder_layers is None else num_decoder_layers
        self.encoder = Encoder(num_layers, embed_dim, num_heads, hidden, dropout=dropout, **options)
        self.decoder = Decoder(depth, embed_dim, num_heads, hidden, dropout=dropout, **options)
        for part in self.modules():
            if isinstance(part, GraphAttention):
                part.k_proj.register_parameter("bias", None)
        self.head = nn.Linear(embed_dim, vocab_size, bias=False)
        self.tie()

    @names_checked
    def forward(
        self,
        sound: Tensor,
        target: Tensor,
        sound_graph: Layers | None = None,
        target_graph: Layers | None = None,
        memory_graph: Graph | None = None,
    ) -> Tensor:
        """Logits (..., T, V) of the token after each of the target's.

        Args:
            sound: Log-mel spectrogram (B, num_mels, time), or (num_mels, time); two columns make a frame.
            target: Integers (..., T), the tokens written so far.
            sound_graph: Of S = ceil(time / 2) frames; full by default.
            target_graph: Of T nodes; causal by default.
            memory_graph: T targets and S sources; all of them by default.

        Raises:
            ShapeError: If the sound has another shape, tokens are not integers, or a graph does not fit.
            PositionIndexError: If a token is outside the vocabulary, or one or a frame beyond the positions.
        """
        return self.decode(target, self.encode(sound, sound_graph), target_graph, memory_graph)

    def reading(self, sound: Tensor, sound_graph: Layers | None = None, memory_graph: Graph | None = None) -> Reading:
        """The model and an encoded sound, as :func:`~graphattn.models.generate` takes it; as :meth:`T5.reading`."""
        return Reading(self, self.encode(sound, sound_graph), memory_graph)

    def encode(self, sound: Tensor, graph: Layers | None = None) -> Tensor:
        """The memory (..., S, C) of a spectrogram (..., num_mels, time)."""
        mels = self.first.in_channels
        if not isinstance(sound, Tensor) or sound.dim() not in (2, 3) or sound.shape[-2] != mels:
            got = tuple(sound.shape) if isinstance(sound, Tensor) else type(sound).__name__
            raise ShapeError(f"sound must be a spectrogram (B, {mels}, time) or ({mels}, time), got {got}")
        x = F.gelu(self.second(F.gelu(self.first(sound)))).transpose(-2, -1)
        return self.encoder(self.dropout(self.frame_position(x)), FULL if graph is None else graph)

    def _written(self, target: Tensor, past: int) -> Tensor:
        check_tokens("target", target, self.embedding.num_embeddings)
        at = torch.arange(past, past + target.shape[-1], device=target.device)
        return self.dropout(self.position(self.embedding(target), at))


def sinusoids(length: int, dim: int) -> Tensor:
    """Whisper's positions (length, dim): sines, then cosines, of wavelengths from 2 pi to 20000 pi, both included."""
    frequency = 10000.0 ** -torch.linspace(0, 1, dim // 2)
    angle = torch.arange(length).unsqueeze(-1) * frequency
    return torch.cat((angle.sin(), angle.cos()), -1)


FULL = full(...)
