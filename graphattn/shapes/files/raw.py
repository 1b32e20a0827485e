"""The contents of a file as every reader returns them, and the readers and writers by ending."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...io.reading import Blob

R = TypeVar("R", bound=Callable[..., Any])

#: By ending: ``(path, allow_nonfinite, max_bytes)`` gives a :class:`Raw`.
READERS: dict[str, Callable[..., "Raw"]] = {}
#: By ending: ``(file, parts)`` writes.
WRITERS: dict[str, Callable[..., None]] = {}
#: By ending: how many numbers a row of ``pos`` may have there.
WIDTHS: dict[str, range] = {}
NO_FACES = np.zeros(1, np.int64), np.zeros(0, np.int64)


class Contents(NamedTuple):
    """The parts of a format's specification, by what becomes of them: a row of the guide's table."""

    read: str
    noted: str
    refused: str


#: By endings: what is read, noted and refused.
CONTENTS: dict[tuple[str, ...], Contents] = {}


@dataclass(frozen=True, eq=False)
class Raw:
    """The contents of a file by its own names; face ``i`` is ``corner[ptr[i]:ptr[i + 1]]``."""

    blob: Blob
    points: dict[str, np.ndarray]  # (N,) or (N, k)
    ptr: np.ndarray = field(default_factory=lambda: NO_FACES[0])  # (P + 1,)
    corner: np.ndarray = field(default_factory=lambda: NO_FACES[1])  # (K,)
    faces: dict[str, np.ndarray] = field(default_factory=dict)  # (P,) or (P, k)
    others: dict[str, np.ndarray] = field(default_factory=dict)  # of neither
    corners: dict[str, np.ndarray] = field(default_factory=dict)  # (K, k), of each corner of a face
    notes: tuple[str, ...] = ()
    doubt: str = ""  # what looks wrong with its units
    unit: str = ""  # of lengths, if the file says it
    depths: dict[str, int] = field(default_factory=dict)  # bits of what LAS keeps in fields of 16
    point_lines: np.ndarray | None = None  # (N,) byte offsets in a text file
    face_lines: np.ndarray | None = None  # (P,)
    text: bool = False  # the file has no types of numbers
    has_lines: bool = False  # faces of one or two corners are points and lines
    has_gaps: bool = False  # of a depth camera: what is not finite was not seen
    dropped: int = 0  # points that were not seen


def _registers(table: dict[str, Callable[..., Any]], endings: tuple[str, ...]) -> Callable[[R], R]:
    def register(function: R) -> R:
        table.update(dict.fromkeys(endings, function))
        return function

    return register


def reads(*endings: str, contents: Contents) -> Callable[[R], R]:
    """Decorates the reader of files with these endings."""
    CONTENTS[endings] = contents
    return _registers(READERS, endings)


def writes(*endings: str, widths: range = range(3, 4)) -> Callable[[R], R]:
    """Decorate the writer of files with some endings, of ``pos`` (N, k), k in ``widths``."""
    WIDTHS.update(dict.fromkeys(endings, widths))
    return _registers(WRITERS, endings)
