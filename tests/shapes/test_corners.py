"""Seams: a mesh stays whole where texture coordinates or normals differ between the corners of a
vertex.
"""

import itertools

import networkx as nx
import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.shapes import RandomMirror, RandomRotation, Shape, ShapeFolder

SIDES = [(1, 2, 4, 3), (5, 7, 8, 6), (1, 5, 6, 2), (3, 4, 8, 7), (1, 3, 7, 5), (2, 6, 8, 4)]
OUTWARD = [(-1, 0, 0), (1, 0, 0), (0, -1, 0), (0, 1, 0), (0, 0, -1), (0, 0, 1)]


def cube(path, *, uv=True, smooth=False, label=None):
    """What a modeller writes: 8 vertices, a normal for each side, the texture of each side
    whole.
    """
    lines = [f"v {x} {y} {z}" for x, y, z in itertools.product((0, 1), repeat=3)]
    lines += [f"vt {u} {v}" for u, v in ((0, 0), (1, 0), (1, 1), (0, 1))] if uv else []
    lines += [f"vn {x} {y} {z}" for x, y, z in OUTWARD]
    for side, corners in enumerate(SIDES, 1):
        cells = [
            f"{v}/{place if uv else ''}/{1 if smooth else side}"
            for place, v in enumerate(corners, 1)
        ]
        lines.append(f"f {' '.join(cells)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def parts(shape):
    graph = ga.graphs.mesh_vertices(shape.face.T, num_vertices=len(shape.pos))
    return nx.number_connected_components(nx.Graph(graph.edge_index.T.tolist()))


def test_a_cube_with_a_normal_for_each_side_is_one_part_of_8_vertices(tmp_path):
    shape = ga.load(cube(tmp_path / "a.obj"))
    assert (len(shape.pos), parts(shape)) == (8, 1)
    flat = torch.tensor(OUTWARD).repeat_interleave(2, 0)
    assert (
        shape.face_corner_normal.view(12, 3, 3).tolist() == flat[:, None].expand(12, 3, 3).tolist()
    )
    torch.testing.assert_close(shape.normal, (2 * shape.pos - 1) / 3**0.5)
    assert shape.face_texcoord.view(12, 3, 2)[:2].tolist() == [
        [[0, 0], [1, 0], [1, 1]],
        [[0, 0], [1, 1], [0, 1]],
    ]
    assert "normal differs between the corners of 8 vertices" in shape.notes[1]
    smooth = ga.load(cube(tmp_path / "b.obj", uv=False, smooth=True))
    assert set(smooth.keys()) == {"pos", "face", "normal"}


@pytest.mark.parametrize("ending", [".obj", ".ply", ".npz"])
def test_corners_are_written_and_read_back(ending, tmp_path):
    shape = ga.load(cube(tmp_path / "a.obj"))
    ga.save(shape, tmp_path / f"b{ending}")
    back = ga.load(tmp_path / f"b{ending}")
    assert set(back.keys()) == set(shape.keys())
    for name, values in shape.items():
        assert torch.equal(back[name], values), name


def test_normals_that_are_not_those_of_the_corners_are_not_written_over(tmp_path):
    shape = ga.load(cube(tmp_path / "a.obj"))
    shape.normal = -shape.normal
    with pytest.raises(
        LoaderError, match="expected normal or face_corner_normal, got both, and they differ"
    ):
        ga.save(shape, tmp_path / "b.obj")
    ga.save(shape, tmp_path / "b.obj", lossy=True)
    shape.face_texcoord = shape.face_texcoord[:, :5]
    with pytest.raises(LoaderError, match=r"face_texcoord of shape \(F, 6\)"):
        ga.save(shape, tmp_path / "b.obj")


@pytest.mark.parametrize("ending", [".glb", ".ply"])
def test_a_file_that_is_cut_along_its_seams_is_welded(ending, tmp_path):
    whole = ga.load(cube(tmp_path / "a.obj"))
    corner = whole.face.T.reshape(-1)
    normal = whole.face_corner_normal.view(-1, 3)
    number = torch.arange(len(corner))
    cut = Shape(
        pos=whole.pos[corner],
        face=number.view(-1, 3).T.contiguous(),
        normal=normal,
        ids=number.int(),
    )
    ga.save(cut, tmp_path / f"b{ending}")
    split = ga.load(tmp_path / f"b{ending}")
    assert parts(split) > 1
    shape = ga.load(tmp_path / f"b{ending}", weld=True)
    assert (len(shape.pos), parts(shape)) == (8, 1)
    assert torch.equal(shape.pos[shape.face], whole.pos[whole.face])
    assert torch.equal(shape.face_corner_normal, whole.face_corner_normal)
    assert "28 vertices joined with another at the same place" in shape.notes
    assert "ids differs at 8 places: that of the first vertex is kept" in shape.notes
    first = {tuple(place): n for n, place in reversed(list(enumerate(cut.pos.tolist())))}
    assert shape.ids.tolist() == [first[tuple(place)] for place in shape.pos.tolist()]


def test_numbers_of_vertices_follow_when_these_are_joined(tmp_path):
    pos = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, -0.0], [1, 1, 0], [0, 1, 0]])
    ends = {
        "edge_vertex1": torch.tensor([0, 3, 5]).int(),
        "edge_vertex2": torch.tensor([4, 1, 2]).int(),
    }
    face = torch.tensor([[0, 1, 2], [3, 4, 5]]).T.contiguous()
    ga.save(Shape(pos=pos, face=face, uv=pos[:, :2], **ends), tmp_path / "a.ply")
    shape = ga.load(tmp_path / "a.ply", weld=True)
    assert shape.face.T.tolist() == [[0, 1, 2], [0, 2, 3]]
    assert (shape.edge_vertex1.tolist(), shape.edge_vertex2.tolist()) == ([0, 0, 3], [2, 1, 2])
    assert torch.equal(shape.uv, pos[[0, 1, 2, 5], :2])
    ga.save(Shape(pos=pos), tmp_path / "b.ply")
    with pytest.raises(LoaderError, match="expected a mesh with faces to weld, got points alone"):
        ga.load(tmp_path / "b.ply", weld=True)


def test_a_folder_takes_meshes_with_and_without_seams(tmp_path):
    for number in range(4):
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        cube(tmp_path / "ab"[number % 2] / f"{number}.obj", uv=number < 3, smooth=number == 2)
    folder = ShapeFolder(tmp_path)
    assert folder.left == ["face_corner_normal", "face_texcoord"]
    assert {frozenset(shape.keys()) for shape in folder} == {
        frozenset(("pos", "face", "normal", "y"))
    }


def test_a_cloud_in_an_obj_has_its_normals(tmp_path):
    rows = np.random.default_rng(0).random((5, 6)).astype("f4")
    text = "".join("v {} {} {}\nvn {} {} {}\n".format(*row) for row in rows)
    (tmp_path / "a.obj").write_text(text, encoding="utf-8")
    shape = ga.load(tmp_path / "a.obj")
    np.testing.assert_array_equal(shape.normal, rows[:, 3:])


@pytest.mark.parametrize("change", [RandomMirror(1, p=1.0), RandomRotation()])
def test_corners_move_with_the_mesh(change, tmp_path):
    shape = ga.load(cube(tmp_path / "a.obj"))
    moved = change(shape.clone())
    flat = torch.linalg.cross(
        *(moved.pos[moved.face[k]] - moved.pos[moved.face[0]] for k in (1, 2))
    )
    normal = moved.face_corner_normal.view(12, 3, 3)
    torch.testing.assert_close(
        normal, torch.nn.functional.normalize(flat)[:, None].expand_as(normal)
    )
    assert _textures(moved) == _textures(shape)


def _textures(shape):
    """The texture coordinates of each vertex of each face."""
    uv = shape.face_texcoord.view(-1, 3, 2).tolist()
    corners = enumerate(shape.face.T.tolist())
    return {(face, v): uv[face][place] for face, own in corners for place, v in enumerate(own)}
