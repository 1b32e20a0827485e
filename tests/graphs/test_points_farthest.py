"""Farthest point sampling against the greedy definition; layers that go down and up; interpolation by softmax."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

import graphattn as ga
from graphattn import graphs
from graphattn.graphs.points.farthest import _by_blocks, _one_by_one


def cloud(name):
    torch.manual_seed(41)
    return {
        "cube": torch.rand(307, 3),
        "line": torch.rand(149, 1),
        "features": torch.randn(137, 19),
        "lattice": torch.cartesian_prod(*[torch.arange(5.0)] * 3) * 0.1,
        "one place": torch.full((131, 3), 0.3),
        "copies": torch.cat((torch.zeros(67, 2), torch.rand(71, 2), torch.zeros(3, 2))),
        "scales": torch.cat((torch.rand(71, 3) * 1e-6, torch.rand(71, 3) * 1e6)),
        "two": torch.rand(2, 3),
    }[name].double()


CLOUDS = ("cube", "line", "features", "lattice", "one place", "copies", "scales", "two")


def greedy(points, count, start):
    """Each point the farthest from all chosen; ties by the lowest index; none twice."""
    chosen = [start]
    table = np.zeros((len(points), len(points)))
    for axis in points.numpy().T:
        table += (axis[:, None] - axis[None, :]) ** 2
    while len(chosen) < count:
        least = table[chosen].min(0)
        left = [i for i in range(len(points)) if i not in chosen]
        chosen.append(max(left, key=lambda i: (least[i], -i)))
    return chosen


@pytest.mark.parametrize("name", CLOUDS)
def test_farthest_points_are_the_greedy_ones(name):
    points = cloud(name)
    count, start = max(1, len(points) // 3), len(points) // 2
    wanted = greedy(points, count, start)
    assert graphs.farthest_points(points, count, start=start).tolist() == wanted
    for search in (_one_by_one, _by_blocks):  # the GPU's, run on the CPU, and the CPU's
        assert search(points, count, start).tolist() == wanted, search
        assert sorted(search(points, len(points), start).tolist()) == list(range(len(points)))
    if name == "cube":  # the control: another start is another sample
        assert graphs.farthest_points(points, count).tolist() != wanted


def test_farthest_points_cover_the_cloud_twice_as_well_as_any():
    """Gonzalez 1985: the radius of the cover is at most the least distance between two that were chosen."""
    points = cloud("cube")
    chosen = points[graphs.farthest_points(points, 23)]
    cover = torch.cdist(points, chosen).amin(1).max()
    apart = torch.cdist(chosen, chosen).fill_diagonal_(torch.inf).min()
    assert cover <= apart
    rest = torch.cdist(points, points[:23]).amin(1).max()
    assert rest > cover  # the control: the first 23 points cover worse


def test_clouds_of_a_batch_are_sampled_by_themselves():
    points = cloud("cube")[:61]
    batch = torch.tensor([0] * 17 + [1] * 3 + [5] * 41)
    alone = [(points[batch == i], s) for i, s in ((0, 0), (1, 17), (5, 20))]
    for own in ({"count": 3, "start": 2}, {"ratio": 0.3}, {"ratio": 1.0}, {"count": 0}):
        wanted = torch.cat([graphs.farthest_points(part, **own) + start for part, start in alone])
        assert torch.equal(graphs.farthest_points(points, batch=batch, **own), wanted)
    assert graphs.farthest_points(points.numpy(), 3, batch=batch).tolist()[0] == 0
    assert graphs.farthest_points(torch.empty(0, 3), ratio=0.5).tolist() == []


@pytest.mark.parametrize("n", [1, 2, 3, 10, 30, 31, 97])
def test_ratio_rounds_up_as_in_pyg(n):
    for ratio in (0.1, 0.25, 0.3, 0.5, 1.0):
        wanted = math.ceil(round(ratio * n, 9))
        assert len(graphs.farthest_points(torch.rand(n, 2), ratio=ratio)) == wanted


def test_a_layer_down_and_a_layer_up():
    """PointNet++: sampled points read what is near them, then all points read the 3 nearest sampled ones."""
    torch.manual_seed(43)
    pos, batch = torch.rand(83, 3, dtype=torch.float64), torch.tensor([0] * 31 + [2] * 52)
    chosen = graphs.farthest_points(pos, ratio=0.25, batch=batch)
    coarse, own = pos[chosen], batch[chosen]
    down = graphs.knn(pos, 5, queries=coarse, batch=batch, queries_batch=own)
    ball = graphs.radius(pos, 0.3, queries=coarse, batch=batch, queries_batch=own)
    up = graphs.knn(coarse, 3, queries=pos, batch=own, queries_batch=batch)
    assert (down.num_sources, down.num_targets) == (up.num_targets, up.num_sources) == (83, len(chosen))
    for cloud_number in (0, 2):
        points, centres = torch.nonzero(batch == cloud_number)[:, 0], torch.nonzero(own == cloud_number)[:, 0]
        nearest = cKDTree(pos[points]).query(coarse[centres], 5)[1]
        assert torch.equal(down.source.view(-1, 5)[centres], points[torch.from_numpy(nearest)])
        nearest = cKDTree(coarse[centres]).query(pos[points], 3)[1]
        assert torch.equal(up.source.view(-1, 3)[points], centres[torch.from_numpy(nearest)])
    assert torch.equal(ball.mask(), (torch.cdist(coarse, pos) <= 0.3) & (own[:, None] == batch))
    assert bool(down.contains(torch.arange(len(chosen)), chosen).all())  # a sampled point reads itself


@pytest.mark.parametrize("power", [1, 2.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_interpolates_by_inverse_distance(power, dtype):
    """A softmax of the bias alone is Shepard's formula, also where a target is at the place of a source."""
    torch.manual_seed(47)
    coarse = torch.rand(13, 3, dtype=dtype)
    fine = torch.cat((torch.rand(29, 3, dtype=dtype), coarse[3:5]))
    coarse = torch.cat((coarse, coarse[3:4]))  # two sources at one place
    graph = graphs.knn(coarse, 3, queries=fine)
    bias = graphs.inverse_distance_bias(graph, coarse, fine, power=power)
    assert bias.dtype == dtype
    value = torch.randn(14, 2, 5, dtype=dtype)
    out = ga.attention(torch.zeros(31, 2, 4, dtype=dtype), torch.randn(14, 2, 4, dtype=dtype), value, graph, bias)
    wanted = torch.zeros_like(out)
    for t in range(31):
        sources = graph.source[graph.target == t]
        d = (coarse[sources].double() - fine[t].double()).norm(dim=1)
        weight = (d == 0).double() if bool((d == 0).any()) else d**-power
        wanted[t] = torch.einsum("k,khd->hd", (weight / weight.sum()).to(dtype), value[sources])
    assert torch.allclose(out, wanted, atol=1e-12 if dtype == torch.float64 else 1e-5)
    assert torch.allclose(out[29], (value[3] + value[13]) / 2)
    other = graphs.inverse_distance_bias(graph, coarse, fine, power=3)  # the control
    assert not torch.allclose(
        ga.attention(value[:1, :, :4].expand(31, 2, 4) * 0, value[..., :4], value, graph, other), out
    )


def test_interpolation_is_that_of_pyg():
    """``knn_interpolate`` of PyG: weights 1 / squared distance (its own kNN needs pyg-lib, so its formula is here)."""
    torch.manual_seed(53)
    x, coarse, fine = torch.rand(7, 3), torch.rand(7, 3), torch.rand(11, 3)
    graph = graphs.knn(coarse, 3, queries=fine)
    squared = (coarse[graph.source] - fine[graph.target]).pow(2).sum(1, keepdim=True)
    weights = 1 / squared.clamp(min=1e-16)
    total = torch.zeros(11, 1).index_add(0, graph.target, weights)
    wanted = torch.zeros(11, 3).index_add(0, graph.target, x[graph.source] * weights) / total
    bias = graphs.inverse_distance_bias(graph, coarse, fine)
    zeros = torch.zeros(11, 1, 1), torch.zeros(7, 1, 1)
    assert torch.allclose(ga.attention(*zeros, x[:, None], graph, bias)[:, 0], wanted, atol=1e-6)


def test_gradients_of_the_bias_reach_positions():
    torch.manual_seed(59)
    coarse = torch.rand(5, 2, dtype=torch.float64, requires_grad=True)
    fine = torch.cat((torch.rand(7, 2, dtype=torch.float64), coarse.detach()[:1])).requires_grad_()
    graph = graphs.knn(coarse.detach(), 3, queries=fine.detach())
    assert torch.autograd.gradcheck(lambda a, b: graphs.inverse_distance_bias(graph, a, b)[:21], (coarse, fine))
    graphs.inverse_distance_bias(graph, coarse, fine)[graph.target == 7].clamp(min=-9).sum().backward()
    assert bool((fine.grad == 0).all())  # a target at the place of a source: no NaN
    assert (
        graphs.inverse_distance_bias(graphs.knn(coarse.detach().half(), 2), coarse.detach().half()).dtype
        == torch.float32
    )
