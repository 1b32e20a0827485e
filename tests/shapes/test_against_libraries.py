"""Random files of every format, compared number by number with what they hold and with the format's own library."""

import io

import numpy as np
import plyfile
import pytest
import torch
from random_files import Listed, Ply

import graphattn as ga

MANY = pytest.mark.slow


def rounds(quick, slow):
    """Seeds of files: a few always, many in `make proof`."""
    return [*range(quick), pytest.param(range(quick, slow), marks=MANY, id=f"{quick}-{slow}")]


def seeds(given):
    """One or many."""
    return given if isinstance(given, range) else [given]


def load(tmp_path, name, data, **options):
    path = tmp_path / name
    path.write_bytes(data)
    return ga.load(path, **options)


def same(ours, values):
    """Equal in type and in every bit but the order of bytes."""
    ours = ours.numpy()
    assert ours.dtype == values.dtype.newbyteorder("=")
    np.testing.assert_array_equal(ours, values)


@pytest.mark.parametrize("given", rounds(40, 4000))
def test_every_property_of_a_random_ply_is_read_by_value(given, tmp_path):
    for seed in seeds(given):
        ply = Ply(seed)
        shape = load(tmp_path, "a.ply", ply.data)
        theirs = plyfile.PlyData.read(io.BytesIO(ply.data))
        polygons = ply.elements["face"]["vertex_indices"].rows
        triangles = [[p[0], p[i], p[i + 1]] for p in polygons for i in range(1, len(p) - 1)]
        assert shape.face.T.tolist() == np.array(triangles).tolist()
        repeat = np.repeat(np.arange(len(polygons)), [len(p) - 2 for p in polygons])
        for element, columns in ply.elements.items():
            read = theirs[element].data
            for name, column in columns.items():
                if isinstance(column, Listed):
                    assert all(map(np.array_equal, read[name], column.rows))
                else:
                    np.testing.assert_array_equal(read[name], column)
            for name, column in columns.items():
                if name in ("vertex_indices", "x", "y", "z", "red", "green", "blue"):
                    continue
                if name == "texcoord":
                    pairs = [p.reshape(-1, 2) for p in column.rows]
                    fans = [np.concatenate((p[0], p[i], p[i + 1])) for p in pairs for i in range(1, len(p) - 1)]
                    same(shape.face_texcoord, np.array(fans))
                    continue
                values = column.table() if isinstance(column, Listed) else column
                if element == "face":
                    values = values[repeat]
                same(shape[name if element == "vertex" else f"{element}_{name}"], values)
        vertex = ply.elements["vertex"]
        same(shape.pos, np.stack([vertex[axis] for axis in "xyz"], 1))
        if "red" in vertex:
            color = np.stack([vertex[name] for name in ("red", "green", "blue")], 1)
            assert torch.equal(shape.color, torch.from_numpy(color) / 255)


def test_plyfile_writes_numbers_beside_a_list_in_the_order_of_this_machine(tmp_path):
    """So 5 becomes 83,886,080 in a file of the other order, for plyfile and for every other reader."""
    head = (
        b"ply\nformat binary_big_endian 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
    )
    head += b"element face 1\nproperty int region\nproperty list uchar int vertex_indices\nend_header\n"
    body = (
        np.eye(3, dtype=">f4").tobytes()
        + np.array([5], ">i4").tobytes()
        + b"\x03"
        + np.arange(3, dtype=">i4").tobytes()
    )
    assert load(tmp_path, "a.ply", head + body).face_region.tolist() == [5]
    theirs = plyfile.PlyData.read(tmp_path / "a.ply")
    assert theirs["face"].data["region"].tolist() == [5]
    theirs.write(tmp_path / "b.ply")
    assert plyfile.PlyData.read(tmp_path / "b.ply")["face"].data["region"].tolist() == [83_886_080]
    assert ga.load(tmp_path / "b.ply").face_region.tolist() == [83_886_080]


def test_an_element_of_one_row_and_of_none_keeps_its_types(tmp_path):
    head = b"ply\nformat binary_big_endian 1.0\nelement vertex 1\nproperty uchar a\nproperty ushort b\n"
    head += (
        b"property float x\nproperty float y\nproperty float z\nelement edge 0\nproperty double length\nend_header\n"
    )
    shape = load(tmp_path, "a.ply", head + b"\x07\x01\x02" + np.arange(3, dtype=">f4").tobytes())
    assert shape.b.tolist() == [258]
    assert shape.edge_length.dtype == torch.float64
