"""Charts of a run: its curves, and its answers beside the labels."""

from typing import Any

import torch

from ...arguments import clipped
from ...viz.style import FAINT, INK, empty_figure, plain, shades
from ..run import CONTROL_WORDS
from ..tasks import Task

_DENSE, _GROUPS = 1500, 32  # nodes of a mesh whose spectrum is drawn; points of its curve
_FAINTEST = 1e-12  # of the largest energy: rounding
_LETTERS = 30  # of a class beside an axis
_TRAINED, _VALID = "#0072B2", "#D55E00"


def curves(history: list[dict[str, Any]], task: Task) -> Any:
    """Loss and score by epoch."""
    figure = empty_figure(None, 9.4, 2.8)
    losses, scores = figure.subplots(1, 2)
    epochs = [line["epoch"] for line in history]
    # a line of one point is not seen
    if len(epochs) == 1:
        dot = "o"
    else:
        dot = ""
    losses.plot(
        epochs, [line["loss"] for line in history], color=_TRAINED, marker=dot, label="training"
    )
    is_judged = bool(history) and "val_loss" in history[0]
    if is_judged and task.name != "simulate":  # of rollouts, beside that of single steps
        losses.plot(
            epochs,
            [line["val_loss"] for line in history],
            color=_VALID,
            marker=dot,
            label="validation",
        )
    if is_judged:
        scores.plot(
            epochs, [line[f"val_{task.metric}"] for line in history], color=_VALID, clip_on=False
        )
        best = max(n for n, line in enumerate(history) if line["best"])
        reached = history[best][f"val_{task.metric}"]
        scores.plot(epochs[best], reached, "o", color=_VALID, clip_on=False)
        if task.classes and task.name != "simulate":
            scores.set_ylim(top=1.0)
        below = -14  # points
        if reached < sum(scores.get_ylim()) / 2:  # there are the numbers of the axis
            below = 7
        scores.annotate(
            "taken",
            (epochs[best], reached),
            (0, below),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=INK,
        )
    score = {
        "accuracy": "share of shapes right",
        "miou": "mean IoU",
        "r2": "R²",
        "skill": "rollouts: 1 - error / error of 'nothing changes'",
    }[task.metric]
    for axes, name in ((losses, task.loss_words), (scores, f"{score}, validation part")):
        _plain(axes)
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        if len(epochs) == 1:
            axes.set_xticks(epochs)
        axes.set_title(name, loc="left", fontsize=9)
    if len(losses.lines) > 1:
        losses.legend(frameon=False, fontsize=8)
    return figure


def summary(result: Any) -> Any:
    """The confusion matrix, the IoU of each class, predictions against truth, or lead times."""
    charts = {"classify": _confusion, "segment": _iou, "regress": _against, "simulate": _leads}
    return charts[result.task.name](result)


def _confusion(result: Any) -> Any:
    table = torch.tensor(result.scores["confusion"])
    K = len(table)
    side = min(9.4, 2.2 + 0.45 * K)
    figure = empty_figure(None, side, side * 0.9)
    axes = figure.subplots()
    share = table / table.sum(1, keepdim=True).clamp(min=1)
    axes.imshow(share.numpy(), cmap=shades("#ffffff", "#9dbbe2", "#3c6aa8"), vmin=0, vmax=1)
    names = [plain(clipped(name, _LETTERS)) for name in result.task.classes]
    axes.set_xticks(range(K), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(K), names)
    axes.set_xlabel("prediction")
    axes.set_ylabel("label")
    if K <= 20:
        for row, column in torch.nonzero(table).tolist():
            dark = float(share[row, column]) > 0.6
            if dark:
                ink = "white"
            else:
                ink = INK
            axes.text(
                column,
                row,
                str(int(table[row, column])),
                ha="center",
                va="center",
                fontsize=8,
                color=ink,
            )
    axes.tick_params(length=0, labelsize=8)
    for spine in axes.spines.values():
        spine.set_color(FAINT)
    return figure


def _iou(result: Any) -> Any:
    iou = {name: value for name, value in result.scores["iou"].items() if value is not None}
    figure = empty_figure(None, 6.4, 0.8 + 0.3 * len(iou))
    axes = figure.subplots()
    names = [plain(clipped(name, _LETTERS)) for name in iou]
    axes.barh(range(len(names)), list(iou.values()), color="#7aa5d8", height=0.6)
    axes.set_yticks(range(len(names)), names)
    for row, value in enumerate(iou.values()):
        axes.text(value + 0.01, row, f"{value:.3f}", va="center", fontsize=8, color=INK)
    axes.set_xlim(0, 1.08)
    axes.invert_yaxis()
    axes.set_xlabel("intersection over union")
    _plain(axes)
    return figure


def _against(result: Any) -> Any:
    prediction = torch.cat(result.answers)
    true = torch.cat(result.labels)
    sample = torch.linspace(0, len(true) - 1, min(len(true), 5000)).long()
    figure = empty_figure(None, 4.6, 4.4)
    axes = figure.subplots()
    low = float(true.min())
    high = float(true.max())
    axes.plot([low, high], [low, high], color=INK, linewidth=0.8)
    axes.scatter(
        true[sample].numpy(),
        prediction[sample].numpy(),
        s=4,
        color=_TRAINED,
        alpha=0.35,
        linewidths=0,
    )
    axes.set_xlabel("true")
    axes.set_ylabel("predicted")
    _plain(axes)
    return figure


def _leads(result: Any) -> Any:
    """Error over lead time, and the spectrum of the last step of the first trajectory."""
    figure = empty_figure(None, 9.4, 3.2)
    errors, spectrum = figure.subplots(1, 2)
    trajectory = result.data.folder[result.data.numbers[0]]
    window = result.data.inputs.simulation.window
    named = {"the model": result}
    named |= {CONTROL_WORDS[name]: one for name, one in result.controls.items()}
    for (name, one), colour in zip(
        named.items(), (_TRAINED, _VALID, "#009E73", FAINT), strict=False
    ):
        error = one.scores["error"]
        errors.plot(range(1, len(error) + 1), error, color=colour, label=name)
    errors.axhline(1.0, color=INK, linewidth=0.8, label="nothing changes")
    errors.set_ylim(0, 1.6)
    errors.set_xlabel(f"steps of {window.dt:g} {trajectory.units.get('time', '')}".rstrip())
    errors.xaxis.get_major_locator().set_params(integer=True)
    errors.set_title("error / error of 'nothing changes'", loc="left", fontsize=9)
    errors.legend(frameon=False, fontsize=8)
    states = (result.labels[0][:, -1, 0], result.answers[0][:, -1, 0])
    if len(states[0]) <= _DENSE:
        levels = result.data.inputs.levels_of(trajectory, trajectory.positions(0))
        for state, name, colour in zip(
            states, ("truth", "the model"), (INK, _TRAINED), strict=True
        ):
            energy = _energy(levels.levels[0].graph, state)
            spectrum.plot(range(1, len(energy) + 1), energy, color=colour, label=name)
        spectrum.set_yscale("log")
        spectrum.set_ylim(bottom=max(_FAINTEST * spectrum.get_ylim()[1], spectrum.get_ylim()[0]))
        spectrum.legend(frameon=False, fontsize=8)
        words = f"spectrum of the last step, {trajectory.name}"
        spectrum.set_title(plain(clipped(words, 60)), loc="left", fontsize=9)
        spectrum.set_xlabel("smooth to rough: groups of eigenvectors of the mesh")
    else:
        spectrum.set_axis_off()
    for axes in (errors, spectrum):
        _plain(axes)
    return figure


def _energy(graph: Any, state: torch.Tensor) -> list[float]:
    """Energy of a state in groups of eigenvectors of the graph's Laplacian, the smooth ones first."""
    adjacent = graph.mask().double()
    adjacent = (adjacent + adjacent.T) / 2
    _, vectors = torch.linalg.eigh(adjacent.sum(0).diag() - adjacent)
    energy = (vectors.T @ state.double()).square()
    return [float(part.mean()) for part in energy.chunk(_GROUPS)]


def _plain(axes: Any) -> None:
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8)
    for side in axes.spines.values():
        side.set_visible(False)
