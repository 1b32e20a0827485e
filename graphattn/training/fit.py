"""A run from its files to its scores: train the model and its controls, write everything."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..io.schema import written
from ..io.writing import save_page
from ..models import Simulator
from ..models.points.standard import measure
from .controls import control_of
from .evaluate import evaluated
from .evaluation import Evaluation
from .folds import fold_runs
from .models.best import SHARES, Best
from .models.forest import Forest
from .models.stencil import fitted
from .pages.notes import notes, reads, unseen_classes
from .pages.page import save_report
from .reading.data import Prepared, joined
from .reading.ranges import RANGES, save_ranges
from .reading.scenes import prepared
from .run import AT_ONCE, CHECKPOINT, CONTROL_WORDS, MODEL, PARTS, REPORT, RESULT, Run
from .running.budget import foretold
from .running.loop import Progress, Tell, TrainingState, fitting
from .running.team import Team, own_points


def fit(
    run: Run, shapes: Any, tell: Tell, team: Team, finish: bool, warned: Sequence[str]
) -> Evaluation:
    """Train what is not trained yet, and measure it on the held-out shapes; rank 0 writes.

    With ``finish`` nothing is trained, and controls without a trained epoch are left out. The page
    has what was ``warned`` of, too.
    """
    if not team.first:
        tell = _silent
    tell(Progress("begin", 0.0, f"{shapes!r}\n{run.said}\n{reads(run, shapes)}"))
    is_left = run.unfinished or any(map(run.unfinished_control, run.control))
    if (run.path / RESULT).is_file() and not is_left:
        tell(Progress("begin", 0.0, f"{run.path} is finished; more --epochs go on"))
    result, history = _trained(run, shapes, "training", tell, team, finish, across=True)
    tell(Progress("begin", 0.0, result.in_words))  # controls may take as long as the model
    for name in run.control:
        control = control_of(run, name, shapes)
        if finish and not control.has_model():
            result.notes.append(f"no control yet: {CONTROL_WORDS[name]} has no trained epoch")
            continue
        tell(Progress("begin", 0.0, f"control: {CONTROL_WORDS[name]}"))
        team.first_does(control.save)
        result.controls[name], _ = _trained(control, shapes, f"control {name}", tell, team, finish)
    unseen = unseen_classes(run, shapes)
    result.notes.extend([unseen] if unseen else [])
    result.notes.extend(notes(run, result))

    def write() -> None:
        save_page(run.path / RESULT, written(result.to_dict(), indent=1))
        save_report(run.path / REPORT, run, history, result, warned)

    team.first_does(write)
    words = "\n".join(filter(None, (result.controls_in_words, str(run.path / REPORT))))
    tell(Progress("end", 1.0, words))
    return result


def _silent(progress: Progress) -> None:
    """The reports of all processes but the first."""


def _trained(
    run: Run,
    shapes: Any,
    phase: str,
    tell: Tell,
    team: Team,
    finish: bool,
    across: bool = False,
) -> tuple[Evaluation, list[dict[str, Any]]]:
    """Scores of a run trained to the end, from its last state on, and its log.

    With ``across`` a network is compared with a forest across folds of few whole shapes.
    """
    number = {shapes.name(i): i for i in range(len(shapes))}
    parts = {name: [number[file] for file in files] for name, files in run.split.items()}
    train = prepared(run.inputs, shapes, parts["train"], run.augment)
    unchanged, val, test = (prepared(run.inputs, shapes, parts[name], like=train) for name in PARTS)
    _prepare([unchanged, val, test], tell)
    run.check(train.static(0), train.name(0))
    files = unchanged
    if run.inputs.simulation is not None:  # of windows
        files = Prepared(shapes, parts["train"], run.inputs)
    team.first_does(lambda: save_ranges(run.path, files), unless=run.path / RANGES)
    history: list[dict[str, Any]] = []
    if run.model in AT_ONCE:
        if (run.path / MODEL).is_file():
            model = run.trained_model()
        elif run.model == "stencil":
            model = fitted(cast(Simulator, run.new_model()), train.batches(run.schedule.points))
        else:
            model = cast(Forest, run.new_model()).fit(
                run.task, train.batches(run.schedule.points), run.schedule.seed
            )
        model.to(run.schedule.device)
    elif finish or run.has_ended():
        model = run.trained_model().to(run.schedule.device)
        history = run.history()
    else:
        model, history = _learned(run, train, unchanged, val, phase, tell, team)
    if isinstance(model, Best):
        across = across and not finish
        model = _with_choice(model, run, shapes, unchanged, val, tell, team, across)
    team.first_does(lambda: run.save_model(model), unless=run.path / MODEL)
    where = run.measured_part
    return evaluated(model, run, shapes, parts[where], where, like=train), history


def _with_choice(
    model: Best,
    run: Run,
    shapes: Any,
    unchanged: Prepared,
    val: Prepared,
    tell: Tell,
    team: Team,
    across: bool,
) -> nn.Module:
    """A trained network with trees beside it and the choice between them: the file's, or made.

    The choice is that of the validation part or, with ``across``, of folds of few whole shapes.
    """
    if (run.path / MODEL).is_file():
        return run.trained_model().to(run.schedule.device)
    runs = fold_runs(run, shapes) if across else []
    known = unchanged
    if runs and run.split["test"]:  # folds choose, and the validation part is not scored
        numbers = unchanged.numbers + val.numbers
        known = prepared(run.inputs, shapes, numbers, like=unchanged)
    model.cpu().fit_forest(run.task, known.batches(run.schedule.points), run.schedule.seed)
    model.to(run.schedule.device)
    if runs:
        _choose_by_folds(model, run, runs, shapes, tell, team)
    elif len(val):
        predictions = model.predictions(run.task, val, run.schedule)
        model.choose(run.task, predictions, torch.cat(val.labels()))
    else:
        model.answer_as("forest")
    return model


def _choose_by_folds(
    model: Best, run: Run, runs: list[Run], shapes: Any, tell: Tell, team: Team
) -> None:
    """Train on folds of few whole shapes, and choose by the answers for all of them."""
    predictions: dict[str, list[Tensor]] = {name: [] for name in SHARES}
    labels = []
    number = {shapes.name(i): i for i in range(len(shapes))}
    for place, one in enumerate(runs, 1):
        team.first_does(one.save)
        tell(Progress("begin", 0.0, f"fold {place} of {len(runs)}, to choose what answers"))
        _trained(one, shapes, f"fold {place} of {len(runs)}", tell, team, finish=False)
        data = prepared(one.inputs, shapes, [number[name] for name in one.split["test"]])
        trained: Any = one.trained_model().to(one.schedule.device)
        for name, answers in trained.predictions(run.task, data, one.schedule).items():
            predictions[name].append(answers)
        labels += data.labels()
    joined_predictions = {name: torch.cat(parts) for name, parts in predictions.items()}
    model.choose(run.task, joined_predictions, torch.cat(labels), len(runs))


def _learned(
    run: Run,
    train: Prepared,
    unchanged: Prepared,
    val: Prepared,
    phase: str,
    tell: Tell,
    team: Team,
) -> tuple[nn.Module, list[dict[str, Any]]]:
    """A model in the parameters of its best epoch, with its log; results of earlier ends go.

    The shapes to train are there twice: ``train`` has their changes in training.
    """
    model, start_report = run.first_model()
    if isinstance(model, Best):
        model.only_network()
    training = TrainingState(model, run.task, run.schedule, train, val, phase, team)
    size = sum(p.numel() for p in training.model.parameters())
    tell(
        Progress(
            "begin", 0.0, f"{run.model}: {size:,} parameters, at most {run.schedule.epochs} epochs"
        )
    )
    if start_report:
        tell(Progress("begin", 0.0, start_report))
    if run.has_begun():
        training.load(*run.state(run.path / CHECKPOINT), run.path / CHECKPOINT)
    else:
        sample = train.numbers[:: max(1, len(train) // 16)]
        subset = Prepared(train.folder, sample, run.inputs, like=train)
        x, levels, _ = joined(next(iter(subset.batches(run.schedule.points))), run.schedule.device)
        if isinstance(model, Best) and len(model.linear):
            model.fit_linear(run.task, unchanged.batches(run.schedule.points))
        with fitting(run.schedule, "before the first step"):
            if run.schedule.shard and team.number > 1:
                levels, points, _ = own_points(levels, run.task.readout)
                measure(training.model, points.scatter(x), levels, team.processes.sum)
            else:
                measure(training.model, x, levels)
    team.first_does(run.remove_results)
    if phase == "training" and not training.history:
        tell(Progress("begin", 0.0, foretold(training)))
    training.run(run.path if team.first else None, tell, run.key)
    return training.model, training.history


def _prepare(parts: list[Prepared], tell: Tell) -> None:
    """Read every shape once, so that a wrong one is named before anything is learned."""
    num_shapes = sum(map(len, parts))
    done = 0
    for part in parts:
        for index in range(len(part)):
            part.static(index)
            done += 1
            tell(Progress("reading", done / num_shapes))
