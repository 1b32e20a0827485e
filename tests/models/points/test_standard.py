"""Layers that read features in units of their spread."""

import pytest
import torch

from graphattn.graphs import hierarchy, knn, mesh_vertices, radius
from graphattn.models.points.standard import Standard, measure
from graphattn.training.models.named import build


@pytest.fixture
def tetrahedra():
    pos = torch.rand(4, 3, generator=torch.Generator().manual_seed(2)) * 0.01
    faces = torch.tensor([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    return hierarchy(
        pos,
        graph=mesh_vertices(...),
        faces=faces,
        normals=torch.nn.functional.normalize(pos, dim=1),
    )


def test_what_is_read_has_mean_0_and_deviation_1_and_constants_stay(tetrahedra):
    model = build("mesh", {"embed_dim": 8, "num_heads": 2}, 2, 1, "node")
    layers = [layer for layer in model.modules() if isinstance(layer, Standard)]
    assert len(layers) == 3  # the points, and the edges of both blocks
    x = torch.stack((torch.arange(4.0) * 100, torch.full((4,), 0.1)), 1)
    before = model(x, tetrahedra)
    measure(model, x, tetrahedra)
    read = []
    for layer in layers:
        layer.register_forward_pre_hook(
            lambda layer, given: read.append((given[0] - layer.mean) / layer.deviation)
        )
    assert not torch.equal(model(x, tetrahedra), before)
    for values in read:
        torch.testing.assert_close(values.mean(0), torch.zeros(values.shape[1]), atol=1e-4, rtol=0)
    deviations = torch.cat([values.std(0, correction=0) for values in read])
    torch.testing.assert_close(deviations, torch.tensor([1.0, 0.0, *[1.0] * 14]), atol=1e-4, rtol=0)


def test_what_reads_nothing_keeps_its_units():
    near, one = radius(..., 0.01), knn(..., 1)
    cloud = hierarchy(torch.eye(3), ratio=0.5, graph=near, down=one, up=one, normals=torch.eye(3))
    model = build(
        "unet",
        {"widths": [8, 8], "depths": 1, "num_heads": 2, "edges": ["alignment"]},
        2,
        1,
        "node",
    )
    measure(model, torch.rand(3, 2), cloud)
    assert torch.isfinite(model(torch.rand(3, 2), cloud)).all()
