"""The shapes of a result with the largest error, as figures of a page.

A figure has the truth, the prediction and the error.
"""

import html
from typing import Any

import torch

from ...graph.pictures.html import image
from ...shapes import Shape
from ...viz import plot_shape, png
from ...viz.style import panels
from ...viz.turn import page_of
from ..reading.elements import at_vertices
from .colours import of_classes, of_numbers
from .films import of_trajectory

_MOST = 12  # shapes; a third of them where each has three pictures
_POINTS = 30_000  # of a shape that turns on the page, some 10 bytes each
_FACES = 60_000


def chosen(result: Any) -> list[int]:
    """The shapes with the largest mean error first."""
    task = result.task
    errors = []
    for answer, label in zip(result.answers, result.labels, strict=True):
        mean_error = task.error(task.predictions(answer), label)
        if task.classes and task.name != "simulate":
            doubt = 1 - answer.amax(-1).mean()
        else:
            doubt = torch.zeros(())
        errors.append(float(mean_error + 0.1 * doubt))
    order = sorted(range(len(errors)), key=lambda number: -errors[number])
    return order[: _MOST if task.readout == "shape" else _MOST // 3]


def gallery(result: Any, numbers: list[int]) -> str:
    """Figures in HTML; answers for points have the truth, the prediction and the error in a row.

    Below them is a page of the shape that turns, with classes to switch on and off.
    """
    if result.task.name == "simulate":
        figure_of = of_trajectory
    elif result.task.readout == "node":
        figure_of = _of_points
    else:
        figure_of = _of_shape
    return "\n".join(
        _figure(result.names[number], *figure_of(result, number)) for number in numbers
    )


def _of_points(result: Any, number: int) -> tuple[str, str, str]:
    task = result.task
    label = result.labels[number]
    prediction = task.predictions(result.answers[number])
    mean_error = float(task.error(prediction, label))
    if task.classes:
        total = f" of {int((label >= 0).sum()):,} labels"
        caption = f"{mean_error:.1%}{total} wrong"
    else:
        total = ""
        caption = f"wrong by {mean_error:.3g} on average"
    shape = result.data.folder[result.data.numbers[number]]
    if result.data.inputs.elements == "edges":
        label, prediction = (at_vertices(shape, values) for values in (label, prediction))
    shape.label = label
    names = task.classes or None
    figure = plot_shape(shape, "label", prediction=prediction, names=names, title="", caption=False)
    return images(figure), caption, _turning(shape, prediction, names)


def _turning(shape: Any, prediction: torch.Tensor, names: tuple[str, ...] | None) -> str:
    """A page of a shape that turns, with boxes to tick for its classes; of a large cloud a part.

    Nothing of a mesh with too many faces.
    """
    faces = shape.get("face")
    values = {"label": shape.label, "prediction": prediction}
    pos = shape.pos
    if faces is None and len(pos) > _POINTS:
        part = torch.linspace(0, len(pos) - 1, _POINTS).long()
        pos = pos[part]
        values = {name: value[part] for name, value in values.items()}
    if faces is not None and faces.shape[1] > _FACES:
        return ""
    drawn = Shape(pos=pos, label=values["label"])
    if faces is not None:
        drawn.face = faces
    return page_of(
        drawn, color="label", prediction=values["prediction"], names=names, title="Turn it"
    )


def _of_shape(result: Any, number: int) -> tuple[str, str, str]:
    task = result.task
    answer = result.answers[number][0]
    label = result.labels[number][0]
    prediction = task.predictions(answer)
    if task.classes:
        predicted, true = (task.classes[int(class_id)] for class_id in (prediction, label))
        caption = (
            f"{isolated(predicted)}, {float(answer.max()):.0%}"
            + f"; label: {isolated(true)}" * (predicted != true)
        )
        colour = of_classes(prediction[None])
    else:
        caption = f"{float(prediction):.4g}, true {float(label):.4g}"
        colour = of_numbers(prediction[None], task.mean, task.deviation)
    shape = result.data.folder[result.data.numbers[number]]
    shape.prediction = colour.expand(len(shape.pos), 3)
    return image(png(plot_shape(shape, "prediction", title=""))), caption, ""


def images(figure: Any, dpi: int = 110) -> str:
    """The panels of a figure, side by side where there is room."""
    row = "".join(image(raw, width=width) for raw, width in panels(figure, dpi))
    return f'<div class="panels">{row}</div>'


def isolated(name: str) -> str:
    """A name whose direction of writing ends with it."""
    return f"\u2068{name}\u2069"


def _figure(name: str, picture: str, caption: str, page: str) -> str:
    words = f"<b>{html.escape(isolated(name))}</b><br>{html.escape(caption)}"
    more = ""
    if page:
        more = (
            "<details><summary>Turn it, and switch classes on and off</summary>"
            f'<iframe loading="lazy" title="{html.escape(isolated(name))}, to turn" '
            f'srcdoc="{html.escape(page)}"></iframe></details>'
        )
    return f"<figure>{picture}<figcaption>{words}</figcaption>{more}</figure>"
