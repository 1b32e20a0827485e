"""Swin: stages of blocks that read cells of a grid, by turns shifted; four nodes merge into one between them."""

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import OptionError
from ..graph import AttentionGraph, Schedule
from ..nn import LearnedPosition
from ..nn.arguments import width
from .merging import Grid
from .patches import PatchEmbedding
from .stacks import Graphs
from .swin_stage import SwinStage, window_graphs


class Swin(nn.Module):
    """The Swin Transformer: local attention in cells, and coarser grids from stage to stage.

    Args:
        embed_dim: C of the first stage; every stage has twice the one before.
        depths: Blocks of each stage.
        num_heads: H of each stage.
        window: Side of a cell, in nodes. A grid no higher or no wider than that is read in cells of its shorter side,
            without a shift.
        patch: Pixels of a patch, (height, width).
        hidden_ratio: Width of a feed-forward over C.
        channels: Of the images.
        num_classes: Of a linear head on the mean of all nodes; no head by default.
        drop_path: Rate of the last block, on both of its branches; it grows from 0 in equal steps.
        options: Further arguments of :class:`graphattn.nn.TransformerBlock`.

    Source: Liu et al. 2021, "Swin Transformer", and their code; images whose sides do not divide are padded as there,
    and the padding of a cell is read. Equal to ``SwinModel`` and ``SwinForImageClassification`` of ``transformers``:
    :func:`graphattn.models.from_hf`.

    Example:
        >>> import graphattn as ga
        >>> model = Swin(8, depths=(2, 2), num_heads=(2, 4), window=3, patch=(2, 2), num_classes=10)
        >>> images = torch.randn(5, 3, 12, 18)
        >>> model(images).shape
        torch.Size([5, 10])
        >>> around = ga.graphs.grid_neighbourhood(..., (3, 3))  # as NAT in place of Swin
        >>> model(images, [around, around]).shape
        torch.Size([5, 10])
        >>> [layer.name for layer in model.schedule((12, 18))[1:3]]
        ['cell_partition((6, 9), (3, 3), shift=(1, 1))', 'cell_pooling((6, 9), (2, 2), pad=True)']
    """

    def __init__(
        self,
        embed_dim: int = 96,
        depths: tuple[int, ...] = (2, 2, 6, 2),
        num_heads: tuple[int, ...] = (3, 6, 12, 24),
        window: int = 7,
        patch: tuple[int, int] = (4, 4),
        *,
        hidden_ratio: float = 4.0,
        channels: int = 3,
        num_classes: int | None = None,
        drop_path: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        if len(depths) != len(num_heads) or not depths:
            raise OptionError(f"depths and num_heads name every stage, got {depths!r} and {num_heads!r}")
        self.patches = PatchEmbedding(channels, embed_dim, patch, pad=True)
        self.patch_norm = nn.LayerNorm(embed_dim)
        self.positions: LearnedPosition | None = None
        self.dropout = nn.Dropout(options.get("dropout", 0.0))
        rates = torch.linspace(0, drop_path, sum(depths), device="cpu").split(list(depths))
        last = len(depths) - 1
        self.stages = nn.ModuleList(
            SwinStage(
                embed_dim * 2**i,
                heads,
                width("window", window),
                of_stage.tolist(),
                merge=i < last,
                hidden=int(hidden_ratio * embed_dim * 2**i),
                **options,
            )
            for i, (heads, of_stage) in enumerate(zip(num_heads, rates, strict=True))
        )
        self.norm = nn.LayerNorm(embed_dim * 2**last)
        self.head: nn.Module | None = None
        if num_classes is not None:
            self.head = nn.Linear(embed_dim * 2**last, width("num_classes", num_classes))

    def grids(self, size: Grid) -> list[Grid]:
        """Nodes of each stage, (height, width), for images of ``size`` pixels."""
        found = [self.patches.grid(size)]
        for _ in self.stages[1:]:
            found.append(tuple(-(-side // 2) for side in found[-1]))
        return found  # type: ignore[return-value]

    def schedule(self, size: Grid) -> Schedule:
        """Every layer of the model on images of ``size`` pixels, merging layers too, as graphs between their nodes.

        Padding is no node of it: ``schedule(size).reach()`` is what each last node hears of the patches.
        """
        layers: list[AttentionGraph] = []
        stage: Any
        for stage, grid in zip(self.stages, self.grids(size), strict=True):
            pair = window_graphs(grid, stage.window, read_padding=False)
            layers += [pair[number % 2] for number in range(len(stage.layers))]
            layers += [] if stage.merge is None else [stage.merge.graph(grid)]
        return Schedule(tuple(layers))

    def hidden(self, images: Tensor, graphs: list[Graphs | None] | None = None) -> list[Tensor]:
        """The nodes that enter each stage, and those that leave the last, (B, N, C) each."""
        height, wide = images.shape[-2:]
        grids = self.grids((height, wide))
        graphs = [None] * len(self.stages) if graphs is None else list(graphs)
        if len(graphs) != len(self.stages):
            raise OptionError(f"graphs has one entry for each of {len(self.stages)} stages, got {len(graphs)}")
        x = self.patch_norm(self.patches(images))
        found = [self.dropout(x if self.positions is None else self.positions(x))]
        for stage, grid, of_stage in zip(self.stages, grids, graphs, strict=True):
            found.append(stage(found[-1], grid, of_stage))
        return found

    def features(self, images: Tensor, graphs: list[Graphs | None] | None = None) -> Tensor:
        """The nodes of the last stage after the last norm, (B, N, C); arguments as of :meth:`forward`."""
        return self.norm(self.hidden(images, graphs)[-1])

    def forward(self, images: Tensor, graphs: list[Graphs | None] | None = None) -> Tensor:
        """What the head makes of the mean of all nodes, (B, num_classes); without a head the :meth:`features`.

        Args:
            images: (B, channels, height, width).
            graphs: For each stage one graph for all its layers, or one for each layer, or ``None`` for the paper's; a
                pattern is sized by the stage's grid. Edges are shorter than ``window`` on both axes, as far as the
                tables of relative positions go.
        """
        x = self.features(images, graphs)
        return x if self.head is None else self.head(x.mean(-2))
