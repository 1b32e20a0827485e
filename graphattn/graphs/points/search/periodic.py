"""Points in a cell that repeats: searches among the images of all points, exactly.

Images are made only where a target can reach them: the points of the cell, and a layer around it.
The distance of an image is that of ``(p_s - p_t) + steps @ cell``, with both places moved to the
cell, so that an edge and its reverse have the same, bit for bit, and a point's opposite images too.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....arguments import check_shape
from ....errors import GraphError
from ....graph.images import checked_cell, lexicographic, moved
from ....graph.limits import refuse_over
from ....graph.sort import sorted_keys
from ..clouds import Cloud
from .candidates import ALL_PAIRS, TREE_SLACK, from_cells, from_tree, surely_few
from .nearest import nearest, self_first

SINGULAR = 1e-7  # height of a cell to the length of its vector, below which it is singular
SLACK = 1 + 1e-9  # far above the rounding of any place in the cell
_ROUNDING = 2.0**-46  # of places in the cell, to the size of those given
_BITS = 62
_TABLE_BITS = 12  # codes of steps, of which each is decoded once


@dataclass(frozen=True, eq=False)
class Lattice:
    """The vectors of a cell along which it repeats.

    Args:
        cell: (d, d) float64, the rows lattice vectors.
        periodic: The numbers of the axes along which it repeats.
    """

    cell: Tensor
    periodic: list[int]

    def __post_init__(self) -> None:
        vectors = self.cell[self.periodic].cpu()
        if vectors.numel() == 0:
            return
        # zeros stay zeros, and are singular
        values = torch.linalg.svdvals(torch.nn.functional.normalize(vectors, dim=1))
        if float(values[-1]) < SINGULAR:
            raise GraphError(
                "cell must have independent vectors along its periodic axes, got a singular one: "
                f"{vectors.tolist()}; set pbc to False along axes where nothing repeats"
            )

    @property
    def to_fractions(self) -> Tensor:
        """(d, P): positions times this are in units of the periodic vectors."""
        return torch.linalg.pinv(self.cell[self.periodic].cpu()).to(self.cell.device)

    def along(self, steps: Tensor) -> Tensor:
        """(n, d) float64: steps along periodic vectors, int64 (n, P), as positions."""
        return moved(self.all_axes(steps), self.cell[None], None)

    def all_axes(self, steps: Tensor) -> Tensor:
        """(n, d) int64: steps along periodic vectors as those along all."""
        result = steps.new_zeros(len(steps), len(self.cell))
        result[:, self.periodic] = steps
        return result


class Cells(NamedTuple):
    """The lattices of the clouds of a batch.

    Args:
        cells: (C, d, d) float64: one for all clouds, or one for each.
        periodic: bool (1, d) or (B, d).
    """

    cells: Tensor
    periodic: Tensor

    def of(self, cloud: int) -> Lattice:
        """The lattice of a cloud."""
        cell = self.cells[min(cloud, len(self.cells) - 1)]
        periodic = self.periodic[min(cloud, len(self.periodic) - 1)]
        return Lattice(cell, torch.nonzero(periodic).flatten().tolist())


def checked_cells(
    cell: object,
    pbc: object,
    points: Tensor,
    clouds: list[Cloud],
    batch: object,
) -> Cells | None:
    """The lattices of the clouds of ``points`` (N, d); None without a cell.

    Raises:
        GraphError: If the cell does not fit the points, or axes are periodic without a cell.
    """
    if cell is None:
        if pbc is None:
            return None
        flags = _flags(pbc, points.shape[1])
        if bool(flags.any()):
            raise GraphError("pbc needs cell, the lattice vectors of the periodic axes, got none")
        return None
    axes = points.shape[1]
    vectors = checked_cell(cell, axes).detach().to(torch.float64)
    flags = torch.ones(1, axes, dtype=torch.bool)
    if pbc is not None:
        flags = _flags(pbc, axes)
    if vectors.dim() == 2:
        vectors = vectors[None]
    last = max((cloud.number for cloud in clouds), default=0)
    for name, table in (("cell", vectors), ("pbc", flags)):
        number = len(table)
        if number != 1 and (batch is None or number <= last):
            raise GraphError(
                f"{name} must be one for all clouds, or one for each of {last + 1}, got {number}"
            )
    return Cells(vectors.to(points.device), flags)


def _flags(pbc: object, axes: int) -> Tensor:
    """bool (1, d) or (B, d) on the CPU: the axes along which a cell repeats."""
    expected = f"pbc must be True or False, or one of them for each of {axes} axes, (d,) or (B, d)"
    if isinstance(pbc, bool | np.bool_):
        return torch.full((1, axes), bool(pbc))
    flags = torch.as_tensor(pbc).cpu()
    if flags.dim() == 1:
        flags = flags[None]
    check_shape(flags, "pbc", ("B", axes), expected, GraphError)
    if not bool(((flags == 0) | (flags == 1)).all()):
        raise GraphError(f"{expected}, got other numbers than 0 and 1")
    return flags.bool()


class Codes:
    """Steps along the periodic vectors of a cell as one integer each, in lexicographic order.

    Args:
        most: The largest step along each vector, either way.
    """

    def __init__(self, most: list[int]) -> None:
        self.most = most
        self.widths = [(2 * step).bit_length() for step in most]
        self.bits = sum(self.widths)

    def of(self, steps: Tensor) -> Tensor:
        """int64 (n,) of steps (n, P)."""
        code = torch.zeros(len(steps), dtype=torch.int64, device=steps.device)
        for axis, (most, width) in enumerate(zip(self.most, self.widths, strict=True)):
            code = code << width
            code |= steps[:, axis] + most
        return code

    def opposite(self, code: Tensor) -> Tensor:
        """The codes of the negative steps."""
        return 2 * self.home - code

    @property
    def home(self) -> int:
        """The code of no step."""
        none = torch.zeros(1, len(self.most), dtype=torch.int64)
        return int(self.of(none))

    def steps(self, code: Tensor) -> Tensor:
        """int64 (n, P)."""
        columns: list[Tensor] = []
        for most, width in zip(reversed(self.most), reversed(self.widths), strict=True):
            column = _lowest(code, width)
            columns.insert(0, column - most)
            code = code >> width
        if not columns:
            return code.new_zeros(len(code), 0)
        return torch.stack(columns, 1)


def _lowest(code: Tensor, bits: int) -> Tensor:
    """The lowest bits of integers."""
    mask = (1 << bits) - 1
    return code & mask


class Copies(NamedTuple):
    """Images of points within reach of the targets, by point and then by step.

    ``steps`` are along periodic vectors, from the place of the point in the cell.
    """

    point: Tensor  # (G,)
    steps: Tensor  # (G, P)
    place: Tensor  # (G, d)

    def codes(self) -> Codes:
        """The codes of these steps and of the opposite ones."""
        if not len(self.steps):
            return Codes([0] * self.steps.shape[1])
        return Codes(self.steps.abs().amax(0).tolist())


class Near(NamedTuple):
    """Edges of one cloud: targets (n,), sources (n,), and the codes (n,) of the steps from the
    source's place in the cell to the image.
    """

    query: Tensor
    point: Tensor
    code: Tensor
    codes: Codes

    def at(self, edges: Tensor) -> "Near":
        """Some edges, by numbers or bool (n,)."""
        return Near(self.query[edges], self.point[edges], self.code[edges], self.codes)

    def sorted(self, num_points: int) -> "Near":
        """The edges by target, source and step, by one sort of integers that hold all three."""
        query, point, code, codes = self
        bits = num_points.bit_length()
        if query.numel() == 0:
            return self
        query_bits = int(query.amax()).bit_length()
        if query_bits + bits + codes.bits > _BITS:
            columns = torch.stack((query, point, code), 1)
            order = lexicographic(columns.cpu())
            return self.at(order.to(query.device))
        key = query << (bits + codes.bits)
        key |= point << codes.bits
        key |= code
        key = sorted_keys(key)
        code = _lowest(key, codes.bits)
        key >>= codes.bits
        point = _lowest(key, bits)
        return Near(key >> bits, point, code, codes)


class Crowd:
    """The points and the targets of one cloud in a cell that repeats.

    Args:
        lattice: Its cell.
        points: (n, d) float64.
        queries: (m, d) float64; the points themselves if they are the targets.
    """

    def __init__(self, lattice: Lattice, points: Tensor, queries: Tensor) -> None:
        self.lattice = lattice
        self.same = queries is points
        self.inverse = lattice.to_fractions
        self.point_cell, self.point_fraction, self.points = self._home(points)
        if self.same:
            self.query_cell = self.point_cell
            self.query_fraction = self.point_fraction
            self.queries = self.points
        else:
            self.query_cell, self.query_fraction, self.queries = self._home(queries)
        size = 0.0
        for x in (points, queries, lattice.cell):
            largest = x.abs().amax()
            size = max(size, float(largest))
        self.rounding = _ROUNDING * size
        self.scattered = False
        for cell in (self.point_cell, self.query_cell):
            self.scattered |= bool(cell.any())

    def _home(self, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The cell of each place (n, P), its coordinates there, and the place moved to the cell."""
        fraction = in_units(place, self.inverse[None])
        cell = fraction.floor()
        steps = cell.to(torch.int64)
        return steps, fraction - cell, place - self.lattice.along(steps)

    def copies(self, reach: float, *, half: bool = False) -> Copies:
        """The images within ``reach`` of the targets' bounds.

        With ``half``, the points themselves first, and then of each pair of opposite steps one.
        """
        device = self.points.device
        point = torch.arange(len(self.points), device=device)
        steps = torch.empty(len(point), 0, dtype=torch.int64, device=device)
        margin = self.inverse.norm(dim=0)
        margin *= (reach + self.rounding) * SLACK
        low = self.query_fraction.amin(0) - margin
        high = self.query_fraction.amax(0) + margin
        lowest = self.point_fraction.amin(0)
        highest = self.point_fraction.amax(0)
        firsts = (low - highest).ceil().tolist()
        lasts = (high - lowest).floor().tolist()
        for axis, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
            number = max(0.0, last - first + 1)
            columns = steps.shape[1] + 4
            refuse_over(
                int(8 * columns * number * len(point)),
                f"the images of {len(self.points):,} points within {reach:g} of the cell",
                "use a smaller r; r, cell and pos must be in one unit of length",
            )
            step = torch.arange(int(first), int(last) + 1, device=device)
            fraction = self.point_fraction[point, axis]
            place = fraction[:, None] + step
            is_near = place >= low[axis]
            is_near &= place <= high[axis]
            row, column = torch.nonzero(is_near).unbind(1)
            point = point[row]
            steps = torch.cat((steps[row], step[column, None]), 1)
        if half:
            keep = _leads(steps)
            home = torch.arange(len(self.points), device=device)
            none = steps.new_zeros(len(home), steps.shape[1])
            point = torch.cat((home, point[keep]))
            steps = torch.cat((none, steps[keep]))
        place = self.points[point] + self.lattice.along(steps)
        return Copies(point, steps, place)

    def offsets(self, near: Near) -> Tensor:
        """(n, d) int64: lattice vectors from the points to their images, both as given."""
        codes = near.codes
        if codes.bits <= _TABLE_BITS:
            every = torch.arange(1 << codes.bits, device=near.code.device)
            table = self.lattice.all_axes(codes.steps(every))
            offsets = table.index_select(0, near.code)
        else:
            offsets = self.lattice.all_axes(codes.steps(near.code))
        if self.scattered:
            of_queries = self.lattice.all_axes(self.query_cell)
            of_points = self.lattice.all_axes(self.point_cell)
            offsets += of_queries.index_select(0, near.query)
            offsets -= of_points.index_select(0, near.point)
        return offsets

    def squared(self, near: Near) -> Tensor:
        """Squared distances (n,) of images and targets: equal on all devices, and of an edge and
        its reverse.
        """
        codes = near.codes
        which = near.code
        if codes.bits <= _TABLE_BITS:
            every = torch.arange(1 << codes.bits, device=which.device)
            shifts = self.lattice.along(codes.steps(every))
        else:
            shifts = self.lattice.along(codes.steps(which))
            which = torch.arange(len(which), device=which.device)
        return self.measured(near.point, near.query, shifts, which)

    def measured(self, point: Tensor, query: Tensor, shifts: Tensor, which: Tensor) -> Tensor:
        """Squared distances of points moved by ``shifts[which]``, and of targets."""
        total = torch.zeros((), dtype=torch.float64, device=which.device)
        axes = (x.t().contiguous() for x in (self.points, self.queries, shifts))
        for p, q, shift in zip(*axes, strict=True):
            difference = p[point] - q[query]
            difference = difference + shift[which]
            total = total + difference * difference
        return total

    def nearest_of(self, near: Near, counts: Tensor, most: int) -> Tensor:
        """The numbers of the edges that are among the ``most`` nearest of their targets, ascending.

        Args:
            near: Edges by target, source and offset.
            counts: Number of edges of each target.
            most: Edges that a target keeps; of equally far ones the first.
        """
        order = torch.argsort(self.squared(near), stable=True)
        order = order[torch.argsort(near.query[order], stable=True)]
        start = torch.cumsum(counts, 0) - counts
        rank = torch.arange(len(order), device=order.device) - start[near.query]
        return torch.sort(order[rank < most]).values


def in_units(place: Tensor, inverse: Tensor) -> Tensor:
    """Positions (n, d) in units of periodic vectors (n, P), by ``inverse`` (1 or n, d, P).

    Summed axis by axis: a cloud alone has the bits that it has in a batch.
    """
    total = place[:, 0, None] * inverse[:, 0]
    for axis in range(1, place.shape[1]):
        total = total + place[:, axis, None] * inverse[:, axis]
    return total


def _leads(steps: Tensor) -> Tensor:
    """bool (n,): True where the first step that is not 0 is above 0."""
    leads = torch.zeros(len(steps), dtype=torch.bool, device=steps.device)
    unsettled = torch.ones_like(leads)
    for axis in range(steps.shape[1]):
        leads |= unsettled & (steps[:, axis] > 0)
        unsettled &= steps[:, axis] == 0
    return leads


def within_images(crowd: Crowd, reach: float, *, loops: bool) -> Iterator[Near]:
    """All images within ``reach`` of their targets, in chunks, by target, source and offset.

    Args:
        crowd: Points in a cell that repeats.
        reach: A distance.
        loops: True if targets that are points read themselves, too.
    """
    limit = reach * reach
    reach = reach + crowd.rounding
    on_cpu = crowd.points.device.type == "cpu"
    if crowd.same and on_cpu:
        pairs = _pairs_once(crowd, reach, limit, loops)
        if pairs is not None:
            yield pairs.sorted(len(crowd.points))
            return
    copies = crowd.copies(reach)
    if not len(copies.point):
        return
    codes = copies.codes()
    code = codes.of(copies.steps)
    candidates = from_cells
    if on_cpu:
        candidates = from_tree
    for _, _, query, copy in candidates(copies.place, crowd.queries, reach):
        near = Near(query, copies.point[copy], code[copy], codes)
        near = near.at(crowd.squared(near) <= limit)
        if crowd.same and not loops:
            other = near.query != near.point
            other |= near.code != codes.home
            near = near.at(other)
        yield near.sorted(len(crowd.points))


def _pairs_once(crowd: Crowd, reach: float, limit: float, loops: bool) -> Near | None:
    """All edges of points among themselves, each pair measured once; None for too many pairs."""
    from scipy.spatial import cKDTree  # slow to import

    copies = crowd.copies(reach, half=True)
    size = len(crowd.points)
    tree = cKDTree(copies.place.numpy())
    if not surely_few(tree, crowd.points, reach, ALL_PAIRS):
        return None
    pairs = torch.from_numpy(tree.query_pairs(reach * TREE_SLACK, output_type="ndarray"))
    query, copy = pairs.t().contiguous()
    inside = query < size  # the lower number: others join images outside the cell
    query = query[inside]
    copy = copy[inside]
    codes = copies.codes()
    near = Near(query, copies.point[copy], codes.of(copies.steps)[copy], codes)
    near = near.at(crowd.squared(near) <= limit)
    query = [near.query, near.point]
    point = [near.point, near.query]
    code = [near.code, codes.opposite(near.code)]
    if loops:
        nodes = torch.arange(size)
        query.append(nodes)
        point.append(nodes)
        code.append(torch.full_like(nodes, codes.home))
    return Near(torch.cat(query), torch.cat(point), torch.cat(code), codes)


def nearest_images(crowd: Crowd, count: int, self_loops: bool | None, dilation: int = 1) -> Near:
    """Every ``dilation``-th of the ``count`` nearest images of each target, by target, source and
    offset.

    Args:
        crowd: Points in a lattice with a periodic axis, or as many as are wanted.
        count: Images, by distance, then by source and offset: opposite images of a point itself are
            equally far.
        self_loops: True to count the target itself as the first; False to leave it out; None if
            it is no point.
        dilation: Of the nearest ones every which is kept.
    """
    needed = count + (self_loops is False)
    reach = _first_reach(crowd, needed)
    left = torch.arange(len(crowd.queries), device=crowd.points.device)
    parts = []
    while left.numel():
        copies = crowd.copies(reach)
        if len(copies.point) < needed:
            reach *= 2
            continue
        chosen, last = _closest(crowd, copies, left, needed)
        if self_loops is not None:
            home = torch.nonzero((copies.steps == 0).all(1)).flatten()
            chosen = self_first(chosen, home[left])
        if self_loops is False:
            chosen = chosen[:, 1:]
        settled = last <= reach
        copy = chosen[settled, ::dilation]
        query = left[settled]
        query = query.repeat_interleave(copy.shape[1])
        copy = copy.flatten()
        parts.append((query, copies.point[copy], copies.steps[copy]))
        left = left[~settled]
        if left.numel():
            reach = float(last[~settled].amax())
    query, point, steps = map(torch.cat, zip(*parts, strict=True))
    home = steps.new_zeros(1, steps.shape[1])  # a lone point may have no neighbour
    codes = Codes(torch.cat((home, steps.abs())).amax(0).tolist())
    return Near(query, point, codes.of(steps), codes).sorted(len(crowd.points))


def _closest(crowd: Crowd, copies: Copies, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` copies nearest to some targets, by distance, then by number, (n, count); and a
    distance (n,) within which all of them lie, and those that are equally far.
    """
    chosen = torch.empty(len(rows), count, dtype=torch.int64, device=rows.device)
    last = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
    shifts = crowd.lattice.along(copies.steps)
    left = torch.arange(len(rows), device=rows.device)
    num_near = count + 1
    while left.numel():
        num_near = min(num_near, len(copies.point))
        query = rows[left]
        places = crowd.queries[query]
        copy = nearest(copies.place, places, num_near)
        copy = torch.sort(copy, dim=1).values
        point = copies.point[copy]
        squared = crowd.measured(point, query[:, None], shifts, copy)
        squared, order = torch.sort(squared, dim=1, stable=True)
        copy = torch.gather(copy, 1, order)
        within = squared[:, count - 1].sqrt() * SLACK
        within += crowd.rounding
        decided = squared[:, -1].sqrt() > within
        if num_near == len(copies.point):
            decided.fill_(True)
        here = left[decided]
        chosen[here] = copy[decided, :count]
        last[here] = within[decided]
        left = left[~decided]
        num_near *= 2
    return chosen, last


def _first_reach(crowd: Crowd, count: int) -> float:
    """A distance within which most targets have ``count`` images, if points are spread evenly."""
    axes = len(crowd.lattice.periodic)
    if axes == 0:
        return math.inf
    vectors = crowd.lattice.cell[crowd.lattice.periodic]
    volume = float(torch.linalg.svdvals(vectors.cpu()).prod())
    return 1.3 * (volume * count / len(crowd.points)) ** (1 / axes)
