"""Shapes in a grid, seen from one side: points or faces in the colours of classes, numbers and errors."""

from typing import Any

import torch
from torch import Tensor

from ..viz.style import INK, SURFACE, empty_figure, plain
from .colours import of_classes, of_errors, of_numbers

_MOST, _POINTS = 12, 4000
_VIEW = torch.tensor([[0.85, -0.52, 0.0], [0.26, 0.42, 0.87], [-0.45, -0.74, 0.5]])  # right, up, towards the eye


def chosen(result: Any) -> list[int]:
    """The shapes with the largest mean error first."""
    task = result.task
    errors = []
    for answer, label in zip(result.answers, result.labels, strict=True):
        wrong = task.errors(task.predictions(answer), label).mean()
        doubt = 1 - answer.amax(-1).mean() if task.classes else torch.zeros(())
        errors.append(float(wrong + 0.1 * doubt))
    order = sorted(range(len(errors)), key=lambda number: -errors[number])
    return order[: _MOST if task.readout == "shape" else _MOST // 3]


def gallery(result: Any, numbers: list[int]) -> Any:
    """The shapes of a result: for answers of points the truth, the prediction and the error of each in a row."""
    per_point = result.task.readout == "node"
    columns = 3 if per_point else 4
    rows = len(numbers) if per_point else -(-len(numbers) // columns)
    figure = empty_figure(None, 9.4, 2.7 * max(1, rows))
    axes = figure.subplots(max(1, rows), columns, squeeze=False)
    for each in axes.flat:
        each.axis("off")
    for place, number in enumerate(numbers):
        shape = result.data.folder[result.data.numbers[number]]
        if per_point:
            for each, (title, colour) in zip(axes[place], _of_points(result, number).items(), strict=True):
                _draw(each, shape, colour, title)
        else:
            colour, title = _of_shape(result, number)
            _draw(axes[place // columns][place % columns], shape, colour.expand(len(shape.pos), 3), title)
    return figure


def _of_points(result: Any, number: int) -> dict[str, Tensor]:
    task, answer, label = result.task, result.answers[number], result.labels[number]
    prediction = task.predictions(answer)
    wrong = task.errors(prediction, label)
    name = plain(result.names[number].rpartition("/")[2])
    if task.classes:
        table = torch.cat((of_classes(len(task.classes)), torch.tensor([[0.85, 0.85, 0.85]])))  # -1 is no label
        return {
            name: table[label],
            "prediction": table[prediction],
            f"{wrong.mean():.1%} wrong": of_errors(wrong, 1.0),
        }
    low, high = float(label.min()), float(label.max())
    return {
        name: of_numbers(label, low, high),
        "prediction": of_numbers(prediction, low, high),
        f"error, {wrong.mean():.3g} on average": of_errors(wrong, max(high - low, 1e-30) / 2),
    }


def _of_shape(result: Any, number: int) -> tuple[Tensor, str]:
    task, answer, label = result.task, result.answers[number][0], result.labels[number][0]
    prediction = task.predictions(answer)
    if not task.classes:
        low, high = task.mean - 2 * task.deviation, task.mean + 2 * task.deviation
        return of_numbers(prediction[None], low, high)[0], f"{float(prediction):.4g}, true {float(label):.4g}"
    taken, true = (plain(task.classes[int(each)]) for each in (prediction, label))
    title = f"{taken}, {float(answer.max()):.0%}" + f"\nlabel: {true}" * (taken != true)
    return of_classes(len(task.classes))[int(prediction)], title


def _draw(axes: Any, shape: Any, colour: Tensor, title: str) -> None:
    """From one side, the nearest in front; faces where there are some."""
    pos = shape.pos.double()
    pos = (pos - pos.mean(0)) / (pos - pos.mean(0)).norm(dim=1).max().clamp(min=1e-30)
    seen = pos @ _VIEW.double().T
    axes.set_title(title, fontsize=8, color=INK)
    axes.set_aspect("equal")
    axes.set_xlim(-1.05, 1.05)
    axes.set_ylim(-1.05, 1.05)
    if "face" in shape and shape.face.numel():
        _faces(axes, seen, shape.face.T, colour)
        return
    few = torch.arange(len(pos)) if len(pos) <= _POINTS else torch.linspace(0, len(pos) - 1, _POINTS).long()
    order = few[seen[few, 2].argsort()]
    near = (seen[order, 2] + 1) / 2
    shade = (0.6 + 0.4 * near)[:, None].float()
    colours = colour[order] * shade + (1 - shade) * 0.93  # pale where it is far
    axes.scatter(*seen[order, :2].T.numpy(), s=(4 + 10 * near).numpy(), c=colours.clamp(0, 1).numpy(), linewidths=0)


def _faces(axes: Any, seen: Tensor, faces: Tensor, colour: Tensor) -> None:
    from matplotlib.collections import PolyCollection

    corner = seen[faces]
    across = torch.linalg.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    light = across[:, 2].abs() / across.norm(dim=1).clamp(min=1e-30)
    order = corner[:, :, 2].mean(1).argsort()
    shaded = colour[faces].mean(1) * (0.55 + 0.45 * light)[:, None].float()
    corners: Any = corner[order, :, :2].numpy()
    shown = PolyCollection(corners, facecolors=shaded[order].clamp(0, 1).numpy(), edgecolors=SURFACE, linewidths=0.1)
    axes.add_collection(shown)
