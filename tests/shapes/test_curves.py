"""Curves and trees: lines of files are edges, in both directions, and go back into files."""

import base64
import json
import zlib

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import from_networkx, is_undirected

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.shapes import RandomDrop, RandomMirror, Shape, ShapeFolder
from graphattn.training.reading.placing import sampled

NEURON = """# of a pyramidal cell
1 1 0 0 0 1 -1
4 3 2 0 0 .5 3
3 3 1 0 0 .5 1
9 3 1 1 0 .5 3
"""


def pairs(shape):
    """The undirected edges of a shape."""
    assert is_undirected(shape.edge_index)
    return sorted({tuple(sorted(edge)) for edge in shape.edge_index.T.tolist()})


def loaded(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return ga.load(path)


def test_a_neuron_is_a_tree(tmp_path):
    shape = loaded(tmp_path, "a.swc", NEURON)
    assert shape.parent.tolist() == [-1, 2, 0, 2]
    assert pairs(shape) == [(0, 2), (1, 2), (2, 3)]
    assert "edge_vertex1" not in shape  # lines without properties are edges alone
    assert shape.type.tolist() == [1, 3, 3, 3]
    assert shape.radius.tolist() == [1, 0.5, 0.5, 0.5]
    assert shape.notes == ("1 point comes before their parent",)
    up = ga.graphs.tree(shape.parent)
    assert ga.graphs.mesh_vertices(shape.edge_index.T, 4).equals(up)


@pytest.mark.parametrize(
    ("rows", "line", "got"),
    [
        ("1 1 0 0 0 1 2\n2 1 0 0 1 1 1", 1, "a cycle through the point 1"),
        ("1 1 0 0 0 1 -1\n2 1 0 0 1 1 5", 2, "5"),
        ("1 1 0 0 0 1 -1\n1 1 0 0 1 1 1", 2, "1 a second time"),
        ("1 1 0 0 0 1", 1, "6 numbers"),
        ("1 1 0 0 0 nan -1", 1, r"'nan'\. Try: repair it; load\(\.\.\., allow_nonfinite=True\)"),
    ],
)
def test_no_tree(rows, line, got, tmp_path):
    with pytest.raises(LoaderError, match=f"line {line}: .*got {got}"):
        loaded(tmp_path, "a.swc", rows + "\n")


def test_lines_of_an_obj(tmp_path):
    text = "v 0 0 0\nv 1 0 0\nv 2 0 0\nl 1 2 3\nv 9 0 0\nl -1 -4\n"
    assert pairs(loaded(tmp_path, "a.obj", text)) == [(0, 1), (0, 3), (1, 2)]
    with pytest.raises(LoaderError, match="line 2, line element 0: vertex 2 of 1"):
        loaded(tmp_path, "b.obj", "v 0 0 0\nl 1 2\n")


def test_lines_beside_faces_are_no_edges_of_the_mesh(tmp_path):
    text = "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\nl 1 2\n"
    shape = loaded(tmp_path, "a.obj", text)
    assert "edge_index" not in shape
    assert shape.notes == ("statements left out: 1 l",)


def test_points_in_order(tmp_path):
    text = "x,y,order,curve,closed\n0,0,0,7,1\n1,1,2,7,1\n1,0,1,7,1\n5,5,1,8,0\n4,4,0,8,0\n"
    assert pairs(loaded(tmp_path, "a.csv", text)) == [(0, 1), (0, 2), (1, 2), (3, 4)]
    alone = loaded(tmp_path, "b.csv", "x,y,order\n0,0,2\n1,1,0\n2,2,1\n")
    assert pairs(alone) == [(0, 2), (1, 2)]
    any_case = loaded(tmp_path, "c.csv", "X,Y,Order,Closed\n0,0,0,1\n1,0,1,1\n1,1,2,1\n")
    assert pairs(any_case) == [(0, 1), (0, 2), (1, 2)]
    loose = loaded(tmp_path, "c.csv", "x,y,closed\n0,0,1\n1,0,1\n")
    assert loose.notes == ("closed makes no lines without a column order",)
    assert list(loaded(tmp_path, "d.obj", "v 0 0 0\nv 1 0 0\np 1 2\n").keys()) == ["pos"]


@pytest.mark.parametrize(
    ("rows", "line", "got"),
    [
        ("0,0,1,0,0\n1,1,0,0,0\n2,2,1,0,0", 4, "order 1, "),
        ("0,0,nan,0,0\n1,0,1,0,0", 2, "order nan, "),
        ("0,0,0,0,0\n1,0,inf,0,0", 3, "order inf, "),
        ("0,0,0,0,0\n1,0,1,nan,0", 3, "order 1, closed 0 in curve nan"),
        ("0,0,0,0,1\n1,0,1,0,0\n1,1,2,0,1", 3, "order 1, closed 0 in"),
        ("0,0,0,0,2\n1,0,1,0,2\n1,1,2,0,2", 2, "order 0, closed 2 in"),
        ("0,0,0,0,0\n1,0,1,5,nan", 3, "order 1, closed nan in curve 5"),
    ],
)
def test_no_order(rows, line, got, tmp_path):
    with pytest.raises(LoaderError, match=rf"line {line}: expected in each curve .* got {got}"):
        loaded(tmp_path, "a.csv", f"x,y,order,curve,closed\n{rows}\n")


def test_the_first_repeated_point_is_warned_of(tmp_path):
    text = "x,y,order\n0,0,1\n1,1,2\n1,1,3\n1,1,4\n2,1,5\n"
    with pytest.warns(UserWarning, match=r"a\.csv: 2 edges have no length, the first at line 4"):
        shape = loaded(tmp_path, "a.csv", text)
    assert shape.notes == ("2 edges have no length, the first at line 4: leave repeats out",)
    assert pairs(shape) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    with pytest.warns(UserWarning, match=r"1 edge has no length, the first at line 4"):
        loaded(tmp_path, "a.swc", NEURON.replace("2 0 0 .5", "1 0 0 .5"))


def test_a_folder_warns_once_of_repeated_points(tmp_path):
    text = "x,y,order\n0,0,1\n1,1,2\n{},1,3\n"
    for number in range(4):
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        path = tmp_path / "ab"[number % 2] / f"{number}.csv"
        path.write_text(text.format(1 + number % 3), encoding="utf-8")
    with pytest.warns(
        UserWarning, match=r"^a/0\.csv: 1 edge .* line 4.* \(2 of 4 files\)$"
    ) as seen:
        ShapeFolder(tmp_path)
    assert len(seen) == 1


def test_a_closed_curve_has_its_first_point_once(tmp_path):
    text = "x,y,order,curve,closed,heat\n0,0,0,7,1,5\n1,0,1,7,1,6\n1,1,2,7,1,7\n0,0,3,7,1,5\n"
    shape = loaded(tmp_path, "a.csv", f"{text}3,3,0,8,0,1\n4,3,1,8,0,2\n3,3,2,8,0,3\n")
    assert pairs(shape) == [(0, 1), (0, 2), (1, 2), (3, 4), (4, 5)]
    assert shape.heat.tolist() == [5, 6, 7, 1, 2, 3]
    assert shape.notes == ("1 point left out, at which a closed curve repeats its first",)
    with pytest.raises(
        LoaderError, match=r"line 6, vertex 3: expected finite"
    ):  # lines of the file
        loaded(tmp_path, "b.csv", f"{text}nan,3,0,8,0,1\n")


def test_lines_of_a_map(tmp_path):
    ring = [[0, 0], [1, 0], [1, 1], [0, 0]]
    features = [
        {"type": "Polygon", "coordinates": [ring]},
        {"type": "MultiLineString", "coordinates": [[[5, 5, 2], [6, 5, 3]]]},
        {"type": "Point", "coordinates": [8, 8]},
    ]
    features = [{"type": "Feature", "properties": {}, "geometry": one} for one in features]
    text = json.dumps({"type": "FeatureCollection", "features": features})
    shape = loaded(tmp_path, "a.geojson", text)
    assert pairs(shape) == [(0, 1), (0, 2), (1, 2), (3, 4)]
    assert shape["curve"].tolist() == [0, 0, 0, 1, 1, 2]
    assert shape.pos[:, 2].tolist() == [0, 0, 0, 2, 3, 0]
    for broken in ({"type": "FeatureCollection"}, {"type": "LineString"}, {"type": "Line"}, []):
        with pytest.raises(LoaderError, match="geojson: expected"):
            loaded(tmp_path, "c.geojson", json.dumps(broken))
    features[1]["geometry"] = {"type": "Polygon", "coordinates": [ring[:3]]}
    opened = json.dumps({"type": "FeatureCollection", "features": features})
    with pytest.raises(LoaderError, match=r"b\.geojson, features\[1\]: .* a ring of 4 positions"):
        loaded(tmp_path, "b.geojson", opened)
    assert shape.notes == ("x, y are longitude and latitude in degrees, as the format has them",)


@pytest.mark.parametrize(
    ("places", "doubt"),
    [
        ([[8, 49], [8.1, 49.2]], r"x are 1\.5 times shorter here: project them"),
        ([[8, -49], [8.1, -49]], r"x are 1\.5 times shorter here: project them"),
        ([[500000, 5400000], [500001, 5400000]], "not in degrees of WGS 84"),
        ([[8, 91], [8, 0]], "not in degrees of WGS 84"),
    ],
)
def test_places_that_no_distance_is_taken_of_are_warned_of(places, doubt, tmp_path):
    text = json.dumps({"type": "LineString", "coordinates": places})
    with pytest.warns(UserWarning, match=doubt):
        shape = loaded(tmp_path, "a.geojson", text)
    assert any("longitude" in note for note in shape.notes) == ("project" in doubt)


LEGACY = """# vtk DataFile Version {0}
a vessel
{1}
DATASET POLYDATA
POINTS 5 float
{2}
METADATA
INFORMATION 0

LINES {3}
CELL_DATA 2
SCALARS group int
LOOKUP_TABLE default
{4}
POINT_DATA 5
FIELD FieldData 1
Radius 1 5 double
{5}
"""
PLACES = np.arange(15.0).reshape(5, 3)
VESSEL = [(0, 1), (1, 3), (2, 4)]


def legacy(version, form):
    """A file of two lines, of 3 and of 2 points, with a radius."""
    is_binary = form == "BINARY"

    def values(numbers, code):
        text = np.array(numbers, f">{code}").tobytes().decode("latin-1")
        return text if is_binary else " ".join(map(str, np.ravel(numbers).tolist()))

    lines = f"2 7\n{values([3, 0, 1, 3, 2, 2, 4], 'i4')}"
    if version == "5.1":
        lines = f"3 5\nOFFSETS vtktypeint64\n{values([0, 3, 5], 'i8')}\n"
        lines += f"CONNECTIVITY vtktypeint64\n{values([0, 1, 3, 2, 4], 'i8')}"
    radius = values([1, 2, 3, 4, 5.5], "f8")
    text = LEGACY.format(version, form, values(PLACES, "f4"), lines, values([7, 8], "i4"), radius)
    return text.encode("latin-1")


@pytest.mark.parametrize("version", ["4.2", "5.1"])
@pytest.mark.parametrize("form", ["ASCII", "BINARY"])
def test_polylines_of_legacy_vtk(version, form, tmp_path):
    path = tmp_path / "a.vtk"
    data = legacy(version, form)
    path.write_bytes(data)
    shape = ga.load(path)
    assert pairs(shape) == VESSEL
    assert shape.pos.tolist() == PLACES.tolist()
    assert shape.Radius.tolist() == [1, 2, 3, 4, 5.5]
    assert shape.notes == ("left out: group",)
    for size in (10, data.index(b"float") + 20, data.index(b"LINES") + 12, len(data) - 5):
        path.write_bytes(data[:size])
        with pytest.raises(LoaderError, match="Try"):
            ga.load(path)
    path.write_bytes(data.replace(b"double", b"string"))
    with pytest.raises(LoaderError, match=r"expected numbers, got string\. Try: [^:]*$"):
        ga.load(path)
    path.write_bytes(data.replace(b"POLYDATA", b"UNSTRUCTURED_GRID"))
    with pytest.raises(LoaderError, match=r"line 4: .* got UNSTRUCTURED_GRID\. Try: .*meshio"):
        ga.load(path)


def piece(values, form):
    """A DataArray, and what is appended to the file for it."""
    data = values.tobytes()
    kind = {"i": "Int", "f": "Float"}[values.dtype.kind] + str(8 * values.itemsize)
    head = f'<DataArray type="{kind}" Name="{{}}" NumberOfComponents="{values[0].size}" '
    if form == "ascii":
        return f'{head}format="ascii">{" ".join(map(str, values.ravel().tolist()))}', b""
    packed = zlib.compress(data)
    header = np.array([1, 64, len(data), len(packed)], "<u4").tobytes()
    if form == "binary":
        text = base64.b64encode(header) + base64.b64encode(packed)
        return f'{head}format="binary">{text.decode()}', b""
    return f'{head}format="appended" offset="{{}}">', header + packed


@pytest.mark.parametrize("form", ["ascii", "binary", "appended"])
def test_polylines_of_vtp(form, tmp_path):
    arrays = {
        "PointData Radius": np.array([1, 2, 3, 4, 5.5]),
        "CellData group": np.array([7, 8]),
        "Points Points": PLACES.astype("f4"),
        "Lines connectivity": np.array([0, 1, 3, 2, 4]),
        "Lines offsets": np.array([3, 5]),
    }
    sections = {}
    appended = b""
    for name, values in arrays.items():
        section, label = name.split()
        text, more = piece(values, form)
        sections.setdefault(section, []).append(text.format(label, len(appended)) + "</DataArray>")
        appended += more
    body = "".join(f"<{name}>{''.join(texts)}</{name}>" for name, texts in sections.items())
    packing = 'compressor="vtkZLibDataCompressor"' * (form != "ascii")
    text = f'<VTKFile type="PolyData" {packing}><PolyData><Piece>{body}</Piece></PolyData>'
    data = text.encode() + b'<AppendedData encoding="raw">_' + appended + b"</AppendedData>"
    path = tmp_path / "a.vtp"
    path.write_bytes(data + b"</VTKFile>")
    shape = ga.load(path)
    assert pairs(shape) == VESSEL
    assert shape.pos.tolist() == PLACES.tolist()
    assert shape.Radius.tolist() == [1, 2, 3, 4, 5.5]
    assert shape.notes == ("left out: group",)
    path.write_bytes(b'<!DOCTYPE x [<!ENTITY e "e">]>' + data + b"</VTKFile>")
    with pytest.raises(LoaderError, match="XML without entities"):
        ga.load(path)
    path.write_bytes(data)
    with pytest.raises(LoaderError, match=r"a \.vtp file, got ParseError"):
        ga.load(path)
    if form == "appended":  # more blocks than there are sizes
        path.write_bytes(data.replace(b"_\1\0\0\0", b"_\1\0\0\1") + b"</VTKFile>")
        with pytest.raises(LoaderError, match=r"16777217 blocks, of which .* have a size"):
            ga.load(path)


TRIANGLE = """# vtk DataFile Version 4.2
a triangle
ASCII
DATASET POLYDATA
POINTS 3 float
0 0 0 1 0 0 0 1 0
POLYGONS 1 4
3 0 1 2
POINT_DATA 3
{}
0 0 1 0 0 1 0 0 1
"""


@pytest.mark.parametrize(
    "head", ["NORMALS up float", "VECTORS Normals float", "FIELD all 1\nNormals 3 3 float"]
)
def test_normals_of_vtk(head, tmp_path):
    assert loaded(tmp_path, "a.vtk", TRIANGLE.format(head)).normal.tolist() == [[0, 0, 1]] * 3


def test_normals_of_vtp_are_those_that_the_file_names(tmp_path):
    numbers = "".join(
        f'<{head}><DataArray type="Float32" Name="{name}" NumberOfComponents="3">{row}</DataArray>'
        f"</{head.split()[0]}>"
        for head, name, row in (
            ("Points", "Points", "0 1 2"),
            ('PointData Normals="up"', "up", "0 0 1"),
        )
    )
    text = f"<VTKFile><PolyData><Piece>{numbers}</Piece></PolyData></VTKFile>"
    for words in (text, text.replace('"up"', '"Normals"')):
        assert loaded(tmp_path, "a.vtp", words).normal.tolist() == [[0, 0, 1]]


LEG = """HIERARCHY
ROOT Hips
{
  OFFSET 9 9 9
  CHANNELS 6 Xposition Yposition Zposition Zrotation Xrotation Yrotation
  JOINT Knee
  {
    OFFSET 0 -2 0
    CHANNELS 3 Xrotation Zrotation Yrotation
    End Site
    {
      OFFSET 0 -1 0
    }
  }
}
MOTION
Frames: 2
Frame Time: 0.04
1 2 3 0 0 0 0 0 0
0 0 0 90 0 0 90 0 0
"""


def test_a_motion_is_a_tree_in_each_frame_and_joints_over_time(tmp_path):
    shape = loaded(tmp_path, "a.bvh", LEG)
    turned = [[0, 0, 0], [2, 0, 0], [2, 0, -1]]  # hips by z: down is along x; the knee by x
    expected = torch.tensor([[1, 2, 3], [1, 0, 3], [1, -1, 3], *turned]).float()
    torch.testing.assert_close(shape.pos, expected, atol=1e-6, rtol=0)
    assert pairs(shape) == [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    assert shape.frame.tolist() == [0, 0, 0, 1, 1, 1]
    assert shape.joint.tolist() == [0, 1, 2, 0, 1, 2]
    assert shape.notes == ("3 joints and tips: Hips, Knee, Knee tip", "2 frames, 0.04 s apart")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0 0 0 90 0 0 90 0 0", "0 0 0 90 0 0 90 0", "line 20: expected 9 numbers, .* got 8 numb"),
        ("0 0 0 90", "0 0 0 1e999", "line 20: expected finite numbers, got infinity"),
        ("Frames: 2", "Frames: 3", "line 16: expected 1 or more frames, 3 as .* got 2"),
        (
            LEG[LEG.index("Frames") :],
            "Frames: 0\nFrame Time: 1\n",
            "1 or more frames, 0 as the header says, got 0",
        ),
        ("JOINT Knee", "ROOT Knee\n  JOINT Toe", "line 7: expected a joint, got JOINT"),
        ("Zrotation Yrotation", "Zrotation Wrotation", "line 9: .* a channel Wrotation"),
        ("0 -2 0", "0 -2 x", "line 8: .* got OFFSET"),
        ("MOTION", "MOTIONS", "MOTION with Frames and Frame Time, got none"),
        ("  }\n}\nMOTION", "}\nMOTION", "braces are closed"),
    ],
)
def test_no_motion(old, new, words, tmp_path):
    with pytest.raises(LoaderError, match=words):
        loaded(tmp_path, "a.bvh", LEG.replace(old, new))


def test_motions_of_a_folder_have_one_skeleton(tmp_path):
    for name in ("run", "walk"):
        (tmp_path / name).mkdir()
        for number in range(2):
            (tmp_path / name / f"{number}.bvh").write_text(LEG)
    assert len(ShapeFolder(tmp_path)) == 4
    tip = "    End Site\n    {\n      OFFSET 0 -1 0\n    }\n"
    (tmp_path / "walk" / "1.bvh").write_text(LEG.replace(tip, ""))
    with pytest.raises(LoaderError, match=r"1.bvh: .* run/0.bvh, .* have joints \(2 numbers\)"):
        ShapeFolder(tmp_path)


def test_every_other_frame_keeps_its_lines(tmp_path):
    frames = 1 + torch.arange(9.0)
    rows = "".join(f"{frame} 0 0 0 0 0 0 0 0\n" for frame in frames.tolist())
    text = LEG.partition("Frames")[0] + f"Frames: 9\nFrame Time: 0.04\n{rows}"
    assert len(sampled(loaded(tmp_path, "a.bvh", text), 4).pos) == 3
    shape = sampled(loaded(tmp_path, "a.bvh", text), 16)
    assert shape.frame.tolist() == [0, 0, 0, 2, 2, 2, 4, 4, 4, 6, 6, 6, 8, 8, 8]
    assert shape.pos[:, 0].unique().tolist() == [1, 3, 5, 7, 9]
    step = (shape.pos[shape.edge_index[0]] - shape.pos[shape.edge_index[1]]).abs().sum(1)
    assert sorted(set(step.tolist())) == [1, 2]
    assert len(pairs(shape)) == 5 * 2 + 4 * 3


def test_columns_called_frame_and_joint_in_another_order_are_no_motion(tmp_path):
    rows = [
        f"{frame} {joint} 0 {frame} {joint} {joint}" for joint in range(3) for frame in range(4)
    ]
    shape = loaded(tmp_path, "a.txt", "\n".join(["x y z frame joint curve", *rows]))
    shape.edge_index = torch.tensor([[0, 1], [1, 0]])
    assert "edge_index" not in sampled(shape, 6)


def test_meshio_reads_no_polylines(tmp_path):
    meshio = pytest.importorskip("meshio")
    (tmp_path / "a.vtk").write_bytes(legacy("4.2", "ASCII"))
    with pytest.raises(SystemExit):
        meshio.read(tmp_path / "a.vtk")


def test_lines_of_another_library(tmp_path):
    trimesh = pytest.importorskip("trimesh")
    vertices = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
    path = trimesh.path.Path3D([trimesh.path.entities.Line([0, 1, 2, 3])], vertices)
    edges = path.entities[0].nodes
    rows = "".join(f"v {x} {y} {z}\n" for x, y, z in path.vertices)
    rows += "".join(f"l {a + 1} {b + 1}\n" for a, b in edges)
    assert pairs(loaded(tmp_path, "a.obj", rows)) == [
        tuple(sorted(edge)) for edge in edges.tolist()
    ]


@pytest.mark.parametrize("ending", ["ply", "obj", "npz"])
def test_edges_go_into_files_and_back(ending, tmp_path):
    graph = nx.random_labeled_tree(30, seed=1)
    edges = from_networkx(graph).edge_index
    shape = Data(pos=torch.rand(30, 3), edge_index=edges)
    ga.save(shape, tmp_path / f"a.{ending}")
    again = ga.load(tmp_path / f"a.{ending}")
    assert pairs(again) == pairs(shape)
    torch.testing.assert_close(again.pos, shape.pos)
    both = Batch.from_data_list([again, again])
    assert both.edge_index.shape == (2, 4 * 29)
    assert both.edge_index.max() == 59


def test_edges_in_one_direction_are_no_lines(tmp_path):
    shape = Data(pos=torch.rand(3, 3), edge_index=torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(LoaderError, match="in both directions"):
        ga.save(shape, tmp_path / "a.ply")


def test_edges_travel_through_augmentation(tmp_path):
    torch.manual_seed(0)
    ends = torch.stack((torch.arange(49), torch.arange(1, 50)))
    shape = Shape(
        pos=torch.arange(50.0)[:, None] * torch.ones(3),
        edge_index=torch.cat((ends, ends.flip(0)), 1),
    )
    shape = RandomDrop(0.5)(RandomMirror(p=1.0)(shape))
    assert len(shape.pos) < 50
    step = (shape.pos[shape.edge_index[0]] - shape.pos[shape.edge_index[1]]).abs()
    assert torch.equal(step, torch.ones_like(step))
    assert shape.edge_index.shape[1] > 0


def test_a_folder_of_curves_of_different_lengths(tmp_path):
    for number in range(4):
        size = 5 + number
        rows = "".join(f"{at},{at * number},0,{at}\n" for at in range(size))
        (tmp_path / f"{number}.csv").write_text("x,y,z,order\n" + rows, encoding="utf-8")
    table = "".join(f"{number}.csv,{'ab'[number % 2]}\n" for number in range(4))
    (tmp_path / "labels.csv").write_text(table, encoding="utf-8")
    folder = ShapeFolder(tmp_path)
    assert [folder[at].edge_index.shape[1] for at in range(4)] == [8, 10, 12, 14]
