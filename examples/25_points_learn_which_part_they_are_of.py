"""Points learn which part of a shape they are of from their neighbours: a perceptron of each point
does not.

Two or three of box, cylinder and ball on top of each other, turned at random; ``label`` of each
point says which. With 400 shapes and the default epochs the same call reaches what
``acceptance.md`` says.
"""

import tempfile
from pathlib import Path

from generated_shapes import parts

import graphattn as ga

folder, run = (Path(tempfile.mkdtemp()) / name for name in ("shapes", "run"))
parts(folder, each=70, seed=2)
result = ga.training.train(folder, run, epochs=6, patience=0)
print(result)
print({name: round(iou, 3) for name, iou in result.scores["iou"].items()})

assert result.scores["miou"] >= 0.55
assert result.over("perceptron").mean > 0.2  # in mean IoU of a shape
