"""Every model of points: the order of the points, other clouds of the batch, an answer for each
cloud, refusals.
"""

from functools import partial

import pytest
import torch

import graphattn as ga
from graphattn import models
from graphattn.errors import GraphAttnError
from graphattn.graphs import hierarchy, knn, serialized_hierarchy

NEAR = {"graph": knn(..., 4, self_loops=True, clamp=True), "down": knn(..., 4, clamp=True)}
MODELS = {
    "PointTransformer": (
        lambda **o: models.PointTransformer(3, 5, (8, 16), (1, 1), share=4, **o),
        hierarchy(..., ratio=0.4, **NEAR),
    ),
    "PointTransformerV2": (
        lambda **o: models.PointTransformerV2(3, 5, (8, 16), (1, 1), channels=4, **o),
        hierarchy(..., cell=0.4, graph=NEAR["graph"]),
    ),
    "UNet": (lambda **o: models.UNet(3, 5, (8, 12), 2, **o), hierarchy(..., ratio=0.4, **NEAR)),
    "UNet, mean": (
        lambda **o: models.UNet(3, 5, (8, 12), 2, (1, 2), 0, pooling="mean", **o),
        hierarchy(..., cell=0.4, graph=NEAR["graph"]),
    ),
    "PCT": (
        lambda readout="node", **o: models.PCT(3, 5, (8, 16), 2, readout=readout, **o),
        hierarchy(..., ratio=0.4, graph=ga.graphs.full(...), down=NEAR["down"]),
    ),
    "EncodeProcessDecode": (
        lambda readout="node", **o: models.EncodeProcessDecode(3, 5, 8, 2, 2, **o),
        hierarchy(..., ratio=0.4, **NEAR),
    ),
    "MeshTransformer": (
        lambda **o: models.MeshTransformer(
            3, 5, 8, 2, 2, spectrum=3, edges=("offset", "distance"), **o
        ),
        hierarchy(..., graph=(NEAR["graph"], knn(..., 9, clamp=True))),
    ),
    "MeshGraphNet": (
        lambda readout="node", **o: models.MeshGraphNet(3, 5, 8, 3, **o),
        hierarchy(..., graph=(NEAR["graph"], knn(..., 9, clamp=True))),
    ),
    "StratifiedTransformer": (
        lambda **o: models.StratifiedTransformer(3, 5, (8, 16), (2, 1), 2, step=0.1, reach=8, **o),
        hierarchy(..., ratio=0.4, **{**NEAR, "graph": ga.graphs.voxel_windows(..., 0.8)}),
    ),
    "PointTransformerV3": (
        lambda **o: models.PointTransformerV3(3, 5, (8, 16), (2, 1), (8,), 1, head_dim=4, **o),
        partial(serialized_hierarchy, cell=1e-3, levels=2, stride=256, patch=8),
    ),
    "LitePT": (
        lambda **o: models.PointTransformerV3(
            *(3, 5, (12, 18), (1, 2), (12,), 0),
            **{
                "head_dim": 6,
                "convs": (True, False),
                "attends": (False, True),
                "rotary": 100.0,
                **o,
            },
        ),
        partial(serialized_hierarchy, cell=1e-3, levels=2, stride=256, patch=8),
    ),
}

OF_POINTS = ("EncodeProcessDecode", "MeshGraphNet")  # which have no outputs of clouds
OF_CELLS = ("PointTransformerV3", "LitePT")  # which knows positions by their cells


def made(name, **options):
    torch.manual_seed(0)
    make, recipe = MODELS[name]
    return make(**options).double().eval(), recipe


def cloud(n, seed):
    return torch.rand(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("readout", ["node", "shape"])
def test_the_order_of_the_points_and_other_clouds_change_nothing(name, readout):
    if name in OF_POINTS and readout == "shape":
        pytest.skip("it answers for points")
    model, recipe = made(name, readout=readout)
    pos, other = cloud(37, 1), cloud(23, 2)
    with torch.no_grad():
        alone = model(pos, recipe(pos))
        turn = torch.randperm(37, generator=torch.Generator().manual_seed(3))
        turned = model(pos[turn], recipe(pos[turn]))
        both, batch = (
            torch.cat((other, pos)),
            torch.arange(2).repeat_interleave(torch.tensor([23, 37])),
        )
        batched = model(both, recipe(both, batch))
    assert alone.shape == ((37, 5) if readout == "node" else (1, 5))
    assert float(alone.std(0 if readout == "node" else 1).min()) > 1e-3
    order = turn if readout == "node" else slice(None)
    torch.testing.assert_close(turned, alone[order], rtol=0, atol=1e-5)
    own = slice(23, None) if readout == "node" else slice(1, None)
    torch.testing.assert_close(batched[own], alone, rtol=0, atol=1e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", MODELS)
def test_coordinates_of_a_map_serve_a_model_of_float32(name):
    model, recipe = made(name)
    pos = cloud(37, 1)
    x = pos.float()
    far = pos + torch.tensor([2.0**19, 2.0**22, 0.0])  # float32 resolves half a unit there
    with torch.no_grad():
        near = model.float()(x, recipe(pos))
        torch.testing.assert_close(model(x, recipe(far)), near, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_and_the_positions_learn(name):
    model, recipe = made(name)
    pos = cloud(37, 1).requires_grad_()
    model.train()
    model(torch.ones(37, 3).double() * cloud(37, 5), recipe(pos)).square().sum().backward()
    assert name in OF_CELLS or float(pos.grad.abs().max()) > 0
    assert all(p.grad is not None and float(p.grad.abs().max()) > 0 for p in model.parameters())


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", MODELS)
def test_refusals(name):
    model, recipe = made(name)
    pos = cloud(37, 1)
    for x, shape, message in (
        (pos[:9], recipe(pos), r"x must have shape \(..., 37, C\), got a Tensor \(9, 3\)"),
        (
            torch.cat((pos, pos)),
            recipe(pos),
            r"x must have shape \(..., 37, C\), got a Tensor \(74, 3\)",
        ),
        (
            pos,
            hierarchy(pos, ratio=(0.5, 0.5)),
            "has . levels?, but the hierarchy 3; pass ga.graphs",
        ),
        (pos, ga.graphs.full(37), r"shape must be a Hierarchy, such as ga\.graphs\.\w+\(pos, "),
    ):
        with pytest.raises(GraphAttnError, match=message):
            model(x, shape)
    for x in (pos[:, :2], pos.float()):
        with pytest.raises((RuntimeError, ValueError)):  # torch says it
            model(x, recipe(pos))
    if name == "PointTransformerV3":
        levels = len(recipe(pos).levels)
        for shape in (ga.graphs.knn(pos, k=3), ga.graphs.knn(..., k=3), hierarchy(pos)):
            words = rf"ga\.graphs\.serialized_hierarchy\(pos, cell=\.\.\., levels={levels}\)"
            with pytest.raises(GraphAttnError, match=words):
                model(pos, shape)
    if name not in OF_POINTS:
        with pytest.raises(GraphAttnError, match='readout must be "node" or "shape"'):
            made(name, readout="cloud")
