"""A causal decoder is a directed acyclic graph: information flows forward in time, and only there."""

import networkx as nx
import torch

import graphattn as ga

torch.manual_seed(0)
tokens, heads, width = 8, 2, 5

graph = ga.graphs.causal(tokens)
print(graph)
assert nx.is_directed_acyclic_graph(ga.convert.to_networkx(graph.without_self_loops()))

query, key, value = (torch.randn(tokens, heads, width, requires_grad=True) for _ in range(3))
ours = ga.attention(query, key, value, graph)
theirs = torch.nn.functional.scaled_dot_product_attention(
    query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), is_causal=True
).transpose(0, 1)

difference = (ours - theirs).abs().max().item()
print(f"largest difference from SDPA with is_causal: {difference:.1e}")
assert difference < 1e-6

# No path leads backwards: what token 3 gives out depends on no later token, exactly.
(gradient,) = torch.autograd.grad(ours[3].sum(), value)
assert torch.all(gradient[4:] == 0)
assert torch.all(gradient[:4] != 0)
