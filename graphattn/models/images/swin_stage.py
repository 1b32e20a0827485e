"""A stage of Swin: blocks on alternately shifted cells of one grid."""

import math
from typing import Any

from torch import Tensor, nn

from ...arguments import for_each
from ...backends.place_bias import by_place
from ...errors import ShapeError
from ...graph import AttentionGraph, Pattern, PerHead
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.kinds.layers import Layer, Layers
from ...graph.like import GraphLike, need_fixed
from ...graph.modes import lru_cache
from ...graphs import window_partition
from ...nn import SwinBias, SwinV2Bias, TransformerBlock
from ..stacks import layers_in
from .merging import Grid, PatchMerging, padded, whole_cells

Window = int | Grid


class SwinStage(nn.Module):
    """Blocks on one grid, with relative position biases, then merging except in the last stage.

    Args:
        embed_dim: C.
        num_heads: H.
        window: As of :class:`graphattn.models.Swin`.
        drop_paths: The rate of every block.
        merge: True if nodes are merged after the blocks.
        num_axes: Number of axes of the grid.
        version: 1 or 2.
        pretrained_window: As of :class:`graphattn.nn.SwinV2Bias`, for version 2.
        options: Further arguments of :class:`graphattn.nn.TransformerBlock`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        window: Window,
        drop_paths: list[float],
        merge: bool,
        *,
        num_axes: int = 2,
        version: int = 1,
        pretrained_window: Grid | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.window = window
        self.windows = window_patterns(window)
        if version == 2:
            options = {"score": "cosine", "branch_norm": True, **options}
        blocks = [
            TransformerBlock(embed_dim, num_heads, drop_path=drop_path, **options)
            for drop_path in drop_paths
        ]
        if isinstance(window, int):
            sides = (window,) * num_axes
        else:
            sides = window
        biases: list[nn.Module] = [SwinBias(sides, num_heads) for _ in blocks]
        if version == 2:
            biases = [
                SwinV2Bias(sides, num_heads, pretrained_window=pretrained_window) for _ in blocks
            ]
            for block in blocks:
                _norm_after(block)
        self.layers = nn.ModuleList(blocks)
        self.biases = nn.ModuleList(biases)
        self.merge: PatchMerging | None = None
        if merge:
            self.merge = PatchMerging(embed_dim, norm_last=version == 2, num_axes=num_axes)

    def graphs(self, grid: Grid) -> list[AttentionGraph]:
        """The paper's graphs: cells, shifted by half a side in every second layer."""
        pair = [window.at(grid) for window in self.windows]
        return [pair[number % 2] for number in range(len(self.layers))]

    def forward(self, x: Tensor, grid: Grid, graphs: Layers | None = None) -> Tensor:
        """Nodes (B, N, C) of the grid to the nodes of the next stage.

        Args:
            x: (B, N, C), row by row.
            grid: (height, width), or (time, height, width).
            graphs: One for all layers of the stage, or one for each; the paper's by default. Where
                it has more sources than nodes, these are the nodes of the grid padded by zeros to
                whole cells, after the norm.
        """
        of_layers: Any
        if graphs is None:
            of_layers = self.graphs(grid)
        else:
            of_layers = sized(graphs, len(self.layers), grid)

        def pad(x: Tensor) -> Tensor:
            return padded(x, grid, cell_sides(grid, self.window))

        for block, bias, graph in zip(self.layers, self.biases, of_layers, strict=True):
            if graph.num_sources > graph.num_targets:
                x = block(x, graph, score_bias=by_place(bias, graph), sources=pad)
            else:
                x = block(x, graph, score_bias=by_place(bias, graph, grid))
        if self.merge is None:
            return x
        return self.merge(x, grid)


def _norm_after(block: TransformerBlock) -> None:
    """Norm only the ends of branches, after dropout, and give keys no bias, as in Swin V2."""
    assert block.end_norm is not None
    block.attention_norm = block.feed_forward_norm = nn.Identity()
    for name, norm in list(block.end_norm.items()):
        block.end_norm[name] = nn.Sequential(nn.Dropout(block.attention.dropout), norm)
    block.branch[0] = nn.Identity()
    block.attention.k_proj.register_parameter("bias", None)


def sized(graphs: Layers, num_layers: int, grid: Grid) -> list[AttentionGraph | PerHead]:
    """The graph of each layer, sized to the grid.

    Raises:
        OptionError: If there is another number of layers.
        ShapeError: If a graph is of another number of nodes.
    """
    if not isinstance(graphs, Layer):
        graphs = layers_in(graphs)
    layers = for_each(graphs, "graphs", num_layers, "layer of a stage")
    result = []
    for layer in layers:
        graph: Any = layer
        if isinstance(layer, GraphLike):
            graph = layer.at(grid)
        need_fixed(graph, "graphs must be AttentionGraphs")
        result.append(graph)
        if graph.num_targets != math.prod(grid):
            raise ShapeError(
                f"a stage with grid {grid} has {math.prod(grid)} nodes, but its graph has "
                f"{graph.num_targets} targets; a pattern, such as grid_neighbourhood(..., 3, "
                "causal=False), has the size of every stage, and a list names the graphs of each"
            )
    return result


def cell_sides(grid: Grid, window: Window) -> Grid:
    """Sides of a cell: the window, at most the grid, or the shortest side for a single number."""
    if isinstance(window, int):
        return (min(window, *grid),) * len(grid)
    return tuple(min(side, length) for side, length in zip(window, grid, strict=True))


@lru_cache(64)
def window_graphs(
    grid: Grid, window: Window, read_padding: bool = True
) -> tuple[AttentionGraph, AttentionGraph]:
    """Swin's two graphs of a grid: cells, and cells shifted by half, if there are several.

    Args:
        grid: (height, width), or (time, height, width).
        window: As of :class:`graphattn.models.Swin`.
        read_padding: True if padding up to whole cells is read, as in Swin; else it is left out.
    """
    sides = cell_sides(grid, window)
    options: dict[str, bool] = {}
    if whole_cells(grid, sides) != grid:
        option = "pad"
        if read_padding:
            option = "read_padding"
        options[option] = True
    plain = window_partition(grid, sides, **options)
    if sides == grid or (isinstance(window, int) and min(grid) <= window):
        return plain, plain
    return plain, window_partition(grid, sides, tuple(side // 2 for side in sides), **options)


@lru_cache(64)
def window_patterns(window: Window) -> tuple[Pattern, Pattern]:
    """The two graphs for grids of any size, shared by models with their caches."""
    return _SWIN_CELLS(..., window), _SWIN_CELLS(..., window, shifted=True)


@builder
def swin_cells(size: Grid, window: Window, shifted: bool = False) -> AttentionGraph:
    """One of Swin's two graphs of a grid; see :func:`window_graphs`."""
    return window_graphs(size, window)[bool(shifted)]


_SWIN_CELLS = sizable(swin_cells)
