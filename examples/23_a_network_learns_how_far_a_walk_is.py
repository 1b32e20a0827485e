"""A network learns how far a walk on a surface is: geodesic distances from a marked vertex of bent
tubes.

The exact distances come from pygeodesic (Mitchell, Mount and Papadimitriou 1987). The network reads
the mark, straight distances from it and local shape, and says by what factor the walk is longer; a
perceptron reads mark and straight distance without edges. Trained for less than a minute the
network stays behind the shortest paths along edges (Dijkstra) divided by the one constant of the
training meshes; ``examples/acceptance.py`` trains for longer.
"""

import tempfile
from pathlib import Path

import torch
from acceptance import TASKS, relative_error, score, shortest_paths
from generated_shapes import geodesic

import graphattn as ga

folder, run = (Path(tempfile.mkdtemp()) / name for name in ("tubes", "run"))
geodesic(folder, each=32, test=10, rings=30, around=10)
result = ga.training.train(folder, run, epochs=16, patience=0, **TASKS["geodesic"].options)
errors = {"network": result, "perceptron without edges": result.controls["perceptron"]}
errors = {name: score(TASKS["geodesic"], one) for name, one in errors.items()} | shortest_paths(
    folder, result
)

heat = []
for path in sorted((folder / "test").glob("*.ply")):
    mesh = ga.load(path)
    far = ga.nn.heat_distance(mesh.pos.double(), mesh.face.T, mesh.mark.argmax()[None])
    heat.append(torch.log(far / mesh.straight).where(mesh.mark == 0, 0.0))
errors["heat method"] = relative_error(torch.cat(heat), torch.cat(result.labels))
for name, error in errors.items():
    print(f"{name}: relative error {error:.1%}")
assert errors["network"] < 0.9 * errors["perceptron without edges"]
