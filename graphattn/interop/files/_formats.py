"""Which function reads which ending: each stands with its reader, and nowhere else."""

from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R", bound=Callable[..., Any])

#: Of the contents of a file: "mesh" ``(blob, allow_nonfinite)`` gives polygons; "points" likewise float64 (N, d);
#: "edges" ``(blob, ignore_weights)`` gives sources and targets, int64 (E,).
READERS: dict[str, dict[str, Callable[..., Any]]] = {"mesh": {}, "points": {}, "edges": {}}


def reads(kind: str, *endings: str) -> Callable[[R], R]:
    """Decorates the reader of files with these endings."""

    def register(reader: R) -> R:
        READERS[kind] |= dict.fromkeys(endings, reader)
        return reader

    return register
