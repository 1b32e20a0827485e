"""Units of length: what a file of atoms or of a survey shows of them, and what looks wrong."""

import re
from collections import defaultdict

import numpy as np

from .raw import Raw

_SHORTEST = 0.4  # angstrom, of atoms that are bonded: 0.74 in hydrogen, less only in a collision
_LONGEST = 25.0  # angstrom between neighbours
_OTHER = 1.7  # times the distance in other frames of the same atoms: 1.89 bohr are one angstrom
_ATOMS = 4  # a frame of fewer may be a curve of dissociation
_FRAMES = 3  # of the same atoms, to compare one with


def doubts_of_atoms(frames: list[Raw]) -> list[str]:
    """For each frame what looks wrong with its unit of length, which is angstrom; or ""."""
    spacings = [_spacing(frame) for frame in frames]
    alike = defaultdict(list)
    for frame, spacing in zip(frames, spacings, strict=True):
        alike[_atoms(frame)].append(spacing)
    doubts = []
    for number, (frame, spacing) in enumerate(zip(frames, spacings, strict=True)):
        where = f"atoms of frame {number} lie {spacing:.3g} from the nearest one"
        usual = 0.0
        if len(alike[_atoms(frame)]) > _FRAMES:
            usual = float(np.median(alike[_atoms(frame)]))
        doubt = ""
        if 0 < spacing < _SHORTEST:
            doubt = f"{where}: are they in nanometres? Extended XYZ has angstrom"
        elif spacing > _LONGEST:
            doubt = f"{where}: are they in picometres? Extended XYZ has angstrom"
        elif usual and spacing and not 1 / _OTHER < spacing / usual < _OTHER:
            doubt = f"{where}, those of other frames {usual:.3g}: are they in bohr? Or in angstrom?"
        doubts.append(doubt)
    return doubts


def _atoms(frame: Raw) -> tuple[int, ...]:
    return tuple(np.sort(frame.points.get("z", np.zeros(0, np.int64)).ravel()).tolist())


def _spacing(frame: Raw) -> float:
    """The median distance of an atom to the nearest one; 0 where it says nothing.

    An image of the atom in a cell that repeats is one, too: a vector of the cell.
    """
    from scipy.spatial import cKDTree  # slow to import

    pos = np.asarray(frame.points["pos"], np.float64)
    if len(pos) < _ATOMS or not np.isfinite(pos).all():
        return 0.0
    nearest = cKDTree(pos).query(pos, 2)[0][:, 1]
    cell = frame.others.get("cell")
    if cell is not None:
        periodic = np.broadcast_to(frame.others.get("pbc", True), (3,))
        sides = np.linalg.norm(cell, axis=1)[periodic]
        nearest = np.minimum(nearest, sides.min(initial=np.inf))
    return float(np.median(nearest))


_CODES = {9001: "metres", 9002: "feet", 9003: "US survey feet"}  # of EPSG
_NAMES = {
    "metre": "metres",
    "meter": "metres",
    "foot": "feet",
    "international foot": "feet",
    "us survey foot": "US survey feet",
    "foot_us": "US survey feet",
}
_UNIT = re.compile(r'(?:LENGTHUNIT|UNIT)\s*\[\s*"([^"]+)"')
_DEGREES = "degrees"


def units_of_keys(keys: dict[int, int]) -> tuple[str, str]:
    """The units of x and y, and of z, of the short keys of GeoTIFF; "" where they do not say."""
    across = _CODES.get(keys.get(3076, 0), "")
    if keys.get(1024) == 2:  # geographic
        across = _DEGREES
    return across, _CODES.get(keys.get(4099, 0), "")


def units_of_text(wkt: str) -> tuple[str, str]:
    """The unit of well-known text, whose last one in a part is that of its axes."""
    across = _last_unit(wkt, ("PROJCS", "PROJCRS", "PROJECTEDCRS"))
    if not across and re.match(r"\s*(?:COMPD_?CS|COMPOUNDCRS)?.*?\bGEOG(?:CS|CRS)\s*\[", wkt, re.S):
        across = _DEGREES
    return across, _last_unit(wkt, ("VERT_CS", "VERTCRS", "VERTICALCRS"))


def _last_unit(wkt: str, parts: tuple[str, ...]) -> str:
    match = re.search(rf"\b(?:{'|'.join(parts)})\s*\[", wkt)
    if match is None:
        return ""
    depth = 1
    end = match.end()
    while end < len(wkt) and depth:
        depth += (wkt[end] == "[") - (wkt[end] == "]")
        end += 1
    names = _UNIT.findall(wkt[match.end() : end])
    if not names:
        return ""
    return _NAMES.get(names[-1].lower().replace("u.s.", "us"), names[-1])


def said_of_survey(across: str, height: str) -> tuple[tuple[str, ...], str]:
    """Notes on the units of a survey, and what looks wrong with them."""
    if across == _DEGREES:
        return (), (
            "x and y are in degrees, as the header says, and z is not: project them before a "
            "distance is taken"
        )
    if across and height and across != height:
        return (), f"x and y are in {across} and z in {height}, as the header says: scale one"
    if across and across != "metres":
        return (f"lengths are in {across}, as the header says",), ""
    return (), ""
