"""Attention reads a set: order and shape come from positions or from the graph.

Shuffle the tokens of a full graph and the outputs are shuffled alike; pool them, and
nothing has changed. For a sentence that is a fault, mended by positions or by a graph
with a direction. For a cloud of points it is a virtue, whose order means nothing
(PointNet, Qi et al. 2017; Set Transformer, Lee et al. 2019).
"""

# %%
# Who notices that tokens change places?
# --------------------------------------
import torch
import trimesh
from torch.nn import functional as F

import graphattn as ga

torch.manual_seed(0)
N, C = 12, 16
encoder, order = ga.models.Encoder(2, C, 2).double(), torch.randperm(N)
tokens, place = torch.randn(N, C, dtype=torch.float64), ga.nn.SinusoidalPosition(C)


def change(x, graph):
    """How far the pooled output moves when the tokens are shuffled."""
    before, after = (encoder(tokens, graph).mean(0) for tokens in (x, x[order]))
    return (before - after).abs().max().item()


full, causal = ga.graphs.full(N), ga.graphs.causal(N)
moved = {
    "full": change(tokens, full),
    "causal": change(tokens, causal),
    "self-loops (PointNet)": change(tokens, ga.graphs.self_loops(N)),
}
before, after = (encoder(place(x), full).mean(0) for x in (tokens, tokens[order]))
moved["full, with positions"] = (before - after).abs().max().item()
print(*(f"{name}: {far:.0e}" for name, far in moved.items()), sep="\n")
assert max(moved["full"], moved["self-loops (PointNet)"]) < 1e-12
assert min(moved["causal"], moved["full, with positions"]) > 1e-3

# %%
# A cloud's graph comes from its points, whatever their order, however they are turned
# ------------------------------------------------------------------------------------
cloud, recipe = torch.rand(200, 3, dtype=torch.float64), ga.graphs.knn(..., k=8)
graph, order = recipe(cloud), torch.randperm(200)
turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
assert recipe(cloud @ turn).equals(graph)
x = torch.randn(200, C, dtype=torch.float64)
one, other = encoder(x, graph)[order], encoder(x[order], recipe(cloud[order]))
assert torch.allclose(one, other, atol=1e-10)
figure = ga.plot([graph] * 2, cloud, target=0)

# %%
# A mesh brings its own graph: a vertex reads along its edges
# -----------------------------------------------------------
# The same as a dense product with a mask, at the cost of the edges. After two layers a
# vertex depends on what is up to two edges away, and on nothing else.
ball = trimesh.creation.icosphere(subdivisions=2)
ring = ga.graphs.mesh_vertices(torch.tensor(ball.faces), self_loops=True)
print(repr(ring))
vertices = torch.tensor(ball.vertices, requires_grad=True)
one, two = (ga.nn.GraphAttention(3, 1).double() for _ in range(2))
query, key, value = (p(vertices) for p in (one.q_proj, one.k_proj, one.v_proj))
dense = F.scaled_dot_product_attention(query, key, value, attn_mask=ring.mask())
assert torch.allclose(one(vertices, ring), one.out_proj(dense))
y = two(one(vertices, ring), ring)
(gradient,) = torch.autograd.grad(y[0].sin().sum(), vertices)
reached = gradient.abs().sum(1) > 0
assert torch.equal(reached, ring.k_hop(2).mask()[0])
figure = ga.plot([ring] * 2, ball.vertices, target=0)
