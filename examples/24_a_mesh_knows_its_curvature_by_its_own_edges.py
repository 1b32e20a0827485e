"""A mesh knows its curvature by its own edges: a network beats the formula on irregular meshes,
random edges do not.

The label of each vertex is the exact mean curvature of a bumpy ball, whose vertices were moved by a
quarter of an edge. ``graphattn train FOLDER --out RUN`` does the same on a folder of yours, whose
vertices have a property ``label``.
"""

import tempfile
from pathlib import Path

from acceptance import cotangents
from generated_shapes import curvature

import graphattn as ga

folder, run = (Path(tempfile.mkdtemp()) / name for name in ("shapes", "run"))
curvature(folder, each=24, test=6, seed=1)
result = ga.training.train(folder, run, epochs=10, patience=0, control=("perceptron", "random"))
formula = cotangents(folder, result)["cotangent formula"]
print(result)
print(f"cotangent formula: R2 {formula:.3f}")

assert (
    result.scores["r2"]
    >= 0.75
    > 0.55
    > max(formula, *(one.scores["r2"] for one in result.controls.values()))
)
assert result.over("random").low > 0  # over the held-out meshes, each with its own difference
