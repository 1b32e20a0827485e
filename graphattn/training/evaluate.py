"""Scores of a trained model on shapes with labels."""

from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import whole
from ..io.reading import PathLike
from .chosen import check_labels, labelled
from .evaluation import Evaluation
from .models.best import Best
from .pages.notes import notes
from .reading.data import Prepared, digests, same_files
from .reading.ranges import load_ranges, unlike, warn_of
from .reading.scenes import Scenes, prepared
from .run import MODEL, Run
from .running.loop import answers_of
from .simulate import simulated


def evaluated(
    model: nn.Module,
    run: Run,
    shapes: Any,
    numbers: list[int],
    part: str,
    *,
    votes: int = 1,
    like: Prepared | None = None,
) -> Evaluation:
    """The scores of a run's model on some shapes of a folder."""
    if run.inputs.simulation is not None:
        return simulated(model, run, shapes, numbers, part)
    task = run.task
    answers = votes_of(model, run, shapes, numbers, votes, like)
    labels = [shapes.labels[number] for number in numbers]
    truth = torch.cat(labels)
    scores = task.scores(task.predictions(torch.cat(answers)), truth)
    names = [shapes.name(number) for number in numbers]
    data = Prepared(shapes, numbers, run.inputs)
    choice: dict[str, Any] = {}
    if isinstance(model, Best):
        choice = model.choice()
        if task.readout == "shape":
            predictions = model.predictions(task, data, run.schedule)
            choice["scores"] = {
                name: task.scores(predicted, truth)[task.metric]
                for name, predicted in predictions.items()
            }
    return Evaluation(task, part, scores, names, data, answers, labels, choice=choice)


def votes_of(
    model: nn.Module,
    run: Run,
    folder: Any,
    numbers: list[int],
    votes: int = 1,
    like: Prepared | None = None,
    first: Prepared | None = None,
) -> list[Tensor]:
    """Answers of a model for all points of some shapes; of scenes the mean over votes.

    ``first`` is the data of the first vote, if it is there.
    """
    if not run.inputs.grid:
        votes = 1
    total: list[Any] = [0] * len(numbers)
    for vote in range(whole(votes, "votes", 1)):
        if first is not None and not vote:
            data = first
        else:
            data = prepared(run.inputs, folder, numbers, like=like, vote=vote)
        run.check(data.static(0), data.name(0))
        answers = answers_of(model, run.task, data, run.schedule)[0]
        if isinstance(data.folder, Scenes):
            answers = data.folder.stitched(answers)
        total = [one + more for one, more in zip(total, answers, strict=True)]
    return [one / votes for one in total]


def evaluate(
    run: PathLike, folder: PathLike | None = None, *, votes: int = 1, model: str | None = None
) -> Evaluation:
    """Scores of a run's model on a folder: the held-out part of its own, all of another.

    Args:
        run: The folder of the run.
        folder: Of shapes with labels of the same names; by default that of the run.
        votes: Of scans that are thinned, the number of grids over which answers are averaged.
        model: Of a run with ``model="best"``, what answers in the place of the chosen one:
            "network", "forest" or "mean".

    Raises:
        LoaderError: If a class of the folder is none of the run's, or a file does not fit; if the
            run's own folder has changed since, and is not named.
    """
    trained_run = Run.load(run).here()
    root: PathLike = trained_run.folder
    if folder is not None:
        root = folder
    shapes = trained_run.read_folder(root)
    check_labels(shapes, trained_run.task.readout, trained_run.inputs.elements)
    if folder is None:
        same_files(shapes, trained_run.files)
    part = "all"
    numbers = list(range(len(shapes)))
    simulates = trained_run.inputs.simulation is not None
    if not simulates:
        numbers = labelled(shapes, numbers)
    if digests(shapes) == trained_run.files:
        part = trained_run.measured_part
        numbers = [i for i in numbers if shapes.name(i) in set(trained_run.split[part])]
    else:
        ranges = load_ranges(trained_run.path)
        if simulates:
            data = Prepared(shapes, numbers, trained_run.inputs)
        else:
            data = prepared(trained_run.inputs, shapes, numbers)
        warn_of({data.name(i): unlike(ranges, data, i) for i in range(len(data))})
    control_paths = {
        name: trained_run.path / name
        for name in trained_run.control
        if (trained_run.path / name / MODEL).is_file()
    }
    runs = [(trained_run, model)]
    runs += [(Run.load(path).here(), None) for path in control_paths.values()]
    result, *others = (
        evaluated(
            one.trained_model(answers).to(trained_run.schedule.device),
            one,
            shapes,
            numbers,
            part,
            votes=votes,
        )
        for one, answers in runs
    )
    if model is not None:
        result.choice["is_asked_for"] = True
    result.controls.update(zip(control_paths, others, strict=True))
    result.notes.extend(notes(trained_run, result))
    return result
