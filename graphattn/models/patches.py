"""Pictures and videos as nodes: patches of a grid of pixels, row by row, behind a class token."""

import math
from collections.abc import Iterable
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from ..arguments import floats, probability, several, whole, width
from ..errors import OptionError, ShapeError
from ..graph import AttentionGraph, Pattern, disjoint_union
from ..graph.foreign_names import names_checked
from ..graph.layers import Layer, Layers
from ..graph.modes import constant_result
from ..graph.pattern import cache_key
from ..graph.sizes import of_size
from ..graphs import full
from ..nn import LearnedPosition
from ..nn.arguments import check_kind
from .stacks import Encoder, layers_in

Size = tuple[int, ...]
EVERY_NODE: Pattern = full(...)
_CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class PatchEmbedding(nn.Module):
    """A grid of pixels cut into patches, each projected to one node: a convolution whose stride is its kernel.

    Args:
        channels: Of the pixels; 3 for colours.
        embed_dim: C.
        patch: Pixels of a patch on every axis, (height, width) for an image, (time, height, width) for a video.
        pad: Fill up axes that are not a multiple of ``patch`` with zeros at their end, as Swin does.

    Source: Dosovitskiy et al. 2021 (ViT), section 3.1; Arnab et al. 2021 (ViViT), section 3.2, for tubelets.

    Example:
        >>> PatchEmbedding(3, 8, (4, 4))(torch.randn(2, 3, 12, 20)).shape  # 3 x 5 patches
        torch.Size([2, 15, 8])
    """

    def __init__(self, channels: int, embed_dim: int, patch: Size, *, pad: bool = False) -> None:
        super().__init__()
        if not isinstance(patch, tuple | list):
            raise OptionError(f"patch must name every axis, such as (height, width); got {patch!r}")
        self.patch, self.pad = tuple(width(side, "patch") for side in patch), pad
        if len(self.patch) not in _CONVOLUTIONS:
            raise OptionError(f"patch must have 1, 2 or 3 axes, got {patch!r}")
        make = _CONVOLUTIONS[len(self.patch)]
        self.projection = make(width(channels, "channels"), width(embed_dim, "embed_dim"), self.patch, self.patch)

    def grid(self, size: Size) -> Size:
        """Patches on every axis of pixels of that size.

        Raises:
            ShapeError: If an axis is not a multiple of its patch, and nothing is padded.
        """
        size = tuple(whole(n, "size", 0) for n in several(size, "size", f"must be {len(self.patch)} numbers of pixels"))
        if len(size) != len(self.patch) or (not self.pad and any(n % p for n, p in zip(size, self.patch, strict=True))):
            raise ShapeError(f"pixels of size {size} do not divide into patches of {self.patch}")
        return tuple(-(-n // p) for n, p in zip(size, self.patch, strict=True))

    def forward(self, pixels: Tensor) -> Tensor:
        """Nodes (B, N, C), or (N, C), from pixels (B, channels, *size), or (channels, *size)."""
        axes, channels = len(self.patch), self.projection.in_channels
        if not isinstance(pixels, Tensor) or pixels.dim() - axes not in (1, 2) or pixels.shape[-axes - 1] != channels:
            letters = ", ".join(("time", "height", "width")[-axes:])
            got = tuple(pixels.shape) if isinstance(pixels, Tensor) else type(pixels).__name__
            raise ShapeError(f"pixels must be (B, {channels}, {letters}), got {got}")
        check_kind(self.projection, "pixels", pixels)
        size = tuple(pixels.shape[-axes:])
        whole = [n * p - length for n, p, length in zip(self.grid(size), self.patch, size, strict=True)]
        if any(whole):
            pixels = nn.functional.pad(pixels, [side for more in reversed(whole) for side in (0, more)])
        return self.projection(pixels).flatten(-axes).transpose(-1, -2)


class PatchTransformer(nn.Module):
    """Patches behind a class token, learned positions, an encoder, a head: what ViT and ViViT share.

    Attributes:
        grid: Patches, on every axis. The graph's nodes are the K tokens, the class token first, then these row by row.
        first_norm: Of what the first block reads, as CLIP has it; none at first.
        pooler: What :meth:`pooled` ends with; nothing at first.
    """

    axes: tuple[str, ...] = ()

    def __init__(
        self,
        size: Size | int,
        patch: Size | int,
        num_layers: int,
        embed_dim: int,
        num_heads: int,
        hidden: int | None = None,
        *,
        channels: int = 3,
        num_classes: int | None = None,
        num_tokens: int = 1,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        size = sides("size", size, self.axes)
        self.patches = PatchEmbedding(channels, embed_dim, sides("patch", patch, self.axes))
        self.grid = self.patches.grid(size)
        self.num_tokens = whole(num_tokens, "num_tokens", 0)
        self.tokens = nn.Parameter(torch.randn(self.num_tokens, embed_dim) * 0.02)
        self.positions = LearnedPosition(self.num_tokens + math.prod(self.grid), embed_dim)
        self.first_norm: nn.Module | None = None
        self.dropout = nn.Dropout(probability(dropout, "dropout"))
        self.encoder = Encoder(num_layers, embed_dim, num_heads, hidden, dropout=dropout, **options)
        self.pooler: nn.Module | None = None
        self.head: nn.Module | None = None
        if num_classes is not None:
            self.head = nn.Linear(embed_dim, width(num_classes, "num_classes"))

    def nodes(self, pixels: Tensor) -> Tensor:
        """What the first block reads, (B, K + N, C): the class token and its like, then the patches row by row."""
        x = self.patches(pixels)
        grid = self.patches.grid(tuple(pixels.shape[-len(self.grid) :]))
        if grid != self.grid:
            raise ShapeError(f"the model has positions for a grid of {self.grid} patches; these pixels make {grid}")
        x = self.positions(torch.cat((self.tokens.expand(*x.shape[:-2], -1, -1), x), -2))
        return self.dropout(x if self.first_norm is None else self.first_norm(x))

    def graphs(self, graph: Layers | None = None) -> Layers:
        """What the encoder is given: patterns that lie on a grid in the size of the patches, behind the tokens."""
        if graph is None:
            return EVERY_NODE
        return self._sized(graph) if isinstance(graph, Layer) else [self._sized(layer) for layer in layers_in(graph)]

    def _sized(self, graph: Layer) -> Layer:
        if lies_on_grid(graph):
            return behind_tokens(graph, self.grid, self.num_tokens)
        if self.num_tokens and isinstance(graph, AttentionGraph) and graph.num_targets == math.prod(self.grid):
            raise ShapeError(
                f"the graph has {graph.num_targets} targets, the patches, but {self.num_tokens} tokens come before "
                f"them: pass graph.with_global_tokens({self.num_tokens}), or a pattern, grid_neighbourhood(..., 3)"
            )
        return graph

    def features(self, pixels: Tensor, graph: Layers | None = None) -> Tensor:
        """All nodes after the last norm, (B, K + N, C); arguments as of :meth:`forward`."""
        return self.encoder(self.nodes(pixels), self.graphs(graph))

    def pooled(self, features: Tensor) -> Tensor:
        """One vector (B, C) of the features: the class token's, or the mean where there is none; then the pooler's."""
        floats(features, "features", "(B, K + N, C)", 2)
        x = features[..., 0, :] if self.num_tokens else features.mean(-2)
        return x if self.pooler is None else self.pooler(x)

    @names_checked
    def forward(self, pixels: Tensor, graph: Layers | None = None) -> Tensor:
        """What the head makes of the :meth:`pooled` features, (B, num_classes); without a head the :meth:`features`.

        Args:
            pixels: (B, channels, *size), or (channels, *size).
            graph: Over K + N nodes, the class token first; one for all layers or a list. Full by default. A pattern
                on a grid, ``grid_neighbourhood(..., 3)``, is of the patches, and the tokens before them read all and
                are read by all; a graph of the patches becomes the same with ``graph.with_global_tokens(K)``.
        """
        x = self.features(pixels, graph)
        return x if self.head is None else self.head(self.pooled(x))


def sides(name: str, given: Any, axes: Iterable[str]) -> Size:
    """One side for each of the axes; of an image from one number, too."""
    axes = tuple(axes)
    if axes == ("height", "width") and not isinstance(given, tuple | list):
        given = (given, given)
    if not isinstance(given, tuple | list) or len(given) != len(axes):
        raise OptionError(f"{name} must be ({', '.join(axes)}), got {given!r}")
    return tuple(width(side, name) for side in given)


def behind_tokens(pattern: Pattern, grid: Size, number: int = 1, times: int = 1) -> AttentionGraph:
    """The pattern's graph of a grid behind nodes that read all and are read by all; ``times`` copies side by side.

    A pattern that has such nodes already gets no others. The graph is kept with those that the pattern made.
    """
    _join(pattern, grid, number, times)
    return getattr(pattern.made, _joined(grid, number, times))


@constant_result  # Python that torch.compile does not follow
def _join(pattern: Pattern, grid: Size, number: int, times: int) -> None:
    if not hasattr(pattern.made, _joined(grid, number, times)):
        graph = of_size(pattern, grid)
        if number and graph.num_targets == math.prod(grid):
            graph = graph.with_global_tokens(number)
        setattr(pattern.made, _joined(grid, number, times), graph if times == 1 else disjoint_union([graph] * times))


def _joined(grid: Size, number: int, times: int) -> str:
    return f"{cache_key(grid, None)}_behind_{number}_{times}"


def lies_on_grid(graph: object) -> TypeGuard[Pattern]:
    """Whether it is a pattern whose size is a grid."""
    return isinstance(graph, Pattern) and graph.on_grid
