"""A convolution is attention: each offset of its kernel is a head with its own graph.

"Is there any relationship to convolutions?" A convolution is multi-head attention whose
heads each read one neighbour; the kernel is the output projection (Cordonnier et al.
2020). Here it is as a layer, equal to torch's to the last digit.
"""

# %%
# A pixel reads one neighbour: nine graphs for a kernel of 3 x 3
# --------------------------------------------------------------
# With one source to read, softmax has nothing to choose: its weight is 1, whatever
# queries and keys say. At the border there is no neighbour: that is zero padding.
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

import graphattn as ga

H = W = 8
offsets = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)]


def neighbour(y, x):
    rule = lambda t, s: (t // W + y == s // W) & (t % W + x == s % W)  # noqa: E731
    return ga.from_rule(rule, H * W)


heads = ga.PerHead(tuple(neighbour(*offset) for offset in offsets))
assert all(int(graph.in_degree.max()) == 1 for graph in heads.graphs)
window = ga.graphs.grid_neighbourhood((H, W), (3, 3), clamp=False)
assert heads.union().equals(window)  # together they read what the kernel covers

# %%
# The kernel is the output projection
# -----------------------------------
sobel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]], dtype=torch.float64)
kernel = torch.stack([sobel, sobel.T])[:, None]
layer = ga.nn.GraphAttention(2, 9, qdim=1, kdim=1, vdim=1, head_dim=1, bias=False)
layer = layer.double()
with torch.no_grad():
    layer.v_proj.weight.fill_(1.0)  # the identity, for each head
    layer.out_proj.weight.copy_(kernel.flatten(1))
image = torch.tensor(load_digits().images[0])
ours = layer(image.reshape(-1, 1), heads).detach()
theirs = F.conv2d(image[None, None], kernel, padding=1)[0].flatten(1).T
print(f"largest difference from conv2d: {(ours - theirs).abs().max():.1e}")
assert (ours - theirs).abs().max() < 1e-12

# %%
# The control: with all nine heads on the first head's graph it is another operation.
shifted = layer(image.reshape(-1, 1), ga.PerHead((heads.graphs[0],) * 9))
assert (shifted - theirs).abs().max() > 1.0

# %%
# Above: the nine masks. Below: a digit, and where its brightness changes.
figure, axes = plt.subplots(2, 9, figsize=(12, 3), layout="constrained")
for axis, graph, offset in zip(axes[0], heads.graphs, offsets, strict=True):
    axis.imshow(graph.mask(), cmap="Blues")
    axis.set_title(f"head {offset}", fontsize=8)
pictures = {"image": image, "edges in x": ours[:, 0], "in y": ours[:, 1]}
for axis, (name, values) in zip(axes[1, 3:6], pictures.items(), strict=True):
    axis.imshow(values.reshape(H, W), cmap="gray")
    axis.set_title(name, fontsize=8)
for axis in axes.flat:
    axis.set_axis_off()
