"""PCD of the Point Cloud Library: ascii, binary and compressed, with every field.

Read here and not by pypcd4, which fails 11 of 24 awkward files (tests/awkward_files.py): it passes
over points that are missing or too many, takes the pairs of a compressed file for columns, and
needs COUNT, version 0.7 and single blanks.
"""

import re
from typing import BinaryIO

import numpy as np

from ...io.numbers import clean, rows
from ...io.reading import Blob, PathLike, read, show
from .parts import NUMBERS, Parts
from .polygons import typed
from .raw import Contents, Raw, reads, writes

_HEADER = re.compile(rb"^DATA[ \t]+(\w+)[ \t]*\r?\n", re.MULTILINE)
_WORDS = ("FIELDS", "SIZE", "TYPE", "COUNT", "WIDTH", "HEIGHT", "POINTS")
_KINDS = {"F": "f", "U": "u", "I": "i"}
_PADDING = "_\n"  # no field's name has a line end
_PACKED = ("rgb", "rgba")
_STANDING = ["0", "0", "0", "1", "0", "0", "0"]  # VIEWPOINT at the origin, not turned
_NAMES = {"nx": "normal_x", "ny": "normal_y", "nz": "normal_z"}


@reads(
    ".pcd",
    contents=Contents(
        read="every field by its name, `rgb` and `rgba` unpacked",
        noted=(
            "colours as whole numbers in type F, colours lost as nan, points that are not finite,"
            " `VIEWPOINT`, `HEIGHT`"
        ),
        refused="other numbers of points than the header has",
    ),
)
def read_pcd(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """The fields of a PCD file by their names; ``rgb`` is unpacked."""
    blob = read(path, max_bytes)
    end = _HEADER.search(blob.data, 0, 1 << 16)
    if end is None:
        got = "none in its first 64 KiB"
        raise blob.fault(
            "a header that ends in DATA ascii, binary or binary_compressed", got, "export it again"
        )
    dtype, count, notes = _header(blob, blob.data[: end.start()])
    body = blob.data[end.end() :]
    kind = end[1].decode().lower()
    points: dict[str, np.ndarray]
    lines = None
    if kind == "ascii":
        blob = clean(blob)
        points, lines = _ascii(blob, blob.data.find(b"\n", end.start()) + 1, dtype, count)
    elif kind == "binary":
        need = dtype.itemsize * count
        if len(body) > need and not body[need:].strip(b"\0"):
            # PCL fills a page of memory
            notes.append(f"{len(body) - need:,} zero bytes behind the points")
        elif len(body) > need:
            got = f"{len(body) - need} more"
            raise blob.fault(
                f"{need} bytes of points, as its header says", got, "correct the header"
            )
        table = np.frombuffer(_exactly(blob, body[:need], need), dtype, count)
        points = {name: table[name] for name in dtype.names or ()}
    elif kind == "binary_compressed":
        points = _by_field(dtype, count, _unpacked(blob, body, dtype.itemsize * count))
    else:
        raise blob.fault("DATA ascii, binary or binary_compressed", show(end[1]), "export it again")
    points = {name: column for name, column in points.items() if not name.startswith(_PADDING)}
    notes += _colors(points, kind == "ascii")
    return Raw(blob, points, notes=tuple(notes), point_lines=lines, has_gaps=True)


def _header(blob: Blob, head: bytes) -> tuple[np.dtype, int, list[str]]:
    """The type of a point, their number, and notes on what else a header says."""
    lines = (
        line.split()
        for line in head.decode("utf-8", "backslashreplace").splitlines()
        if line.strip() and line.strip()[0] != "#"
    )
    fields_by_word = {line[0]: line[1:] for line in lines}
    try:
        fields, sizes, kinds = (fields_by_word[word] for word in _WORDS[:3])
        counts = [int(number) for number in fields_by_word.get("COUNT", ["1"] * len(fields))]
        types = [f"<{_KINDS[kind]}{int(size)}" for kind, size in zip(kinds, sizes, strict=True)]
        width = int(fields_by_word["WIDTH"][0])
        height = int(fields_by_word["HEIGHT"][0])
        num = int(fields_by_word["POINTS"][0])
        if width * height != num or num < 0 or min(counts) < 1 or max(counts) > 1 << 16:
            raise ValueError(f"WIDTH {width}, HEIGHT {height}, POINTS {num}, COUNT {counts[:9]}")
        named = [name if name != "_" else f"{_PADDING}{place}" for place, name in enumerate(fields)]
        spec = [
            (name, kind, (k,) if k > 1 else ())
            for name, kind, k in zip(named, types, counts, strict=True)
        ]
        notes = []
        viewpoint = fields_by_word.get("VIEWPOINT", _STANDING)
        if [float(number) for number in viewpoint] != [float(number) for number in _STANDING]:
            notes.append(f"VIEWPOINT {' '.join(viewpoint)} left out: points are not moved by it")
        if height > 1:
            notes.append(f"an image of {height} rows of {width} points, which are in one row here")
        return np.dtype(spec), num, notes
    except (KeyError, ValueError, TypeError, IndexError) as error:
        got = f"{type(error).__name__}: {str(error)[:200]}"
        raise blob.fault(
            f"the lines {', '.join(_WORDS)} that fit", got, "export it again"
        ) from None


def _exactly(blob: Blob, body: bytes, need: int) -> bytes:
    if len(body) != need:
        raise blob.fault(
            f"{need} bytes of points, as its header says", f"{len(body)}", "get the whole file"
        )
    return body


def _ascii(
    blob: Blob, start: int, dtype: np.dtype, count: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    table = rows(blob, b" " * start + blob.data[start:], nonfinite=True)
    if len(table.ptr) - 1 != count:
        raise blob.fault(
            f"{count} lines of points, as its header says",
            f"{len(table.ptr) - 1}",
            "get the whole file",
        )
    shapes = [dtype[name].shape for name in dtype.names or ()]
    want = sum(int(np.prod(shape)) for shape in shapes)
    table.refuse(table.width != want, blob, f"{want} numbers, as its FIELDS", "complete it")
    values = table.value.reshape(count, want)
    column = 0
    out = {}
    for name, shape in zip(dtype.names or (), shapes, strict=True):
        size = int(np.prod(shape))
        part = values[:, column : column + size].reshape(count, *shape)
        at = table.start.reshape(count, want)[:, column : column + size].reshape(count, *shape)
        if name in _PACKED and dtype[name].kind == "f" and _is_whole(part):
            out[name] = part  # unrounded
        else:
            out[name] = typed(blob, name, part, dtype[name].base, at)
        column += size
    return out, table.start[table.ptr[:-1]]


def _is_whole(values: np.ndarray) -> bool:
    """True for colours as whole numbers: as the bits of a float, one is below 2.4e-38, or negative,
    or not finite.
    """
    are_whole = (values == np.rint(values)) & (values >= 0) & (values < 2**32)
    return bool(are_whole.all() and (values > 1).any())


def _by_field(dtype: np.dtype, count: int, data: bytes) -> dict[str, np.ndarray]:
    """Columns that stand one behind the other."""
    out = {}
    start = 0
    for name in dtype.names or ():
        kind = dtype[name]
        out[name] = np.frombuffer(data, kind.base, count * int(np.prod(kind.shape)), start).reshape(
            count, *kind.shape
        )
        start += kind.itemsize * count
    return out


def _unpacked(blob: Blob, body: bytes, need: int) -> bytes:
    """LZF: a byte below 32 is a number of literal bytes, any other a reference to earlier ones."""
    packed, size = (int.from_bytes(body[at : at + 4], "little") for at in (0, 4))
    if len(body) < 8 or packed > len(body) - 8 or size != need or need > 256 * packed:
        got = f"{len(body) - 8} bytes, which say {packed} for {size}"
        raise blob.fault(
            f"8 bytes of sizes, then points of {need} bytes", got, "get the whole file"
        )
    data = body[8 : 8 + packed]
    out = bytearray()
    at = 0
    try:
        while at < packed and len(out) <= need:
            head = data[at]
            at += 1
            if head < 32:
                out += data[at : at + head + 1]
                at += head + 1
                continue
            length = head >> 5
            if length == 7:
                length += data[at]
                at += 1
            back = len(out) - ((head & 31) << 8) - data[at] - 1
            at += 1
            if back < 0:
                break
            piece = out[back : back + length + 2]
            out += (piece * ((length + 2) // len(piece) + 1))[: length + 2]
    except IndexError:
        pass
    return _exactly(blob, bytes(out), need)


def _colors(points: dict[str, np.ndarray], is_text: bool) -> list[str]:
    """Put red, green and blue in the place of the numbers that hold all three; notes."""
    notes = []
    for name in _PACKED:
        values = points.get(name, np.zeros(0))
        if values.ndim != 1 or not len(values):
            continue
        if values.dtype.kind == "f" and _is_whole(values):
            values = values.astype("<u4")
            notes.append(f"{name} is of type F and has whole numbers: read as these")
        elif values.itemsize != 4:
            continue
        del points[name]
        lost = np.isnan(values)
        if is_text and lost.any():
            values = np.where(lost, np.float32(0), values)
            notes.append(
                f"{lost.sum():,} of {name} are the text nan, in which no colour is left: 0"
            )
        packed = np.ascontiguousarray(values).view("<u4")
        for place, color in enumerate(("blue", "green", "red", "alpha")[: len(name)]):
            points[color] = (packed >> np.uint32(8 * place)).astype(np.uint8)
    return notes


@writes(".pcd", widths=range(2, 4))
def write_pcd(file: BinaryIO, parts: Parts) -> None:
    """Binary, one field for each column; colours of bytes as ``rgb``."""
    parts.holds("...", faces=())
    columns = {
        name: parts.fit(name, column, NUMBERS)
        for name, column in parts.columns(parts.points, "", _PACKED).items()
    }
    channels = [columns.get(name) for name in ("red", "green", "blue")]
    if all(channel is not None and channel.dtype == np.uint8 for channel in channels):
        red, green, blue = (columns.pop(name).astype("<u4") for name in ("red", "green", "blue"))
        columns["rgb"] = (red << 16 | green << 8 | blue).view("<f4")
    named = {_NAMES.get(name, name): column for name, column in columns.items()}
    table = np.empty(
        len(parts.pos), [(n, c.dtype.newbyteorder("<"), c.shape[1:]) for n, c in named.items()]
    )
    for name, column in named.items():
        table[name] = column
    kinds = [
        (column.dtype.itemsize, column.dtype.kind.upper(), column[0].size)
        for column in named.values()
    ]
    size, kind, count = (" ".join(map(str, column)) for column in zip(*kinds, strict=True))
    num = len(table)
    head = (
        f"# .PCD v0.7\nVERSION 0.7\nFIELDS {' '.join(named)}\nSIZE {size}\nTYPE {kind}\nCOUNT "
        f"{count}\n"
    )
    head += f"WIDTH {num}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {num}\nDATA binary\n"
    file.write(head.encode() + table.tobytes())
