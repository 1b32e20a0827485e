"""A convolution is attention: each place of its kernel is a head with its own graph.

A convolution writes into a pixel a weighted sum of its neighbours. So does attention;
where they differ is who chooses the weights. Let each head read exactly one neighbour,
and nothing is left to choose: softmax of one score is 1. What the heads have read is
then combined by the output projection, and that is the kernel (Cordonnier et al. 2020,
"On the relationship between self-attention and convolutional layers").
"""

# %%
# A pixel reads one neighbour: nine graphs for a kernel of 3 x 3
# --------------------------------------------------------------
# At the border there is no neighbour: a target without an edge gets 0, zero padding.
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import graphattn as ga

SIZE = 8, 8
offsets = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)]
heads = ga.PerHead(tuple(ga.graphs.shifted(SIZE, by) for by in offsets))
window = ga.graphs.grid_neighbourhood(SIZE, 3, causal=False, clamp=False)
assert heads.union().equals(window)  # together they read what the kernel covers

# %%
# The kernel is the output projection
# -----------------------------------
sobel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
conv = nn.Conv2d(1, 2, 3, padding=1, bias=False).double()
conv.weight.data = torch.stack([sobel, sobel.T])[:, None].double()
layer, graph = ga.nn.GraphAttention.from_conv(conv, SIZE)
pairs = zip(graph.graphs, heads.graphs, strict=True)
assert all(found.equals(mine) for found, mine in pairs)
assert torch.equal(layer.out_proj.weight, conv.weight.flatten(1))
image = torch.tensor(load_digits().images[0])[None, None]  # (1, 1, 8, 8)
nodes = image.flatten(2).mT  # (1, 64, 1): a pixel is a node
ours, theirs = layer(nodes, graph).detach(), conv(image).flatten(2).mT
print(f"largest difference from nn.Conv2d: {(ours - theirs).abs().max():.1e}")
assert (ours - theirs).abs().max() < 1e-12

# %%
# The control: with all nine heads on the first head's graph it is another operation.
shifted = layer(nodes, ga.PerHead((graph.graphs[0],) * 9))
assert (shifted - theirs).abs().max() > 1.0

# %%
# Text, video, strides
# --------------------
# The same holds in one and three dimensions. A stride leaves targets out: there are
# fewer of them than sources. A causal one pads before the start alone.
video = nn.Conv3d(2, 3, 3, stride=(1, 2, 2), padding=(0, 1, 1)).double()  # T, H, W
layer, graph = ga.nn.GraphAttention.from_conv(video, (4, 6, 6), causal=True)
clip = torch.randn(1, 2, 4, 6, 6, dtype=torch.float64)
targets, read = torch.zeros(1, 36, 2).double(), clip.flatten(2).mT
ours = layer(targets, graph, context=read)
theirs = video(nn.functional.pad(clip, (0, 0, 0, 0, 2, 0))).flatten(2).mT
print(f"27 heads, 144 sources, 36 targets: {(ours - theirs).abs().max():.1e}")
assert (ours - theirs).abs().max() < 1e-12

# %%
# Above: the nine masks. Below: a digit, and where its brightness changes.
figure, axes = plt.subplots(2, 9, figsize=(12, 3), layout="constrained")
for axis, head, by in zip(axes[0], heads.graphs, offsets, strict=True):
    axis.imshow(head.mask(), cmap="Blues")
    axis.set_title(f"head {by}", fontsize=8)
edges = conv(image)[0].detach()
pictures = {"image": image[0, 0], "edges in x": edges[0], "in y": edges[1]}
for axis, (name, values) in zip(axes[1, 3:6], pictures.items(), strict=True):
    axis.imshow(values, cmap="gray")
    axis.set_title(name, fontsize=8)
for axis in axes.flat:
    axis.set_axis_off()
