"""Recurrent encoders and decoders, the origin of attention, read step by step or all at once."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ...arguments import one_of, shown, width
from ...backends import EdgeWeights
from ...errors import OptionError, ShapeError
from ...graph import AttentionGraph, Pattern, disjoint_union
from ...graph.advice import no_graph
from ...graph.foreign_names import names_checked
from ...graph.like import GraphLike
from ...graph.modes import not_followed
from ...nn import GraphAttention
from ...nn.blocks import EVERY
from ...plans.cache import cached
from ..example import example, tokens
from ..tokens import check_lengths, check_tokens

Context = Callable[[int, Tensor], Tensor]


class RecurrentAttention(nn.Module):
    r"""States that read a memory along a bipartite graph, with the memory itself as values.

    .. math:: c_t = \sum_{i \in \mathcal{N}(t)} \mathrm{softmax}_i \, \mathrm{score}(s_t, h_i) \; h_i

    The score is :math:`v \cdot \tanh(W s_t + U h_i)` ("bahdanau"), :math:`s_t \cdot h_i` ("dot") or
    :math:`s_t \cdot U h_i` ("general").

    Args:
        dim: Width of the states and of the memory.
        kind: "bahdanau", "dot" or "general".

    Source: Bahdanau et al. 2015, appendix A.1.2; Luong et al. 2015, section 3.1.

    Example:
        >>> import torch, graphattn as ga
        >>> states, memory = torch.randn(2, 8), torch.randn(5, 8)
        >>> read, weights = RecurrentAttention(8, "bahdanau")(states, memory, ga.graphs.cross(2, 5))
        >>> read.shape, weights.dense().shape
        (torch.Size([2, 8]), torch.Size([1, 2, 5]))
    """

    def __init__(self, dim: int, kind: str) -> None:
        super().__init__()
        additive = kind == "bahdanau"
        # U
        self.memory: nn.Module
        if kind == "dot":
            self.memory = nn.Identity()
        else:
            self.memory = nn.Linear(dim, dim, bias=False)
        score = "dot"
        if additive:
            score = "additive"
        self.layer = GraphAttention(dim, 1, bias=False, out_proj=False, score=score)
        unused = ["k_proj", "v_proj"]
        if not additive:
            unused.insert(0, "q_proj")
        for name in unused:
            self.layer.register_module(name, nn.Identity())

    def keys(self, memory: Tensor) -> Tensor:
        """U h, the same for every target."""
        return self.memory(memory)

    def forward(
        self, state: Tensor, memory: Tensor, graph: AttentionGraph, keys: Tensor | None = None
    ) -> tuple[Tensor, EdgeWeights]:
        """Context (..., T, C) of states (..., T, C) from a memory (..., S, C), and the weights."""
        if keys is None:
            keys = self.keys(memory)
        if isinstance(self.layer.q_proj, nn.Identity):
            state = state.to(keys.dtype)  # autocast casts linear layers, but not a GRU on a CPU
        read, weights = self.layer(
            state, graph, context=(keys, memory.to(keys.dtype)), return_weights=True
        )
        return read, weights


@example(lambda new, p: new(11, 11, embed_dim=6, hidden=8), tokens(7, 5))
class Seq2Seq(nn.Module):
    r"""A recurrent encoder and a decoder that reads its states along a bipartite graph.

    * "bahdanau": before each step, by the state before it, so that targets are sequential:
      :math:`c_t` from :math:`s_{t-1}`, then :math:`s_t = \mathrm{GRU}([y_{t-1}, c_t], s_{t-1})`;
    * "dot", "general" (Luong): after each step, by its own state, for all targets at once, as in a
      transformer: :math:`s_t = \mathrm{GRU}(y_{t-1}, s_{t-1})`, then :math:`c_t` from :math:`s_t`;
    * ``None``: no graph; the decoder reads only the encoder's last state, :math:`c_t = h` (the
      bottleneck).

    Then ``tanh(W [c_t, s_t])`` gives the logits. The first state is ``tanh(V h)``.

    Args:
        num_source_tokens: Size of the source vocabulary.
        num_target_tokens: Size of the target vocabulary.
        embed_dim: Width of their vectors.
        hidden: C, width of the states of encoder and decoder; even if bidirectional, half for each
            direction.
        attention: "bahdanau", "dot", "general" or ``None``.
        bidirectional: True if the encoder also runs backwards.

    Source: Cho et al. 2014 (the bottleneck and the GRU), Bahdanau et al. 2015, Luong et al. 2015.
    *What differs:* the GRU is torch's (its reset gate acts on ``U h``, theirs on ``h``); all three
    have the readout of Luong, equation 5, where Bahdanau's has maxout and ``y``; Luong's has LSTMs,
    and feeds the readout into the next step.

    Example:
        >>> import graphattn as ga
        >>> model = Seq2Seq(11, 13, embed_dim=6, hidden=8)
        >>> source, target = torch.randint(11, (3, 7)), torch.randint(13, (3, 5))
        >>> logits, weights = model(source, target, return_weights=True)
        >>> logits.shape, weights.dense().shape  # (B, T, V), and the alignment (B, 1, T, S)
        (torch.Size([3, 5, 13]), torch.Size([3, 1, 5, 7]))
        >>> near = ga.from_mask((torch.arange(5)[:, None] - torch.arange(7)).abs() <= 2)  # local-m
        >>> model(source, target, near).shape
        torch.Size([3, 5, 13])
    """

    def __init__(
        self,
        num_source_tokens: int,
        num_target_tokens: int,
        *,
        embed_dim: int,
        hidden: int,
        attention: str | None = "bahdanau",
        bidirectional: bool = True,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        if attention is not None:
            one_of(attention, "attention", ("bahdanau", "dot", "general"), hint=", or None")
        embed_dim = width(embed_dim, "embed_dim")
        hidden = width(hidden, "hidden")
        if bidirectional and hidden % 2:
            raise OptionError(f"hidden must be even if bidirectional, got {hidden}")
        self.kind = attention
        self.source = nn.Embedding(width(num_source_tokens, "num_source_tokens"), embed_dim)
        self.target = nn.Embedding(width(num_target_tokens, "num_target_tokens"), embed_dim)
        if bidirectional:
            each_way = hidden // 2
        else:
            each_way = hidden
        self.encoder = nn.GRU(embed_dim, each_way, batch_first=True, bidirectional=bidirectional)
        self.first = nn.Linear(hidden, hidden)
        if attention in ("dot", "general"):
            inputs = embed_dim
        else:
            inputs = embed_dim + hidden
        self.cell = nn.GRUCell(inputs, hidden)
        if attention is None:
            self.attention = None
        else:
            self.attention = RecurrentAttention(hidden, attention)
        self.readout = nn.Linear(2 * hidden, hidden, bias=False)
        self.head = nn.Linear(hidden, num_target_tokens)

    @names_checked
    def forward(
        self,
        source: Tensor,
        target: Tensor,
        graph: AttentionGraph | Pattern | None = None,
        *,
        lengths: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, EdgeWeights]:
        """Logits (B, T, V) of the token after each of the target's, and the weights if requested.

        Args:
            source: Integers (B, S), the tokens read.
            target: Integers (B, T), the tokens written so far; a start token first.
            graph: T targets and S sources; all of them by default.
            lengths: (B,), of padded sources: padding is not a node. The graph of the weights then
                is a disjoint union, of T targets for each example and its own sources.
            return_weights: Also return the :class:`graphattn.EdgeWeights`. Those of "bahdanau" are
                put together from all steps, each of which the next depends on: the logits have no
                gradients with respect to them.

        Raises:
            ShapeError: If tokens or lengths do not fit.
            OptionError: If a graph or weights are requested of a model without attention.
        """
        self._check("target", target, self.target)
        memory, last = self.encode(source, lengths)
        y = self.target(target)
        state = torch.tanh(self.first(last))
        if self.attention is None:
            if return_weights or graph is not None:
                raise OptionError(
                    "graph and weights require attention, but the model was built with "
                    "attention=None"
                )
            states = self._steps(y, state, lambda t, state: last)
            weights = None
            context = last.unsqueeze(1).expand_as(states)
        else:
            if graph is None:
                graph = EVERY
            if isinstance(graph, GraphLike):
                graph = graph.at(target.shape[1], source.shape[1])
            if not isinstance(graph, AttentionGraph):
                raise no_graph(graph, "graph must be an AttentionGraph or a Pattern, for one head")
            keys = self.attention.keys(memory)
            # the real tokens (sum of lengths, C), and one union of all graphs
            if lengths is not None:
                is_token = torch.arange(memory.shape[1], device=memory.device) < lengths.to(
                    memory.device
                ).unsqueeze(1)
                keys = keys[is_token]
                memory = memory[is_token]
                graph = disjoint_union([graph.subgraph(sources=range(n)) for n in lengths.tolist()])
            states, context, weights = self._read(y, state, keys, memory, graph)
        logits = self.head(torch.tanh(self.readout(torch.cat((context, states), -1))))
        if return_weights and weights is not None:
            return (logits, weights)
        return logits

    def _check(self, name: str, tokens: Tensor, table: nn.Embedding) -> None:
        check_tokens(name, tokens, table.num_embeddings)
        if tokens.dim() != 2 or not tokens.shape[1]:
            raise ShapeError(f"{name} must be tokens (B, N), one or more, got {shown(tokens)}")

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """States (B, S, C) of tokens (B, S), and the last state (B, C) of each direction."""
        self._check("source", source, self.source)
        x = self.source(source)
        if lengths is None:
            memory, last = self.encoder(x)
        else:
            check_lengths(lengths, source)
            packed, last = self.encoder(
                pack_padded_sequence(x, lengths.cpu(), True, enforce_sorted=False)
            )
            memory, _ = pad_packed_sequence(packed, batch_first=True, total_length=source.shape[1])
        return memory, last.transpose(0, 1).flatten(1)

    def _read(
        self, y: Tensor, state: Tensor, keys: Tensor, memory: Tensor, graph: AttentionGraph
    ) -> tuple[Tensor, Tensor, EdgeWeights]:
        """States (B, T, C), their contexts (B, T, C), and the weights."""
        num_steps = y.shape[1]
        is_joined = memory.dim() == 2  # the examples are one graph
        assert self.attention is not None
        read = self.attention
        if self.kind != "bahdanau":
            states = self._steps(y, state, None)
            query = states
            if is_joined:
                query = states.flatten(0, 1)
            context, weights = read(query, memory, graph, keys)
            return states, context.view_as(states), weights
        results: list[tuple[Tensor, EdgeWeights]] = []

        def context_of(t: int, state: Tensor) -> Tensor:
            rows = range(t, graph.num_targets, num_steps)  # one of every example
            query = state
            if not is_joined:
                query = state.unsqueeze(1)
            results.append(read(query, memory, _of_targets(graph, rows), keys))
            return results[-1][0].view_as(state)

        states = self._steps(y, state, context_of)
        context = torch.stack([context.view_as(state) for context, _ in results], 1)
        step = graph.target % num_steps
        # index of each edge in order of steps
        edge = torch.argsort(torch.argsort(step, stable=True))
        alpha = torch.cat([weights.alpha for _, weights in results], -2)
        return states, context, EdgeWeights(graph, alpha.index_select(-2, edge.to(alpha.device)))

    def _steps(self, y: Tensor, state: Tensor, context_of: Context | None) -> Tensor:
        """States (B, T, C) of the decoder; each step reads ``context_of(t, last state)``."""
        states = []
        for t in range(y.shape[1]):
            if context_of is None:
                inputs = y[:, t]
            else:
                inputs = torch.cat((y[:, t], context_of(t, state)), -1)
            state = self.cell(inputs, state)
            states.append(state)
        return torch.stack(states, 1)


@not_followed  # as the message passing that it calls
def _of_targets(graph: AttentionGraph, rows: range) -> AttentionGraph:
    return cached(graph, (Seq2Seq, rows), lambda: graph.subgraph(targets=rows))
