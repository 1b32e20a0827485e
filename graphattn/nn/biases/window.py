"""Biases of windows on a grid by the relative position of target and source."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import for_each, width
from ...backends.place_bias import PlaceBias
from ...errors import GraphError
from ...graph import AttentionGraph, need_nodes
from ...graph.like import GraphLike
from ...graph.modes import constant_result
from ...graphs.arguments import axes, per_axis
from ...plans.cache import cached
from .constant import need_graph, of_edges
from .table import EdgeTypeBias, rows_of

Size = tuple[int, ...]


class _WindowBias(nn.Module):
    """A bias of the relative position in a window."""

    window: Size
    dilation: Size | None = None

    def _table(self) -> Tensor:
        """The bias (V, H) of each relative position."""
        raise NotImplementedError

    def forward(self, graph: GraphLike, size: Size | None = None) -> Tensor:
        """Biases (E, H) in the graph's edge order.

        Args:
            graph: A graph on a grid, row by row.
            size: The grid, (height, width); needed for graphs other than a rule on a grid (cells,
                neighbourhoods), such as unions and listed edges.

        Raises:
            GraphError: If the size is needed or wrong, or an edge is longer than the window allows.
        """
        need_graph(graph)
        table = self._table()
        return rows_of(table, of_edges(graph, _index, *self._grid(size), device=table.device))

    def places(self, graph: AttentionGraph, size: Size | None = None) -> PlaceBias:
        """The biases as a table of all pairs of places: rows of zeros for those beyond a window."""
        table = self._table()
        *places, first, last = _kept_places(graph, *self._grid(size))
        padding = (0, 0, -first, last + 1 - table.shape[0])
        return PlaceBias(torch.nn.functional.pad(table, padding), *places)

    def _grid(self, size: Size | None) -> tuple[Size, Size | None, Size | None]:
        if size is not None:
            size = axes(size)
        return self.window, size, self.dilation


class SwinBias(_WindowBias):
    r"""A learned bias for each relative position in a window, target minus source, as in Swin.

    .. math:: b_{ts} = \mathrm{table}[(y_t - y_s + M_y - 1)(2 M_x - 1) + (x_t - x_s + M_x - 1)]

    and so on for more axes (Video Swin has three), or for one.

    Args:
        window: M, (height, width): the cell of a partition or the kernel of a neighbourhood.
            Sources of a target are less than M rows and columns away from it. One number is a
            window of one axis, a sequence's.
        num_heads: H.
        dilation: Steps between two places of the window, for all axes or for each; by default those
            of a graph that is a :func:`~graphattn.graphs.grid_neighbourhood`, else 1. MaxViT's grid
            attention is a neighbourhood whose dilation is the number of its cells.

    Attributes:
        table: An :class:`EdgeTypeBias`, whose ``weight`` is Swin's ``relative_position_bias_table``.

    Source: Liu et al. 2021, equation 4.

    Example:
        >>> import graphattn as ga
        >>> graph = ga.graphs.window_partition((4, 6), cell=(2, 3), shift=(1, 1), pad=True)
        >>> bias, layer = SwinBias((2, 3), num_heads=2), ga.nn.GraphAttention(embed_dim=8, num_heads=2)
        >>> layer(torch.randn(24, 8), graph, score_bias=bias).shape
        torch.Size([24, 8])
    """

    def __init__(
        self,
        window: Size,
        num_heads: int,
        *,
        dilation: int | Size | None = None,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.window = _window(window)
        if dilation is not None:
            self.dilation = per_axis(dilation, len(self.window), "dilation", 1)
        self.table = EdgeTypeBias(math.prod(2 * side - 1 for side in self.window), num_heads)

    def _table(self) -> Tensor:
        return self.table.weight

    def extra_repr(self) -> str:
        if self.dilation is None:
            return f"window={self.window}"
        return f"window={self.window}, dilation={self.dilation}"


class SwinV2Bias(_WindowBias):
    r"""The bias of a relative position in a window as a smooth function of it, from a small
    network, as in Swin V2.

    .. math:: b_{ts} = 16 \, \sigma(g(\Delta)), \qquad
              \Delta_y = \mathrm{sign}(d) \log_2(1 + |d|) / 3, \quad d = 8 (y_t - y_s) / (M_y - 1)

    so that a network trained with one window may be used with a larger one.

    Args:
        window: M, (height, width), as of :class:`SwinBias`.
        num_heads: H.
        hidden: Width of the hidden layer.
        pretrained_window: The window of training, which divides the offsets; ``window`` by default.

    Attributes:
        mlp: g, Linear, ReLU, Linear without bias, with the state of torchvision's ``cpb_mlp`` and
            of ``continuous_position_bias_mlp`` in ``transformers``.

    Source: Liu et al. 2022 (Swin V2), section 3.3, and their code for the factors 8, 3 and 16. It
    goes with the cosine score, ``GraphAttention(score="cosine")``.

    Example:
        >>> import graphattn as ga
        >>> bias = SwinV2Bias((2, 3), num_heads=2)
        >>> bias(ga.graphs.window_partition((4, 6), cell=(2, 3))).shape
        torch.Size([144, 2])
    """

    def __init__(
        self,
        window: Size,
        num_heads: int,
        *,
        hidden: int = 512,
        pretrained_window: Size | None = None,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.window = _window(window)
        self.pretrained_window = self.window
        if pretrained_window is not None:
            sides = for_each(pretrained_window, "pretrained_window", len(self.window), "axis")
            self.pretrained_window = _window(sides)
        heads = width(num_heads, "num_heads")
        self.mlp = nn.Sequential(
            nn.Linear(len(self.window), width(hidden, "hidden")),
            nn.ReLU(),
            nn.Linear(hidden, heads, bias=False),
        )

    def _table(self) -> Tensor:
        return 16 * torch.sigmoid(self.mlp(self.coordinates()))

    def coordinates(self) -> Tensor:
        """The network's input for each relative position, (prod(2 M - 1), axes)."""
        like = next(self.mlp.parameters())
        dtype = torch.promote_types(like.dtype, torch.float32)
        along = []
        for side, trained in zip(self.window, self.pretrained_window, strict=True):
            offset = torch.arange(1 - side, side, device=like.device, dtype=dtype) * (
                8 / max(1, trained - 1)
            )
            along.append(offset.sign() * torch.log2(1 + offset.abs()) / 3)
        return torch.stack(torch.meshgrid(*along, indexing="ij"), -1).flatten(0, -2).to(like.dtype)

    def extra_repr(self) -> str:
        return f"window={self.window}, pretrained_window={self.pretrained_window}"


def _window(window: Any) -> Size:
    if not isinstance(window, tuple | list):
        window = (window,)
    return tuple(width(side, "window") for side in window)


def _index(graph: AttentionGraph, *options: Any) -> Tensor:
    of_targets, of_sources, centre = _places(graph, *options)
    return of_targets[graph.target] - of_sources[graph.source] + centre


@constant_result
def _kept_places(graph: AttentionGraph, *options: Any) -> tuple[Tensor, Tensor, int, int]:
    return cached(graph, (_kept_places, options), partial(_from_first, graph, *options))


def _from_first(graph: AttentionGraph, *options: Any) -> tuple[Tensor, Tensor, int, int]:
    """Places of targets and of sources, int32 (T,) and (S,), whose difference is 0 for the first of
    the rows of all pairs; and that row and the last in the table, which has only those of edges.
    """
    of_targets, of_sources, centre = _places(graph, *options)
    first = int(of_targets.min() - of_sources.max())
    last = int(of_targets.max() - of_sources.min())
    return (of_targets - first).int(), of_sources.int(), first + centre, last + centre


def _places(
    graph: AttentionGraph, window: Size, size: Size | None, dilation: Size | None
) -> tuple[Tensor, Tensor, int]:
    """Places of targets and of sources, int64 (T,) and (S,), whose difference is a row of the table
    from its middle one; and that.
    """
    if size is None:
        size, sources = _grid_of(graph, window)
    else:
        sources = size
    need_nodes(graph, f"a graph of size {size}", math.prod(size), math.prod(sources))
    if dilation is None:
        num_axes = len(window)
        call = graph.expression
        if call is None or call.function != "grid_neighbourhood":
            dilation = (1,) * num_axes
        else:
            dilation = per_axis(call.options.get("dilation", 1), num_axes, "dilation", 1)
    t = torch.arange(graph.num_targets)
    s = torch.arange(graph.num_sources)
    of_targets = torch.zeros_like(t)
    of_sources = torch.zeros_like(s)
    centre = 0
    stride = 1
    for axis in reversed(range(len(size))):
        on_axis = (t % size[axis], s % sources[axis])
        _check_offsets(graph, *on_axis, axis, window[axis], dilation[axis])
        most = window[axis] - 1
        of_targets += on_axis[0] // dilation[axis] * stride
        of_sources += on_axis[1] // dilation[axis] * stride
        centre += most * stride
        t = t // size[axis]
        s = s // sources[axis]
        stride = stride * (2 * most + 1)
    return of_targets, of_sources, centre


def _check_offsets(
    graph: AttentionGraph, of_targets: Tensor, of_sources: Tensor, axis: int, side: int, step: int
) -> None:
    """Refuse an edge between places of an axis that a window does not have."""
    offset = of_targets[graph.target] - of_sources[graph.source]
    if bool((offset % step).any()):
        raise GraphError(f"dilation must divide the steps of every edge, got {step} on axis {axis}")
    longest = offset.abs() // step
    if bool((longest >= side).any()):
        raise GraphError(
            f"window must be above the length of every edge, got window={side} on "
            f"axis {axis} and an edge of {int(longest.max())} steps"
        )


def _grid_of(graph: AttentionGraph, window: Size) -> tuple[Size, Size]:
    """Lengths of the axes of targets and of sources, from the rule of the graph."""
    edges = graph.edges
    if edges.axes:
        if len(edges.axes) != len(window):
            raise GraphError(
                f"{graph.name} lies on a grid of {len(edges.axes)} axes, but the bias was built with "
                f"window={window}: it must have a side for each axis"
            )
        grid = edges.axes
    elif graph.is_square and len(edges.grid) == len(window) > 1:
        return edges.grid, edges.grid
    elif len(window) == 1:
        grid = (edges,)
    else:
        raise GraphError(
            f"size is needed, a length for each of the {len(window)} axes of window, since "
            f"{graph.name} has no known grid; pass bias(graph, size=(height, width))"
        )
    sizes = tuple(axis.num_targets for axis in grid)
    return sizes, tuple(axis.num_sources for axis in grid)
