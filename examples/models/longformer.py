"""Longformer: windows that grow from layer to layer, and a few global tokens."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphattn.arguments import several
from graphattn.graph import AttentionGraph, Pattern, PerHead
from graphattn.graph.foreign_names import names_checked
from graphattn.graph.kinds.layers import Layers, layers_of
from graphattn.graph.modes import not_followed
from graphattn.graphs import global_tokens, sliding_window
from graphattn.graphs.arguments import integers
from graphattn.models.text.bert import BERT
from graphattn.models.tokens import check_lengths, padding_bias
from graphattn.nn import GraphAttention, TransformerBlock
from graphattn.plans.cache import cached

_A_WINDOW_EACH = "must be whole numbers, one for each layer"


class Longformer(nn.Module):
    r"""A BERT on windows and global tokens, with separate projections for edges into the latter.

    The edges into the global tokens G belong to another attention than the edges into other tokens:

    .. math:: y_t = W_o \sum_{s \in \mathcal{N}(t)} \mathrm{softmax}_s \langle W_q x_t, W_k x_s \rangle W_v x_s

    with :math:`W_q, W_k, W_v` of ``model.text`` for :math:`t \notin G`, and those of
    ``model.of_global`` for :math:`t \in G`. Both are softmax over a target's own edges, so that no
    target mixes them.

    Args:
        windows: w of each layer, odd, the target counted, or one for all.
        tokens: G, the default of ``forward``.
        num_layers: Number of blocks.
        options: Further arguments of :class:`BERT`, and ``backend``.

    Attributes:
        text: The :class:`BERT`: embeddings, blocks, heads.
        of_global: For each block the :class:`~graphattn.nn.GraphAttention` of global tokens,
            without ``out_proj``.

    Source: Beltagy et al. 2020, "Longformer", section 3.1. Equal to ``LongformerModel`` of
    ``transformers``, :func:`graphattn.models.from_transformers`, whose w does not count the target.

    Example:
        >>> model = Longformer((3, 5), vocab_size=11, embed_dim=8, num_heads=2, num_layers=2, max_len=16)
        >>> tokens = torch.randint(11, (3, 7))
        >>> model(tokens).shape  # (B, N, C)
        torch.Size([3, 7, 8])
        >>> model(tokens, global_tokens=(0, 4)).shape  # a question in tokens 0 and 4
        torch.Size([3, 7, 8])
    """

    def __init__(
        self,
        windows: int | Sequence[int] = 513,
        tokens: tuple[int, ...] = (0,),
        *,
        num_layers: int = 12,
        **options: Any,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        if isinstance(windows, int):
            windows = [windows] * num_layers
        self.windows = tuple(several(windows, "windows", _A_WINDOW_EACH))
        self.tokens = _chosen(tokens)
        self.graph = layer_graphs(self.windows, self.tokens)
        self.text = BERT(num_layers=num_layers, graph=self.graph, **options)
        self.of_global = nn.ModuleList(_global_attention(block) for block in self.text.stack.layers)

    @names_checked
    def forward(
        self,
        tokens: Tensor,
        graph: Layers | None = None,
        *,
        global_tokens: Sequence[int] | None = None,
        types: Tensor | None = None,
        positions: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Features (..., N, C), or with ``masked_head`` logits (..., N, V).

        Args:
            tokens: Integers (..., N).
            graph: N nodes, one for all layers or a list; windows and global tokens by default.
            global_tokens: G, nodes with separate projections; the model's own by default.
            types: Integers (N,) or (..., N); 0 by default.
            positions: Integers (N,) or (..., N), as of :class:`BERT`.
            lengths: Integers (...), of sentences padded at their end: no token reads the padding.

        Raises:
            GraphError: If there is no such node.
            ShapeError: If tokens or types are not integers, or do not fit the graph.
            PositionIndexError: If one is outside its table.
        """
        if global_tokens is None:
            global_ids = self.tokens
        else:
            global_ids = _chosen(global_tokens)
        if graph is None:
            if global_ids == self.tokens:
                graph = self.graph
            else:
                graph = layer_graphs(self.windows, global_ids)
        x = self.text.embedded(tokens, types, positions)
        if lengths is not None:
            check_lengths(lengths, tokens)
        biased_graphs: dict[int, Any] = {}  # layers of the same graph share its rows
        layers: Any = zip(
            self.text.stack.layers,
            self.of_global,
            layers_of(graph, len(self.of_global)),
            strict=True,
        )
        for block, of_global, reads in layers:
            if id(reads) not in biased_graphs:
                sized = reads.at(x.shape[-2])
                with_biases: list[Any] = []
                for part in (sized, _rows(sized, global_ids)):
                    bias = None
                    if lengths is not None:
                        bias = padding_bias(part, lengths, x)
                    with_biases.append((part, bias))
                biased_graphs[id(reads)] = with_biases
            layer_graph, rows = biased_graphs[id(reads)]
            x = _read(block, of_global, x, layer_graph, rows, global_ids)
        if self.text.head is None:
            return x
        return self.text.head(x)

    def pooled(self, features: Tensor) -> Tensor:
        """One vector (..., C) of a sequence's features, as :meth:`BERT.pooled`."""
        return self.text.pooled(features)


def _global_attention(block: Any) -> GraphAttention:
    """An attention of the sizes of a block's, without the output projection, which they share."""
    attention: GraphAttention = block.attention
    return GraphAttention(
        attention.embed_dim,
        attention.num_heads,
        out_proj=False,
        dropout=attention.dropout,
        backend=attention.backend,
    )


@not_followed  # graphs are built by Python; a compiled program breaks here
def _rows(graph: AttentionGraph | PerHead, tokens: tuple[int, ...]) -> AttentionGraph | PerHead:
    """The rows of the chosen targets; cached with the graph, for its plans."""

    def rows_of_one(one: AttentionGraph) -> AttentionGraph:
        return cached(one, (Longformer, tokens), lambda: one.subgraph(targets=tokens))

    return graph._map_graphs(rows_of_one)


def _read(
    block: TransformerBlock,
    of_global: GraphAttention,
    x: Tensor,
    layer_graph: tuple[AttentionGraph | PerHead, Tensor | None],
    rows: tuple[AttentionGraph | PerHead, Tensor | None],
    tokens: tuple[int, ...],
) -> Tensor:
    """A post-norm block whose rows of global tokens are replaced; graphs with their biases."""
    attended = block.attention(x, layer_graph[0], score_bias=layer_graph[1])
    if tokens and block.attention.out_proj is not None:
        place = torch.tensor(tokens, device=x.device)
        others = of_global(x.index_select(-2, place), rows[0], context=x, score_bias=rows[1])
        attended = attended.index_copy(-2, place, block.attention.out_proj(others))
    x = block.attention_norm(x + block.branch(attended))
    return block.feed_forward_norm(x + block.branch(block.feed_forward(x)))


def _chosen(tokens: Any) -> tuple[int, ...]:
    """Global tokens, of one or of several."""
    if isinstance(tokens, int):
        tokens = (tokens,)
    return tuple(integers(tokens, "tokens").tolist())


def layer_graphs(windows: Sequence[int], tokens: tuple[int, ...]) -> list[Pattern]:
    """A graph for each layer, a two-sided window and the global tokens, as patterns."""
    graphs = [sliding_window(..., window, causal=False) for window in windows]
    if tokens:
        graphs = [graph | global_tokens(..., tokens) for graph in graphs]
    return graphs
