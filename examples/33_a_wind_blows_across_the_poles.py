"""A wind blows across the poles: edges to the east, north and up of their targets know no border.

Fourteen flows of a tracer in the winds of moving whirls, on a grid of latitudes and longitudes. Degrees
are no distances, so the nodes are on a sphere, and read all that is near there. What ``graphattn
train FOLDER --out RUN --task simulate --graph "radius(..., 0.25)"`` does.
"""

import tempfile
from pathlib import Path

import torch
from flows import whirls

import graphattn as ga

folder, run = (Path(tempfile.mkdtemp()) / name for name in ("whirls", "run"))
folder.mkdir()
for seed in range(14):
    ga.shapes.save_trajectory(whirls(seed, steps=21, rows=16), folder / f"whirls{seed}.npz")
result = ga.training.train(
    folder,
    run,
    task="simulate",
    graph="radius(..., 0.25)",
    model_options={"embed_dim": 24, "num_layers": 2},
    points=512,
    epochs=10,
    noise=0.1,
)
print(result)

error = 1 - result.scores["skill"]
stencil = 1 - result.controls["stencil"].scores["skill"]
print(f"error over 20 steps: {error:.3f} of that of 'nothing changes'; stencil {stencil:.3f}")
assert error < 0.4 < 0.7 < stencil

# after 20 steps of eight other flows, where meridians meet and elsewhere
squares = torch.zeros(2, 2)
for seed in range(92, 100):
    start = whirls(seed, steps=21, rows=16)
    truth = start.fields["tracer"][..., 0]
    last = ga.training.rollout(run, start).fields["tracer"][-1, :, 0]
    is_polar = start.pos[:, 2].abs() > 0.87  # beyond 60 degrees
    for row, part in enumerate((is_polar, ~is_polar)):
        pair = torch.stack((last - truth[-1], truth[0] - truth[-1]))[:, part]
        squares[row] += pair.square().sum(1)
polar, elsewhere = (squares[:, 0] / squares[:, 1]).sqrt().tolist()
print(f"after 20 steps: {polar:.3f} beyond 60 degrees, {elsewhere:.3f} elsewhere")
assert polar < 1.3 * elsewhere < 0.6
