"""What is saved is what is loaded: bit for bit, under the same names, in every format."""

import errno
import os

import numpy as np
import plyfile
import pytest
import torch
from torch_geometric.data import Batch, Data

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.shapes.files.words import levels, unit

TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8")
FACE = torch.tensor([[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 1, 3]]).T.contiguous()
WORDS = {
    ".ply": "face normal color alpha uv y curvature ids wide face_y face_color edge_a edge_b",
    ".npz": "face normal color alpha uv y curvature ids wide half face_y face_color edge_a edge_b edge_index far",
    ".obj": "face normal color uv",
    ".off": "face normal color uv face_color",
    ".stl": "face face_attribute",
    ".glb": "face normal color uv y ids",
    ".pcd": "normal color alpha y curvature ids wide",
    ".csv": "normal color uv y curvature",
    ".xyz": "color y",
    ".npy": "x",
    ".las": "color y ids curvature",
    ".laz": "color y ids",
}


def shape():
    draw = torch.Generator().manual_seed(5)
    return Data(
        pos=torch.rand(7, 3, generator=draw) - 0.5,
        face=FACE,
        normal=torch.nn.functional.normalize(torch.rand(7, 3, generator=draw)),
        color=torch.randint(0, 256, (7, 3), generator=draw) / 255,
        alpha=torch.rand(7, generator=draw),
        uv=torch.randint(0, 65, (7, 2), generator=draw) / 64,
        y=torch.randint(0, 5, (7,), generator=draw),
        curvature=torch.randn(7, generator=draw),
        ids=torch.arange(7, dtype=torch.int16) - 3,
        half=torch.rand(7, generator=draw).half(),
        wide=torch.rand(7, 5, generator=draw),
        x=torch.rand(7, 4, generator=draw),
        face_y=torch.tensor([4, 3, 0, 1]),
        face_color=torch.rand(4, 3, generator=draw),
        face_attribute=torch.tensor([1, 2, 3, 4], dtype=torch.uint16),
        edge_a=torch.arange(11, dtype=torch.int32),
        edge_b=torch.rand(11, generator=draw).double(),
        edge_index=torch.randint(0, 7, (2, 13), generator=draw),
        far=torch.tensor([1e300, float("nan")], dtype=torch.float64),
    )


def only(data, names):
    return Data(pos=data.pos, **{name: data[name] for name in names.split()})


@pytest.mark.parametrize("ending", WORDS)
def test_every_format_gives_back_what_it_holds(ending, tmp_path):
    asked = only(shape(), WORDS[ending])
    path = tmp_path / f"shape{ending}"
    ga.save(asked, path)
    back = ga.load(path)
    for name in {*asked.keys()} - {"pos", "face"}:
        assert torch.equal(back[name], asked[name].to(back[name].dtype)) or name == "far", name
        assert back[name].dtype == asked[name].dtype or name in (
            "y",
            "face_y",
            "ids",
            "edge_index",
        ), name
    close = 1e-8 if ending in (".las", ".laz") else 0  # their coordinates are integers of a scale
    at = asked.pos if ending != ".stl" else asked.pos[[0, 1, 2, 3, 4, 5, 6]]
    torch.testing.assert_close(back.pos.float(), at, rtol=0, atol=close)
    if "face" in asked:
        assert torch.equal(back.pos[back.face].float(), asked.pos[asked.face])
    if ending in (".ply", ".npz", ".obj", ".off", ".glb", ".pcd", ".csv", ".xyz", ".npy"):
        again = tmp_path / f"again{ending}"
        ga.save(back, again)
        assert again.stat().st_size == path.stat().st_size
        assert set(back.keys()) == set(asked.keys())


@pytest.mark.parametrize("ending", [".csv", ".xyz", ".pcd", ".npz"])
def test_points_of_a_plane_keep_their_normals(ending, tmp_path):
    asked = Data(pos=torch.rand(5, 2), normal=torch.rand(5, 2))
    ga.save(asked, tmp_path / f"plane{ending}")
    back = ga.load(tmp_path / f"plane{ending}")
    assert torch.equal(back.normal, asked.normal)


@pytest.mark.parametrize("order", ["<", ">", "text"])
def test_every_property_of_a_ply_file_as_plyfile_reads_and_writes_it(order, tmp_path):
    """Numbers of all types at their limits, in vertices, faces and an element of another name."""
    draw = np.random.default_rng(3)

    def table(size, *named):
        kinds = [*named, *((f"p_{kind}", kind) for kind in TYPES), ("scalar_Label_index", "u2")]
        rows = np.zeros(size, kinds)
        for name, kind in kinds:
            kind = np.dtype(kind)
            if kind.kind in "iu":
                limits = np.iinfo(kind)
                rows[name] = draw.integers(limits.min, limits.max, size, endpoint=True, dtype=kind)
                rows[name][:2] = limits.min, limits.max
            elif kind.kind == "f":
                rows[name] = draw.standard_normal(size) * 10.0 ** draw.integers(-30, 30, size)
        return rows

    color = [(name, "u1") for name in ("red", "green", "blue")]
    vertex = table(
        31, *((axis, "f8") for axis in "xyz"), *((f"n{axis}", "f4") for axis in "xyz"), *color
    )
    face = table(11, *color, ("vertex_indices", "O"), ("texcoord", "O"))
    for row in range(11):
        face["vertex_indices"][row] = draw.integers(0, 31, 3).astype("i4")
        face["texcoord"][row] = draw.random(6).astype("f4")
    other = table(5, ("vertex1", "i4"))
    tables = {"vertex": vertex, "face": face, "edge": other}
    path, copy = tmp_path / "all.ply", tmp_path / "copy.ply"
    elements = [
        plyfile.PlyElement.describe(rows, name, val_types={"texcoord": "f4"})
        for name, rows in tables.items()
    ]
    plyfile.PlyData(
        elements, text=order == "text", byte_order="=" if order == "text" else order
    ).write(path)
    shape = ga.load(path)
    ga.save(shape, copy)
    read, given = plyfile.PlyData.read(copy), plyfile.PlyData.read(path)
    for name, rows in tables.items():
        assert set(read[name].data.dtype.names) == set(rows.dtype.names)
        for column in rows.dtype.names:
            ours, theirs = np.stack(read[name][column]), np.stack(given[name][column])
            assert ours.dtype == theirs.dtype.newbyteorder("="), (name, column)
            assert ours.tobytes() == theirs.astype(ours.dtype).tobytes(), (name, column)
    assert shape.color.max() <= 1
    assert shape.p_u4.dtype == torch.uint32
    assert shape.face_texcoord.shape == (11, 6)
    assert shape.edge_vertex1.shape == (5,)


def test_names_of_properties_are_not_taken_for_numbers_of_nodes():
    """PyG adds to what is called "index" or "batch"."""
    one = ga.shapes.Shape(
        pos=torch.rand(3, 3), cluster_index=torch.arange(3), columns=("cluster_index",)
    )
    batch = Batch.from_data_list([one, one])
    assert batch.cluster_index.tolist() == [0, 1, 2, 0, 1, 2]
    assert batch[1].cluster_index.tolist() == [0, 1, 2]
    assert Batch.from_data_list([Data(**one.to_dict())] * 2).cluster_index.tolist() == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]


def test_colors_are_bytes_where_they_were(tmp_path):
    every = np.arange(65536)
    assert np.array_equal(levels(unit(every[:256].astype(np.uint8))), every[:256].astype(np.uint8))
    assert np.array_equal(levels(unit(every.astype(np.uint16))), every.astype(np.uint16))
    assert levels(np.array([0.1, 0.2], np.float32)).dtype == np.float32
    path = tmp_path / "a.csv"
    path.write_text("X,Y,Z,R,G,B,label\n0,0,0,255,0,51,3\n1,0,0,0,0,0,4\n", encoding="utf-8")
    shape = ga.load(path)
    assert torch.equal(shape.color[0], torch.tensor([255, 0, 51]) / 255)
    assert shape.y.tolist() == [3, 4]
    assert shape.pos.dtype == torch.float32


@pytest.mark.parametrize(
    ("ending", "name", "value"),
    [
        (".stl", "color", torch.rand(7, 3)),
        (".obj", "y", torch.arange(7)),
        (".ply", "y", torch.tensor([3])),
        (".ply", "ids", torch.full((7,), 2**62 + 1)),
        (".ply", "made_by", "me"),
        (".glb", "curvature", torch.rand(7, dtype=torch.float64)),
        (".xyz", "face", FACE),
        (".xyz", "curvature", torch.rand(7, dtype=torch.float64)),
        (".csv", "wide", torch.rand(7, 5)),
        (".las", "wide", torch.rand(7, 5)),
        (".las", "X", torch.rand(7)),
        (".las", "color", torch.rand(7, 3)),
        (".ply", "x", torch.rand(7)),
        (".ply", "x", torch.rand(7, 2)),
        (".ply", "face_vertex_indices", torch.rand(4)),
        (".pcd", "x", torch.rand(7)),
        (".pcd", "rgb", torch.rand(7)),
        (".csv", "x", torch.rand(7)),
    ],
)
def test_what_a_format_cannot_hold_is_refused(ending, name, value, tmp_path):
    path, data = tmp_path / f"shape{ending}", Data(pos=shape().pos, face=FACE)
    data[name] = value
    if ending in (".xyz", ".csv", ".las", ".pcd") and name != "face":
        del data.face
    with pytest.raises(LoaderError, match=rf"{name}[\s\S]*Try: .*lossy=True"):
        ga.save(data, path)
    assert not list(tmp_path.iterdir())
    ga.save(data, path, lossy=True)
    torch.testing.assert_close(ga.load(path).pos.float(), data.pos, rtol=0, atol=1e-8)
    if (ending, name) == (".las", "color"):
        torch.testing.assert_close(ga.load(path).color, value, rtol=0, atol=1e-5)


@pytest.mark.parametrize("ending", [".ply", ".csv", ".glb"])
def test_two_tensors_of_one_name_in_the_file(ending, tmp_path):
    data, path = (
        Data(label=torch.zeros(7), y=torch.arange(7), pos=shape().pos),
        tmp_path / f"a{ending}",
    )
    with pytest.raises(LoaderError, match=r"label[\s\S]*Try:"):
        ga.save(data, path)
    ga.save(data, path, lossy=True)
    assert ga.load(path).y.tolist() == list(range(7))


@pytest.mark.parametrize("ending", WORDS)
@pytest.mark.parametrize("width", [2, 4])
def test_positions_of_another_width_come_back_or_are_refused(ending, width, tmp_path):
    data, path = Data(pos=shape().pos[:, [0, 1, 2, 0][:width]]), tmp_path / f"a{ending}"
    if ending == ".npz" or (width == 2 and ending in (".npy", ".pcd", ".csv", ".xyz")):
        ga.save(data, path)
        assert torch.equal(ga.load(path).pos, data.pos)
    else:
        with pytest.raises(
            LoaderError, match=rf"expected pos of shape \(N, 3\), N > 0, got \(7, {width}\)"
        ):
            ga.save(data, path)


@pytest.mark.parametrize("ending", WORDS)
def test_a_mesh_without_faces_is_its_points(ending, tmp_path):
    if ending != ".stl":
        ga.save(
            Data(pos=shape().pos, face=torch.zeros(3, 0).long()),
            tmp_path / f"a{ending}",
            lossy=True,
        )
        torch.testing.assert_close(
            ga.load(tmp_path / f"a{ending}").pos.float(), shape().pos, rtol=0, atol=1e-8
        )


def test_bfloat16_is_written_in_float32(tmp_path):
    ga.save(Data(pos=shape().pos.bfloat16()), tmp_path / "a.ply")
    assert torch.equal(ga.load(tmp_path / "a.ply").pos, shape().pos.bfloat16().float())


def test_integers_that_a_float_rounds_are_read_digit_by_digit(tmp_path):
    head = "ply\nformat ascii 1.0\nelement vertex 1\n" + "".join(
        f"property float {axis}\n" for axis in "xyz"
    )
    text = f"{head}property int64 id\nend_header\n0 0 0 "
    for number in (2**53 - 1, 2**53 + 1, -(2**63), 2**63 - 1):
        (tmp_path / "a.ply").write_text(f"{text}{number}\n", encoding="utf-8")
        assert ga.load(tmp_path / "a.ply").id.tolist() == [number]
    for word in (str(2**63), "1e17", "0.5", "nan"):
        (tmp_path / "a.ply").write_text(f"{text}{word}\n", encoding="utf-8")
        with pytest.raises(LoaderError, match=f"line 9: expected id as int64, got '{word}'"):
            ga.load(tmp_path / "a.ply")


def test_capitals_are_names_of_their_own(tmp_path):
    ga.save(Data(X=torch.arange(7), pos=shape().pos), tmp_path / "a.csv")
    back = ga.load(tmp_path / "a.csv")
    assert back.X.tolist() == list(range(7))
    assert torch.equal(back.pos, shape().pos)


def test_a_failed_save_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    path = tmp_path / "shape.ply"
    ga.save(only(shape(), "y"), path)
    before = path.read_bytes()

    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LoaderError, match="No space left"):
        ga.save(only(shape(), "color"), path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["shape.ply"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (Data(), "expected pos of shape"),
        (Data(pos=torch.zeros(0, 3)), "N > 0"),
        (Data(pos=torch.rand(3, 3), face=torch.tensor([[0, 1, 3]])), r"face of shape \(3, F\)"),
        (
            Data(pos=torch.rand(3, 3), face=torch.tensor([[0], [1], [3]])),
            "faces of vertices 0 to 2",
        ),
        (Batch.from_data_list([Data(pos=torch.rand(3, 3))] * 2), "to_data_list"),
        (torch.rand(3, 3), "expected a torch_geometric.data.Data, got Tensor"),
    ],
)
def test_what_is_no_shape_is_not_saved(data, said, tmp_path):
    with pytest.raises(LoaderError, match=said):
        ga.save(data, tmp_path / "a.ply")
