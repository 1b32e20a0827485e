"""Mutants that no argument makes: bands with another end, grids numbered or cut in another way, half a rule."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any, TypeGuard

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.algebra import Complement, Intersection, Union
from ..graph.edge_set import EdgeSet
from ..graph.expression import SIGNS, Expression
from ..graph.rules import Band, Cells, Neighbourhood, Predicate, Product, Rectangle
from ..graph.rules_sequence import Distances
from ..graph.simple import band_of, simple_expression
from .mutants import Mutant, Node, quoted

_MOVED = ((0, 1), (0, -1), (-1, 0), (1, 0), (1, 1), (-1, -1))
_BLOCKS = 17  # all below, and powers of two
_SIDES = ("rows", "columns"), ("height", "width")


def of_rule(part: Node, graph: AttentionGraph) -> Iterator[Mutant]:
    """Every mutant that the edges of a part tell."""
    for words, changed, remote in (
        *_bands(graph),
        *_numbered(part, graph),
        *_clamped(graph.edges),
        *_flattened(graph.edges),
        *_borders(graph.edges),
        *_halves(graph.edges, part),
    ):
        made = AttentionGraph(changed, words, graph.device) if isinstance(changed, EdgeSet) else changed
        yield Mutant(f"{words}, in {quoted(part)}", part, made, counted=remote, remote=remote)


Change = tuple[str, "EdgeSet | Expression", bool]


def _bands(graph: AttentionGraph) -> Iterator[Change]:
    """A band with its ends moved; an end in the corner of the mask is open, and stays."""
    band = band_of(graph)
    if band is None:
        return
    (lo, hi), T, S = band, graph.num_targets, graph.num_sources
    for lo_by, hi_by in _MOVED:
        low, high = (lo if lo <= 1 - S else lo + lo_by), (hi if hi >= T - 1 else hi + hi_by)
        yield f"{_reach(low, high, T, S)} where {_reach(lo, hi, T, S)} was meant", Band(T, S, low, high), True
    if T == S and lo == 0 and hi >= T - 1:
        for block in sorted({*range(2, min(T, _BLOCKS)), *(1 << k for k in range(1, T.bit_length()))}):
            text = f"a target reads all of its block of {block} tokens: block_causal"
            yield text, Expression("block_causal", (T, block)), True


def _reach(lo: int, hi: int, T: int, S: int) -> str:
    if lo <= 1 - S or hi >= T - 1:
        return f"t - s <= {hi}" if lo <= 1 - S else f"t - s >= {lo}"
    return f"{lo} <= t - s <= {hi}"


def _numbered(part: Node, graph: AttentionGraph) -> Iterator[Change]:
    """The nodes of a grid numbered with the first axis running fastest."""
    values: tuple[Any, ...] = (*part.args, *part.options.values()) if isinstance(part, Expression) else ()
    for size in values:
        whole = isinstance(size, tuple) and len(size) > 1 and all(type(length) is int for length in size)
        if whole and graph.is_square and prod(size) == graph.num_targets:
            axes = tuple(reversed(range(len(size))))
            number = torch.arange(graph.num_targets).reshape(size[::-1]).permute(axes).flatten()
            text = "grid numbered down the columns: height and width swapped"
            yield text, Expression("relabel", (part, number)), False
            yield f"{text}, the other way round", Expression("relabel", (part, torch.argsort(number))), True


def _clamped(grid: EdgeSet) -> Iterator[Change]:
    """Windows of a grid of two axes that are moved inwards by the length of the other axis."""
    axes = grid.axes if isinstance(grid, Product) else ()
    if len(axes) != 2 or not all(isinstance(axis, Neighbourhood) for axis in axes):
        return
    for chosen in ((0,), (1,), (0, 1)):
        other = [_of_length(a, axes[1 - i].num_targets) if i in chosen else a for i, a in enumerate(axes)]
        text = " and ".join(f"{_SIDES[0][i]} by the {_SIDES[1][1 - i]}" for i in chosen)
        yield f"neighbourhood clamps {text}: its windows are moved inwards there", Product(tuple(other)), False


def _is_window(axis: EdgeSet) -> TypeGuard[Band]:
    size = axis.num_targets
    return isinstance(axis, Band) and size == axis.num_sources and 1 - size < axis.lo <= axis.hi < size - 1


def _cut(axis: EdgeSet) -> EdgeSet:
    """An axis whose windows are cut at the borders, not moved inwards."""
    if not isinstance(axis, Neighbourhood) or axis.causal or axis.stride > 1 or axis.flipped:
        return axis
    n, step = axis.num_targets, axis.dilation
    return Band(n, n, -((axis.kernel - 1) // 2) * step, axis.kernel // 2 * step, step)


def _flattened(grid: EdgeSet) -> Iterator[Change]:
    """Windows of a grid as distances between the numbers of nodes: they go on over the ends of rows."""
    axes = [axis for axis in map(_cut, grid.axes) if _is_window(axis)] if isinstance(grid, Product) else []
    if not isinstance(grid, Product) or not 2 <= len(axes) == len(grid.axes):
        return
    flat, n = [0], grid.num_targets
    for axis in axes:
        near = range(axis.lo, axis.hi + 1, axis.step)
        flat = [start * axis.num_targets + by for start in flat for by in near]
    text = "read at fixed distances of the flattened grid, over the ends of its rows"
    yield text, Distances(n, n, tuple(sorted(set(flat)))), False
    for number in dict.fromkeys((len(near), len(flat))):
        text = f"a window of {number} along the flattened grid, and not one on each of its axes"
        yield text, Band(n, n, -((number - 1) // 2), number // 2), False


def _of_length(axis: Any, length: int) -> Predicate:
    return Predicate(axis.num_targets, axis.num_targets, replace(axis, num_targets=length).contains)


def _borders(edges: EdgeSet) -> Iterator[Change]:
    """Windows or cells that go on at the other end; windows moved inwards."""
    axes = tuple(map(_cut, edges.axes if isinstance(edges, Product) else (edges,)))
    if all(isinstance(axis, Cells) or _is_window(axis) for axis in axes):
        why = "a cyclic shift without its mask" if isinstance(axes[0], Cells) else "a torus"
        yield f"read across the border, from the other end: {why}", Product(tuple(map(_round, axes))), False
    if _is_window(edges) and 0 < edges.hi == -edges.lo and not edges.offset:
        n, kernel = edges.num_targets, 2 * edges.hi // edges.step + 1
        if kernel * edges.step <= n:
            yield "windows moved inwards at the ends, not cut", Neighbourhood(n, kernel, edges.step), False


def _round(axis: EdgeSet) -> Predicate:
    n = axis.num_targets

    def inside(target: Tensor, source: Tensor) -> Tensor:
        return axis.contains(target, source) | axis.contains(target + n, source) | axis.contains(target, source + n)

    return Predicate(n, n, inside)


def _halves(edges: EdgeSet, part: Node) -> Iterator[Change]:
    """One of the two things that a builder's rule joins; of global tokens, one direction."""
    if isinstance(part, Expression) and part.function in SIGNS:
        return
    rest = edges.base if isinstance(edges, Complement) else None
    if isinstance(rest, Rectangle) and rest.targets == rest.sources:
        ends = [0, *(end for interval in rest.targets for end in interval), edges.num_targets]
        tokens = tuple((a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b)
        every, n = ((0, edges.num_targets),), edges.num_targets
        yield "global tokens are read by all, but do not read all", Rectangle(n, n, every, tokens), False
        yield "global tokens read all, but are not read by all", Rectangle(n, n, tokens, every), False
    if isinstance(edges, Union | Intersection):
        for half, other in ((edges.a, edges.b), (edges.b, edges.a)):
            yield f"{_called(other)} left out", half, True


def _called(edges: EdgeSet) -> str:
    """A rule as the simplest call that makes it, or with what is told of it."""
    simple = simple_expression(AttentionGraph(edges))
    told = {name: value for name, value in vars(edges).items() if isinstance(value, int | tuple)}
    inside = [f"{name}={value}" for name, value in told.items() if name not in ("num_targets", "num_sources")]
    return quoted(simple) if simple else f"{type(edges).__name__}({', '.join(inside)})"
