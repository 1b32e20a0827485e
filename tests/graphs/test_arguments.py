"""What no builder takes: sizes beyond int64, tensors as flags, tensors that hold no numbers one by one."""

import numpy as np
import pytest
import torch

import graphattn.graphs as g
from graphattn.errors import GraphError

F, P = torch.tensor([[0, 1, 2], [2, 1, 3]]), torch.rand(7, 3)


@pytest.mark.parametrize(
    ("build", "argument"),
    [
        (lambda: g.cross(5, 2**63), "num_sources"),
        (lambda: g.global_tokens(10**30, (0,)), "num_nodes"),
        (lambda: g.full(10**5000), "num_nodes"),
        (lambda: g.grid_neighbourhood(2**70, 3), "size"),
        (lambda: g.grid_neighbourhood((2**40, 2**40), 3), "size"),
        (lambda: g.cell_partition((2**62, 2), 1), "size"),
        (lambda: g.mesh_report(F, num_vertices=2**70), "num_vertices"),
        (lambda: g.mesh_vertices(F, 2**63), "num_vertices"),
    ],
)
def test_sizes_fit_in_int64(build, argument):
    with pytest.raises(GraphError, match=rf"^{argument} must .*2\*\*63.*, got"):
        build()
    assert g.full(2**63 - 1).num_targets == 2**63 - 1


FLAGS = {
    "window causal": ("causal", lambda flag: g.sliding_window(5, 3, causal=flag)),
    "documents causal": ("causal", lambda flag: g.documents(lengths=(2, 3), causal=flag)),
    "grid causal": ("causal", lambda flag: g.grid_neighbourhood((5,), 3, causal=flag)),
    "grid clamp": ("clamp", lambda flag: g.grid_neighbourhood((5,), 3, clamp=flag)),
    "pad": ("pad", lambda flag: g.cell_partition((5,), 3, pad=flag)),
    "knn clamp": ("clamp", lambda flag: g.knn(P, 2, clamp=flag)),
    "knn self": ("include_self", lambda flag: g.knn(P, 2, include_self=flag)),
    "radius self": ("include_self", lambda flag: g.radius(P, 2.0, include_self=flag)),
    "vertices": ("self_loops", lambda flag: g.mesh_vertices(F, self_loops=flag)),
    "faces": ("self_loops", lambda flag: g.mesh_faces(F, self_loops=flag)),
}
NO_FLAGS = [torch.tensor([True, False]), torch.tensor(True), np.array([True, False]), "no", 1, None]


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("given", NO_FLAGS, ids=lambda given: type(given).__name__)
def test_flags_are_true_or_false(name, given):
    argument, build = FLAGS[name]
    with pytest.raises(GraphError, match=f"^{argument} must be True or False"):
        build(given)


def test_numpys_bools_are_flags():
    assert g.sliding_window(5, 3, causal=np.bool_(False)).name == "sliding_window(5, 3, causal=False)"


@pytest.mark.parametrize("given", [torch.tensor([1, 2]), np.array(["end", "start"]), ["end"], None])
def test_words_are_words(given):
    for argument, build in (
        ("align", lambda: g.causal(3, 5, align=given)),
        ("overflow", lambda: g.radius(P, 1.0, max_neighbours=2, overflow=given)),
        ("share", lambda: g.mesh_faces(F, share=given)),
    ):
        with pytest.raises(GraphError, match=f'^{argument} must be "'):
            build()


@pytest.mark.parametrize(
    ("argument", "tensor", "build"),
    [
        ("faces", F, g.mesh_vertices),
        ("faces", F, g.mesh_faces),
        ("pos", P, lambda pos: g.knn(pos, 2)),
        ("queries", P, lambda queries: g.radius(P, 2.0, queries=queries)),
        ("batch", torch.zeros(7).long(), lambda batch: g.knn(P, 2, batch=batch)),
        ("ids", torch.tensor([0, 1, 1]), g.documents),
    ],
)
def test_sparse_tensors_and_tensors_without_numbers_are_refused(argument, tensor, build):
    build(tensor)
    with pytest.raises(GraphError, match=rf"^{argument} must be a strided .* torch.sparse_coo; pass {argument}.to_d"):
        build(tensor.to_sparse())
    with pytest.raises(GraphError, match=f"^{argument} is on meta, whose tensors hold no numbers"):
        build(tensor.to("meta"))


@pytest.mark.parametrize("faces", [b"4", bytearray(b"444"), "012"])
def test_text_is_no_mesh(faces):
    with pytest.raises(GraphError, match=r"^faces must be a Tensor .* tuples of vertex numbers, got a (str|byte)"):
        g.mesh_faces(faces)


IDS = torch.arange(3)
HUGE = {
    "k": (lambda: g.ball_query(P, 9.0, k=2**62), "edges of ball_query would take .* bytes"),
    "clusters": (lambda: g.clusters(IDS, 10**9), "clusters with C = 1,000,000,000 would take 64,000,000,000 bytes"),
    "more clusters": (lambda: g.clusters(IDS, 2**62), "clusters with C = .* would take .* bytes"),
    "vertices": (lambda: g.mesh_vertices(F, 2**31, 2), "a mesh of 2,147,483,648 vertices would take .* bytes"),
    "a vertex": (lambda: g.mesh_vertices(torch.tensor([[0, 1, 2**62]])), "a mesh of .* vertices would take .* bytes"),
    "lengths": (lambda: g.documents(lengths=torch.tensor([2**62, 2**62])), "documents of 9,.* tokens would take"),
    "line graph": (lambda: g.line_graph(g.full(600)), "line_graph of .* would take 6,912,000,000 bytes"),
}


@pytest.mark.parametrize(("build", "message"), HUGE.values(), ids=HUGE)
def test_what_would_not_fit_is_refused_by_its_bytes(build, message):
    with pytest.raises(GraphError, match=message):
        build()


def test_a_number_larger_than_the_input_costs_nothing():
    assert g.ball_query(P, 9.0, k=2**62, pad=False).equals(g.full(7))
    assert g.octree_windows(P, 3, dilation=2**62).equals(g.octree_windows(P, 3, dilation=7))
    assert g.octree_windows(P, 2**62, dilation=2).equals(g.octree_windows(P, 7, dilation=2))
    assert not g.octree_windows(P, 3, dilation=2).equals(g.octree_windows(P, 3, dilation=7))
    assert g.fixed(10**6, 1000, 7).num_edges == 500_500 * 1000 + 7 * 1000 * 999 // 2 * 1000


NUMBERS = {
    "radius": lambda x: g.radius(P, x),
    "ball_query": lambda x: g.ball_query(P, x, 2),
    "geodesic_ball": lambda x: g.geodesic_ball(P, F, x),
    "grid_ball": lambda x: g.grid_ball((5,), x),
    "norm": lambda x: g.grid_ball((5,), 1, p=x),
    "voxels": lambda x: g.voxel_windows(P, x),
    "shift": lambda x: g.voxel_windows(P, 1.0, shift=x),
    "axis": lambda x: g.voxel_windows(P, (1.0, x, 1.0)),
    "stratified": lambda x: g.stratified_windows(P, x, torch.tensor([0])),
    "wide": lambda x: g.stratified_windows(P, 1.0, torch.tensor([0]), wide=x),
    "cell": lambda x: g.curve_patches(P, 3, cell=x),
    "ratio": lambda x: g.farthest_points(P, ratio=x),
    "power": lambda x: g.inverse_distance_bias(g.knn(P, 2), P, power=x),
}


@pytest.mark.parametrize("build", NUMBERS.values(), ids=NUMBERS)
def test_text_and_bools_are_no_numbers(build):
    for bad in ("1", True, np.True_, torch.tensor(True), 10**400, [1.0, 2.0]):
        with pytest.raises(GraphError, match=r"must be .* got "):
            build(bad)
    for good in (1, 1.0, np.float32(1), torch.tensor(1.0)):
        build(good)


FOREIGN = {
    "curve": (lambda: g.curve_patches(P, 3, np.array([1, 2])), 'curve must be "z"'),
    "source": (lambda: g.between_types(IDS, 2**64, 1), "source must fit int64, .* got a number of 65 bits"),
    "target": (lambda: g.between_types(IDS, 1, 2**64), "target must fit int64"),
    "ellipsis": (lambda: g.farthest_points(..., 5), "pos must be a Tensor or array .* got a ellipsis: it holds no tab"),
    "bias of none": (lambda: g.inverse_distance_bias(None, P), "graph must be an AttentionGraph, got NoneType"),
    "bias of a mask": (lambda: g.inverse_distance_bias(torch.eye(7).bool(), P), "wrap it with graphattn.from_mask"),
    "index of a number": (lambda: g.relative_position_index(5, (2, 2), 2), "graph must be an AttentionGraph, got int"),
    "copies": (
        lambda: g.hypergraph(torch.tensor([0, 4, 4]), torch.tensor([0, 1, 1])),
        "^node 4 is in hyperedge 1 more than once: repeated edges; drop the copies: torch.unique",
    ),
    "targets": (lambda: g.full(5).subgraph(targets=[7]), r"^subgraph: target 7 is outside \[0, 5\) \(5 targets\)$"),
    "sources": (lambda: g.full(5).relabel(sources=[7]), r"^relabel: source 7 is outside \[0, 5\) \(5 sources\)$"),
}


@pytest.mark.parametrize(("build", "message"), FOREIGN.values(), ids=FOREIGN)
def test_what_does_not_fit_is_refused_in_our_words(build, message):
    with pytest.raises(GraphError, match=message):
        build()


def test_positions_may_be_a_view_of_numpy_that_runs_backwards():
    backwards = P.numpy()[::-1]
    graph = g.knn(backwards, 3)
    assert torch.equal(g.inverse_distance_bias(graph, backwards), g.inverse_distance_bias(graph, P.flip(0)))


def test_positions_whose_squares_vanish_are_refused():
    tiny = P.double() * 1e-200
    for build in (
        lambda pos: g.knn(pos, 4),
        lambda pos: g.radius(pos, 1e-200),
        lambda pos: g.ball_query(pos, 1e-200, 3),
        lambda pos: g.farthest_points(pos, 3),
    ):
        with pytest.raises(GraphError, match=r"pos must reach 1e-130 in size, got .*e-201 at most"):
            build(tiny)
    assert g.knn(P.double() * 2.0**-400, 4).equals(g.knn(P.double(), 4))
    assert g.knn(P * 0, 4).num_edges == 28
