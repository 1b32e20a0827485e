"""Torch's attention is one layer on three graphs: full in an encoder, causal in a decoder,
bipartite between the two.

Chapter 9 of the story trains such a model; here are the same numbers as nn.MultiheadAttention
gives, and two controls.
"""

import torch

import graphattn as ga

torch.manual_seed(0)
N, S = 7, 11  # targets, and sources of other widths
own = torch.nn.MultiheadAttention(24, 4, batch_first=True)
between = torch.nn.MultiheadAttention(24, 3, kdim=5, vdim=13, batch_first=True)
layer, cross_layer = map(ga.nn.GraphAttention.from_torch, (own, between))  # the same weights
x, keys, values = torch.randn(2, N, 24), torch.randn(2, S, 5), torch.randn(2, S, 13)

full, causal, cross = ga.graphs.full(N), ga.graphs.causal(N), ga.graphs.cross(N, S)
padded = cross - ga.from_rule(lambda t, s: s >= 8, N, S)  # padding is sources without edges
unread = torch.ones(N, N, dtype=torch.bool).triu(1)
padding = (torch.arange(S) >= 8).expand(2, S)
pairs = {
    "encoder": (layer(x, full), own(x, x, x)),
    "decoder": (layer(x, causal), own(x, x, x, attn_mask=unread)),
    "between": (cross_layer(x, cross, context=(keys, values)), between(x, keys, values)),
    "padded": (
        cross_layer(x, padded, context=(keys, values)),
        between(x, keys, values, key_padding_mask=padding),
    ),
}
for name, (ours, (theirs, _)) in pairs.items():
    print(
        f"{name}: largest difference from nn.MultiheadAttention {(ours - theirs).abs().max():.0e}"
    )
    assert (ours - theirs).abs().max() < 1e-6

# Take one edge away, and only its target changes.
fewer = full - ga.from_edge_index(torch.tensor([[2], [5]]), num_nodes=N)
changed = (layer(x, fewer) - layer(x, full)).abs().amax((0, 2)) > 1e-6
assert changed.tolist() == [node == 5 for node in range(N)]

# No path leads backwards: what token 3 gives out depends on no later token, exactly.
x.requires_grad_()
(gradient,) = torch.autograd.grad(layer(x, causal)[:, 3].sum(), x)
assert (gradient != 0).any(2).any(0).tolist() == [node <= 3 for node in range(N)]
