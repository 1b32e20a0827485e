"""Point Transformer V3: patches along space-filling curves, convolutions as positions."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import for_each, one_of, probability, width
from ...graph.foreign_names import names_checked
from ...graphs import Hierarchy
from ...graphs.points.hierarchy import Level
from ...nn import DropPath, Rotary, TransformerBlock, pool
from ...nn.points.cell_conv import CellConv
from ..example import example, features, small_grid
from .levels import Levels, heads_of, of_clouds, sizes


@example(
    lambda new, p: new(3, 2, (8, 8), (1, 1), (8,), 1, head_dim=4, norm="layer", drop_path=p),
    features(13, 3),
    lambda: (small_grid(),),
)
class PointTransformerV3(nn.Module):
    """A stage on each level of cells: a convolution around every cell, attention along a curve.

    Args:
        features: Width of the points' features.
        out_dim: Width of the output, from a linear head; no head, and the last width, by default.
        widths: C of each level, the finest first.
        depths: Blocks of each level on the way down.
        back_widths: C of each level but the coarsest on the way up.
        back_depths: Number of blocks of these levels.
        head_dim: Channels of a head.
        stem: The first layer: "conv", of 5 cells along each axis, or "linear" (Sonata).
        norm: Norm of the stem, pooling and unpooling: "batch", or "layer" (Sonata), with which an
            output does not depend on the other clouds of its batch in training either.
        readout: "node", or "shape", the mean over the coarsest points without a way up.
        drop_path: The largest probability of dropping a branch; it grows with depth.
        convs: True if blocks have a convolution, one for all levels or one for each; a norm takes
            its place.
        attends: True if blocks have attention and a feed-forward, one for all levels or one for
            each.
        rotary: Base of rotary positions, the cells of a level; none by default.

    Source: Wu et al. 2024 and its code; Wu et al. 2025 (Sonata), whose encoder is this one; Yue et
    al. 2025 (LitePT, arXiv 2512.13689), which convolves on fine levels and attends on coarse ones:
    ``PointTransformerV3(4, None, (36, 72, 144, 252, 504), back_widths=(72, 72, 144, 252),
    back_depths=0, head_dim=18, convs=(True, True, True, False, False),
    attends=(False, False, False, True, True), rotary=100.0)``. The hierarchy is
    :func:`graphattn.graphs.serialized_hierarchy`; with ``shuffle=True`` the curves of each level
    come in random order, as theirs. *What differs:* a head's number of channels is the same
    everywhere; no relative positions in the scores; a branch that is dropped is dropped for all
    points at once.

    Example:
        >>> import torch, graphattn as ga
        >>> pos = torch.cartesian_prod(*[torch.arange(4.0)] * 3)
        >>> shape = ga.graphs.serialized_hierarchy(pos, cell=1.0, levels=2, patch=16)
        >>> model = PointTransformerV3(3, 5, (16, 32), (1, 1), (16,), 1)
        >>> model(pos, shape).shape
        torch.Size([64, 5])
    """

    def __init__(
        self,
        features: int,
        out_dim: int | None = None,
        widths: Sequence[int] = (32, 64, 128, 256, 512),
        depths: Sequence[int] | int = (2, 2, 2, 6, 2),
        back_widths: Sequence[int] = (64, 64, 128, 256),
        back_depths: Sequence[int] | int = 2,
        *,
        head_dim: int = 16,
        stem: str = "conv",
        norm: str = "batch",
        readout: str = "node",
        drop_path: float = 0.0,
        convs: Sequence[bool] | bool = True,
        attends: Sequence[bool] | bool = True,
        rotary: float | None = None,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        level_widths = sizes(widths, "widths")
        if readout == "shape":
            up = level_widths[:-1]
        elif level_widths[1:]:
            up = sizes(back_widths, "back_widths", len(level_widths) - 1)
        else:
            up = []
        heads_of([*level_widths, *up], width(head_dim, "head_dim"), "head_dim")
        one_of(stem, "stem", ("conv", "linear"))
        cell_norm = partial(CellNorm, kind=one_of(norm, "norm", ("batch", "layer")))
        self.features = width(features, "features")
        self.stem: nn.Module
        if stem == "conv":
            self.stem = CellConv(features, level_widths[0], 5, bias=False)
        else:
            self.stem = nn.Linear(features, level_widths[0])
        self.stem_norm = cell_norm(level_widths[0])
        back = []
        if level_widths[1:] and readout == "node":
            back = sizes(back_depths, "back_depths", len(level_widths) - 1, 0)
        parts = zip(
            for_each(convs, "convs", len(level_widths), "level"),
            for_each(attends, "attends", len(level_widths), "level"),
            strict=True,
        )
        self.levels = Levels(
            level_widths,
            sizes(depths, "depths", len(level_widths), 0),
            back,
            block=[
                partial(CellBlock, head_dim=head_dim, conv=conv, attends=attend, rotary=rotary)
                for conv, attend in parts
            ],
            down=partial(CellPooling, norm=cell_norm),
            up=partial(CellUnpooling, norm=cell_norm),
            readout=readout,
            back_widths=up,
        )
        self.head: nn.Module = nn.Identity()
        if out_dim is not None:
            self.head = nn.Linear(self.levels.out_dim, width(out_dim, "out_dim"))
        self._drop(probability(drop_path, "drop_path", below_one=True))

    def _drop(self, most: float) -> None:
        """Probabilities that grow along the way down, and fall on the way up."""
        down: list[Any] = [block for stage in self.levels.stages for block in stage.children()]
        up: list[Any] = [block for stage in self.levels.back for block in [*stage.children()][::-1]]
        for blocks in (down, up):
            for block, p in zip(
                blocks, torch.linspace(0, most, len(blocks), device="cpu").tolist(), strict=True
            ):
                if block.block is not None:
                    block.block.branch[1] = DropPath(p)

    @names_checked
    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Outputs for points (..., N, out), or for B clouds (..., B, out).

        Args:
            x: (..., N, features) of the finest points.
            shape: Levels from :func:`graphattn.graphs.serialized_hierarchy`, as many as the model
                has.

        Raises:
            ShapeError: If ``x`` does not fit the model or the hierarchy, or it has another number
                of levels.
            GraphError: If the hierarchy has no neighbours of cells.
        """
        x = self.levels(self.embedded(x, shape), shape)
        if self.levels.readout != "node":
            x = of_clouds(x, shape, "mean")
        return self.head(x)

    def encoded(self, x: Tensor, shape: Hierarchy) -> list[Tensor]:
        """Features of each level's points on the way down, the finest first, as of Sonata."""
        return self.levels.encoded(self.embedded(x, shape), shape)

    def embedded(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """The stem's output."""
        builder = f"ga.graphs.serialized_hierarchy(pos, cell=..., levels={len(self.levels.widths)})"
        self.levels.of_call(x, shape, builder)
        near = shape.levels[0].near
        if isinstance(self.stem, CellConv):
            neighbours = None
            if near:
                neighbours = near[-1]
            x = self.stem(x, neighbours)
        else:
            x = self.stem(x)
        return nn.functional.gelu(self.stem_norm(x))

    @classmethod
    def from_pointcept(
        cls, state: Mapping[str, Tensor], *, head_dim: int = 16, rotary: float | None = None
    ) -> "PointTransformerV3":
        """The model with weights of Pointcept's ``PointTransformerV3``, Sonata or LitePT, by key.

        Args:
            state: Its state dict; keys may begin with ``module.`` and ``backbone.``, and
                ``seg_head`` is the head.
            head_dim: Channels of a head, which the state does not contain; 16 in the published
                models, 18 in LitePT's.
            rotary: Base of rotary positions, which it does not contain either; 100 in LitePT's.

        Raises:
            LoaderError: If a key is missing, has another shape, or is unknown to the model.
        """
        from .from_pointcept import read

        return read(cls, state, head_dim, rotary)


class CellNorm(nn.Module):
    """A batch norm over all points, with the published constants, or a layer norm."""

    def __init__(self, embed_dim: int, kind: str) -> None:
        super().__init__()
        self.norm: nn.Module = nn.LayerNorm(embed_dim)
        if kind == "batch":
            self.norm = nn.BatchNorm1d(embed_dim, eps=1e-3, momentum=0.01)

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.norm, nn.LayerNorm):
            return self.norm(x)
        return self.norm(x.reshape(-1, x.shape[-1])).view(x.shape)


class CellBlock(nn.Module):
    """A convolution as positions (xCPE), then a pre-norm block on the graph; or one of both."""

    def __init__(
        self, embed_dim: int, head_dim: int, conv: bool, attends: bool, rotary: float | None
    ) -> None:
        super().__init__()
        self.conv: CellConv | None = None
        if conv:
            self.conv = CellConv(embed_dim, embed_dim)
        self.linear: nn.Linear | None = None
        if conv:
            self.linear = nn.Linear(embed_dim, embed_dim)
        self.norm = nn.LayerNorm(embed_dim)
        if rotary is None:
            rotary_positions = None
        else:
            rotary_positions = Rotary(head_dim, base=rotary, num_axes=3)
        self.block: TransformerBlock | None = None
        if attends:
            self.block = TransformerBlock(embed_dim, embed_dim // head_dim, rotary=rotary_positions)

    def forward(self, x: Tensor, level: Level, number: int) -> Tensor:
        near: Any = None
        if level.near:
            near = level.near[0]
        if self.conv is None or self.linear is None:
            encoding = x
        else:
            encoding = self.linear(self.conv(x, near))
        if encoding is x:
            x = self.norm(encoding)
        else:
            x = x + self.norm(encoding)
        if self.block is None:
            return x
        if self.block.attention.rotary is None:
            positions = None
        else:
            positions = level.cells
        return self.block(x, level.graphs[number % len(level.graphs)], positions=positions)


class CellPooling(nn.Module):
    """The maximum of the features of a cell's points, channel by channel."""

    def __init__(self, fine: int, coarse: int, norm: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(fine, coarse)
        self.norm = norm(coarse)

    def forward(self, x: Tensor, fine: Level, coarse: Level) -> Tensor:
        assert coarse.down is not None
        return nn.functional.gelu(self.norm(pool(self.linear(x), coarse.down, "max")))


class CellUnpooling(nn.Module):
    """The sum of a point's own features and those of its cell."""

    def __init__(self, coarse: int, fine: int, after: int, norm: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(coarse, after)
        self.norm = norm(after)
        self.own = nn.Linear(fine, after)
        self.own_norm = norm(after)

    def forward(self, x: Tensor, skip: Tensor, fine: Level, coarse: Level) -> Tensor:
        assert coarse.up is not None
        fine_features = nn.functional.gelu(self.own_norm(self.own(skip)))
        return fine_features + pool(
            nn.functional.gelu(self.norm(self.linear(x))), coarse.up, "mean"
        )
