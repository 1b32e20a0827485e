"""A receptive field grows with depth: windows add to it, dilation and strides multiply.

What an output depends on through all layers is its receptive field. A layer that reads
a window of w adds w - 1 sources; one whose window is dilated or strided by the layers
below it multiplies. Graphs tell it before anything runs, and gradients agree.
"""

# %%
# One axis: k layers of width w reach k (w - 1) + 1, dilated ones w ** k
# ----------------------------------------------------------------------
import matplotlib.pyplot as plt
import torch
from torch import nn

import graphattn as ga

N, LAYERS, STEPS = 32, 4, (1, 2, 4, 8)


def strided(n):
    """A convolution of width 3 and stride 2: half as many targets as sources."""
    return (
        ga.graphs.shifted(n, -1, stride=2)
        | ga.graphs.shifted(n, 0, stride=2)
        | ga.graphs.shifted(n, 1, stride=2)
    )


stacks = {
    "window of 3": [ga.graphs.sliding_window(N, 3, causal=False)] * LAYERS,
    "2, dilated by 1 2 4 8": [
        ga.graphs.sliding_window(N, 2, causal=True, dilation=step) for step in STEPS
    ],  # WaveNet, van den Oord et al. 2016
    "3, of stride 2": [strided(N // step) for step in STEPS],
    "full": [ga.graphs.full(N)] * LAYERS,
}
asked = dict(zip(stacks, (16, 31, 1, 16), strict=True))  # a target far from the border
sizes = {}
figure, axes = plt.subplots(1, 4, figsize=(12, 2.4), layout="constrained")
for axis, (name, stack) in zip(axes, stacks.items(), strict=True):
    target, seen = asked[name], torch.zeros(LAYERS, N)
    for k in range(1, LAYERS + 1):  # of the last k layers, on their own sources
        field = ga.analysis.reach(stack[-k:]).mask()[target]
        scale = N // field.numel()
        seen[LAYERS - k] = field.float().repeat_interleave(scale)
    sizes[name] = int(field.sum())
    axis.imshow(seen, cmap="Blues", aspect="auto", vmin=0, vmax=1.3)
    axis.set(title=f"{name}: {sizes[name]}", xlabel="source")
    axis.set(yticks=range(LAYERS), yticklabels=[f"layer {i}" for i in range(LAYERS)])
assert sizes["window of 3"] == LAYERS * (3 - 1) + 1
assert sizes["2, dilated by 1 2 4 8"] == 2**LAYERS
assert sizes["3, of stride 2"] == 1 + (3 - 1) * sum(STEPS)
assert sizes["full"] == N  # in one layer: the other three add nothing to reach

# %%
# Measured: torch's own strided convolutions have the gradient where the graphs say
# ---------------------------------------------------------------------------------
torch.manual_seed(0)
net = nn.Sequential(*(nn.Conv1d(4, 4, 3, stride=2, padding=1) for _ in STEPS)).double()
x = torch.randn(1, 4, N, dtype=torch.float64, requires_grad=True)
(gradient,) = torch.autograd.grad(net(x)[0, :, 1].sum(), x)
field = ga.analysis.reach(stacks["3, of stride 2"]).mask()[1]
assert torch.equal(gradient[0].abs().sum(0) > 0, field)

# %%
# Two and three axes: a square, a cube
# ------------------------------------
# A window on a grid is the product of its axes, and so is what stacked windows reach.
image = ga.graphs.grid_neighbourhood((15, 15), 3, causal=False, clamp=False)
video = ga.graphs.grid_neighbourhood((9, 9, 9), 3, causal=False, clamp=False)
figure, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
for axis, k in zip(axes, range(1, LAYERS + 1), strict=True):
    field = ga.analysis.reach([image] * k).mask()[15 * 7 + 7]
    cube = ga.analysis.receptive_field([video] * k, targets=[81 * 4 + 9 * 4 + 4])
    assert int(field.sum()) == (2 * k + 1) ** 2
    assert int(cube.sizes[-1]) == (2 * k + 1) ** 3
    axis.imshow(field.view(15, 15), cmap="Blues")
    axis.set(title=f"after layer {k - 1}: {int(field.sum())}", xticks=(), yticks=())
print(sizes, "of", N)
