"""Heads cost nothing more: attention is four big matrix products, for any number of them.

Heads share the width of a layer, so that eight have the parameters and the operations of
one. In order of growth, attention with a perceptron costs what a separable convolution
over the whole text costs.
"""

# %%
# Four products: queries, keys and values at once; scores; means; the way back
# ----------------------------------------------------------------------------
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import graphattn as ga

torch.manual_seed(0)
N, C = 48, 32
x, full = torch.randn(N, C), ga.graphs.full(N)


def counted(function, *inputs):
    """The output, and the operations of its products."""
    with FlopCounterMode(display=False) as counter:
        output = function(*inputs)
    return output, counter.get_total_flops()


def four_products(x, layer, heads):
    projections = [layer.q_proj, layer.k_proj, layer.v_proj]
    W, b = (torch.cat([getattr(p, n) for p in projections]) for n in ("weight", "bias"))
    q, k, v = F.linear(x, W, b).view(N, 3, heads, -1).permute(1, 2, 0, 3)
    weights = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
    return layer.out_proj((weights @ v).transpose(0, 1).flatten(1))


costs = set()
for heads in (1, 2, 4, 8):
    layer = ga.nn.GraphAttention(C, heads)
    output, operations = counted(four_products, x, layer, heads)
    assert torch.allclose(output, layer(x, full), atol=1e-5)
    costs.add((sum(p.numel() for p in layer.parameters()), operations))
print(f"(parameters, operations) of 1, 2, 4 and 8 heads: {costs}")
products = {"X W_qkv": 3 * N * C * C, "Q K^T": N * N * C, "A V": N * N * C}
products["Y W_o"] = N * C * C
assert costs == {(4 * C * (C + 1), 2 * sum(products.values()))}

# %%
# A separable convolution beside attention and a perceptron
# ---------------------------------------------------------
# A filter as long as the text for each channel, n^2 d, and then a mix of the channels,
# n d^2 (Vaswani et al. 2017, section 4). Attention without projections has two products
# of n^2 d, and a perceptron is that mix. A whole convolution takes n^2 d^2.
lengths, curves = (16, 32, 64, 128, 256), {}
for n in lengths:
    text, graph = torch.randn(1, C, n), ga.graphs.full(n)
    filters = nn.Conv1d(C, C, n + 1, padding=n // 2, groups=C, bias=False)
    apart = counted(nn.Conv1d(C, C, 1), counted(filters, text)[0])[1]
    found = {"separable convolution": counted(filters, text)[1] + apart}
    pairs = ga.analysis.flops(graph, C, 4).attention
    assert pairs == 2 * 2 * n * n * C
    found["attention, one mix"] = pairs + apart
    found["whole convolution"] = 2 * n * (n + 1) * C * C
    for name, cost in found.items():
        curves.setdefault(name, []).append(cost)
separable, attention, whole = map(torch.tensor, curves.values())
print("attention over separable:", *(f"{x:.2f}" for x in attention / separable))
assert 1 < (attention / separable).min() <= (attention / separable).max() < 2
assert (whole / separable).max() > 25  # of another order: of C

_, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
axes[0].bar(list(products), list(products.values()))
axes[0].set(title="products of a layer, any number of heads")
for name, cost in curves.items():
    axes[1].loglog(lengths, cost, "o-", base=2, label=name)
axes[1].set(title="operations", xlabel="tokens")
axes[1].legend()
