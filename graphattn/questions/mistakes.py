"""Known mistakes about who reads whom: the graph that was meant, and the graph that each mistake makes of it.

``None`` where a mistake has no meaning. The simpler ones come first. :func:`graphattn.verify` tries them on the output
of attention, :func:`graphattn.audit` on a mask.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from ..graph import AttentionGraph
from ..graph.rules import Band, Cells, Neighbourhood, Predicate, Product
from . import mistakes_parts as _parts

Wrong = Callable[[AttentionGraph], AttentionGraph | None]
Mistake = tuple[str, Wrong]


def rows_swapped(graph: AttentionGraph) -> AttentionGraph | None:
    return graph.reverse() if graph.is_square else None


def made_symmetric(graph: AttentionGraph) -> AttentionGraph | None:
    return graph | graph.reverse() if graph.is_square else None


def ignored(graph: AttentionGraph) -> AttentionGraph:
    return AttentionGraph(Band(graph.num_targets, graph.num_sources), "full")


def loops_missing(graph: AttentionGraph) -> AttentionGraph | None:
    return graph.without_self_loops() if graph.is_square else None


def loops_added(graph: AttentionGraph) -> AttentionGraph | None:
    return graph.with_self_loops() if graph.is_square else None


def band_of(graph: AttentionGraph) -> tuple[int, int] | None:
    """``lo <= t - s <= hi`` if that is the graph, as computed from its edges."""
    if graph.has_repeated_edges or graph.num_edges == 0:
        return None
    lo, hi = graph.num_targets, -graph.num_sources
    for first, _, chunk in graph.edges.walk():
        keep = chunk.hi > chunk.lo
        if bool(keep.any()):
            row = chunk.row[keep] + first
            lo = min(lo, int((row - chunk.hi[keep] + 1).min()))
            hi = max(hi, int((row - chunk.lo[keep]).max()))
    return (lo, hi) if Band(graph.num_targets, graph.num_sources, lo, hi).count() == graph.num_edges else None


def _banded(lo_by: int, hi_by: int) -> Wrong:
    """The band with its ends moved; an end that reaches the corner of the mask is open, and stays."""

    def make(graph: AttentionGraph) -> AttentionGraph | None:
        band = graph._remember("band_of", lambda: band_of(graph))
        if band is None:
            return None
        T, S = graph.num_targets, graph.num_sources
        lo = -S if band[0] <= 1 - S else band[0] + lo_by
        hi = T if band[1] >= T - 1 else band[1] + hi_by
        edges = Band(T, S, lo, hi)
        return AttentionGraph(edges, "moved band", graph.device) if edges.count() else None

    return make


def _window(width: _parts.Width) -> Wrong:
    """A window of another width, the whole graph or a part of it."""

    def make(graph: AttentionGraph) -> AttentionGraph | None:
        band = graph._remember("band_of", lambda: band_of(graph))
        if band is None:
            return _parts.changed(graph, lambda part: _parts.window_of(part, width))
        edges = _parts.window_of(Band(graph.num_targets, graph.num_sources, *band), width)
        return None if edges is None else AttentionGraph(edges, "another window", graph.device)

    return make


def _cornered(sign: int) -> Wrong:
    def make(graph: AttentionGraph) -> AttentionGraph | None:
        apart = sign * (graph.num_sources - graph.num_targets)
        return _banded(apart, apart)(graph) if apart else None

    return make


def _clamped(rows: bool, columns: bool) -> Wrong:
    """NATTEN on a grid of two axes, whose windows are moved inwards by the length of the other axis."""

    def make(graph: AttentionGraph) -> AttentionGraph | None:
        grid = graph.edges
        if not isinstance(grid, Product) or len(grid.axes) != 2:
            return None
        y, x = grid.axes
        if not (isinstance(y, Neighbourhood) and isinstance(x, Neighbourhood)) or y.num_targets == x.num_targets:
            return None
        if any(axis.causal or axis.flipped or axis.dilation > 1 for axis in (y, x)):
            return None
        height = _moved(y, x.num_targets) if rows else y
        width = _moved(x, y.num_targets) if columns else x
        return replace(graph, edges=Product((height, width)), name="clamped by the other axis")

    return make


def _moved(axis: Neighbourhood, size: int) -> Predicate:
    """The neighbourhood of an axis whose centre is kept ``kernel`` / 2 away from the border of another size."""
    left, right = axis.kernel // 2, (axis.kernel - 1) // 2

    def inside(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        centre = torch.minimum(target.clamp(min=left), torch.tensor(size - 1 - right, device=target.device))
        return (source >= centre - left) & (source <= centre + right)

    return Predicate(axis.num_targets, axis.num_sources, inside)


def _borders(cut: bool) -> Wrong:
    """Windows cut at the borders in place of moved inwards, or the other way round."""

    def make(graph: AttentionGraph) -> AttentionGraph | None:
        axes = graph.edges.axes if isinstance(graph.edges, Product) else (graph.edges,)
        other = [_cut(axis) if cut else _inwards(axis) for axis in axes]
        known = [axis for axis in other if axis is not None]
        return replace(graph, edges=Product(tuple(known))) if len(known) == len(axes) else None

    return make


def _cut(axis: object) -> Band | None:
    if not isinstance(axis, Neighbourhood) or axis.causal or axis.flipped:
        return None
    left, right, step = axis.kernel // 2, (axis.kernel - 1) // 2, axis.dilation
    return Band(axis.num_targets, axis.num_targets, -right * step, left * step, step)


def _inwards(axis: object) -> Neighbourhood | None:
    if not isinstance(axis, Band) or axis.num_targets != axis.num_sources or axis.offset or axis.lo != -axis.hi:
        return None
    kernel = 2 * axis.hi // axis.step + 1
    if kernel < 3 or kernel * axis.step > axis.num_targets:
        return None
    return Neighbourhood(axis.num_targets, kernel, axis.step)


def columns_first(graph: AttentionGraph) -> AttentionGraph | None:
    """The nodes of a grid of two axes numbered down the columns."""
    if not isinstance(graph.edges, Product) or len(graph.edges.axes) != 2 or not graph.is_square:
        return None
    height, width = (axis.num_targets for axis in graph.edges.axes)
    node = torch.arange(graph.num_targets)
    return graph.relabel(node % width * height + node // width)


def _shifted(make_shift: Callable[[Cells], int]) -> Wrong:
    def make(graph: AttentionGraph) -> AttentionGraph | None:
        axes = graph.edges.axes if isinstance(graph.edges, Product) else (graph.edges,)
        cells = [axis for axis in axes if isinstance(axis, Cells)]
        if len(cells) < len(axes) or not any(axis.shift % axis.size for axis in cells):
            return None
        return replace(graph, edges=Product(tuple(replace(axis, shift=make_shift(axis)) for axis in cells)))

    return make


def wrapped(graph: AttentionGraph) -> AttentionGraph | None:
    """Shifted cells that read across the border, as a cyclic shift without its mask makes them."""
    axes = graph.edges.axes if isinstance(graph.edges, Product) else (graph.edges,)
    cells = [axis for axis in axes if isinstance(axis, Cells)]
    if len(cells) < len(axes) or not any(axis.shift % axis.size for axis in cells):
        return None
    return replace(graph, edges=Product(tuple(_rolled(axis) for axis in cells)))


def _rolled(axis: Cells) -> Predicate:
    def inside(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        n = axis.num_targets
        return (target - axis.shift) % n // axis.size == (source - axis.shift) % n // axis.size

    return Predicate(axis.num_targets, axis.num_targets, inside)


SWAPPED: Mistake = ("edge_index rows swapped: targets read along reversed edges (a transposed mask)", rows_swapped)
SYMMETRIC: Mistake = ("edges made symmetric: read both ways", made_symmetric)
BASIC: tuple[Mistake, ...] = (
    ("inverted mask: True taken as blocked, the polarity of nn.MultiheadAttention", lambda graph: ~graph),
    ("mask ignored: every target reads every source", ignored),
)
LOOPS: tuple[Mistake, ...] = (
    ("self-loops missing", loops_missing),
    ("self-loops added", loops_added),
)
BANDS: tuple[Mistake, ...] = (
    ("causal or window aligned to the wrong corner: start in place of end", _cornered(1)),
    ("causal or window aligned to the wrong corner: end in place of start", _cornered(-1)),
    ("window off by one: one source too many in the past", _banded(0, 1)),
    ("window off by one: one source too few in the past", _banded(0, -1)),
    ("window off by one: one source too many in the future", _banded(-1, 0)),
    ("window off by one: one source too few in the future", _banded(1, 0)),
)
WINDOWS: tuple[Mistake, ...] = (
    ("window taken per side: on each side as many sources as it has in all", _window(_parts.per_side)),
    ("window twice as wide", _window(_parts.twice)),
    ("window half as wide", _window(_parts.half)),
    ("window laid behind the target, not around it", _window(_parts.all_behind)),
    ("window laid around the target, not behind it", _window(_parts.around)),
    ("window without its half ahead of the target", _window(_parts.without_future)),
)
PARTS: tuple[Mistake, ...] = (
    ("documents ignored: packed tokens read across their borders", _parts.documents_ignored),
    ("global tokens are read by all, but do not read all", _parts.half_global(False)),
    ("global tokens read all, but are not read by all", _parts.half_global(True)),
)
GRIDS: tuple[Mistake, ...] = (
    (
        "neighbourhood clamps rows by the width: the row of a window is moved inwards as if there were W rows",
        _clamped(True, False),
    ),
    (
        "neighbourhood clamps columns by the height: its column is moved inwards as if there were H columns",
        _clamped(False, True),
    ),
    ("neighbourhood clamps rows by the width and columns by the height", _clamped(True, True)),
    ("windows cut at the borders of the grid, not moved inwards", _borders(True)),
    ("windows moved inwards at the borders of the grid, not cut", _borders(False)),
    ("grid numbered down the columns: height and width swapped", columns_first),
    ("cells not shifted", _shifted(lambda axis: 0)),
    ("cells shifted the other way", _shifted(lambda axis: -axis.shift % axis.size)),
    ("shifted cells read across the border: a cyclic shift without its mask", wrapped),
)
OF_MASKS: tuple[Mistake, ...] = (SWAPPED, *BASIC, *LOOPS, SYMMETRIC, *BANDS, *WINDOWS, *PARTS, *GRIDS)
