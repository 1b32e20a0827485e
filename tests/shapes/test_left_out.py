"""What files have beside points and faces is noted, and never dropped without a word."""

import json
import struct

import laspy
import numpy as np
import pytest
import trimesh

import graphattn as ga
from graphattn.errors import LoaderError

SQUARE = "0 0 0\n1 0 0\n0 1 0\n1 1 0\n"
OFF = f"OFF\n4 2 0\n{SQUARE}"
OBJ = "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"
FACET = (
    "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\nendfacet\n"
)
PLY = (
    "ply\nformat ascii 1.0\nobj_info num_cols 512\nelement vertex 1\nproperty float x\n"
    "property float y\nproperty float z\nend_header\n1 2 3\n"
)


def loaded(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return ga.load(path)


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("a.obj", OBJ.replace("v 1 0 0", "v 1 0 0 1 0 0"), "colours left out, of 1 of 3 vertices"),
        ("a.obj", OBJ.replace("v 1 0 0", "v 1 0 0 2"), "1 numbers behind x y z left out"),
        ("a.obj", f"vt 0 0 5\n{OBJ}", "third texture coordinates left out"),
        ("a.obj", f"g a\nusemtl b\n{OBJ}g c\n", "statements left out: 2 g, 1 usemtl"),
        ("a.off", f"{OFF}3 0 1 2 7\n3 1 3 2 8\n", "colours left out, of 2 of 2 faces"),
        ("a.off", f"{OFF}3 0 1 2 255 0 0\n3 1 3 2\n", "colours left out, of 1 of 2 faces"),
        ("a.off", OFF.replace(" 0\n", " 0 7\n").replace("4 2 0 7", "4 0 0"), "have no names: x"),
        ("a.ply", PLY, "left out: obj_info num_cols 512"),
        ("a.stl", f"solid a\n{FACET}endsolid\nsolid b\n{FACET}endsolid\n", "2 solids are one mesh"),
        (
            "a.stl",
            f"solid\n{FACET.replace('0 0 1', '0 0 -1')}endsolid\n",
            "1 normals point against",
        ),
    ],
)
def test_a_note_says_what_is_left_out(name, text, note, tmp_path):
    assert any(note in one for one in loaded(tmp_path / name, text).notes)


def test_usual_files_have_no_note(tmp_path):
    for name, text in (("a.obj", OBJ), ("a.stl", f"solid\n{FACET}endsolid\n")):
        assert loaded(tmp_path / name, text).notes == ()
    assert loaded(tmp_path / "a.obj", OBJ.replace("v 1 0 0", "v 1 0 0 1")).notes == ()


def test_faces_with_and_without_alpha_have_colours(tmp_path):
    shape = loaded(tmp_path / "a.off", f"{OFF}3 0 1 2 255 0 0\n3 1 3 2 0 0 255 51\n")
    assert shape.face_color.tolist() == [[1, 0, 0], [0, 0, 1]]
    np.testing.assert_allclose(shape.face_alpha, [1, 0.2])


def test_an_eighth_number_of_a_vertex_is_alpha(tmp_path):
    lines = [f"v {i} 0 {i * i} 1 0 0 .5\n" for i in range(3)]
    assert loaded(tmp_path / "a.obj", f"{''.join(lines)}f 1 2 3\n").alpha.tolist() == [0.5] * 3


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.obj", f"{OBJ}call other.obj\n", "expected one file"),
        ("a.asc", "ncols 2\nnrows 1\n1 2\n", "a grid of heights"),
    ],
)
def test_what_would_be_another_shape_is_refused(name, text, words, tmp_path):
    with pytest.raises(LoaderError, match=words):
        loaded(tmp_path / name, text)


def test_deleted_points_and_numbers_for_none_are_noted(tmp_path):
    header = laspy.LasHeader(point_format=6, version="1.4")
    scale = {"scales": np.array([0.01]), "offsets": np.array([50.0]), "no_data": np.array([-9])}
    header.add_extra_dim(laspy.ExtraBytesParams("height", "int16", **scale))
    las = laspy.LasData(header)
    las.x = las.y = las.z = np.arange(4.0)
    las.height = [50.5, 49.91, 49.91, 51]
    las.withheld = [0, 1, 0, 0]
    las.write(tmp_path / "a.las")
    shape = ga.load(tmp_path / "a.las")
    np.testing.assert_allclose(shape.height, [50.5, 49.91, 49.91, 51])
    assert shape.notes == (
        "1 point is withheld, which stands for deleted: withheld",
        "2 of height are 49.91, which stands for no data",
    )


def test_what_a_scene_has_beside_its_mesh_is_noted(tmp_path):
    data = trimesh.creation.box().export(file_type="glb")
    size = struct.unpack_from("<I", data, 12)[0]
    tree = json.loads(data[20 : 20 + size])
    tree["skins"] = [{"joints": [0]}]
    tree["scenes"].append({"nodes": []})
    primitive = tree["meshes"][0]["primitives"][0]
    primitive["targets"] = [{"POSITION": primitive["attributes"]["POSITION"]}]
    primitive["attributes"]["TANGENT"] = primitive["attributes"]["POSITION"]
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    rest = data[20 + size :]
    head = b"glTF" + struct.pack("<III", 2, 20 + len(text) + len(rest), len(text)) + b"JSON"
    shape = loaded(tmp_path / "a.glb", head + text + rest)
    (note,) = [note for note in shape.notes if note.startswith("left out: ")]
    for word in ("TANGENT", "morph targets", "skins", "1 other scenes"):
        assert word in note


def test_a_site_of_a_formula_is_refused(tmp_path):
    pytest.importorskip("ase")
    cell = "".join(
        f"_cell_length_{a} 4\n_cell_angle_{b} 90\n"
        for a, b in zip("abc", ("alpha", "beta", "gamma"), strict=True)
    )
    head = f"data_a\n{cell}loop_\n_atom_site_type_symbol\n_atom_site_fract_x\n_atom_site_fract_y\n_atom_site_fract_z\n"
    with pytest.raises(LoaderError, match=r"one element for each site, got 0\.6Cu"):
        loaded(tmp_path / "a.cif", f"{head}'0.6Cu + 0.4Al' 0 0 0\n")
    assert loaded(tmp_path / "a.cif", f"{head}La3+ 0 0 0\nO2- .5 .5 .5\n").z.tolist() == [57, 8]


def test_periodic_axes_may_be_in_brackets(tmp_path):
    comment = 'Lattice="9 0 0 0 9 0 0 0 9" pbc=[T, F, T]'
    assert loaded(tmp_path / "a.xyz", f"1\n{comment}\nO 0 0 0\n").pbc.tolist() == [
        True,
        False,
        True,
    ]
