"""XYZ, PTS, TXT, CSV and ASC: a point on each line, columns by the names of the first one.

Read here and not by numpy's loadtxt and genfromtxt, which fail 7 of 24 awkward files
(tests/awkward_files.py): they take blanks or commas but not both, no decimal commas, no count of
points, and no mark of the order of bytes.
"""

import re
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from ...io.numbers import clean, rows, unseparated
from ...io.reading import Blob, PathLike, file_name, read, show
from .curves.lines import ORDERED, in_order
from .extxyz import is_extxyz, one_frame
from .parts import Parts
from .raw import Contents, Raw, reads, writes
from .words import worded

_NUMBER = re.compile(rb"[+-]?(\d.*|\.\d.*|nan|inf|infinity)", re.IGNORECASE)
ENDINGS = (".xyz", ".pts", ".txt", ".csv", ".asc")


@reads(
    *ENDINGS,
    contents=Contents(
        read="columns by their names; lines along `order`, in each `curve`, back where `closed`",
        noted="columns without names, which are `x`; points of .xyz that are not finite; a last "
        "point that repeats the first of a closed curve; edges without length, which are warned of",
        refused="texts, empty cells, rows of another length, grids of heights; an `order` twice "
        "in a curve, `closed` that is neither 0 nor 1 throughout",
    ),
)
def read_text(path: PathLike, allow_nonfinite: bool, max_bytes: int, columns: str = "") -> Raw:
    """Columns by their names; in a file without names x, y, z, and ``x`` (N, k) for the rest."""
    raw_blob = read(path, max_bytes)
    if file_name(path).lower().endswith(".xyz") and not columns and is_extxyz(raw_blob.data):
        return one_frame(raw_blob)
    blob = clean(raw_blob, "#")
    if blob.data.lstrip()[:5].lower() == b"ncols":
        fix = "rasterio.open(path).read(1), and x, y of its transform"
        raise blob.fault("a point on each line", "a grid of heights (ESRI)", fix, offset=0)
    text, named = _names(blob, unseparated(blob), raw_blob.data)
    text = _without_count(text)
    table = rows(blob, text, nonfinite=True)  # CloudCompare has NaN where a scalar is unknown
    if not len(table.value):
        raise blob.fault("points", "an empty list: only a row of names", "check how it was written")
    width = table.width
    if width[0] == 1 and (width[1:] > 1).all():
        expected = f"{table.value[0]:g} points, as the first line says"
        fix = "correct the count, or get the whole file"
        raise blob.fault(expected, f"{len(width) - 1}", fix, offset=table.offset(0))
    names = columns.split() or next((names for names in named if len(names) == width[0]), named[0])
    names = [name.lower() if name.lower() in ORDERED else name for name in names]
    want = len(names) or int(width[0])
    source = "as on the first line"
    if names:
        source = "one for each name"
    fix = "put one point on each line"
    if want < 2:
        fix = "two numbers or more on each line"
    wrong = (width != want) | (width < 2)
    table.refuse(wrong, blob, f"{want} numbers, {source}", fix)
    values = table.value.reshape(-1, want)
    lines = table.start[table.ptr[:-1]]
    notes: tuple[str, ...] = ()
    if not names:
        points = {"pos": values[:, :3]}
        if want > 3:
            points["x"] = values[:, 3:]
            notes = ("columns 4 and on have no names: x",)
    else:
        points = worded(
            {name: values[:, column] for column, name in enumerate(names)}, any_case=True
        )
        if "pos" not in points or len(set(names)) < want:
            fix = "name each column once, the places x, y, z, or x, y"
            raise blob.fault("columns x, y, z", " ".join(names)[:200], fix, offset=int(lines[0]))
    has_gaps = file_name(path).lower().endswith(".xyz")
    raw = Raw(blob, points, point_lines=lines, text=True, has_gaps=has_gaps)
    if "order" in points:
        return in_order(raw)
    if "closed" in points:
        notes = ("closed makes no lines without a column order",)
    return replace(raw, notes=notes)


def _names(blob: Blob, text: bytes, original: bytes) -> tuple[bytes, list[list[str]]]:
    """The text with its first line of names blanked, and these names.

    They are split at blanks, or at commas and the like, or stand in a comment right above it.
    """
    first = re.search(rb"\S[^\n]*", text)
    assert first is not None  # clean() has seen to it
    words = first[0].removeprefix(b"//").split()  # CloudCompare's comment
    named = {b"x", b"y", b"z"} <= {word.strip(b"\"'").lower() for word in words}
    if named or not any(map(_NUMBER.fullmatch, words)):
        suspects = (
            word
            for word in words
            if re.search(rb"\d", word) and not re.match(rb"[\"'A-Za-z_]", word)
        )
        if not named and any(suspects):
            raise blob.fault(
                "numbers, or names of columns", show(first[0]), "correct it", offset=first.start()
            )
        line = blob.data[first.start() : first.end()].removeprefix(b"//")
        cells = line.split(next((mark for mark in (b"\t", b";", b",") if mark in line), None))
        candidates = [words, [b"_".join(cell.strip().strip(b"\"'").split()) for cell in cells]]
        names = [
            [word.strip(b"\"'").decode("utf-8", "replace") for word in one] for one in candidates
        ]
        return b" " * first.end() + text[first.end() :], names
    above = re.findall(rb"#+([^\n]*)", original[: first.start()])
    if above:
        comment = re.split(r"[\s,;]+", above[-1].decode("utf-8", "replace").strip())
        has_places = {"x", "y", "z"} <= {word.lower() for word in comment}
        if has_places and len(comment) == len(words):
            return text, [comment]
    return text, [[]]


def _without_count(text: bytes) -> bytes:
    """The text with a first line blank that says how many lines follow, as in a PTS file."""
    count = re.match(rb"\s*(\d+)[ \t]*\n", text)
    if (
        count
        and len(count[1]) < 18
        and len(re.findall(rb"\n[ \t]*\S", text[count.end() - 1 :])) == int(count[1])
    ):
        return b" " * (count.end() - 1) + text[count.end() - 1 :]
    return text


@writes(*ENDINGS, widths=range(2, 4))
def write_text(file: BinaryIO, parts: Parts) -> None:
    """Every column under its name; commas in a CSV, blanks in others."""
    parts.holds("...")
    columns: dict[str, np.ndarray] = {}
    for name, values in parts.points.items():
        parts.text(name, values)
    for name, values in parts.columns(parts.points).items():
        if values.ndim > 1:
            parts.refuse("columns of one number", f"{name} of {values[0].size}")
            columns |= {
                f"{name}_{i}": column for i, column in enumerate(values.reshape(len(values), -1).T)
            }
        else:
            columns[name] = values
    if parts.path.endswith(".csv"):
        between = ","
    else:
        between = " "
    table = np.empty(
        len(parts.pos), [(f"{i}", values.dtype) for i, values in enumerate(columns.values())]
    )
    for place, values in enumerate(columns.values()):
        table[f"{place}"] = values
    file.write(f"{between.join(columns)}\n".encode())
    np.savetxt(file, table, between.join(map(parts.digits, columns.values())))
