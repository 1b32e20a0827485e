"""Mistakes about windows and cells of grids: numbered or cut in another way, read over a border."""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...convert.rule import trusted_rule
from ...graph import AttentionGraph
from ...graph.deferred.expression import Expression
from .mutant import Node, arguments

_SIDES = ("rows", "columns"), ("height", "width")
Change = tuple[str, Node]
OfAxis = Callable[[Tensor, Tensor], Tensor]  # (target, source) on one axis -> bool


def of_grid(part: Expression, graph: AttentionGraph) -> Iterator[Change]:
    """Mistakes about the call of a builder of grids."""
    values = arguments(part)
    size = values.get("size")
    if isinstance(size, int):
        size = (size,)
    if not isinstance(size, tuple) or not graph.is_square or prod(size) != graph.num_targets:
        return
    if len(size) > 1:  # numbered with the first axis running fastest
        axes_reversed = tuple(reversed(range(len(size))))
        number = torch.arange(prod(size)).reshape(size[::-1]).permute(axes_reversed).flatten()
        words = "grid numbered down the columns: height and width swapped"
        yield words, Expression("relabel", (part, number))
    if part.function == "window_partition" and not values["read_padding"]:
        cells = _per_axis(values["cell"], size)
        shift = _per_axis(values["shift"] or 0, size)
        axes = [_cells_around(*axis) for axis in zip(size, cells, shift, strict=True)]
        yield (
            "read across the border, from the other end: a cyclic shift without its mask",
            _product(size, axes),
        )
    if part.function == "grid_neighbourhood":
        yield from _of_windows(values, size)


def _per_axis(value: Any, size: tuple[int, ...]) -> tuple[Any, ...]:
    if isinstance(value, tuple):
        return value
    return (value,) * len(size)


def _of_windows(values: dict[str, Any], size: tuple[int, ...]) -> Iterator[Change]:
    named = [_per_axis(values[name], size) for name in ("kernel", "dilation", "causal")]
    steps = [_steps(*axis) for axis in zip(*named, strict=True)]
    if set(_per_axis(values["stride"], size)) != {1}:
        return
    around = [
        _among([step % length for step in near], length)
        for near, length in zip(steps, size, strict=True)
    ]
    yield "read across the border, from the other end: a torus", _product(size, around)
    if len(size) < 2:
        return
    flat = [0]
    for near, length in zip(steps, size, strict=True):
        flat = [start * length + by for start in flat for by in near]
    n = prod(size)
    text = "read at fixed distances of the flattened grid, over the ends of its rows"
    yield text, trusted_rule(_among(sorted(set(flat))), n, n)
    for number in dict.fromkeys((len(steps[-1]), len(flat))):
        text = f"a window of {number} along the flattened grid, and not one on each of its axes"
        yield text, trusted_rule(_among(range(-((number - 1) // 2), number // 2 + 1)), n, n)
    plain = len(size) == 2 and values["clamp"] and set(named[1]) == {1} and not any(named[2])
    if plain:
        yield from _clamped(size, named[0])


def _clamped(size: tuple[int, ...], kernels: tuple[int, ...]) -> Iterator[Change]:
    """Windows that are moved inwards by the length of the other axis."""
    for chosen in ((0,), (1,), (0, 1)):
        lengths = [size[1 - i] if i in chosen else length for i, length in enumerate(size)]
        axes = [_moved_inwards(*axis) for axis in zip(lengths, kernels, strict=True)]
        text = " and ".join(f"{_SIDES[0][i]} by the {_SIDES[1][1 - i]}" for i in chosen)
        yield (
            f"neighbourhood clamps {text}: its windows are moved inwards there",
            _product(size, axes),
        )


def _moved_inwards(length: int, kernel: int) -> OfAxis:
    left = kernel // 2
    right = (kernel - 1) // 2

    def inside(target: Tensor, source: Tensor) -> Tensor:
        middle = target.clamp(min=left).clamp(max=length - 1 - right)
        return (source >= middle - left) & (source <= middle + right)

    return inside


def _steps(kernel: int, dilation: int, causal: bool) -> range:
    """``t - s`` of a window that is cut at the borders."""
    if causal:
        before = kernel - 1
        after = 0
    else:
        before = kernel // 2
        after = (kernel - 1) // 2
    return range(-after * dilation, before * dilation + 1, dilation)


def _among(steps: Any, length: int | None = None) -> OfAxis:
    """True if ``t - s`` is one of the steps, modulo ``length`` on a periodic axis."""

    def inside(target: Tensor, source: Tensor) -> Tensor:
        if length is None:
            apart = target - source
        else:
            apart = (target - source) % length
        return torch.isin(apart, torch.tensor(list(steps), device=apart.device))

    return inside


def _cells_around(length: int, cell: int, shift: int) -> OfAxis:
    def inside(target: Tensor, source: Tensor) -> Tensor:
        return (target - shift) % length // cell == (source - shift) % length // cell

    return inside


def _product(size: tuple[int, ...], axes: list[OfAxis]) -> AttentionGraph:
    """A graph of the nodes of a grid from what is read on each axis."""

    def inside(target: Tensor, source: Tensor) -> Tensor:
        places = zip(axes, _places(target, size), _places(source, size), strict=True)
        first, *rest = [axis(t, s) for axis, t, s in places]
        for other in rest:
            first = first & other
        return first

    return trusted_rule(inside, prod(size), prod(size))


def _places(node: Tensor, size: tuple[int, ...]) -> list[Tensor]:
    """The coordinates of nodes on all axes."""
    places = []
    for length in reversed(size):
        places.append(node % length)
        node = node // length
    return places[::-1]
