"""Images and videos as nodes: patches of a grid of pixels, row by row, after a class token."""

import math
from collections.abc import Iterable
from typing import Any, TypeGuard

from torch import Tensor, nn

from ...arguments import whole, width
from ...errors import OptionError, ShapeError
from ...graph import AttentionGraph, Pattern, disjoint_union
from ...graph.deferred.pattern import cache_key
from ...graph.modes import constant_result
from ...graphs import full

Size = tuple[int, ...]
EVERY_NODE: Pattern = full(...)
_CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class PatchEmbedding(nn.Module):
    """A grid of pixels cut into patches, each projected to one node by a strided convolution.

    Args:
        channels: Channels of the pixels; 3 for colours.
        embed_dim: C.
        patch: Pixels of a patch on every axis, (height, width) for an image, (time, height, width)
            for a video.
        pad: Pad axes that are not a multiple of ``patch`` with zeros at their end, as Swin does.

    Source: Dosovitskiy et al. 2021 (ViT), section 3.1; Arnab et al. 2021 (ViViT), section 3.2, for
    tubelets.

    Example:
        >>> import torch
        >>> PatchEmbedding(3, 8, (4, 4))(torch.randn(2, 3, 12, 20)).shape  # 3 x 5 patches
        torch.Size([2, 15, 8])
    """

    def __init__(self, channels: int, embed_dim: int, patch: Size, *, pad: bool = False) -> None:
        super().__init__()
        self.patch = tuple(width(side, "patch") for side in patch)
        self.pad = pad
        if len(self.patch) not in _CONVOLUTIONS:
            raise OptionError(f"patch must have 1, 2 or 3 axes, got {patch!r}")
        make = _CONVOLUTIONS[len(self.patch)]
        self.projection = make(
            width(channels, "channels"), width(embed_dim, "embed_dim"), self.patch, self.patch
        )

    def grid(self, size: Size) -> Size:
        """Numbers of patches on every axis for pixels of a size.

        Raises:
            ShapeError: If an axis is not a multiple of its patch, without padding.
        """
        size = tuple(whole(n, "size", 0) for n in size)
        if len(size) != len(self.patch) or (
            not self.pad and any(n % p for n, p in zip(size, self.patch, strict=True))
        ):
            raise ShapeError(
                f"pixels must be a multiple of the patch {self.patch} on every axis, got {size}"
            )
        return tuple(-(-n // p) for n, p in zip(size, self.patch, strict=True))

    def forward(self, pixels: Tensor) -> Tensor:
        """Nodes (B, N, C), or (N, C), from pixels (B, channels, *size), or (channels, *size)."""
        axes = len(self.patch)
        size = tuple(pixels.shape[-axes:])
        padding = [
            n * p - length for n, p, length in zip(self.grid(size), self.patch, size, strict=True)
        ]
        if any(padding):
            pixels = nn.functional.pad(
                pixels, [side for more in reversed(padding) for side in (0, more)]
            )
        return self.projection(pixels).flatten(-axes).transpose(-1, -2)


def sides(name: str, value: Any, axes: Iterable[str]) -> Size:
    """One side for each of the axes; of an image from one number, too."""
    axes = tuple(axes)
    if axes == ("height", "width") and not isinstance(value, tuple | list):
        value = (value, value)
    if not isinstance(value, tuple | list) or len(value) != len(axes):
        raise OptionError(f"{name} must be ({', '.join(axes)}), got {value!r}")
    return tuple(width(side, name) for side in value)


def behind_tokens(pattern: Pattern, grid: Size, number: int = 1, times: int = 1) -> AttentionGraph:
    """The pattern's graph of a grid behind tokens connected with all, ``times`` copies of it.

    A pattern that has such nodes already gets no others. The graph is cached with those of the
    pattern.
    """
    _join(pattern, grid, number, times)
    return getattr(pattern.shelf, _joined(grid, number, times))


@constant_result  # Python that torch.compile does not trace
def _join(pattern: Pattern, grid: Size, number: int, times: int) -> None:
    def graph() -> AttentionGraph:
        one = pattern.at(grid)
        if number and one.num_targets == math.prod(grid):
            one = one.with_global_tokens(number)
        if times > 1:
            return disjoint_union([one] * times)
        return one

    pattern.shelf.cached(_joined(grid, number, times), graph)


def _joined(grid: Size, number: int, times: int) -> str:
    return f"{cache_key(grid, None)}_behind_{number}_{times}"


def lies_on_grid(graph: object) -> TypeGuard[Pattern]:
    """True if it is a pattern whose size is a grid."""
    return isinstance(graph, Pattern) and graph.on_grid
