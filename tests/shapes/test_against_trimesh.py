"""The same meshes as trimesh reads; and where a library of the field reads a file as something
else.
"""

import json
from itertools import pairwise

import meshio
import numpy as np
import plyfile
import pytest
import torch
import trimesh

import graphattn as ga
from graphattn.errors import LoaderError

SOLIDS = [
    trimesh.creation.icosphere(1),
    trimesh.creation.box(extents=(1, 2, 3)),
    trimesh.creation.cylinder(0.5, 2.0, sections=9),
    trimesh.creation.torus(2.0, 0.5, 8, 5),
    trimesh.creation.cone(1.0, 2.0, sections=7),
]
KINDS = ["off", "obj", "ply", "ply_ascii", "stl", "stl_ascii", "glb", "gltf", "ply", "obj"]


@pytest.mark.parametrize("kind", dict.fromkeys(KINDS))
def test_fifty_generated_files_are_what_trimesh_reads(kind, tmp_path):
    for number, solid in enumerate(SOLIDS * KINDS.count(kind)):
        mesh = solid.copy()
        mesh.apply_transform(
            trimesh.transformations.random_rotation_matrix(np.random.default_rng(number).random(3))
        )
        path = tmp_path / f"{number}.{kind[:3] if kind != 'gltf' else kind}"
        if kind == "gltf":
            files = trimesh.exchange.gltf.export_gltf(trimesh.Scene(mesh))
            for name, data in files.items():
                (tmp_path / (path.name if name == "model.gltf" else name)).write_bytes(data)
        else:
            options = {"encoding": "ascii"} if kind == "ply_ascii" else {}
            mesh.export(path, file_type=kind if kind == "stl_ascii" else None, **options)
        theirs = trimesh.load(path, process=False, force="mesh")
        ours = ga.load(path)
        want = theirs.triangles.astype(np.float32)  # numbers of a text are float32
        assert torch.equal(ours.pos[ours.face.T], torch.from_numpy(want))
        if kind[:3] == "stl":
            assert len(ours.pos) == len(solid.vertices)
            assert f"{3 * len(solid.faces) - len(solid.vertices):,} corners joined" in ours.notes[0]
        else:
            assert torch.equal(ours.face.T, torch.from_numpy(np.asarray(theirs.faces)))


def triangle(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_trimesh_takes_index_0_of_an_obj_for_the_last_vertex_and_meshio_counts_on(tmp_path):
    path = triangle(tmp_path / "a.obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 0 1 2\n")
    assert len(trimesh.load(path, process=False).faces) == 1
    with pytest.raises(LoaderError, match="line 4, face 0: vertex 0 of 3"):
        ga.load(path)
    triangle(path, "v 0 0 0\nv 1 0 0\nv 0 1 0\nf -3 -2 -1\n")
    assert meshio.read(path).cells[0].data.min() < 0
    assert ga.load(path).face.T.tolist() == [[0, 1, 2]]


def test_an_obj_keeps_its_vertices_and_its_seams(tmp_path):
    """A square of two triangles that share a side, on which the texture is cut."""
    text = "".join(
        f"v {x} {y} 0 1 0 {min(x, 1)}\n" for x, y in ((0, 0), (1, 0), (1, 1), (0, 1), (5, 5))
    )
    text += "".join(f"vt {u} {v}\n" for u, v in ((0, 0), (1, 0), (1, 1), (0, 1), (0.5, 0.5)))
    text += "vn 0 0 1\nf 1/1/1 2/2/1 3/3/1\nf 1/5/1 3/3/1 4/4/1\n"
    square = ga.load(triangle(tmp_path / "a.obj", text))
    assert square.pos[:, 0].tolist() == [0, 1, 1, 0, 5]
    assert square.face.T.tolist() == [[0, 1, 2], [0, 2, 3]]
    assert square.face_texcoord.view(2, 3, 2).tolist() == [
        [[0, 0], [1, 0], [1, 1]],
        [[0.5, 0.5], [1, 1], [0, 1]],
    ]
    assert square.color[:, 2].tolist() == square.pos[:, 0].clamp(max=1).tolist()
    assert square.normal.tolist() == [[0, 0, 1]] * 4 + [[0, 0, 0]]
    assert square.notes == (
        "uv differs between the corners of 1 vertex: face_texcoord has it by corner",
        "1 vertex without normal, which is 0 there",
    )
    whole = ga.load(triangle(tmp_path / "c.obj", text.replace("1/5/1", "1/1/1")))
    assert whole.uv.tolist() == [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]
    with pytest.raises(LoaderError, match="line 13, face 1: vt 9 of 5"):
        ga.load(triangle(tmp_path / "b.obj", text.replace("1/5/1", "1/9/1")))


def test_trimesh_leaves_out_the_colours_of_an_off_file(tmp_path):
    path = triangle(
        tmp_path / "a.off",
        "COFF\n3 1 0\n0 0 0 255 0 0\n1 0 0 0 255 0\n0 1 0 0 0 255\n3 0 1 2 0 0 1\n",
    )
    assert trimesh.load(path, process=False).visual.kind is None
    shape = ga.load(path)
    assert torch.equal(shape.color, torch.eye(3))
    assert shape.face_color.tolist() == [[0, 0, 1]]


def test_trimesh_passes_over_facets_that_are_not_whole(tmp_path):
    facet = (
        "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 "
        "0\nendloop\nendfacet\n"
    )
    path = triangle(
        tmp_path / "a.stl", "solid\n" + facet + facet.replace("vertex", "vertx") + "endsolid\n"
    )
    assert len(trimesh.load(path, process=False).faces) == 1
    with pytest.raises(LoaderError, match="line 9: expected facet normal"):
        ga.load(path)


HEAD = (
    "ply\nformat %s 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
)
HEAD += "element face 1\nproperty list int int vertex_indices\nend_header\n"
POINTS = np.eye(3, dtype="<f4").tobytes()


def test_plyfile_passes_over_what_follows_the_last_row(tmp_path):
    binary = (HEAD % "binary_little_endian").encode() + POINTS
    path = triangle(
        tmp_path / "a.ply", binary + np.array([3, 0, 1, 2, 3, 1, 1, 1], "<i4").tobytes()
    )
    assert len(plyfile.PlyData.read(path)["face"].data) == 1
    with pytest.raises(LoaderError, match="got 16 more"):
        ga.load(path)


def glb(**changes):
    """A triangle with float colours and texture coordinates but no material."""
    arrays = {
        "POSITION": np.eye(3),
        "COLOR_0": np.full((3, 3), 0.3),
        "TEXCOORD_0": np.eye(3)[:, :2],
    }
    body = b"".join(array.astype("<f4").tobytes() for array in arrays.values())
    starts = np.cumsum([0, *(4 * array.size for array in arrays.values())]).tolist()
    names = list(arrays)
    tree = {
        "asset": {"version": "2.0"},
        "scenes": [{"nodes": [0, 1]}],
        "nodes": [{"mesh": 0}, {"mesh": 0, "translation": [0, 0, 5], "scale": [-1, 1, 1]}],
        "meshes": [
            {"primitives": [{"attributes": {name: place for place, name in enumerate(names)}}]}
        ],
        "accessors": [
            {
                "bufferView": i,
                "componentType": 5126,
                "count": 3,
                "type": f"VEC{arrays[name].shape[1]}",
            }
            for i, name in enumerate(names)
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": a, "byteLength": b - a} for a, b in pairwise(starts)
        ],
        "buffers": [{"byteLength": len(body)}],
    }
    for where, value in changes.items():
        tree[where] = (
            value if where not in tree else [{**tree[where][0], **value}, *tree[where][1:]]
        )
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    sizes = np.array([2, 28 + len(text) + len(body), len(text)], "<u4").tobytes()
    return (
        b"glTF" + sizes + b"JSON" + text + np.array([len(body)], "<u4").tobytes() + b"BIN\0" + body
    )


def test_trimesh_drops_and_rounds_what_a_glb_holds(tmp_path):
    path = triangle(tmp_path / "a.glb", glb())
    theirs = next(iter(trimesh.load(path, process=False).geometry.values()))
    assert getattr(theirs.visual, "uv", None) is None
    assert theirs.visual.vertex_colors.dtype == np.uint8
    ours = ga.load(path)
    assert torch.equal(ours.color, torch.full((6, 3), 0.3))
    assert torch.equal(ours.uv[:3], torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]]))
    assert torch.equal(
        ours.pos[3:], torch.eye(3) * torch.tensor([-1.0, 1, 1]) + torch.tensor([0.0, 0, 5])
    )
    assert ours.face.T.tolist() == [[0, 1, 2], [5, 4, 3]]  # a mirror turns a triangle round
    assert ours.notes == ("2 meshes joined",)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"accessors": {"sparse": {"count": 1}}},
            "accessor 0: expected accessors with all their numbers",
        ),
        ({"accessors": {"count": 10**12}}, "1000000000000 numbers"),
        ({"accessors": {"count": 4}}, "a.glb: expected a glTF 2.0 scene"),
        ({"extensionsRequired": ["KHR_draco_mesh_compression"]}, "KHR_draco_mesh_compression"),
        ({"buffers": {"uri": "../a.bin"}}, "a buffer in the file, or a .bin beside it"),
        ({"buffers": {"byteLength": 10**9}}, "expected 1000000000 bytes of chunk 0"),
        ({"nodes": {"children": [0]}}, ""),
    ],
)
def test_a_glb_that_trimesh_would_read_as_zeros_or_not_at_all(changes, said, tmp_path):
    path = triangle(tmp_path / "a.glb", glb(**changes))
    if said:
        with pytest.raises(LoaderError, match=said):
            ga.load(path)
    else:
        assert len(ga.load(path).pos) >= 6


@pytest.mark.parametrize("kind", ["binary_compressed", "ascii"])
def test_pcd_of_the_point_cloud_library(kind, tmp_path):
    """LZF by hand: bytes as they are, and a run that repeats what it has just written."""
    rgb = np.array([0x00FF0033, 0x00FF0033], "<u4")
    table = {
        "x": np.zeros(2, "<f4"),
        "y": np.zeros(2, "<f4"),
        "z": np.zeros(2, "<f4"),
        "rgb": rgb.view("<f4"),
    }
    plain = b"".join(column.tobytes() for column in table.values())
    packed = bytes([0, 0, (7 << 5), 14, 0]) + bytes([7]) + plain[24:]
    head = (
        "VERSION .7\nFIELDS x y z rgb\nSIZE 4 4 4 4\nTYPE F F F F\nWIDTH 2\nHEIGHT 1\nPOINTS "
        "2\nDATA "
    )
    body = np.array([len(packed), len(plain)], "<u4").tobytes() + packed
    if kind == "ascii":
        body = "".join(f"0 0 0 {float(color)!r}\n" for color in rgb.view("f4")).encode()
    path = triangle(tmp_path / "a.pcd", f"{head}{kind}\n".encode() + body)
    shape = ga.load(path)
    assert torch.equal(shape.color, torch.tensor([[255, 0, 0x33]] * 2) / 255)
    for cut in (3, 9, len(body) // 2):
        with pytest.raises(LoaderError, match=r"a\.pcd"):
            ga.load(triangle(tmp_path / "a.pcd", f"{head}{kind}\n".encode() + body[:cut]))


def test_a_las_file_that_is_cut_is_refused(tmp_path):
    path = tmp_path / "a.las"
    ga.save(ga.shapes.Shape(pos=torch.rand(100, 3)), path)
    whole = path.read_bytes()
    assert ga.load(path).pos.dtype == torch.float64
    for cut in (3, 100, 380, len(whole) - 1):
        with pytest.raises(LoaderError, match=r"a\.las: expected"):
            ga.load(triangle(path, whole[:cut]))


def test_a_las_file_whose_dimension_has_no_name_is_refused(tmp_path):
    ga.save(
        ga.shapes.Shape(pos=torch.rand(5, 3), heat=torch.rand(5), cold=torch.rand(5)),
        tmp_path / "a.las",
    )
    data = (tmp_path / "a.las").read_bytes()
    for name in (b"heat", b"cold"):
        assert data.count(name) >= 1
        data = data.replace(name, bytes(4))
    with pytest.raises(LoaderError, match=r"a\.las: expected a LAS file, got"):
        ga.load(triangle(tmp_path / "a.las", data))


def test_columns_of_a_text_get_their_names_from_it_or_from_the_caller(tmp_path):
    path = triangle(tmp_path / "a.txt", "0,0,1,0,0,1,3\n1,0,0,0,1,0,4\n")
    assert ga.load(path).x.shape == (2, 4)
    shape = ga.load(path, columns="x y z nx ny nz label")
    assert shape.y.tolist() == [3, 4]
    assert shape.normal.tolist() == [[0, 0, 1], [0, 1, 0]]
    with pytest.raises(LoaderError, match="expected 3 numbers, one for each name, got 7"):
        ga.load(path, columns="x y z")
    for text in (
        "# x y z t\n0 0 1 5\n1 0 0 6.5\n",
        "2\n0 0 1 5\n1 0 0 6.5\n",
        "x y z t\n0 0 1 5\n1 0 0 6.5\n",
    ):
        shape = ga.load(triangle(path, text))
        assert (shape.t if "t" in shape else shape.x[:, 0]).tolist() == [5, 6.5]
    far = ga.load(triangle(path, "x,y,z\n4500000.123,0,0\n4500001.5,0,0\n"))
    assert far.pos.dtype == torch.float64
    assert far.pos[0, 0] == 4500000.123
    with pytest.raises(LoaderError, match="columns x, y, z"):
        ga.load(triangle(path, "a,b,c\n1,2,3\n"))


def test_a_npz_has_its_own_names(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(
        path,
        points=np.eye(3, dtype="f4"),
        faces=np.array([[0, 1, 2]]),
        label=np.arange(3),
        t=np.float64(7),
    )
    shape = ga.load(path)
    assert set(shape.keys()) == {"pos", "face", "y", "t"}
    np.savez(path, pos=np.eye(4, 3), face=np.array([[0, 1, 2, 3]]))
    with pytest.raises(LoaderError, match=r"face of integers, of shape \(3, F\)"):
        ga.load(path)
    np.savez(path, pos=np.eye(3), face=np.array([[0], [1], [3]]))
    with pytest.raises(LoaderError, match="face 0: vertex 3 of 3"):
        ga.load(path)


@pytest.mark.parametrize(
    "name", ["KHR_techniques_webgl", "KHR_technique_webgl", "KHR_materials_sheen"]
)
def test_extensions_of_surfaces_change_no_vertex(name, tmp_path):
    path = triangle(tmp_path / "a.glb", glb(extensionsRequired=[name]))
    assert len(ga.load(path).pos) == 6


def test_an_extension_that_is_not_known_is_not_called_compression(tmp_path):
    path = triangle(tmp_path / "a.glb", glb(extensionsRequired=["EXT_mesh_gpu_instancing"]))
    with pytest.raises(
        LoaderError, match="no extensions but of materials, got EXT_mesh_gpu_instancing"
    ):
        ga.load(path)


def test_the_old_form_of_laz_is_named(tmp_path):
    """Its points follow each other without chunks: here a file of today whose record says so."""
    ga.save(ga.shapes.Shape(pos=torch.rand(100, 3)), tmp_path / "a.laz")
    data = bytearray((tmp_path / "a.laz").read_bytes())
    at = data.index(b"laszip encoded") - 2 + 54  # behind the header of the record
    assert data[at : at + 2] in (b"\x02\0", b"\x03\0")
    data[at] = 1
    (tmp_path / "b.laz").write_bytes(data)
    with pytest.raises(
        LoaderError, match="expected LAZ in chunks, got the pointwise form of LASzip before 2011"
    ):
        ga.load(tmp_path / "b.laz")
