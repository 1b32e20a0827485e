"""What builders refuse, by their words: ranges, shapes, numbers that are none, sizes that would not
fit.
"""

import math
import re
import typing

import numpy as np
import pytest
import torch
from test_catalogue import SMALL

import graphattn.graphs as g
from graphattn import nn, shapes
from graphattn.errors import GraphError, GraphIndexError, ShapeError

HUGE = 2**63 - 1
F, STRIP, IDS = (
    torch.tensor([[0, 1, 2], [2, 1, 3]]),
    [(0, 1, 2), (2, 1, 3), (2, 3, 4), (4, 3, 5)],
    torch.arange(3),
)
THREE, FIVE, SEVEN = (
    torch.rand(n, 3, generator=torch.Generator().manual_seed(3)) for n in (3, 5, 7)
)
GRID_CELLS, CELLS = torch.arange(12).view(4, 3), g.window_partition((6, 10), (3, 5))
ASKED = g.knn(FIVE, 2, queries=FIVE[:4])


def curve(options):
    return shapes.curve_order(**{"pos": FIVE, **options})


SEQUENCE = [
    (lambda: g.documents(causal=False), "ids .* or lengths"),
    (
        lambda: g.documents(torch.tensor([0]), lengths=(1,), causal=False),
        "documents needs either ids .* or lengths",
    ),
    (lambda: g.documents(torch.tensor([0.5]), causal=False), "ids must be integers .* got float32"),
    (lambda: g.documents(torch.zeros(2, 3, 5, dtype=torch.int64), causal=False), r"\(2, 3, 5\)"),
    (lambda: g.documents(torch.zeros(2, 3), causal=False), "integers .* \\(B, N\\), got float32"),
    (
        lambda: g.global_tokens(7, (7,)),
        r"tokens must be in \[0, 7\), as negative numbers do not wrap, got 7 to 7",
    ),
    (lambda: g.global_tokens(7, (-1,)), "negative numbers do not wrap"),
    (
        lambda: g.bidirectional_segments(torch.tensor([0.5])),
        "segments must be integers .* got float32",
    ),
    (
        lambda: g.causal_by_rank(torch.zeros(2, 3, dtype=torch.int64)),
        r"ranks must have shape \(n,\)",
    ),
    (lambda: g.causal_by_rank([1, 2], [0.5]), "source_ranks must be integer"),
    (
        lambda: g.lsh_buckets([1, 2], 2, causal=True, wrap=True),
        "wrap needs more than look_back=1 chunks, got 1 for 2 tokens",
    ),
    (
        lambda: g.top_k(torch.zeros(2, 3, 4), 1),
        r"scores must have shape \(T, S\), got a Tensor \(2, 3, 4\)",
    ),
    (
        lambda: g.top_k(torch.zeros(2, 3), 4),
        "k must be below 4, one more than the sources, got 4",
    ),
    (
        lambda: g.top_k(torch.tensor([[0.0, 1], [0, torch.nan]]), 1),
        r"scores must be without NaN, got a Tensor \(2, 2\)",
    ),
    (lambda: g.random_neighbours(5, 6), "k must be below 6, one more than the sources, got 6"),
    (
        lambda: g.random_neighbours(5, 1, avoid=g.full(3)),
        "avoid must have 5 targets and 5 sources, got AttentionGraph",
    ),
    (lambda: g.erdos_renyi(10**6, 0.5), "erdos_renyi of .* would take .* use listed=False"),
    (lambda: g.sparse_fixed(7, 3, 4), "summary must be below 4, one more than stride, got 4"),
    (lambda: g.block_local(7, 2, look_ahead=1, causal=True), "look_ahead=1 .* causal=True"),
    (lambda: g.block_sparse(g.cross(3, 2), 2), "square"),
    (lambda: g.block_sparse(g.full(3), 2, 4), "num_nodes=4 needs 2 blocks of 2, but layout has 3"),
    (lambda: g.composite([[g.full(3), g.full(2)]]), r"row 0 .* same number of targets .* \[3, 2\]"),
    (lambda: g.composite([[g.full(3)], [g.full(2)]]), r"column 0 .* of sources .* \[3, 2\]"),
    (lambda: g.composite([[g.full(3), None]]), "column 1 of composite holds no graph"),
]
GRID = [
    (lambda: g.window_partition((), 3), r"size must name at least one axis, .* got \(\)"),
    (lambda: g.window_partition((6, -1), 3), "size must be a whole number >= 0, got -1"),
    (
        lambda: g.window_partition((6, 9), (3, 3, 3)),
        r"cell must be one, or 2, .* got 3: \(3, 3, 3\)",
    ),
    (lambda: g.window_partition((6, 9), 0), "cell must be a whole number >= 1, got 0"),
    (lambda: g.window_partition((6, 9), 3, -1), "shift must be a whole number >= 0, got -1"),
    (
        lambda: g.grid_neighbourhood((6, 9), 3, dilation=(1,), causal=False),
        "dilation must be one, or 2, one for each axis of size",
    ),
    (
        lambda: g.grid_neighbourhood((9, 9), 3, stride=4, causal=False),
        "stride must be below 4, one more than kernel, got 4",
    ),
    (
        lambda: g.grid_neighbourhood((9, 9), 3, stride=0, causal=False),
        "stride must be a whole number >= 1, got 0",
    ),
    (
        lambda: g.grid_neighbourhood((9, 9), 3, stride=(1,), causal=False),
        "stride must be one, or 2",
    ),
    (lambda: g.shifted((6, 9), (1,)), r"by must be one, or 2, .* got 1: \(1,\)"),
    (lambda: g.shifted((6, 9), 0.5), "by must be a whole number, got 0.5"),
    (lambda: g.shifted((6, 9), 1, stride=0), "stride must be a whole number >= 1, got 0"),
    (lambda: g.halo((9, 9), 4, 1), "got size=9 and cell=4 on axis 0; pass pad=True"),
    (lambda: g.halo((9, 9), 3, -1), "halo must be a whole number >= 0, got -1"),
    (lambda: g.cell_pooling((9, 8), 3), "got size=8 and cell=3 on axis 1; pass pad=True"),
    (lambda: g.grid_ball((9,), math.nan), "r must be a finite number >= 0, got nan"),
    (lambda: g.grid_ball((9,), math.inf), "r must be a finite number >= 0, got inf"),
    (lambda: g.grid_ball((9,), 1, p=0.5), "p must be a number >= 1, got 0.5"),
    (lambda: g.cross(3, 5).with_global_tokens(), "with_global_tokens needs a square graph"),
    (lambda: g.full(3).with_global_tokens(-1), "number must be a whole number >= 0, got -1"),
]
POINTS = [
    (
        lambda: curve({"curve": "peano"}),
        'curve must be "z", "z-trans", "hilbert" or "hilbert-trans", got .peano',
    ),
    (lambda: curve({"bits": 22}), "bits must be below 22 on 3 axes, got 22"),
    (lambda: curve({"bits": 0}), "bits must be a whole number >= 1, got 0"),
    (lambda: curve({"cell": 0.0}), "cell must be one length > 0 in the units of pos, got 0.0"),
    (lambda: curve({"cell": "fine"}), "cell must be one length > 0"),
    (lambda: curve({"cell": float("inf")}), "cell must be one length > 0"),
    (
        lambda: curve({"cell": 1e-3, "bits": 2}),
        r"bits=2 allows cells up to 3, got \d+; pass a larger cell, or more bits",
    ),
    (
        lambda: curve({"cell": 1e-140}),
        "bits=21 allows cells up to 2097151, got .*; pass a larger cell",
    ),
    (
        lambda: curve({"pos": GRID_CELLS, "cell": 1.0}),
        "cell needs floating point pos, got integers, which are cells",
    ),
    (
        lambda: curve({"pos": GRID_CELLS - 3}),
        r"cells of a grid must be >= 0, got -3; pass pos - pos.amin\(0\)",
    ),
    (lambda: curve({"pos": GRID_CELLS, "bits": 3}), "bits=3 allows cells up to 7, got 11"),
    (lambda: curve({"pos": torch.rand(4, 64)}), r"at most 63 axes, got 64; .* pos\[:, :3\]"),
    (lambda: curve({"pos": torch.arange(3)}), r"pos must have shape \(N, d\)"),
    (lambda: curve({"pos": torch.tensor([[0.0], [torch.nan]])}), "pos must be finite .* in row 1"),
    (lambda: curve({"batch": torch.tensor([1, 0, 0, 0, 0])}), "batch must be >= 0 and sorted"),
    (
        lambda: curve({"batch": torch.tensor([0])}),
        r"batch must have shape \(5,\), got a Tensor \(1,\)",
    ),
    (
        lambda: g.hierarchy(..., ratio=0.5, cell=1.0),
        "one of ratio, cell, points and coarse, got ratio and cell",
    ),
    (lambda: g.hierarchy(FIVE, ratio=2.0), "ratio must be"),
    (lambda: g.hierarchy(FIVE, cell=0.0), "cell must be a length > 0"),
    (lambda: g.hierarchy(FIVE, points=[torch.tensor([5])]), r"points must be in \[0, 5\)"),
    (lambda: g.hierarchy(FIVE, ratio=0.5, graph=[g.full(...)]), "one for each of 2 levels, got 1"),
    (lambda: g.hierarchy(..., graph=3), "graph must be a recipe"),
    (
        lambda: g.hierarchy(FIVE, normals=torch.rand(4, 3)),
        r"normals must have shape \(5, 3\), got a Tensor \(4, 3\)",
    ),
    (
        lambda: g.knn(torch.rand(5), 1),
        r"pos must have shape \(N, d\), got a Tensor \(5,\)",
    ),
    (lambda: g.knn(torch.rand(5, 0), 1), r"got \(5, 0\)"),
    (lambda: g.knn(FIVE, 0), "k must be a whole number >= 1, got 0"),
    (lambda: g.radius(FIVE, float("inf")), "r must be a finite distance >= 0, got inf"),
    (
        lambda: g.curve_patches(THREE, 2, batch=torch.tensor([1, 0, 0])),
        "batch must be >= 0 and sorted",
    ),
    (lambda: g.octree_windows(THREE[:, 0], 2), r"pos must have shape \(N, d\)"),
    (
        lambda: g.voxel_windows(FIVE, 0.0),
        "window must be one length > 0 in the units of pos, got 0.0",
    ),
    (
        lambda: g.voxel_windows(FIVE, (1.0, 2.0)),
        "window must be one, or 3, one for each axis of pos",
    ),
    (lambda: g.voxel_windows(FIVE, 1.0, shift=float("nan")), "shift must be finite numbers"),
    (
        lambda: g.voxel_windows(FIVE, 1.0, batch=torch.tensor([1, 0, 0, 0, 0])),
        "batch must be >= 0 and sorted",
    ),
    (lambda: g.voxel_windows(FIVE * torch.inf, 1.0), "pos must be finite"),
    (
        lambda: g.stratified_windows(FIVE, 1.0, torch.tensor([0]), wide=0.5),
        "wide must be a number >= 1",
    ),
    (lambda: g.stratified_windows(FIVE, 1.0, torch.tensor([0.5])), "sampled must be integer"),
    (
        lambda: g.clusters(torch.tensor([0, -2])),
        r"ids must be in \[-1, 1\), the clusters, got -2 to 0",
    ),
    (
        lambda: g.clusters(torch.tensor([0, 3]), 3),
        r"ids must be in \[-1, 3\), the clusters, got 0 to 3",
    ),
    (lambda: g.ball_query(FIVE, 1.0, 0), "k must be a whole number >= 1, got 0"),
]
MESH = [
    (
        lambda: g.mesh_edges([(0, 1, -2)]),
        r"faces must be in \[0, 2\), vertices counted from 0, got -2 to 1",
    ),
    (
        lambda: g.geodesic_ball(torch.zeros(2, 3), [(0, 1, 2)], 1.0),
        r"faces must be in \[0, 2\), vertices counted from 0, got 0 to 2",
    ),
    (lambda: g.geodesic_ball(torch.zeros(3, 3), [(0, 1, 2)], -1.0), "r must be a .*distance >= 0"),
    (
        lambda: g.geodesic_ball(torch.full((3, 3), torch.nan), [(0, 1, 2)], 1.0),
        "pos must be finite",
    ),
    (
        lambda: g.mesh_vertices(torch.tensor(STRIP), 5),
        r"faces must be in \[0, 5\), vertices counted from 0, got 0 to 5",
    ),
    (
        lambda: g.mesh_vertices([(0, 1, 2), (1, -1, 2)]),
        r"faces must be in \[0, 3\), vertices counted from 0, got -1 to 2",
    ),
    (
        lambda: g.mesh_faces(torch.tensor([[0, 1, -3]])),
        r"faces must be in \[0, 2\), vertices counted from 0, got -3 to 1",
    ),
    (
        lambda: shapes.mesh_report([(0, 1, 2)], 2),
        r"faces must be in \[0, 2\), vertices counted from 0, got 0 to 2",
    ),
    (lambda: g.mesh_vertices(torch.tensor(STRIP).float()), "faces must be integers .* got float32"),
    (lambda: g.mesh_vertices([(0.0, 1.0, 2.0)]), "faces must be integers .* got float32"),
    (
        lambda: g.mesh_vertices(torch.tensor([0, 1, 2])),
        r"faces must have shape \(F, n\), got a Tensor \(3,\)",
    ),
    (
        lambda: g.mesh_faces(torch.tensor([[0, 1], [1, 2]])),
        "at least 3 vertices, got 2 in face 0",
    ),
    (
        lambda: g.mesh_vertices(torch.zeros(3, 2).long()),
        "whose rows name vertices twice",
    ),
    (lambda: g.mesh_faces([(0, 1, 2), (0, 1)]), "got 2 in face 1"),
]
NETWORK = [
    (lambda: g.butterfly(8, strides=(3,)), "strides must be powers of two such as 1, 2, 4, got 3"),
    (lambda: g.butterfly(8, strides=(0,)), "strides must be powers of two .* got 0"),
    (lambda: g.coarse_to_fine(8, 3, causal=False), "block must be even.* got 3"),
    (lambda: g.circulant(8, (0.5,)), "offsets must be integers .* got float32"),
    (lambda: g.line_graph(g.cross(2, 3)), "line_graph needs a square graph"),
    (lambda: g.line_graph([[0], [1]]), "line_graph needs an AttentionGraph, got list"),
    (lambda: g.line_graph(g.causal(3), directed=False), "directed=False needs a symmetric"),
    (
        lambda: g.line_graph(g.full(3), directed=False, non_backtracking=True),
        "non_backtracking needs directed=True",
    ),
    (lambda: g.hypergraph(torch.tensor([0, 0]), torch.tensor([1, 1])), "repeated edges"),
    (lambda: g.hypergraph(torch.tensor([5]), torch.tensor([0]), 5), r"source 5 is outside"),
    (lambda: g.between_types(torch.tensor([0.5]), 0, 1), "types must be integer"),
    (lambda: g.expander(10**12), "expander .* would take"),
    (lambda: g.small_world(7, 3, 0.1), "k must be even, half of it on each side, got 3"),
    (lambda: g.small_world(7, 8, 0.1), "k must be below 7, the number of nodes, got 8"),
    (
        lambda: g.degree_matched_random(g.full(3), keep="out"),
        'keep must be "degrees" or "in-degrees", got \'out\'',
    ),
    (lambda: g.degree_matched_random(g.full(10**6)), "degree_matched_random .* would take"),
    (
        lambda: g.degree_matched_random(g.ball_query(FIVE, 9.0, 7)),
        "degree_matched_random is of a set of edges",
    ),
]
NUMBERS = [
    (lambda: g.random_neighbours(100_000_000, 5), "would take 48,000,000,000 bytes"),
    (lambda: g.random_neighbours(100_000, 1000), "would take 9,600,000,000 bytes"),
    (lambda: g.ball_query(SEVEN, 9.0, k=2**62), "edges of ball_query would take .* bytes"),
    (
        lambda: g.clusters(IDS, 10**9),
        "clusters with C = 1,000,000,000 would take 64,000,000,000 bytes",
    ),
    (lambda: g.clusters(IDS, 2**62), "clusters with C = .* would take .* bytes"),
    (lambda: g.mesh_vertices(F, 2**31, 2), "a mesh of 2,147,483,648 vertices would take .* bytes"),
    (
        lambda: g.mesh_vertices(torch.tensor([[0, 1, 2**62]])),
        "a mesh of .* vertices would take .* bytes",
    ),
    (
        lambda: g.documents(lengths=torch.tensor([2**62, 2**62]), causal=False),
        "documents of 9,.* tokens would take",
    ),
    (lambda: g.line_graph(g.full(600)), "line_graph of .* would take 6,912,000,000 bytes"),
    (
        lambda: g.line_graph(g.global_tokens(20_000, (0,))),
        r"line_graph of .* would take .* drop its hubs",
    ),
]
OTHERS = [
    (
        lambda: nn.inverse_distance_bias(ASKED, FIVE[:4], FIVE[:4]),
        r"pos must have shape \(5, d\), got a Tensor \(4, 3\)",
    ),
    (
        lambda: nn.inverse_distance_bias(ASKED, FIVE),
        r"queries must have shape \(4, d\), got a Tensor \(5, 3\)",
    ),
    (
        lambda: nn.inverse_distance_bias(ASKED, FIVE, FIVE[:4], power=0),
        "power must be a number above 0, got 0",
    ),
    (lambda: nn.inverse_distance_bias(ASKED, FIVE, FIVE[:4] * torch.nan), "queries must be finite"),
    (
        lambda: g.hypergraph([0, 4, 4], [0, 1, 1]),
        "repeat",
    ),
    (
        lambda: g.full(5).subgraph(targets=[7]),
        r"^subgraph: targets must be in \[0, 5\), the nodes, got 7 to 7$",
    ),
    (
        lambda: g.full(5).relabel(sources=[7]),
        r"^relabel: sources must be in \[0, 5\), the nodes, got 7 to 7$",
    ),
    (lambda: shapes.farthest_points(FIVE), "needs either count .* or ratio "),
    (lambda: shapes.farthest_points(FIVE, 2, ratio=0.5), "needs either count .* or ratio "),
    (lambda: shapes.farthest_points(FIVE, 6), "count=6 needs as many points, got 5; use ratio"),
    (
        lambda: shapes.farthest_points(FIVE, 3, batch=[0, 0, 0, 7, 7]),
        "count=3 needs as many points, got 2 in cloud 7",
    ),
    (
        lambda: shapes.farthest_points(FIVE, 2, start=5),
        "start must be below the number of points, got 5 of 5",
    ),
    (
        lambda: shapes.farthest_points(FIVE, ratio=0.0),
        "ratio must be above 0 and at most 1, got 0.0",
    ),
    (
        lambda: shapes.farthest_points(FIVE, ratio=1.5),
        "ratio must be above 0 and at most 1, got 1.5",
    ),
    (
        lambda: shapes.farthest_points(FIVE, 2, batch=[1, 0, 0, 0, 0]),
        "batch must be >= 0 and sorted",
    ),
]


@pytest.mark.parametrize(
    ("build", "words"), [*SEQUENCE, *GRID, *POINTS, *MESH, *NETWORK, *NUMBERS, *OTHERS]
)
def test_what_does_not_fit_is_refused_by_name(build, words):
    kind = (
        GraphIndexError
        if re.search(r"outside|must be in \\\[", words)
        else (GraphError, ShapeError)
    )
    with pytest.raises(kind, match=words):
        build()


WRONG = {int: (-1, 2.5), float: (-1.0, float("nan"))}
FROM_ONE = {
    "max_neighbours",
    "window",
    "dilation",
    "chunk",
    "stride",
    "summary",
    "block",
    "patch",
    "hops",
    "permutations",
    "tries",
}
SIGNED = {"source", "target"}  # types are any integers


@pytest.mark.parametrize("name", SMALL)
def test_numbers_and_words_of_every_builder(name):
    build, small = g.BUILDERS[name], SMALL[name]
    # its cells are integers in the zoo
    small = small | {"pos": FIVE} if "octree" in name else small
    for argument, hint in typing.get_type_hints(build).items():
        plain = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
        wrong = WRONG.get(
            plain[0], ("some word",) if typing.get_origin(hint) is typing.Literal else ()
        )
        wrong = (0, *wrong) if argument in FROM_ONE and wrong == WRONG[int] else wrong
        for value in (
            wrong[argument in SIGNED :] if len(plain) == 1 or wrong == ("some word",) else ()
        ):
            with pytest.raises(GraphError, match=f"{argument}.* must (be|fit)"):
                build(**{**small, argument: value})


def test_numpys_numbers_and_bools_are_numbers_and_flags():
    assert (
        g.sliding_window(5, np.int64(3), causal=np.bool_(False)).name
        == "sliding_window(5, 3, causal=False)"
    )
    for good in (1, 1.0, np.float32(1), torch.tensor(1.0)):
        assert g.radius(SEVEN, good).equals(g.radius(SEVEN, 1.0))
    assert g.full(2**63 - 1).num_targets == 2**63 - 1


def test_a_number_larger_than_the_input_costs_nothing():
    assert g.ball_query(SEVEN, 9.0, k=2**62, pad=False).equals(g.full(7))
    assert g.octree_windows(SEVEN, 3, dilation=2**62).equals(g.octree_windows(SEVEN, 3, dilation=7))
    assert g.octree_windows(SEVEN, 2**62, dilation=2).equals(g.octree_windows(SEVEN, 7, dilation=2))
    assert not g.octree_windows(SEVEN, 3, dilation=2).equals(g.octree_windows(SEVEN, 3, dilation=7))
    assert g.sparse_fixed(10**6, 1000, 7).num_edges == 500_500 * 1000 + 7 * 1000 * 999 // 2 * 1000


def test_positions_may_be_a_view_of_numpy_that_runs_backwards():
    backwards = SEVEN.numpy()[::-1]
    graph = g.knn(backwards, 3)
    assert torch.equal(
        nn.inverse_distance_bias(graph, backwards), nn.inverse_distance_bias(graph, SEVEN.flip(0))
    )


def test_positions_whose_squares_vanish_are_refused():
    tiny = SEVEN.double() * 1e-200
    for build in (
        lambda pos: g.knn(pos, 4),
        lambda pos: g.radius(pos, 1e-200),
        lambda pos: g.ball_query(pos, 1e-200, 3),
        lambda pos: shapes.farthest_points(pos, 3),
    ):
        with pytest.raises(GraphError, match=r"pos must reach 1e-130 in size, got .*e-201 at most"):
            build(tiny)
    assert g.knn(SEVEN.double() * 2.0**-400, 4).equals(g.knn(SEVEN.double(), 4))
    assert g.knn(SEVEN * 0, 4).num_edges == 28


def test_other_words_for_the_same_graph_are_taken():
    assert g.window_partition((6, 9), 3, 4).equals(g.window_partition((6, 9), 3, 1))
    assert g.global_tokens(7, (2, 5, 2)).equals(g.global_tokens(7, (2, 5)))
    around = g.block_local(7, 3, look_back=2, look_ahead=1, causal=False, wrap=True)
    assert around.equals(g.full(7))
    grid = torch.cartesian_prod(torch.arange(3), torch.arange(5))
    assert g.knn(grid, 2).equals(g.knn(grid.double(), 2))
