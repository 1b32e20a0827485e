"""LAS and LAZ, by laspy: every dimension under its name, coordinates in float64."""

import io
import os
from typing import Any, BinaryIO

import numpy as np

from ...errors import LoaderError, need_extra
from ...io.reading import Blob, PathLike, read
from ...io.writing import replace_file
from ..depths import DEPTHS, fewest
from .lengths import said_of_survey, units_of_keys, units_of_text
from .parts import NUMBERS, Parts
from .raw import Contents, Raw, reads, writes

_COORDINATES = ("X", "Y", "Z")
_COLOURS = ("red", "green", "blue")


@reads(
    ".las",
    ".laz",
    contents=Contents(
        read=(
            "coordinates by scale and offset, every dimension (`scan_angle` in its own steps), "
            "extra dimensions scaled"
        ),
        noted=(
            "withheld points, values that stand for no data, waveforms, colours of 8 bits, units "
            "of length"
        ),
        refused="points of another number than the header has, LASzip 1 without chunks",
    ),
)
def read_las(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """Coordinates scaled as the header says; colours of 16 bits, or of 8 where none needs more."""
    try:
        import laspy
    except ImportError:
        raise need_extra("laspy", "las") from None
    blob = read(path, max_bytes)
    _records(blob)
    try:
        with laspy.open(io.BytesIO(blob.data), closefd=False) as reader:
            need = reader.header.point_count * reader.header.point_format.size
            _plausible(blob, need, bool(reader.header.are_points_compressed))
            if reader.header.are_points_compressed:
                # points of LASzip 1 without chunks, which no decompressor of Python reads
                for record in reader.header.vlrs.get("LasZipVlr"):
                    if record.record_data[:2] == b"\1\0":
                        fix = "laszip -i old.laz -o new.laz, or pdal translate"
                        raise blob.fault(
                            "LAZ in chunks", "the pointwise form of LASzip before 2011", fix
                        )
                _chunks(blob, reader.header.offset_to_point_data, reader.header.point_count)
            if need > max_bytes:
                raise blob.fault(
                    f"points of at most {max_bytes} bytes",
                    f"{need}",
                    "max_bytes=..., if it is meant",
                )
            count = reader.header.point_count
            las = reader.read()
            across, height = _units([*(reader.header.vlrs or ()), *(reader.evlrs or ())])
        names = [name for name in las.point_format.dimension_names if name not in _COORDINATES]
        points = {name: np.array(las[name]) for name in names}
    except BaseException as error:  # a panic of the decompressor is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | LoaderError):
            raise
        raise blob.fault(
            "a LAS file", f"{type(error).__name__}: {str(error)[:200]}", "get the whole file"
        ) from None
    if len(las.points) != count:
        raise blob.fault(
            f"{count} points, as its header says", f"{len(las.points)}", "get the whole file"
        )
    # a dimension that a user added may have the same name as a property of the format
    depths = {
        name: fewest(_largest(points, name), name)
        for name in DEPTHS
        if all(column in points and points[column].dtype == np.uint16 for column in _columns(name))
    }
    notes = tuple(_flags(points) + _no_data(las))
    if depths.get("color") == 8:
        points |= {name: points[name].astype(np.uint8) for name in _COLOURS}
        if _largest(points, "color"):
            notes = (*notes, "colours are of 8 bits: none is above 255")
    of_units, doubt = said_of_survey(across, height)
    return Raw(
        blob,
        {"pos": np.asarray(las.xyz), **points},
        notes=(*notes, *of_units),
        doubt=doubt,
        unit=across,
        depths=depths,
    )


def _flags(points: dict[str, np.ndarray]) -> list[str]:
    """Notes on points that are as good as deleted, and on what lies in other records."""
    notes = []
    withheld = int(np.count_nonzero(points.get("withheld", 0)))
    if withheld:
        notes.append(f"{withheld:,} points are withheld, which stands for deleted: withheld")
    if "wavepacket_index" in points:
        notes.append("left out: waveforms, to which the wavepacket_... of points refer")
    return notes


def _no_data(las: Any) -> list[str]:
    """Notes on numbers that stand for none, which extra dimensions name."""
    notes = []
    for record in las.header.vlrs.get("ExtraBytesVlr"):
        for dimension in record.extra_bytes_structs:
            name = dimension.format_name()
            if dimension.no_data is None:
                continue
            values = np.asarray(las[name], np.float64)
            none = dimension.no_data
            if dimension.scale is not None:
                none = none * dimension.scale
            if dimension.offset is not None:
                none = none + dimension.offset
            count = int(np.isclose(values, none, rtol=0, atol=1e-12).sum())
            if count:
                notes.append(f"{count:,} of {name} are {none[0]:g}, which stands for no data")
    return notes


def _units(records: list[Any]) -> tuple[str, str]:
    """The units of x and y, and of z, that records of a header say: well-known text, else keys."""
    texts = [record.string for record in records if hasattr(record, "string")]
    for text in texts:
        units = units_of_text(str(text))
        if any(units):
            return units
    keys = {
        key.id: key.value_offset
        for record in records
        for key in getattr(record, "geo_keys", ())
        if key.tiff_tag_location == 0  # the value itself
    }
    return units_of_keys(keys)


def _columns(name: str) -> tuple[str, ...]:
    """The dimensions of LAS that a property is made of."""
    if name == "color":
        return _COLOURS
    return (name,)


def _largest(points: dict[str, np.ndarray], name: str) -> int:
    """The largest number of a property."""
    return max(int(points[column].max(initial=0)) for column in _columns(name))


def _records(blob: Blob) -> None:
    """Refuse more records around the points than there are bytes, which laspy would all read."""
    head = blob.data[:375]
    before, behind = (int.from_bytes(head[at : at + 4], "little") for at in (100, 243))
    if (
        head[:4] != b"LASF"
        or 54 * before > len(blob.data)
        or (head[25:26] > b"\3" and 60 * behind > len(blob.data))
    ):
        if head[:4] == b"LASF":
            got = f"{before} and {behind}"
        else:
            got = "none"
        raise blob.fault("LASF, and records that fit into the file", got, "get the whole file")


def _chunks(blob: Blob, start: int, points: int) -> None:
    """Refuse more chunks than points, whose table would exhaust the decompressor's memory."""
    data = blob.data
    at = int.from_bytes(data[start : start + 8], "little", signed=True)
    if at == -1:
        at = int.from_bytes(data[-8:], "little", signed=True)
    if 0 <= at <= len(data) - 8:
        chunks = int.from_bytes(data[at + 4 : at + 8], "little")
    else:
        chunks = 1 << 32
    if chunks > points + 1:
        raise blob.fault(f"a table of at most {points} chunks", f"{chunks}", "get the whole file")


def _plausible(blob: Blob, need: int, packed: bool) -> None:
    """Raise for a header of more points than its bytes can hold."""
    if packed:
        most = 256 * len(blob.data)
    else:
        most = len(blob.data)
    if need > most:
        got = f"{len(blob.data):,} in all"
        raise blob.fault(f"{need:,} bytes of points, as its header says", got, "get the whole file")


def add_fields(source: PathLike, target: PathLike, fields: dict[str, np.ndarray]) -> None:
    """Write a copy of a file with more dimensions, (N,) each, replacing those of the same names."""
    import laspy

    las = laspy.read(os.fspath(source))
    for name, values in fields.items():
        if name in las.point_format.extra_dimension_names:
            las.remove_extra_dim(name)
        las.add_extra_dim(laspy.ExtraBytesParams(name, values.dtype.str[1:]))
        las[name] = values
    buffer = io.BytesIO()
    las.write(buffer, do_compress=os.fspath(target).lower().endswith(".laz"))
    replace_file(target, lambda file: file.write(buffer.getvalue()))


@writes(".las", ".laz")
def write_las(file: BinaryIO, parts: Parts) -> None:
    """Coordinates as integers of a scale: 1 / 2**31 of the extent, rounded up to a power of ten."""
    try:
        import laspy
    except ImportError:
        raise need_extra("laspy", "las") from None
    parts.holds("...")
    columns = parts.columns(parts.narrow(3), "", _COORDINATES)
    pos = np.stack([columns.pop(axis).astype(np.float64) for axis in "xyz"], axis=1)
    point_format = 6
    if "red" in columns:
        point_format = 7
    header = laspy.LasHeader(point_format=point_format, version="1.4")
    header.offsets = np.floor(pos.min(0))
    extent = max(float((pos - header.offsets).max()), 1e-9)
    header.scales = np.full(3, 10.0 ** np.ceil(np.log10(extent / 2**31)))
    las = laspy.LasData(header)
    las.xyz = pos
    dimensions = set(las.point_format.dimension_names)
    for name in _COLOURS:
        if name in columns and columns[name].dtype == np.uint8:
            columns[name] = columns[name].astype(np.uint16) * 257  # k / 255 = 257 k / 65535
        elif name in columns and columns[name].dtype.kind == "f":
            parts.refuse("color in steps of 1 / 65535", f"{name} between them")
            columns[name] = np.rint(np.nan_to_num(columns[name]).clip(0, 1) * 65535).astype(
                np.uint16
            )
    brightest = max((int(columns[name].max()) for name in _COLOURS if name in columns), default=0)
    if 0 < brightest < 256:
        parts.refuse(
            "a colour above 1 / 257 in .las", f"{brightest} of 65535, which reads as 8 bits"
        )
    for name, values in columns.items():
        if name not in dimensions:
            kind = parts.fit(name, values, NUMBERS).dtype.str[1:]
            las.add_extra_dim(
                laspy.ExtraBytesParams(name, f"{values[0].size}{kind}" if values.ndim > 1 else kind)
            )
        las[name] = values
        if not np.array_equal(np.asarray(las[name]), values, equal_nan=values.dtype.kind == "f"):
            parts.refuse(f"{name} in the type of LAS", "numbers that it does not hold")
    buffer = io.BytesIO()
    las.write(buffer, do_compress=parts.path.lower().endswith(".laz"))
    file.write(buffer.getvalue())
