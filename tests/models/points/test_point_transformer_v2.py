"""Point Transformer V2 against its formulas in plain torch."""

import torch
from point_twins import State, nearest

from graphattn import models
from graphattn.graphs import hierarchy, knn


def dense(state, x):
    return (state / "norm").norm((state / "linear").linear(x)).relu()


def block(state, x, pos, near, channels):
    """Grouped vector attention, equations 4 to 6 of the paper, with a bias of positions."""
    y, layer = dense(state / "first", x), state / "attention"
    q, k = (
        (layer / name / "norm").norm((layer / name).linear(y)).relu()
        for name in ("q_proj", "k_proj")
    )
    v, delta = (
        (layer / "v_proj").linear(y),
        (layer / "score" / "delta").perceptron(pos[:, None] - pos[near]),
    )
    # (N, k, groups)
    weight = (layer / "score" / "gamma").perceptron(q[:, None] - k[near] + delta).softmax(1)
    read = torch.einsum(
        "nkg,nkgc->ngc", weight, (v[near] + delta).unflatten(-1, (-1, channels))
    ).flatten(1)
    out = (state / "last").linear((state / "norm").norm(read).relu())
    return (x + (state / "last_norm").norm(out)).relu()


def twin(model, x, pos, cell, channels=4, k=4):
    state = State(model)
    levels = state / "levels"
    cells = ((pos - pos.amin(0)) / cell).floor()
    _, ids = torch.unique(cells, dim=0, return_inverse=True)
    members = [ids == number for number in range(int(ids.max()) + 1)]
    coarse = torch.stack([pos[own].mean(0) for own in members])
    near = nearest(pos, pos, k)
    x = block(levels / "stages" / "0" / "0", dense(state / "embedding", x), pos, near, channels)
    wide = dense(levels / "downs" / "0" / "dense", x)
    y = torch.stack([wide[own].amax(0) for own in members])
    y = block(levels / "stages" / "1" / "0", y, coarse, nearest(coarse, coarse, k), channels)
    if model.levels.readout == "shape":
        z = y.mean(0, keepdim=True)
    else:
        up = levels / "ups" / "0"
        z = dense(up / "own", x) + dense(up / "dense", y)[ids]
        z = block(levels / "back" / "0" / "0", z, pos, near, channels)
    return (state / "head" / "2").linear(dense(state / "head" / "0", z))


def test_outputs_are_those_of_the_papers_formulas():
    for readout in ("node", "shape"):
        torch.manual_seed(1)
        model = models.PointTransformerV2(5, 3, (8, 12), 1, channels=4, readout=readout).double()
        for p in model.parameters():
            torch.nn.init.normal_(p, std=0.4)
        pos, x = torch.rand(31, 3).double(), torch.randn(31, 5).double()
        shape = hierarchy(pos, cell=0.4, graph=knn(..., 4, self_loops=True))
        torch.testing.assert_close(model(x, shape), twin(model, x, pos, 0.4), rtol=0, atol=1e-9)
