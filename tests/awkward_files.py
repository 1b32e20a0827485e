"""Twenty-four awkward files of each format that is parsed here, and what they hold: what a library
must read as well.

A file is right if its points and triangles are read by value, polygons cut into fans, or if it is
refused where it is damaged. ``also`` are numbers of one more property.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

SQUARE = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
HALVES = [[0, 1, 2], [0, 2, 3]]
PENTAGON = [*SQUARE, [-1, 0.5, 0]]
FAN = [[0, 1, 2], [0, 2, 3], [0, 3, 4]]


@dataclass(frozen=True)
class Awkward:
    """One file; ``pos`` is None where it is to be refused."""

    name: str
    data: bytes
    pos: Any = None
    face: Any = ()
    also: tuple[str, Any] | None = None


def _good(name: str, text: str | bytes, pos: Any, face: Any = (), also: Any = None) -> Awkward:
    return Awkward(name, text if isinstance(text, bytes) else text.encode(), pos, face, also)


def _bad(name: str, text: str | bytes) -> Awkward:
    return Awkward(name, text if isinstance(text, bytes) else text.encode())


def rows(points: Any, more: str = "") -> str:
    """A line for each point."""
    return "".join(" ".join(map(str, point)) + f"{more}\n" for point in points)


_XYZ = "property float x\nproperty float y\nproperty float z\n"
_LIST = "property list uchar int vertex_indices\n"


def _ply(
    faces: int,
    *,
    kind: str = "ascii",
    vertex: str = _XYZ,
    face: str = _LIST,
    num: int = 4,
    end: str = "",
) -> str:
    return (
        f"ply\nformat {kind} 1.0\nelement vertex {num}\n{vertex}element face "
        f"{faces}\n{face}{end}end_header\n"
    )


def ply() -> list[Awkward]:
    """PLY."""
    text = _ply(2) + rows(SQUARE) + "3 0 1 2\n3 0 2 3\n"
    big, small = "binary_big_endian", "binary_little_endian"
    points = {order: struct.pack(f"{order}12f", *np.ravel(SQUARE)) for order in "<>"}
    halves = struct.pack("<B3iB3i", 3, 0, 1, 2, 3, 0, 2, 3)
    packed = _ply(2, kind=small).encode() + points["<"] + halves
    mixed = struct.pack(">iB4iiB3i", 5, 4, 0, 1, 2, 3, 6, 3, 0, 1, 2)
    numbered = (
        _ply(2, kind=big, face="property int region\n" + _LIST).encode() + points[">"] + mixed
    )
    odd = "property uchar a\nproperty ushort b\n" + _XYZ
    one = f"ply\nformat {big} 1.0\nelement vertex 1\n{odd}end_header\n".encode() + struct.pack(
        ">BH3f", 7, 258, 0, 1, 2
    )
    first = (
        f"ply\nformat ascii 1.0\nelement face 1\n{_LIST}element vertex 3\n{_XYZ}end_header\n3 "
        "0 1 2\n"
    )
    turned = "property float z\nproperty float y\nproperty float x\n"
    tex = _ply(1, face=_LIST + "property list uchar float texcoord\n", num=3)
    stamp = _ply(0, vertex=_XYZ + "property double t\n", num=1)
    return [
        _good("lines end in CR LF", text.replace("\n", "\r\n"), SQUARE, HALVES),
        _good("lines end in CR", text.replace("\n", "\r"), SQUARE, HALVES),
        _good("tabs", text.replace(" 0 1 2", "\t0\t1\t2"), SQUARE, HALVES),
        _good("blanks at ends of lines", text.replace("3 0 1 2\n", " 3 0 1 2  \n"), SQUARE, HALVES),
        _good("no end of the last line", text.rstrip(), SQUARE, HALVES),
        _good(
            "blank lines between rows", text.replace("3 0 1 2\n", "\n3 0 1 2\n\n"), SQUARE, HALVES
        ),
        _good(
            "comments and obj_info",
            text.replace("element face", "comment a b\nobj_info 3\nelement face"),
            SQUARE,
            HALVES,
        ),
        _good(
            "z before x", _ply(0, vertex=turned, num=2) + "3 2 1\n6 5 4\n", [[1, 2, 3], [4, 5, 6]]
        ),
        _good("faces before vertices", first + rows(SQUARE[:3]), SQUARE[:3], HALVES[:1]),
        _good(
            "big endian, numbers before polygons",
            numbered,
            SQUARE,
            [*HALVES, HALVES[0]],
            ("face_region", [5, 5, 6]),
        ),
        _good("one row of odd width", one, [[0, 1, 2]], (), ("b", [258])),
        _good(
            "texture by corner",
            f"{tex}{rows(SQUARE[:3])}3 0 1 2 6 0 0 1 0 1 1\n",
            SQUARE[:3],
            HALVES[:1],
        ),
        _good("a scalar that is NaN", f"{stamp}1 2 3 nan\n", [[1, 2, 3]], (), ("t", [np.nan])),
        _good("an empty list of faces", _ply(0) + rows(SQUARE), SQUARE),
        _bad("a face of vertex 9 of 4", text.replace("3 0 2 3", "3 0 2 9")),
        _bad("a negative corner", text.replace("3 0 2 3", "3 0 -2 3")),
        _bad("a number too many in a row", text.replace("1 1 0\n", "1 1 0 7\n")),
        _bad("rows too many", text + "3 0 1 3\n"),
        _bad("bytes too many", packed + b"\0" * 13),
        _bad("bytes too few", packed[:-2]),
        _bad("300 in a byte", _ply(0, vertex=_XYZ + "property uchar red\n", num=1) + "1 2 3 300\n"),
        _bad(
            "a fraction in an integer",
            _ply(0, vertex=_XYZ + "property int a\n", num=1) + "1 2 3 0.5\n",
        ),
        _bad("a property twice", _ply(0, vertex=_XYZ + "property float x\n", num=1) + "1 2 3 4\n"),
        _bad("infinite coordinates", text.replace("1 1 0\n", "1 inf 0\n")),
    ]


def _v(points: Any = SQUARE, keyword: str = "v") -> str:
    return "".join(f"{keyword} {' '.join(map(str, point))}\n" for point in points)


def obj() -> list[Awkward]:
    """OBJ."""
    text = _v() + "f 1 2 3\nf 1 3 4\n"
    tables = (
        _v() + _v([[0, 0], [1, 0], [1, 1], [0.5, 0.5]], "vt") + _v([[0, 0, 1], [0, 1, 0]], "vn")
    )
    seam = tables + "f 1/1/1 2/2/1 3/3/1\nf 1/4/2 3/3/2 4/1/2\n"
    return [
        _good("lines end in CR LF", text.replace("\n", "\r\n"), SQUARE, HALVES),
        _good("double blanks", text.replace(" ", "  "), SQUARE, HALVES),
        _good("tabs", text.replace(" ", "\t"), SQUARE, HALVES),
        _good(
            "a line goes on after a backslash",
            text.replace("f 1 2 3", "f 1 2 \\\n 3"),
            SQUARE,
            HALVES,
        ),
        _good(
            "a comment behind a face", text.replace("f 1 2 3", "f 1 2 3 # first"), SQUARE, HALVES
        ),
        _good("indices from the end", text.replace("f 1 3 4", "f -4 -2 -1"), SQUARE, HALVES),
        _good(
            "indices from the end, vertices behind",
            _v(SQUARE[:3]) + "f -3 -2 -1\n" + _v(SQUARE[3:]),
            SQUARE,
            HALVES[:1],
        ),
        _good("a pentagon", _v(PENTAGON) + "f 1 2 3 4 5\n", PENTAGON, FAN),
        _good(
            "a quadrangle and a triangle",
            text.replace("f 1 2 3\n", "f 1 2 3 4\n"),
            SQUARE,
            [*HALVES, [0, 2, 3]],
        ),
        _good("texture and normals", tables + "f 1/1/1 2/2/1 3/3/1\n", SQUARE, HALVES[:1]),
        _good("normals alone", tables + "f 1//1 2//1 3//1\nf 1//1 3//1 4//1\n", SQUARE, HALVES),
        _good("seams", seam, SQUARE, HALVES),
        _good("one vertex of no face", text + "v 9 9 9\n", [*SQUARE, [9, 9, 9]], HALVES),
        _good("faces before their vertices", "f 1 2 3\nf 1 3 4\n" + _v(), SQUARE, HALVES),
        _good(
            "two objects",
            _v(SQUARE[:3]) + "o a\nf 1 2 3\no b\n" + _v(SQUARE[3:]) + "f 1 3 4\n",
            SQUARE,
            HALVES,
        ),
        _good(
            "colours",
            "".join(f"v {' '.join(map(str, p))} 1 0 0\n" for p in SQUARE) + "f 1 2 3\n",
            SQUARE,
            HALVES[:1],
        ),
        _good("points alone", _v(), SQUARE),
        _bad("index 0", text.replace("f 1 3 4", "f 0 3 4")),
        _bad("index 9 of 4", text.replace("f 1 3 4", "f 1 3 9")),
        _bad("index -9 of 4", text.replace("f 1 3 4", "f 1 3 -9")),
        _bad("texture 9 of 4", tables + "f 1/1 2/2 3/9\n"),
        _bad("a face of two corners", text.replace("f 1 3 4", "f 1 3")),
        _bad("a word for a number", text.replace("v 1 1 0", "v 1 one 0")),
        _bad("a coordinate that is NaN", text.replace("v 1 1 0", "v 1 nan 0")),
    ]


def off() -> list[Awkward]:
    """OFF."""
    faces = "3 0 1 2\n3 0 2 3\n"
    text = "OFF\n4 2 0\n" + rows(SQUARE) + faces
    red, up = rows(SQUARE, " 255 0 0"), rows(SQUARE, " 0 0 1")
    normals = ("normal", [[0, 0, 1]] * 4)
    return [
        _good("lines end in CR LF", text.replace("\n", "\r\n"), SQUARE, HALVES),
        _good("comments between lines", text.replace("3 0 2", "# second\n3 0 2"), SQUARE, HALVES),
        _good("a comment above the header", "# by hand\n" + text, SQUARE, HALVES),
        _good(
            "a comment behind numbers", text.replace("1 1 0\n", "1 1 0 # corner\n"), SQUARE, HALVES
        ),
        _good("counts beside the header", text.replace("OFF\n", "OFF "), SQUARE, HALVES),
        _good("no number of edges", text.replace("4 2 0", "4 2"), SQUARE, HALVES),
        _good("blank lines", text.replace("\n", "\n\n"), SQUARE, HALVES),
        _good("tabs", text.replace(" ", "\t"), SQUARE, HALVES),
        _good("exponents", text.replace("1 1 0\n", "1e0 1.0E+0 0\n"), SQUARE, HALVES),
        _good("a pentagon", "OFF\n5 1 0\n" + rows(PENTAGON) + "5 0 1 2 3 4\n", PENTAGON, FAN),
        _good("one quadrangle", "OFF\n4 1 0\n" + rows(SQUARE) + "4 0 1 2 3\n", SQUARE, HALVES),
        _good(
            "colours of faces",
            text.replace("3 0 1 2\n3 0 2 3", "3 0 1 2 0.5 0 0\n3 0 2 3 0 1 0"),
            SQUARE,
            HALVES,
            ("face_color", [[0.5, 0, 0], [0, 1, 0]]),
        ),
        _good("COFF", f"COFF\n4 2 0\n{red}{faces}", SQUARE, HALVES, ("color", [[1, 0, 0]] * 4)),
        _good("NOFF", f"NOFF\n4 2 0\n{up}{faces}", SQUARE, HALVES, normals),
        _good(
            "colours that the header does not name",
            f"OFF\n4 2 0\n{red}{faces}",
            SQUARE,
            HALVES,
            ("color", [[1, 0, 0]] * 4),
        ),
        _good("no faces", "OFF\n4 0 0\n" + rows(SQUARE), SQUARE),
        _bad("index 9 of 4", text.replace("3 0 2 3", "3 0 2 9")),
        _bad("a negative index", text.replace("3 0 2 3", "3 0 2 -1")),
        _bad("a fraction as an index", text.replace("3 0 2 3", "3 0 2 1.5")),
        _bad("a line too few", text.replace("3 0 2 3\n", "")),
        _bad("lines too many", text + "3 0 1 3\n"),
        _bad("a vertex of two numbers", text.replace("1 1 0\n", "1 1\n")),
        _bad("a coordinate that is NaN", text.replace("1 1 0\n", "1 nan 0\n")),
        _bad("four dimensions", text.replace("OFF", "4OFF")),
    ]


def _facet(corners: Any, normal: str = "0 0 1") -> str:
    lines = "".join(f"  vertex {' '.join(map(str, corner))}\n" for corner in corners)
    return f"facet normal {normal}\n outer loop\n{lines} endloop\nendfacet\n"


def stl() -> list[Awkward]:
    """STL."""
    corners = [[SQUARE[at] for at in half] for half in HALVES]
    body = "".join(map(_facet, corners))
    text = f"solid a\n{body}endsolid a\n"
    facets = b"".join(struct.pack("<12fH", 0, 0, 1, *np.ravel(corner), 0) for corner in corners)
    packed = b"solid, as some programs begin".ljust(80) + struct.pack("<I", 2) + facets
    high = np.array(SQUARE) + 1
    second = "".join(_facet([high[at].tolist() for at in half]) for half in HALVES[:1])
    both = [*SQUARE, *high[:3].tolist()]
    return [
        _good("lines end in CR LF", text.replace("\n", "\r\n"), SQUARE, HALVES),
        _good("capitals", text.upper().replace("1E", "1e"), SQUARE, HALVES),
        _good("tabs", text.replace("  ", "\t"), SQUARE, HALVES),
        _good("no name", text.replace(" a\n", "\n"), SQUARE, HALVES),
        _good("a solid called vertex", text.replace(" a\n", " vertex\n"), SQUARE, HALVES),
        _good(
            "a solid called facet normal", text.replace(" a\n", " facet normal 1\n"), SQUARE, HALVES
        ),
        _good("two solids", f"{text}solid b\n{second}endsolid b\n", both, [*HALVES, [4, 5, 6]]),
        _good("exponents", text.replace("vertex 1 1 0", "vertex 1.0e+00 1E0 0"), SQUARE, HALVES),
        _good("blank lines", text.replace("endfacet\n", "endfacet\n\n"), SQUARE, HALVES),
        _good(
            "normals that are no numbers",
            text.replace("normal 0 0 1", "normal nan nan nan"),
            SQUARE,
            HALVES,
        ),
        _good("no end of the last line", text.rstrip(), SQUARE, HALVES),
        _good("binary that begins with solid", packed, SQUARE, HALVES),
        _good(
            "a number in each facet",
            packed[:-2] + b"\5\1",
            SQUARE,
            HALVES,
            ("face_attribute", [0, 261]),
        ),
        _good(
            "-0 and 0 are one place",
            text.replace("vertex 0 0 0", "vertex -0.0 0 0", 1),
            SQUARE,
            HALVES,
        ),
        _bad("a facet of two vertices", text.replace("  vertex 1 1 0\n", "", 1)),
        _bad(
            "a facet of four vertices",
            text.replace("  vertex 1 1 0\n", "  vertex 1 1 0\n  vertex 2 2 0\n", 1),
        ),
        _bad(
            "a facet of wrong words",
            f"solid a\n{body}{_facet(corners[0]).replace('vertex', 'vertx')}endsolid a\n",
        ),
        _bad("the end is missing", text.replace("endsolid a\n", "")),
        _bad("cut in a facet", text[: len(text) * 2 // 3]),
        _bad("bytes too few", packed[:-7]),
        _bad("bytes too many", packed + b"\0" * 9),
        _bad(
            "a count of facets that is too large",
            packed[:80] + struct.pack("<I", 1 << 31) + packed[84:],
        ),
        _bad("a coordinate that is NaN", text.replace("vertex 1 1 0", "vertex 1 nan 0")),
        _bad("a word for a number", text.replace("vertex 1 1 0", "vertex 1 one 0")),
    ]


def _pcd(
    form: str, num: int, *, more: tuple[str, str, str, str] = ("", "", "", ""), width: str = ""
) -> str:
    name, size, kind, count = (f" {word}" if word else "" for word in more)
    shape = width or f"WIDTH {num}\nHEIGHT 1"
    head = (
        f"# .PCD v0.7\nVERSION 0.7\nFIELDS x y z{name}\nSIZE 4 4 4{size}\nTYPE F F "
        f"F{kind}\nCOUNT 1 1 1{count}\n"
    )
    return f"{head}{shape}\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {num}\nDATA {form}\n"


def pcd() -> list[Awkward]:
    """PCD."""
    text = _pcd("ascii", 4) + rows(SQUARE)
    points = np.array(SQUARE, "<f4")
    packed = _pcd("binary", 4).encode() + points.tobytes()
    pairs = np.arange(8, dtype="<u2").reshape(4, 2)
    planes = b"".join(points[:, k].tobytes() for k in range(3)) + pairs.tobytes()
    squeezed = bytes([31]) + planes[:32] + bytes([31]) + planes[32:]
    squeezed = struct.pack("<II", len(squeezed), len(planes)) + squeezed
    wide = ("d", "2", "U", "2")
    table = np.zeros(4, [("pos", "<f4", 3), ("gap", "<u1", 4), ("i", "<u2")])
    table["pos"] = SQUARE
    table["i"] = range(4)
    padded = _pcd("binary", 4, more=("_ i", "1 2", "U U", "4 1")).encode() + table.tobytes()
    time = 1_700_000_000_123_456_789
    rgb = np.array([0x00FF0033] * 4, "<u4").view("<f4")
    color = _pcd("ascii", 4, more=("rgb", "4", "F", "1")) + rows(
        np.column_stack((points, rgb)).tolist()
    )
    return [
        _good("lines end in CR LF", text.replace("\n", "\r\n"), SQUARE),
        _good("no line COUNT", text.replace("COUNT 1 1 1\n", ""), SQUARE),
        _good("no line VERSION", text.replace("VERSION 0.7\n", ""), SQUARE),
        _good("version 0.6", text.replace("0.7", "0.6"), SQUARE),
        _good("tabs between numbers", _pcd("ascii", 4) + rows(SQUARE).replace(" ", "\t"), SQUARE),
        _good(
            "double blanks between numbers",
            _pcd("ascii", 4) + rows(SQUARE).replace(" ", "  "),
            SQUARE,
        ),
        _good("blanks at ends of lines", _pcd("ascii", 4) + rows(SQUARE, " "), SQUARE),
        _good("comments in the header", text.replace("WIDTH", "# by hand\nWIDTH"), SQUARE),
        _good("one point", _pcd("ascii", 1) + "1 2 3\n", [[1, 2, 3]]),
        _good("an organised cloud", text.replace("WIDTH 4\nHEIGHT 1", "WIDTH 2\nHEIGHT 2"), SQUARE),
        _good("padding between fields", padded, SQUARE, (), ("i", [0, 1, 2, 3])),
        _good(
            "pairs in a compressed file",
            _pcd("binary_compressed", 4, more=wide).encode() + squeezed,
            SQUARE,
            (),
            ("d", pairs),
        ),
        _good(
            "times in nanoseconds",
            _pcd("ascii", 1, more=("t", "8", "U", "1")) + f"1 2 3 {time}\n",
            [[1, 2, 3]],
            (),
            ("t", [time]),
        ),
        _good("colours packed in a float", color, SQUARE, (), ("color", [[1, 0, 0.2]] * 4)),
        _good("a page of zeros behind the points", packed + bytes(3000), SQUARE),
        _bad("a line too few", _pcd("ascii", 4) + rows(SQUARE[:3])),
        _bad("a line too many", text + "5 5 5\n"),
        _bad("a point too few", packed[:-12]),
        _bad("bytes too few", packed[:-5]),
        _bad("bytes too many", packed + b"more"),
        _bad(
            "sizes that do not fit",
            _pcd("binary_compressed", 4).encode() + struct.pack("<II", 3, 49) + b"\1ab",
        ),
        _bad("WIDTH times HEIGHT is not POINTS", text.replace("WIDTH 4", "WIDTH 3")),
        _bad("fewer sizes than fields", text.replace("SIZE 4 4 4", "SIZE 4 4")),
        _bad("a row of two numbers", text.replace("1 1 0\n", "1 1\n")),
    ]


def text() -> list[Awkward]:
    """XYZ, CSV and the like."""
    plain = rows(SQUARE)
    commas = plain.replace(" ", ",")
    heat = ("heat", [5, 6, 7, 8])
    cells = [f"{x} {y} {z} {h}" for (x, y, z), h in zip(SQUARE, heat[1], strict=True)]
    hot = "\n".join(cells) + "\n"
    halves = [[0, 0, 0.5], [1.5, 0, 1]]
    return [
        _good("lines end in CR LF", plain.replace("\n", "\r\n"), SQUARE),
        _good("names on the first line", "x y z heat\n" + hot, SQUARE, (), heat),
        _good("names in a comment", "# x y z heat\n" + hot, SQUARE, (), heat),
        _good("names of CloudCompare", "//X Y Z heat\n" + hot, SQUARE, (), heat),
        _good("names in quotes", '"x","y","z","heat"\n' + hot.replace(" ", ","), SQUARE, (), heat),
        _good(
            "names in another order",
            "heat z y x\n5 0 0 0\n6 0 0 1\n",
            [[0, 0, 0], [1, 0, 0]],
            (),
            ("heat", [5, 6]),
        ),
        _good("a count on the first line", "4\n" + plain, SQUARE),
        _good("commas and blanks", commas.replace(",", ", "), SQUARE),
        _good("commas between some, blanks between others", commas.replace(",", " ", 3), SQUARE),
        _good("semicolons and decimal commas", "0;0;0,5\n1,5;0;1\n", halves),
        _good("semicolons and decimal points", "0;0;0.5\n1.5;0;1\n", halves),
        _good("tabs", plain.replace(" ", "\t"), SQUARE),
        _good("a mark of the order of bytes", b"\xef\xbb\xbf" + plain.encode(), SQUARE),
        _good(
            "blank lines and comments",
            plain.replace("1 1 0\n", "\n# corner\n1 1 0 # here\n"),
            SQUARE,
        ),
        _good(
            "a scalar that is NaN",
            "x y z heat\n" + hot.replace("8", "nan"),
            SQUARE,
            (),
            ("heat", [5, 6, 7, np.nan]),
        ),
        _bad("rows of unequal length", plain.replace("1 1 0\n", "1 1 0 4\n")),
        _bad("a word for a number", plain.replace("1 1 0\n", "1 one 0\n")),
        _bad("an empty cell", commas.replace("1,1,0\n", "1,,0\n")),
        _bad("names alone", "x y z\n"),
        _bad("one number on each line", "1\n2\n3\n"),
        _bad("a count that is wrong", "5\n" + plain),
        _bad("a name twice", "x y z z\n" + hot),
        _bad("a coordinate that is NaN", plain.replace("1 1 0\n", "1 nan 0\n")),
        _bad("UTF-16", plain.encode("utf-16")),
    ]


FILES = {".ply": ply(), ".obj": obj(), ".off": off(), ".stl": stl(), ".pcd": pcd(), ".csv": text()}
