"""LongT5's transient global attention: every token reads a window and all block summaries."""

from typing import Any

import torch
from torch import Tensor, nn

from graphattn.arguments import width
from graphattn.graph import AttentionGraph
from graphattn.graph.kinds.layers import Layers, layers_of
from graphattn.graph.modes import not_followed
from graphattn.graphs import composite, cross
from graphattn.models import T5, Encoder
from graphattn.models.tokens import check_lengths
from graphattn.nn import T5Bias
from graphattn.plans.cache import cached


class SummaryEncoder(nn.Module):
    r"""Blocks whose tokens also read normed sums of blocks of tokens, computed in every layer.

    .. math:: \mathcal{N}(t) = \mathcal{N}_\ell(t) \cup \{ u_1, \ldots, u_G \}, \qquad
              u_g = \mathrm{norm} \Big( \sum_{s \in \text{block } g} x_s \Big), \quad G = \lfloor N / b \rfloor

    Tokens after the last whole block belong to that block. It is a bipartite graph from N + G
    sources to N targets.

    Args:
        plain: The encoder whose blocks these are.
        like: A bias whose settings the bias of edges from summaries copies, with distances in
            blocks.
        block: b, tokens of a summary.

    Source: Guo et al. 2022, "LongT5" (TGlobal); equal to ``transformers``.

    """

    def __init__(self, plain: Encoder, like: T5Bias, block: int) -> None:
        super().__init__()
        norm: Any = plain.norm
        self.layers = plain.layers
        self.norm = norm
        self.block = width(block, "summary_block")
        self.summary_norms = nn.ModuleList(
            nn.RMSNorm(norm.normalized_shape, norm.eps) for _ in plain.layers
        )
        self.summary_bias = T5Bias(like.table.weight.shape[1], like.num_buckets, like.max_distance)

    def forward(
        self, x: Tensor, graph: Layers, *, score_bias: T5Bias, lengths: Tensor | None = None
    ) -> Tensor:
        """(..., N, C) to (..., N, C).

        Args:
            x: (..., N, C).
            graph: The graph between tokens, one graph of N nodes for all layers or a list.
            score_bias: The module of the bias of edges between tokens.
            lengths: Integers (...), of sequences that are padded at their end.
        """
        N = x.shape[-2]
        if lengths is not None:
            check_lengths(lengths, x[..., 0])
        number = self._numbers(x, lengths)
        biased_graphs: dict[
            int, tuple[AttentionGraph, Tensor]
        ] = {}  # layers of the same graph share its biases
        layers: Any = zip(
            self.layers, self.summary_norms, layers_of(graph, len(self.layers)), strict=True
        )
        for layer, norm, reads in layers:
            if id(reads) not in biased_graphs:
                joint_graph, source, target = _with_summaries(
                    reads.at(N), N // self.block, x.device
                )
                biased_graphs[id(reads)] = (
                    joint_graph,
                    self._bias(source, target, number, score_bias, lengths),
                )
            joint_graph, bias = biased_graphs[id(reads)]
            x = layer(
                x,
                joint_graph,
                score_bias=bias,
                sources=lambda y, norm=norm: torch.cat((y, norm(self._sums(y, number))), -2),
            )
        if self.norm is None:
            return x
        return self.norm(x)

    def _numbers(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """The block of each token, int64 (N,) or (..., N); G for a token without one."""
        position = torch.arange(x.shape[-2], device=x.device)
        if lengths is None:
            num_tokens = torch.tensor(x.shape[-2])
        else:
            num_tokens = lengths
        num_tokens = num_tokens.to(x.device).unsqueeze(-1)
        number = torch.minimum(position // self.block, num_tokens // self.block - 1).expand(
            *num_tokens.shape[:-1], -1
        )
        return number.masked_fill(
            (number < 0) | (position >= num_tokens), x.shape[-2] // self.block
        )

    def _sums(self, y: Tensor, number: Tensor) -> Tensor:
        """Sums (..., G, C) of the tokens of every block."""
        G = y.shape[-2] // self.block
        block_ids = torch.arange(y.shape[-2], device=y.device) // self.block
        # of a whole block, and after the last one
        inside = number == block_ids
        after = number < block_ids
        sums = (
            torch.where(inside.unsqueeze(-1), y, 0.0)[..., : G * self.block, :]
            .unflatten(-2, (G, self.block))
            .sum(-2)
        )
        rest = torch.where(after.unsqueeze(-1), y, 0.0).sum(-2, keepdim=True)
        last = torch.where(after, number, -1).amax(-1, keepdim=True)
        return sums + (torch.arange(G, device=y.device) == last).unsqueeze(-1) * rest

    def _bias(
        self, source: Tensor, target: Tensor, number: Tensor, tokens: T5Bias, lengths: Tensor | None
    ) -> Tensor:
        """Biases (..., E, H) of edges by the distance of tokens, or of blocks from summaries."""
        N = number.shape[-1]
        is_token = source < N
        of_tokens = tokens.table.rows(tokens.bucket(source - target))
        summary = (source - N).clamp(min=0)
        block = number[..., target]
        of_summaries = self.summary_bias.table.rows(self.summary_bias.bucket(summary - block))
        bias = torch.where(is_token.unsqueeze(-1), of_tokens, of_summaries)
        if lengths is None:
            return bias
        num_tokens = lengths.to(number.device).unsqueeze(-1)
        is_padding = torch.where(
            is_token, source >= num_tokens, summary >= num_tokens // self.block
        )
        return bias.masked_fill(is_padding.unsqueeze(-1), -torch.inf)


@not_followed  # graphs are built by Python; a compiled program breaks here
def _with_summaries(
    graph: AttentionGraph, num_summaries: int, device: torch.device
) -> tuple[AttentionGraph, Tensor, Tensor]:
    """The graph of tokens and summaries, cached with the tokens' graph, and its edges' ends."""
    joint_graph = graph
    if num_summaries:
        parts = [[graph, cross(graph.num_targets, num_summaries)]]
        joint_graph = cached(graph, (SummaryEncoder, num_summaries), lambda: composite(parts))
    return joint_graph, joint_graph.source.to(device), joint_graph.target.to(device)


class LongT5(T5):
    """T5 whose encoder has windows, and, with ``summary_block``, summaries.

    Args:
        sizes: As of :class:`graphattn.models.T5`.
        summary_block: Tokens of a block whose summary every token of the encoder also reads; none
            by default.
        options: Further arguments of :class:`graphattn.models.T5`, with ``source_graph`` its window.

    Example:
        >>> import graphattn as ga
        >>> near = ga.graphs.sliding_window(..., 3, causal=False)
        >>> model = LongT5(11, 8, 2, 2, summary_block=4, source_graph=near)
        >>> source, target = torch.randint(11, (3, 13)), torch.randint(11, (3, 5))
        >>> model(source, target).shape
        torch.Size([3, 5, 11])
    """

    def __init__(self, *sizes: Any, summary_block: int | None = None, **options: Any) -> None:
        super().__init__(*sizes, **options)
        if summary_block is not None:
            self.encoder = SummaryEncoder(self.encoder, self.encoder_bias, summary_block)
