"""Swin: stages of blocks on alternately shifted cells of a grid, with patch merging between."""

from typing import Any

from torch import Tensor, nn

from ...arguments import for_each, positive, several, width
from ...errors import OptionError
from ...graph import AttentionGraph
from ...graph.foreign_names import names_checked
from ...graph.kinds.layers import Layer, Layers
from ..example import example, features
from ..stacks import growing
from .merging import Grid, merged_sides
from .patches import PatchEmbedding
from .swin_stage import SwinStage, Window, window_graphs

OfStages = Layer | list[Layers | None] | None


@example(
    lambda new, p: new(
        8, (2, 1), (2, 2), window=2, patch=(2, 2), num_classes=5, drop_path=p, dropout=p
    ),
    features(3, 10, 14),
)
class Swin(nn.Module):
    """The Swin Transformer: local attention in cells, and coarser grids from stage to stage.

    Args:
        embed_dim: C of the first stage; it doubles from stage to stage.
        depths: Blocks of each stage.
        num_heads: H of each stage.
        window: Sides of a cell, in nodes. One number: a grid no longer than that on some axis is
            read in cells of its shortest side, without a shift. Or a number for each axis: an axis
            no longer than that is one cell.
        patch: Pixels of a patch, (height, width) or one number for both; or (time, height, width)
            of a video.
        hidden_ratio: Width of a feed-forward over C.
        channels: Channels of the images.
        num_classes: Classes of a linear head on the mean of all nodes; no head by default.
        drop_path: Rate of the last block, on both of its branches; it grows from 0 in equal steps.
        version: 1; or 2, with cosine scores, biases that are a smooth function of the relative
            position, and norms at the end of the branches.
        pretrained_window: For version 2: the side of the cells of each stage in training, by which
            positions are divided; 0, the default, means that of ``window``.
        options: Further arguments of :class:`graphattn.nn.TransformerBlock`.

    Source: Liu et al. 2021, "Swin Transformer", and their code; images whose sides do not divide
    are padded as there, and the padding of a cell is read. Liu et al. 2022, "Swin Transformer V2".
    Equal to ``SwinModel`` and ``Swinv2Model`` of ``transformers``; :func:`graphattn.models.from_transformers`
    reads the second. Of videos Liu et al. 2022, "Video Swin Transformer": a window for each axis.
    *What differs* there: their code takes the first rows of the table's index where a grid is
    smaller than the window, which are those of other positions if it is less high or wide.

    Example:
        >>> import torch, graphattn as ga
        >>> model = Swin(8, depths=(2, 2), num_heads=(2, 4), window=3, patch=2, num_classes=10)
        >>> images = torch.randn(5, 3, 12, 18)
        >>> model(images).shape
        torch.Size([5, 10])
        >>> around = ga.graphs.grid_neighbourhood(..., 3, causal=False)  # as NAT in place of Swin, in the size of every stage
        >>> model(images, around).shape
        torch.Size([5, 10])
        >>> [layer.name for layer in model.graphs((12, 18))[1:3]]
        ['window_partition((6, 9), (3, 3), shift=(1, 1))', 'cell_pooling((6, 9), (2, 2), pad=True)']
        >>> video = Swin(8, (2, 2), (2, 4), window=(2, 3, 3), patch=(2, 4, 4))
        >>> video(torch.randn(5, 3, 8, 24, 24)).shape  # 4 x 6 x 6 patches, then 4 x 3 x 3
        torch.Size([5, 36, 16])
    """

    def __init__(
        self,
        embed_dim: int = 96,
        depths: tuple[int, ...] = (2, 2, 6, 2),
        num_heads: tuple[int, ...] = (3, 6, 12, 24),
        window: Window = 7,
        patch: Grid | int = (4, 4),
        *,
        hidden_ratio: float = 4.0,
        channels: int = 3,
        num_classes: int | None = None,
        drop_path: float = 0.0,
        version: int = 1,
        pretrained_window: tuple[int, ...] | None = None,
        **options: Any,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        depths = tuple(several(depths, "depths", "must be numbers of layers, one for each stage"))
        num_heads = tuple(
            several(num_heads, "num_heads", "must be numbers of heads, one for each stage")
        )
        embed_dim = width(embed_dim, "embed_dim")
        hidden_ratio = positive(hidden_ratio, "hidden_ratio")
        if len(depths) != len(num_heads) or not depths:
            raise OptionError(
                f"depths and num_heads must have one number per stage, got {depths!r} and "
                f"{num_heads!r}"
            )
        if version not in (1, 2):
            raise OptionError(f"version must be 1 or 2, got {version!r}")
        depths = tuple(width(depth, "depths") for depth in depths)
        if isinstance(patch, tuple | list):
            patch = tuple(patch)
        else:
            patch = (patch, patch)
        self.patches = PatchEmbedding(channels, embed_dim, patch, pad=True)
        self.patch_norm = nn.LayerNorm(embed_dim)
        self.dropout = nn.Dropout(options.get("dropout", 0.0))
        rates = growing(drop_path, sum(depths))
        last = len(depths) - 1
        trained = _trained(pretrained_window, len(depths), len(patch), version)
        self.stages = nn.ModuleList(
            SwinStage(
                embed_dim * 2**i,
                heads,
                _window(window, len(patch)),
                rates[sum(depths[:i]) : sum(depths[: i + 1])],
                merge=i < last,
                num_axes=len(patch),
                version=version,
                pretrained_window=trained[i],
                hidden=int(hidden_ratio * embed_dim * 2**i),
                **options,
            )
            for i, heads in enumerate(num_heads)
        )
        self.norm = nn.LayerNorm(embed_dim * 2**last)
        self.head: nn.Module | None = None
        if num_classes is not None:
            self.head = nn.Linear(embed_dim * 2**last, width(num_classes, "num_classes"))

    def grids(self, size: Grid) -> list[Grid]:
        """The grid of each stage, (height, width) or (time, height, width), for ``size``."""
        grids = [self.patches.grid(size)]
        for _ in self.stages[1:]:
            pairs = zip(grids[-1], merged_sides(len(grids[-1])), strict=True)
            grids.append(tuple(-(-side // merged) for side, merged in pairs))
        return grids

    def graphs(self, size: Grid) -> list[AttentionGraph]:
        """Every layer of the model on inputs of ``size``, merging layers too, as graphs.

        Padding is not a node: ``graphattn.analysis.reach(graphs(size))`` has the patches on which
        the last nodes depend.
        """
        layers: list[AttentionGraph] = []
        stage: Any
        for stage, grid in zip(self.stages, self.grids(size), strict=True):
            pair = window_graphs(grid, stage.window, read_padding=False)
            layers += [pair[number % 2] for number in range(len(stage.layers))]
            if stage.merge is not None:
                layers.append(stage.merge.graph(grid))
        return layers

    def hidden(self, images: Tensor, graphs: OfStages = None) -> list[Tensor]:
        """The inputs of each stage, and the output of the last, (B, N, C) each."""
        x = self.patch_norm(self.patches(images))
        grids = self.grids(tuple(images.shape[-len(self.patches.patch) :]))
        if graphs is not None and not isinstance(graphs, Layer):
            graphs = several(graphs, "graphs", "must be those of each stage")
        stage_graphs = for_each(graphs, "graphs", len(self.stages), "stage")
        states = [self.dropout(x)]
        for stage, grid, of_stage in zip(self.stages, grids, stage_graphs, strict=True):
            states.append(stage(states[-1], grid, of_stage))
        return states

    def features(self, images: Tensor, graphs: OfStages = None) -> Tensor:
        """The nodes of the last stage after the last norm, (B, N, C)."""
        return self.norm(self.hidden(images, graphs)[-1])

    @names_checked
    def forward(self, images: Tensor, graphs: OfStages = None) -> Tensor:
        """The head's output for the mean node, (B, num_classes), or else the :meth:`features`.

        Args:
            images: (B, channels, height, width), or videos (B, channels, time, height, width).
            graphs: One for all layers, or a list with one entry for each stage: a graph for all its
                layers, or one for each layer, or ``None`` for the paper's. A pattern has the size
                of each stage's grid; a graph fits the one stage that has as many nodes. Edges are
                shorter than ``window`` on every axis, as far as the tables of relative positions
                go.
        """
        x = self.features(images, graphs)
        if self.head is None:
            return x
        return self.head(x.mean(-2))


def _window(window: Any, num_axes: int) -> Window:
    if not isinstance(window, tuple | list):
        return width(window, "window")
    if len(window) != num_axes:
        raise OptionError(
            f"window must be one number, or one for each of the {num_axes} axes of patch, got "
            f"{window!r}"
        )
    return tuple(width(side, "window") for side in window)


def _trained(
    sides: tuple[int, ...] | None, num_stages: int, num_axes: int, version: int
) -> list[Grid | None]:
    if sides is None:
        return [None] * num_stages
    if version == 1 or len(sides) != num_stages:
        raise OptionError(
            f"pretrained_window must have {num_stages} numbers, for version 2 only, got {sides!r}"
        )
    cells: list[Grid | None] = []
    for side in sides:
        if side:
            cells.append((side,) * num_axes)
        else:
            cells.append(None)
    return cells
