"""Task and schedule of a run, chosen by its labels and the sizes of its shapes."""

from collections.abc import Iterable
from dataclasses import fields

import torch
from torch import Tensor

from ..errors import LoaderError, OptionError
from ..shapes import ShapeFolder
from .elements import TOKEN, count_of
from .options import LoopSettings, Options, Schedule
from .tasks import TASKS, Task

_UNEQUAL = 5.0  # the most frequent class over the rarest, from which classes are weighted


def task_of(
    name: str,
    shapes: ShapeFolder,
    numbers: list[int],
    elements: str = "",
    balance: bool | None = None,
) -> Task:
    """The task that the labels of some shapes define; ``balance`` weights classes by frequency.

    Raises:
        LoaderError: If points have labels in another number than there are points, or all labels
            are of one class.
    """
    labels = [shapes.labels[number] for number in numbers]
    shape_wise = name == "classify" or (
        name == "regress" and all(len(label) == 1 for label in shapes.labels)
    )
    if shape_wise:
        readout = "shape"
    else:
        readout = "node"
    check_labels(shapes, readout, elements)
    if name != "regress":
        count = torch.bincount(
            torch.cat([label[label >= 0] for label in labels]), minlength=len(shapes.classes)
        )
        there = [shapes.classes[int(number)] for number in count.nonzero()]
        if len(there) < 2:
            got = f"only {there[0]!r} in the part to train"
            fix = "shapes of another class, or other labels (--label)"
            raise LoaderError(
                f"{shapes.root}: expected labels of two classes or more, got {got}. Try: {fix}."
            )
        unequal = name == "segment" and float(count.max()) > _UNEQUAL * float(
            count[count > 0].min()
        )
        if balance or (balance is None and unequal):
            weights = weights_of(count)
        else:
            weights = ()
        return TASKS[name](readout, shapes.classes, weights=weights)
    if balance:
        raise OptionError("balance is for classes, got a task of numbers")
    values = torch.cat(labels).double()
    deviation = float(values.std(correction=0))
    return TASKS[name](readout, (), float(values.mean()), deviation if deviation > 0 else 1.0)


def weights_of(count: Tensor) -> tuple[float, ...]:
    """Weights of classes: 1 over the root of the share of each, with a mean of 1 over all labels.

    A class without labels has weight 1.

    Example:
        >>> weights_of(torch.tensor([90, 10, 0]))
        (0.83333, 2.5, 1.0)
    """
    share = count.double() / count.sum().clamp(min=1)
    weight = torch.where(count > 0, share.clamp(min=1e-30).rsqrt(), 0.0)
    weight = weight / (weight * share).sum()
    return tuple(round(each, 5) or 1.0 for each in weight.tolist())


def check_labels(shapes: ShapeFolder, readout: str, elements: str = "") -> None:
    """One for each shape, or for each of its points, faces or edges."""
    if elements and "face" not in shapes[0]:
        raise LoaderError(
            f"{shapes.name(0)}: expected a mesh with faces, got points alone. Try: a model of "
            "points."
        )
    if readout == "shape":
        token = "shape"
    else:
        token = TOKEN[elements]
    for number, label in enumerate(shapes.labels):
        if elements:
            own = count_of(shapes[number], elements)
        else:
            own = int(shapes.sizes[number])
        if token == "shape":
            many = 1
        else:
            many = own
        if label.shape != (many,):
            if label.ndim != 1:
                got = f"{tuple(label.shape)} for {many}"
            else:
                got = f"{len(label)} for {many} {token}s"
            raise LoaderError(
                f"{shapes.name(number)}: expected a label for each {token}, got {got}. Try: "
                "repair it."
            )


def labelled(shapes: ShapeFolder, numbers: Iterable[int]) -> list[int]:
    """Those shapes of which anything has a label."""
    return [
        n
        for n in numbers
        if shapes.labels[n].is_floating_point() or bool((shapes.labels[n] >= 0).any())
    ]


def schedule_of(options: Options, sizes: Tensor, count: int) -> Schedule:
    """Schedule of a run: what the options leave open is chosen by the shapes.

    Batches hold up to 16 shapes, and as many epochs as make 2.5 million points, from 10 to 60.

    Args:
        options: Options of the training.
        sizes: Points of the shapes.
        count: Shapes to train on.
    """
    mean = float(sizes.double().mean())
    epochs = options.epochs
    if epochs is None:
        epochs = max(10, min(60, round(2.5e6 / (mean * count))))
    points = options.points
    if points is None:
        shapes = min(16, max(4, count // 20))
        points = min(max(int(shapes * mean), 1), 1 << 15)
    patience = options.patience
    if patience is None:
        patience = max(8, epochs // 2)
    settings = {field.name: getattr(options, field.name) for field in fields(LoopSettings)}
    return Schedule(epochs=epochs, points=points, patience=patience, **settings)
