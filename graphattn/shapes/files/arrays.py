"""NPZ with the tensors of a shape under their names, and NPY with positions."""

import io
import zipfile
from typing import BinaryIO

import numpy as np

from ...io.arrays import open_archive, read_array, read_entries
from ...io.reading import Blob, PathLike, file_name, open_regular, read
from ..shape import LATTICE
from .parts import Parts
from .raw import Contents, Raw, reads, writes
from .words import worded

_POSITIONS = ("pos", "points", "xyz", "coord", "coords", "vertices", "positions")
_FACES = ("face", "faces", "triangles")


@reads(
    ".npz",
    contents=Contents(
        read=(
            "`pos` (also `points`, `xyz`, `coord`, `vertices`), `face` or `faces`, every array of"
            " numbers under its name"
        ),
        noted="",
        refused="objects, texts and complex numbers; faces of another shape than triangles",
    ),
)
def read_npz(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """Positions under a usual name, faces (3, F) or ``faces`` (F, 3), the rest under its names."""
    with open_regular(path, max_bytes) as file:
        blob = Blob(file_name(path), b"", 0)
        archive, names = open_archive(blob.path, file, max_bytes)
        if any(name.startswith("fields.") for name in names):
            fix = "graphattn.shapes.load_trajectory(path), or graphattn train --task simulate"
            raise blob.fault("a shape", "a trajectory", fix)
        arrays = worded(read_entries(blob.path, archive, names))
    where = next((name for name in _POSITIONS if name in arrays), "")
    pos = arrays.pop(where, np.zeros(0))
    if pos.ndim != 2 or pos.dtype.kind not in "fiu" or not pos.size:
        if where:
            got = f"shape {pos.shape} of {pos.dtype}"
        else:
            got = f"the arrays {names[:8]}"[:200]
        raise blob.fault(
            "an array pos of shape (N, 3)", got, "numpy.savez(path, pos=..., face=..., y=...)"
        )
    named = next((name for name in _FACES if name in arrays), "")
    face_array = arrays.pop(named, np.zeros((0, 3), np.int64))
    if named == "face":
        faces = face_array.T
    else:
        faces = face_array
    if not _is_triples(faces):
        shape = "(F, 3)"
        if named == "face":
            shape = "(3, F)"
        expected = f"{named} of integers, of shape {shape}"
        if _is_triples(faces.T):
            fix = f"{named}.T"
        else:
            fix = "save face as (3, F), faces as (F, 3)"
        raise blob.fault(expected, f"shape {face_array.shape} of {face_array.dtype}", fix)
    words = [name for name, array in arrays.items() if array.dtype.kind not in "biuf"]
    if words:
        raise blob.fault(
            "arrays of numbers", f"{words[0]} of {arrays[words[0]].dtype}", "leave it out"
        )
    points = {
        name: array
        for name, array in arrays.items()
        if array.shape[:1] == (len(pos),) and name not in ("edge_index", *LATTICE)
    }
    if len(pos) == 1 and "y" in points:
        del points["y"]  # of the shape
    rest = {name: array for name, array in arrays.items() if name not in points}
    return Raw(
        blob,
        {"pos": pos, **points},
        np.arange(0, faces.size + 1, 3),
        faces.reshape(-1),
        others=rest,
    )


@reads(
    ".npy",
    contents=Contents(
        read="columns 1 to 3",
        noted="further columns, which are `x`",
        refused="other types than floats",
    ),
)
def read_npy(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """Positions (N, d); of more than three columns the others are ``x``."""
    blob = read(path, max_bytes)
    array = read_array(blob)
    if array.dtype.kind != "f" or array.ndim != 2 or not array.size:
        note = ", which is empty"
        if array.size:
            note = ""
        got = f"shape {array.shape} of {array.dtype}{note}"
        raise blob.fault(
            "floats of shape (N, d)", got, "array.astype(numpy.float64), one row for each point"
        )
    points = {"pos": array[:, :3]}
    notes: tuple[str, ...] = ()
    if array.shape[1] > 3:
        points["x"] = array[:, 3:]
        notes = ("columns 4 and on have no names: x",)
    return Raw(blob, points, notes=notes)


def _is_triples(faces: np.ndarray) -> bool:
    """True for integers (F, 3)."""
    return faces.ndim == 2 and faces.shape[1] == 3 and faces.dtype.kind in "iu"


@writes(".npz", widths=range(1, 1 << 30))
def write_npz(file: BinaryIO, parts: Parts) -> None:
    """Every tensor as it is."""
    if parts.face is None:
        face = {}
    else:
        face = {"face": parts.face}
    arrays = {**parts.points, **face, **parts.faces, **parts.others, **parts.of_shape}
    names = [name for name in _FACES[1:] if name in arrays and not face]
    if names:
        parts.refuse("names that do not stand for faces", names[0], f"rename {names[0]}")
    with zipfile.ZipFile(file, "w") as archive:  # numpy.savez takes no array called "file"
        for name, values in arrays.items():
            entry = io.BytesIO()
            np.save(entry, values)
            archive.writestr(f"{name}.npy", entry.getbuffer())


@writes(".npy", widths=range(1, 4))
def write_npy(file: BinaryIO, parts: Parts) -> None:
    """Positions, then ``x``."""
    parts.holds("x")
    x = parts.points.get("x", np.zeros((len(parts.pos), 0), "f2"))
    if "x" in parts.points and (x.ndim != 2 or parts.pos.shape[1] < 3):
        parts.refuse(
            "x of shape (N, k) behind pos of shape (N, 3)",
            f"x of {x.shape} and pos of {parts.pos.shape}",
        )
        x = np.zeros((len(parts.pos), 0), "f2")
    np.save(file, np.concatenate([parts.pos, x], axis=1))
