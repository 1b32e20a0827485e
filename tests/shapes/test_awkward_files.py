"""Why six formats are parsed here: which of 24 awkward files of each format its library fails.

A library fails a file that it reads as something else, that it cannot read, or that it reads where
it is damaged, unless finite positions and numbers of vertices within range tell.
"""

import importlib
import io
import re

import meshio
import numpy as np
import plyfile
import pytest
import trimesh
from awkward_files import FILES

import graphattn as ga
from graphattn.errors import LoaderError

#: By ending: the module that reads it, and the names of the files that each library fails.
FAILED = {
    ".ply": (
        "ply.reader",
        {
            "plyfile": (
                "blank lines between rows; comments and obj_info; rows too many; bytes too many"
            )
        },
    ),
    ".obj": (
        "obj",
        {
            "trimesh": "tabs; a comment behind a face; indices from the end, vertices behind; a "
            "quadrangle and a "
            "triangle; texture and normals; points alone; index 0; texture 9 of 4; a face of two "
            "corners",
            "meshio": "a line goes on after a backslash; a comment behind a face; indices from "
            "the end; indices from "
            "the end, vertices behind; texture and normals; normals alone; seams; colours; a face "
            "of two corners",
        },
    ),
    ".off": (
        "off",
        {
            "trimesh": "comments between lines; a comment behind numbers; one quadrangle; colours "
            "of faces; COFF; "
            "NOFF; colours that the header does not name; no faces; a line too few; lines too "
            "many; four dimensions",
            "meshio": "comments between lines; a comment above the header; a comment behind "
            "numbers; counts beside "
            "the header; no number of edges; tabs; a pentagon; one quadrangle; colours of faces; "
            "COFF; NOFF; colours "
            "that the header does not name; a fraction as an index; lines too many",
        },
    ),
    ".stl": (
        "stl",
        {
            "trimesh": "a facet of wrong words",
            "meshio": (
                "capitals; blank lines; a number in each facet; a facet of wrong words; the "
                "end is missing"
            ),
        },
    ),
    ".pcd": (
        "pcd",
        {
            "pypcd4": "no line COUNT; version 0.6; tabs between numbers; double blanks between "
            "numbers; blanks at ends "
            "of lines; pairs in a compressed file; a line too few; a line too many; a point too "
            "few; bytes too many; "
            "WIDTH times HEIGHT is not POINTS",
        },
    ),
    ".csv": (
        "text",
        {
            "numpy": "names of CloudCompare; a count on the first line; commas between some, "
            "blanks between others; "
            "semicolons and decimal commas; a mark of the order of bytes; one number on each "
            "line; a name twice",
        },
    ),
}


def by_plyfile(path):
    elements = plyfile.PlyData.read(path)
    vertex = elements["vertex"].data
    face = elements["face"].data if "face" in elements else np.zeros(0, [("vertex_indices", "O")])
    polygons = [*face["vertex_indices"]]
    repeat = [len(polygon) - 2 for polygon in polygons]
    also = {name: vertex[name] for name in vertex.dtype.names}
    also |= {
        f"face_{name}": np.repeat(face[name], repeat)
        for name in face.dtype.names
        if face[name].dtype != "O"
    }
    return np.stack([vertex[axis] for axis in "xyz"], 1), fans(polygons), also


def by_trimesh(path):
    mesh = trimesh.load(path, process=False, maintain_order=True)
    if isinstance(mesh, trimesh.Scene):
        mesh = trimesh.util.concatenate(list(mesh.geometry.values()))
    also = {}
    if "vertex_normals" in mesh._cache:
        also["normal"] = mesh.vertex_normals
    if getattr(getattr(mesh, "visual", None), "kind", None) == "vertex":
        also["color"] = mesh.visual.vertex_colors[:, :3] / 255
    if getattr(getattr(mesh, "visual", None), "kind", None) == "face":
        also["face_color"] = mesh.visual.face_colors[:, :3] / 255
    if "stl" in getattr(mesh, "face_attributes", {}):
        also["face_attribute"] = mesh.face_attributes["stl"]
    return mesh.vertices, getattr(mesh, "faces", np.zeros((0, 3), int)), also


def by_meshio(path):
    mesh = meshio.read(path)
    polygons = [row for block in mesh.cells if block.type != "vertex" for row in block.data]
    return mesh.points, fans(polygons), dict(mesh.point_data)


def by_pypcd4(path):
    table = np.atleast_1d(importlib.import_module("pypcd4").PointCloud.from_path(path).pc_data)
    also = {name: table[name] for name in table.dtype.names}
    if "d__0000" in also:
        also["d"] = np.stack([table["d__0000"], table["d__0001"]], 1)
    if "rgb" in also:
        packed = np.ascontiguousarray(table["rgb"]).view("u4")
        also["color"] = np.stack([(packed >> shift) & 255 for shift in (16, 8, 0)], 1) / 255
    return np.stack([table[axis] for axis in "xyz"], 1), np.zeros((0, 3), int), also


def by_numpy(path):
    """Names of columns by genfromtxt, which takes those of a comment, too; numbers alone by
    loadtxt.
    """
    data = path.read_bytes()
    mark = next((mark for mark in (";", ",") if mark.encode() in data), None)
    first = data.split(b"\n")[0].lower()
    if b"x" not in first:
        values = np.loadtxt(path, delimiter=mark, ndmin=2)
        return values[:, :3], np.zeros((0, 3), int), {}
    table = np.atleast_1d(np.genfromtxt(io.BytesIO(data), delimiter=mark, names=True))
    return (
        np.stack([table[axis] for axis in "xyz"], 1),
        np.zeros((0, 3), int),
        {n: table[n] for n in table.dtype.names},
    )


def by_us(path):
    shape = ga.load(path)
    face = shape.face.T.numpy() if "face" in shape else np.zeros((0, 3), int)
    return shape.pos.numpy(), face, {name: values.numpy() for name, values in shape.items()}


def fans(polygons):
    rows = [[p[0], p[i], p[i + 1]] for p in polygons for i in range(1, len(p) - 1)]
    return np.array(rows).reshape(-1, 3).astype(int)


def is_read(reader, awkward, path):
    """True if a reader gives what a file holds, or refuses it where it is damaged."""
    path.write_bytes(awkward.data)
    try:
        pos, face, also = reader(path)
    except (Exception, SystemExit) as error:  # meshio ends the process
        return awkward.pos is None and (reader is not by_us or isinstance(error, LoaderError))
    inside = not np.size(face) or 0 <= np.min(face) <= np.max(face) < len(pos)
    # as we would check a library
    checked = inside and len(pos) and np.isfinite(np.asarray(pos, float)).all()
    if awkward.pos is None or not checked:
        return awkward.pos is None and not checked
    want = np.array(awkward.pos, float)[np.array(awkward.face, int).reshape(-1, 3)]
    # of which most libraries join no corners
    right = np.shape(pos) == np.shape(awkward.pos) or path.suffix == ".stl"
    right = right and np.array_equal(np.asarray(pos, float)[np.asarray(face)], want)
    if not len(awkward.face):
        right = right and np.array_equal(pos, awkward.pos)
    if awkward.also is not None:
        name, values = awkward.also
        known = name in also and np.shape(also[name]) == np.shape(values)
        right = right and known and np.allclose(np.asarray(also[name]), values, equal_nan=True)
        if right and np.asarray(also[name]).dtype.kind == "u":
            right = np.array_equal(also[name], values)  # float64 rounds what is near
    return bool(right)


def failures(reader, ending, folder):
    path = folder / f"a{ending}"
    return [awkward.name for awkward in FILES[ending] if not is_read(reader, awkward, path)]


@pytest.mark.parametrize("ending", FILES)
def test_every_awkward_file_is_read_or_refused_here(ending, tmp_path):
    assert len(FILES[ending]) == len({awkward.name for awkward in FILES[ending]}) == 24
    assert failures(by_us, ending, tmp_path) == []


CASES = [(ending, library) for ending, (_, libraries) in FAILED.items() for library in libraries]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("ending", "library"), CASES)
def test_the_note_says_how_many_the_library_fails(ending, library, tmp_path):
    pytest.importorskip(library)
    module, libraries = FAILED[ending]
    found = failures(globals()[f"by_{library}"], ending, tmp_path)
    assert "; ".join(found) == libraries[library]
    note = importlib.import_module(f"graphattn.shapes.files.{module}").__doc__
    assert re.search(rf"{library}[^;]*?fails? {len(found)}\b", note)
