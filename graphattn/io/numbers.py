"""Lines of numbers, read at once by numpy, and token by token only to name a wrong line.

Every step keeps the length of the text (a comment becomes spaces, CRLF becomes space and newline),
so that a byte offset in any later array is also the offset in the user's file.
"""

import re
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import LoaderError
from .reading import Blob, show

LINE_BYTES = 1 << 20  # 1 MiB: a face of 100,000 corners fits

SPACE, INTEGER, FLOAT, WORD, OTHER = range(5)
KIND = np.full(256, OTHER, np.uint8)  # class of each byte
KIND[list(b"nafityNAFITY")] = WORD  # nan, inf, infinity
KIND[list(b".eE")] = FLOAT
KIND[list(b"+-0123456789")] = INTEGER
KIND[list(b" \t\n\v\f\r")] = SPACE

_INTEGER = re.compile(rb"[+-]?\d+")
_SIGN = re.compile(rb"[+-](?![0-9])|[0-9][+-]")
# unambiguous, to avoid backtracking
_FLOAT = re.compile(rb"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_NONFINITE = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)


class Rows(NamedTuple):
    """Lines that hold at least one number: row ``r`` is ``value[ptr[r]:ptr[r + 1]]``."""

    value: np.ndarray  # (M,) float64 or int64
    ptr: np.ndarray  # (R + 1,) int64
    start: np.ndarray  # (M,) int64, byte offset of each number

    @property
    def width(self) -> np.ndarray:
        """(R,) numbers in each row."""
        return np.diff(self.ptr)

    def offset(self, row: int) -> int:
        """Byte offset of row ``row``."""
        return int(self.start[self.ptr[row]])

    def refuse(self, wrong: np.ndarray, blob: Blob, expected: str, fix: str, skip: int = 0) -> None:
        """Raise for the first row that is ``wrong`` (R,), if any, of other numbers than expected
        behind the first ``skip``.
        """
        if wrong.any():
            row = int(wrong.argmax())
            got = f"{self.width[row] - skip} numbers"
            raise blob.fault(expected, got, fix, offset=self.offset(row))


def clean(blob: Blob, comments: str = "") -> Blob:
    r"""Text of as many bytes, with ``\n`` line ends and blank comments.

    Texts of very long lines are refused.
    """
    data = blob.data
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise blob.fault("ASCII or UTF-8 text", "UTF-16", "save it as UTF-8")
    nul = data.find(b"\0")
    if nul >= 0:
        raise blob.fault(
            "text", "a NUL byte", "check that this is the text form of the format", offset=nul
        )
    if data.startswith(b"\xef\xbb\xbf"):
        data = b"   " + data[3:]
    data = data.replace(b"\r\n", b" \n").replace(b"\r", b"\n")
    blob = replace(blob, data=data)
    _check_lines(blob)
    if comments:
        data = re.sub(f"[{comments}][^\n]*".encode(), lambda match: b" " * len(match[0]), data)
    if not data.strip():
        raise blob.fault(
            "data", "an empty file (only blanks and comments)", "check how it was written"
        )
    return replace(blob, data=data)


def _check_lines(blob: Blob) -> None:
    """Raise if a line is longer than LINE_BYTES; jumps from line to line, at most that far."""
    data = blob.data
    begin = 0
    while len(data) - begin > LINE_BYTES:
        end = data.rfind(b"\n", begin, begin + LINE_BYTES + 1)
        if end < 0:
            end = data.find(b"\n", begin) % (len(data) + 1)  # -1 is the end of the text
            got = f"a line of {end - begin} bytes"
            raise blob.fault(
                f"lines of at most {LINE_BYTES} bytes", got, "break the line", offset=begin
            )
        begin = end + 1


def tokens(byte: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The starts of words (M,), and the indices of the first words of lines: ptr (R + 1,)."""
    word = KIND[byte] != SPACE
    first = word.copy()
    first[1:] &= ~word[:-1]
    start = np.flatnonzero(first)
    end = byte == 10
    end[1:] &= byte[:-1] != 10  # not for empty lines
    # words above each line end
    ptr = np.concatenate(([0], np.searchsorted(start, np.flatnonzero(end)), [len(start)]))
    return start, ptr[np.append(True, ptr[1:] > ptr[:-1])]


def first_words(byte: np.ndarray) -> np.ndarray:
    """The start of the first word of each line (R,)."""
    start, ptr = tokens(byte)
    return start[ptr[:-1]]


def line_ends(byte: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """The ends of the lines of these bytes."""
    newline = np.append(np.flatnonzero(byte == 10), len(byte))
    return newline[np.searchsorted(newline, begin)]


def keep(byte: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The text with all but these spans, and the line ends, blank."""
    mark = np.zeros(len(byte) + 1, np.int8)
    mark[begin] += 1
    mark[end] -= 1
    mask = np.cumsum(mark[:-1], dtype=np.int8).astype(bool) | (byte == 10)
    return np.where(mask, byte, np.uint8(32))


def word(text: bytes, offset: int) -> bytes:
    """The word at ``offset``, at most 400 bytes of it."""
    match = re.match(rb"\S+", text[offset : offset + 400])
    if match:
        return match[0]
    return b""


def rows(blob: Blob, text: bytes, dtype: Any = np.float64, *, nonfinite: bool = False) -> Rows:
    """All numbers of ``text``, as long as ``blob.data``; the error quotes the first other word."""
    byte = np.frombuffer(text, np.uint8)
    start, ptr = tokens(byte)
    integer = dtype == np.int64
    allowed = FLOAT
    if integer:
        allowed = INTEGER
    elif nonfinite:
        allowed = WORD
    if KIND[byte].max(initial=0) > allowed:
        raise _wrong(blob, text, integer, nonfinite)
    if not len(start):
        return Rows(np.zeros(0, dtype), ptr, start)
    if integer:
        if _SIGN.search(text):  # numpy reads a lone sign as 0
            raise _wrong(blob, text, integer, nonfinite)
        blank = np.append(KIND[byte] == SPACE, True)
        length = np.flatnonzero(blank[1:] & ~blank[:-1]) + 1 - start
        # as many digits as 2**63; checked one by one
        for offset in start[length > 18].tolist():
            digits = word(text, offset)
            is_short = len(digits) < 400 and _INTEGER.fullmatch(digits)
            if not is_short or not -(2**63) <= int(digits) < 2**63:
                raise blob.fault(
                    "an integer below 2**63", show(digits), "renumber from 0", offset=offset
                )
    value = _parse(text, dtype)
    if value is None or len(value) != len(start):
        raise _wrong(blob, text, integer, nonfinite)
    return Rows(value, ptr, start)


def _parse(text: bytes, dtype: Any) -> np.ndarray | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # older numpy warns at a bad word
        try:
            return np.fromstring(text, sep=" ", dtype=dtype)
        except (ValueError, DeprecationWarning):
            return None


def _wrong(blob: Blob, text: bytes, integer: bool, nonfinite: bool) -> LoaderError:
    """The error for the first word of ``text`` that is not a number of the wanted kind."""
    for match in re.finditer(rb"\S+", text):
        item = match[0]
        offset = match.start()
        fix = "correct the line, or write it as a comment"
        if integer:
            if _INTEGER.fullmatch(item):
                continue
            if item[:1].isalpha():
                fix = f"number the names 0, 1, 2, ... first; or {fix}"
            return blob.fault("an integer", show(item), fix, offset=offset)
        if _FLOAT.fullmatch(item):
            continue
        if not _NONFINITE.fullmatch(item):
            return blob.fault("a number", show(item), fix, offset=offset)
        if not nonfinite:
            return not_finite(blob, show(item), offset=offset)
    return blob.fault("numbers", "a word that is not a number", "write plain decimal numbers")


def not_finite(blob: Blob, got: str, *, offset: int | None = None, at: str = "") -> LoaderError:
    """The error for a NaN or infinite number."""
    fix = "repair it; load(..., allow_nonfinite=True) reads it as it is"
    return blob.fault("finite numbers", got, fix, offset=offset, at=at)


def unseparated(blob: Blob) -> bytes:
    """The text with blanks for separators.

    These are commas, or semicolons, between which commas are decimal; empty cells are refused.
    """
    data = blob.data
    mark = b","
    if b";" in data:
        mark = b";"
    if mark not in data:
        return data
    gap = re.search(rb"(?:^|[\n%s])[ \t]*%s|%s[ \t]*(?=\n|$)" % (mark, mark, mark), data)
    if gap:
        if mark == b",":
            word = "comma"
        else:
            word = "semicolon"
        raise blob.fault(
            f"a number on both sides of a {word}", "an empty cell", "fill it", offset=gap.end() - 1
        )
    if mark == b";":
        return re.sub(rb"(?<=\d),(?=\d)", b".", data).replace(mark, b" ")
    mixed = re.search(rb"\d,\d+[ \t]+[+-]?\d+,\d", data)
    if mixed:
        fix = "write decimal points, or one of the two between all numbers"
        raise blob.fault(
            "commas or blanks between numbers", show(mixed[0]), fix, offset=mixed.start()
        )
    return data.replace(mark, b" ")
