"""A shape from a file."""

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...arguments import whole
from ...convert.saving import is_saved_graph, load_graph
from ...errors import LoaderError, warn
from ...io.reading import MAX_BYTES, PathLike, fault, file_name, read, suffix
from ..series import load_trajectory
from ..shape import Shape
from ..weather import ENDINGS as WEATHER
from .corners import OF_CORNERS, welded
from .curves.lines import with_edges
from .extxyz import frames
from .foreign import FOREIGN
from .polygons import corners_of, fan, unfolded, without_lines
from .raw import READERS, Raw
from .text import ENDINGS as TEXT
from .words import narrow, worded

# by PyG, for other things than properties of points
_TAKEN = (
    "batch",
    "ptr",
    "num_nodes",
    "face",
    "edge_index",
)

_SERIES = (".pvd", *WEATHER)
_FLOATS = {
    "pos",
    "normal",
    "color",
    "uv",
    "alpha",
    "face_color",
    "face_alpha",
    "x",
    *OF_CORNERS.values(),
}


def load(
    path: PathLike,
    *,
    columns: str = "",
    weld: bool = False,
    allow_nonfinite: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Any:
    r"""Read a point cloud or a mesh as a ``Data`` of PyG, or a graph that :func:`save` wrote.

    Args:
        path: One of

            * .ply (ascii, binary of both orders): every property of every element;
            * .obj: the vertices of the file with ``uv`` and ``normal``; where these differ between
              the corners of a vertex, ``face_texcoord`` (F, 6) and ``face_corner_normal`` (F, 9)
              have them, ``normal`` the mean;
            * .swc (neurons and other trees), .geojson, .vtk, .vtp: curves, as are lines of .obj,
              edges of .ply, and .bvh: joints of a skeleton, frame by frame,
              and rows of a text with a column ``order`` (``curve`` and ``closed`` beside it);
            * .off (also COFF, NOFF, STOFF), .stl (ascii, binary; corners at one place are merged);
            * .glb, .gltf (``pip install 'graphattn[mesh]'``): all meshes of the scene joined;
            * .pcd (ascii, binary, compressed), .las, .laz (``pip install 'graphattn[las]'``);
            * .xyz, .pts, .txt, .csv, .asc: a point on each line, names of columns on the first;
            * .extxyz, and .xyz of atoms: extended XYZ of one frame (:func:`load_frames` for more),
              .cif (``pip install 'graphattn[crystal]'``): ``z`` (N,), atomic numbers, ``cell`` (3,
              3), ``pbc`` (3,), and what else the file has under ASE's names;
            * .npz with ``pos``, ``face``, ... under their names, .npy of shape (N, d);
            * .pvd, .nc, .zarr: a :class:`~graphattn.shapes.Trajectory`;
            * .json, .safetensors: a graph, pattern, graphs of heads, relations or list of layers.
        columns: Names of the columns of a text file that has none: ``"x y z nx ny nz label"``.
        weld: Join vertices at one place, of files that are cut along seams: .glb, some .ply. What
            differs between them is kept by corner, as of an .obj, or, of other properties, from the
            first of them; notes say so.
        allow_nonfinite: Accept NaN and infinite coordinates, and keep those of .pcd and .xyz, which
            are left out by default: a depth camera has seen nothing there.
        max_bytes: Refuse larger files.

    Returns:
        A :class:`~graphattn.shapes.Shape`, which is a ``Data``: ``pos`` (N, 3) in the units of the
        file, or (N, 2) of columns x, y alone, ``face`` (3, F) int64, polygons cut into fans of
        triangles; where the file has them
        ``normal`` (N, 3), ``color`` (N, 3) from 0 to 1, ``uv`` (N, 2) from the lower left, ``y``
        (N,) of a property ``label``; every other property under its own name, those of faces as
        ``face_...`` (texture coordinates of corners are cut like the polygons); columns without
        names are ``x``. Of a file without faces, lines are ``edge_index`` (2, E), each in both
        directions. Colours of LAS without a value above 255 are of 8 bits; its ``intensity`` and
        ``nir`` are as the file has them (:class:`~graphattn.shapes.ShapeFolder` compares files).
        Numbers keep the type of the file; those of a text are float32 (float64 where they lie
        further from 0 than 16 times their extent) and, if all of a column are, int64.
        ``shape.notes`` says what was merged or cut, ``shape.file`` is the file's name,
        ``shape.unit`` what the header of LAS says of lengths. What looks wrong is warned of: atoms
        nearer or farther than in angstrom, degrees, heights in other units, points of a curve that
        are repeated.

    Raises:
        LoaderError: If the file is not whole and right: the file, the line or the vertex or face,
            what was expected.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "square.off"
        >>> _ = path.write_text("COFF\n4 1 0\n0 0 0 255 0 0\n1 0 0 0 255 0\n1 1 0 0 0 255\n0 1 0 0 0 0\n4 0 1 2 3\n")
        >>> square = load(path)
        >>> square
        Shape(pos=[4, 3], face=[3, 2], color=[4, 3])
        >>> square.notes
        ('1 polygons cut into 2 triangles',)
    """
    is_series = os.path.splitext(file_name(path).rstrip("/"))[1].lower() in _SERIES
    if not is_series and os.path.isdir(path):
        raise fault(
            file_name(path),
            "a file",
            "a directory",
            "the path of a file in it, graphattn.shapes.ShapeFolder(folder) for all of them, or"
            " graphattn train FOLDER --out RUN to learn from them",
        )
    if is_series or is_saved_graph(path):
        if any((columns, allow_nonfinite, weld)):
            raise LoaderError(
                f"{file_name(path)}: expected no option but max_bytes. Try: others are of shapes."
            )
        if is_series:
            return load_trajectory(path, max_bytes=max_bytes)
        return load_graph(path, max_bytes=max_bytes)
    raw = read_raw(path, columns=columns, allow_nonfinite=allow_nonfinite, max_bytes=max_bytes)
    if weld:
        raw = welded(raw)
    warn_of([(file_name(path), raw.doubt)], "files")
    return shape_of(raw, path)


def load_frames(
    path: PathLike, *, allow_nonfinite: bool = False, max_bytes: int = MAX_BYTES
) -> list[Shape]:
    """Every frame of an extended XYZ file: a trajectory, or a data set of structures.

    Args:
        path: A .extxyz or .xyz file.
        allow_nonfinite: Accept NaN and infinite coordinates.
        max_bytes: Refuse larger files.

    Returns:
        A :class:`~graphattn.shapes.Shape` for each frame: ``pos`` (N, 3), ``z`` (N,) atomic
        numbers, ``cell`` (3, 3) with lattice vectors as rows, ``pbc`` (3,), and properties under
        the file's names: ``forces`` (N, 3), ``energy`` (1,), ... Real numbers are float64; units
        are those of the file, for ASE angstrom and eV.

    Raises:
        LoaderError: If the file is not whole and right.

    Example:
        >>> import pathlib, tempfile, torch
        >>> from graphattn.shapes import Shape, save_frames
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.extxyz"
        >>> atoms = Shape(pos=torch.rand(2, 3), z=torch.tensor([14, 14]), cell=3 * torch.eye(3))
        >>> save_frames([atoms, atoms], path)
        >>> load_frames(path)[1]
        Shape(pos=[2, 3], z=[2], cell=[3, 3], pbc=[3])
    """
    suffix(path, (".extxyz", ".xyz"), "load_frames")
    blob = read(path, max_bytes)
    raws = [_checked(raw, allow_nonfinite) for raw in frames(blob)]
    warn_of([(file_name(path), raw.doubt) for raw in raws], "frames")
    return [shape_of(raw, path) for raw in raws]


def warn_of(doubts: list[tuple[str, str]], noun: str) -> None:
    """Warn in one line of the first doubt, with its file, and of how many files have one."""
    lines = [f"{file}: {doubt}" for file, doubt in doubts if doubt]
    if not lines:
        return
    more = ""
    if len(lines) > 1:
        more = f" ({len(lines):,} of {len(doubts):,} {noun})"
    warn(f"{lines[0]}{more}")


def shape_of(raw: Raw, path: PathLike) -> Shape:
    """The shape of a file's contents."""
    points = dict(raw.points)
    size = np.diff(raw.ptr)
    if raw.text:
        points = {name: _narrow(name, values) for name, values in points.items()}
    tensors = {"pos": tensor(points.pop("pos"))}
    raw, folded = unfolded(raw, raw.points["pos"])
    faces = fan(raw.ptr, raw.corner)
    notes = raw.notes
    if folded:
        notes = (*notes, f"{folded:,} polygons are not convex: their triangles fold")
    if raw.doubt:
        notes = (*notes, raw.doubt)
    if len(raw.corner):
        tensors["face"] = tensor(faces.T)
    if (size > 3).any():
        repeat = np.repeat(np.arange(len(size)), size - 2)
        raw = replace(raw, faces={name: values[repeat] for name, values in raw.faces.items()})
        notes = (
            *notes,
            f"{(size > 3).sum():,} polygons cut into {(size[size > 3] - 2).sum():,} triangles",
        )
    at = fan(raw.ptr, np.arange(len(raw.corner)))
    raw = replace(
        raw,
        faces=raw.faces
        | {name: values[at].reshape(len(at), -1) for name, values in raw.corners.items()},
    )
    if raw.text:
        raw = replace(
            raw, faces={name: _narrow(name, values) for name, values in raw.faces.items()}
        )
    named = {name: tensor(values) for name, values in {**points, **raw.faces, **raw.others}.items()}
    name = os.path.basename(file_name(path))
    return Shape(
        tensors | named,
        notes=notes,
        columns=tuple(name for name in named if name != "edge_index"),
        file=name,
        dropped=raw.dropped,
        doubt=raw.doubt,
        depths=raw.depths,
        unit=raw.unit,
    )


def read_raw(
    path: PathLike, *, columns: str = "", allow_nonfinite: bool = False, max_bytes: int = MAX_BYTES
) -> Raw:
    """The contents of a file under a shape's words, checked; numbers and polygons unchanged."""
    whole(max_bytes, "max_bytes", error=LoaderError)
    kind = suffix(path, tuple(READERS), "load", FOREIGN)
    named: dict[str, Any] = {}
    if columns and kind in TEXT:
        named = {"columns": columns}
    if columns and kind not in TEXT:
        raise fault("columns", "a text file", kind, "columns='', the file names its own")
    return _checked(READERS[kind](path, allow_nonfinite, max_bytes, **named), allow_nonfinite)


def _checked(raw: Raw, allow_nonfinite: bool) -> Raw:
    """The contents under the words of a shape, if they are right."""
    faces = {
        f"face_{name}": values
        for name, values in worded({n[5:]: v for n, v in raw.faces.items()}).items()
    }
    raw = replace(raw, points=worded(raw.points), faces=faces)
    edges = raw.others.get("edge_index", np.zeros(0))
    reserved = set(_TAKEN)
    if edges.ndim == 2 and len(edges) == 2 and edges.dtype.kind in "iu":
        reserved.discard("edge_index")
    names = Counter((*raw.points, *raw.faces, *raw.others, *raw.corners))
    taken = [name for name, count in names.items() if count > 1 or name in reserved]
    if taken:
        raise raw.blob.fault(
            "properties under names of their own, and none of PyG's",
            taken[0],
            "rename it in the file",
        )
    if "pos" not in raw.points:
        got = ", ".join(raw.points)[:200] or "none"
        raise raw.blob.fault("columns x, y and z", got, "export it with positions")
    if raw.has_gaps and not allow_nonfinite:
        raw = _without_gaps(raw)
    pos = raw.points["pos"]
    if pos.ndim != 2:
        raise raw.blob.fault(
            "x, y and z, or pos of as many numbers", f"pos of shape {pos.shape}", "rename pos"
        )
    raw = replace(raw, corner=corners_of(raw, pos, allow_nonfinite))
    if raw.has_lines and len(raw.corner):
        raw = without_lines(raw)
    if not len(raw.corner):
        raw = with_edges(raw)
    return raw


def _without_gaps(raw: Raw) -> Raw:
    """A cloud without the points that are not finite: a depth camera has seen nothing there."""
    pos = raw.points["pos"].reshape(len(raw.points["pos"]), -1)
    finite = np.isfinite(pos).all(1)
    dropped = int((~finite).sum())
    if dropped in (0, len(pos)):
        return raw  # whose first point is refused, if none is finite
    note = (
        f"{dropped:,} of {len(pos):,} points left out, which are not finite "
        "(load(..., allow_nonfinite=True) keeps them)"
    )
    if raw.point_lines is None:
        lines = None
    else:
        lines = raw.point_lines[finite]
    points = {name: values[finite] for name, values in raw.points.items()}
    return replace(raw, points=points, point_lines=lines, notes=(*raw.notes, note), dropped=dropped)


def _narrow(name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind != "f":
        return values
    return narrow(values, allow_int=name not in _FLOATS)


def tensor(values: np.ndarray) -> torch.Tensor:
    """A tensor of the numbers in the order of bytes of this machine, in memory that may be written."""
    native = np.require(
        values, values.dtype.newbyteorder("="), ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"]
    )
    if any(stride % native.itemsize for stride in native.strides):
        native = native.copy()  # a single row of a table counts as contiguous, whatever its stride
    return torch.from_numpy(native)
