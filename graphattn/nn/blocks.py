"""The transformer block: attention, cross-attention and a feed-forward, each with a residual."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from ..arguments import check_shape, one_of, positive, width
from ..errors import OptionError
from ..graph import AttentionGraph, Chosen, Pattern, PerExample, PerHead
from ..graph.foreign_names import names_checked
from ..graph.like import GraphLike
from ..graphs import cross
from . import loaders
from .arguments import check_features
from .cache import AllOrNone, KeyValueCache
from .feed_forward import Activation, DropPath, FeedForward
from .graph_attention import GraphAttention

Graph = AttentionGraph | PerHead | PerExample | Pattern | Chosen


def make_norm(kind: str, embed_dim: int, eps: float, bias: bool = True) -> nn.Module:
    """A layer norm, or an RMS norm, which has no bias."""
    one_of(kind, "norm", ("layer", "rms"))
    embed_dim = width(embed_dim, "embed_dim")
    eps = positive(eps, "eps")
    if kind == "layer":
        return nn.LayerNorm(embed_dim, eps, bias=bias)
    return nn.RMSNorm(embed_dim, eps)


class TransformerBlock(nn.Module):
    r"""Attention and a feed-forward, each with a residual: an encoder's layer on a full graph, a
    decoder's on a causal one.

    .. math:: x \leftarrow x + f(\mathrm{norm}(x)) \text{ (pre-norm)}, \qquad
              x \leftarrow \mathrm{norm}(x + f(x)) \text{ (post-norm)}

    Args:
        embed_dim: C.
        num_heads: H.
        hidden: Width of the feed-forward, ``4 * embed_dim`` by default.
        cross: True if targets also read a memory, between the two.
        norm_first: True for pre-norm (GPT-2, ViT, Llama), False for post-norm (the original, BERT).
        norm: "layer" or "rms".
        eps: Epsilon of the norms.
        activation: As in :class:`FeedForward`.
        feed_forward: A module (..., C) to (..., C) in place of the feed-forward, such as
            :class:`MixtureOfExperts`.
        bias: True if projections and layer norms have one.
        dropout: Rate of dropout of weights, in the feed-forward and on every branch.
        drop_path: Probability of dropping a branch, by example.
        branch_norm: True if a norm ends each branch, before the residual (Gemma 2).
        options: Further arguments of :class:`GraphAttention`, for both attentions, which share no
            parameters; ``rotary`` and ``edge_dim`` are for the first only.

    Source: Vaswani et al. 2017, section 3.1; pre-norm as Xiong et al. 2020.

    Example:
        >>> import torch, graphattn as ga
        >>> block = TransformerBlock(8, 2, cross=True)
        >>> memory = torch.randn(7, 8)
        >>> block(torch.randn(5, 8), ga.graphs.causal(5), memory=memory).shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        hidden: int | None = None,
        *,
        cross: bool = False,
        norm_first: bool = True,
        norm: str = "layer",
        eps: float = 1e-5,
        activation: Activation = "gelu",
        feed_forward: nn.Module | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        branch_norm: bool = False,
        **options: Any,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.embed_dim = embed_dim
        self.norm_first = norm_first

        def attend(**arguments: Any) -> GraphAttention:
            return GraphAttention(embed_dim, num_heads, bias=bias, dropout=dropout, **arguments)

        self.attention = attend(**options)
        self.attention_norm = make_norm(norm, embed_dim, eps, bias)
        ends = ["attention", "feed_forward"]
        self.cross_attention: GraphAttention | None = None
        self.cross_norm: nn.Module | None = None
        if cross:
            ends = ["attention", "cross", "feed_forward"]
            cross_options = copies(
                {name: x for name, x in options.items() if name not in ("rotary", "edge_dim")}
            )
            self.cross_attention = attend(**cross_options)
            self.cross_norm = make_norm(norm, embed_dim, eps, bias)
        replaced = ""
        if hidden is not None:
            replaced = f"hidden={hidden}"
        elif activation != "gelu":
            replaced = f"activation={activation!r}"
        if feed_forward is None:
            if hidden is None:
                hidden = 4 * embed_dim
            feed_forward = FeedForward(embed_dim, hidden, activation, dropout=dropout, bias=bias)
        elif replaced:
            raise OptionError(
                f"{replaced} configures the default feed-forward, which feed_forward replaces; "
                "leave it out"
            )
        self.feed_forward = feed_forward
        self.feed_forward_norm = make_norm(norm, embed_dim, eps, bias)
        self.branch = nn.Sequential(nn.Dropout(dropout), DropPath(drop_path))
        norms = {name: make_norm(norm, embed_dim, eps, bias) for name in ends if branch_norm}
        self.end_norm: nn.ModuleDict | None = None
        if norms:
            self.end_norm = nn.ModuleDict(norms)

    def _added(self, x: Tensor, norm: nn.Module, sublayer: Any, name: str) -> Tensor:
        inputs = x
        if self.norm_first:
            inputs = norm(x)
        output = sublayer(inputs)
        if name == "feed_forward":
            check_shape(output, "the result of feed_forward", x.shape)
        if self.end_norm is not None:
            output = self.end_norm[name](output)
        if self.training:
            output = self.branch(output)
        added = x + output
        if self.norm_first:
            return added
        return norm(added)

    def check(self, x: Any) -> None:
        """Refuse anything but features (..., N, C)."""
        check_features("x", x, "N", self.embed_dim)

    @names_checked
    def forward(
        self,
        x: Tensor,
        graph: Graph | Tensor,
        *,
        memory: Tensor | KeyValueCache | None = None,
        memory_graph: Graph | Tensor | None = None,
        score_bias: Tensor | dict[GraphLike, Tensor | None] | Callable[..., Any] | None = None,
        memory_bias: Tensor | None = None,
        edge_attr: Tensor | None = None,
        positions: Tensor | None = None,
        cache: KeyValueCache | None = None,
        sources: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """The block's output (..., N, C).

        Args:
            x: (..., N, C).
            graph: N targets and as many sources; with a cache, the new tokens and all so far.
            memory: (..., M, C), the sources of a block with ``cross``, or the result of its
                ``cross_attention.hold``; required by such a block only.
            memory_graph: N targets and M sources; all pairs by default.
            score_bias: Biases of the edges, as in :func:`graphattn.attention`; ``memory_bias`` of
                the memory graph's.
            edge_attr: Features of the graph's edges, for a block with ``edge_dim``.
            positions: Positions of the nodes, for a layer with ``rotary``.
            cache: Keys and values of earlier tokens.
            sources: A function from the normed ``x`` to the sources, if these are other nodes: a
                padded or pooled grid.

        Raises:
            OptionError: If a memory is missing, or given to a block that reads none.
            ShapeError: If features do not fit the block or the graph, or have another dtype or
                device than the block.
        """
        self.check(x)
        if self.cross_attention is None:
            if memory is not None:
                raise OptionError("memory was given, but the block was built without cross=True")
            if memory_graph is not None or memory_bias is not None:
                raise OptionError("memory_graph and memory_bias require cross=True")
        elif memory is None:
            raise OptionError("the block was built with cross=True: pass memory")
        with AllOrNone(cache):
            x = self._added(
                x,
                self.attention_norm,
                lambda y: self.attention(
                    y,
                    graph,
                    context=None if sources is None else (sources(y),) * 2,
                    score_bias=score_bias,
                    edge_attr=edge_attr,
                    positions=positions,
                    cache=cache,
                ),
                "attention",
            )
            if self.cross_attention is not None and self.cross_norm is not None:
                layer = self.cross_attention
                if memory_graph is None:
                    memory_graph = EVERY
                arguments: dict[str, Any] = {"context": memory, "score_bias": memory_bias}
                x = self._added(
                    x, self.cross_norm, lambda y: layer(y, memory_graph, **arguments), "cross"
                )
            return self._added(x, self.feed_forward_norm, self.feed_forward, "feed_forward")

    @classmethod
    def from_torch(
        cls, layer: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
    ) -> "TransformerBlock":
        """The block that equals a torch layer on a full or a causal graph, with its weights."""
        return loaders.block_from_torch(cls, layer)


def copies(options: dict[str, Any]) -> dict[str, Any]:
    """The options of another layer; modules with parameters are copied, so that none is shared."""
    return {name: _unshared(option) for name, option in options.items()}


def _unshared(option: Any) -> Any:
    if not isinstance(option, nn.Module):
        return option
    if next(option.parameters(), None) is None:
        return option
    return deepcopy(option)


#: All pairs, at any size.
EVERY = cross(..., ...)
