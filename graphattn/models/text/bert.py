"""Encoders of text: BERT, post-norm blocks on a full graph, and its two heads."""

from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import probability, width
from ...errors import OptionError
from ...graph.foreign_names import names_checked
from ...graph.kinds.layers import Layers, layers_of
from ...graphs import full
from ...nn import LearnedPosition
from ...nn.feed_forward import Activation, plain_activation
from ..example import example, tokens
from ..stacks import Encoder, ScoreBias
from ..tokens import check_tokens, positions_of


@example(
    lambda new, p: new(11, 8, 2, 1, max_len=9, masked_head=True, pooler=False, dropout=p), tokens(7)
)
class BERT(nn.Module):
    """Tokens with positions and types, blocks on a full graph; features, or masked-token logits.

    Args:
        vocab_size: V.
        embed_dim: C.
        num_heads: H.
        num_layers: Number of blocks.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        max_len: Number of learned positions.
        num_types: Number of types of a token, first or second sentence.
        masked_head: True for a head that predicts masked tokens.
        pooler: True if there is a dense layer on the first token, for :meth:`pooled`.
        padding_idx: A padding token, which has position ``padding_idx``; other tokens count from
            the next position (RoBERTa, whose ``max_len`` is the number of positions plus
            ``padding_idx + 1``). By default all tokens count from 0.
        graph: The default graph of ``forward``: one graph or pattern, or one for each layer.
        activation: Activation of the feed-forwards and, without its gate, of the head.
        eps: Epsilon of the norms.
        dropout: Rate of dropout on the embeddings and in the blocks.
        options: Further arguments of :class:`~graphattn.nn.TransformerBlock`.

    Source: Devlin et al. 2019, sections 3 and 3.1.

    Example:
        >>> import graphattn as ga
        >>> model = BERT(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2, max_len=16)
        >>> tokens, types = torch.randint(11, (3, 7)), torch.tensor([0, 0, 0, 0, 1, 1, 1])
        >>> model(tokens, types=types).shape  # (B, N, C)
        torch.Size([3, 7, 8])
        >>> longformer = ga.graphs.sliding_window(..., 3, causal=False) | ga.graphs.global_tokens(..., (0,))
        >>> model.pooled(model(tokens, longformer)).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        vocab_size: int = 30522,
        embed_dim: int = 768,
        num_heads: int = 12,
        num_layers: int = 12,
        hidden: int | None = None,
        *,
        max_len: int = 512,
        num_types: int = 2,
        masked_head: bool = False,
        pooler: bool = True,
        padding_idx: int | None = None,
        graph: Layers | None = None,
        activation: Activation = "gelu",
        eps: float = 1e-12,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.embedding = nn.Embedding(
            width(vocab_size, "vocab_size"), width(embed_dim, "embed_dim")
        )
        self.type_embedding = nn.Embedding(width(num_types, "num_types"), embed_dim)
        for table in (self.embedding, self.type_embedding):
            nn.init.normal_(table.weight, std=0.02)
        self.embedding.padding_idx = padding_idx  # its vector is not trained
        self.position = LearnedPosition(max_len, embed_dim, padding_idx=padding_idx)
        self.norm = nn.LayerNorm(embed_dim, eps)
        self.dropout = nn.Dropout(probability(dropout, "dropout"))
        options = {
            "norm_first": False,
            "activation": activation,
            "eps": eps,
            "dropout": dropout,
            **options,
        }
        self.stack = Encoder(num_layers, embed_dim, num_heads, hidden, **options)
        self.pooler: nn.Linear | None = None
        if pooler:
            self.pooler = nn.Linear(embed_dim, embed_dim)
        self.head: MaskedTokenHead | None = None
        if masked_head:
            self.head = MaskedTokenHead(self.embedding, activation, eps)
        if graph is None:
            graph = full(...)
        self.graph = layers_of(graph, num_layers)

    @names_checked
    def forward(
        self,
        tokens: Tensor,
        graph: Layers | None = None,
        *,
        types: Tensor | None = None,
        positions: Tensor | None = None,
        score_bias: ScoreBias = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Features (..., N, C), or with ``masked_head`` logits (..., N, V).

        Args:
            tokens: Integers (..., N).
            graph: N nodes, one for all layers or a list; the model's own by default. For sentences
                of several lengths use ``ga.disjoint_union``, with ``positions`` that restart.
            types: Integers (N,) or (..., N); 0 by default.
            positions: Integers (N,) or (..., N), 0, 1, ..., N - 1 by default; with ``padding_idx``
                as described there.
            score_bias: Biases of the edges of every layer's graph, or a module that makes them;
                -inf removes an edge.
            lengths: Integers (...), of sentences padded at their end: no token reads the padding.

        Raises:
            ShapeError: If tokens or types are not integers, or do not fit the graph.
            PositionIndexError: If one is outside its table.
        """
        if positions is None:
            positions = positions_of(graph, range(0), tokens)
            if positions is not None and self.position.padding_idx is not None:
                raise OptionError(
                    "positions must be passed with a shard, as they count the tokens of all "
                    "processes"
                )
        x = self.embedded(tokens, types, positions)
        options: dict[str, Any] = {"score_bias": score_bias, "lengths": lengths}
        if self.stack.encodes_positions(score_bias):
            options["positions"] = positions
        if graph is None:
            graph = self.graph
        x = self.stack(x, graph, **options)
        if self.head is None:
            return x
        return self.head(x)

    def embedded(
        self, tokens: Tensor, types: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """The input of the first block (..., N, C): tokens with types and learned positions."""
        check_tokens("tokens", tokens, self.embedding.num_embeddings)
        if types is None:
            types = torch.zeros_like(tokens)
        check_tokens("types", types, self.type_embedding.num_embeddings)
        pad = self.position.padding_idx
        if positions is None and pad is not None:
            real = tokens != pad
            positions = real.cumsum(-1) * real + pad
        x = self.position(self.embedding(tokens) + self.type_embedding(types), positions)
        return self.dropout(self.norm(x))

    def pooled(self, features: Tensor) -> Tensor:
        """One vector (..., C) for features (..., N, C): ``tanh(W x_0 + b)`` of the first token.

        Raises:
            OptionError: If the model has no pooler.
            ShapeError: If there is no first token.
        """
        if self.pooler is None:
            raise OptionError("pooled requires a model built with pooler=True")
        return torch.tanh(self.pooler(features[..., 0, :]))


class MaskedTokenHead(nn.Module):
    """Logits of tokens from their features: a dense layer, a norm, and the tied embedding.

    Args:
        embedding: The tokens' vectors (V, C), which are shared.
        activation: Activation after the dense layer.
        eps: Epsilon of the norm.
    """

    def __init__(
        self, embedding: nn.Embedding, activation: Activation = "gelu", eps: float = 1e-12
    ) -> None:
        super().__init__()
        vocab_size, embed_dim = embedding.weight.shape
        self.activation = activation
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.norm = nn.LayerNorm(embed_dim, eps)
        self.out = nn.Linear(embed_dim, vocab_size)
        nn.init.zeros_(self.out.bias)
        self.tie(embedding)

    def tie(self, embedding: nn.Embedding) -> None:
        """Share the tokens' vectors with the last layer."""
        self.out.weight = embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to (..., V)."""
        return self.out(self.norm(plain_activation(self.activation)(self.dense(x))))
