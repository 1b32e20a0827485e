"""The Point Transformer against its formulas in plain torch."""

import torch
from point_twins import State, farthest, interpolated, nearest

from graphattn import models
from graphattn.graphs import hierarchy, knn


def dense(state, x):
    return (state / "norm").norm((state / "linear").linear(x)).relu()


def block(state, x, pos, near, share):
    """Equations 2 to 4 of the paper, between two linear layers."""
    y, layer = dense(state / "first", x), state / "attention"
    q, k, v = ((layer / f"{name}_proj").linear(y) for name in "qkv")
    delta = (layer / "score" / "delta").perceptron(pos[:, None] - pos[near])  # (N, k, C)
    weight = (layer / "score" / "gamma").perceptron(q[:, None] - k[near] + delta).softmax(1)
    read = (weight.repeat_interleave(share, -1) * (v[near] + delta)).sum(1)
    out = (state / "last").linear((state / "norm").norm(read).relu())
    return (x + (state / "last_norm").norm(out)).relu()


def twin(model, x, pos, share, k=4):
    state = State(model)
    levels = state / "levels"
    kept = farthest(pos, -(-2 * len(pos) // 5))
    coarse = pos[kept]
    fine_near, coarse_near = nearest(pos, pos, k), nearest(coarse, coarse, k)
    x = block(levels / "stages" / "0" / "0", dense(state / "embedding", x), pos, fine_near, share)
    y = dense(levels / "downs" / "0" / "dense", x)[nearest(pos, coarse, k)].amax(1)
    y = block(levels / "stages" / "1" / "0", y, coarse, coarse_near, share)
    if model.levels.readout == "shape":
        z = y.mean(0, keepdim=True)
    else:
        up = levels / "ups" / "0"
        z = dense(up / "own", x) + interpolated(dense(up / "dense", y), coarse, pos)
        z = block(levels / "back" / "0" / "0", z, pos, fine_near, share)
    return (state / "head" / "2").linear(dense(state / "head" / "0", z))


def test_outputs_are_those_of_the_papers_formulas():
    recipe = hierarchy(..., ratio=0.4, graph=knn(..., 4, self_loops=True), down=knn(..., 4))
    for share in (1, 4):
        for readout in ("node", "shape"):
            torch.manual_seed(share)
            model = models.PointTransformer(5, 3, (8, 12), 1, share=share, readout=readout).double()
            for p in model.parameters():  # also norms and biases away from their start
                torch.nn.init.normal_(p, std=0.4)
            pos, x = torch.rand(31, 3).double(), torch.randn(31, 5).double()
            torch.testing.assert_close(
                model(x, recipe(pos)), twin(model, x, pos, share), rtol=0, atol=1e-9
            )
