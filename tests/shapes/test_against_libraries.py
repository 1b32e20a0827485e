"""Random files of every format, compared number by number with what they hold and with the format's
own library.
"""

import io

import laspy
import numpy as np
import plyfile
import pytest
import torch
import trimesh
from random_files import PLY_TYPES, Listed, Mesh, Pcd, Ply, Table, fan_of, numbers

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.shapes.files.corners import OF_CORNERS

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


def close(ours, values):
    """Equal as float32: numbers of a text are read as such."""
    np.testing.assert_allclose(ours.numpy().astype("f8"), np.asarray(values, "f8"), rtol=2e-7)


def mesh_scale(color):
    """What colours without a type are divided by."""
    if color.max() <= 1:
        return 1
    return 255


@pytest.mark.parametrize("given", rounds(40, 4000))
def test_every_property_of_a_random_ply_is_read_by_value(given, tmp_path):
    for seed in seeds(given):
        ply = Ply(seed)
        shape = load(tmp_path, "a.ply", ply.data)
        theirs = plyfile.PlyData.read(io.BytesIO(ply.data))
        polygons = ply.elements["face"]["vertex_indices"].rows
        fans = [np.array(fan_of(shape.pos.numpy()[polygon])) for polygon in polygons]
        triangles = [polygon[fan] for polygon, fan in zip(polygons, fans, strict=True)]
        assert shape.face.T.tolist() == np.concatenate(triangles).tolist()
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
                    pairs = zip(column.rows, fans, strict=True)
                    corners = [row.reshape(-1, 2)[fan].reshape(-1, 6) for row, fan in pairs]
                    same(shape.face_texcoord, np.concatenate(corners))
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
    """So 5 becomes 83,886,080 in a file of the other order, for plyfile and for every other
    reader.
    """
    head = b"ply\nformat binary_big_endian 1.0\nelement vertex 3\n"
    head += b"property float x\nproperty float y\nproperty float z\n"
    head += (
        b"element face 1\nproperty int region\nproperty list uchar int vertex_indices\nend_header\n"
    )
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
    head += b"property float x\nproperty float y\nproperty float z\nelement edge 0\n"
    head += b"property double length\nend_header\n"
    shape = load(tmp_path, "a.ply", head + b"\x07\x01\x02" + np.arange(3, dtype=">f4").tobytes())
    assert shape.b.tolist() == [258]
    assert shape.edge_length.dtype == torch.float64


@pytest.mark.parametrize("given", rounds(60, 4000))
def test_every_field_of_a_random_pcd_is_read_by_value(given, tmp_path):
    for seed in seeds(given):
        pcd = Pcd(seed)
        shape = load(tmp_path, "a.pcd", pcd.data)
        same(shape.pos, np.stack([pcd.columns[axis] for axis in "xyz"], 1))
        others = {
            name: column for name, column in pcd.columns.items() if name not in ("x", "y", "z", "_")
        }
        assert set(shape.keys()) == {"pos", *others}
        for name, column in others.items():
            same(shape[name], column)


@pytest.mark.parametrize("given", rounds(40, 2000))
def test_a_random_pcd_is_what_pypcd4_reads(given):
    """But fields of several numbers in a compressed file, which it takes for as many columns one
    after the other.
    """
    pypcd4 = pytest.importorskip("pypcd4")
    for seed in seeds(given):
        pcd = Pcd(seed)
        theirs = np.atleast_1d(pypcd4.PointCloud.from_fileobj(io.BytesIO(pcd.data)).pc_data)
        for name, column in pcd.columns.items():
            if name == "_":
                continue
            if column.ndim == 1:
                np.testing.assert_array_equal(theirs[name], column)
            elif pcd.form != "binary_compressed":
                parts = [theirs[f"{name}__{place:04d}"] for place in range(column.shape[1])]
                np.testing.assert_array_equal(np.stack(parts, 1), column)


@pytest.mark.parametrize("given", rounds(40, 3000))
def test_every_number_of_a_random_off_is_read_by_value(given, tmp_path):
    for seed in seeds(given):
        mesh = Mesh(seed)
        data, words = mesh.off()
        shape = load(tmp_path, "a.off", data)
        assert set(shape.keys()) == {"pos", "face", *words}
        close(shape.pos, mesh.pos)
        assert shape.face.T.tolist() == mesh.fans(mesh.corner).tolist()
        for word in ("normal", "uv"):
            if word in words:
                close(shape[word], getattr(mesh, word))
        if "color" in words:
            close(shape.color, mesh.color / mesh_scale(mesh.color))
        if "face_color" in words:
            triangles = np.repeat(np.arange(len(mesh.polygons)), np.diff(mesh.ptr) - 2)
            close(shape.face_color, (mesh.face_color / mesh_scale(mesh.face_color))[triangles])
        if not words and (np.diff(mesh.ptr) == 3).all() and b"#" not in data:
            theirs = trimesh.load(io.BytesIO(data), file_type="off", process=False)
            np.testing.assert_array_equal(theirs.triangles.astype("f4"), shape.pos[shape.face.T])


@pytest.mark.parametrize("given", rounds(40, 3000))
def test_every_number_of_a_random_obj_is_read_by_value(given, tmp_path):
    for seed in seeds(given):
        mesh = Mesh(seed, largest=4)
        data, words = mesh.obj()
        shape = load(tmp_path, "a.obj", data)
        close(shape.pos, mesh.pos)
        assert shape.face.T.tolist() == mesh.fans(mesh.corner).tolist()
        if "color" in words:
            close(shape.color, (mesh.color / 255).astype("f4"))
        for word, of_corners in OF_CORNERS.items():
            assert (word in shape or of_corners in shape) == (word in words)
            if word not in words:
                continue
            values = mesh.tables[word][mesh.at[word]]
            got = shape[word][shape.face.T] if of_corners not in shape else shape[of_corners]
            close(got.reshape(-1, values.shape[1]), mesh.fans(values).reshape(-1, values.shape[1]))
        if mesh.back or (np.diff(mesh.ptr) > 3).any():
            continue
        theirs = trimesh.load(io.BytesIO(data), file_type="obj", process=False, maintain_order=True)
        np.testing.assert_array_equal(theirs.triangles.astype("f4"), shape.pos[shape.face.T])


@pytest.mark.parametrize("given", rounds(40, 3000))
def test_every_triangle_of_a_random_stl_is_read_by_value(given, tmp_path):
    for seed in seeds(given):
        mesh = Mesh(seed)
        data = mesh.stl()
        shape = load(tmp_path, "a.stl", data)
        want = mesh.fans(mesh.pos[mesh.corner])
        np.testing.assert_array_equal(shape.pos[shape.face.T], want)
        assert len(shape.pos) == len(np.unique(want.reshape(-1, 3), axis=0))
        attribute = shape.face_attribute.numpy() if "face_attribute" in shape else 0
        np.testing.assert_array_equal(attribute + 0 * mesh.attribute, mesh.attribute)
        theirs = trimesh.load(io.BytesIO(data), file_type="stl", process=False)
        np.testing.assert_array_equal(theirs.triangles.astype("f4"), want)


@pytest.mark.parametrize("given", rounds(40, 3000))
def test_every_attribute_of_a_random_glb_is_read_by_value(given, tmp_path):
    for seed in seeds(given):
        mesh = Mesh(seed)
        data, attributes = mesh.glb()
        shape = load(tmp_path, "a.glb", data)
        same(shape.pos, mesh.pos)
        assert shape.face.T.tolist() == mesh.fans(mesh.corner).tolist()
        theirs = next(
            iter(trimesh.load(io.BytesIO(data), file_type="glb", process=False).geometry.values())
        )
        np.testing.assert_array_equal(theirs.triangles.astype("f4"), shape.pos[shape.face.T])
        for name, values in attributes.items():
            kind = values.dtype
            unit = values / np.float32(np.iinfo(kind).max) if kind.kind == "u" else values
            if name == "NORMAL":
                same(shape.normal, values)
            elif name == "TEXCOORD_0":
                close(shape.uv, unit * np.array([1, -1], "f4") + np.array([0, 1], "f4"))
            elif name == "COLOR_0":
                close(shape.color, unit[:, :3])
                assert ("alpha" in shape) == (values.shape[1] == 4)
                if "alpha" in shape:
                    close(shape.alpha, unit[:, 3])
            elif name == "_HEAT":
                same(shape.HEAT, values[:, 0])


@pytest.mark.parametrize("given", rounds(60, 4000))
def test_every_number_of_a_random_text_is_read_by_value(given, tmp_path):
    for seed in seeds(given):
        table = Table(seed)
        shape = load(tmp_path, "a.csv", table.data)
        theirs = np.loadtxt(
            io.BytesIO(table.data),
            delimiter=table.mark,
            comments=None,
            skiprows=table.head,
            ndmin=2,
        )
        values = np.stack(list(table.columns.values()), 1)
        np.testing.assert_array_equal(theirs.astype("f4"), values.astype("f4"))
        place = {name: column for column, name in enumerate(table.names)}
        close(shape.pos, values[:, [place[axis] for axis in "xyz"]])
        if table.named:
            for name in set(table.names) - set("xyz"):
                close(shape[name], table.columns[name])
        elif len(table.names) > 3:
            close(shape.x, values[:, 3:])


@pytest.mark.parametrize("given", rounds(24, 800))
def test_every_dimension_of_a_random_las_is_what_laspy_reads(given, tmp_path):
    for seed in seeds(given):
        draw = np.random.default_rng(seed)
        form = int(draw.integers(0, 11))
        version = (
            "1.4"
            if form > 5
            else str(draw.choice(["1.2", "1.3", "1.4"] if form < 4 else ["1.3", "1.4"]))
        )
        header = laspy.LasHeader(point_format=form, version=version)
        header.scales = 10.0 ** draw.integers(-4, 1, 3)
        header.offsets = draw.integers(-1000, 1000, 3)
        extra = [f"extra_{kind}" for kind in PLY_TYPES if draw.random() < 0.3]
        for name in extra:
            header.add_extra_dim(laspy.ExtraBytesParams(name, name[-2:]))
        file = laspy.LasData(header)
        rows = int(draw.integers(1, 40))
        for axis in "XYZ":
            file[axis] = numbers(draw, "i4", rows)
        for dimension in file.point_format.dimensions:
            if dimension.name in ("X", "Y", "Z"):
                continue
            most = dimension.max if dimension.kind.name != "FloatingPoint" else 1e3
            values = (
                draw.integers(0, min(most, 1 << 62), rows, endpoint=True)
                if most > 0
                else np.zeros(rows)
            )
            file[dimension.name] = values
        packed = form not in (4, 5, 9, 10) and draw.random() < 0.5
        path = tmp_path / f"a.{'laz' if packed else 'las'}"
        file.write(path)
        shape, theirs = ga.load(path), laspy.read(path)
        np.testing.assert_array_equal(shape.pos, theirs.xyz)
        if "red" in theirs.point_format.dimension_names:
            color = np.stack([theirs[name] for name in ("red", "green", "blue")], 1)
            np.testing.assert_allclose(
                shape.color, color / (255 if color.max() < 256 else 65535), rtol=1e-6
            )
        for name in theirs.point_format.dimension_names:
            if name not in ("X", "Y", "Z", "red", "green", "blue"):
                np.testing.assert_array_equal(shape[name].numpy(), np.asarray(theirs[name]))
        assert set(extra) <= set(shape.keys())


def test_a_compressed_pcd_of_one_point_and_times_in_nanoseconds(tmp_path):
    head = b"FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH 1\nHEIGHT 1\nPOINTS 1\nDATA binary_compressed\n"
    plain = np.arange(3, dtype="<f4").tobytes()
    packed = bytes([len(plain) - 1]) + plain
    sizes = np.array([len(packed), len(plain)], "<u4").tobytes()
    assert load(tmp_path, "a.pcd", head + sizes + packed).pos.tolist() == [[0, 1, 2]]
    head = b"FIELDS x y z t\nSIZE 4 4 4 8\nTYPE F F F U\nCOUNT 1 1 1 1\nWIDTH 2\nHEIGHT 1\nPOINTS 2\nDATA ascii\n"
    times = [1_700_000_000_123_456_789, 2**64 - 1]
    shape = load(tmp_path, "a.pcd", head + "".join(f"0 0 0 {time}\n" for time in times).encode())
    assert shape.t.tolist() == times
    for wrong in (b"0 0 0 18446744073709551616\n", b"0 0 0 1.5\n", b"0 0 0 1e19\n"):
        with pytest.raises(LoaderError, match="line 10: expected t as uint64, got"):
            load(tmp_path, "a.pcd", head + b"0 0 0 1\n" + wrong)
