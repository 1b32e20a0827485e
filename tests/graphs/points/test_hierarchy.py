"""Hierarchies: levels that farthest points, grids or the caller keep, and the graphs between
them.
"""

from dataclasses import replace

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.graphs import CloudCache, Hierarchy, hierarchy

SMALL = {"graph": graphs.knn(..., k=3, clamp=True), "down": graphs.knn(..., 4, clamp=True)}


def clouds(sizes=(29, 1, 17), seed=0):
    random = torch.Generator().manual_seed(seed)
    return torch.rand(sum(sizes), 3, generator=random), torch.arange(len(sizes)).repeat_interleave(
        torch.tensor(sizes)
    )


def same(found, wanted):
    assert found.num_clouds == wanted.num_clouds
    for a, b in zip(found.levels, wanted.levels, strict=True):
        torch.testing.assert_close(a.pos, b.pos, rtol=0, atol=1e-6)
        assert torch.equal(a.batch, b.batch)
    for a, b in zip(found.graphs(), wanted.graphs(), strict=True):
        assert a.equals(b)


def test_farthest_points_keep_levels_with_neighbours_down_and_up():
    pos, batch = clouds()
    fine, middle, coarse = hierarchy(pos, batch, ratio=(0.5, 0.25), **SMALL).levels
    kept = ga.shapes.farthest_points(pos, ratio=0.5, start="outermost", batch=batch)
    assert torch.equal(middle.kept, kept)
    assert torch.equal(middle.pos, pos[kept])
    assert torch.equal(middle.batch, batch[kept])
    given = {"queries": pos[kept], "queries_batch": batch[kept], "batch": batch, "clamp": True}
    assert torch.equal(middle.down.edge_index, graphs.knn(pos, 4, **given).edge_index)
    back = {"queries": pos, "queries_batch": batch, "batch": batch[kept], "clamp": True}
    assert torch.equal(middle.up.edge_index, graphs.knn(pos[kept], 3, **back).edge_index)
    assert fine.down is None
    assert (coarse.down.num_sources, coarse.up.num_targets) == (len(kept), len(kept))


def test_what_a_level_keeps_does_not_depend_on_the_order_of_the_points():
    pos, _ = clouds((23,))
    turn = torch.randperm(23, generator=torch.Generator().manual_seed(1))
    kept, again = (hierarchy(p, ratio=0.5, **SMALL).levels[1].pos for p in (pos, pos[turn]))
    assert torch.equal(kept, again)
    assert torch.equal(kept[0], pos[(pos - pos.mean(0)).norm(dim=1).argmax()])


def test_a_grid_keeps_the_mean_of_each_cell_and_cells_nest():
    pos, batch = clouds()
    fine, middle, coarse = hierarchy(pos, batch, cell=(0.25, 0.5), **SMALL).levels
    assert middle.kept is None
    for level, finer in ((middle, fine), (coarse, middle)):
        members = level.down.mask()
        assert torch.equal(level.up.mask(), members.t())
        assert bool((members.sum(0) == 1).all())  # every point is in one cell
        mean = members.float() @ finer.pos / members.sum(1, keepdim=True)
        torch.testing.assert_close(level.pos, mean)
        assert torch.equal(
            members.float() @ finer.batch.float(), level.batch.float() * members.sum(1)
        )
    corner = torch.stack([pos[batch == cloud].amin(0) for cloud in batch])
    cells = ((pos - corner) / 0.5).floor()
    # share a coarse cell
    both = (middle.down.reverse() @ coarse.down.reverse() @ coarse.down @ middle.down).mask()
    together = (cells[:, None] == cells).all(-1) & (batch[:, None] == batch)
    assert torch.equal(both, together)


def test_normals_come_along():
    pos, batch = clouds()
    normals = torch.nn.functional.normalize(pos - 0.5, dim=1)
    shape = hierarchy(pos, batch, ratio=0.5, normals=normals, **SMALL)
    assert torch.equal(shape.levels[1].normals, normals[shape.levels[1].kept])
    coarse = hierarchy(pos, batch, cell=0.4, normals=normals, **SMALL).levels[1]
    mean = torch.nn.functional.normalize(coarse.down.mask().float() @ normals, dim=1)
    torch.testing.assert_close(coarse.normals, mean)
    assert Hierarchy.join([shape, shape]).levels[1].normals.shape == (
        2 * len(shape.levels[1].pos),
        3,
    )


def test_given_levels_several_graphs_and_faces():
    pos, faces = torch.rand(5, 3), torch.tensor([[0, 1, 2], [2, 1, 3], [3, 1, 4]])
    kept = [torch.tensor([0, 3, 4]), torch.tensor([1])]
    layers = (graphs.knn(..., 1, clamp=True), graphs.full(...))
    shape = hierarchy(
        pos, points=kept, graph=[graphs.mesh_vertices(...), layers, layers], faces=faces
    )
    assert shape.levels[0].graph.equals(graphs.mesh_vertices(faces))
    assert shape.levels[1].graphs[1].equals(graphs.full(3))
    assert torch.equal(shape.levels[2].pos, pos[[3]])
    assert len(hierarchy(pos, graph=graphs.full(...)).levels) == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"ratio": (0.5, 0.5)}, {"cell": 0.4}])
def test_clouds_are_by_themselves_and_join(how):
    pos, batch = clouds()
    recipe = hierarchy(..., **how, **SMALL)
    whole = recipe(pos, batch)
    own = [recipe(pos[batch == cloud]) for cloud in range(3)]
    same(Hierarchy.join(own), whole)
    same(Hierarchy.join([Hierarchy.join(own[:2]), own[2]]), whole)
    cache = CloudCache(recipe)
    same(cache(pos, batch), whole)
    same(cache(pos, batch), whole)
    assert (cache.hits, cache.misses) == (3, 3)
    assert cache.num_bytes > pos.nbytes
    same(whole.to("cpu"), whole)
    before = pos.clone()
    pos.mul_(100)  # the caller's own tensor
    same(cache(before, batch), recipe(before, batch))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_clouds_with_other_numbers_in_another_order_or_place_are_others(dtype):
    pos = torch.randn(7, 3, dtype=torch.float64).to(dtype)
    nudged = pos.clone()
    nudged[4, 1] = torch.nextafter(nudged[4, 1].float(), torch.tensor(9.0)).to(dtype) + 1e-3
    others = [pos, pos.flip(0), pos.flip(1), nudged, -pos, pos[:6], torch.zeros_like(pos)]
    cache = CloudCache(graphs.knn(..., k=2))
    for _ in range(2):
        for other in others:
            cache(other)
    assert (cache.hits, cache.misses) == (len(others), len(others))


def test_named_clouds_are_cached_by_name_alone():
    pos, batch = clouds()
    cache = CloudCache(graphs.knn(..., k=2, clamp=True))
    first = cache(pos, batch, names=[5, 2, 3])
    assert cache(pos + 1, batch, names=[5, 2, 3]).equals(first)
    assert (cache.hits, cache.misses) == (3, 3)
    cache(pos[:29], names=["another"])
    assert cache.misses == 4
    with pytest.raises(ValueError, match="zip"):
        cache(pos, batch, names=[1, 2])


def test_gradients_reach_the_positions_of_the_finest_level():
    pos, batch = clouds()
    pos.requires_grad_()
    for how in ({"ratio": 0.5}, {"cell": 0.4}):
        coarse = hierarchy(pos, batch, **how, **SMALL).levels[1].pos
        (grad,) = torch.autograd.grad(coarse.sum(), pos)
        torch.testing.assert_close(grad.sum(), torch.tensor(3.0 * len(coarse)))


def test_a_hierarchy_keeps_the_graph_of_its_clouds():
    shape = hierarchy(torch.rand(9, 3), ratio=0.5)
    assert replace(shape, levels=shape.levels).clouds is shape.clouds
    assert shape.to("cpu").clouds.equals(shape.clouds)
