"""Mesh files: a good file equals trimesh's reading, a bad one is a LoaderError that says where."""

import os
import struct

import numpy as np
import pytest

from graphattn.errors import LoaderError
from graphattn.interop.files import _stl, load_mesh, load_points

trimesh = pytest.importorskip("trimesh")

TRIANGLE = "0 0 0\n1 0 0\n0 1 0\n"
PLY = """ply
format {0} 1.0
comment made by hand
element vertex {1}
property float x
property float y
property float z
element face {2}
property list {3} int vertex_indices
end_header
"""


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


def refused(path, *words, loader=load_mesh, **options):
    """The message of the LoaderError, which must name the file and every one of ``words``."""
    with pytest.raises(LoaderError) as error:
        loader(path, **options)
    for word in (path.name, "expected", "Try", *words):
        assert word in str(error.value), str(error.value)
    assert len(str(error.value)) < 1000
    return str(error.value)


def sphere():
    """A mesh whose 42 vertices are exact in float32 and in six decimals."""
    mesh = trimesh.creation.icosphere(subdivisions=1)
    return trimesh.Trimesh(np.round(mesh.vertices * 64) / 64, mesh.faces, process=False)


@pytest.mark.parametrize("kind", ["off", "obj", "ply", "ply_ascii", "stl", "stl_ascii"])
def test_good_file_equals_trimesh(kind, tmp_path):
    mesh = sphere()
    path = tmp_path / f"sphere.{kind[:3]}"
    options = {"encoding": "ascii"} if kind == "ply_ascii" else {}
    mesh.export(path, file_type=kind if kind == "stl_ascii" else None, **options)
    theirs = trimesh.load(path, process=False, force="mesh")
    ours = load_mesh(path)
    assert ours.vertices.dtype == np.float64
    assert ours.faces.dtype == np.int64
    np.testing.assert_array_equal(ours.vertices[ours.faces], theirs.triangles)
    if kind[:3] == "stl":
        assert len(ours.vertices) == 42
        assert ours.notes.merged == 3 * 80 - 42
    else:
        np.testing.assert_array_equal(ours.vertices, theirs.vertices)
        np.testing.assert_array_equal(ours.faces, theirs.faces)
    assert ours.name == "sphere"
    assert repr(ours) == "Mesh('sphere': 42 vertices, 80 faces)"
    by_trimesh = trimesh.Trimesh(ours.vertices, ours.faces, process=False).edges_unique
    np.testing.assert_array_equal(ours.edges, by_trimesh[np.lexsort(by_trimesh.T[::-1])])


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("mixed", [False, True])
def test_binary_ply_of_both_orders(order, mixed, write):
    kind = {"<": "binary_little_endian", ">": "binary_big_endian"}[order]
    head = PLY.format(kind, 5, 3 if mixed else 2, "ushort").encode()
    head = head.replace(b"property list", b"property uchar red\nproperty list").replace(
        b"end_header", b"property double area\nend_header"
    )
    body = struct.pack(order + "15f", *range(15))
    faces = [(0, 1, 2), (4, 3, 2, 1), (2, 3, 4)] if mixed else [(0, 1, 2), (4, 3, 2)]
    for face in faces:
        body += struct.pack(f"{order}BH{len(face)}id", 200, len(face), *face, 0.5)
    mesh = load_mesh(write("m.ply", head + body))
    np.testing.assert_array_equal(mesh.vertices, np.arange(15.0).reshape(5, 3))
    want = [[0, 1, 2], [4, 3, 2], [4, 2, 1], [2, 3, 4]] if mixed else [[0, 1, 2], [4, 3, 2]]
    assert mesh.faces.tolist() == want
    assert mesh.notes.cut == mixed
    refused(write("m.ply", head + body[:-1]), "bytes", "truncated")
    refused(write("m.ply", head + body + b"x"), "1 more")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.off", "OFF\n1000000000000 1 0\n" + TRIANGLE),
        ("m.ply", PLY.format("ascii", 10**12, 1, "uchar") + TRIANGLE),
        ("m.ply", PLY.format("binary_little_endian", 10**12, 1, "uchar") + TRIANGLE),
        ("m.ply", PLY.format("binary_little_endian", 0, 10**12, "uchar") + TRIANGLE),
    ],
)
def test_counts_are_checked_before_anything_is_allocated(name, text, write):
    refused(write(name, text), "1000000000000" if name == "m.off" else "0000000", "header")


@pytest.mark.parametrize(("count", "word"), [(-1, "-1"), (2**31 - 1, "2147483647")])
def test_ply_list_count_huge_or_negative(count, word, write):
    text = PLY.format("ascii", 3, 1, "int") + TRIANGLE + f"{count} 0 1 2\n"
    refused(write("m.ply", text), "line 14", "face 0", word)
    head = PLY.format("binary_little_endian", 3, 1, "int").encode() + struct.pack("<9f", *range(9))
    refused(write("m.ply", head + struct.pack("<4i", count, 0, 1, 2)), "face 0", word)
    three = PLY.format("binary_little_endian", 3, 2, "int").encode() + struct.pack("<9f4i", *range(9), 3, 0, 1, 2)
    refused(write("m.ply", three + struct.pack("<4i", count, 0, 1, 2)), "face 1", word)


def test_face_index_out_of_range(write):
    message = "face 0: vertex 99 of 3"
    refused(write("m.off", f"OFF\n3 1 0\n{TRIANGLE}3 0 1 99\n"), "line 6", message)
    refused(write("m.off", f"OFF\n3 1 0\n{TRIANGLE}3 0 1 3\n"), "line 6", "face 0: vertex 3 of 3")
    refused(write("m.off", f"OFF\n3 1 0\n{TRIANGLE}3 0 1 -1\n"), "line 6", "face 0: vertex -1 of 3")
    refused(write("m.off", f"OFF\n3 1 0\n{TRIANGLE}3 0 1 1.5\n"), "line 6", "1.5")
    obj = "".join(f"v {row}\n" for row in TRIANGLE.splitlines())
    refused(write("m.obj", obj + "f 1 2 99\n"), "line 4", message)
    refused(write("m.obj", obj + "f 1 2 4\n"), "line 4", "face 0: vertex 4 of 3")
    refused(write("m.ply", PLY.format("ascii", 3, 1, "uchar") + TRIANGLE + "3 0 1 99\n"), "line 14", message)
    head = PLY.format("binary_little_endian", 3, 1, "uchar").encode() + struct.pack("<9f", *range(9))
    refused(write("m.ply", head + struct.pack("<B3i", 3, 0, 1, 99)), message)
    unsigned = head.replace(b"uchar int", b"uchar uint") + struct.pack("<B3I", 3, 0, 1, 2**32 - 1)
    refused(write("m.ply", unsigned), "4.29497e+09 of 3")


def test_obj_negative_index_counts_back_from_the_face(write):
    text = "v 0 0 0\nv 1 0 0\nv 0 1 0\nf -3 -2 -1\nv 0 0 1\nf -4 -1 1\n"
    assert load_mesh(write("m.obj", text)).faces.tolist() == [[0, 1, 2], [0, 3, 0]]
    refused(write("m.obj", text + "f -5 -1 -2\n"), "line 7", "face 2: vertex -5 of 4")
    refused(write("m.obj", text.replace("f -3", "f -4")), "line 4", "face 0: vertex -4")


def test_obj_index_zero(write):
    refused(write("m.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 0 1 2\n"), "line 4", "face 0: vertex 0", "from 1")


@pytest.mark.parametrize(
    "face", ["1/2/3 2/3/1 3/1/2", "1//3 2//1 3//2", "1/2 2/1 3/3", "1  2   3", "\t1\t2\t3\t", "1 2 \\\n 3"]
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_obj_dialects(face, end, write):
    text = f"# comment\nmtllib x.mtl\no name\n\nv 0 0 0\nvt 0 0\nvn 0 0 1\n  v 1 0 0 # here\nv 0 1 0\nf {face}\n"
    path = write("m.obj", text.replace("\n", end))
    assert load_mesh(path).faces.tolist() == [[0, 1, 2]]
    np.testing.assert_array_equal(load_mesh(path).vertices, [[0, 0, 0], [1, 0, 0], [0, 1, 0]])
    refused(write("m.obj", (text + "f 1 2 x\n").replace("\n", end)), f"line {text.count(chr(10)) + 1}", "'x'")
    refused(write("m.obj", (text + "f 1 2 /3\n").replace("\n", end)), "before the slash", "'/3'")
    refused(write("m.obj", (text + "garbage 1 2\n").replace("\n", end)), "'garbage'")


def test_obj_polygons_are_cut_into_fans(write):
    text = "".join(f"v {i} {i * i} 0\n" for i in range(7)) + "f 1 2 3\nf 2 3 4 5\nf 1 3 5 6 7\nl 1 2 3\n"
    mesh = load_mesh(write("m.obj", text))
    assert mesh.faces.tolist() == [[0, 1, 2], [1, 2, 3], [1, 3, 4], [0, 2, 4], [0, 4, 5], [0, 5, 6]]
    sides = {(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (1, 4), (2, 4), (4, 5), (5, 6), (0, 6)}
    assert set(map(tuple, mesh.edges.tolist())) == sides
    assert mesh.notes == (0, 0, 2, 0, 0, 1)
    refused(write("m.obj", text + "f 1 2\n"), "line 12", "face 3", "3 corners")


def test_off_pentagon_is_kept(write):
    text = "OFF\n5 1 0\n" + "".join(f"{i} {i * i} 0\n" for i in range(5)) + "5 0 1 2 3 4 255 0 0\n"
    mesh = load_mesh(write("m.off", text))
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3], [0, 3, 4]]
    assert len(mesh.edges) == 5


@pytest.mark.parametrize(
    "head",
    [
        "OFF\n3 1 0\n",
        "OFF 3 1 0\n",
        "OFF3 1 0\n",
        "# first\nOFF # a\n# b\n\n3 1 # c\n",
        "COFF\n3 1 0\n",
        "NOFF\n3 1 0\n",
    ],
)
def test_off_headers(head, write):
    mesh = load_mesh(write("m.off", f"{head}{TRIANGLE}# face\n3 0 1 2\n"))
    assert mesh.faces.tolist() == [[0, 1, 2]]
    np.testing.assert_array_equal(mesh.vertices, [[0, 0, 0], [1, 0, 0], [0, 1, 0]])


def test_off_headers_refused(write):
    body = f"3 1 0\n{TRIANGLE}3 0 1 2\n"
    refused(write("m.off", body), "OFF")
    refused(write("m.off", "4OFF\n" + body), "4OFF")
    refused(write("m.off", "OFF BINARY\n" + body), "OFF BINARY")
    refused(write("m.off", "OFF\n3\n" + body), "line 2", "[3.0]")
    refused(write("m.off", "OFF\n" + body + "3 0 1 2\n"), "5 lines", "too many")
    refused(write("m.off", "OFF\n" + body.replace("1 0 0", "1 0")), "line 4", "2 numbers")
    refused(write("m.off", "OFF\n" + body.replace("3 0 1 2", "4 0 1 2")), "line 6", "face 0")


def test_colours_behind_a_vertex_are_left_out(write):
    coloured = "".join(f"{row} 255 0 0\n" for row in TRIANGLE.splitlines())
    want = [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    np.testing.assert_array_equal(load_mesh(write("m.off", f"COFF\n3 1 0\n{coloured}3 0 1 2\n")).vertices, want)
    obj = "".join(f"v {row}\n" for row in coloured.splitlines()) + "f 1 2 3\n"
    np.testing.assert_array_equal(load_mesh(write("m.obj", obj)).vertices, want)
    ply = PLY.format("ascii", 3, 1, "uchar").replace("z\n", "z\nproperty uchar red\nproperty int a\nproperty int b\n")
    np.testing.assert_array_equal(load_mesh(write("m.ply", ply + coloured + "3 0 1 2\n")).vertices, want)


@pytest.mark.parametrize("number", ["nan", "inf", "-INF", "1e400"])
def test_nonfinite_coordinate(number, write):
    bad = TRIANGLE.replace("0 1 0", f"0 {number} 0")
    stl = "solid a\nfacet normal 0 0 1\nouter loop\n{}endloop\nendfacet\nendsolid a\n"
    files = {
        "m.off": (f"OFF\n3 1 0\n{bad}3 0 1 2\n", "line 5"),
        "m.obj": ("".join(f"v {row}\n" for row in bad.splitlines()) + "f 1 2 3\n", "line 3"),
        "m.ply": (PLY.format("ascii", 3, 1, "uchar") + bad + "3 0 1 2\n", "line 13"),
        "m.stl": (stl.format("".join(f"vertex {row}\n" for row in bad.splitlines())), "line 6"),
    }
    for name, (text, line) in files.items():
        path = write(name, text)
        refused(path, line, "finite", "allow_nonfinite=True")
        assert (~np.isfinite(load_mesh(path, allow_nonfinite=True).vertices)).sum() == 1
    binary = PLY.format("binary_little_endian", 3, 1, "uchar").encode()
    binary += struct.pack("<9f", *range(7), float(number) if number != "1e400" else np.inf, 0)
    refused(write("m.ply", binary + struct.pack("<B3i", 3, 0, 1, 2)), "vertex 2", "finite")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((f"m.{kind}", text) for kind in ("off", "obj", "ply", "stl") for text in ("", "  \n")),
        ("m.off", "# nothing\n"),
        ("m.off", "OFF\n"),
        ("m.off", "OFF\n0 0 0\n"),
        ("m.off", "OFF\n3 0 0\n" + TRIANGLE),
        ("m.obj", "# nothing\n"),
        ("m.obj", "o name\n"),
        ("m.obj", "v 0 0 0\n"),
        ("m.ply", PLY.format("ascii", 0, 0, "uchar")),
        ("m.ply", PLY.format("ascii", 3, 0, "uchar") + TRIANGLE),
        ("m.stl", "solid a\nendsolid a\n"),
        ("m.stl", bytes(84)),
    ],
)
def test_empty(name, text, write):
    refused(write(name, text))


def test_a_point_cloud_is_no_mesh_but_points(write):
    for name, text in {
        "m.ply": PLY.format("ascii", 3, 0, "uchar") + TRIANGLE,
        "m.off": "OFF\n3 0 0\n" + TRIANGLE,
        "m.obj": "".join(f"v {row}\n" for row in TRIANGLE.splitlines()),
    }.items():
        path = write(name, text)
        refused(path, "empty", "load_points")
        assert load_points(path).shape == (3, 3)
    no_faces = PLY.format("ascii", 3, 0, "uchar").split("element face")[0] + "end_header\n" + TRIANGLE
    assert load_points(write("m.ply", no_faces)).shape == (3, 3)


def test_truncated_binary(write):
    stl = bytes(80) + struct.pack("<I", 2) + bytes(100)
    refused(write("m.stl", stl[:-1]), "184 bytes for 2 facets", "183 bytes")
    refused(write("m.stl", bytes(80) + b"\xff" * 4 + bytes(50)), f"{84 + 50 * (2**32 - 1)} bytes", "134 bytes")
    refused(write("m.stl", stl[:50]), "84 bytes", "50 bytes")
    refused(write("m.stl", b"solid but binary" + stl[16:-1]), "183 bytes")
    ply = PLY.format("binary_big_endian", 3, 1, "uchar").encode() + bytes(36)
    refused(write("m.ply", ply[:-1]), "36 bytes", "35")
    refused(write("m.ply", ply), "1 bytes", "0")


def test_truncated_ascii(write):
    text = "solid a\n" + "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\nendfacet\n"
    refused(write("m.stl", text), "endsolid", "truncated")
    refused(write("m.stl", text.replace("vertex 1 0 0\n", "") + "endsolid\n"), "line 6", "face 0", "vertex")
    refused(write("m.stl", text.replace("vertex 1 0 0", "vertex 1 0") + "endsolid\n"), "line 5", "2 numbers")
    refused(write("m.stl", text[:-9] + "endsolid\n"), "face 0", "endfacet")
    assert len(load_mesh(write("m.stl", (text + "ENDSOLID\n").upper())).faces) == 1
    two = text + "endsolid a\n" + text.replace("0 1 0", "0 5 0") + "endsolid b\n"
    assert load_mesh(write("m.stl", two)).faces.tolist() == [[0, 1, 2], [0, 1, 3]]
    refused(write("m.ply", PLY.format("ascii", 3, 1, "uchar") + TRIANGLE), "4 lines", "3 (truncated)")


def test_ascii_ply_lines_of_a_wrong_length(write):
    head = PLY.format("ascii", 3, 1, "uchar")
    assert len(load_mesh(write("m.ply", head + TRIANGLE + "3 0 1 2\n")).faces) == 1
    refused(write("m.ply", head + TRIANGLE + "4 0 1 2\n"), "line 14", "face 0", "length of vertex_indices")
    refused(write("m.ply", head + TRIANGLE + "3 0 1 2 7\n"), "line 14", "face 0", "end of the line")
    refused(
        write("m.ply", head + TRIANGLE.replace("1 0 0", "1 0") + "3 0 1 2\n"), "line 12", "vertex 1", "number for z"
    )
    refused(write("m.ply", head + TRIANGLE.replace("1 0 0", "1 0 0 0") + "3 0 1 2\n"), "line 12", "end of the line")
    refused(write("m.ply", head + TRIANGLE + "3 0 1 2\n" * 2), "4 lines", "5 (some are too many)")


def test_ply_header_without_end(write):
    refused(write("m.ply", "ply\nformat ascii 1.0\n" + "comment x\n" * 200_000), "end_header", "64 KiB")
    refused(write("m.ply", "ply\n"), "end_header")
    padded = PLY.replace("made by hand", "x" * 70_000).format("ascii", 3, 1, "uchar")
    refused(write("m.ply", padded + TRIANGLE + "3 0 1 2\n"), "end_header", "64 KiB")
    refused(write("m.ply", "plx\nend_header\n"), "'plx")
    good = PLY.format("ascii", 3, 1, "uchar")
    refused(write("m.ply", good.replace("format ascii 1.0\n", "") + TRIANGLE), "format")
    for old, new in [
        ("int vertex", "quark vertex"),
        ("uchar", "float"),
        ("vertex 3", "vertex -3"),
        ("face 1", "vertex 1"),
    ]:
        refused(write("m.ply", good.replace(old, new) + TRIANGLE + "3 0 1 2\n"), "line", new.split()[0])
    refused(write("m.ply", good.replace("float z", "float y") + TRIANGLE + "3 0 1 2\n"), "each once")
    refused(write("m.ply", good.replace("float z", "float w") + TRIANGLE + "3 0 1 2\n"), "x, y, z")
    refused(write("m.ply", good.replace("_indices", "_things") + TRIANGLE + "3 0 1 2\n"), "vertex_indices")


@pytest.mark.parametrize("kind", ["off", "obj", "stl"])
def test_wrong_encoding_and_endless_lines(kind, write):
    text = {
        "off": f"OFF\n3 1 0\n{TRIANGLE}3 0 1 2\n",
        "obj": "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n",
        "stl": "solid a\nfacet normal 0 0 1\nouter loop\n" + "vertex 1 0 0\n" * 3 + "endloop\nendfacet\nendsolid\n",
    }[kind]
    assert len(load_mesh(write(f"m.{kind}", text.encode("utf-8-sig") if kind != "stl" else text)).faces) == 1
    if kind != "stl":
        refused(write(f"m.{kind}", text.encode("utf-16")), "UTF-16")
    refused(write(f"m.{kind}", text.replace("1 0 0", "1 0 é")), "line")
    refused(write(f"m.{kind}", text[:-10] + "\0" * 4 + text[-6:]))
    refused(write(f"m.{kind}", text + "1" * 5_000_000), "5000000 bytes", "line")
    assert len(load_mesh(write(f"m.{kind}", text.replace("\n", "\n# é\n") if kind != "stl" else text)).faces) == 1


def test_no_second_file_is_opened(write, monkeypatch):
    write("secret.mtl", "newmtl a\n")
    path = write(
        "m.obj", "mtllib secret.mtl\nmtllib ../../../etc/passwd\nusemtl a\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"
    )
    opened, true_open = [], os.open
    monkeypatch.setattr(
        os, "open", lambda name, *rest, **more: (opened.append(name), true_open(name, *rest, **more))[1]
    )
    monkeypatch.setattr("builtins.open", lambda *arguments, **more: pytest.fail(f"opened {arguments}"))
    assert len(load_mesh(path).faces) == 1
    assert opened == [str(path)]


def test_odd_faces_are_counted_and_kept(write):
    text = f"OFF\n4 5 0\n{TRIANGLE}9 9 9\n3 0 1 2\n3 2 0 1\n3 0 0 1\n3 1 2 0\n4 0 1 2 1\n"
    mesh = load_mesh(write("m.off", text))
    assert len(mesh.faces) == 6
    assert mesh.notes.degenerate == 1
    assert mesh.notes.duplicate == 4
    assert mesh.notes.unused == 1
    assert mesh.edges.tolist() == [[0, 1], [0, 2], [1, 2]]


@pytest.mark.parametrize("collide", [False, True])
def test_equal_hashes_do_not_merge_different_points(collide, monkeypatch):
    points = np.random.default_rng(0).integers(-1, 2, (101, 3)).astype(float)
    points[::7] *= -0.0
    if collide:
        monkeypatch.setattr(_stl, "_MIX", np.zeros(3, np.uint64))
    vertices, index = _stl.merge(points)
    np.testing.assert_array_equal(vertices[index], points)
    assert len(vertices) == len(np.unique(points, axis=0))
    assert (np.diff([np.flatnonzero(index == i)[0] for i in range(len(vertices))]) > 0).all()
