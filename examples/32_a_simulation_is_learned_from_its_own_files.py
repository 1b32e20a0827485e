"""A simulation is learned from its own files: rollouts on meshes that were never seen.

Twelve flows of advection and diffusion, each on its own triangle mesh with holes, in files. What
``graphattn train FOLDER --out RUN --task simulate`` does, and ``graphattn rollout``.
"""

import tempfile
from pathlib import Path

import torch
from flows import flow

import graphattn as ga

folder, run = (Path(tempfile.mkdtemp()) / name for name in ("flows", "run"))
folder.mkdir()
for seed in range(12):
    ga.shapes.save_trajectory(flow(seed, spacing=0.1), folder / f"flow{seed}.npz")
options = {"embed_dim": 16, "num_layers": 4}
result = ga.training.train(folder, run, task="simulate", epochs=10, model_options=options)
print(result)

error = 1 - result.scores["skill"]
stencil = 1 - result.controls["stencil"].scores["skill"]
print(f"error over 50 steps: {error:.3f} of that of 'nothing changes'; stencil {stencil:.3f}")
assert error < 0.25 < 0.5 < stencil
assert result.over("stencil").low > 0

# 100 steps of a flow of which one is known; the truth keeps its mass
start = flow(99, steps=2, spacing=0.1)
series = ga.training.rollout(run, start, steps=100)
mass = start.weights("area") @ series.fields["u"][..., 0].double().T
print(f"mass after 100 steps: {mass[-1] / mass[0]:.2f} of the first")
assert series.num_steps == 101
assert torch.isfinite(series.fields["u"]).all()
