"""T5: an encoder and a decoder whose positions are biases of edges, shared by all layers."""

from typing import Any

from torch import Tensor, nn

from ...arguments import probability, width
from ...graph.foreign_names import names_checked
from ...graph.kinds.layers import Layers, layers_of
from ...graphs import causal, full
from ...nn import KeyValueCache, T5Bias
from ...nn.blocks import Graph
from ..example import example, tokens
from ..stacks import Decoder, Encoder
from ..tokens import check_tokens, memory_up_to
from .with_memory import DecoderWithMemory

CAUSAL = causal(..., ...)


@example(lambda new, p: new(11, 8, 2, 1, num_buckets=8, max_distance=6, dropout=p), tokens(7, 5))
class T5(nn.Module):
    """Source and target tokens; the logits of the next target token.

    RMS norms before every branch, no bias in any projection, scores not divided by the root of D,
    one :class:`graphattn.nn.T5Bias` for all layers of the encoder and one for those of the decoder,
    none in cross-attention. Fresh weights are initialised as in T5's code, so that the scores do
    not saturate softmax.

    Args:
        vocab_size: V.
        embed_dim: C.
        num_heads: H.
        num_layers: Number of blocks of the encoder.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        num_decoder_layers: Number of blocks of the decoder; ``num_layers`` by default.
        head_dim: D, ``embed_dim / num_heads`` by default.
        activation: "relu" in T5, "gated_gelu_tanh" in T5 1.1.
        tied: True if head and tokens share weights (T5), False if not (T5 1.1).
        scaled: True if the head reads ``C ** -0.5`` times the decoder's output; ``tied`` by
            default.
        num_buckets: Rows of the tables of biases.
        max_distance: Distance from which on all share one row.
        source_graph: Default graph of the encoder; full by default.
        eps: Epsilon of the norms.
        dropout: Rate of dropout on the embeddings, in the blocks, and on the outputs of encoder and
            decoder.

    Source: Raffel et al. 2020, section 2.1; T5 1.1 in Shazeer 2020. Equal to
    ``T5ForConditionalGeneration`` of ``transformers``, :func:`graphattn.models.from_transformers`, whose
    norms take the mean in float32.

    Example:
        >>> import torch, graphattn as ga
        >>> model = T5(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2)
        >>> source, target = torch.randint(11, (3, 7)), torch.randint(11, (3, 5))
        >>> model(source, target).shape  # (B, T, V)
        torch.Size([3, 5, 11])
        >>> local = ga.graphs.sliding_window(..., 3, causal=False)
        >>> model(source, target, [local, ga.graphs.full(...)]).shape  # another connectivity of the encoder
        torch.Size([3, 5, 11])
    """

    def __init__(
        self,
        vocab_size: int = 32128,
        embed_dim: int = 512,
        num_heads: int = 8,
        num_layers: int = 6,
        hidden: int | None = None,
        *,
        num_decoder_layers: int | None = None,
        head_dim: int | None = None,
        activation: str = "relu",
        tied: bool = True,
        scaled: bool | None = None,
        num_buckets: int = 32,
        max_distance: int = 128,
        source_graph: Layers | None = None,
        eps: float = 1e-6,
        dropout: float = 0.0,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        if scaled is None:
            scaled = tied
        self.embedding = nn.Embedding(
            width(vocab_size, "vocab_size"), width(embed_dim, "embed_dim")
        )
        self.dropout = nn.Dropout(probability(dropout, "dropout"))
        options: dict[str, Any] = {
            "norm": "rms",
            "bias": False,
            "scale": 1.0,
            "eps": eps,
            "activation": activation,
        }
        options |= {"head_dim": head_dim, "dropout": dropout}
        if num_decoder_layers is None:
            num_decoder_layers = num_layers
        self.decoder = Decoder(num_decoder_layers, embed_dim, num_heads, hidden, **options)
        self.encoder_bias = T5Bias(num_heads, num_buckets, max_distance)
        self.encoder: nn.Module = Encoder(num_layers, embed_dim, num_heads, hidden, **options)
        self.decoder_bias = T5Bias(num_heads, num_buckets, max_distance, bidirectional=False)
        self.head = nn.Linear(embed_dim, vocab_size, bias=False)
        if source_graph is None:
            source_graph = full(...)
        self.source_graph = layers_of(source_graph, num_layers)
        self.factor = 1.0
        if scaled:
            self.factor = embed_dim**-0.5
        self._start()
        if tied:
            self.tie()

    def _start(self) -> None:
        """Normal weights over the root of their inputs; queries also over the root of D."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear) and module is not self.head:
                attention: Any = self.get_submodule(name.rpartition(".")[0])
                inputs = module.in_features
                if name.endswith("q_proj"):
                    inputs *= attention.head_dim
                nn.init.normal_(module.weight, std=inputs**-0.5)

    def encode(
        self, source: Tensor, graph: Layers | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """The memory (..., S, C) of tokens (..., S); tokens beyond the lengths are not read."""
        x = self._embedded("source", source)
        if graph is None:
            graph = self.source_graph
        return self.dropout(self.encoder(x, graph, score_bias=self.encoder_bias, lengths=lengths))

    def tie(self) -> None:
        """Tie the token embedding to the head; repeat after ``to_empty`` or ``assign=True``."""
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
        """Logits (..., T, V) from a memory; with caches, of tokens that continue earlier ones.

        The memory may be a result of ``decoder.hold(memory)``; lengths are those of its examples.
        """
        x = self._embedded("target", target)
        if graph is None:
            graph = CAUSAL
        memory_graph, bias = memory_up_to(lengths, memory, memory_graph, x)
        options: dict[str, Any] = {
            "score_bias": self.decoder_bias,
            "memory_bias": bias,
            "caches": caches,
        }
        x = self.decoder(x, graph, memory, memory_graph, **options)
        return self.head(self.dropout(x) * self.factor)

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
            source: Integers (..., S), the source tokens.
            target: Integers (..., T), the target tokens so far, the start token (0 in T5) first.
            source_graph: S nodes; the model's own by default.
            target_graph: T nodes; causal by default.
            memory_graph: T targets and S sources; all pairs by default.
            lengths: Integers (...), of sources padded at their end: padding is not read.

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
    ) -> DecoderWithMemory:
        """The model with an encoded source, for :func:`~graphattn.models.generate`.

        Args:
            source: Integers (..., S).
            source_graph: As of :meth:`forward`.
            memory_graph: A target for each token to be generated, start tokens included, and S
                sources.
            lengths: As of :meth:`forward`.
        """
        return DecoderWithMemory(
            self, self.encode(source, source_graph, lengths), memory_graph, lengths
        )

    def _embedded(self, name: str, tokens: Tensor) -> Tensor:
        check_tokens(name, tokens, self.embedding.num_embeddings)
        return self.dropout(self.embedding(tokens))
