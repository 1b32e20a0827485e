"""Hierarchies: levels of a cloud or mesh, with graphs that pool and unpool between them."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from types import EllipsisType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...arguments import check_range, check_shape, several
from ...arguments import device as checked_device
from ...errors import GraphError, warn
from ...graph import AttentionGraph, Pattern, disjoint_union
from ...graph.deferred.expression import shown as written
from ...graph.deferred.filled import leaves_open
from ...graph.deferred.places import count_of_clouds
from ...graph.modes import cached_property
from ..arguments import integers, number
from ..mesh.rings import mesh_vertices
from .clouds import lengths
from .clusters import clusters
from .neighbours import knn
from .sampling.farthest import farthest_points
from .voxels import voxel_ids

Graphs = Pattern | AttentionGraph | tuple[Pattern | AttentionGraph, ...]


class OffsetTables(NamedTuple):
    """Neighbours of cells by offset, for kernels: -1 where there is none."""

    sources: Tensor
    """int32 (K, T): the source of each target at each offset."""
    targets: Tensor
    """int32 (K, S): the target of each source."""
    ptr: Tensor
    """int64 (K + 1,): the first edge of each offset."""


@dataclass(frozen=True, eq=False)
class CellNeighbours:
    """The cells around each cell of a grid, for a convolution with a matrix for each offset.

    Attributes:
        graph: The cells that each cell reads, itself included; at most one at each offset.
        offset: int64 (E,), the number of each edge's offset, in the graph's edge order.
        num_offsets: The number of offsets.
        source, target: The ends of the edges, by offset.
        counts: Edges of each offset.
    """

    graph: AttentionGraph
    offset: Tensor
    num_offsets: int
    source: Tensor = field(init=False)
    target: Tensor = field(init=False)
    counts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        order = torch.argsort(self.offset, stable=True)
        object.__setattr__(self, "source", self.graph.source[order])
        object.__setattr__(self, "target", self.graph.target[order])
        numbers = torch.bincount(self.offset, minlength=self.num_offsets)
        object.__setattr__(self, "counts", tuple(numbers.tolist()))

    def to(self, device: torch.device) -> "CellNeighbours":
        """The neighbours on another device; nothing is sorted again."""
        moved = copy(self)
        for name in ("graph", "offset", "source", "target"):
            object.__setattr__(moved, name, getattr(self, name).to(device))
        tables = self.__dict__.get("tables")
        if tables is not None:
            moved.__dict__["tables"] = OffsetTables(*(table.to(device) for table in tables))
        return moved

    @cached_property
    def tables(self) -> OffsetTables | None:
        """The edges by offset and target; None if a cell has two neighbours at an offset."""
        device = self.offset.device
        ptr = torch.tensor([0, *accumulate(self.counts)], dtype=torch.int64, device=device)
        sources = self.offset.new_full((self.num_offsets, self.graph.num_targets), -1)
        targets = self.offset.new_full((self.num_offsets, self.graph.num_sources), -1)
        offset = torch.repeat_interleave(ptr.diff(), output_size=len(self.source))
        sources[offset, self.target] = self.source
        targets[offset, self.source] = self.target
        number = torch.stack(((sources >= 0).sum(), (targets >= 0).sum())).tolist()
        if number != [len(self.source)] * 2:
            return None
        return OffsetTables(sources.int(), targets.int(), ptr)


@dataclass(frozen=True, eq=False)
class Level:
    """The points of a level and their graphs.

    Attributes:
        pos: (N, d); gradients flow from the positions of the finest level.
        batch: int64 (N,), the cloud of each; ``None`` for one cloud.
        graphs: Graphs between its points, for the layers of a stage in turn.
        down: Sources are the points of the finer level, targets those of this one; ``None`` for the
            finest.
        up: Sources are the points of this level, targets those of the finer one; ``None`` for the
            finest.
        kept: int64 (N,), indices of these points in the finer level; ``None`` if they are new
            points.
        near: The cells around each, from :func:`serialized_hierarchy`.
        normals: (N, d) unit vectors, if those of the finest level were given.
        cells: int64 (N, 3), the cell of each on the level's grid, from
            :func:`serialized_hierarchy`.
        signals: (N, m), features of points beside positions, from :meth:`Hierarchy.with_signals`.
        lines: The points that each is joined with, of curves and trees.
    """

    pos: Tensor
    batch: Tensor | None
    graphs: tuple[AttentionGraph, ...]
    down: AttentionGraph | None = None
    up: AttentionGraph | None = None
    kept: Tensor | None = None
    near: tuple[CellNeighbours, ...] = ()
    normals: Tensor | None = None
    cells: Tensor | None = None
    signals: Tensor | None = None
    lines: AttentionGraph | None = None

    @property
    def graph(self) -> AttentionGraph:
        """The first graph of the level."""
        return self.graphs[0]

    def to(self, device: torch.device) -> "Level":
        """The level on another device."""

        def moved(part: Any) -> Any:
            if isinstance(part, tuple):
                return tuple(map(moved, part))
            if part is None:
                return None
            return part.to(device)

        return Level(*(moved(part) for part in vars(self).values()))


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Levels of a shape, the finest first; made by :func:`hierarchy`.

    Attributes:
        levels: One :class:`Level` for each.
        num_clouds: B, clouds of the batch.
        clouds: Sources are the points of the coarsest level, targets their clouds: for one output
            per cloud. Made of ``batch`` if not given.
    """

    remedy = "pass the graph of a level, such as shape.levels[0].graph"

    levels: tuple[Level, ...]
    num_clouds: int = 1
    clouds: AttentionGraph = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.clouds is not None:
            return
        coarse = self.levels[-1]
        if coarse.batch is None:
            ids = coarse.pos.new_zeros(len(coarse.pos), dtype=torch.int64)
        else:
            ids = coarse.batch
        object.__setattr__(self, "clouds", clusters(ids, self.num_clouds))

    def graphs(self) -> Iterator[AttentionGraph]:
        """Every graph of the levels: those of each, then ``down`` and ``up``."""
        for level in self.levels:
            yield from level.graphs
            yield from (graph for graph in (level.down, level.up) if graph is not None)

    def to(self, device: torch.device | str) -> "Hierarchy":
        """The hierarchy on another device."""
        if not isinstance(self.clouds, AttentionGraph):
            raise GraphError("to moves whole hierarchies; call it before ga.distributed.shard")
        where = checked_device(device)
        return Hierarchy(
            tuple(level.to(where) for level in self.levels), self.num_clouds, self.clouds.to(where)
        )

    def at(self, pos: Tensor) -> "Hierarchy":
        """The hierarchy with the finest points elsewhere (..., N, d), and all graphs as they are.

        Points kept by a coarser level move along; others stay.
        """
        finest, *coarser = self.levels
        levels = [replace(finest, pos=pos)]
        for level in coarser:
            if level.kept is None:
                pos = level.pos
            else:
                pos = pos[..., level.kept, :]
            levels.append(replace(level, pos=pos))
        return replace(self, levels=tuple(levels))

    def with_signals(self, signals: Tensor) -> "Hierarchy":
        """The hierarchy with signals (N, m) of the finest points, such as colours beside normals.

        Points kept by a coarser level keep their signals, cells have the means of their points.
        Signals should share one scale: colours and normals from -1 to 1.

        Raises:
            GraphError: If there is not one row for each of the finest points, or a signal is not
                finite.
        """
        num_points = len(self.levels[0].pos)
        check_shape(signals, "signals", (num_points, "m"), error=GraphError)
        finest, *coarser = self.levels
        levels = [replace(finest, signals=signals)]
        for level in coarser:
            if level.kept is not None:
                signals = signals[level.kept]
            elif level.down is not None:
                total = signals.new_zeros(len(level.pos), signals.shape[1])
                total = total.index_add(0, level.down.target, signals[level.down.source])
                signals = total / level.down.in_degree.clamp(min=1).unsqueeze(1)
            levels.append(replace(level, signals=signals))
        return replace(self, levels=tuple(levels))

    @staticmethod
    def join(parts: "Sequence[Hierarchy]") -> "Hierarchy":
        """Hierarchies side by side, level by level: a batch of clouds.

        Raises:
            GraphError: If they differ in levels, or in the graphs of a level.
        """
        parts = several(parts, "parts", "must be a list of hierarchies", GraphError)
        columns = zip(*(part.levels for part in parts), strict=True)
        num_clouds = sum(part.num_clouds for part in parts)
        return Hierarchy(tuple(_join(levels, parts) for levels in columns), num_clouds)

    def __repr__(self) -> str:
        sizes = " -> ".join(str(len(level.pos)) for level in self.levels)
        return f"Hierarchy({sizes} points, {self.num_clouds} cloud{'s' * (self.num_clouds != 1)})"


def _join(levels: tuple[Level, ...], parts: list[Hierarchy]) -> Level:
    columns: dict[str, list[Any]] = {
        name: [vars(level)[name] for level in levels] for name in vars(levels[0])
    }
    columns["batch"] = []
    columns["kept"] = []
    first_cloud = 0
    first_point = 0  # of the finer level
    for part, level in zip(parts, levels, strict=True):
        batch = level.batch
        if batch is None:
            batch = torch.zeros(len(level.pos), dtype=torch.int64, device=level.pos.device)
        columns["batch"].append(first_cloud + batch)
        first_cloud += part.num_clouds
        indices = level.kept
        if indices is not None:
            indices = indices + first_point
        columns["kept"].append(indices)
        if level.down is not None:
            first_point += level.down.num_sources
    return Level(**{name: _joined(column) for name, column in columns.items()})


def _joined(column: Sequence[Any]) -> Any:
    """Parts side by side; None if one of them is None."""
    if any(part is None for part in column):
        return None
    if isinstance(column[0], tuple):
        return tuple(_joined(graphs) for graphs in zip(*column, strict=True))
    if isinstance(column[0], CellNeighbours):
        graph = _joined([near.graph for near in column])
        offset = _joined([near.offset for near in column])
        return CellNeighbours(graph, offset, column[0].num_offsets)
    if isinstance(column[0], Tensor):
        return torch.cat(tuple(column))
    return disjoint_union(list(column))


@dataclass(frozen=True, eq=False, repr=False)
class HierarchyRecipe:
    """A hierarchy without positions: ``hierarchy(..., ratio=(0.25, 0.25))``; call it with them."""

    remedy = "call it with positions, recipe(pos, batch), and pass the graph of a level"

    options: dict[str, Any]

    def __call__(
        self,
        pos: Tensor,
        batch: Tensor | None = None,
        *,
        faces: Tensor | None = None,
        normals: Tensor | None = None,
    ) -> Hierarchy:
        """The hierarchy of positions (N, d) of clouds ``batch``; ``faces`` of the finest level."""
        result: Hierarchy = hierarchy(pos, batch, faces=faces, normals=normals, **self.options)
        return result

    @property
    def of_faces(self) -> bool:
        """True if a graph is of faces, cells or lines."""
        recipes = [part for part in _flat(self.options.values()) if isinstance(part, Pattern)]
        return any(leaves_open(recipe.expression, ("faces", "cells")) for recipe in recipes)

    def moved(self, shape: Hierarchy, pos: Tensor) -> Hierarchy:
        """The hierarchy ``shape`` of this recipe with its finest points at ``pos`` (N, d).

        Graphs of positions are made anew; one graph of faces or cells stays.

        Raises:
            GraphError: If graphs of faces or cells stand beside graphs of positions.
        """
        if not self.of_faces:
            batch = shape.levels[0].batch
            if batch is not None:
                batch = batch.cpu()
            return self(pos.detach().cpu(), batch).to(pos.device).at(pos)
        finest = _flat([self.options.get("graph", NEAREST)])
        if len(shape.levels) > 1 or any(leaves_open(one.expression, ("pos",)) for one in finest):
            raise GraphError(
                f"graph must be of cells or of positions alone where points move, got {self}"
            )
        return shape.at(pos)

    def __repr__(self) -> str:
        inside = "".join(f", {name}={_shown(value)}" for name, value in self.options.items())
        return f"hierarchy(...{inside})"


def _flat(values: Any) -> list[Any]:
    """The parts of nested lists and tuples."""
    parts = []
    for value in values:
        if isinstance(value, list | tuple):
            parts += _flat(value)
        else:
            parts.append(value)
    return parts


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return written(value)


NEAREST = knn(..., 16, self_loops=True, clamp=True)
POOLING = knn(..., 16, clamp=True)
UNPOOLING = knn(..., 3, clamp=True)


def hierarchy(
    pos: Tensor | EllipsisType,
    batch: Tensor | None = None,
    *,
    ratio: float | Sequence[float] | None = None,
    cell: float | Sequence[float] | None = None,
    points: Sequence[Tensor] | None = None,
    coarse: tuple[Tensor, Graphs] | list[tuple[Tensor, Graphs]] | None = None,
    graph: Graphs | list[Graphs] = NEAREST,
    down: Pattern = POOLING,
    up: Pattern = UNPOOLING,
    faces: Tensor | None = None,
    normals: Tensor | None = None,
) -> Any:
    """Levels of a cloud or mesh: ever fewer points, and graphs on and between the levels.

    A level keeps some of the finer level's points, spread over it (``ratio``) or given
    (``points``), reads the finer level by ``down``, and is read by ``up``. Or its points are others
    (``coarse``), such as an icosphere under a grid of weather. Or it has a point in every cell of a
    grid, at the mean of the cell's points (``cell``), which reads the points of its cell and is
    read by them.

    Args:
        pos: (N, d) positions of the finest level, or ``...`` for a recipe that is called with them,
            as a pattern is.
        batch: (N,) the cloud of every point, sorted; no graph joins two clouds.
        ratio: The ratio of :func:`farthest_points` from the outermost, for one coarser level or for
            each of several.
        cell: Side of the cells in the units of ``pos``, for one coarser level or for each of
            several. Cells are counted from the smallest coordinates of each cloud, at every level
            from those of the finest.
        points: Indices of the finer level's points that each coarser level keeps, int64 (M,),
            sorted by cloud.
        coarse: The positions (M, d) and the graph of a coarser level, a graph or a recipe (or a
            tuple of them for layers in turn), or a list of such pairs from fine to coarse. Every
            cloud has them, once each.
        graph: The graph between the points of a level: a recipe, or a tuple of them for layers in
            turn; or a list with one of these for each level. With ``coarse`` of the finest level
            alone.
        down: Recipe called with the finer level's points and the coarser one's as queries.
        up: Recipe called with the coarser level's points and the finer one's as queries.
        faces: Faces of a mesh, for recipes of the finest level; (E, 2) edges of curves and trees.
        normals: (N, d) unit vectors of the finest level; in a cell they are averaged.
    Returns:
        A :class:`Hierarchy`, the finest level first, or the recipe of one. Without ``ratio``,
        ``cell``, ``points`` or ``coarse`` it is the only one.
    Raises:
        GraphError: If two of ``ratio``, ``cell``, ``points`` and ``coarse`` are given, or one is
            out of range.
    Source:
        Qi et al. 2017 (PointNet++): farthest points, neighbours down, the 3 nearest up. Wu et al.
        2022 (Point Transformer V2): grid pooling; *what differs:* its cells start at the smallest
        coordinates of every level.
    Example:
        >>> recipe = hierarchy(..., ratio=(0.5, 0.5), graph=knn(..., k=2))
        >>> recipe
        hierarchy(..., ratio=(0.5, 0.5), graph=knn(..., k=2))
        >>> shape = recipe(torch.arange(16.0)[:, None].sin())
        >>> shape
        Hierarchy(16 -> 8 -> 4 points, 1 cloud)
        >>> shape.levels[1].down
        AttentionGraph(knn(k=16, clamp=True): 16 sources -> 8 targets, 128 edges, density 1, listed)
    """
    if isinstance(coarse, tuple):
        coarse = [coarse]
    options: dict[str, Any] = {"ratio": ratio, "cell": cell, "points": points, "coarse": coarse}
    options = {name: value for name, value in options.items() if value is not None}
    if len(options) > 1:
        raise GraphError(
            f"levels come from one of ratio, cell, points and coarse, got {' and '.join(options)}"
        )
    steps = []
    for name, value in options.items():
        if not isinstance(value, list | tuple):
            value = [value]
        steps += [(name, step) for step in value]
    if coarse is None:
        graphs = _graphs(graph, len(steps) + 1)
    else:
        graphs = _graphs(graph, 1) + [_graphs(own, 1)[0] for _, (_, own) in steps]
    if isinstance(pos, EllipsisType):
        plain = {"graph": (graph, NEAREST), "down": (down, POOLING), "up": (up, UNPOOLING)}
        return HierarchyRecipe(
            options | {name: value for name, (value, usual) in plain.items() if value is not usual}
        )
    corner = pos.detach() - _corners(pos.detach(), batch)
    if normals is not None:
        check_shape(normals, "normals", pos.shape, error=GraphError)
    lines = None
    if isinstance(faces, Tensor) and faces.shape[1:] == (2,):
        lines = mesh_vertices(faces, len(pos))
    finest = _called(graphs[0], pos, batch, faces)
    levels = [Level(pos, batch, finest, normals=normals, lines=lines)]
    for (name, step), recipes in zip(steps, graphs[1:], strict=True):
        if name == "cell":
            level, corner = _in_cells(levels[-1], corner, step)
        elif name == "coarse":
            level = _between(levels[-1], step[0], down, up)
            recipes = tuple(_of_clouds(each, count_of_clouds(batch)) for each in recipes)
        else:
            level = _subsampled(levels[-1], step, name, down, up)
        levels.append(replace(level, graphs=_called(recipes, level.pos, level.batch, None)))
    return Hierarchy(tuple(levels), count_of_clouds(batch))


def _graphs(graph: Any, num_levels: int) -> list[tuple[Pattern | AttentionGraph, ...]]:
    """The recipes of each level."""
    levels = graph
    if not isinstance(graph, list):
        levels = [graph] * num_levels
    if len(levels) != num_levels:
        raise GraphError(
            f"graph must be a list of one for each of {num_levels} levels, got {len(levels)}"
        )
    result = [recipes if isinstance(recipes, tuple) else (recipes,) for recipes in levels]
    for recipe in chain.from_iterable(result):
        if not isinstance(recipe, Pattern | AttentionGraph):
            raise GraphError(
                "graph must be a recipe, such as knn(..., k=16), a tuple or a list of them, got "
                f"{recipe!r}"
            )
    return result


def _called(
    recipes: tuple[Any, ...],
    pos: Tensor,
    batch: Tensor | None,
    faces: Tensor | None,
) -> tuple[Any, ...]:
    """The graphs of recipes; graphs as they are."""
    graphs = []
    for recipe in recipes:
        if isinstance(recipe, Pattern):
            graphs.append(recipe(pos, batch, faces=faces))
        else:
            graphs.append(recipe)
    return tuple(graphs)


def _corners(pos: Tensor, batch: Tensor | None) -> Tensor:
    """The smallest coordinates of each point's cloud, (N, d)."""
    parts = pos.split(lengths(pos, batch).tolist())
    if not parts:
        return pos
    return torch.cat([part.amin(0, keepdim=True).expand_as(part) for part in parts])


def _subsampled(fine: Level, step: Any, name: str, down: Pattern, up: Pattern) -> Level:
    if name == "ratio":
        indices = farthest_points(fine.pos, ratio=step, start="outermost", batch=fine.batch)
    else:
        indices = integers(step, "points").to(fine.pos.device)
        check_range(indices, "points", len(fine.pos), ", the finer level's")
    pos = fine.pos[indices]
    batch = fine.batch
    if batch is not None:
        batch = batch[indices]
    normals = fine.normals
    if normals is not None:
        normals = normals[indices]
    pools = down(fine.pos, fine.batch, queries=pos, queries_batch=batch)
    unpools = up(pos, batch, queries=fine.pos, queries_batch=fine.batch)
    _warn_of_empty(pools, unpools)
    return Level(pos, batch, (), pools, unpools, indices, normals=normals)


def _of_clouds(graph: Pattern | AttentionGraph, count: int) -> Pattern | AttentionGraph:
    """The graph of a cloud for each of ``count``; a recipe as it is."""
    if isinstance(graph, Pattern) or count == 1:
        return graph
    return disjoint_union([graph] * count)


def _between(fine: Level, points: Tensor, down: Pattern, up: Pattern) -> Level:
    """A level of other points, which every cloud has."""
    check_shape(points, "coarse", ("M", fine.pos.shape[1]), "as pos has axes", GraphError)
    count = count_of_clouds(fine.batch)
    pos = points.to(fine.pos).repeat(count, 1)
    batch = fine.batch
    if batch is not None:
        batch = torch.arange(count, device=pos.device).repeat_interleave(len(points))
    pools = down(fine.pos, fine.batch, queries=pos, queries_batch=batch)
    unpools = up(pos, batch, queries=fine.pos, queries_batch=fine.batch)
    _warn_of_empty(pools, unpools)
    return Level(pos, batch, (), pools, unpools)


def _warn_of_empty(down: AttentionGraph, up: AttentionGraph) -> None:
    for name, graph in (("down", down), ("up", up)):
        if bool((graph.in_degree == 0).any()):
            # without numbers: one warning for all shapes of a folder
            warn(
                f"some points read none by {name}={graph.name}: give them more reach, or a number "
                "of sources, knn(..., 4)"
            )


def _in_cells(fine: Level, corner: Tensor, side: Any) -> tuple[Level, Tensor]:
    """The means of the points in each cell, and the cells counted from their cloud's corner."""
    side = number(side, "cell", "a length > 0 in the units of pos", lambda x: 0 < x < float("inf"))
    ids = voxel_ids(corner, side, batch=fine.batch)
    order = torch.argsort(ids, stable=True)
    sizes = torch.bincount(ids)
    down = clusters(ids)
    pos, place = (means(x, ids, sizes) for x in (fine.pos, corner))
    batch = fine.batch
    if batch is not None:
        first = torch.cumsum(sizes, 0) - sizes
        batch = batch[order][first]
    normals = fine.normals
    if normals is not None:
        normals = torch.nn.functional.normalize(means(normals, ids, sizes), dim=-1)
    return Level(pos, batch, (), down, down.reverse(), normals=normals), place


def means(x: Tensor, ids: Tensor, sizes: Tensor) -> Tensor:
    """The means (C, d) of the rows of each cell: the same bits every time, with all derivatives."""
    total = x.new_zeros(len(sizes), x.shape[1])
    if x.is_cuda:  # scatter_add adds atomically there; accumulating index_put sorts first
        total = total.index_put((ids,), x, accumulate=True)
    else:
        total = total.scatter_add(0, ids[:, None].expand_as(x), x)
    return total / sizes[:, None]
