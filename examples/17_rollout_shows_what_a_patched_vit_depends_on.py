"""Rollout through a patched ViT shows which patches its answer can depend on, and a window cuts
that down.

``ga.patch`` makes any ViT of transformers read along a graph; the weights that it then returns are
of edges, and ``ga.viz.rollout`` multiplies them through the layers. Here patches read a 3 x 3
neighbourhood and the class token the whole image: a patch depends after two layers on a 5 x 5
square, and through the class token on nothing else of an image of 8 x 8 patches. The class token
itself depends on all.
"""

import torch
from transformers import ViTConfig, ViTModel

import graphattn as ga

SIDE, LAYERS = 8, 2
torch.manual_seed(0)
config = ViTConfig(
    hidden_size=32,
    num_hidden_layers=LAYERS,
    num_attention_heads=4,
    intermediate_size=48,
    image_size=32,
    patch_size=4,
)
model, image = ViTModel(config).eval(), torch.randn(1, 3, 32, 32)

near = ga.graphs.grid_neighbourhood((SIDE, SIDE), 3, causal=False)
N = near.num_nodes + 1  # the class token is node 0
index = torch.cat(
    (near.edge_index + 1, torch.stack((torch.arange(N), torch.zeros(N, dtype=torch.int64)))), 1
)
graph = ga.from_edge_index(
    index, num_nodes=N, name="patches read their neighbours, the class token all"
)

with torch.no_grad(), ga.patched(model, graph):
    weights = model(image, output_attentions=True).attentions
# (N, N)
shares = ga.viz.rollout([ga.EdgeWeights(layer.graph, layer.alpha[0]) for layer in weights]).dense()[
    0
]

middle = 1 + 3 * SIDE + 3
square = torch.zeros(SIDE, SIDE, dtype=torch.bool)
square[1:6, 1:6] = True
assert torch.equal(shares[middle, 1:] > 0, square.flatten())
assert bool((shares[0] > 0).all())
torch.testing.assert_close(shares.sum(1), torch.ones(N, dtype=shares.dtype))

with torch.no_grad(), ga.patched(model, graph):  # what rollout calls 0 changes nothing, bit for bit
    changed = image.clone()
    changed[..., 28:, 28:] += 1.0  # the last patch
    before, after = (model(x).last_hidden_state[0] for x in (image, changed))

print(
    f"patch (3, 3) depends on {int((shares[middle] > 0).sum())} of {N} tokens, the class token on "
    f"all {N}"
)
for row in shares[middle, 1:].view(SIDE, SIDE):
    print(" ".join(f"{100 * share:4.1f}" for share in row.tolist()))

assert torch.equal(before[middle], after[middle])
assert not torch.equal(before[0], after[0])
