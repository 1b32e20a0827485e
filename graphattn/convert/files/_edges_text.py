"""Edge lists in text: two integers on each line, and only the additions that options allow."""

import re

import numpy as np

from ._guard import Blob, show
from ._text import clean, keep, rows, tokens, unseparated, word

_NUMBER = re.compile(rb"[+-]?[\d.].*")
_SOURCE = {b"source", b"src", b"from", b"sender"}
_TARGET = {b"target", b"tgt", b"dst", b"dest", b"to", b"receiver"}


def read_text(blob: Blob, header: bool, ignore_weights: bool) -> tuple[Blob, np.ndarray, np.ndarray, np.ndarray]:
    """Sources (E,), targets (E,) and the byte offset (E,) of each line."""
    blob = clean(blob, "#%")
    text = unseparated(blob)
    byte = np.frombuffer(text + b" ", np.uint8)
    start, ptr = tokens(byte)
    first = [word(text, offset) for offset in start[: ptr[1]][:2].tolist()]
    named = not any(_NUMBER.fullmatch(item) for item in first)
    if named != header:
        expected = "a row of names (header=True)" if header else "two integers"
        fix = "header=False" if header else "header=True, if this line is a row of names"
        raise blob.fault(expected, show(b" ".join(first)), fix, offset=int(start[0]))
    if header:
        names = [item.strip(b"\"'").lower() for item in first]
        if len(names) == 2 and names[0] in _TARGET and names[1] in _SOURCE:
            fix = "swap the columns, or write the row of names as a comment if it is wrong"
            raise blob.fault("the source first", show(b" ".join(first)), fix, offset=int(start[0]))
        ptr = ptr[1:]
    begin, width = start[ptr[:-1]], np.diff(ptr)
    if not len(begin):
        raise blob.fault("edges", "an empty list: only a row of names", "check how it was written")
    bad = np.flatnonzero((width < 2) | ((width > 2) & (not ignore_weights)))
    if len(bad):
        row = int(bad[0])
        expected = "2 columns or more" if ignore_weights else "2 columns, source and target"
        fix = "weights='ignore' leaves the others out" if width[row] > 2 else "complete the line"
        raise blob.fault(expected, f"{width[row]}", fix, offset=int(begin[row]))
    end = np.append(start, len(byte))[ptr[:-1] + 2]  # the start of the third column or of the next line
    table = rows(blob, keep(byte, begin, end)[:-1].tobytes(), np.int64)
    pair = table.value.reshape(-1, 2)
    bad = np.flatnonzero((pair < 0).any(1))
    if len(bad):
        row = int(bad[0])
        raise blob.fault("ids from 0", str(pair[row].min()), "renumber", offset=int(begin[row]), at=f"edge {row}")
    return blob, pair[:, 0].copy(), pair[:, 1].copy(), begin
