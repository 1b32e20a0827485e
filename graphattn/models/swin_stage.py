"""A stage of Swin: blocks on one grid that read its cells, by turns shifted."""

from functools import lru_cache, partial
from typing import Any

from torch import Tensor, nn

from ..attention import of_size
from ..errors import OptionError
from ..graph import AttentionGraph, Pattern, PerHead
from ..graphs import cell_partition
from ..nn import SwinBias, TransformerBlock
from .merging import Grid, PatchMerging, padded, whole_cells
from .stacks import Graphs


class SwinStage(nn.Module):
    """Blocks on one grid, each with a table of relative positions; then the merging, but for the last stage."""

    def __init__(
        self, embed_dim: int, num_heads: int, window: int, drop_paths: list[float], merge: bool, **options: Any
    ) -> None:
        super().__init__()
        self.window, self.windows = window, window_patterns(window)
        self.layers = nn.ModuleList(
            TransformerBlock(embed_dim, num_heads, drop_path=drop_path, **options) for drop_path in drop_paths
        )
        self.biases = nn.ModuleList(SwinBias((window, window), num_heads) for _ in drop_paths)
        self.merge = PatchMerging(embed_dim) if merge else None

    def graphs(self, grid: Grid) -> list[AttentionGraph]:
        """The paper's: cells, and in every second layer the cells half a side further on."""
        pair = [of_size(each, grid) for each in self.windows]
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


def sized(graphs: Graphs, num_layers: int, grid: Grid) -> list[AttentionGraph | PerHead]:
    """The graph of each layer, in the size of the grid."""
    each = [graphs] * num_layers if isinstance(graphs, AttentionGraph | PerHead | Pattern) else list(graphs)
    if len(each) != num_layers:
        raise OptionError(f"a stage of {num_layers} layers needs as many graphs, got {len(each)}")
    return [of_size(graph, grid) if isinstance(graph, Pattern) else graph for graph in each]


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


@lru_cache(maxsize=64)
def window_patterns(window: int) -> tuple[Pattern, Pattern]:
    """The two graphs for grids of any size; models share them, and what is made of them."""
    plain, shifted = (
        Pattern(f"Swin's {name} of {window}", partial(_of_grid, window, number), on_grid=True)
        for number, name in enumerate(("cells", "shifted cells"))
    )
    return plain, shifted


def _of_grid(window: int, number: int, grid: Grid) -> AttentionGraph:
    return window_graphs(grid, window)[number]
