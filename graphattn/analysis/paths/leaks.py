"""The shortest way by which the future reaches the past, layer by layer."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ...arguments import check_flags, check_shape, integers, whole
from ...errors import GraphError
from ...graph import AttentionGraph, PerExample
from ...graph import runs as _runs
from ...graph.edges import Edges
from ...graph.kinds.layers import Layer, Layers, examples_of, layers_of
from ...graph.limits import every_node
from ...graph.runs import Runs
from ...plans.whole import MOST_RUNS
from ...printed import Printed
from .receptive_field import graphs_of
from .walks import BUDGET

_STEP = 1 << 12  # nodes that a step through a layer counts for, however few they are
_LOOK = 4  # what an edge or interval costs whenever a step looks at it; to find one costs 1
_NONE = torch.iinfo(torch.int64).min  # a node that depends on nothing with a place in the order


@dataclass(frozen=True, repr=False)
class Leaks(Printed):
    """Shortest leak found by :func:`leaks`; true if a target depends on the future.

    Args:
        path: The shortest way from a later node to an earlier one: ``(layer, source, target)`` for
            each edge. A layer that is not named keeps what the node has (the residual connection).
        gap: How much later in the order the first source is than the last target; 0 without a leak.
        edges: For each layer, how many of its edges lead from a later node to an earlier one;
            ``None`` where sources and targets are not in the same order.
        only_residual: True if the leak goes through residual connections: without them there is
            none.
        example: Of graphs of examples, the first that leaks; ``None`` if none does, or all share
            their graphs.
    """

    path: tuple[tuple[int, int, int], ...]
    gap: int
    edges: tuple[int | None, ...]
    only_residual: bool = False
    example: int | None = None

    @property
    def ok(self) -> bool:
        """True if no target depends on the future."""
        return not self.path

    def __bool__(self) -> bool:
        return bool(self.path)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain Python values."""
        path = [list(edge) for edge in self.path]
        return {"ok": self.ok, **asdict(self), "path": path, "edges": list(self.edges)}

    def in_full(self) -> str:
        if self.ok:
            return (
                f"no leak: no target depends on a later source, through {len(self.edges)} layers\n"
                "  (what earlier tokens pass on was not asked)"
            )
        first = self.path[0][1]
        last = self.path[-1][2]
        lines = [f"leak: {last} depends on {first}, which is {self.gap:,} later"]
        if self.example is not None:
            lines[0] += f", in example {self.example}"
        lines += [f"  layer {layer}: {source} -> {target}" for layer, source, target in self.path]
        if self.only_residual:
            lines.append(
                "  only through residual connections: with residual=False there is no leak"
            )
        counted = [f"{count:,} in layer {i}" for i, count in enumerate(self.edges) if count]
        if counted:
            lines.append(f"  edges from a later source: {', '.join(counted)}")
        return "\n".join(lines)


def leaks(
    layers: Layers, order: Any = None, *, residual: bool = True, budget: int = BUDGET
) -> Leaks:
    """True if some target depends on a source that is later in the order, with the shortest path.

    Targets may depend on sources of their own place in the order or earlier ones. Nodes of layers
    between, such as latents, need no place: what they depend on counts.

    Args:
        layers: One graph, or a list of graphs, first layer first; a layer may be a
            :class:`PerExample`, and each example is then asked about.
        order: The place of each node, int64 (N,), of the first sources and the last targets, which
            are as many; nodes of equal place may depend on each other. By default the nodes' own
            numbers.
        residual: Whether every target of a square layer also keeps what it has (a residual
            connection). ``True`` by default, as the question is about a model, whose blocks have
            them, and a node depends on more through them; ``receptive_field`` and ``path_counts``,
            about the graphs, have ``False``.
        budget: What the answer may cost, for all layers together. To find an interval of sources of
            a rule (of a ``from_rule``: to ask a pair) costs 1, once for equal layers; each look at
            an edge or interval costs 4. Causal graphs and windows, in the order of the numbers, are
            answered from their form, whatever their size.
    Raises:
        GraphError: If the first sources and the last targets differ in number, ``order`` is not
            integer (N,), or the answer costs more than ``budget``.
    Example:
        >>> from graphattn.graphs import causal, sliding_window
        >>> print(leaks([causal(8), sliding_window(8, window=3, causal=False)]))
        leak: 0 depends on 1, which is 1 later
          layer 1: 1 -> 0
          edges from a later source: 7 in layer 1
    """
    check_flags(residual=residual)
    stack = layers_of(layers)
    if any(isinstance(layer, PerExample) for layer in stack):
        return _of_examples(stack, order, residual, budget)
    graphs = graphs_of(stack)
    budget = whole(budget, "budget", 1, GraphError)
    S = graphs[0].num_sources
    T = graphs[-1].num_targets
    if S != T:
        raise GraphError(
            "leaks compares the first sources with the last targets, which must be the same nodes; "
            f"got {S} sources and {T} targets"
        )
    distinct = {graph: _to_find(graph) for graph in graphs}
    to_find = sum(distinct.values())
    if order is None and to_find <= budget and all(map(_reads_no_later, distinct)):
        return Leaks((), 0, (0,) * len(graphs))
    most = to_find + sum(_steps(graph) * (number + 2) for number, graph in enumerate(graphs))
    spent = 0

    def spend(cost: int) -> None:
        nonlocal spent
        spent += cost
        if spent > budget:
            raise GraphError(
                f"leaks costs {spent:,} or more here (budget {budget:,}; to find an edge or "
                f"interval of sources costs 1, each look at one {_LOOK}); ask about fewer layers or "
                f"a smaller size, or try budget={most}"
            )

    spend(to_find + sum(_steps(graph) for graph in graphs if not distinct[graph]))
    number = _order(order, S)
    place = torch.unique(number, return_inverse=True)[1]  # ranks: -2**63 is left for no dependency
    steps = {graph: _Latest(graph) for graph in distinct}
    costs = [steps[graph].cost for graph in graphs]
    spend(sum(steps[graph].cost for graph in graphs if distinct[graph]))
    backward: dict[AttentionGraph, int | None] = dict.fromkeys(steps)
    for graph, step in steps.items():
        if graph.num_sources == graph.num_targets == S:
            backward[graph] = step.backward_edges(place)
    counts = tuple(backward[graph] for graph in graphs)
    residuals = [residual and graph.is_square for graph in graphs]
    if not _ahead(steps, graphs, residuals, place):
        return Leaks((), 0, counts)
    only_residual = any(residuals) and not _ahead(steps, graphs, [False] * len(graphs), place)
    columns: list[list[Tensor]] = []
    # layers that keep nothing take an edge each
    taken = list(accumulate(int(not keeps) for keeps in residuals))
    while True:
        moves = len(columns)
        walked = [max(1, least) <= moves <= layer for layer, least in enumerate(taken, 1)]
        spend(sum(cost for cost, here in zip(costs, walked, strict=True) if here))
        columns.append(
            _column([steps[graph] for graph in graphs], residuals, place, columns, taken)
        )
        late = columns[-1][-1]
        if bool((late > place).any()):
            target = int((late > place).long().argmax())
            way = _way(graphs, residuals, columns, target, moves)
            gap = int(number[way[0][1]]) - int(number[target])
            return Leaks(way, gap, counts, only_residual)


def _of_examples(layers: tuple[Layer, ...], order: Any, residual: bool, budget: int) -> Leaks:
    """The first example that leaks; examples of the same graphs are asked about once."""
    different: dict[tuple[Layer, ...], int] = {}
    for example, graphs in enumerate(examples_of(layers)):
        different.setdefault(graphs, example)
    answer = Leaks((), 0, (0,) * len(layers))
    for graphs, example in different.items():
        answer = leaks(graphs, order, residual=residual, budget=budget)
        if answer:
            return replace(answer, example=example)
    return answer


def _reads_no_later(graph: AttentionGraph) -> bool:
    """True if a square graph's diagonals or edges show that no target reads a later source."""
    if not graph.is_square:
        return False
    diagonals = graph.edges.diagonals
    if diagonals is None:
        return graph.is_causal
    return not diagonals or diagonals[0] >= 0


def _to_find(graph: AttentionGraph) -> int:
    """Cost of finding the intervals of a rule; 0 of those that diagonals or a list give."""
    if graph.edges.is_listed or graph.edges.diagonals is not None:
        return 0
    return graph.edges.num_runs


def _steps(graph: AttentionGraph, pieces: int | None = None) -> int:
    """Cost of one step through a layer of so many edges or intervals, an estimate by default."""
    if pieces is None:
        pieces = graph.num_targets * graph.edges.runs_per_row
    # of stretches as long as each power of two
    maxima = graph.num_sources * graph.num_sources.bit_length() >> 3
    return _LOOK * max(_STEP, maxima + pieces)


def _runs_found(edges: Edges) -> Runs | None:
    """The runs of every row, however many pairs are asked for them; None beyond ``MOST_RUNS``."""
    if edges.num_runs <= MOST_RUNS:
        return edges.all_runs()
    parts = []
    count = 0
    for runs in _walked(edges):
        parts.append(runs)
        count += runs.row.numel()
        if count > MOST_RUNS:
            return None
    return Runs(*map(torch.cat, zip(*parts, strict=True)))


def _walked(edges: Edges) -> Iterator[Runs]:
    """The runs of every row in chunks, none empty or touching."""
    for first, _, chunk in edges.chunks():
        row, lo, hi = _runs.canonical(chunk)
        yield Runs(row + first, lo, hi)


def _order(order: Any, size: int) -> Tensor:
    if order is None:
        return every_node(size)
    place = integers(order, "order", f"({size},), the place of each node", GraphError).cpu()
    check_shape(place, "order", (size,), "the place of each node", GraphError)
    return place


class _Latest:
    """For each target the latest place among its sources: a maximum over every row."""

    def __init__(self, graph: AttentionGraph) -> None:
        self.graph = graph
        self.none = torch.tensor(_NONE).expand(graph.num_targets)
        self.runs = None
        pieces = None
        if not graph.edges.is_listed:
            self.runs = _runs_found(graph.edges)
        if self.runs is not None:
            pieces = self.runs.row.numel()
        self.cost = _steps(graph, pieces)

    def __call__(self, value: Tensor) -> Tensor:
        latest = torch.full((self.graph.num_targets,), _NONE)
        if self.graph.edges.is_listed:
            target = self.graph.target.cpu()
            source = self.graph.source.cpu()
            return latest.scatter_reduce(0, target, value[source], "amax")
        for runs in self._chunks():
            latest = _latest_of_runs(runs, value, latest)
        return latest

    def _chunks(self) -> Iterator[Runs]:
        if self.runs is None:
            yield from _walked(self.graph.edges)
        else:
            yield self.runs

    def backward_edges(self, place: Tensor) -> int:
        """Edges whose source is later than their target, by intervals of sources."""
        if self.graph.edges.is_listed:
            return int((place[self.graph.source.cpu()] > place[self.graph.target.cpu()]).sum())
        if bool((place[1:] < place[:-1]).any()):
            return sum(int(_later(place, runs).sum()) for runs in self._chunks())
        later = torch.searchsorted(place, place, right=True)  # the first source later than each
        return sum(
            int((hi - torch.maximum(lo, later[row])).clamp(min=0).sum())
            for row, lo, hi in self._chunks()
        )


def _later(place: Tensor, runs: Runs) -> Tensor:
    """The number of sources of each run whose place is above that of its target.

    By a wavelet matrix of the places: bit after bit, the highest first, sources are parted by the
    bit, in their order, and a run stays an interval in the part that its target's bit names.
    """
    target_place = place[runs.row]
    lo = runs.lo
    hi = runs.hi
    count = torch.zeros_like(target_place)
    for power in reversed(range(int(place.max()).bit_length())):
        has_bit = (place >> power) & 1 == 1
        before = torch.cat((torch.zeros(1, dtype=torch.int64), torch.cumsum(has_bit, 0)))
        first = before[lo]
        last = before[hi]
        with_bit = (target_place >> power) & 1 == 1
        count += torch.where(with_bit, 0, last - first)
        without = place.numel() - int(before[-1])  # these come first
        lo = torch.where(with_bit, without + first, lo - first)
        hi = torch.where(with_bit, without + last, hi - last)
        place = torch.cat((place[~has_bit], place[has_bit]))
    return count


def _latest_of_runs(runs: Runs, value: Tensor, latest: Tensor) -> Tensor:
    """The latest of each target so far and of its runs.

    Of runs as long as a power of two and less than twice that, two such stretches cover each.
    """
    row, lo, hi = runs
    if row.numel() == 0:
        return latest
    level = torch.log2((hi - lo).double()).floor().long()
    width = value
    for power in range(int(level.max()) + 1):
        here = level == power
        ends = hi[here] - (1 << power)
        most = torch.maximum(width[lo[here]], width[ends])
        latest = latest.scatter_reduce(0, row[here], most, "amax")
        half = 1 << power
        width = torch.maximum(width[: max(0, width.numel() - half)], width[half:])
    return latest


def _ahead(
    steps: dict[Any, _Latest],
    graphs: tuple[AttentionGraph, ...],
    residuals: list[bool],
    place: Tensor,
) -> bool:
    """True if some target of the last layer depends on something later than itself."""
    latest = place
    for graph, keeps in zip(graphs, residuals, strict=True):
        latest = _next(steps[graph](latest), latest if keeps else None)
    return bool((latest > place).any())


def _next(read: Tensor, residual: Tensor | None) -> Tensor:
    if residual is None:
        return read
    return torch.maximum(read, residual)


def _column(
    steps: list[_Latest],
    residuals: list[bool],
    place: Tensor,
    columns: list[list[Tensor]],
    taken: list[int],
) -> list[Tensor]:
    """``columns[k][l]``: the latest place a node depends on after ``l`` layers, ``k`` edges."""
    k = len(columns)
    column = [place]
    for number, (step, keeps) in enumerate(zip(steps, residuals, strict=True)):
        if k > number + 1:  # one edge for each layer at most
            column.append(columns[-1][number + 1])
        elif k < taken[number]:
            column.append(step.none)
        elif k == 0:
            column.append(place)  # every layer keeps what it has
        else:
            column.append(_next(step(columns[-1][number]), column[-1] if keeps else None))
    return column


def _way(
    graphs: tuple[AttentionGraph, ...],
    residuals: list[bool],
    columns: list[list[Tensor]],
    node: int,
    k: int,
) -> tuple[tuple[int, int, int], ...]:
    """Back from the target to where its latest place comes from."""
    way = []
    for number in reversed(range(len(graphs))):
        latest = int(columns[k][number + 1][node])
        if residuals[number] and int(columns[k][number][node]) == latest:
            continue
        k -= 1
        graph = graphs[number]
        if graph.edges.is_listed:
            source = graph.source.cpu()[graph.target.cpu() == node].sort().values
        else:
            source = _runs.expand(graph.edges.rows(torch.tensor([node])))[1]
        came = int(source[columns[k][number][source] == latest][0])
        way.append((number, came, node))
        node = came
    return tuple(reversed(way))
