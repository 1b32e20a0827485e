"""Attention averages, and a graph says how fast: tokens become alike as a walk mixes.

Layers of attention alone are layers of averaging: tokens forget what they differ in
(Dong et al. 2021). How fast is known beforehand: by the graph's spectral gap. A graph
of separate cells never mixes them; whole blocks keep their tokens apart.
"""

# %%
# Predicted by the spectrum, measured layer by layer
# --------------------------------------------------
# The score is the same for every source, as it nearly is when training begins.
import matplotlib.pyplot as plt
import torch

import graphattn as ga

N, LAYERS = 64, 24
ring = ga.graphs.circulant
graphs = {
    "full": ga.graphs.full(N),
    "8 at random": ga.graphs.random_regular(N, 8, seed=0).with_self_loops(),
    "window 9 on a ring": ring(N, tuple(range(1, 5))).with_self_loops(),
    "window 3 on a ring": ring(N, (1,)).with_self_loops(),
    "4 cells of 16": ga.graphs.block_local(N, 16, causal=False),
}


def even(query, key, edge_attr):
    return (query * key).sum(-1) * 0.0


def spreads(graph, make):
    torch.manual_seed(0)
    x, found = torch.randn(N, 32, dtype=torch.float64), []
    for _ in range(LAYERS):
        found.append(float(ga.analysis.spread(x)))
        with torch.no_grad():
            x = make().double()(x, graph)
    return found


def alone():
    return ga.nn.GraphAttention(32, 4, score=even, bias=False)


def block():
    return ga.nn.TransformerBlock(32, 4)  # norms, residuals and a perceptron


options = {"figsize": (10, 3.6), "layout": "constrained", "sharey": True}
figure, (left, right) = plt.subplots(1, 2, **options)
for name, graph in graphs.items():
    rate = 1 - ga.analysis.spectral_gap(graph)
    fall, kept = spreads(graph, alone), spreads(graph, block)
    (line,) = left.semilogy(fall, label=f"{name}: {rate:.3f} a layer")
    predicted = [fall[8] * rate ** (i - 8) for i in range(8, LAYERS)]
    left.semilogy(range(8, LAYERS), predicted, ":", color=line.get_color())
    right.semilogy(kept, color=line.get_color())
    measured = (fall[20] / fall[12]) ** (1 / 8) if fall[12] > 1e-12 else 0.0
    print(
        f"{name:19} predicted {rate:.3f}, measured {measured:.3f}; "
        f"of whole blocks {kept[-1]:.2f} is left"
    )
    assert abs(measured - rate) < 0.05
    assert kept[-1] > 0.1
left.set(title="attention alone; dots: the spectral gap", xlabel="layers")
left.set(ylabel="distance to the mean", ylim=(1e-8, 2))
right.set(title="whole blocks, with residuals", xlabel="layers")
left.legend(fontsize=8)
