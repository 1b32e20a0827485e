"""Perceiver IO: latent nodes read all inputs, read each other, and are read by the outputs."""

from typing import Any

import torch
from torch import Tensor, nn

from graphattn.arguments import check_flags, width
from graphattn.errors import OptionError
from graphattn.graph.foreign_names import names_checked
from graphattn.graph.kinds.layers import Layers
from graphattn.models.images.patches import EVERY_NODE
from graphattn.models.stacks import Encoder
from graphattn.nn import FeedForward, GraphAttention
from graphattn.nn.blocks import EVERY, Graph


class CrossAttentionBlock(nn.Module):
    """Cross-attention along a bipartite graph: norms of both sides, attention, a feed-forward.

    Args:
        embed_dim: C of the targets.
        source_dim: Width of the sources.
        num_heads: H.
        inner: Width of queries and keys, all heads together; ``source_dim`` by default, as in the
            paper's code.
        value_inner: Width of values, all heads together; ``inner`` by default.
        hidden: Width of the feed-forward, ``embed_dim`` by default.
        residual: True for a residual connection of the targets.
        activation: Activation of the feed-forward.
        dropout: Rate of dropout of the weights.

    Source: Jaegle et al. 2022, "Perceiver IO", section 3, and their code.

    Example:
        >>> CrossAttentionBlock(8, source_dim=5, num_heads=1)(torch.randn(3, 8), torch.randn(7, 5)).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        embed_dim: int,
        source_dim: int,
        num_heads: int = 1,
        *,
        inner: int | None = None,
        value_inner: int | None = None,
        hidden: int | None = None,
        residual: bool = True,
        activation: str = "gelu",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_flags(residual=residual)
        source_dim = width(source_dim, "source_dim")
        num_heads = width(num_heads, "num_heads")
        if inner is None:
            inner = source_dim
        if value_inner is None:
            value_inner = inner
        for name, size in (("inner", inner), ("value_inner", value_inner)):
            if width(size, name) % num_heads:
                raise OptionError(
                    f"{name} must be a multiple of num_heads, got {size} and {num_heads}"
                )
        self.residual = residual
        self.norm = nn.LayerNorm(embed_dim)
        self.source_norm = nn.LayerNorm(source_dim)
        self.attention = GraphAttention(
            embed_dim,
            num_heads,
            kdim=source_dim,
            vdim=source_dim,
            head_dim=inner // num_heads,
            value_dim=value_inner // num_heads,
            dropout=dropout,
        )
        self.feed_forward_norm = nn.LayerNorm(embed_dim)
        if hidden is None:
            hidden = embed_dim
        self.feed_forward = FeedForward(embed_dim, hidden, activation)

    def forward(self, x: Tensor, sources: Tensor, graph: Graph = EVERY) -> Tensor:
        """(..., T, C) from targets (..., T, C) and sources (..., S, source_dim)."""
        output = self.attention(self.norm(x), graph, context=self.source_norm(sources))
        if self.residual:
            x = x + output
        else:
            x = output
        return x + self.feed_forward(self.feed_forward_norm(x))


class Perceiver(nn.Module):
    """Perceiver IO: three graphs, from inputs to latents, between latents, to the outputs.

    Args:
        num_latents: Number of latent nodes.
        embed_dim: C of the latents.
        input_dim: Width of the inputs.
        num_layers: Number of blocks between latents.
        num_heads: H of these.
        num_blocks: Number of runs of all blocks, with the same weights.
        read: Further arguments of the :class:`CrossAttentionBlock` of the inputs, such as ``{"num_heads": 4}``.
        outputs: (number, width) of learned output nodes, which read the latents; none by default.
        write: Further arguments of the :class:`CrossAttentionBlock` of the latents by the outputs.
        options: Further arguments of the blocks of :class:`graphattn.models.Encoder`. Feed-forwards
            are as wide as the latents unless ``hidden`` is given.

    Attributes:
        head: A module after each output, such as a linear layer; the identity by default.

    Source: Jaegle et al. 2021, "Perceiver", and 2022, "Perceiver IO". Equal to ``PerceiverModel``
    of ``transformers``.

    Example:
        >>> import graphattn as ga
        >>> model = Perceiver(4, 16, input_dim=6, num_layers=2, num_heads=2, outputs=(3, 8))
        >>> inputs = torch.randn(2, 100, 6)
        >>> model(inputs).shape
        torch.Size([2, 3, 8])
        >>> halves = ga.graphs.cross(4, 100) & ga.from_rule(lambda t, s: s // 50 == t % 2, 4, 100)
        >>> model(inputs, read_graph=halves).shape
        torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        num_latents: int,
        embed_dim: int,
        input_dim: int,
        num_layers: int,
        num_heads: int,
        *,
        num_blocks: int = 1,
        read: dict[str, Any] | None = None,
        outputs: tuple[int, int] | None = None,
        write: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        if outputs is None and write is not None:
            raise OptionError(f"write={write!r} requires outputs")
        if "final_norm" in options:
            raise OptionError(
                "final_norm must be left out, since the latents have no norm at the end"
            )
        self.num_blocks = width(num_blocks, "num_blocks")
        self.latents = nn.Parameter(
            torch.randn(width(num_latents, "num_latents"), width(embed_dim, "embed_dim")) * 0.02
        )
        self.read = CrossAttentionBlock(embed_dim, input_dim, **(read or {}))
        if "feed_forward" not in options:
            options = {"hidden": embed_dim, **options}
        self.encoder = Encoder(num_layers, embed_dim, num_heads, final_norm=False, **options)
        self.queries: nn.Parameter | None = None
        self.write: CrossAttentionBlock | None = None
        if outputs is not None:
            number, output_dim = (width(size, "outputs") for size in outputs)
            self.queries = nn.Parameter(torch.randn(number, output_dim) * 0.02)
            self.write = CrossAttentionBlock(output_dim, embed_dim, **(write or {}))
        self.head: nn.Module | None = None

    @names_checked
    def forward(
        self,
        inputs: Tensor,
        queries: Tensor | None = None,
        *,
        read_graph: Graph | None = None,
        latent_graph: Layers | None = None,
        write_graph: Graph | None = None,
    ) -> Tensor:
        """The outputs (..., O, width), or without outputs the latents (..., num_latents, C).

        Args:
            inputs: (..., S, input_dim), any number of them.
            queries: (..., O, width) in place of the learned output nodes.
            read_graph: From inputs to latents, all pairs by default.
            latent_graph: Between latents, one for all layers or a list; full by default.
            write_graph: From latents to outputs, all pairs by default.
        """
        if self.write is None and (queries is not None or write_graph is not None):
            raise OptionError(
                "queries and write_graph require outputs, but the model was built without"
            )
        batch = inputs.shape[:-2]
        if read_graph is None:
            read_graph = EVERY
        x = self.read(self.latents.expand(*batch, -1, -1), inputs, read_graph)
        if latent_graph is None:
            latent_graph = EVERY_NODE
        for _ in range(self.num_blocks):
            x = self.encoder(x, latent_graph)
        if self.write is None or self.queries is None:
            return x
        outputs = queries
        if outputs is None:
            outputs = self.queries
        if outputs.dim() == 2:
            outputs = outputs.expand(*batch, -1, -1)
        if write_graph is None:
            write_graph = EVERY
        output = self.write(outputs, x, write_graph)
        if self.head is None:
            return output
        return self.head(output)
