"""Decoders of text: GPT-2, Llama and similar models are settings of one model on a causal graph."""

from typing import Any, Self

from torch import Tensor, nn

from ...arguments import probability, width
from ...graph.foreign_names import names_checked
from ...graph.kinds.layers import Layers, layers_of
from ...graphs import causal
from ...nn import ALiBi, KeyValueCache, LearnedPosition, Rotary
from ...nn.cache import tokens_held
from ..example import example, tokens
from ..stacks import Encoder, ScoreBias
from ..tokens import check_tokens, positions_of


@example(lambda new, p: new(11, 8, 2, 1, score_bias=ALiBi(2), dropout=p), tokens(7))
class GPT(nn.Module):
    """Tokens, their positions, blocks on a causal graph, and the logits of the next token.

    Args:
        vocab_size: V.
        embed_dim: C.
        num_heads: H.
        num_layers: Number of blocks.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        max_len: Number of learned positions, added to the tokens; none by default, for models with
            ``rotary``.
        tied: True if the head's weights are those of the tokens.
        graph: The default graph of ``forward``: one graph or pattern, or one for each layer.
        score_bias: A module that makes biases of a graph's edges, such as
            :class:`graphattn.nn.ALiBi`; none by default.
        dropout: Rate of dropout on the embeddings and in the blocks.
        options: Further arguments of :class:`~graphattn.nn.TransformerBlock`: ``rotary``, ``norm``,
            ``num_kv_heads``, ...

    Source: Radford et al. 2018, 2019. :meth:`gpt2` and :meth:`llama` are its two settings.

    Example:
        >>> import torch, graphattn as ga
        >>> model = GPT.gpt2(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2, max_len=16)
        >>> tokens = torch.randint(11, (3, 7))
        >>> model(tokens).shape  # (B, N, V)
        torch.Size([3, 7, 11])
        >>> model(tokens, ga.graphs.sliding_window(..., 3, causal=True)).shape  # another connectivity
        torch.Size([3, 7, 11])
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        hidden: int | None = None,
        *,
        max_len: int | None = None,
        tied: bool = True,
        graph: Layers | None = None,
        score_bias: nn.Module | None = None,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.embedding = nn.Embedding(
            width(vocab_size, "vocab_size"), width(embed_dim, "embed_dim")
        )
        nn.init.normal_(self.embedding.weight, std=0.02)
        if max_len is None:
            self.position = None
        else:
            self.position = LearnedPosition(max_len, embed_dim)
        self.dropout = nn.Dropout(probability(dropout, "dropout"))
        self.stack = Encoder(num_layers, embed_dim, num_heads, hidden, dropout=dropout, **options)
        self.head = nn.Linear(embed_dim, vocab_size, bias=False)
        if graph is None:
            graph = causal(..., ...)
        self.graph = layers_of(graph, num_layers)
        self.score_bias = score_bias
        self.is_rotary = options.get("rotary") is not None
        if tied:
            self.tie()

    @property
    def num_layers(self) -> int:
        """The number of blocks and of caches."""
        return len(self.stack.layers)

    @property
    def max_len(self) -> int | None:
        """The longest sequence; any length without learned positions."""
        if self.position is None:
            return None
        return self.position.weight.shape[0]

    def begin(self, batch: int, length: int) -> list[KeyValueCache]:
        """Empty caches, one for each layer, for any number and length of sequences."""
        return [KeyValueCache() for _ in range(self.num_layers)]

    def tie(self) -> None:
        """Tie the token embedding to the head; repeat after ``to_empty`` or ``assign=True``."""
        self.head.weight = self.embedding.weight

    @names_checked
    def forward(
        self,
        tokens: Tensor,
        graph: Layers | None = None,
        *,
        positions: Tensor | None = None,
        score_bias: ScoreBias = None,
        lengths: Tensor | None = None,
        caches: list[KeyValueCache] | None = None,
    ) -> Tensor:
        """Logits (..., N, V) of the token after each.

        Args:
            tokens: Integers (..., N).
            graph: N nodes, one for all layers or a list; the model's own by default. With caches N
                targets, and all tokens so far as sources.
            positions: Positions of the tokens, (N,) or (..., N); they count from 0, after those in
                the caches.
            score_bias: Biases of the edges of every layer's graph, or a module that makes them; the
                model's by default.
            lengths: Integers (...), of texts padded at their end: no token reads the padding. On a
                graph that does not read the future none does anyway.
            caches: One for each layer, where ``tokens`` continue earlier ones. See
                :func:`~graphattn.models.generate`.

        Raises:
            ShapeError: If ``tokens`` are not integers, or too many for the graph, or lengths do not
                fit.
            OptionError: If there are both lengths and caches, which would hold keys of padding.
            PositionIndexError: If a token is outside the vocabulary, or a position beyond
                ``max_len``.
        """
        check_tokens("tokens", tokens, self.embedding.num_embeddings)
        x = self.embedding(tokens)
        bias = score_bias
        if bias is None:
            bias = self.score_bias
        if self.position is None or self.stack.encodes_positions(bias):
            of_layers = positions
        else:
            of_layers = None
        if positions is None:
            if caches is None:
                past = 0
            else:
                past = tokens_held(caches, self.num_layers)
            every = positions_of(graph, range(past), tokens)
            if every is None:
                positions = every
            else:
                positions = every[past:]
            if self.is_rotary and caches is not None:
                of_layers = positions
            else:
                of_layers = None
        if self.position is not None:
            x = self.position(x, positions)
        if graph is None:
            graph = self.graph
        x = self.stack(
            self.dropout(x),
            graph,
            positions=of_layers,
            score_bias=bias,
            lengths=lengths,
            caches=caches,
        )
        return self.head(x)

    @classmethod
    def gpt2(
        cls,
        vocab_size: int = 50257,
        embed_dim: int = 768,
        num_heads: int = 12,
        num_layers: int = 12,
        **options: Any,
    ) -> Self:
        """The smallest GPT-2, with fresh weights: pre-norm, learned positions, GELU, tied embeddings.

        Weights start normal with deviation 0.02, divided by the root of the number of branches at the
        end of one.

        Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3;
        the deviation 0.02 as 2018's, section 4.1.
        """
        model = cls(
            vocab_size,
            embed_dim,
            num_heads,
            num_layers,
            **{"max_len": 1024, "activation": "gelu_tanh", **options},
        )
        for name, module in model.stack.named_modules():
            if isinstance(module, nn.Linear):
                ends_branch = name.endswith(("out_proj", "feed_forward.down"))
                std = 0.02
                if ends_branch:
                    std = 0.02 / (2 * num_layers) ** 0.5
                nn.init.normal_(module.weight, std=std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        return model

    @classmethod
    def llama(
        cls,
        vocab_size: int = 32000,
        embed_dim: int = 4096,
        num_heads: int = 32,
        num_layers: int = 32,
        hidden: int = 11008,
        *,
        base: float = 10000.0,
        **options: Any,
    ) -> Self:
        """A Llama, of 7B by default, with fresh weights: RMS norms, rotary, SwiGLU, no biases, untied.

        ``num_kv_heads`` groups heads, ``base`` is theta of the rotary positions.

        Source: Touvron et al. 2023, "LLaMA", section 2.2; grouped heads "Llama 2", section 2.2.
        """
        head_dim = options.get("head_dim", embed_dim // width(num_heads, "num_heads"))
        settings = {"norm": "rms", "activation": "gated_silu", "bias": False, "tied": False}
        settings["rotary"] = Rotary(head_dim, base=base)
        return cls(vocab_size, embed_dim, num_heads, num_layers, hidden, **{**settings, **options})
