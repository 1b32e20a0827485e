"""A damaged file is a LoaderError that says where; odd dialects are read."""

import os
import struct

import numpy as np
import pytest

from graphattn.errors import LoaderError
from graphattn.shapes import load

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


def refused(path, *words, **options):
    """The message of the LoaderError without the file's path, which begins it.

    A path may hold any word: that of the first test folder on a machine ends in ``-0``.
    """
    with pytest.raises(LoaderError) as error:
        load(path, **options)
    assert str(error.value).startswith(str(path)), str(error.value)
    message = str(error.value).removeprefix(str(path))
    for word in ("expected", "Try", *words):
        assert word in message, message
    assert len(message) < 1000
    return message


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
    mesh = load(write("m.ply", head + body))
    np.testing.assert_array_equal(mesh.pos, np.arange(15.0).reshape(5, 3))
    want = [[0, 1, 2], [4, 3, 2], [4, 2, 1], [2, 3, 4]] if mixed else [[0, 1, 2], [4, 3, 2]]
    assert mesh.face.T.tolist() == want
    assert mesh.face_area.tolist() == [0.5] * len(want)
    assert ("polygons cut" in str(mesh.notes)) == mixed
    refused(write("m.ply", head + body[:-1]), "byte", "truncated")
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
    three = PLY.format("binary_little_endian", 3, 2, "int").encode() + struct.pack(
        "<9f4i", *range(9), 3, 0, 1, 2
    )
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
    refused(
        write("m.ply", PLY.format("ascii", 3, 1, "uchar") + TRIANGLE + "3 0 1 99\n"),
        "line 14",
        message,
    )
    head = PLY.format("binary_little_endian", 3, 1, "uchar").encode() + struct.pack(
        "<9f", *range(9)
    )
    refused(write("m.ply", head + struct.pack("<B3i", 3, 0, 1, 99)), message)
    unsigned = head.replace(b"uchar int", b"uchar uint") + struct.pack("<B3I", 3, 0, 1, 2**32 - 1)
    refused(write("m.ply", unsigned), "4.29497e+09 of 3")


def test_obj_negative_index_counts_back_from_the_face(write):
    text = "v 0 0 0\nv 1 0 0\nv 0 1 0\nf -3 -2 -1\nv 0 0 1\nf -4 -1 1\n"
    assert load(write("m.obj", text)).face.T.tolist() == [[0, 1, 2], [0, 3, 0]]
    refused(write("m.obj", text + "f -5 -1 -2\n"), "line 7", "face 2: vertex -5 of 4")
    refused(write("m.obj", text.replace("f -3", "f -4")), "line 4", "face 0: vertex -4")


@pytest.mark.parametrize(
    "face",
    ["1/2/3 2/3/1 3/1/2", "1//3 2//1 3//2", "1/2 2/1 3/3", "1  2   3", "\t1\t2\t3\t", "1 2 \\\n 3"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_obj_dialects(face, end, write):
    text = "# comment\nmtllib x.mtl\no name\n\nv 0 0 0\nvt 0 0\nvt 1 0\nvt 1 1\n" + "vn 0 0 1\n" * 3
    text += f"  v 1 0 0 # here\nv 0 1 0\nf {face}\n"
    path = write("m.obj", text.replace("\n", end))
    assert load(path).face.T.tolist() == [[0, 1, 2]]
    np.testing.assert_array_equal(load(path).pos, [[0, 0, 0], [1, 0, 0], [0, 1, 0]])
    refused(
        write("m.obj", (text + "f 1 2 x\n").replace("\n", end)),
        f"line {text.count(chr(10)) + 1}",
        "'x'",
    )
    refused(write("m.obj", (text + "f 1 2 /3\n").replace("\n", end)), "before the slash", "'/3'")
    refused(write("m.obj", (text + "garbage 1 2\n").replace("\n", end)), "'garbage'")


def test_obj_polygons_are_cut_into_fans(write):
    text = (
        "".join(f"v {i} {i * i} 0\n" for i in range(7))
        + "f 1 2 3\nf 2 3 4 5\nf 1 3 5 6 7\nl 1 2 3\n"
    )
    mesh = load(write("m.obj", text))
    assert mesh.face.T.tolist() == [
        [0, 1, 2],
        [1, 2, 3],
        [1, 3, 4],
        [0, 2, 4],
        [0, 4, 5],
        [0, 5, 6],
    ]
    assert mesh.notes == (
        "statements left out: 1 l",
        "2 polygons cut into 5 triangles",
    )
    refused(write("m.obj", text + "f 1 2\n"), "line 12", "face 3", "3 corners")


@pytest.mark.parametrize(
    "head",
    [
        "OFF\n3 1 0\n",
        "OFF 3 1 0\n",
        "OFF3 1 0\n",
        "# first\nOFF # a\n# b\n\n3 1 # c\n",
    ],
)
def test_off_headers(head, write):
    mesh = load(write("m.off", f"{head}{TRIANGLE}# face\n3 0 1 2\n"))
    assert mesh.face.T.tolist() == [[0, 1, 2]]
    np.testing.assert_array_equal(mesh.pos, [[0, 0, 0], [1, 0, 0], [0, 1, 0]])


def test_off_headers_refused(write):
    body = f"3 1 0\n{TRIANGLE}3 0 1 2\n"
    refused(write("m.off", body), "OFF")
    refused(write("m.off", "4OFF\n" + body), "4OFF")
    refused(write("m.off", "OFF BINARY\n" + body), "OFF BINARY")
    refused(write("m.off", "OFF\n3\n" + body), "line 2", "[3.0]")
    refused(write("m.off", "OFF\n" + body + "3 0 1 2\n"), "5 lines", "too many")
    refused(write("m.off", "OFF\n" + body.replace("1 0 0", "1 0")), "line 4", "2 numbers")
    refused(write("m.off", "OFF\n" + body.replace("3 0 1 2", "4 0 1 2")), "line 6", "face 0")


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
        assert (~np.isfinite(load(path, allow_nonfinite=True).pos.numpy())).sum() == 1
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
        ("m.obj", "# nothing\n"),
        ("m.obj", "o name\n"),
        ("m.ply", PLY.format("ascii", 0, 0, "uchar")),
        ("m.stl", "solid a\nendsolid a\n"),
        ("m.stl", bytes(84)),
    ],
)
def test_empty(name, text, write):
    refused(write(name, text))


def test_truncated_binary(write):
    stl = bytes(80) + struct.pack("<I", 2) + bytes(100)
    refused(write("m.stl", stl[:-1]), "184 bytes for 2 facets", "183 bytes")
    refused(
        write("m.stl", bytes(80) + b"\xff" * 4 + bytes(50)),
        f"{84 + 50 * (2**32 - 1)} bytes",
        "134 bytes",
    )
    refused(write("m.stl", stl[:50]), "84 bytes", "50 bytes")
    refused(write("m.stl", b"solid but binary" + stl[16:-1]), "183 bytes")
    ply = PLY.format("binary_big_endian", 3, 1, "uchar").encode() + bytes(36)
    refused(write("m.ply", ply[:-1]), "36 bytes", "35")
    refused(write("m.ply", ply), "1 byte", "0")


def test_truncated_ascii(write):
    text = (
        "solid a\n"
        + "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\nendfacet\n"
    )
    refused(write("m.stl", text), "endsolid", "truncated")
    refused(write("m.stl", text.replace("vertex 1 0 0\n", "") + "endsolid\n"), "line 2", "vertex")
    refused(write("m.stl", text.replace("vertex 1 0 0", "vertex 1 0") + "endsolid\n"), "line 2")
    refused(write("m.stl", text[:-9] + "endsolid\n"), "line 2", "endfacet")
    assert load(write("m.stl", (text + "ENDSOLID\n").upper())).face.shape[1] == 1
    two = text + "endsolid a\n" + text.replace("0 1 0", "0 5 0") + "endsolid b\n"
    assert load(write("m.stl", two)).face.T.tolist() == [[0, 1, 2], [0, 1, 3]]
    refused(
        write("m.ply", PLY.format("ascii", 3, 1, "uchar") + TRIANGLE), "4 lines", "3 (truncated)"
    )


def test_ascii_ply_lines_of_a_wrong_length(write):
    head = PLY.format("ascii", 3, 1, "uchar")
    assert load(write("m.ply", head + TRIANGLE + "3 0 1 2\n")).face.shape[1] == 1
    refused(
        write("m.ply", head + TRIANGLE + "4 0 1 2\n"),
        "line 14",
        "face 0",
        "length of vertex_indices",
    )
    refused(write("m.ply", head + TRIANGLE + "3 0 1 2 7\n"), "line 14", "face 0", "end of the line")
    refused(
        write("m.ply", head + TRIANGLE.replace("1 0 0", "1 0") + "3 0 1 2\n"),
        "line 12",
        "vertex 1",
        "number for z",
    )
    refused(
        write("m.ply", head + TRIANGLE.replace("1 0 0", "1 0 0 0") + "3 0 1 2\n"),
        "line 12",
        "end of the line",
    )
    refused(write("m.ply", head + TRIANGLE + "3 0 1 2\n" * 2), "4 lines", "5 (some are too many)")


def test_ply_header_without_end(write):
    refused(
        write("m.ply", "ply\nformat ascii 1.0\n" + "comment x\n" * 200_000), "end_header", "64 KiB"
    )
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
        refused(
            write("m.ply", good.replace(old, new) + TRIANGLE + "3 0 1 2\n"), "line", new.split()[0]
        )
    refused(
        write("m.ply", good.replace("float z", "float y") + TRIANGLE + "3 0 1 2\n"), "each once"
    )
    refused(write("m.ply", good.replace("float z", "float w") + TRIANGLE + "3 0 1 2\n"), "x, y, z")
    refused(
        write("m.ply", good.replace("_indices", "_things") + TRIANGLE + "3 0 1 2\n"),
        "vertex_indices",
    )


@pytest.mark.parametrize("kind", ["off", "obj", "stl"])
def test_wrong_encoding_and_endless_lines(kind, write):
    text = {
        "off": f"OFF\n3 1 0\n{TRIANGLE}3 0 1 2\n",
        "obj": "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n",
        "stl": "solid a\nfacet normal 0 0 1\nouter loop\n"
        + "vertex 1 0 0\n" * 3
        + "endloop\nendfacet\nendsolid\n",
    }[kind]
    assert (
        load(write(f"m.{kind}", text.encode("utf-8-sig") if kind != "stl" else text)).face.shape[1]
        == 1
    )
    if kind != "stl":
        refused(write(f"m.{kind}", text.encode("utf-16")), "UTF-16")
    refused(write(f"m.{kind}", text.replace("1 0 0", "1 0 é")), "line")
    refused(write(f"m.{kind}", text[:-10] + "\0" * 4 + text[-6:]))
    refused(write(f"m.{kind}", text + "1" * 5_000_000), "5000000 bytes", "line")
    assert (
        load(
            write(f"m.{kind}", text.replace("\n", "\n# é\n") if kind != "stl" else text)
        ).face.shape[1]
        == 1
    )


def test_no_second_file_is_opened(write, monkeypatch):
    write("secret.mtl", "newmtl a\n")
    path = write(
        "m.obj",
        "mtllib secret.mtl\nmtllib ../../../etc/passwd\nusemtl a\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 "
        "2 3\n",
    )
    opened, true_open = [], os.open
    monkeypatch.setattr(
        os,
        "open",
        lambda name, *rest, **more: (opened.append(name), true_open(name, *rest, **more))[1],
    )
    monkeypatch.setattr(
        "builtins.open", lambda *arguments, **more: pytest.fail(f"opened {arguments}")
    )
    assert load(path).face.shape[1] == 1
    assert opened == [str(path)]


def faces_with_texture(order, lists):
    """A binary PLY of 4 points with such corners and texture coordinates of each face."""
    head = f"ply\nformat {order} 1.0\nelement vertex 4\n" + "".join(
        f"property float {n}\n" for n in "xyz"
    )
    head += (
        f"element face {len(lists)}\nproperty list uchar int vertex_indices\nproperty list "
        "uchar float texcoord\n"
    )
    body = np.arange(12, dtype="<f4").tobytes()
    for corners, texture in lists:
        body += struct.pack(f"<B{len(corners)}i", len(corners), *corners)
        body += struct.pack(f"<B{len(texture)}f", len(texture), *texture)
    return f"{head}end_header\n".encode() + body


def test_texture_of_polygons_is_cut_like_them(write):
    triangle, square = ((0, 1, 2), range(6)), ((3, 2, 1, 0), range(10, 18))
    mesh = load(write("m.ply", faces_with_texture("binary_little_endian", [triangle, square])))
    assert mesh.face.T.tolist() == [[0, 1, 2], [3, 2, 1], [3, 1, 0]]
    wanted = [[0, 1, 2, 3, 4, 5], [10, 11, 12, 13, 14, 15], [10, 11, 14, 15, 16, 17]]
    assert mesh.face_texcoord.tolist() == wanted
    squares = load(write("m.ply", faces_with_texture("binary_little_endian", [square])))
    assert squares.face_texcoord.tolist() == wanted[1:]
    odd = [triangle, ((3, 2, 1, 0), range(6))]
    assert load(
        write("m.ply", faces_with_texture("binary_little_endian", odd))
    ).face_texcoord.shape == (3, 6)
    odd = [triangle, ((3, 2, 1, 0), range(7))]
    refused(
        write("m.ply", faces_with_texture("binary_little_endian", odd)),
        "texcoord of one length",
        "6 to 7",
    )


@pytest.mark.parametrize(
    "text", ["x;y;z;heat\n1,5;2,25;3;-1,5\n4;5;6,5;0,5\n", "1.5;2.25;3;-1.5\n4;5;6.5;.5\n"]
)
def test_semicolons_separate_and_commas_between_them_are_decimal(text, write):
    shape = load(write("s.csv", text))
    assert shape.pos.tolist() == [[1.5, 2.25, 3], [4, 5, 6.5]]
    assert (shape.heat if "heat" in shape else shape.x[:, 0]).tolist() == [-1.5, 0.5]
    refused(write("s.csv", text.replace("3;", ";")), "an empty cell", "semicolon")
    refused(
        write("s.csv", "1,5 2,5 3,5\n4,5 5,5 6,5\n"), "line 1", "commas or blanks", "decimal points"
    )
    refused(
        write("s.xyz", "1,5\t2,5\t3,5\n4,5\t5,5\t6,5\n"),
        "line 1",
        "commas or blanks",
        "decimal points",
    )


def test_a_row_of_names_may_have_numbers_beside_x_y_z(write):
    assert load(write("s.csv", "x,y,z,0,nan\n1,2,3,4,5\n6,7,8,9,10\n"))["nan"].tolist() == [5, 10]


@pytest.mark.parametrize(("name", "shape"), [("face", (7, 3)), ("faces", (3, 7))])
def test_faces_of_an_npz_on_their_side_are_told_as_they_are(name, shape, tmp_path):
    np.savez(tmp_path / "mesh.npz", pos=np.zeros((9, 3)), **{name: np.zeros(shape, int)})
    with pytest.raises(
        LoaderError, match=rf"got shape \({shape[0]}, {shape[1]}\) of int64. Try: {name}.T"
    ):
        load(tmp_path / "mesh.npz")


def test_a_count_of_points_that_is_wrong_is_named(write):
    for name, rows in (("s.pts", "1 1 1\n"), ("s.xyz", "1 1 1\n2 2 2\n3 3 3\n")):
        text = "3\n0 0 0\n" + rows
        many = text.count("\n") - 1
        message = refused(
            write(name, text), "line 1", f"expected 3 points, as the first line says, got {many}"
        )
        assert "correct the count" in message
    assert len(load(write("s.pts", "3\n0 0 0\n1 1 1\n2 2 2\n")).pos) == 3
    refused(write("s.pts", "1\n2\n3\n"), "line 1", "two numbers or more")


@pytest.mark.parametrize(
    ("face", "name"), [("1/1 2/2 3/3", "vt"), ("1//1 2//1 3//1", "vn"), ("1//-1 2//1 3//1", "vn")]
)
def test_an_obj_whose_faces_name_a_table_that_is_not_there(face, name, write):
    text = "".join(f"v {row}\n" for row in TRIANGLE.splitlines()) + f"f {face}\n"
    message = refused(
        write("m.obj", text),
        "line 4",
        f"face 0: {name}",
        f"expected lines {name} before",
        "got none",
    )
    assert " of 0" in message
    assert "1 to 0" not in message
    assert "-0" not in message


def test_an_index_from_the_end_before_the_first_vertex_has_no_range_back(write):
    text = "f -1 -2 -3\n" + "".join(f"v {row}\n" for row in TRIANGLE.splitlines())
    assert "counting back" not in refused(write("m.obj", text), "line 1", "expected 1 to 3, got -1")


def test_a_file_without_positions_names_its_columns(write):
    head = (
        "VERSION .7\nFIELDS scale angle\nSIZE 4 4\nTYPE F F\nCOUNT 1 1\nWIDTH 1\nHEIGHT "
        "1\nPOINTS 1\nDATA ascii\n"
    )
    refused(write("m.pcd", head + "1 2\n"), "expected columns x, y and z, got scale, angle")


PCD = "VERSION 0.7\nFIELDS x y z i\nSIZE 4 4 4 2\nTYPE F F F U\nCOUNT 1 1 1 1\n"
PCD += "WIDTH {0}\nHEIGHT {1}\nPOINTS {2}\nDATA {3}\n"


@pytest.mark.parametrize("kind", ["ascii", "binary"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_a_depth_camera_has_not_seen_is_left_out(kind, number, write):
    table = np.zeros(6, [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("i", "<u2")])
    table["x"] = np.arange(6)
    table["i"] = np.arange(6) * 10
    table["z"][[0, 4]] = number
    body = table.tobytes()
    if kind == "ascii":
        body = "".join(" ".join(map(str, row)) + "\n" for row in table.tolist()).encode()
    path = write("m.pcd", PCD.format(3, 2, 6, kind).encode() + body)
    shape = load(path)
    assert shape.pos[:, 0].tolist() == [1, 2, 3, 5]
    assert shape.i.tolist() == [10, 20, 30, 50]
    assert shape.dropped == 2
    assert "2 of 6 points left out" in shape.notes[-1]
    whole = load(path, allow_nonfinite=True)
    assert (len(whole.pos), whole.dropped) == (6, 0)
    assert not any("left out" in note for note in whole.notes)
    table["z"] = number
    refused(
        write("n.pcd", PCD.format(3, 2, 6, "binary").encode() + table.tobytes()),
        "finite",
        "vertex 0",
    )


def test_gaps_of_an_xyz_are_left_out_and_those_of_other_texts_refused(write):
    text = "x y z heat\n0 0 1 5\nnan nan nan 6\n1 0 1 nan\n"
    shape = load(write("m.xyz", text))
    assert shape.pos.tolist() == [[0, 0, 1], [1, 0, 1]]
    assert shape.heat[0] == 5
    assert shape.heat[1].isnan(), "a scalar may be unknown"
    refused(write("m.txt", text), "line 3", "finite")


@pytest.mark.parametrize("more", [1, 3973])
def test_zero_bytes_behind_a_binary_pcd_are_padding(more, write):
    table = np.zeros(10, [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("i", "<u2")])
    table["x"] = np.arange(10)
    data = PCD.format(10, 1, 10, "binary").encode() + table.tobytes()
    shape = load(write("m.pcd", data + bytes(more)))
    assert shape.pos[:, 0].tolist() == list(range(10))
    assert shape.notes == (f"{more:,} zero bytes behind the points",)
    message = refused(
        write("m.pcd", data + bytes(more) + b"x"), f"got {more + 1} more", "correct the header"
    )
    assert "whole file" not in message
    refused(write("m.pcd", data[:-1]), "get the whole file")
