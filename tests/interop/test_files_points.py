"""Points: text, arrays, and the vertices of meshes."""

import numpy as np
import pytest

from graphattn.errors import LoaderError
from graphattn.interop.files import load_points

POINTS = np.array([[0.5, -1, 2e3], [3, 4.25, 5], [6, 7, -8e-3], [1, 1, 1], [0, 0, 1]])


def refused(path, *words, **options):
    """The message of the LoaderError, which must have all of ``words``."""
    with pytest.raises(LoaderError) as error:
        load_points(path, **options)
    for word in (path.name, "expected", "Try", *words):
        assert word in str(error.value), str(error.value)


@pytest.mark.parametrize("delimiter", [" ", "\t", ",", ", ", "  "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("extra", [0, 3])
def test_text(delimiter, end, extra, tmp_path):
    path = tmp_path / "p.xyz"
    table = np.c_[POINTS, np.full((5, extra), 255)]
    np.savetxt(path, table, "%.17g", delimiter, end, header="made by hand", encoding="latin-1")
    loaded = load_points(path)
    np.testing.assert_array_equal(loaded, POINTS)
    assert loaded.dtype == np.float64
    assert loaded.flags["C_CONTIGUOUS"]


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "f2", "g"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(dtype, order, tmp_path):
    path = tmp_path / "p.npy"
    points = np.asarray(np.arange(35).reshape(5, 7), dtype, order=order)
    np.save(path, points)
    np.testing.assert_array_equal(load_points(path), points)
    assert load_points(path).dtype == np.float64
    np.save(path, points[:, 0])
    refused(path, "(5,)")
    np.save(path, points.astype(int))
    refused(path, "int64", "astype(numpy.float64)")
    np.save(path, points[:0])
    refused(path, "empty")


def test_points_in_the_plane(tmp_path):
    path = tmp_path / "p.txt"
    path.write_text("1 2\n3 4\n")
    assert load_points(path).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 2 3\n4 5\n", ("line 2", "3 numbers", "got 2")),
        ("2\n1 2 3\n4 5 6\n", ("line 1", "a count")),
        ("# a\n\n1 2 3\n4 x 6\n", ("line 4", "'x'")),
        ("x,y,z\n1,2,3\n", ("line 1", "'x y z'", "header=True, if this line is a row of names")),
        ("1 2 3\n4 5_0 6\n", ("line 2", "'5_0'")),
        ("1 2 3\n4 0x5 6\n", ("line 2", "'0x5'")),
        ("1 2 3\n4 1e 6\n", ("line 2", "'1e'")),
        ("1 2 3\n4-5 1 2\n", ("line 2", "'4-5'")),
        ("1 2 3\n4-5 . 6\n", ("line 2", "'4-5'")),
        ("1 2 3\n. 5 6\n", ("line 2", "'.'")),
        ("1,2,3\n4,,6\n", ("line 2", "empty cell")),
        ("1,2,3\n4,5,\n", ("line 2", "empty cell")),
        ("1,2,3\n,5,6\n", ("line 2", "empty cell")),
        ("1;2;3\n", ("line 1", "'1;2;3'")),
        ("1 2 3 4\n1 2 3 nan\n", ("line 2", "finite", "'nan'")),
        ("1 2 3\n1 2 nan(5)\n", ("line 2", "'nan(5)'")),
        ("1 2 3\n4 5 \xb2\n", ("line 2",)),
        ("1\n2\n", ("line 1", "2 numbers or more")),
        ("", ("empty",)),
        ("# only\n", ("empty",)),
    ],
)
def test_bad_text(text, words, tmp_path):
    path = tmp_path / "p.xyz"
    path.write_text(text, encoding="utf-8")
    refused(path, *words)


def test_header_row(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("# where\n\nx,y,z,name\n1,2,3,7\n4,5,6,7\n")
    assert load_points(path, header=True).tolist() == [[1, 2, 3], [4, 5, 6]]
    path.write_text("nan,inf\n1,2\n")
    assert len(load_points(path, allow_nonfinite=True)) == 2
    for text, words in (("1,2\n", ("line 1", "a row of names", "header=False")), ("x,y\n", ("only a row of names",))):
        path.write_text(text)
        refused(path, *words, header=True)
    np.save(tmp_path / "p.npy", np.ones((3, 2)))
    with pytest.raises(LoaderError, match="header: expected a text file"):
        load_points(tmp_path / "p.npy", header=True)


@pytest.mark.parametrize("number", ["nan", "-inf", "1e999"])
def test_nonfinite(number, tmp_path):
    path = tmp_path / "p.xyz"
    path.write_text(f"1 2 3\n4 5 6\n7 {number} 8\n")
    refused(path, "line 3", "finite", "allow_nonfinite=True")
    want = np.array([[1, 2, 3], [4, 5, 6], [7, float(number), 8]])
    np.testing.assert_array_equal(load_points(path, allow_nonfinite=True), want)
    path = tmp_path / "p.npy"
    np.save(path, want)
    refused(path, "point 2", "allow_nonfinite=True")
    np.testing.assert_array_equal(load_points(path, allow_nonfinite=True), want)


def test_nonfinite_colours_do_not_matter(tmp_path):
    path = tmp_path / "p.xyz"
    path.write_text("1 2 3 1e999\n")
    assert load_points(path).tolist() == [[1, 2, 3]]
