"""Folders of shapes: every layout that is said, labels, splits, and what is wrong with a file, by
its name.
"""

import json
import os

import numpy as np
import pytest
import torch
from torch_geometric import transforms
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.shapes import ShapeFolder


def shape(size=7, **more):
    return Data(pos=torch.rand(size, 3), **more)


def put(path, data=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, str):
        path.write_text(data, encoding="utf-8")
    else:
        ga.save(shape() if data is None else data, path)


def modelnet(root):
    for name in ("chair", "table"):
        for split, many in (("train", 3), ("test", 2)):
            for number in range(many):
                put(root / name / split / f"{name}_{number:04d}.off")
    return "classify", {"train": 6, "val": 0, "test": 4}, 2


def shapenet_part(root):
    put(root / "synsetoffset2category.txt", "Airplane\t02691156\nBag\t02773838\n")
    for synset in ("02691156", "02773838"):
        for number in range(3):
            rows = np.c_[np.random.default_rng(number).random((11, 6)), np.arange(11) % 4]
            put(
                root / synset / f"{number}.txt",
                "\n".join(" ".join(f"{x:.6f}" for x in row) for row in rows),
            )
    for split, number in (("train", 0), ("val", 1), ("test", 2)):
        names = [f"shape_data/{synset}/{number}" for synset in ("02691156", "02773838")]
        put(root / "train_test_split" / f"shuffled_{split}_file_list.json", json.dumps(names))
    return "segment", {"train": 2, "val": 2, "test": 2}, 4


def s3dis(root):
    for area in (1, 2, 5):
        for thing in ("chair_1", "chair_2", "wall_1"):
            rows = "".join(
                f"{x} {y} 0.5 255 0 51\n" for x, y in np.random.default_rng(area).random((5, 2))
            )
            put(root / f"Area_{area}" / "office_1" / "Annotations" / f"{thing}.txt", rows)
    return "segment", {"train": 2, "val": 0, "test": 1}, 2


def scannet(root):
    for number, split in enumerate(("train", "val")):
        scene = f"scene000{number}_00"
        face = torch.tensor([[0, 1], [1, 2], [2, 3]])
        put(
            root / "scans" / scene / f"{scene}_vh_clean_2.ply",
            shape(face=face, color=torch.rand(7, 3)),
        )
        put(
            root / "scans" / scene / f"{scene}_vh_clean_2.labels.ply",
            shape(face=face, y=torch.arange(7)),
        )
        put(root / f"scannetv2_{split}.txt", f"{scene}\n")
    return "segment", {"train": 1, "val": 1, "test": 0}, 7


def faust(root):
    for number in (0, 1, 10, 11, 80, 81):
        put(root / "MPI-FAUST" / "training" / "registrations" / f"tr_reg_{number:03d}.ply")
    return "classify", {"train": 4, "val": 0, "test": 2}, 2


def labels_csv(root):
    put(
        root / "labels.csv", "file,label\n" + "".join(f"{i}.ply,{'ab'[i % 2]}\n" for i in range(10))
    )
    for number in range(10):
        put(root / f"{number}.ply")
    return "classify", {"train": 6, "val": 2, "test": 2}, 2


def numbers_csv(root):
    put(root / "labels.csv", "".join(f"{i}.xyz,{i / 4}\n" for i in range(10)))
    for number in range(10):
        put(root / f"{number}.xyz")
    return "regress", {"train": 7, "val": 1, "test": 2}, 0


def labelled(root):
    for number in range(10):
        put(root / f"{number}.ply", shape(y=torch.arange(7) % 5 - 1))
    return "segment", {"train": 7, "val": 1, "test": 2}, 4


def regressed(root):
    for number in range(5):
        put(root / f"{number}.npz", shape(y=torch.rand(7, dtype=torch.float64)))
    return "regress", {"train": 4, "val": 0, "test": 1}, 0


LAYOUTS = (
    modelnet,
    shapenet_part,
    s3dis,
    scannet,
    faust,
    labels_csv,
    numbers_csv,
    labelled,
    regressed,
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read_as_it_is(layout, tmp_path):
    task, sizes, num_classes = layout(tmp_path)
    folder = ShapeFolder(tmp_path)
    assert (folder.task, len(folder.classes)) == (task, num_classes)
    split = folder.split(val=0.1 if layout in (labels_csv, numbers_csv, labelled) else 0)
    assert {name: len(part) for name, part in split.items()} == sizes
    assert sorted(number for part in split.values() for number in part.indices) == list(
        range(len(folder))
    )
    batch = next(iter(DataLoader(folder, batch_size=len(folder))))
    assert batch.pos.dtype == torch.float32
    assert batch.y.dtype == (torch.float32 if task == "regress" else torch.int64)
    assert len(batch.y) == (
        len(batch.pos) if layout not in (modelnet, faust, labels_csv, numbers_csv) else len(folder)
    )
    assert len(batch.pos) == int(folder.sizes.sum())


def test_a_split_is_drawn_by_its_seed_said_and_written(tmp_path):
    labels_csv(tmp_path)
    folder = ShapeFolder(tmp_path)
    one, other = folder.split(seed=3), folder.split(seed=4)
    assert [part.indices for part in one.values()] == [
        part.indices for part in folder.split(seed=3).values()
    ]
    assert [part.indices for part in one.values()] != [part.indices for part in other.values()]
    assert sorted(int(one["test"][i].y) for i in range(2)) == [0, 1]
    assert str(one) == "6 train, 2 val, 2 test (drawn by seed 3, each class in these parts)"
    one.save(tmp_path / "split.json")
    files = json.loads((tmp_path / "split.json").read_text("utf-8"))["files"]
    assert files["test"] == [folder.name(i) for i in one["test"].indices]
    with pytest.raises(LoaderError, match="sum below 1"):
        folder.split(val=0.5, test=0.5)


def test_a_split_says_what_it_lacks(tmp_path):
    for number in range(4):
        put(tmp_path / "ab"[number % 2] / f"{number}.ply")
    assert (
        str(ShapeFolder(tmp_path).split())
        == "2 train, 0 val, 2 test (drawn by seed 0, val without 2 of 2 classes)"
    )


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_numbers_are_of_one_type_whether_kept_or_read_again(kept, tmp_path, monkeypatch):
    monkeypatch.setattr("graphattn.shapes.folder._ROOM", kept)
    for number in range(4):
        y = torch.tensor([number]) if number else torch.rand(1)
        put(tmp_path / f"{number}.npz", Data(pos=torch.randint(0, 9, (7, 3)), y=y))
    folder = ShapeFolder(tmp_path)
    assert {(shape.pos.dtype, shape.y.dtype) for shape in folder} == {
        (torch.float32, torch.float32)
    }


@pytest.mark.parametrize("where", ["0.ply", "a/more/0.ply", "a/train/more/0.npz"])
def test_no_file_is_left_out(where, tmp_path):
    for name in ("a/1.ply", "a/2.ply", "b/1.ply", "b/2.ply", ".old/1.ply"):
        put(tmp_path / name)
    put(tmp_path / "README.txt", "Two classes.")
    assert len(ShapeFolder(tmp_path)) == 4
    put(tmp_path / where)
    with pytest.raises(
        LoaderError, match=f"{where}: expected all files in a folder for each class"
    ):
        ShapeFolder(tmp_path)


def test_transforms_of_pyg_are_taken_as_they_are(tmp_path):
    for number in range(4):
        put(
            tmp_path / "ab"[number % 2] / f"{number}.ply",
            shape(normal=torch.rand(7, 3), face=torch.tensor([[0], [1], [2]])),
        )
    steps = (
        transforms.NormalizeScale(),
        transforms.FaceToEdge(remove_faces=False),
        transforms.FixedPoints(5),
        transforms.Cartesian(),
    )
    folder = ShapeFolder(tmp_path, transform=transforms.Compose(steps[:2]))
    assert folder[0].pos.abs().max() <= 1
    assert folder[0].edge_index.shape == (2, 6)
    assert ShapeFolder(tmp_path, transform=steps[2])[1].normal.shape == (5, 3)
    plain = ShapeFolder(tmp_path)
    assert torch.equal(plain[0].pos, ga.load(tmp_path / "a" / "0.ply").pos), (
        "no transform reaches what is kept"
    )


BAD = (
    "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty "
    "float z\n"
)
BAD += (
    "element face 1\nproperty list uchar int vertex_indices\nend_header\n0 0 0\n1 0 %s\n0 1 "
    "0\n3 0 1 %s\n"
)
WRONG = {
    "empty": ("a/9.xyz", "# nothing\n", "empty"),
    "no points": ("a/9.off", "OFF\n0 0 0\n", "points"),
    "NaN": ("a/9.ply", BAD % ("nan", 2), "line 11, vertex 1: expected finite"),
    "face": ("a/9.ply", BAD % (0, 7), "face 0: vertex 7 of 3"),
    "other properties": (
        "a/9.ply",
        shape(color=torch.rand(7, 3)),
        r"have color \(3 numbers\), where those of a/0.ply have no color",
    ),
    "a class of one": ("c/9.ply", shape(), "only this one of 'c'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_names_the_file(what, tmp_path):
    for number in range(4):
        put(tmp_path / "ab"[number % 2] / f"{number}.ply")
    path, data, said = WRONG[what]
    put(tmp_path / path, data)
    with pytest.raises(LoaderError, match=f"{path}[\\s\\S]*{said}"):
        ShapeFolder(tmp_path)


CURVE = "x,y,order,closed\n0,0,0,1\n1,0,1,1\n1,1,2,1\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a/0.csv",
            "x,y,order\n0,0,0\n1,0,1\n",
            r"2 points have no closed, where those of a/1\.csv",
        ),
        ("a/2.csv", "x,y,order,closed\n0,0,0,0\n", r"1 point has no edge_index, where .* a/0\.csv"),
        (
            "b/0.csv",
            "x,y,z,order,closed\n0,0,0,0,0\n1,0,1,1,0\n",
            r"2 points have pos \(3 numbers\), where those of a/0\.csv have pos \(2 numbers\)",
        ),
        (
            "a/notes.txt",
            "Drawn by hand\n",
            r"Try: .* Or move it out of the folder, if it is no shape",
        ),
    ],
)
def test_the_file_that_is_unlike_most_is_named(name, text, said, tmp_path):
    for number in range(6):
        put(tmp_path / "ab"[number % 2] / f"{number // 2}.csv", CURVE)
    put(tmp_path / name, text)
    with pytest.raises(LoaderError, match=f"{name}[\\s\\S]*{said}"):
        ShapeFolder(tmp_path)


@pytest.mark.parametrize("energies", [(-289, -290, -291), (-289, -289.5, -1)])
def test_numbers_below_0_are_to_regress(energies, tmp_path):
    for number, energy in enumerate(energies):
        text = f"1\nProperties=species:S:1:pos:R:3 energy={energy}\nH 0 0 0\n"
        put(tmp_path / f"{number}.extxyz", text)
    folder = ShapeFolder(tmp_path, label="energy", task="regress")
    assert [float(shape.y) for shape in folder] == list(energies)
    if -289.5 in energies:  # so that no file's number can be a class
        assert ShapeFolder(tmp_path, label="energy").task == "regress"
    else:
        with pytest.raises(LoaderError, match=r'labels from -1, got -289\. Try: task="regress"'):
            ShapeFolder(tmp_path, label="energy")
    put(tmp_path / "1.extxyz", text.replace(str(energies[-1]), "nan"))
    with pytest.raises(LoaderError, match=r"1\.extxyz: expected finite numbers as labels, got nan"):
        ShapeFolder(tmp_path, label="energy")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("0.ply,a\n1.ply,\n", r"labels.csv, line 2: expected a file and its label"),
        ("7.ply,a\n0.ply,b\n1.ply,b\n", r"line 1: expected a file 7.ply, got none"),
        (
            "0.ply,a\n../1.ply,b\n1.ply,b\n",
            r"line 2: expected a file \.\./1.ply, got none of this name in the folder",
        ),
        ("0.ply,a\n7.ply,b\n", r"line 2: expected a file 7.ply, got none"),
        ("0.ply,a\n0.ply,b\n1.ply,b\n", r"a second label"),
        ("0.ply,inf\n1.ply,1\n", r"0.ply: expected finite numbers as labels, got inf"),
        ("0.ply,a\n", r"expected a label for each file, got none for .*1.ply"),
    ],
)
def test_labels_that_are_missing(lines, said, tmp_path):
    put(tmp_path / "0.ply")
    put(tmp_path / "1.ply")
    put(tmp_path / "labels.csv", lines)
    with pytest.raises(LoaderError, match=said):
        ShapeFolder(tmp_path)


def test_lists_that_are_no_lists(tmp_path):
    put(tmp_path / "0.ply")
    (tmp_path / "labels.csv").write_bytes(b"0.ply,caf\xe9\n")
    with pytest.raises(LoaderError, match=r"labels.csv: expected a text in UTF-8"):
        ShapeFolder(tmp_path)
    (tmp_path / "labels.csv").unlink()
    shapenet_part(tmp_path)
    put(tmp_path / "synsetoffset2category.txt", "Airplane\n")
    with pytest.raises(LoaderError, match="expected lines of a name and a synset"):
        ShapeFolder(tmp_path)


def test_labels_out_of_range(tmp_path):
    put(tmp_path / "0.ply", shape(y=torch.arange(7)))
    put(tmp_path / "1.ply", shape(y=torch.arange(7) + 2))
    assert len(ShapeFolder(tmp_path).classes) == 9
    with pytest.raises(LoaderError, match=r"1\.ply: expected labels 0 to 7, got 8"):
        ShapeFolder(tmp_path, num_classes=8)
    put(tmp_path / "2.ply", shape(y=torch.arange(7) - 2))
    with pytest.raises(LoaderError, match=r"2\.ply: expected labels from -1"):
        ShapeFolder(tmp_path)
    put(tmp_path / "2.ply")
    with pytest.raises(LoaderError, match=r"2\.ply: expected labels, got none|it has no y"):
        ShapeFolder(tmp_path)


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ([-1] * 7, "labels from 0, got none but -1"),
        ([-1], r"0\.npz: expected a class from 0, got -1"),
    ],
)
def test_no_label_is_no_class(y, said, tmp_path):
    put(tmp_path / "0.npz", shape(y=torch.tensor(y)))
    with pytest.raises(LoaderError, match=said):
        ShapeFolder(tmp_path)


def test_a_file_that_changes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("graphattn.shapes.folder._ROOM", 100)
    labelled(tmp_path)
    folder = ShapeFolder(tmp_path)
    assert len(folder[4].pos) == 7
    put(tmp_path / "4.ply", shape(9, y=torch.arange(9)))
    with pytest.raises(LoaderError, match=r"4\.ply: expected the file that was there"):
        folder[4]
    os.unlink(tmp_path / "5.ply")
    with pytest.raises(LoaderError, match=r"5\.ply: expected a file, got: No such file"):
        folder[5]


@pytest.mark.parametrize("what", ["", "x.ply", "empty"])
def test_what_is_no_folder_of_shapes(what, tmp_path):
    (tmp_path / "empty").mkdir()
    put(tmp_path / "x.ply")
    with pytest.raises(LoaderError, match=r"expected (labels|a folder of shapes|files \.asc)"):
        ShapeFolder(tmp_path / what)


def test_lists_above_folders_of_texts_are_no_shapes(tmp_path):
    """ModelNet40 as points: a folder of .txt for each class, and lists of the splits in the
    root.
    """
    for kind in ("chair", "desk"):
        (tmp_path / kind).mkdir()
        for number in range(3):
            np.savetxt(
                tmp_path / kind / f"{kind}_{number}.txt", torch.rand(5, 6).numpy(), delimiter=","
            )
    (tmp_path / "modelnet40_train.txt").write_text("chair_0\ndesk_0\n", encoding="utf-8")
    assert len(ShapeFolder(tmp_path)) == 6


def test_a_table_of_semicolons_has_decimal_commas(tmp_path):
    for number in range(3):
        put(tmp_path / f"{number}.ply", shape())
    (tmp_path / "labels.csv").write_text(
        "file;label\n0.ply;1,5\n1.ply;2\n2.ply;-0,25\n", encoding="utf-8"
    )
    folder = ShapeFolder(tmp_path)
    assert [float(label) for label in folder.labels] == [1.5, 2, -0.25]
