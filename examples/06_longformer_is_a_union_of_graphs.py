"""Longformer is a union: a sliding window | a few global tokens, and set algebra sees to what they
share.
"""

import torch

import graphattn as ga

torch.manual_seed(0)
tokens, heads, width = 64, 2, 8

graph = ga.graphs.sliding_window(tokens, window=9, causal=False) | ga.graphs.global_tokens(
    tokens, [0, 40]
)
print(graph)
print(ga.explain(graph, heads=heads, head_dim=width))
assert graph.is_rule  # nothing was listed, at any length:
million = ga.graphs.sliding_window(1_000_000, 257, causal=False) | ga.graphs.global_tokens(
    1_000_000, [0]
)
print(f"{million.num_edges:,} edges, and none of them stored")

node = torch.arange(tokens)
mask = (node[:, None] - node).abs() <= 4
mask[[0, 40], :] = True
mask[:, [0, 40]] = True
x = torch.randn(heads, tokens, width)
theirs = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
ours = ga.attention(*(x.transpose(0, 1),) * 3, graph).transpose(0, 1)

difference = (ours - theirs).abs().max().item()
print(f"largest difference from SDPA with a hand-written mask: {difference:.1e}")
assert difference < 1e-6
