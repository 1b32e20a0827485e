"""Biases of sequences by the distance between source and target."""

import math

import torch
from torch import Tensor, nn

from ...arguments import table, width
from ...backends.place_bias import PlaceBias
from ...errors import OptionError
from ...graph import AttentionGraph
from ...graph.like import GraphLike
from .constant import line, of_edges, offsets
from .table import EdgeTypeBias

Positions = Tensor | tuple[Tensor, Tensor] | None


class SequenceBias(nn.Module):
    """A bias of the offset alone."""

    def _of_offsets(self, offset: Tensor) -> Tensor:
        """Biases (..., H) of offsets (...), source minus target."""
        raise NotImplementedError

    def places(self, graph: AttentionGraph, positions: Positions = None) -> PlaceBias | None:
        """The biases as a table of all offsets; None if these are not constants, or too many."""
        on_line = line(graph, positions)
        if on_line is None:
            return None
        return PlaceBias(self._of_offsets(on_line.offsets), *on_line[:2])


class ALiBi(SequenceBias):
    r"""A penalty proportional to the distance, with a different slope in each head; nothing is
    learned.

    .. math:: b_{ts} = -m_h \, |t - s|, \qquad m_h = 2^{-8 h / H}, \quad h = 1, \ldots, H

    for H a power of two; otherwise the slopes of the power of two below it, then every other slope
    of the one above.

    Args:
        num_heads: H.

    Source: Press et al. 2022, section 3, and their code for the slopes. They have causal graphs
    only; on others the distance has no sign. *What differs:* Bloom in ``transformers`` adds
    :math:`m_h s`, which is this plus a number for each target, so that weights are equal and scores
    are not.

    Example:
        >>> import graphattn as ga
        >>> graph, alibi = ga.graphs.causal(3), ALiBi(num_heads=2)
        >>> alibi(graph)[:, 0]
        tensor([ 0.0000, -0.0625,  0.0000, -0.1250, -0.0625,  0.0000])
        >>> layer = ga.nn.GraphAttention(embed_dim=8, num_heads=2)
        >>> layer(torch.randn(3, 8), graph, score_bias=alibi).shape  # of alibi(graph), but faster
        torch.Size([3, 8])
    """

    like: Tensor

    def __init__(self, num_heads: int) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.num_heads = width(num_heads, "num_heads")
        # moved by .to(); slopes stay exact
        self.register_buffer("like", torch.empty(0), persistent=False)

    @property
    def slopes(self) -> Tensor:
        """m (H,), float32 or float64."""
        below = 1 << (self.num_heads.bit_length() - 1)
        wider = [2.0 ** (-4.0 * (h + 1) / below) for h in range(0, 2 * below, 2)]
        return torch.tensor(
            [2.0 ** (-8.0 * (h + 1) / below) for h in range(below)]
            + wider[: self.num_heads - below],
            dtype=torch.promote_types(self.like.dtype, torch.float32),
            device=self.like.device,
        )

    def forward(self, graph: GraphLike, positions: Positions = None) -> Tensor:
        """Biases (E, H) in the graph's edge order, float32 or float64, on the module's device.

        Args:
            graph: The graph of the layer.
            positions: int64 (..., N), or a pair, of targets (..., T) and of sources (..., S): of
                packed documents, or of the last token alone beside a cache. Both count 0, 1, 2, ...
                by default.

        Raises:
            ShapeError: If positions do not fit the graph.
        """
        return self._of_offsets(offsets(graph, positions, self.like.device))

    def _of_offsets(self, offset: Tensor) -> Tensor:
        slopes = self.slopes
        return (-offset.abs()).to(slopes.dtype).unsqueeze(-1) * slopes

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}"


class T5Bias(SequenceBias):
    r"""A learned bias for each bucket of distances, single near ones and ranges of far ones, as in
    T5.

    With :math:`r = s - t`, key minus query: half of the buckets are for :math:`r > 0` if
    ``bidirectional``, and otherwise all :math:`r > 0` count as 0. Of the n buckets of a direction,
    the first ``n // 2`` hold one distance each, the others grow with the logarithm up to
    ``max_distance``, and the last has all larger ones.

    Args:
        num_heads: H.
        num_buckets: Rows of the table; 32 in T5.
        max_distance: Distance from which on all are in the last bucket; 128 in T5.
        bidirectional: True if before and after are distinguished: True in T5's encoder, False in
            its decoder.

    Attributes:
        table: An :class:`EdgeTypeBias`, which takes the state of T5's ``relative_attention_bias``.

    Source: Raffel et al. 2020, section 2.1; the formula is that of Mesh TensorFlow and
    ``transformers``, in float32 as theirs. In T5 all layers share one bias, scores are not divided
    by the root of D (``scale=1.0``), and attention from decoder to encoder has none.

    Example:
        >>> import graphattn as ga
        >>> bias = T5Bias(num_heads=2, num_buckets=8, max_distance=16)
        >>> bias.bucket(torch.tensor([-20, -9, -3, -1, 0, 1, 5, 20]))
        tensor([3, 3, 2, 1, 0, 5, 6, 7])
        >>> bias(ga.graphs.full(5)).shape
        torch.Size([25, 2])
        >>> layer = ga.nn.GraphAttention(embed_dim=8, num_heads=2, scale=1.0)
        >>> layer(torch.randn(5, 8), ga.graphs.full(5), score_bias=bias).shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        *,
        bidirectional: bool = True,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.num_buckets = width(num_buckets, "num_buckets")
        self.max_distance = width(max_distance, "max_distance")
        self.bidirectional = bidirectional
        if bidirectional:
            least = 4
        else:
            least = 2
        if self.num_buckets < least or self.num_buckets % (1 + bidirectional):
            raise OptionError(
                f"num_buckets must be {least} or more, and even if bidirectional; got {num_buckets}"
            )
        exact = self.num_buckets // (1 + bidirectional) // 2
        if self.max_distance <= exact:
            raise OptionError(
                f"max_distance must be above {exact}, the distances with a bucket each, got "
                f"{max_distance}"
            )
        self.table = EdgeTypeBias(self.num_buckets, num_heads)

    def forward(self, graph: GraphLike, positions: Positions = None) -> Tensor:
        """Biases (E, H) in the graph's edge order.

        Args:
            graph: The graph of the layer.
            positions: int64 (..., N), or a pair, of targets (..., T) and of sources (..., S): of
                packed documents, or of the last token alone beside a cache. Both count 0, 1, 2, ...
                by default.

        Raises:
            ShapeError: If positions do not fit the graph.
        """
        device = self.table.weight.device
        if positions is None:
            options = (self.bidirectional, self.num_buckets, self.max_distance)
            return self.table.rows(of_edges(graph, _buckets_of, *options, device=device))
        return self._of_offsets(offsets(graph, positions, device))

    def _of_offsets(self, offset: Tensor) -> Tensor:
        options = (self.bidirectional, self.num_buckets, self.max_distance)
        return self.table.rows(_bucket(offset, *options))

    def bucket(self, offset: Tensor) -> Tensor:
        """The row of the table for each offset, source minus target; int64 like it."""
        offset = table(offset, "offset", "whole numbers, source minus target")
        return _bucket(offset, self.bidirectional, self.num_buckets, self.max_distance)

    def extra_repr(self) -> str:
        return f"max_distance={self.max_distance}, bidirectional={self.bidirectional}"


def _buckets_of(
    graph: AttentionGraph, bidirectional: bool, num_buckets: int, max_distance: int
) -> Tensor:
    return _bucket(graph.source - graph.target, bidirectional, num_buckets, max_distance)


def _bucket(offset: Tensor, bidirectional: bool, num_buckets: int, max_distance: int) -> Tensor:
    first = torch.zeros_like(offset)
    if bidirectional:
        num_buckets //= 2
        first = torch.where(offset > 0, num_buckets, 0)
        distance = offset.abs()
    else:
        distance = -offset.clamp(max=0)
    exact = num_buckets // 2
    growth = torch.log(distance.float() / exact) / math.log(max_distance / exact)
    far = exact + (growth * (num_buckets - exact)).clamp(min=0).to(torch.int64)
    return first + torch.where(distance < exact, distance, far.clamp(max=num_buckets - 1))
