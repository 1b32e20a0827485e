"""An encoder is a full graph: every token reads every token, and the layer is nn.MultiheadAttention."""

import torch

import graphattn as ga

torch.manual_seed(0)
tokens, width, heads = 7, 24, 4

graph = ga.graphs.full(tokens)
print(graph)

torch_layer = torch.nn.MultiheadAttention(width, heads, batch_first=True)
layer = ga.nn.GraphAttention.from_torch(torch_layer)  # the same weights

x = torch.randn(3, tokens, width)  # a batch of three sequences on one graph
ours = layer(x, graph)
theirs, _ = torch_layer(x, x, x, need_weights=False)

difference = (ours - theirs).abs().max().item()
print(f"largest difference from nn.MultiheadAttention: {difference:.1e}")
assert difference < 1e-6

# The control: take one edge away, and only its target changes.
fewer = graph - ga.from_edge_index(torch.tensor([[2], [5]]), num_nodes=tokens)
changed = (layer(x, fewer) - ours).abs().amax((0, 2)) > 1e-6
assert changed.tolist() == [node == 5 for node in range(tokens)]
