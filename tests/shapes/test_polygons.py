"""Polygons of files: triangles that do not fold, and faces that are lines or points."""

import numpy as np
import pytest
import torch

import graphattn as ga

DART = [(0, 0), (4, 0), (1, 1), (0, 4)]  # with a dent at its third corner
HOUSE = [(0, 0), (2, 0), (2, 2), (1, 3), (0, 2)]
STAIRS = [(0, 0), (3, 0), (3, 1), (2, 1), (2, 2), (1, 2), (1, 3), (0, 3)]
RING = [(0, 0), (4, 0), (4, 4), (0, 4), (0, 1), (1, 1), (1, 3), (3, 3), (3, 1.5), (0.5, 1.5)]


def area(corners):
    """Of a polygon, (k, 2)."""
    x, y = corners.T
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def areas(shape):
    """Of triangles, with their sign."""
    a, b, c = (shape.pos[row].double().numpy()[:, :2] for row in shape.face)
    return np.cross(b - a, c - a) / 2


def written(path, corners):
    """A file of one polygon, with texture coordinates of corners where the format has them."""
    points = "".join(f"{x} {y} 0\n" for x, y in corners)
    numbers = range(len(corners))
    if path.suffix == ".off":
        text = f"OFF\n{len(corners)} 1 0\n{points}{len(corners)} {' '.join(map(str, numbers))}\n"
    elif path.suffix == ".obj":
        text = "".join(f"v {x} {y} 0\nvt {x} {y}\n" for x, y in corners)
        text += f"f {' '.join(f'{i + 1}/{i + 1}' for i in numbers)}\n"
    else:
        uv = " ".join(f"{x} {y}" for x, y in corners)
        text = (
            f"ply\nformat ascii 1.0\nelement vertex {len(corners)}\nproperty float x\n"
            "property float y\nproperty float z\nelement face 1\nproperty list uchar int "
            "vertex_indices\nproperty list uchar float texcoord\nend_header\n"
            f"{points}{len(corners)} {' '.join(map(str, numbers))} {2 * len(corners)} {uv}\n"
        )
    path.write_text(text, encoding="utf-8")
    return ga.load(path)


@pytest.mark.parametrize("ending", [".obj", ".off", ".ply"])
@pytest.mark.parametrize("corners", [DART, HOUSE, STAIRS])
def test_triangles_of_a_polygon_with_a_dent_do_not_fold(ending, corners, tmp_path):
    for start in range(len(corners)):
        for turn in (1, -1):
            turned = np.roll(corners, -start, 0)[::turn]
            shape = written(tmp_path / f"a{ending}", turned)
            assert shape.face.shape == (3, len(corners) - 2)
            assert (turn * areas(shape) >= 0).all()
            assert areas(shape).sum() == pytest.approx(area(turned))
            assert shape.notes == (f"1 polygons cut into {len(corners) - 2} triangles",)
            if ending == ".ply":
                of_corners = shape.face_texcoord.view(-1, 3, 2)
                assert torch.equal(of_corners, shape.pos[shape.face.T][..., :2])


def test_a_convex_polygon_starts_at_its_first_corner(tmp_path):
    for start in range(5):
        shape = written(tmp_path / "a.off", np.roll(HOUSE, -start, 0))
        assert shape.face.T.tolist() == [[0, 1, 2], [0, 2, 3], [0, 3, 4]]


def test_a_polygon_that_no_fan_fits_is_noted(tmp_path):
    shape = written(tmp_path / "a.off", np.array(RING))
    assert shape.notes == (
        "1 polygons are not convex: their triangles fold",
        "1 polygons cut into 8 triangles",
    )


FACES = "3 0 1 2 7\n2 0 1 8\n3 1 3 2 9\n1 3 10\n2 3 1 11\n"


@pytest.mark.parametrize("edges", [False, True])
def test_faces_of_two_corners_are_edges(edges, tmp_path):
    text = (
        "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty "
        "float z\nelement face 5\nproperty list uchar int vertex_indices\nproperty int region\n"
    )
    rows = f"0 0 0\n1 0 0\n0 1 0\n1 1 0\n{FACES}"
    if edges:
        text += "element edge 1\nproperty int vertex1\nproperty int vertex2\n"
        rows += "0 3\n"
    (tmp_path / "a.ply").write_text(f"{text}end_header\n{rows}", encoding="utf-8")
    shape = ga.load(tmp_path / "a.ply")
    assert shape.face.T.tolist() == [[0, 1, 2], [1, 3, 2]]
    assert shape.face_region.tolist() == [7, 9]
    left_out = "1 face of one corner left out"
    if edges:
        assert (shape.edge_vertex1.tolist(), shape.edge_vertex2.tolist()) == ([0], [3])
        note = "2 faces of two corners left out, as the file has other edges"
    else:
        assert (shape.edge_vertex1.tolist(), shape.edge_vertex2.tolist()) == ([0, 3], [1, 1])
        note = "2 faces of two corners are edges"
    assert shape.notes == (note, left_out)


def test_a_frame_of_lines_alone_is_read(tmp_path):
    (tmp_path / "a.off").write_text(
        "OFF\n3 2 0\n0 0 0\n1 0 0\n0 1 0\n2 0 1\n2 1 2\n", encoding="utf-8"
    )
    shape = ga.load(tmp_path / "a.off")
    assert "face" not in shape
    assert shape.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]


@pytest.mark.parametrize("row", ["2 0 9", "1 9", "0"])
def test_lines_and_points_are_checked_too(row, tmp_path):
    (tmp_path / "a.off").write_text(f"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n{row}\n", encoding="utf-8")
    with pytest.raises(ga.errors.LoaderError, match="face 0"):
        ga.load(tmp_path / "a.off")


def test_meshio_writes_boundary_lines_as_faces(tmp_path):
    meshio = pytest.importorskip("meshio")
    points = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    cells = [("line", np.array([[0, 1], [1, 2]])), ("triangle", np.array([[0, 1, 2]]))]
    meshio.Mesh(points, cells).write(tmp_path / "a.ply")
    shape = ga.load(tmp_path / "a.ply")
    assert shape.face.T.tolist() == [[0, 1, 2]]
    assert shape.edge_vertex2.tolist() == [1, 2]
