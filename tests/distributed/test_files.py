"""Graphs in files: their parts have the edges and the outputs of the whole."""

import json

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.distributed import EdgeFiles, knn_parts, neighbours, save_parts, shard
from graphattn.errors import GraphError, LoaderError, OptionError


def clouds():
    torch.manual_seed(0)
    uniform = torch.rand(211, 3)
    far = torch.cat((uniform, torch.full((1, 3), 1e4)))  # a ball that reaches every part
    return {
        "uniform": uniform,
        "ties": (uniform * 3).round(),
        "far": far,
        "plane": uniform[:, :2].double(),
    }


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", clouds())
def test_neighbours_of_parts_are_those_of_the_whole(name, tmp_path):
    pos = clouds()[name]
    files, graph = knn_parts(pos.numpy(), 5, tmp_path / "edges", parts=7), ga.graphs.knn(pos, 5)
    edges = torch.full((2, graph.num_edges), -1)
    for part in files:
        edges[:, part.edges] = torch.stack((part.sources[part.source], part.targets[part.target]))
    assert torch.equal(edges, graph.edge_index)
    assert [*tmp_path.iterdir()] == [tmp_path / "edges"]


def test_a_part_is_compared_with_near_parts_alone(tmp_path, monkeypatch):
    compared = []
    outside = neighbours._outside
    monkeypatch.setattr(neighbours, "_outside", lambda *box: compared.append(box) or outside(*box))
    knn_parts(np.arange(300.0)[:, None], 4, tmp_path / "edges", parts=30)
    assert 58 <= len(compared) < 4 * 30  # of 870 pairs of parts


def test_positions_that_have_no_distances_are_refused_by_their_row_in_the_whole(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(neighbours, "_USUAL", 50)  # rows of a slice
    for wrong, words in ((np.nan, "nan"), (-np.inf, "-inf"), (1e200, r"1e\+200")):
        pos = np.random.default_rng(0).random((211, 3))
        pos[207, 1] = pos[60, 1] = wrong
        np.save(tmp_path / "pos.npy", pos)
        for given in (pos, tmp_path / "pos.npy", torch.from_numpy(pos)):
            with pytest.raises(
                GraphError, match=rf"{words}, 0\.\d+\) in row 60; 2 of 211 rows are not"
            ):
                knn_parts(given, 3, tmp_path / "edges", parts=7)
    with pytest.raises(GraphError, match="pos must reach 1e-130 in size, got 1e-140 at most"):
        knn_parts(np.full((211, 3), 1e-140), 3, tmp_path / "edges")
    # tiny in some parts
    pos = np.concatenate((np.random.default_rng(0).random((100, 2)) * 1e-140, np.ones((99, 2))))
    assert knn_parts(pos, 3, tmp_path / "edges", parts=7).num_edges == 597
    (tmp_path / "pos.npy").write_bytes((tmp_path / "pos.npy").read_bytes()[:-5])
    with pytest.raises(LoaderError, match="get the whole file"):
        knn_parts(tmp_path / "pos.npy", 3, tmp_path / "b")
    with pytest.raises(GraphError, match=r"\(N, d\) with d >= 1, got \(9, 0\)"):
        knn_parts(np.zeros((9, 0)), 3, tmp_path / "b", parts=2)


GRAPHS = {
    "rule": lambda: ga.graphs.sliding_window(101, 9, causal=True),
    "listed": lambda: ga.from_edge_index(torch.randint(97, (2, 700)), 97, 97, duplicates="keep"),
    "cross": lambda: ga.from_edge_index(
        torch.stack((torch.randint(53, (300,)), torch.randint(97, (300,)))),
        53,
        97,
        duplicates="merge",
    ),
    "no edges": lambda: ga.from_edge_index(torch.empty(2, 0, dtype=torch.long), 11, 11),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", GRAPHS)
def test_attention_in_parts_is_that_of_the_whole(name, tmp_path):
    torch.manual_seed(1)
    graph = GRAPHS[name]()
    T, S, E = graph.num_targets, graph.num_sources, graph.num_edges
    q, k, v, bias = (
        torch.randn(T, 4, 7),
        torch.randn(S, 2, 7),
        torch.randn(S, 2, 5),
        torch.randn(E, 4),
    )
    owner = torch.randint(3, (T,)) * 2  # parts without targets
    files = save_parts(graph, tmp_path, 5, owner)
    for given, dropout in ((bias, 0.0), (None, 0.3)):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        others = [x.clone().requires_grad_() for x in (q, k, v)]
        torch.manual_seed(2)
        whole = ga.attention(*leaves, graph, score_bias=given, dropout_p=dropout, backend="edges")
        y = torch.empty_like(whole)
        for part in files:
            torch.manual_seed(2)
            rows = others[0][part.targets], others[1][part.sources], others[2][part.sources]
            own = None if given is None else given[part.edges]
            y[part.targets] = ga.attention(*rows, part, score_bias=own, dropout_p=dropout)
        assert torch.equal(y, whole)
        grad = torch.randn(whole.shape)
        whole.backward(grad), y.backward(grad)
        for a, b in zip(leaves, others, strict=True):
            assert torch.allclose(a.grad, b.grad, atol=1e-4)
            assert a.grad.abs().max() > 0.1 or not E
    if T == S:
        assert torch.equal(
            shard(files).gather(ga.attention(q, k, v, shard(files))),
            ga.attention(q, k, v, graph, backend="edges"),
        )
    else:
        with pytest.raises(GraphError, match="53 sources -> 97 targets"):
            shard(files)


def test_a_folder_that_is_not_whole_is_refused(tmp_path):
    graph = ga.graphs.sliding_window(30, 3, causal=True)
    with pytest.raises(OptionError, match="partition must have shape"):
        save_parts(graph, tmp_path / "a", 2, [0, 1])
    files = save_parts(graph, tmp_path / "edges", 2)
    with pytest.raises(OptionError, match="folder must be new or empty"):
        save_parts(graph, tmp_path / "edges", 2)
    with pytest.raises(GraphError, match="k=30 needs at least 31 points, got 30"):
        knn_parts(torch.rand(30, 3).numpy(), 30, tmp_path / "b")
    with pytest.raises(OptionError, match="folder must be new or empty"):
        knn_parts(np.random.default_rng(0).random((30, 3)), 3, tmp_path / "edges")
    with pytest.raises(OptionError, match="must be left out"):
        shard(files, partition="rcb", pos=torch.rand(30, 3))
    with pytest.raises(OptionError, match="every process would list all edges"):
        shard(files, plan="heads", heads=2)
    assert files[0].num_edges == 42
    files.path(1).write_bytes(files.path(0).read_bytes())
    with pytest.raises(LoaderError, match=r"part_00001.npz: expected the edges that were written"):
        files[1]
    files.path(1).write_bytes(files.path(0).read_bytes()[:-100])
    with pytest.raises(LoaderError, match=r"part_00001.npz: expected a .npz file"):
        files[1]
    with pytest.raises(IndexError):
        files[2]
    (tmp_path / "edges" / "edges.json").write_text("{}", encoding="utf-8")
    with pytest.raises(LoaderError, match="expected what save_parts writes, got KeyError"):
        EdgeFiles(tmp_path / "edges")
    with pytest.raises(LoaderError, match="expected the edges of a graph, got no such file"):
        EdgeFiles(tmp_path)


def _index(folder, **changes):
    path = folder / "edges.json"
    path.write_text(
        json.dumps({**json.loads(path.read_text("utf-8")), **changes}), encoding="utf-8"
    )
    return EdgeFiles(folder)


WRONG_SIZES = {
    "fewer nodes": {"targets": 10, "sources": 10},
    "more nodes": {"targets": 60, "sources": 60},
    "nodes beyond all memory": {"targets": 10**13, "sources": 10**13},
    "another number of edges": {"edges": 239},
    "no parts": {"parts": []},
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", WRONG_SIZES)
def test_an_index_that_does_not_fit_its_parts_is_refused(name, tmp_path):
    save_parts(ga.graphs.sliding_window(50, 5, causal=True), tmp_path, 3)
    for use in (iter, shard, lambda files: files.partition(2)):
        with pytest.raises(
            LoaderError,
            match=r"edges.json: expected each of \d+ targets in one part, once, and \d+ edges, got",
        ):
            use(_index(tmp_path, **WRONG_SIZES[name]))


def test_sources_beyond_the_index_are_refused(tmp_path):
    save_parts(ga.graphs.sliding_window(50, 5, causal=True), tmp_path, 3)
    files = _index(tmp_path, sources=49)
    assert files[1].num_edges
    with pytest.raises(LoaderError, match=r"part_00002.npz: expected the edges that were written"):
        files[2]


def test_a_part_under_two_numbers_is_refused(tmp_path):
    files = save_parts(ga.graphs.self_loops(51), tmp_path, 3)
    files.path(0).write_bytes(files.path(1).read_bytes())
    with pytest.raises(LoaderError, match=r"in one part, once, .* got 34 targets in 51 places"):
        list(_index(tmp_path, parts=[files.hashes[1], *files.hashes[1:]]))
    files.path(1).write_bytes(files.path(2).read_bytes())
    files = _index(tmp_path, targets=34, sources=34, edges=34, parts=files.hashes[1:])
    with pytest.raises(LoaderError, match=r"got 17 targets in 34 places"):
        files.partition(2)
