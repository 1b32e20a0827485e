"""The fill of the tiles that a graph touches, in its order and in one of near neighbours."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import pair
from ..errors import GraphError
from ..graph import AttentionGraph, need_graph
from ..graph import runs as _runs
from ..graph.edges import ROWS_BUDGET
from ..graph.limits import refuse_over
from ..plans.blocks import grid_cells
from ..printed import Printed
from .forms import MOST_LISTED, is_listable

_MOST_TILES = 1 << 28


@dataclass(frozen=True, repr=False)
class TileFill(Printed):
    """Share of edges in tiles, found by :func:`tile_fill`.

    Args:
        tile: Targets and sources of a tile.
        tiles: Tiles in all.
        touched: Tiles with an edge, in the order given.
        fill: Share of their pairs that are edges.
        order: What the nodes were reordered by; ``None`` where they were not.
        touched_after: The same after reordering.
        fill_after: The same after reordering.
    """

    tile: tuple[int, int]
    tiles: int
    touched: int
    fill: float
    order: str | None
    touched_after: int | None
    fill_after: float | None

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain Python values."""
        return asdict(self)

    def in_full(self) -> str:
        text = (
            f"{self.touched:,} of {self.tiles:,} tiles of {self.tile[0]} x {self.tile[1]} "
            f"touched, {self.fill:.1%} full"
        )
        if self.order is None:
            return text
        return f"{text}; {self.order}: {self.touched_after:,} touched, {self.fill_after:.1%} full"


def tile_fill(graph: AttentionGraph, tile: tuple[int, int] = (128, 128)) -> TileFill:
    """Number of tiles of the mask that hold an edge, and their fill, before and after reordering.

    Listed edges (and rules of few edges) are reordered by reverse Cuthill-McKee, grids by boxes of
    as many nodes as a tile is high; other rules stay as they are. Copies of a repeated edge count
    once.

    Args:
        graph: Any graph; of two sets of nodes, sources follow the first target that reads them.
        tile: Targets and sources of a tile.
    Raises:
        GraphError: If it is no graph, a side is below 1, or there are too many tiles to look at.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> shuffled = torch.randperm(512, generator=torch.Generator().manual_seed(0))
        >>> graph = sliding_window(512, window=9, causal=False).materialise().relabel(shuffled)
        >>> print(tile_fill(graph, (32, 32)))
        256 of 256 tiles of 32 x 32 touched, 1.8% full; reverse Cuthill-McKee: 46 touched, 9.7% full
    """
    need_graph(graph, "tile_fill")
    T = graph.num_targets
    S = graph.num_sources
    tile = pair(tile, "tile", "(targets, sources)", GraphError)
    tiles = -(-T // tile[0]) * -(-S // tile[1])
    refuse_over(tiles, "tile_fill", "take larger tiles", _MOST_TILES, "looks at a tile")
    touched, fill = _touched(graph, tile)
    name, order = _order(graph, tile[0])
    if order is None:
        return TileFill(tile, tiles, touched, fill, None, None, None)
    after = _touched(graph.materialise().relabel(targets=order[0], sources=order[1]), tile)
    return TileFill(tile, tiles, touched, fill, name, *after)


def _touched(graph: AttentionGraph, tile: tuple[int, int]) -> tuple[int, float]:
    """Tiles with an edge, and the share of their pairs that are edges, band by band."""
    height, width = tile
    T = graph.num_targets
    S = graph.num_sources
    columns = max(1, -(-S // width))
    bands = max(
        1, min((1 << 22) // columns, ROWS_BUDGET // max(1, graph.edges.runs_per_row * height))
    )
    widths = torch.full((columns,), width).minimum(S - torch.arange(columns) * width)
    touched = 0
    area = 0
    edges = 0
    for first in range(0, T, bands * height):
        last = min(first + bands * height, T)
        rows = -(-(last - first) // height)
        counts = _runs.block_counts(
            graph.edges.rows(torch.arange(first, last)), rows, height, S, width
        )
        high = torch.full((rows,), height).minimum(last - first - torch.arange(rows) * height)
        nonempty = counts > 0
        touched = touched + int(nonempty.sum())
        edges = edges + int(counts.sum())
        area += int((nonempty * high[:, None] * widths[None, :]).sum())
    if area == 0:
        return touched, 0.0
    return touched, edges / area


def _order(graph: AttentionGraph, height: int) -> tuple[str, tuple[Tensor, Tensor] | None]:
    """New numbers of targets and sources, if they are worth a try."""
    if not is_listable(graph) or graph.num_edges > MOST_LISTED:
        return "", None
    if graph.is_square:
        cells = grid_cells(graph.edges, height)
    else:
        cells = None
    if cells is not None:
        number = _numbers(torch.argsort(cells, stable=True))
        return "boxes of the grid", (number, number)
    targets = _numbers(graph._near_order())
    if graph.is_square:
        return "reverse Cuthill-McKee", (targets, targets)
    first = torch.full((graph.num_sources,), graph.num_targets)
    first.scatter_reduce_(0, graph.source.cpu(), targets[graph.target.cpu()], "amin")
    return "reverse Cuthill-McKee", (targets, _numbers(torch.argsort(first, stable=True)))


def _numbers(order: Tensor) -> Tensor:
    return torch.empty_like(order).index_copy_(0, order, torch.arange(order.numel()))
