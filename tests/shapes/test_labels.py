"""Labels of points under any name, and files of several endings in one folder."""

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.shapes import Shape, ShapeFolder


def scan(folder, name, label, **more):
    """A file of seven points."""
    folder.mkdir(exist_ok=True)
    pos = torch.rand(7, 3, generator=torch.Generator().manual_seed(len(list(folder.iterdir()))))
    ga.save(
        Shape(
            pos=pos.double(),
            **{label: torch.tensor([2, 2, 5, 5, 6, 0, 2], dtype=torch.uint8)},
            **more,
        ),
        folder / name,
    )


def test_the_error_lists_the_properties_that_were_seen(tmp_path):
    scan(tmp_path / "a", "0.ply", "kind", intensity=torch.rand(7))
    with pytest.raises(
        LoaderError,
        match=r"expected labels, got none; its properties: kind, intensity.*--label NAME",
    ):
        ShapeFolder(tmp_path / "a")
    with pytest.raises(
        LoaderError, match=r"expected the property sort, got none; its properties: kind, intensity"
    ):
        ShapeFolder(tmp_path / "a", label="sort")
    (tmp_path / "b").mkdir()
    ga.save(Shape(pos=torch.rand(7, 3)), tmp_path / "b" / "0.ply")
    with pytest.raises(
        LoaderError,
        match=r"its properties: none\. Try: one of these, or no label= \(--label\), for labels.csv",
    ):
        ShapeFolder(tmp_path / "b", label="sort")


@pytest.mark.parametrize("name", ["label", "Label", "My_Class", "my_class", "scalar_My_Class"])
def test_the_name_of_the_label_is_found_as_the_file_or_its_loader_has_it(tmp_path, name):
    for number in range(2):
        scan(tmp_path / "a", f"{number}.ply", "label" if name.lower() == "label" else "My_Class")
    assert ShapeFolder(tmp_path / "a", label=name)[0].y.tolist() == [2, 2, 5, 5, 6, 0, 2]


def test_any_property_is_the_label_and_ignored_values_are_none(tmp_path):
    for number in range(3):
        scan(
            tmp_path / "a",
            f"{number}.ply",
            "kind",
            scalar_Class=torch.tensor([1.0, 2, 0, 1, 1, 1, 1]),
        )
    folder = ShapeFolder(tmp_path / "a", label="kind", ignore=(0, 3))
    assert folder.task == "segment"
    assert folder.values == [1, 2, 4, 5, 6]
    assert folder[0].y.tolist() == [1, 1, 3, 3, 4, -1, 1]
    assert folder.classes == ("1", "2", "4", "5", "6")
    assert "kind" not in folder[0]
    named = ShapeFolder(tmp_path / "a", label="kind", ignore=(0, 3), classes=tuple("abcde"))
    assert named.classes == tuple("abcde")
    with pytest.raises(
        LoaderError, match=r"expected labels 0 to 1, got 4. Try: a name for each class, or ignore"
    ):
        ShapeFolder(tmp_path / "a", label="kind", ignore=(0, 3), classes=("a", "b"))
    with pytest.raises(LoaderError, match="expected labels from 0, got none but those to ignore"):
        ShapeFolder(tmp_path / "a", label="kind", ignore=range(300))
    # CloudCompare saves floats
    assert ShapeFolder(tmp_path / "a", label="scalar_Class").task == "segment"
    assert ShapeFolder(tmp_path / "a", label="scalar_Class", task="regress").task == "regress"


def sites(root, **more):
    """Three files in each of two folders, whose points have labels."""
    for site in ("left", "right"):
        root.mkdir(exist_ok=True)
        for number in range(3):
            scan(root / site, f"{number}.ply", **{"label": "label", **more})


@pytest.mark.parametrize("label", ["label", "classification", "scalar_Classification"])
def test_labels_of_points_win_over_folders_that_may_be_sites_and_it_is_said(tmp_path, label):
    sites(tmp_path / "a", label=label)
    folder = ShapeFolder(tmp_path / "a")
    assert folder.task == "segment"
    assert folder[4].y.tolist() == [2, 2, 5, 5, 6, 0, 2]
    said = (
        "not read: the folders left, right, as points have labels; --task classify reads the "
        "folders"
    )
    assert folder.notes == (said,)
    for task in ("segment", "classify"):
        other = ShapeFolder(tmp_path / "a", task=task)
        assert other.task == task
        assert len(other[4].y) == {"segment": 7, "classify": 1}[task]
    assert other.classes == ("left", "right")
    assert other.notes == (
        f"not read: {label} of points, as a folder for each class says what shapes are; --label "
        "NAME reads it",
    )


def test_folders_are_classes_where_points_have_no_labels_or_all_the_same(tmp_path):
    for site in ("left", "right"):
        for number in range(2):
            (tmp_path / "a" / site).mkdir(parents=True, exist_ok=True)
            label = {"label": torch.full((7,), 3)} if site == "left" else {"wet": torch.rand(7)}
            ga.save(
                Shape(pos=torch.rand(7, 3), **label),
                tmp_path / "a" / site / f"{number}.{'ply' if site == 'left' else 'npz'}",
            )
    folder = ShapeFolder(tmp_path / "a")
    assert (folder.task, folder.classes, folder.notes) == ("classify", ("left", "right"), ())


def test_numbers_of_points_are_learned_in_folders_that_are_sites(tmp_path):
    for site in ("left", "right"):
        for number in range(2):
            (tmp_path / site).mkdir(exist_ok=True)
            ga.save(
                Shape(pos=torch.rand(7, 3), label=torch.rand(7)), tmp_path / site / f"{number}.ply"
            )
    for task in (None, "regress"):
        folder = ShapeFolder(tmp_path, task=task)
        assert (folder.task, len(folder[3].y)) == ("regress", 7)


def test_labels_of_points_beside_a_table_of_labels_are_said_to_be_unread(tmp_path):
    for number in range(4):
        scan(tmp_path, f"{number}.ply", "label")
    (tmp_path / "labels.csv").write_text(
        "".join(f"{n}.ply,{'ab'[n % 2]}\n" for n in range(4)), encoding="utf-8"
    )
    folder = ShapeFolder(tmp_path)
    assert folder.task == "classify"
    assert folder.notes == (
        "not read: label of points, as labels.csv says what shapes are; --label NAME reads it",
    )


def test_las_has_its_labels_and_their_names(tmp_path):
    pytest.importorskip("laspy")
    for number in range(2):
        scan(tmp_path / "a", f"{number}.las", "classification")
    folder = ShapeFolder(tmp_path / "a", ignore=(0,))
    assert folder.classes[:2] == ("unclassified", "ground")
    assert folder.classes[-1] == "building"
    assert folder[1].y.tolist() == [1, 1, 4, 4, 5, -1, 1]


def test_files_of_several_endings_have_what_all_have(tmp_path):
    pytest.importorskip("laspy")
    root = tmp_path / "a"
    scan(root, "0.las", "classification", intensity=torch.arange(7).to(torch.uint16))
    scan(root, "1.ply", "label", intensity=torch.rand(7))
    pos = np.random.default_rng(0).random((7, 3))
    np.savez(root / "2.npz", pos=pos, y=np.arange(7) % 3, intensity=pos[:, 0], heat=pos)
    folder = ShapeFolder(root)
    assert {tuple(sorted(name for name, _ in folder[i].items())) for i in range(3)} == {
        ("intensity", "pos", "y")
    }
    assert {"gps_time", "heat"} <= set(folder.left)
    scan(root, "3.ply", "label")  # of one ending all have the same
    with pytest.raises(
        LoaderError,
        match=r"3.ply: expected the properties of 1.ply, got others: 7 points have no intensity",
    ):
        ShapeFolder(root)


def test_files_of_cloudcompare_need_no_options(tmp_path):
    from graphattn.training.chosen import task_of
    from graphattn.training.reading.default_inputs import inputs_of

    for number in range(3):
        label, own = torch.tensor([2.0, 2, 5, 5, 6, 0, 2]), torch.rand(7)
        scan(
            tmp_path / "a",
            f"{number}.ply",
            "kind",
            scalar_Classification=label,
            scalar_Intensity=own,
        )
    folder = ShapeFolder(tmp_path / "a")
    assert (folder.task, folder[0].y.tolist()) == ("segment", [2, 2, 5, 5, 6, 0, 2])
    assert folder.classes[2] == "ground"
    inputs = inputs_of(
        "unet", task_of("segment", folder, [0]), folder, [0, 1, 2], ga.training.Options()
    )
    assert inputs.features[-1] == "scalar_Intensity"
    rows = "".join(
        f"{number}.5 5400000.25 {number} 9 255 0 0.5 {number % 2}\n" for number in range(5)
    )
    (tmp_path / "scan.asc").write_text(
        f"//X Y Z R G B Intensity Classification\n5\n{rows}", encoding="utf-8"
    )
    shape = ga.load(tmp_path / "scan.asc")
    assert shape.pos.tolist()[3] == [3.5, 5400000.25, 3.0]
    assert shape.Classification.tolist() == [0, 1, 0, 1, 0]
    assert set(shape.keys()) == {"pos", "color", "Intensity", "Classification"}


def test_a_scalar_that_is_unknown_is_nan_in_ascii_as_in_binary(tmp_path):
    head = (
        "ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nproperty float y\nproperty "
        "float z\n"
    )
    file = tmp_path / "cloudcompare.ply"
    file.write_text(
        f"{head}property float scalar_Gap\nend_header\n0 1 2 nan\n1 2 3 0.5\n", encoding="utf-8"
    )
    assert ga.load(file).scalar_Gap.isnan().tolist() == [True, False]
    file.write_text(f"{head}end_header\n0 nan 2\n1 2 3\n", encoding="utf-8")
    with pytest.raises(
        LoaderError, match=r"line 8, vertex 0: expected finite numbers, got \[0.0, nan, 2.0\]"
    ):
        ga.load(file)


def test_names_of_columns_have_blanks_between_commas_and_scalars_may_be_unknown(tmp_path):
    rows = "".join(
        f"{number}.5,2,3,0.5,1,0,{number},{'nan' if number else 7}\n" for number in range(3)
    )
    (tmp_path / "scan.csv").write_text(
        f"//X,Y,Z,Rf,Gf,Bf,Return Number,C2C absolute distances\n{rows}", encoding="utf-8"
    )
    shape = ga.load(tmp_path / "scan.csv")
    assert set(shape.keys()) == {"pos", "color", "Return_Number", "C2C_absolute_distances"}
    assert shape.color[0].tolist() == [0.5, 1, 0]
    assert shape.C2C_absolute_distances.isnan().tolist() == [False, True, True]
    ga.save(shape, tmp_path / "scan.ply")
    (tmp_path / "wrong.csv").write_text(
        "X,Y,Z,Return Number\n1,2,3,4\n1,nan,3,4\n", encoding="utf-8"
    )
    with pytest.raises(LoaderError, match=r"line 3, vertex 1: expected finite numbers"):
        ga.load(tmp_path / "wrong.csv")
    for number in range(2):
        label = torch.tensor([2.0, torch.nan, 1, 1, 1, 1, 1])
        scan(tmp_path / "a", f"{number}.ply", "kind", scalar_Classification=label)
    assert ShapeFolder(tmp_path / "a")[0].y.tolist() == [2, -1, 1, 1, 1, 1, 1]
