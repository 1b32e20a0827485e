"""Farthest point sampling against the greedy definition; layers that go down and up; interpolation
by softmax.
"""

import math

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.graphs.points.sampling.farthest import _by_blocks, _one_by_one


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
    assert ga.shapes.farthest_points(points, count, start=start).tolist() == wanted
    for search in (_one_by_one, _by_blocks):  # the GPU's, run on the CPU, and the CPU's
        assert search(points, count, start).tolist() == wanted, search
        assert sorted(search(points, len(points), start).tolist()) == list(range(len(points)))
    if name == "cube":  # the control: another start is another sample
        assert ga.shapes.farthest_points(points, count).tolist() != wanted


def test_clouds_of_a_batch_are_sampled_by_themselves():
    points = cloud("cube")[:61]
    batch = torch.tensor([0] * 17 + [1] * 3 + [5] * 41)
    alone = [(points[batch == i], s) for i, s in ((0, 0), (1, 17), (5, 20))]
    for own in ({"count": 3, "start": 2}, {"ratio": 0.3}, {"ratio": 1.0}, {"count": 0}):
        wanted = torch.cat(
            [ga.shapes.farthest_points(part, **own) + start for part, start in alone]
        )
        assert torch.equal(ga.shapes.farthest_points(points, batch=batch, **own), wanted)
    assert ga.shapes.farthest_points(points.numpy(), 3, batch=batch).tolist()[0] == 0
    assert ga.shapes.farthest_points(torch.empty(0, 3), ratio=0.5).tolist() == []


@pytest.mark.parametrize("n", [1, 2, 3, 10, 30, 31, 97])
def test_ratio_rounds_up_as_in_pyg(n):
    for ratio in (0.1, 0.25, 0.3, 0.5, 1.0):
        wanted = math.ceil(round(ratio * n, 9))
        assert len(ga.shapes.farthest_points(torch.rand(n, 2), ratio=ratio)) == wanted


@pytest.mark.sample(3)
@pytest.mark.parametrize("power", [1, 2.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_interpolates_by_inverse_distance(power, dtype):
    """A softmax of the bias alone is Shepard's formula, also where a target is at the place of a
    source.
    """
    torch.manual_seed(47)
    coarse = torch.rand(13, 3, dtype=dtype)
    fine = torch.cat((torch.rand(29, 3, dtype=dtype), coarse[3:5]))
    coarse = torch.cat((coarse, coarse[3:4]))  # two sources at one place
    graph = graphs.knn(coarse, 3, queries=fine)
    bias = ga.nn.inverse_distance_bias(graph, coarse, fine, power=power)
    assert bias.dtype == dtype
    value = torch.randn(14, 2, 5, dtype=dtype)
    out = ga.attention(
        torch.zeros(31, 2, 4, dtype=dtype), torch.randn(14, 2, 4, dtype=dtype), value, graph, bias
    )
    wanted = torch.zeros_like(out)
    for t in range(31):
        sources = graph.source[graph.target == t]
        d = (coarse[sources].double() - fine[t].double()).norm(dim=1)
        weight = (d == 0).double() if bool((d == 0).any()) else d**-power
        wanted[t] = torch.einsum("k,khd->hd", (weight / weight.sum()).to(dtype), value[sources])
    assert torch.allclose(out, wanted, atol=1e-12 if dtype == torch.float64 else 1e-5)
    assert torch.allclose(out[29], (value[3] + value[13]) / 2)
    other = ga.nn.inverse_distance_bias(graph, coarse, fine, power=3)  # the control
    assert not torch.allclose(
        ga.attention(value[:1, :, :4].expand(31, 2, 4) * 0, value[..., :4], value, graph, other),
        out,
    )


def test_gradients_of_the_bias_reach_positions():
    torch.manual_seed(59)
    coarse = torch.rand(5, 2, dtype=torch.float64, requires_grad=True)
    fine = torch.cat((torch.rand(7, 2, dtype=torch.float64), coarse.detach()[:1])).requires_grad_()
    graph = graphs.knn(coarse.detach(), 3, queries=fine.detach())
    assert torch.autograd.gradcheck(
        lambda a, b: ga.nn.inverse_distance_bias(graph, a, b)[:21], (coarse, fine)
    )
    ga.nn.inverse_distance_bias(graph, coarse, fine)[graph.target == 7].clamp(
        min=-9
    ).sum().backward()
    assert bool((fine.grad == 0).all())  # a target at the place of a source: no NaN
    assert (
        ga.nn.inverse_distance_bias(
            graphs.knn(coarse.detach().half(), 2), coarse.detach().half()
        ).dtype
        == torch.float32
    )
