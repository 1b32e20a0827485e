"""Edge lists (D19, D20): source then target, and no line dropped or guessed."""

import networkx
import numpy as np
import pytest

from graphattn.convert.files import load_edges
from graphattn.errors import LoaderError

SOURCE, TARGET = np.array([0, 0, 4, 2, 0]), np.array([1, 2, 0, 2, 1])


@pytest.fixture
def write(tmp_path):
    def write(text, name="e.txt"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refused(path, *words, **options):
    """The message of the LoaderError, which must have all of ``words``."""
    with pytest.raises(LoaderError) as error:
        load_edges(path, **options)
    for word in ("expected", "Try", *words):
        assert word in str(error.value), str(error.value)


def same(edges, sizes=(None, None)):
    """The edges of this file, in their order."""
    assert edges.source.tolist() == SOURCE.tolist()
    assert edges.target.tolist() == TARGET.tolist()
    assert edges.source.dtype == edges.target.dtype == np.int64
    assert (edges.num_sources, edges.num_targets) == sizes


@pytest.mark.parametrize("delimiter", [" ", "\t", ",", " , "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("comment", ["# ", "% "])
def test_text(delimiter, end, comment, tmp_path):
    path = tmp_path / "e.csv"
    np.savetxt(
        path, np.c_[SOURCE, TARGET], "%d", delimiter, end, header="source target", comments=comment
    )
    same(load_edges(path))
    same(load_edges(path, num_sources=5, num_targets=3), (5, 3))
    refused(path, "line 4", "edge 2: source 4", "[0, 4)", "4 sources", num_sources=4)
    refused(path, "line 3", "edge 1: target 2", "[0, 2)", num_targets=2)
    refused(path, "num_sources=-1", num_sources=-1)


def test_networkx_wrote_it(tmp_path):
    graph = networkx.gnp_random_graph(17, 0.3, seed=0, directed=True)
    networkx.write_edgelist(graph, tmp_path / "e.txt", data=False)
    edges = load_edges(tmp_path / "e.txt")
    assert list(zip(edges.source.tolist(), edges.target.tolist(), strict=True)) == list(graph.edges)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 1\n2\n", ("line 2", "2 columns", "got 1")),
        ("0\n", ("line 1", "got 1")),
        ("0 1\n1 2 3\n", ("line 2", "got 3", "weights='ignore'")),
        ("0 1 0.5\n1 2 0.5\n", ("line 1", "got 3", "weights='ignore'")),
        ("0 1\n1.0 2\n", ("line 2", "an integer", "'1.0'")),
        ("1.0 2.0\n", ("line 1", "an integer", "'1.0'")),
        ("0 1\na b\n", ("line 2", "'a'")),
        ("# c\n\nsource,target\n0,1\n", ("line 3", "header=True")),
        ("0 1\n1 -\n", ("line 2", "'-'")),
        ("0 1\n- 1\n", ("line 2", "'-'")),
        ("0 1\n1 1-2\n", ("line 2", "'1-2'")),
        ("0 1\n1 nan\n", ("line 2", "'nan'")),
        ("0,1\n1,\n", ("line 2", "empty cell")),
        ("0 1\n0 \x00\n", ("line 2", "NUL")),
        ("", ("empty",)),
        ("# nothing\n% at all\n", ("empty",)),
    ],
)
def test_bad_rows(text, words, write):
    refused(write(text), *words)


def test_header_row(write):
    path = write("from,to\n0,1\n1,2\n", "e.csv")
    assert load_edges(path, header=True).target.tolist() == [1, 2]
    refused(write("0,1\n1,2\n"), "line 1", "row of names", "header=False", header=True)
    refused(write("from,to\n"), "empty", header=True)
    refused(write('"target","source"\n0,1\n'), "line 1", "source first", header=True)


def test_weights_are_left_out_only_when_asked(write):
    path = write("# s t w\n0 1 0.5 note\n0 2 x\n4 0\n2 2 nan\n0 1 1e999\n")
    same(load_edges(path, weights="ignore"))
    refused(write("0 1 2\n3\n"), "line 2", "2 columns, source and target", weights="ignore")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 1\n0 9223372036854775808\n", ("line 2", "2**63", "'9223372036854775808'")),
        ("0 1\n99999999999999999999999999999999999999999999 1\n", ("line 2", "2**63")),
        ("0 1\n0 -1\n", ("line 2", "edge 1", "-1")),
        ("0 1\n0 -9223372036854775809\n", ("line 2", "2**63")),
        ("0 1\n1000000000000 0\n", ("line 2", "edge 1: source 1000000000000", "relabel=True")),
        ("0 1\n0 65568\n", ("edge 1: target 65568", "[0, 65568)", "num_targets")),
    ],
)
def test_ids_out_of_bounds(text, words, write):
    refused(write(text), *words)
    if "relabel" not in words[-1] and "num_" not in words[-1]:
        refused(write(text), *words, relabel=True)


def test_relabel(write):
    text = "1000000000000 7\n0000000000000000000000000000000000000007 9223372036854775807\n7 7\n"
    edges = load_edges(write(text), relabel=True)
    assert edges.ids.tolist() == [7, 10**12, 2**63 - 1]
    assert edges.source.tolist() == [1, 0, 0]
    assert edges.target.tolist() == [0, 2, 0]
    assert edges.num_sources == edges.num_targets == 3
    assert load_edges(write("0 65567\n1 2\n")).ids is None
    assert load_edges(write("0 1000000\n"), num_targets=10**6 + 1).num_targets == 10**6 + 1
    refused(write(text), "relabel", relabel=True, num_sources=3)


@pytest.mark.parametrize("dtype", ["i8", ">i4", "u1", "u8"])
def test_npy(dtype, tmp_path):
    path = tmp_path / "e.npy"
    np.save(path, np.array([SOURCE, TARGET], dtype))
    same(load_edges(path))
    np.save(path, np.array([SOURCE, TARGET], dtype).T)
    refused(path, "(2, E)", "(5, 2)", "array.T")
    np.save(path, np.array([[0, 1], [5, 6]], dtype))  # (2, 2): row 0 is the sources
    assert load_edges(path).target.tolist() == [5, 6]
    np.save(path, np.zeros((2, 0), dtype))
    assert load_edges(path).source.shape == (0,)
    np.save(path, np.array([SOURCE, TARGET], float))
    refused(path, "float64", "astype(numpy.int64)")
    refused(path, "header", header=True)


def test_npy_bounds(tmp_path):
    path = tmp_path / "e.npy"
    np.save(path, np.array([[0, 1], [2**63, 1]], np.uint64))
    refused(path, "9223372036854775808")
    np.save(path, np.array([[0, 1], [-3, 1]]))
    refused(path, "-3")
    np.save(path, np.array([[0, 10**12], [0, 1]]))
    refused(path, "edge 1: source 1000000000000", "relabel=True")
    assert load_edges(path, relabel=True).ids.tolist() == [0, 1, 10**12]


def test_npz_of_arrays(tmp_path):
    path = tmp_path / "e.npz"
    np.savez(path, edge_index=np.array([SOURCE, TARGET]), x=np.ones(7))
    same(load_edges(path))
    np.savez_compressed(path, edge_index=np.array([SOURCE, TARGET]), num_nodes=np.array(11))
    same(load_edges(path), (11, 11))
    refused(path, "num_sources=11", relabel=True)
    np.savez(path, edge_index=np.array([SOURCE, TARGET]), num_sources=5, num_targets=3)
    same(load_edges(path), (5, 3))
    same(load_edges(path, num_sources=5), (5, 3))
    refused(path, "num_sources=5, as in the file", "num_sources=6", num_sources=6)
    np.savez(path, edge_index=np.array([SOURCE, TARGET]), num_sources=4)
    refused(path, "edge 2: source 4", "[0, 4)")
    np.savez(path, edge_index=np.array([SOURCE, TARGET]), edge_weight=np.ones(5))
    refused(path, "edge_weight", "weights='ignore'")
    same(load_edges(path, weights="ignore"))
    np.savez(path, source=SOURCE, target=TARGET)
    refused(path, "edge_index", "from_scipy")
    np.savez(path, edge_index=np.array([SOURCE, TARGET]).T)
    refused(path, "(5, 2)", "edge_index.T")
    np.savez(path, edge_index=np.array([SOURCE, TARGET], float))
    refused(path, "edge_index", "float64")
    np.savez(path, edge_index=np.array([SOURCE, TARGET]), num_nodes=np.array([1, 2]))
    with pytest.raises(ValueError, match="array of size 1"):
        load_edges(path)
