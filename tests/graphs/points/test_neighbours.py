"""kNN and radius against brute force, scipy and cdist; ties, coincident points, clouds and
refusals.
"""

import time

import pytest
import torch
from scipy.spatial import cKDTree

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError
from graphattn.graphs.points.search import balls as _balls
from graphattn.graphs.points.search import candidates as _candidates
from graphattn.graphs.points.search import nearest as _nearest
from graphattn.graphs.points.search.balls import within
from graphattn.graphs.points.search.nearest import nearest


def cloud(name):
    """Point clouds (n, d) in float64, most of them with ties."""
    torch.manual_seed(11)
    lattice = torch.stack(torch.meshgrid(*[torch.arange(5.0)] * 3, indexing="ij"), -1).reshape(
        -1, 3
    )
    return {
        "cube": torch.rand(151, 3),
        "plane": torch.rand(97, 2),
        "line": torch.rand(53, 1),
        "features": torch.randn(71, 17),
        "many axes": torch.randn(37, 29),
        "lattice": lattice * 0.1,
        "circle": torch.stack(
            [torch.tensor([3.0, 4.0, 5.0, 0, -5, -3, 4]), torch.tensor([4.0, 3, 0, 5, 0, -4, -3])],
            1,
        ),
        "one place": torch.full((41, 3), 0.3),
        "half in one place": torch.cat([torch.zeros(37, 3), torch.rand(41, 3), torch.zeros(3, 3)]),
        "one-hot": torch.eye(43),
        "scales": torch.cat(
            [torch.rand(31, 3) * 1e-6, torch.rand(31, 3) * 1e6, torch.rand(5, 3) * 1e12]
        ),
        "far away": torch.rand(61, 3).double() + 1e7,
    }[name].double()


CLOUDS = (
    "cube", "plane", "line", "features", "many axes", "lattice", "circle", "one place", "half in one place", "one-hot",
    "scales", "far away",
)  # fmt: skip


def table(points, queries):
    """All squared distances (m, n) by difference, added axis by axis in float64."""
    total = torch.zeros(len(queries), len(points), dtype=torch.float64)
    for axis in range(points.shape[1]):
        difference = points[None, :, axis] - queries[:, None, axis]
        total += difference * difference
    return total


def ordered(points, queries):
    """Point indices (m, n) and squared distances by (distance, index)."""
    return torch.sort(table(points, queries), dim=1, stable=True)


def brute_knn(points, k, self_loops=False):
    edges = []
    for t, (row, _) in enumerate(
        zip(*[part.tolist() for part in ordered(points, points)[::-1]], strict=True)
    ):
        others = [s for s in row if s != t]
        edges += [(s, t) for s in ([t, *others] if self_loops else others)[:k]]
    return torch.tensor(edges).T


@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("k", [1, 6])
def test_knn_is_brute_force(name, k):
    points = cloud(name)
    assert torch.equal(graphs.knn(points, k).edge_index, brute_knn(points, k))
    assert torch.equal(
        graphs.knn(points, k, self_loops=True).edge_index, brute_knn(points, k, True)
    )
    queries = torch.cat([points[::3], points[:7] + 0.01, points[:1] * 1e3])
    wanted = ordered(points, queries).indices[:, :k].flatten()
    asked = graphs.knn(points, k, queries=queries)
    assert torch.equal(asked.source, wanted)
    assert torch.equal(asked.target, torch.arange(len(queries)).repeat_interleave(k))
    assert (asked.num_targets, asked.num_sources) == (len(queries), len(points))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("k", [1, 7])
def test_every_search_finds_the_same_neighbours(name, k):
    """The searches of the GPU, run on the CPU: the same bits of distance, so the same edges."""
    points = cloud(name)
    queries = torch.cat([points, points[:5] + 0.01, points[:1] * -1e3])
    wanted = ordered(points, queries).indices[:, :k]
    for how in ("tree", "products", "balls"):
        assert torch.equal(nearest(points, queries, k, how), wanted), how


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("quantile", [0.0, 0.3, 1.0])
def test_every_search_finds_the_same_balls(name, quantile, monkeypatch):
    points = cloud(name)
    queries = torch.cat([points, points[:5] + 0.01, points[:1] * -1e3])
    squared, order = ordered(points, queries)
    # on the border: a point at that very distance
    limit = squared.quantile(quantile, dim=1, interpolation="nearest")
    found = squared <= limit[:, None]
    wanted = torch.nonzero(found)[:, 0], order[found]
    monkeypatch.setattr(_candidates, "_TREE_PAIRS", 7 * len(queries))
    monkeypatch.setattr(_candidates, "_TREE_ROWS", len(queries) // 2)
    monkeypatch.setattr(_balls, "_TOGETHER", 0)
    monkeypatch.setitem(_candidates._CELL_PAIRS, "cpu", 4 * len(queries))
    for how in ("tree", "cells"):
        pairs = list(within(points, queries, limit, how))
        assert [p.first for p in pairs] == [0] + [p.last for p in pairs[:-1]]
        assert pairs[-1].last == len(queries)
        assert len(pairs) > 1
        assert torch.equal(torch.cat([p.query for p in pairs]), wanted[0]), how
        assert torch.equal(torch.cat([p.point for p in pairs]), wanted[1]), how


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CLOUDS)
def test_cpu_and_cuda_give_the_same_edges(name):
    points = cloud(name)
    for k in (1, 5):
        on_gpu = graphs.knn(points.cuda(), k)
        assert on_gpu.device.type == "cuda"
        assert torch.equal(on_gpu.edge_index.cpu(), graphs.knn(points, k).edge_index)
    r = float(table(points, points).quantile(0.1).sqrt())
    assert torch.equal(
        graphs.radius(points.cuda(), r).edge_index.cpu(), graphs.radius(points, r).edge_index
    )


@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("quantile", [0.0, 0.4])
def test_radius_is_brute_force(name, quantile):
    points = cloud(name)
    r = float(table(points, points).quantile(quantile).sqrt())
    squared, order = ordered(points, points)
    inside = squared <= r * r
    target, source = torch.nonzero(inside)[:, 0], order[inside]
    assert torch.equal(
        graphs.radius(points, r, self_loops=True).edge_index, torch.stack((source, target))
    )
    other = source != target
    assert torch.equal(
        graphs.radius(points, r).edge_index, torch.stack((source[other], target[other]))
    )
    queries = points[: len(points) // 2] + 0.01
    squared, order = ordered(points, queries)
    inside = squared <= r * r
    asked = graphs.radius(points, r, queries=queries)
    assert torch.equal(asked.edge_index, torch.stack((order[inside], torch.nonzero(inside)[:, 0])))
    assert (asked.num_targets, asked.num_sources) == (len(queries), len(points))


@pytest.mark.parametrize("axes", [1, 2, 3, 5])
def test_without_ties_scipy_and_cdist_agree(axes):
    torch.manual_seed(13)
    points = torch.rand(499, axes, dtype=torch.float64)
    graph = graphs.knn(points, 7)
    by_tree = torch.from_numpy(cKDTree(points.numpy()).query(points.numpy(), 8)[1][:, 1:].copy())
    by_cdist = (
        torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
        .topk(8, largest=False)
        .indices
    )
    assert torch.equal(graph.source.view(499, 7), by_tree)
    assert torch.equal(graph.source.view(499, 7), by_cdist[:, 1:])
    ball = graphs.radius(points, 0.1, self_loops=True)
    assert torch.equal(
        ball.mask(), torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist") <= 0.1
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_dtype_is_compared_in_float64(dtype):
    points = cloud("cube").to(dtype).requires_grad_()  # many ties in bfloat16
    assert torch.equal(graphs.knn(points, 5).edge_index, brute_knn(points.detach().double(), 5))


def test_the_border_of_a_ball_belongs_to_it():
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [5.0, 0.1]], dtype=torch.float64)
    assert graphs.radius(points[:2], 5.0).num_edges == 2
    assert graphs.radius(points[::2], 5.0).num_edges == 0
    assert graphs.radius(points[:2], 0).num_edges == 0
    assert graphs.radius(torch.zeros(3, 2), 0).num_edges == 6


def test_too_few_points():
    points = torch.rand(10, 3)
    with pytest.raises(
        GraphError, match=r"k=16 needs at least 17 points, got 10; use a smaller k, or clamp=True"
    ):
        graphs.knn(points, 16)
    with pytest.raises(GraphError, match="k=16 needs at least 16 points, got 10"):
        graphs.knn(points, 16, self_loops=True)
    with pytest.raises(
        GraphError, match=r"got 3; the rows of pos are points, got \(3, 10\): pass pos.T"
    ):
        graphs.knn(points.T, 5)
    with pytest.raises(GraphError, match="k=16 needs at least 16 points, got 10"):
        graphs.knn(points, 16, queries=torch.rand(2, 3))
    with pytest.raises(GraphError, match="k=5 needs at least 6 points, got 3 in cloud 4"):
        graphs.knn(points, 5, batch=torch.tensor([0] * 7 + [4] * 3))
    with pytest.raises(GraphError, match="k=1 needs at least 1 point, got 0 in cloud 2"):
        graphs.knn(
            points,
            1,
            batch=torch.zeros(10).long(),
            queries=points,
            queries_batch=torch.arange(10) // 5 * 2,
        )
    assert graphs.knn(points, 9).equals(graphs.full(10).without_self_loops())
    assert graphs.knn(points, 10, self_loops=True).equals(graphs.full(10))
    assert graphs.knn(points, 16, clamp=True).equals(graphs.full(10).without_self_loops())
    assert graphs.knn(points, 16, clamp=True, self_loops=True).equals(graphs.full(10))
    assert graphs.knn(points[:1], 3, clamp=True).num_edges == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e200])
def test_coordinates_that_are_not_numbers(value):
    points = torch.rand(11, 3, dtype=torch.float64)
    points[7, 1] = value
    points[9, 0] = value
    with pytest.raises(GraphError, match=r"pos must be finite .* in row 7; 2 of 11 rows are not"):
        graphs.knn(points, 3)
    with pytest.raises(GraphError, match=r"pos must be finite .* in row 7"):
        graphs.radius(points, 0.1)
    with pytest.raises(GraphError, match=r"queries must be finite .* in row 7"):
        graphs.radius(points[:5], 0.1, queries=points)


def test_too_many_neighbours():
    line = torch.arange(13.0)[:, None]
    with pytest.raises(
        GraphError,
        match=r"max_neighbours=3 is too few: target 3 has 6 sources within r=3.0; .* overflow=\"nearest\"",
    ):
        graphs.radius(line, 3.0, max_neighbours=3)
    exact = graphs.radius(line, 3.0, max_neighbours=6)
    assert exact.equals(graphs.radius(line, 3.0))
    kept = graphs.radius(line, 3.0, max_neighbours=3, overflow="nearest")
    assert int(kept.in_degree.max()) == 3
    assert kept.source[kept.target == 5].tolist() == [4, 6, 3]
    assert kept.source[kept.target == 0].tolist() == [1, 2, 3]
    with pytest.raises(GraphError, match="needs max_neighbours, got none"):
        graphs.radius(line, 3.0, overflow="nearest")


def test_clouds_of_a_batch():
    points = cloud("lattice")[:60]
    batch = torch.tensor([0] * 17 + [1] * 13 + [4] * 30)  # clouds 2 and 3 are empty
    parts = [points[batch == i] for i in (0, 1, 4)]
    for make in (
        lambda p, **own: graphs.knn(p, 4, **own),
        lambda p, **own: graphs.radius(p, 0.15, **own),
    ):
        alone = [
            make(part).edge_index + start for part, start in zip(parts, (0, 17, 30), strict=True)
        ]
        assert torch.equal(make(points, batch=batch).edge_index, torch.cat(alone, 1))
        assert torch.equal(make(points, batch=batch.int()).edge_index, torch.cat(alone, 1))


def test_clouds_of_queries():
    points, queries = cloud("cube")[:50], cloud("cube")[50:90]
    batch = torch.tensor([1] * 20 + [2] * 30)
    asked = torch.tensor([0] * 3 + [1] * 17 + [2] * 11 + [7] * 9)
    graph = graphs.radius(points, 0.4, queries=queries, batch=batch, queries_batch=asked)
    wanted = (table(points, queries) <= 0.4 * 0.4) & (asked[:, None] == batch[None, :])
    assert torch.equal(graph.mask(), wanted)
    inner = slice(3, 31)
    near = graphs.knn(points, 5, queries=queries[inner], batch=batch, queries_batch=asked[inner])
    far = table(points, queries[inner]).masked_fill(asked[inner, None] != batch[None, :], torch.inf)
    assert torch.equal(near.source.view(-1, 5), torch.sort(far, dim=1, stable=True).indices[:, :5])


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (
            {"batch": torch.tensor([0, 0, 1, 0, 1])},
            "batch must be >= 0 and sorted; sort the points first:",
        ),
        (
            {"batch": torch.tensor([0, 1])},
            r"batch must have shape \(5,\), got a Tensor \(2,\)",
        ),
        ({"batch": torch.tensor([-1, 0, 0, 0, 0])}, "batch must be >= 0 and sorted"),
        ({"batch": torch.zeros(5)}, "batch must be integers .* got float32"),
        ({"queries_batch": torch.zeros(5).long()}, "queries_batch needs queries, got none"),
        (
            {"queries": torch.zeros(2, 3), "batch": torch.zeros(5).long()},
            "both batch and queries_batch, or neither",
        ),
        (
            {"queries": torch.zeros(2, 3), "queries_batch": torch.zeros(2).long()},
            "both batch and queries_batch",
        ),
        (
            {
                "queries": torch.zeros(2, 3),
                "batch": torch.zeros(5).long(),
                "queries_batch": torch.tensor([1, 0]),
            },
            "queries_batch must be >= 0 and sorted",
        ),
        (
            {"queries": torch.zeros(2, 3), "self_loops": True},
            "self_loops needs targets that are the points, got queries",
        ),
        ({"queries": torch.zeros(3)}, r"queries must have shape \(N, d\), got a Tensor \(3,\)"),
    ],
)
def test_refusals_of_both_builders(own, words):
    with pytest.raises(GraphError, match=words):
        graphs.knn(torch.rand(5, 3), 1, **own)
    with pytest.raises(GraphError, match=words):
        graphs.radius(torch.rand(5, 3), 1.0, **own)


def test_points_may_be_arrays_or_lists():
    points, queries = torch.rand(13, 3, dtype=torch.float64), torch.rand(5, 3, dtype=torch.float64)
    turned = points.flip(0).numpy()[::-1]  # of negative stride
    turned.flags.writeable = False
    for given in (points.numpy(), turned, points.tolist()):
        assert torch.equal(graphs.knn(given, 3).edge_index, graphs.knn(points, 3).edge_index)
        found = graphs.radius(given, 0.4, queries=queries.numpy())
        assert torch.equal(found.edge_index, graphs.radius(points, 0.4, queries=queries).edge_index)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_tiny_clouds(size):
    points = torch.rand(size, 3)
    assert graphs.radius(points, 9.0).num_edges == size * (size - 1)
    assert graphs.knn(points, 1, self_loops=True).num_edges == size
    assert graphs.knn(points, 3, queries=torch.empty(0, 3)).num_edges == 0
    assert graphs.radius(points, 9.0, queries=torch.rand(5, 3)).num_edges == 5 * size
    assert graphs.knn(torch.empty(0, 3), 4).num_edges == 0


def test_a_radius_in_the_wrong_units_is_refused(monkeypatch):
    from graphattn.graph.limits import refuse_over

    monkeypatch.setattr(refuse_over, "__defaults__", (100_000, "bytes"))
    with pytest.raises(
        GraphError, match=r"edges of radius would take .* bytes .*; use a smaller r"
    ):
        graphs.radius(torch.rand(101, 3), 100.0)
    assert (
        graphs.radius(torch.rand(101, 3), 100.0, max_neighbours=5, overflow="nearest").num_edges
        == 505
    )


def test_graphs_are_built_in_inference_mode():
    with torch.inference_mode():
        points = torch.rand(11, 3)
        graph = graphs.knn(points, 3)
        assert graph.edge_index.shape == (2, 33)
        assert graphs.radius(points, 0.5).edge_index.shape[0] == 2


def test_a_cloud_of_16384_points_is_quick():
    points = torch.rand(16_384, 3, generator=torch.Generator().manual_seed(17))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = []
        for _ in range(3):
            start = time.process_time()  # of all threads, so that other programs do not count
            graphs.knn(points, 16)
            times.append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    assert min(times) < 1  # it is .08 s; all pairs take 1.4


def test_points_at_one_place_are_searched_once(monkeypatch):
    """A k-d tree cannot split them, so each search would read all of them: a scan with 30,000
    invalid returns.
    """
    asked, tree = [], _nearest._tree

    def spy(points):
        propose = tree(points)
        return lambda queries, count: (asked.append(len(queries)), propose(queries, count))[1]

    monkeypatch.setattr(_nearest, "_tree", spy)
    points = torch.cat([torch.zeros(300, 3), torch.rand(101, 3)])
    graph = graphs.knn(points, 16)
    assert sum(asked) == 102
    assert graph.source[graph.target == 299].tolist() == list(range(16))


@pytest.mark.parametrize(
    ("make", "repeats"),
    [
        (lambda: graphs.knn(cloud("lattice"), 5), False),
        (lambda: graphs.radius(cloud("lattice"), 0.15), False),
        (lambda: graphs.ball_query(cloud("lattice"), 0.1, 9), True),
        (lambda: graphs.ball_query(cloud("lattice"), 0.1, 9, pad=False), False),
        (lambda: graphs.ball_query(cloud("lattice"), 9.0, 9), False),
        (lambda: graphs.mesh_faces(torch.tensor([[0, 1, 2], [2, 1, 3], [3, 1, 2]])), False),
        (lambda: graphs.mesh_edges(torch.tensor([[0, 1, 2], [2, 1, 3], [3, 1, 2]])), False),
        (lambda: graphs.top_k(cloud("lattice"), 2), False),
        (lambda: graphs.knn(cloud("lattice"), 5).reverse().subgraph(torch.arange(7, 91)), False),
        (
            lambda: ga.disjoint_union(
                [graphs.ball_query(cloud("lattice"), 0.1, 9), graphs.causal(3)]
            ),
            True,
        ),
    ],
)
def test_repeated_edges_are_known_without_a_sort(make, repeats):
    graph = make()
    assert not {"_place", "sorted", "key"} & vars(graph.edges).keys()
    assert graph.has_repeated_edges == repeats == bool(graph.edges.is_copy().any())


def test_many_tiny_clouds_are_compared_together(monkeypatch):
    points, batch = torch.rand(307, 3), torch.randint(60, (307,)).sort().values
    apart = [
        graphs.radius(points[batch == c], 0.5).edge_index + int((batch < c).sum())
        for c in range(60)
    ]
    for pairs in (0, 50, 10**6):
        monkeypatch.setattr(_balls, "_TOGETHER", pairs)
        assert torch.equal(graphs.radius(points, 0.5, batch=batch).edge_index, torch.cat(apart, 1))


@pytest.mark.parametrize("axes", [1, 3, 4])
def test_scattered_queries_come_back_in_their_order(axes, monkeypatch):
    points, queries = torch.rand(211, axes), torch.rand(307, axes)
    wanted = graphs.knn(points, 5, queries=queries).edge_index
    monkeypatch.setattr(_nearest, "_SCATTERED", 10)
    assert torch.equal(graphs.knn(points, 5, queries=queries).edge_index, wanted)
    assert torch.equal(graphs.knn(points, 5).edge_index, brute_knn(points.double(), 5))
