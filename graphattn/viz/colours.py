"""Values of the nodes or faces of a shape as colours, with what a legend says of them."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import shown, table
from ..errors import OptionError, ShapeError

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]

PLAIN = "#c3cad3"
MISSING = "#9aa5b1"  # NaN, or a label below 0
WRONG = ("#c5cdd6", "#D55E00")  # where a label is right, where it is wrong
# Nine steps of matplotlib's viridis (CC0): lightness rises evenly, for every kind of colour vision.
RISING = (
    "#440154",
    "#472d7b",
    "#3b528b",
    "#2c728e",
    "#21918c",
    "#28ae80",
    "#5ec962",
    "#addc30",
    "#fde725",
)
# below 0, 0, above 0
SIGNED = (
    "#0b4a8f",
    "#4f93c9",
    "#b5d3e8",
    "#f1f1f1",
    "#f4c29f",
    "#dd7b3b",
    "#9c3d06",
)
# Okabe & Ito (2008), then Tol's "muted" (2021): distinct for every common kind of colour vision.
LABELS = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#332288", "#88CCEE", "#882255",
    "#999933", "#44AA99",
)  # fmt: skip
_MOST_LABELS = 64  # more whole numbers than these are amounts


@dataclass(frozen=True)
class Colouring:
    """A colour for each node, or each face, and its legend.

    Attributes:
        name: What is shown: "y", "prediction".
        rgb: float64 (N, 3) in [0, 1].
        labels: The name and the colour of every label that occurs, or nothing.
        scale: (lowest, highest, colours from one to the other) of amounts, or ``None``.
        remarks: Sentences for a caption.
        reach: How far from a node a face has its colour, in the units of the positions; beyond it
            is grey.
    """

    name: str
    rgb: Array
    labels: tuple[tuple[str, str], ...] = ()
    scale: tuple[float, float, tuple[str, ...]] | None = None
    remarks: tuple[str, ...] = field(default=())
    reach: float = math.inf

    @property
    def is_smooth(self) -> bool:
        """True if colours between two nodes have a meaning: not those of labels."""
        return not self.labels


def rgb_of(colour: str) -> Array:
    """``#rrggbb`` as three numbers in [0, 1]."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def ramp(share: Array, colours: tuple[str, ...]) -> Array:
    """Colours (N, 3) at places from 0 to 1 between evenly spaced ones; NaN is :data:`MISSING`."""
    at = np.linspace(0, 1, len(colours))
    steps = np.stack([rgb_of(colour) for colour in colours])
    mixed = np.stack([np.interp(share, at, steps[:, i]) for i in range(3)], 1)
    return np.where(np.isnan(share)[:, None], rgb_of(MISSING), mixed)


def values_of(data: Any, name: str, counts: tuple[int, ...]) -> NDArray[Any]:
    """Values as an array (N,) or (N, 3), N one of ``counts``.

    Raises:
        ShapeError: If they are not that.
    """
    tensor = table(data, name, "numbers, one for each node", ShapeError).detach().cpu()
    values: NDArray[Any] = (
        tensor.float() if tensor.dtype.itemsize == 2 and tensor.is_floating_point() else tensor
    ).numpy()
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim in (1, 2) and len(values) in counts and values.shape[1:] in ((), (3,), (4,)):
        return values
    sizes = " or ".join(f"({count},)" for count in dict.fromkeys(counts))
    raise ShapeError(
        f"{name} must hold a number for each node or face, {sizes}, or a colour, (N, 3); got "
        f"{shown(data)}"
    )


def colouring(
    values: NDArray[Any], name: str, names: Any = None, limits: tuple[float, float] | None = None
) -> Colouring:
    """The colours of values: 3 or 4 columns are RGB(A), integers labels, others amounts.

    Args:
        values: (N,) or (N, 3) or (N, 4). Colours are in [0, 1], or whole numbers up to 255.
        name: What they are called.
        names: Names of the labels, by number, or ``None``.
        limits: The lowest and the highest amount of the scale; those of ``values`` by default.
    """
    if values.ndim == 2:
        largest = 1
        if values.dtype.kind in "iu":
            largest = 255
        rgb = np.clip(np.nan_to_num(values[:, :3].astype(np.float64)) / largest, 0, 1)
        return Colouring(name, rgb)
    if values.dtype.kind in "iub" and (names is not None or len(np.unique(values)) <= _MOST_LABELS):
        return _labelled(values.astype(np.int64), name, names)
    return _amounts(values.astype(np.float64), name, limits)


def plainly(count: int) -> Colouring:
    """One grey for all."""
    return Colouring("", np.tile(rgb_of(PLAIN), (count, 1)))


def error_of(truth: NDArray[Any], prediction: NDArray[Any]) -> Colouring:
    """Colours of wrong labels; of amounts the prediction less the truth, on a scale about 0.

    Raises:
        ShapeError: If there are not as many, or more than one for each node.
    """
    if truth.shape != prediction.shape or truth.ndim != 1:
        raise ShapeError(
            f"prediction must have the shape of the truth, {truth.shape}, got {prediction.shape}"
        )
    if truth.dtype.kind not in "iub" or prediction.dtype.kind not in "iub":
        error = prediction.astype(np.float64) - truth.astype(np.float64)
        most = float(np.abs(error[np.isfinite(error)]).max(initial=0.0))
        limits = None
        if most:
            limits = (-most, most)
        return _amounts(error, "error", limits)
    labelled = truth.astype(np.int64) >= 0
    wrong = (truth != prediction) & labelled
    rgb = np.where(wrong[:, None], rgb_of(WRONG[1]), rgb_of(WRONG[0]))
    rgb[~labelled] = rgb_of(MISSING)
    share = wrong.sum() / max(1, labelled.sum())
    labels = [("right", WRONG[0]), ("wrong", WRONG[1])]
    if not labelled.all():
        labels.append(("no label", MISSING))
    return Colouring("error", rgb, tuple(labels), None, (f"Wrong: {share:.1%}.",))


def _labelled(labels: Index, name: str, names: Any) -> Colouring:
    present = np.unique(labels)
    palette = np.stack([rgb_of(colour) for colour in LABELS])
    rgb = np.where((labels < 0)[:, None], rgb_of(MISSING), palette[labels % len(LABELS)])
    if not isinstance(names, list | tuple | dict | None):
        raise OptionError(
            "names must be a list of the labels' names, or a dictionary by number, got "
            f"{shown(names)}"
        )
    if isinstance(names, dict):
        called = names
    else:
        called = dict(enumerate(names or ()))
    legend = tuple(
        (str(called.get(label, label)), LABELS[label % len(LABELS)])
        if label >= 0
        else ("no label", MISSING)
        for label in present.tolist()
    )
    remarks: tuple[str, ...] = ()
    if len({shade for _, shade in legend}) < len(legend):
        remarks = (f"Colours repeat after {len(LABELS)} labels.",)
    return Colouring(name, rgb, legend, None, remarks)


def _amounts(values: Array, name: str, limits: tuple[float, float] | None = None) -> Colouring:
    values = np.where(np.isfinite(values), values, np.nan)
    numbers = values[~np.isnan(values)]
    low, high = limits or (
        (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
    )
    colours: tuple[str, ...] = RISING
    if low < 0 < high:
        high = max(-low, high)
        low = -high
        colours = SIGNED
    # as many steps as a page has
    rgb = ramp(np.round((values - low) / ((high - low) or 1.0) * 255) / 255, colours)
    return Colouring(
        name,
        rgb,
        (),
        (low, high, colours),
        ("Grey where there is no number.",) * (len(numbers) < len(values)),
    )
