"""GeoJSON: lines and outlines of a map, RFC 7946."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ....io.numbers import clean
from ....io.reading import Blob, PathLike, read
from ..raw import Contents, Raw, reads
from .lines import ENDS, along

#: By type of a geometry, the depth of its lists of positions, and whether they end where they began.
_TYPES = {
    "Point": (0, False),
    "MultiPoint": (0, False),
    "LineString": (1, False),
    "MultiLineString": (2, False),
    "Polygon": (2, True),
    "MultiPolygon": (3, True),
}

_DEGREES = (180, 90)
_STRETCH = 1.1  # a degree of latitude by one of longitude: at 25 degrees
#: Of several geometries, the key that lists them.
_PARTS = {"FeatureCollection": "features", "GeometryCollection": "geometries"}


@reads(
    ".geojson",
    contents=Contents(
        read="lines and rings of polygons as edges, points; heights; `curve`, the number of each",
        noted="degrees, which positions are by the format, with a warning where x is stretched or "
        "they are none; properties of features",
        refused="other types, positions of other than 2 or 3 numbers, rings that are open",
    ),
)
def read_geojson(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """The positions of all geometries, and lines along them."""
    blob = clean(read(path, max_bytes))
    try:
        contents = json.loads(blob.data)
    except (ValueError, RecursionError) as error:
        raise blob.fault("JSON", str(error), "check how it was written") from None
    curves: list[np.ndarray] = []
    lines: list[np.ndarray] = []
    size = 0
    for part, kind, positions in _curves(blob, contents):
        place = _positions(part, positions)
        is_ring = _TYPES[kind][1]
        if is_ring and (len(place) < 4 or (place[0] != place[-1]).any()):
            raise part.fault(
                "a ring of 4 positions or more that ends where it began",
                f"{len(place)} from {place[0].tolist()} to {place[-1].tolist()}",
                "write it as a LineString",
            )
        if is_ring:
            place = place[:-1]
        curves.append(place)
        if _TYPES[kind][0]:
            lines.append(size + along(np.array([0, len(place)]), is_ring))
        size += len(place)
    if not curves:
        raise blob.fault("features with a geometry", "none", "check how it was written")
    ends = np.concatenate([np.zeros((0, 2), np.int64), *lines]).T
    number = np.repeat(np.arange(len(curves)), [len(place) for place in curves])
    points = {"pos": np.concatenate(curves), "curve": number}
    degrees = np.abs(points["pos"][:, :2])
    stretch = 1 / np.cos(np.radians(degrees[:, 1].mean()))
    notes = ["x, y are longitude and latitude in degrees, as the format has them"]
    doubt = ""
    if (degrees > _DEGREES).any():
        notes = []
        doubt = (
            "x, y are beyond 180, 90, and so not in degrees of WGS 84, as the format has them (RFC "
            "7946): are they metres?"
        )
    elif stretch > _STRETCH:
        doubt = (
            f"x, y are in degrees, of which those of x are {stretch:.2g} times shorter here: "
            "project them before a distance is taken."
        )
    if _has_properties(contents):
        notes.append("properties of features left out")
    others = dict(zip(ENDS, ends, strict=True))
    return Raw(blob, points, others=others, notes=tuple(notes), doubt=doubt, text=True)


def _curves(blob: Blob, item: Any) -> Iterator[tuple[Blob, str, list[Any]]]:
    """The type and the positions of each line, ring or set of points, behind the file for errors,
    which name the feature.
    """
    kind = None
    if isinstance(item, dict):
        kind = item.get("type")
    if kind in _PARTS:
        key = _PARTS[kind]
        for number, part in enumerate(_listed(blob, item, key)):
            yield from _curves(replace(blob, path=f"{blob.path}, {key}[{number}]"), part)
    elif kind == "Feature":
        if item.get("geometry") is not None:
            yield from _curves(blob, item["geometry"])
    elif kind in _TYPES:
        lists = [_listed(blob, item, "coordinates")]
        if kind == "Point":
            lists = [lists]
        for _ in range(_TYPES[kind][0] - 1):
            lists = [inner for outer in lists for inner in outer]
        yield from ((blob, kind, positions) for positions in lists if positions)
    else:
        raise blob.fault(
            f"a type of {', '.join(_TYPES)}, or features", str(kind), "check how it was written"
        )


def _listed(blob: Blob, item: dict[str, Any], key: str) -> list[Any]:
    """A list of an object."""
    if not isinstance(item.get(key), list):
        raise blob.fault(f"{item['type']} with {key}", "none", "check how it was written")
    return list(item[key])


def _positions(blob: Blob, positions: list[Any]) -> np.ndarray:
    """Positions (N, 3), with heights of 0 where there are none."""
    try:
        place = np.array(positions, np.float64)
    except (TypeError, ValueError):
        place = np.zeros(0)
    if place.ndim != 2 or place.shape[1] not in (2, 3):
        raise blob.fault(
            "positions of 2 or 3 numbers, alike along a line",
            str(positions)[:80],
            "check how it was written",
        )
    return np.pad(place, ((0, 0), (0, 3 - place.shape[1])))


def _has_properties(contents: dict[str, Any]) -> bool:
    features = contents.get("features", [contents])
    return any(feature.get("properties") for feature in features)
