"""Grains fall on a graph of their own: particles read what is near, anew at every step.

Twelve boxes of soft discs that fall, collide and pile up; periodic along x, with walls of fixed
nodes. What ``graphattn train FOLDER --out RUN --task simulate --predict acceleration --history 3``
does with a ``--graph``; a rollout makes it at every step of the positions that it predicts.
"""

import tempfile
from pathlib import Path

import torch
from flows import BOX, GRAINS, grains

import graphattn as ga

folder, run = (Path(tempfile.mkdtemp()) / name for name in ("grains", "run"))
folder.mkdir()
for seed in range(12):
    ga.shapes.save_trajectory(grains(seed), folder / f"grains{seed}.npz")
result = ga.training.train(
    folder,
    run,
    task="simulate",
    graph=f"radius(..., 0.13, {BOX})",
    predict="acceleration",
    history=3,
    model_options={"embed_dim": 24, "num_layers": 3},
    epochs=8,
)
print(result)

error = 1 - result.scores["skill"]
stencil = 1 - result.controls["stencil"].scores["skill"]
print(f"error over 58 steps: {error:.3f} of that of 'nothing changes'; stencil {stencil:.3f}")
assert error < 0.3 < 0.4 < stencil

# a box that is not trained on: the walls stay, and hold the grains
start = grains(99, steps=3)
series = ga.training.rollout(run, start, steps=100)
assert series.num_steps == 103
assert torch.equal(series.pos[-1, GRAINS:], start.pos[0, GRAINS:])
height = series.pos[:, :GRAINS, 1]
print(f"heights after 100 steps: {height[-1].min():.3f} to {height[-1].max():.3f}")
assert height.min() > -0.05
# images of a grain are grains: a box moved along its period is the same box
turn = torch.tensor([1.0, 0.0]) * (torch.arange(start.num_nodes) % 2)[:, None]
moved = ga.shapes.Trajectory(
    start.pos + turn, {"pos": start.pos + turn}, fixed=start.fixed, kinds=start.kinds
)
drift = ga.training.rollout(run, moved, steps=5).pos[-1] - turn - series.pos[7]
print(f"moved to other images: {float(drift.abs().max()):.0e}")
assert drift.abs().max() < 1e-4
