"""PCT against its code's formulas in plain torch."""

import pytest
import torch
from point_twins import State, farthest, interpolated, nearest

from graphattn import models
from graphattn.errors import GraphError
from graphattn.graphs import full, hierarchy, knn


def dense(state, x):
    return (state / "norm").norm((state / "linear").linear(x)).relu()


def twin(model, x, pos):
    state = State(model)
    kept = farthest(pos, 12)
    near = nearest(pos, pos[kept], 5)
    x = dense(state / "embedding" / "1", dense(state / "embedding" / "0", x))
    centre = x[kept][:, None].expand(-1, 5, -1)
    group = state / "groupings" / "0" / "dense"
    y = dense(group / "1", dense(group / "0", torch.cat((centre, x[near] - centre), -1))).amax(1)
    parts = [y]
    for number in "01":
        layer = state / "layers" / number
        k, v = (layer / "key").linear(parts[-1]), (layer / "value").linear(parts[-1])
        weights = (k @ k.T).softmax(1)  # rows are sources: over the targets of each
        weights = weights / weights.sum(0, keepdim=True)
        parts.append(parts[-1] + dense(layer / "dense", parts[-1] - weights.T @ v))
    y = dense(state / "fuse", torch.cat(parts, 1))
    whole = torch.cat((y.mean(0), y.amax(0)))[None]
    if model.readout == "node":
        whole = torch.cat((interpolated(y, pos[kept], pos), whole.expand(len(pos), -1)), 1)
    return (state / "head" / "2").linear(dense(state / "head" / "0", whole))


@pytest.mark.parametrize("readout", ["shape", "node"])
def test_outputs_and_gradients_are_those_of_the_formulas(readout):
    torch.manual_seed(0)
    model = models.PCT(4, 3, (8, 12), 2, readout=readout).double()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.4)
    pos, x = torch.rand(31, 3).double(), torch.randn(31, 4).double().requires_grad_()
    shape = hierarchy(pos, points=[farthest(pos, 12)], graph=full(...), down=knn(..., 5))
    found, wanted = model(x, shape), twin(model, x, pos)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)
    grads = [torch.autograd.grad(y.square().sum(), x)[0] for y in (found, wanted)]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-8)
    with pytest.raises(GraphError, match="needs a symmetric graph"):
        model(x, hierarchy(pos, ratio=0.5, graph=knn(..., 3)))
