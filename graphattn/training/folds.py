"""Folds of few whole shapes, by which a network is compared with a forest."""

from dataclasses import replace

from ..shapes import ShapeFolder
from .run import FOLDS, Run

_ENOUGH = 100  # validation shapes, from which folds are not needed
_LEAST = 5  # shapes of a fold


def fold_runs(run: Run, shapes: ShapeFolder) -> list[Run]:
    """Runs on the shapes that are not held out, each without a fold, which is its "test" part.

    There are none where points have answers, or where the validation part has 100 shapes. Networks
    start anew where the run starts from one that was trained on some of these shapes.
    """
    labels = {shapes.name(at): float(shapes.labels[at][0]) for at in range(len(shapes))}
    names = [*run.split["train"], *run.split["val"]]
    is_large = len(run.split["val"]) >= _ENOUGH
    if run.task.readout != "shape" or is_large or len(names) < _LEAST * len(FOLDS):
        return []
    start = run.start
    if run.num_seen_by_start(names):
        start = ""
    names.sort(key=lambda name: (labels[name], name))
    runs = []
    for number, fold in enumerate(FOLDS):
        test = names[number :: len(FOLDS)]
        others = [name for name in names if name not in set(test)]
        val = others[:: 2 * len(FOLDS)]
        train = [name for name in others if name not in set(val)]
        split = {"train": train, "val": val, "test": test}
        runs.append(replace(run, path=run.path / fold, control=(), split=split, start=start))
    return runs
