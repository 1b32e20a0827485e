"""Cross-attention is a bipartite graph: edges run from the nodes that are read to the nodes that read."""

import torch

import graphattn as ga

torch.manual_seed(0)
words, patches = 5, 11  # 5 targets read 11 sources of other widths
torch_layer = torch.nn.MultiheadAttention(24, num_heads=3, kdim=7, vdim=13, batch_first=True)
layer = ga.nn.GraphAttention.from_torch(torch_layer)

graph = ga.graphs.cross(num_targets=words, num_sources=patches)
print(graph)

x = torch.randn(2, words, 24)
for_keys, for_values = torch.randn(2, patches, 7), torch.randn(2, patches, 13)
ours = layer(x, graph, context=(for_keys, for_values))
theirs, _ = torch_layer(x, for_keys, for_values, need_weights=False)

difference = (ours - theirs).abs().max().item()
print(f"largest difference from nn.MultiheadAttention with kdim and vdim: {difference:.1e}")
assert difference < 1e-6

# Padding is not a number added to scores. It is a source without edges: here the last 4 patches do not exist.
real = ga.graphs.cross(words, patches) - ga.from_rule(lambda t, s: s >= 7, words, patches)
padding = torch.arange(patches).expand(2, -1) >= 7
theirs, _ = torch_layer(x, for_keys, for_values, key_padding_mask=padding, need_weights=False)
assert (layer(x, real, context=(for_keys, for_values)) - theirs).abs().max() < 1e-6
