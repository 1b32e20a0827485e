"""The GPS layer: message passing along data edges beside attention along a graph."""

from typing import Any

from torch import Tensor, nn

from ...arguments import one_of, probability, shown
from ...errors import OptionError, ShapeError
from ...graph.foreign_names import names_checked
from ...graph.like import GraphLike
from ...graphs import circulant
from ...nn import FeedForward, GraphAttention
from ...nn.blocks import Graph, make_norm
from ...nn.feed_forward import Activation
from ..example import example, features

NORMS = ("batch", "layer", "rms")


def _norm(kind: str, embed_dim: int) -> nn.Module:
    """A norm of nodes (N, C), or (..., N, C) unless it is "batch"."""
    if kind == "batch":
        return nn.BatchNorm1d(embed_dim)
    return make_norm(kind, embed_dim, 1e-5)


@example(
    lambda new, p: new(8, 2, norm="layer", dropout=p),
    features(7, 8),
    lambda: (circulant(7, (1, 2, 5, 6)),),
)
class GPSBlock(nn.Module):
    r"""Local messages plus attention, each with residual and norm; then a feed-forward with both.

    .. math:: y = \mathrm{norm}_1(x + \mathrm{conv}(x)) + \mathrm{norm}_2(x + \mathrm{attention}(x)), \qquad
              x \leftarrow \mathrm{norm}_3(y + f(y))

    Args:
        embed_dim: C.
        num_heads: H.
        hidden: Width of the feed-forward, ``2 * embed_dim`` by default.
        local: Message passing from PyG, of width C to C; or ``None``, which leaves attention alone.
        norm: "batch", over all nodes and examples, "layer" or "rms".
        activation: As in :class:`graphattn.nn.FeedForward`.
        dropout: Rate of dropout of weights, of the branches and in the feed-forward.
        options: Further arguments of :class:`graphattn.nn.GraphAttention`.

    Source: Rampasek et al. 2022, equations 2 to 5, as PyG's ``GPSConv``, whose attention reads all
    pairs. *What differs:* attention has any graph, and PyG drops no outputs of attention weights.

    Example:
        >>> import torch, graphattn as ga
        >>> from torch_geometric.nn import GCNConv
        >>> block = GPSBlock(8, 2, local=GCNConv(8, 8))
        >>> edges = ga.graphs.circulant(5, (1, 4))
        >>> block(torch.randn(5, 8), ga.graphs.full(...), edges.edge_index).shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        hidden: int | None = None,
        *,
        local: nn.Module | None = None,
        norm: str = "batch",
        activation: Activation = "relu",
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        one_of(norm, "norm", NORMS)
        self.local = local
        self.dropout = nn.Dropout(probability(dropout, "dropout"))
        self.attention = GraphAttention(embed_dim, num_heads, dropout=dropout, **options)
        if hidden is None:
            hidden = 2 * embed_dim
        self.feed_forward = FeedForward(embed_dim, hidden, activation, dropout=dropout)
        self.local_norm: nn.Module | None = None
        if local is not None:
            self.local_norm = _norm(norm, embed_dim)
        self.attention_norm = _norm(norm, embed_dim)
        self.feed_forward_norm = _norm(norm, embed_dim)

    @names_checked
    def forward(
        self,
        x: Tensor,
        graph: Graph | Tensor,
        edge_index: Tensor | None = None,
        *,
        local_attr: Tensor | None = None,
        score_bias: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """The block's output (..., N, C).

        Args:
            x: (..., N, C).
            graph: The graph of attention, N nodes.
            edge_index: int64 (2, E), along which messages go; required by a block with ``local``.
            local_attr: Features of these edges, for message passing that takes them as
                ``edge_attr``.
            score_bias: Biases of the edges of ``graph``; ``edge_attr``, their features.

        Raises:
            OptionError: If ``edge_index`` is missing, a block with ``local`` is given a shard, or a
                batch norm in training has a single node.
            ShapeError: If ``local`` does not return (..., N, C).
        """
        read = self.attention(x, graph, score_bias=score_bias, edge_attr=edge_attr)
        y = _normed(self.attention_norm, x + self.dropout(read))
        if self.local is not None:
            if edge_index is None:
                raise OptionError("the block has local message passing: pass edge_index")
            if isinstance(graph, GraphLike) and graph.positions is not None:
                raise OptionError(
                    "local message passing needs rows of all nodes, got a shard; leave out local"
                )
            if local_attr is None:
                options = {}
            else:
                options = {"edge_attr": local_attr}
            messages = self.local(x, edge_index, **options)
            if messages.shape != x.shape:  # one channel would be spread over all
                raise ShapeError(
                    f"local must return as many channels as it is given, {tuple(x.shape)}, got "
                    f"{shown(messages)}"
                )
            y = _normed(self.local_norm, x + self.dropout(messages)) + y
        return _normed(self.feed_forward_norm, y + self.dropout(self.feed_forward(y)))

    @classmethod
    def from_pyg(cls, conv: nn.Module) -> "GPSBlock":
        """The block with modules and weights of PyG's ``GPSConv``, and its outputs on all pairs.

        Raises:
            OptionError: If it has another attention than ``"multihead"``, or a norm by graph.
        """
        layer: Any = conv
        if type(layer).__name__ != "GPSConv" or not isinstance(layer.attn, nn.MultiheadAttention):
            raise OptionError(f'expected a GPSConv of attn_type="multihead", got {conv!r}')
        norms = (layer.norm1, layer.norm2, layer.norm3)
        if layer.norm_with_batch or any(norm is None for norm in norms):
            raise OptionError(
                'a norm that needs batch, or none, has no counterpart; use norm="batch_norm" or '
                "an nn.Module"
            )
        up, activation, _, down, _ = layer.mlp
        block = cls(
            layer.channels,
            layer.heads,
            up.out_features,
            activation=activation,
            dropout=layer.dropout,
        )
        block.attention = GraphAttention.from_torch(layer.attn)
        block.local, (block.local_norm, block.attention_norm, block.feed_forward_norm) = (
            layer.conv,
            norms,
        )
        block.feed_forward.up = up
        block.feed_forward.down = down
        return block.train(layer.training)


def _normed(norm: nn.Module | None, x: Tensor) -> Tensor:
    """Normed features; a batch norm has the nodes of all examples in one axis."""
    assert norm is not None
    if not isinstance(norm, nn.BatchNorm1d):
        return norm(x)
    # a synced one has others' rows
    return norm(x.flatten(0, -2)).view(x.shape)
