"""WHAT: a name of the zoo, an expression of builders, or a file."""

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn import graphs, save
from graphattn.cli.what import item

POINTS = np.random.default_rng(7).random((13, 3))
SQUARE = torch.tensor([[0, 1, 2, 3]])
CORNERS = torch.tensor([[0.0, 0], [1, 0], [1, 1], [0, 1]])
CLOUD = torch.from_numpy(POINTS)
#: What every builder that takes tensors reads as on the command line; those of numbers alone read
#: as in Python.
EXPRESSIONS = {
    "documents((0, 2, 2, 0, 1), causal=False)": graphs.documents(
        torch.tensor([0, 2, 2, 0, 1]), causal=False
    ),
    "bidirectional_segments([-1, 0, 0, -1])": graphs.bidirectional_segments(
        torch.tensor([-1, 0, 0, -1])
    ),
    "causal_by_rank((2, 0, 1), strict=True)": graphs.causal_by_rank(
        torch.tensor([2, 0, 1]), strict=True
    ),
    'top_k(load("cloud.npy"), 2)': graphs.top_k(CLOUD, 2),
    "lsh_buckets((0, 1, 0, 1, 1), 2, causal=True)": graphs.lsh_buckets(
        torch.tensor([0, 1, 0, 1, 1]), 2, causal=True
    ),
    "cross_documents((0, 1), (1, 1))": graphs.cross_documents(
        torch.tensor([0, 1]), torch.tensor([1, 1])
    ),
    "grid_ball((7, 11), 2.5, p=inf, strict=True)": graphs.grid_ball(
        (7, 11), 2.5, p=np.inf, strict=True
    ),
    'knn(load("cloud.npy"), 3, self_loops=True)': graphs.knn(CLOUD, 3, self_loops=True),
    'knn(pos=load("cloud.npy"), k=3)': graphs.knn(CLOUD, 3),
    'radius(load("cloud.npy"), 0.3, queries=load("few.npy"))': graphs.radius(
        CLOUD, 0.3, queries=CLOUD[:5]
    ),
    'ball_query(load("cloud.npy"), 0.5, 3)': graphs.ball_query(CLOUD, 0.5, 3),
    'curve_patches(load("cloud.npy"), 5, "hilbert-trans", cell=0.1)': graphs.curve_patches(
        CLOUD, 5, "hilbert-trans", cell=0.1
    ),
    'octree_windows(load("cloud.npy"), 3, batch=load("batch.npy"))': graphs.octree_windows(
        CLOUD, 3, batch=torch.arange(13) // 7
    ),
    'voxel_windows(load("cloud.npy"), (0.5, 0.3, 1), shift=0.1)': graphs.voxel_windows(
        CLOUD, (0.5, 0.3, 1.0), shift=0.1
    ),
    'stratified_windows(load("cloud.npy"), 0.3, (0, 7, 9))': graphs.stratified_windows(
        CLOUD, 0.3, torch.tensor([0, 7, 9])
    ),
    "clusters((0, 2, 2, 0, -1))": graphs.clusters(torch.tensor([0, 2, 2, 0, -1])),
    'clusters(voxel_ids(load("cloud.npy"), 0.5))': graphs.clusters(ga.shapes.voxel_ids(CLOUD, 0.5)),
    'mesh_vertices(load("square.off"), hops=2)': graphs.mesh_vertices(SQUARE, 5, hops=2),
    'mesh_vertices(load("square.off"), num_vertices=7)': graphs.mesh_vertices(SQUARE, 7),
    'mesh_faces(load("square.off"), self_loops=True)': graphs.mesh_faces(SQUARE, self_loops=True),
    'mesh_edges(load("square.off"), 2)': graphs.mesh_edges(SQUARE, 2),
    'geodesic_ball(load("corners.npy"), load("square.off"), 1)': graphs.geodesic_ball(
        CORNERS, SQUARE, 1.0
    ),
    'tree((-1, 0, 0, 1), read="parent")': graphs.tree(torch.tensor([-1, 0, 0, 1]), read="parent"),
    "ancestors((-1, 0, 0, 1))": graphs.ancestors(torch.tensor([-1, 0, 0, 1])),
    "siblings((-1, 0, 0, 1), self_loops=False)": graphs.siblings(
        torch.tensor([-1, 0, 0, 1]), self_loops=False
    ),
    "hypergraph((0, 1, 2, 2), (0, 0, 0, 1), 5)": graphs.hypergraph(
        torch.tensor([0, 1, 2, 2]), torch.tensor([0, 0, 0, 1]), 5
    ),
    "between_types((0, 0, 1), 0, 1)": graphs.between_types(torch.tensor([0, 0, 1]), 0, 1),
    'random_neighbours(4, 2, avoid=load("mask.npy"))': graphs.random_neighbours(
        4, 2, avoid=graphs.self_loops(4)
    ),
    'composite([[load("mask.npy"), None], [full(4), load("mask.npy")]])': graphs.composite(
        [[graphs.self_loops(4), None], [graphs.full(4), graphs.self_loops(4)]]
    ),
    'causal(4) - load("mask.npy")': graphs.causal(4) - graphs.self_loops(4),
    '~load("mask.npy") & causal(4)': ~graphs.self_loops(4) & graphs.causal(4),
    'load("mask.npy").reverse()': graphs.self_loops(4),
    'load("window.json") | full(9)': graphs.full(9),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("cloud.npy", POINTS)
    np.save("few.npy", POINTS[:5])
    np.save("batch.npy", np.arange(13, dtype=">i8") // 7)
    np.save("corners.npy", CORNERS.numpy())
    np.save("mask.npy", np.eye(4, dtype=bool))
    (tmp_path / "square.off").write_text(
        "OFF\n5 1 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n9 9 9\n4 0 1 2 3\n", encoding="utf-8"
    )
    save(graphs.sliding_window(9, 3, causal=True), "window.json")


@pytest.mark.sample(4)
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("what", EXPRESSIONS)
def test_an_expression_gives_the_graph_of_python(what):
    asked = item(what)
    assert asked.graph.equals(EXPRESSIONS[what])
    assert asked.what == what


def test_a_name_of_the_zoo_is_its_small_example():
    asked = item("longformer")
    code = "sliding_window(48, 9, causal=False) | global_tokens(48, (0, 20))"
    assert asked.graph.equals(item(code).graph)
    assert asked.notes == (f"Longformer: {graphs.zoo()['Longformer'].line}", f"a small one: {code}")
    assert item("karate").graph.num_nodes == 34


def test_a_name_goes_before_a_file_and_a_file_before_an_expression(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "longformer").mkdir()
    assert item("longformer").graph.num_nodes == 48
    np.save("causal(3).npy", np.eye(4, dtype=bool))
    assert item("causal(3).npy").graph.equals(graphs.self_loops(4))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "",
            "'' is no name of the zoo, no expression of builders and no file; graphattn zoo and "
            "graphattn builders",
        ),
        ("qqq", "'qqq' is no name of the zoo, no expression of builders and no file"),
        ("longforme", "did you mean 'Longformer'"),
        ("sliding-windw", "did you mean 'sliding_window'?"),
        (
            "prefix",
            "prefix is a builder and needs its arguments: 'prefix(num_nodes: int, prefix: int)'",
        ),
        ("full(3", "'full(3' is not an expression: '(' was never closed"),
        (
            "swin((8, 8), 4)",
            "no builder is called swin; the zoo's Swin is window_partition((8, 8), 4)",
        ),
        (
            "window(8, 3)",
            "no builder is called window; did you mean sliding_window(num_targets: int, window: "
            "int | tuple[int, int], *",
        ),
        (
            "sliding_window(64, causal=True)",
            "missing a required argument: 'window'; the call is sliding_window(num_targets: int, win",
        ),
        ("sliding_window(64, 0, causal=True)", "window must be a whole number >= 1, got 0"),
        ("knn(load(scan.ply), 3)", "scan.ply does not belong in an expression"),
        ("knn(load(scan.ply), 3)", "words stand in quotes, and a file"),
        ("load(3)", "path: expected a str or a Path, got int"),
        (
            "load()",
            "missing a required argument: 'path'; the call is load(path: str, **options: Any)",
        ),
        ("full(2) | full(3)", "| needs the same nodes on both sides"),
        ("full(2) + full(3)", "full(2) + full(3) does not belong in an expression"),
        ("sphere", "must give a graph, got"),
        ("causal(100000000000000000000)", "must be below 2**63"),
        ("__import__('os').system('id')", "neither a builder nor a method"),
    ],
)
def test_what_is_no_graph(shell, what, said):
    assert said in shell.words(["show", what]).stderr
    assert shell.words(["show", what]).exit_code == 2


@pytest.mark.parametrize("size", ["N", "..."])
def test_a_pattern_is_shown_at_a_size_and_asked_at_none(shell, size):
    what = f"sliding_window({size}, 9, causal=True)"
    done = shell.words(["show", what])
    assert done.stdout.startswith("AttentionGraph(sliding_window(36, 9, causal=True): 36 nodes")
    assert "note: the size is open: 36 nodes are shown; give another number" in done.stdout
    assert "is open in its size; give a number" in shell.words(["facts", what]).stderr


def test_an_expression_may_be_written_as_in_python(shell):
    done = shell.words(["show", "ga.graphs.causal(8) | graphattn.graphs.sinks(8, 1)"])
    assert done.stdout.startswith("AttentionGraph(causal(8) | sinks(8, 1): 8 nodes")
