"""Text into values, told by type hints: ``56x56`` for a tuple, ``end`` for a Literal."""

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

_WORDS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True)
class Reader:
    """How text becomes a value: ``read`` raises ValueError on text that is none."""

    metavar: str
    expected: str
    read: Callable[[str], Any]
    is_flag: bool = False  # a bool, which needs no text
    needs_text: bool = True


def reader(hint: Any, mark: str = ",") -> Reader | None:
    """The reader of a type hint; ``None`` for what cannot be typed on a command line.

    Args:
        hint: int, float, str, bool, a Literal, a tuple of these, or a union of such and None.
        mark: What to show between the numbers of a tuple; ``x`` and ``,`` are both read.

    Example:
        >>> reader(tuple[int, ...] | int).read("3x5"), reader(tuple[int, ...] | int).read("7")
        ((3, 5), 7)
    """
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return Reader("|".join(map(str, inner)), " or ".join(map(str, inner)), lambda text: _choice(text, inner))
    if origin is tuple:
        return _sequence(inner, mark)
    if origin in (Union, types.UnionType):
        # A lone number is a number first: builders take one for all axes, where a tuple of one would not do.
        members = sorted((part for part in inner if part is not type(None)), key=lambda part: get_origin(part) is tuple)
        return _either([found for part in members if (found := reader(part, mark)) is not None])
    return None


def _whole(text: str) -> int:
    return int(text)


def _yes_or_no(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError
    return _WORDS[text.lower()]


_SCALARS: dict[Any, Reader] = {
    int: Reader("N", "a whole number", _whole),
    float: Reader("X", "a number", float),
    str: Reader("TEXT", "text", str),
    bool: Reader("yes|no", "yes or no", _yes_or_no, is_flag=True, needs_text=False),
}


def _choice(text: str, choices: tuple[Any, ...]) -> Any:
    if text not in map(str, choices):
        raise ValueError
    return {str(choice): choice for choice in choices}[text]


def _sequence(inner: tuple[Any, ...], mark: str) -> Reader | None:
    item = reader(inner[0], mark)
    if item is None:
        return None
    length = None if inner[1:] == (...,) else len(inner)

    def read(text: str) -> tuple[Any, ...]:
        parts = text.replace("x", ",").split(",")
        if length not in (None, len(parts)):
            raise ValueError
        return tuple(map(item.read, parts))

    count = "" if length is None else f"{length} "
    sample = {"N": "whole numbers such as 3{0}5", "X": "numbers such as 0.5,2"}.get(item.metavar, "{1} for each axis")
    return Reader(mark.join([item.metavar] * (length or 2)), count + sample.format(mark, item.expected), read)


def _either(members: list[Reader]) -> Reader | None:
    if not members:
        return None

    def read(text: str) -> Any:
        for member in members[:-1]:
            try:
                return member.read(text)
            except ValueError:
                continue
        return members[-1].read(text)

    flag = any(member.is_flag for member in members)
    metavar = members[-1].metavar  # the widest: the others are its short forms
    return Reader(metavar, " or ".join(member.expected for member in members), read, flag, not flag)
