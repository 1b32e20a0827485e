"""Stratified Transformer and Swin3D: windows of points, contextual tables of offsets."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import positive, probability, whole, width
from ...errors import GraphError, OptionError
from ...functional import attention
from ...graph import AttentionGraph
from ...graphs import Hierarchy
from ...graphs.points.hierarchy import Level
from ...nn import ContextualTable, DropPath, FeedForward
from ..example import example, features, small_cloud
from .levels import sizes
from .point_transformer import PointStages


@example(
    lambda new, p: new(3, 2, (8, 8), (1, 1), 2, step=0.5, reach=3, drop_path=p),
    features(13, 3),
    lambda: (small_cloud(ratio=0.5),),
)
class StratifiedTransformer(PointStages):
    """Pre-norm blocks on levels, whose scores and values depend on quantised offsets.

    Args:
        features: Width of the points' features.
        out_dim: Width of the answer, from a perceptron.
        widths: C of each level, the finest first.
        depths: Blocks of each level on the way down; there are none on the way up.
        num_heads: H of each level, or of all.
        step: Step of the quantised offsets on the finest level, in the units of the positions; it
            doubles by level.
        reach: Steps to either side: the widest window over ``step``.
        axes: Number of axes of the positions.
        values: True if offsets are added to values, too.
        signals: m, the width of ``shape.with_signals(...)``, for a Swin3D, whose tables have
            differences of colours and normals, too; 0 for none.
        signal_step: Step of their quantised differences, on every level.
        signal_reach: Steps to either side.
        readout: "node", or "shape", from the mean over the coarsest points.
        drop_path: The largest probability of dropping a branch; it grows with depth.

    Source: Lai et al. 2022. Its hierarchy has ``graph=[(near, shifted), ...]`` with, for a window w
    that doubles from level to level, ``stratified_windows(..., w, 1 / 16)`` and the same with
    ``shift=w / 2``, ``ratio=0.25`` and ``down= knn(..., 16)``; with ``voxel_windows(..., w)`` in
    their place and ``signals`` it is a Swin3D (Yang et al. 2023, section 3.3: contextual relative
    signal encoding), whose code has signals from -1 to 1, steps of 1 / 8 for them and of a quarter
    voxel for positions. *What differs:* a linear layer embeds the points, not a convolution;
    windows are counted from the origin; queries alone are scaled before they meet the tables, as in
    both codes.

    Example:
        >>> import torch, graphattn as ga
        >>> pos = torch.rand(60, 3)
        >>> def windows(w):
        ...     return tuple(ga.graphs.stratified_windows(..., w, 0.25, shift=shift) for shift in (0.0, w / 2))
        >>> shape = ga.graphs.hierarchy(pos, ratio=0.25, graph=[windows(0.3), windows(0.6)])
        >>> StratifiedTransformer(3, 5, (16, 32), (2, 2), (1, 2), step=0.06, reach=10)(pos, shape).shape
        torch.Size([60, 5])
    """

    def __init__(
        self,
        features: int,
        out_dim: int,
        widths: Sequence[int] = (48, 96, 192, 384),
        depths: Sequence[int] | int = (2, 2, 6, 2),
        num_heads: Sequence[int] | int = (3, 6, 12, 24),
        *,
        step: float = 0.01,
        reach: int = 32,
        axes: int = 3,
        values: bool = True,
        signals: int = 0,
        signal_step: float = 0.125,
        signal_reach: int = 16,
        readout: str = "node",
        drop_path: float = 0.0,
    ) -> None:
        """Arguments as in the docstring of the class."""
        level_widths = sizes(widths, "widths")
        heads = sizes(num_heads, "num_heads", len(level_widths))
        for C, H in zip(level_widths, heads, strict=True):
            if C % H:
                raise OptionError(
                    f"widths must be multiples of num_heads, level by level; got {C} and {H}"
                )
        step = positive(step, "step")
        signals = whole(signals, "signals", 0)
        if signals:
            signal_options = {"axes": signals, "reach": signal_reach, "step": signal_step}
        else:
            signal_options = None
        options: dict[str, Any] = {
            "reach": width(reach, "reach"),
            "axes": width(axes, "axes"),
            "values": values,
            "signals": signal_options,
        }
        blocks = [
            partial(OffsetBlock, num_heads=H, step=step * 2**i, **options)
            for i, H in enumerate(heads)
        ]
        super().__init__(features, out_dim, level_widths, depths, 0, blocks, readout, _normed)
        self.signals = signals
        all_blocks: list[Any] = [
            block for stage in self.levels.stages for block in stage.children()
        ]
        most = probability(drop_path, "drop_path", below_one=True)
        for block, p in zip(
            all_blocks, torch.linspace(0, most, len(all_blocks), device="cpu").tolist(), strict=True
        ):
            block.drop = DropPath(p)

    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """The output of a model of points; with ``signals`` the hierarchy has that many.

        Raises:
            GraphError: If the hierarchy has another number of signals, or none.
        """
        if self.signals and isinstance(shape, Hierarchy):
            got = shape.levels[0].signals
            if got is None or got.shape[1] != self.signals:
                raise GraphError(
                    f"shape must have {self.signals} signals; pass shape.with_signals(x) of x "
                    f"(N, {self.signals})"
                )
        return super().forward(x, shape)


class OffsetBlock(nn.Module):
    """A pre-norm block with :class:`graphattn.nn.ContextualTable` of offsets and signals."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        step: float,
        reach: int,
        axes: int,
        values: bool,
        signals: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        self.feed_forward_norm = nn.LayerNorm(embed_dim)
        table = partial(ContextualTable, num_heads, embed_dim // num_heads, values=values)
        self.table = table(reach=reach, step=step, axes=axes)
        if signals is None:
            self.signals = None
        else:
            self.signals = table(**signals)
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)
        self.feed_forward = FeedForward(embed_dim, 4 * embed_dim, "gelu")
        self.num_heads = num_heads
        self.drop = DropPath(0.0)

    def forward(self, x: Tensor, level: Level, number: int) -> Tensor:
        """The block's output (..., N, C), on the level's graph of that number."""
        x = x + self.drop(
            self.out(self._read(self.norm(x), level.graphs[number % len(level.graphs)], level))
        )
        return x + self.drop(self.feed_forward(self.feed_forward_norm(x)))

    def _read(self, x: Tensor, graph: AttentionGraph, level: Level) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).unbind(-3)
        tables: list[tuple[ContextualTable, Any]] = [(self.table, level.pos)]
        if self.signals is not None:
            tables.append((self.signals, level.signals))
        bias: Any = sum(table(graph, query, key, place) for table, place in tables)
        result: Any = attention(
            query, key, value, graph, score_bias=bias, return_weights=self.table.value is not None
        )
        if self.table.value is None:
            return result.flatten(-2)
        alpha = result.weights.alpha.to(x.dtype)
        return (
            result.output + sum(table.averaged(graph, alpha, place) for table, place in tables)
        ).flatten(-2)


def _normed(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(before), nn.Linear(before, after))
