"""Swin: stages of blocks that read cells of a grid, by turns shifted; four nodes merge into one between them."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import OptionError
from ..graph import AttentionGraph, Pattern, PerHead, Schedule
from ..graphs import cell_partition
from ..nn import LearnedPosition, SwinBias, TransformerBlock
from ..nn.arguments import width
from .merging import Grid, PatchMerging, padded, whole_cells
from .patches import PatchEmbedding
from .stacks import Graphs


class SwinStage(nn.Module):
    """Blocks on one grid, each with a table of relative positions; then the merging, but for the last stage."""

    def __init__(
        self, embed_dim: int, num_heads: int, window: int, drop_paths: list[float], merge: bool, **options: Any
    ) -> None:
        super().__init__()
        self.window = window
        self.layers = nn.ModuleList(
            TransformerBlock(embed_dim, num_heads, drop_path=drop_path, **options) for drop_path in drop_paths
        )
        self.biases = nn.ModuleList(SwinBias((window, window), num_heads) for _ in drop_paths)
        self.merge = PatchMerging(embed_dim) if merge else None

    def graphs(self, grid: Grid) -> list[AttentionGraph]:
        """The paper's: cells, and in every second layer the cells half a side further on."""
        pair = window_graphs(grid, self.window)
        return [pair[number % 2] for number in range(len(self.layers))]

    def forward(self, x: Tensor, grid: Grid, graphs: Graphs | None = None) -> Tensor:
        """(B, N, C) of the grid to the nodes of the next stage.

        Args:
            x: (B, height * width, C).
            grid: (height, width).
            graphs: One for all layers of the stage, or one for each; the paper's by default. Where it has more sources
                than nodes, these are the nodes of the grid padded by zeros to whole cells, after the norm.
        """
        chosen = self.graphs(grid) if graphs is None else sized(graphs, len(self.layers), grid)
        for block, bias, graph in zip(self.layers, self.biases, chosen, strict=True):
            more = graph.num_sources > graph.num_targets
            x = block(
                x,
                graph,
                score_bias=bias(graph, None if more else grid),
                sources=(lambda y: padded(y, grid, cell_side(grid, self.window))) if more else None,
            )
        return x if self.merge is None else self.merge(x, grid)


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
        rates = torch.linspace(0, drop_path, sum(depths)).split(list(depths))
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


def sized(graphs: Graphs, num_layers: int, grid: Grid) -> list[AttentionGraph | PerHead]:
    """The graph of each layer, in the size of the grid."""
    each = [graphs] * num_layers if isinstance(graphs, AttentionGraph | PerHead | Pattern) else list(graphs)
    if len(each) != num_layers:
        raise OptionError(f"a stage of {num_layers} layers needs as many graphs, got {len(each)}")
    return [graph(grid) if isinstance(graph, Pattern) else graph for graph in each]


def cell_side(grid: Grid, window: int) -> int:
    """Side of a cell: the window, or the grid's shorter side."""
    return min(window, *grid)


@lru_cache(maxsize=64)
def window_graphs(grid: Grid, window: int, read_padding: bool = True) -> tuple[AttentionGraph, AttentionGraph]:
    """Swin's two graphs of a grid: cells, and cells half a side further on, where there is more than one.

    Args:
        grid: (height, width).
        window: Side of a cell.
        read_padding: Whether the padding of a grid that is no multiple of the cell is read, as in Swin, or left out.
    """
    side = cell_side(grid, window)
    whole = whole_cells(grid, side) == grid
    options: dict[str, bool] = {} if whole else {"read_padding" if read_padding else "pad": True}
    plain = cell_partition(grid, side, **options)
    return plain, plain if min(grid) <= window else cell_partition(grid, side, side // 2, **options)
