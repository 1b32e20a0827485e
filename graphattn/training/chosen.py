"""Task and schedule of a run, chosen by its labels and the sizes of its shapes."""

from collections.abc import Iterable
from dataclasses import fields

import torch
from torch import Tensor

from ..errors import OptionError
from ..io.reading import fault
from ..shapes import ShapeFolder
from .options import LoopSettings, Options, Schedule
from .reading.elements import TOKEN, count_of
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
    # "shape" where each shape has one label, "node" where its points have labels
    if name == "classify" or (
        name == "regress" and all(len(label) == 1 for label in shapes.labels)
    ):
        readout = "shape"
    else:
        readout = "node"
    check_labels(shapes, readout, elements)
    if name != "regress":
        count = _count(shapes, labels)
        weights: tuple[float, ...] = ()
        if balance is None:
            balance = name == "segment" and (
                float(count.max()) > _UNEQUAL * float(count[count > 0].min())
            )
        if balance:
            weights = weights_of(count)
        return TASKS[name](readout, shapes.classes, weights=weights)
    if balance:
        raise OptionError("balance is for classes, got a task of numbers")
    values = torch.cat(labels).double()
    deviation = float(values.std(correction=0))
    if not deviation > 0:  # all numbers are equal
        deviation = 1.0
    return TASKS[name](readout, (), float(values.mean()), deviation)


def _count(shapes: ShapeFolder, labels: list[Tensor]) -> Tensor:
    """Number of labels of each class, of which two or more have some."""
    class_ids = torch.cat([label[label >= 0] for label in labels])
    count = torch.bincount(class_ids, minlength=len(shapes.classes))
    present = [shapes.classes[int(number)] for number in count.nonzero()]
    if len(present) < 2:
        raise fault(
            shapes.root,
            "labels of two classes or more",
            f"only {present[0]!r} in the part to train",
            "shapes of another class, or other labels (--label)",
        )
    return count


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
    return tuple(round(value, 5) or 1.0 for value in weight.tolist())


def check_labels(shapes: ShapeFolder, readout: str, elements: str = "") -> None:
    """Refuse labels in another number than shapes, or than their points, faces or edges."""
    if elements and "face" not in shapes[0]:
        raise fault(shapes.name(0), "a mesh with faces", "points alone", "a model of points")
    for number, label in enumerate(shapes.labels):
        if readout == "shape":
            token = "shape"
            size = 1
        elif elements:
            token = TOKEN[elements]
            size = count_of(shapes[number], elements)
        else:
            token = TOKEN[elements]
            size = int(shapes.sizes[number])
        if label.shape == (size,):
            continue
        got = f"{len(label)} for {size} {token}s"
        if label.ndim != 1:
            got = f"{tuple(label.shape)} for {size}"
        raise fault(shapes.name(number), f"a label for each {token}", got, "repair it")


def labelled(shapes: ShapeFolder, numbers: Iterable[int]) -> list[int]:
    """Numbers of the shapes that have a label, of those given."""
    with_label = []
    for number in numbers:
        labels = shapes.labels[number]
        if labels.is_floating_point() or bool((labels >= 0).any()):
            with_label.append(number)
    return with_label


def patience_of(epochs: int) -> int:
    """Epochs without a better one before the end, by default."""
    return max(8, epochs // 2)


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
        patience = patience_of(epochs)
    settings = {field.name: getattr(options, field.name) for field in fields(LoopSettings)}
    return Schedule(epochs=epochs, points=points, patience=patience, **settings)
