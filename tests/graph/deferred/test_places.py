"""Recipes: patterns of points and meshes, called with positions, clouds and faces."""

import pickle

import pytest
import torch

import graphattn as ga
from graphattn import disjoint_union, graphs
from graphattn.errors import GraphError
from graphattn.graphs import CloudCache

FACES = torch.tensor([[0, 1, 2], [2, 1, 3], [3, 1, 4]])
RECIPES = {
    "knn": (graphs.knn(..., k=3), lambda pos, batch: graphs.knn(pos, 3, batch=batch)),
    "knn, clamped": (
        graphs.knn(..., 9, self_loops=True, clamp=True),
        lambda pos, batch: graphs.knn(pos, 9, self_loops=True, clamp=True, batch=batch),
    ),
    "radius": (graphs.radius(..., r=0.4), lambda pos, batch: graphs.radius(pos, 0.4, batch=batch)),
    "ball_query": (
        graphs.ball_query(..., 0.4, k=3),
        lambda pos, batch: graphs.ball_query(pos, 0.4, 3, batch=batch),
    ),
    "curve_patches": (
        graphs.curve_patches(..., 4, "hilbert"),
        lambda pos, batch: graphs.curve_patches(pos, 4, "hilbert", batch=batch),
    ),
    "octree_windows": (
        graphs.octree_windows(..., 4),
        lambda pos, batch: graphs.octree_windows(pos, 4, batch=batch),
    ),
    "voxel_windows": (
        graphs.voxel_windows(..., 0.5, shift=0.25),
        lambda pos, batch: graphs.voxel_windows(pos, 0.5, shift=0.25, batch=batch),
    ),
    "stratified_windows": (
        graphs.stratified_windows(..., 0.3, 0.25),
        lambda pos, batch: graphs.stratified_windows(
            pos, 0.3, ga.shapes.farthest_points(pos, ratio=0.25, batch=batch), batch=batch
        ),
    ),
    "mutual": (
        graphs.knn(..., k=3) & graphs.knn(..., k=3).reverse(),
        lambda pos, batch: (
            graphs.knn(pos, 3, batch=batch) & graphs.knn(pos, 3, batch=batch).reverse()
        ),
    ),
    "all pairs of a cloud": (
        graphs.full(...),
        lambda pos, batch: graphs.documents(batch, causal=False),
    ),
    "what a cloud's points do not read": (
        ~graphs.knn(..., k=3),
        lambda pos, batch: graphs.documents(batch, causal=False) - graphs.knn(pos, 3, batch=batch),
    ),
}


def cloud_batch(seed):
    random = torch.Generator().manual_seed(seed)
    sizes = torch.randint(
        4, 12, (int(torch.randint(1, 5, (), generator=random)),), generator=random
    )
    # every second number is an empty cloud
    batch = torch.repeat_interleave(torch.arange(len(sizes)) * 2, sizes)
    return torch.rand(len(batch), 3, generator=random), batch


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_edges_of_the_builder_on_many_batches(name):
    recipe, eager = RECIPES[name]
    for seed in range(30 if name in ("knn", "radius", "ball_query", "voxel_windows") else 10):
        pos, batch = cloud_batch(seed)
        graph, wanted = recipe(pos, batch), eager(pos, batch)
        same = torch.equal(graph.edge_index, wanted.edge_index)
        assert same or (not wanted.has_repeated_edges and graph.equals(wanted))
        assert graph.num_nodes == len(pos)
    own = batch == batch[0]
    assert torch.equal(recipe(pos[own]).edge_index, eager(pos[own], batch[own]).edge_index)


def test_recipes_of_queries_and_of_meshes():
    pos, batch = cloud_batch(7)
    chosen = ga.shapes.farthest_points(pos, ratio=0.5, batch=batch)
    given = {"queries": pos[chosen], "queries_batch": batch[chosen]}
    found = graphs.knn(..., k=3)(pos, batch, **given)
    assert found.equals(graphs.knn(pos, 3, batch=batch, **given))
    every = graphs.cross(..., ...)(pos, batch, **given)
    assert torch.equal(every.mask(), batch[chosen][:, None] == batch)
    assert (graphs.knn(..., k=3) & graphs.cross(..., ...))(pos, batch, **given).equals(found)
    pos = torch.rand(6, 3)
    assert graphs.mesh_vertices(..., hops=2)(pos, faces=FACES).equals(
        graphs.mesh_vertices(FACES, 6, hops=2)
    )
    assert graphs.mesh_vertices(...)(faces=FACES).equals(graphs.mesh_vertices(FACES))
    assert graphs.mesh_faces(...)(faces=FACES).equals(graphs.mesh_faces(FACES))
    assert graphs.geodesic_ball(..., ..., 0.5)(pos, faces=FACES).equals(
        graphs.geodesic_ball(pos, FACES, 0.5)
    )
    assert (graphs.mesh_vertices(...) | graphs.knn(..., k=1))(pos, faces=FACES).num_nodes == 6


def test_recipes_are_data():
    recipe = graphs.knn(..., k=3) | graphs.global_tokens(..., (0,))
    pos, batch = cloud_batch(3)
    assert repr(recipe) == "Pattern(knn(..., k=3) | global_tokens(..., (0,)))"
    for again in (
        ga.convert.graph_from_dict(ga.convert.graph_to_dict(recipe)),
        pickle.loads(pickle.dumps(recipe)),
    ):
        assert again.on_points
        assert again(pos, batch).equals(recipe(pos, batch))
    assert not graphs.causal(...).on_points


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: graphs.knn(..., k=3)(5),
            r"knn\(\.\.\., k=3\) needs pos, and got a size; make the graph first",
        ),
        (lambda: graphs.knn(..., k=3)(), "takes a size, .* or positions"),
        (
            lambda: graphs.knn(torch.rand(5, 3), ...),
            r"\.\.\. stands for the places, which come first \(pos\)",
        ),
        (lambda: graphs.mesh_faces(...)(torch.rand(5, 3)), "needs faces, got none; pass recipe"),
        (
            lambda: graphs.causal(...)(5, batch=torch.zeros(5).long()),
            "batch needs positions, got no pos",
        ),
        (
            lambda: graphs.full(...)(torch.rand(5, 3), torch.arange(4)),
            r"batch must have shape \(5,\), got a Tensor \(4,\)",
        ),
        (lambda: graphs.full(...)(torch.rand(2, 3), torch.tensor([1, 0])), "sorted"),
        (
            lambda: graphs.voxel_windows(..., 1.0)(torch.rand(2, 3), queries=torch.rand(1, 3)),
            "takes no queries",
        ),
        (
            lambda: graphs.knn(..., 1).with_global_tokens()(
                torch.rand(2, 3), torch.zeros(2).long()
            ),
            "would join the clouds",
        ),
        (
            lambda: ga.nn.GraphAttention(8, 2)(torch.rand(5, 8), graphs.knn(..., 2)),
            "needs pos, and got a size",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(GraphError, match=message):
        make()


def test_a_cache_joins_the_graphs_of_clouds_that_it_knows():
    cache = CloudCache(graphs.knn(..., k=3))
    for seed in (1, 2, 1):
        pos, batch = cloud_batch(seed)
        assert torch.equal(cache(pos, batch).edge_index, graphs.knn(pos, 3, batch=batch).edge_index)
    first, clouds = cache(*cloud_batch(1)), [len(cloud_batch(seed)[1].unique()) for seed in (1, 2)]
    assert (cache.misses, cache.hits) == (sum(clouds), 2 * clouds[0])
    pos, batch = cloud_batch(1)
    assert cache(pos + 1, batch) is not first
    assert cache.misses == sum(clouds) + clouds[0]
    tiny = CloudCache(graphs.knn(..., k=3), max_bytes=1)
    tiny(pos, batch), tiny(pos, batch)
    assert tiny.hits == 0
    # whose patches are as small as the smallest cloud of a batch
    alone = graphs.curve_patches(..., 6)
    joined = disjoint_union([alone(pos[batch == cloud]) for cloud in batch.unique()])
    assert CloudCache(alone)(pos, batch).equals(joined)
