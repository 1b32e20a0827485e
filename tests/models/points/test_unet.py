"""The U-Net against its formulas in plain torch, and what it is invariant to."""

import pytest
import torch
from point_twins import State, between, block, farthest, interpolated, nearest, perceptron

from graphattn import models
from graphattn.errors import OptionError
from graphattn.graphs import hierarchy, knn
from graphattn.models.points import unet

NEAR = {"graph": knn(..., 4), "down": knn(..., 5), "up": knn(..., 3)}


def twin(model, x, pos, pooling):
    state = State(model)
    levels = state / "levels"
    down, up = levels / "downs" / "0", levels / "ups" / "0"
    kept = farthest(pos, 12)
    coarse = pos[kept]
    near, below, above = (
        nearest(pos, pos, 5)[:, 1:],
        nearest(pos, coarse, 5),
        nearest(coarse, pos, 3),
    )
    x = block(levels / "stages" / "0" / "0", perceptron(state / "embedding", x), pos, near)
    if pooling == "attention":
        y = between(down / "read", (down / "own").linear(x[kept]), x, below, coarse, pos)
    else:
        z = (down / "dense").linear(x)[below]
        y = z.amax(1) if pooling == "max" else z.mean(1)
    y = block(levels / "stages" / "1" / "0", y, coarse, nearest(coarse, coarse, 5)[:, 1:])
    if model.levels.readout == "shape":
        y = (state / "norm").norm(y)
        return perceptron(state / "head", torch.cat((y.mean(0), y.amax(0)))[None])
    z = (up / "own").linear(x)
    if pooling == "attention":
        z = between(up / "read", z, y, above, pos, coarse)
    else:
        z = z + interpolated((up / "dense").linear(y), coarse, pos)
    z = block(levels / "back" / "0" / "0", z, pos, near)
    return perceptron(state / "head", (state / "norm").norm(z))


@pytest.mark.parametrize("pooling", ["attention", "max", "mean"])
def test_outputs_are_those_of_the_formulas(pooling):
    for readout in ("node", "shape"):
        torch.manual_seed(1)
        model = models.UNet(5, 3, (8, 12), 2, pooling=pooling, readout=readout).double()
        for p in model.parameters():
            torch.nn.init.normal_(p, std=0.4)
        pos, x = torch.rand(29, 3).double(), torch.randn(29, 5).double()
        shape = hierarchy(pos, points=[farthest(pos, 12)], **NEAR)
        torch.testing.assert_close(model(x, shape), twin(model, x, pos, pooling), rtol=0, atol=1e-9)


def test_turned_shapes_have_the_same_answer_with_features_that_do_not_turn():
    torch.manual_seed(0)
    edges = ("distance", "pair", "alignment")
    model = models.UNet(1, 3, (8, 12), 2, edges=edges, readout="shape").double().eval()
    pos, x = torch.rand(29, 3).double(), torch.ones(29, 1).double()
    normals = torch.nn.functional.normalize(torch.randn(29, 3).double(), dim=1)
    first = model(x, hierarchy(pos, ratio=0.5, normals=normals, **NEAR))
    for _ in range(5):
        turn = torch.linalg.qr(torch.randn(3, 3).double())[0]
        turned = model(x, hierarchy(pos @ turn.T, ratio=0.5, normals=normals @ turn.T, **NEAR))
        torch.testing.assert_close(turned, first, rtol=0, atol=1e-9)
    with pytest.raises(OptionError, match="need normals"):
        model(x, hierarchy(pos, ratio=0.5, **NEAR))
    with pytest.raises(OptionError, match='edges must be "offset"'):
        models.UNet(1, 3, edges=("angle",))


def test_geometry_of_a_graph_is_computed_once_a_call(monkeypatch):
    """Of positions that need gradients each block computes its own: the answers are the same."""
    calls = []
    computed = unet.edge_geometry
    monkeypatch.setattr(
        unet,
        "edge_geometry",
        lambda graph, *a, **k: calls.append(graph) or computed(graph, *a, **k),
    )
    pos = torch.rand(40, 3, dtype=torch.float64)
    x = torch.rand(40, 3, dtype=torch.float64)
    model = models.UNet(3, 2, widths=(8, 8), num_heads=2, depths=2).double().eval()
    shape = hierarchy(pos, ratio=0.25)
    fine, coarse = shape.levels
    answer = model(x, shape)
    assert set(calls) == {fine.graph, coarse.graph, coarse.down, coarse.up}
    assert len(calls) == 4
    calls.clear()
    assert torch.equal(model(x, hierarchy(pos.clone().requires_grad_(), ratio=0.25)), answer)
    # two blocks down, two in the middle, one up, and twice between the levels
    assert len(calls) == 7
    fine.pos[0] += 1  # nothing is kept from call to call
    assert not torch.equal(model(x, shape), answer)
