"""Training on a folder of shapes says what edges buy: the same split, the same epochs, and a
perceptron without edges.

Four families of point clouds, any rotation; ``graphattn train FOLDER --out RUN`` does the same on a
folder of yours.
"""

import tempfile
from pathlib import Path

from generated_shapes import FAMILIES, classes

import graphattn as ga

folder, run = (Path(tempfile.mkdtemp()) / name for name in ("shapes", "run"))
few = {name: FAMILIES[name] for name in ("box", "cylinder", "cone", "dumbbell")}
classes(folder, each=25, seed=4, families=few)
result = ga.training.train(folder, run, epochs=12, seed=1, sample=150)
print(result)
assert result.scores["accuracy"] >= 0.8
assert result.over("perceptron").mean > 0  # shape by shape, with an interval

# Everything that the run was made of is in its folder, without pickle; what it says of a file is a
# coloured copy of it.
print(*sorted(path.name for path in run.iterdir()))
(line,) = ga.training.predict(run, [folder / "dumbbell" / "000.ply"], run / "predictions")
made = ga.load(line["ply"])
assert all(f"probability of {name}" in line for name in few)
assert made.prediction.unique().tolist() == [sorted(few).index(line["prediction"])]
print(f"dumbbell/000.ply is a {line['prediction']} ({line['probability']:.0%})")
