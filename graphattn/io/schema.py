"""JSON of a file as a dataclass: every key is there, of its type, and no other."""

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from ..arguments import flag, real, shown, text, whole
from ..errors import LoaderError

_PLAIN: dict[Any, Callable[[Any, str], Any]] = {int: whole, float: real, str: text, bool: flag}


def parsed(content: bytes) -> Any:
    """The value of a JSON text; NaN and Infinity are no JSON.

    Raises:
        LoaderError: If it is no JSON.
    """
    try:
        return json.loads(content, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise LoaderError(f"expected JSON, got {type(error).__name__}: {str(error)[:80]}") from None


def written(value: Any, *, indent: int | None = None, sort: bool = False) -> str:
    """The JSON of a value, without NaN and Infinity."""
    return json.dumps(value, indent=indent, sort_keys=sort, allow_nan=False)


def typed(value: Any, kind: Any, key: str) -> Any:
    """A value of JSON in the type of an annotation: a list as a tuple, an object as a dataclass.

    Raises:
        GraphAttnError: If it is of another type; of a dataclass also what its ``__post_init__``
            refuses.

    Example:
        >>> typed([1, 2.5], tuple[float, ...], "sides")
        (1.0, 2.5)
        >>> typed(["a"], tuple[float, ...], "sides")
        Traceback (most recent call last):
        graphattn.errors.OptionError: sides[0] must be a finite number, got 'a'
    """
    origin = get_origin(kind)
    inner = get_args(kind)
    if origin is UnionType:  # with None
        if value is None:
            return None
        return typed(value, inner[0], key)
    if origin in (tuple, list):
        _check(value, list, "a list", key)
        return origin(typed(item, inner[0], f"{key}[{place}]") for place, item in enumerate(value))
    if origin is dict:
        _check(value, dict, "an object", key)
        return {name: typed(item, inner[1], f"{key}.{name}"[:80]) for name, item in value.items()}
    if is_dataclass(kind):
        return record(value, kind, key)
    if kind is Path:
        return Path(text(value, key))
    if kind in _PLAIN:
        return _PLAIN[kind](value, key)
    return value


def record(value: Any, kind: Any, key: str = "") -> Any:
    """An object of JSON as a dataclass with all of its fields."""
    _check(value, dict, "an object", key or "all of it")
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    if key:
        above = f"{key}."
    else:
        above = ""
    for name in (*names, *value):
        if name not in value or name not in names:
            raise LoaderError(
                f"{above}{name[:80]} {'is missing' if name in names else 'is no key of it'}"
            )
    return kind(**{name: typed(value[name], hints[name], f"{above}{name}") for name in names})


def _check(value: Any, kind: type, expected: str, key: str) -> None:
    if not isinstance(value, kind):
        raise LoaderError(f"{key} must be {expected}, got {shown(value)}")


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name}, which is no number of JSON")
