"""Mutants of a call: other values of its arguments, by their kind alone."""

from collections.abc import Iterator
from itertools import combinations, groupby, pairwise
from typing import Any, get_args

import torch
from torch import Tensor

from ...graph.deferred.expression import SIGNS, Expression, shown
from ...graph.deferred.pattern import SIZES
from .mutant import Mutant, Node, arguments, parameters, quoted, with_argument

_MOST_PLACES = 8  # of a tuple that are changed one by one
Variant = tuple[str, Any]


def of_call(part: Node) -> Iterator[Mutant]:
    """Every argument but the sizes with another value, and pairs of arguments exchanged."""
    if not isinstance(part, Expression) or part.function in SIGNS:
        return
    takes = parameters(part)
    values = arguments(part)
    for name, value in values.items():
        if isinstance(value, str):
            words = [word for word in _words(takes[name].annotation) if word != value]
        else:
            words = []
        for text, new in [
            *_other_values(name, value, words),
            *_of_tensor(name, value, takes[name].default),
        ]:
            is_number = isinstance(new, int | float) and not isinstance(new, bool)
            counted = is_number or part.function == "sliding_window"
            yield _mutant(part, {name: new}, text, counted, _rank(value, new))
    plain = {
        name: value for name, value in values.items() if name not in SIZES and _is_numbers(value)
    }
    for a, b in combinations(plain, 2):
        one, other = _alike(plain[a], plain[b])
        if one != other:
            text = f"{a}={shown(other)} and {b}={shown(one)}, taken for each other"
            yield _mutant(part, {a: other, b: one}, text)
            for name, x, y in ((a, one, other), (b, other, one)):
                yield _mutant(part, {name: _less(y, x)}, where(name, _less(y, x), x), rank=4)


def _rank(value: Any, new: Any) -> int:
    """Rank of a change: one more or less, a word or a flag; twice or half; the rest."""
    if isinstance(value, Tensor):
        if new is None or not bool(new.any()):
            return 0
        return 2
    if not isinstance(value, int) or isinstance(value, bool):
        return 1
    near = new in (value + 1, value - 1)
    if near:
        return 1
    if new in (2 * value, 2 * value + 1, 2 * value - 1, value // 2, value // 2 + 1):
        return 2
    return 3


def _mutant(
    part: Expression, changes: dict[str, Any], text: str, counted: bool = False, rank: int = 2
) -> Mutant:
    changed = part
    for name, value in changes.items():
        changed = with_argument(changed, name, value)
    if len(changes) == 1:
        single = next(iter(changes.items()))
    else:
        single = None
    return Mutant(f"{text}, in {quoted(part)}", part, changed, single, counted, rank)


def where(name: str, new: Any, old: Any) -> str:
    number = isinstance(old, int) and isinstance(new, int) and abs(new - old) > 2
    if number:
        why = {2 * old + 1: "counted on each side", 2 * old: "twice", 2 * old - 1: "twice"}
    else:
        why = {}
    return (
        f"{name}={shown(new)} where {shown(old)} was "
        f"meant{', as if ' * (new in why)}{why.get(new, '')}"
    )


def _other_values(name: str, value: Any, words: list[str]) -> Iterator[Variant]:
    # a mask of another size is refused before, but the axes of a grid are taken for each other
    values: list[Any] = []
    if name not in SIZES:
        values = [*words, *_others(value)]
    elif isinstance(value, tuple):
        values = [value[::-1]]
    yield from ((where(name, new, value), new) for new in dict.fromkeys(values) if new != value)
    if isinstance(value, tuple) and len(value) > 1 and name not in SIZES and _is_numbers(value):
        yield (
            f"borders of {name} ignored: {shown((sum(value),))} where {shown(value)} was meant",
            (sum(value),),
        )


def _words(annotation: Any) -> list[str]:
    """The words of a Literal, however it is nested."""
    inside = get_args(annotation)
    return [item for item in inside if isinstance(item, str)] + [
        word for item in inside for word in _words(item)
    ]


def _others(value: Any) -> list[Any]:
    """Values confused with this one: one more, twice, half, none; also inside a tuple."""
    if not isinstance(value, tuple):
        return [new for new in _near(value) if new >= 0 or value < 0]
    if not value or not _is_numbers(value):
        return []
    near = [_near(number) for number in value]
    places = range(len(value)) if 1 < len(value) <= _MOST_PLACES else ()
    one = [(*value[:i], new, *value[i + 1 :]) for i in places for new in near[i][:2]]
    less = [value[:i] + value[i + 1 :] for i in places]
    values = [*zip(*near, strict=True), value[::-1], *one, *less, *_moved(value)]
    return [new for new in values if min(new) >= 0 or min(value) < 0]


def _near(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        twice = 2 * value
        half = value // 2
        return [
            value + 1,
            value - 1,
            value + 2,
            value - 2,
            twice,
            twice + 1,
            twice - 1,
            half,
            half + 1,
            1,
            0,
        ]
    if not isinstance(value, float):
        return []
    return [
        new
        for new in (2 * value, value / 2, value**2, abs(value) ** 0.5)
        if abs(new) <= 4 * abs(value)
    ]


def _moved(value: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Lengths with one border one place off, or with two lengths joined."""
    if all(isinstance(number, int) and not isinstance(number, bool) for number in value):
        for i in range(min(len(value) - 1, _MOST_PLACES)):
            for by in (1, -1):
                yield (*value[:i], value[i] + by, value[i + 1] - by, *value[i + 2 :])
                yield (*value[:i], value[i] + by, *value[i + 1 : -1], value[-1] - by)
            yield (*value[:i], value[i] + value[i + 1], *value[i + 2 :])


def _of_tensor(name: str, value: Any, default: Any) -> Iterator[Variant]:
    """Labels ignored or shifted, an inverse permutation, an optional tensor left out."""
    if not isinstance(value, Tensor):
        return
    if default is None:
        yield f"{name} left out", None
    if value.dim() != 1 or value.is_floating_point() or value.numel() < 2:
        return
    yield f"{name} ignored, as if all were equal", torch.zeros_like(value)
    labels = torch.unique_consecutive(value)[: _MOST_PLACES + 1].tolist()
    for one, other in pairwise(labels):
        yield f"{name} {one} and {other} taken for one", torch.where(value == other, one, value)
    if len(labels) == len(set(labels)):
        for place in torch.nonzero(value[1:] != value[:-1]).flatten()[:_MOST_PLACES].tolist():
            for token, label in ((place + 1, place), (place, place + 1)):
                moved = value.clone()
                moved[token] = value[label]
                yield (
                    f"a boundary of {name} moved from token {place + 1} to {2 * token - place}",
                    moved,
                )
    yield f"{name} one place late", torch.cat((value[:1], value[:-1]))
    yield f"{name} one place early", torch.cat((value[1:], value[-1:]))
    if torch.equal(value.sort().values, torch.arange(value.numel(), device=value.device)):
        yield f"{name} the other way round: the inverse permutation", torch.argsort(value)


def _is_numbers(value: Any) -> bool:
    if isinstance(value, tuple):
        numbers = value
    else:
        numbers = (value,)
    return (
        bool(numbers)
        and len(list(groupby(map(type, numbers)))) == 1
        and isinstance(numbers[0], int | float)
    )


def _alike(one: Any, other: Any) -> tuple[Any, Any]:
    """Two arguments of a grid, one number of which is for all axes."""
    if isinstance(one, tuple) != isinstance(other, tuple):
        if isinstance(one, tuple):
            return (one, (other,) * len(one))
        return ((one,) * len(other), other)
    return one, other


def _less(a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(x - y for x, y in zip(a, b, strict=False))
    return a - b
