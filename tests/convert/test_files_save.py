"""Edges written to files and read back."""

import pytest
from graph_table import GRAPHS

from graphattn import from_edge_index, graphs
from graphattn.convert.files import load_edges, save_edges
from graphattn.errors import GraphError, LoaderError


def read_back(path, **options):
    edges = load_edges(path, **options)
    return from_edge_index(
        [edges.source, edges.target], edges.num_sources, edges.num_targets, duplicates="keep"
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_comes_back(name, tmp_path):
    graph = GRAPHS[name]()
    save_edges(tmp_path / "g.npz", graph)
    found = read_back(tmp_path / "g.npz")
    assert (found.num_sources, found.num_targets) == (graph.num_sources, graph.num_targets)
    assert found.edge_index.equal(graph.edge_index)
    if graph.num_edges:
        save_edges(tmp_path / "g.csv", graph)
        sizes = {"num_sources": graph.num_sources, "num_targets": graph.num_targets}
        assert read_back(tmp_path / "g.csv", header=True, **sizes).edge_index.equal(
            graph.edge_index
        )
    else:
        with pytest.raises(LoaderError, match=r"with edges.*\.npz"):
            save_edges(tmp_path / "g.csv", graph)
        assert not (tmp_path / "g.csv").exists()


@pytest.mark.parametrize(
    ("name", "graph", "error", "message"),
    [
        ("g.txt", graphs.full(3), LoaderError, r"one of \.npz, \.csv, got '\.txt'"),
        ("nowhere/g.npz", graphs.full(3), LoaderError, "can be written, got: No such file"),
        ("g.npz", graphs.full(10**6), GraphError, "bytes"),
    ],
)
def test_refusals(name, graph, error, message, tmp_path):
    with pytest.raises(error, match=message):
        save_edges(tmp_path / name, graph)
    assert not (tmp_path / name).exists()
