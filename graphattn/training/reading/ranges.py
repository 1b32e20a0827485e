"""Ranges of the features in training, and files far outside of them: other units, other sensors."""

import warnings
from pathlib import Path

import torch
from torch import Tensor

from ...errors import LoaderError
from ...io.reading import read
from ...io.schema import parsed, typed, written
from ...io.writing import save_page
from ...models import Window
from ...shapes import Trajectory
from ...shapes.files.extxyz import SYMBOLS
from .data import Prepared
from .inputs import OF_ATOMS
from .scenes import Scenes, spacing

RANGES = "ranges.json"
_SPACING, _SCAN = "spacing of points", "spacing before thinning"
_CHANGE = "change in a step of "
_WIDER = 2.5  # times the spacing of another file in the same units: feet are 3.28 to a metre
_UNITS = 100.0  # times the largest values of another file: 8 bits beside 16, or 0 to 1 beside 8
_MOST = 8  # files that are warned of
_ROWS = 10_000  # of which quantiles are
Ranges = dict[str, tuple[float, ...]]


def save_ranges(path: Path, shapes: Prepared) -> None:
    """Write the range of each feature in training, and its least and largest spread in a file."""
    rows = [_of_file(shapes, index) for index in range(len(shapes))]
    _warn_of_units(shapes, rows)
    ranges = {
        name: [
            min(row[name][0] for row in rows),
            max(row[name][2] for row in rows),
            min(row[name][2] - row[name][0] for row in rows),
            max(row[name][2] - row[name][0] for row in rows),
        ]
        for name in rows[0]
    }
    if "species" in shapes.inputs.features:
        present = {number for index in range(len(shapes)) for number in _species(shapes, index)}
        ranges["species"] = sorted(present)
    save_page(path / RANGES, written(ranges, indent=1))


def _warn_of_units(shapes: Prepared, rows: list[dict[str, tuple[float, float, float]]]) -> None:
    """Warn of a property whose values in one file are hundreds of times those in another."""
    first = shapes.folder[shapes.numbers[0]]
    if shapes.inputs.simulation is not None:
        window = shapes.inputs.simulation.window
        words = [*window.names, *window.forcing]
    else:
        words = [word for word in shapes.inputs.features if word in first]
    for word in (word for word in words if word != "above_ground"):
        high = [(row[word][2], index) for index, row in enumerate(rows) if row[word][2] > 0]
        if high:
            least = min(high)
            most = max(high)
        else:
            least = (1.0, 0)
            most = (1.0, 0)
        if most[0] >= _UNITS * least[0]:
            one, other = (
                f"{shapes.name(index)} (up to {value:.3g})" for value, index in (most, least)
            )
            warnings.warn(
                f"{word} of {one} is in other units than that of {other} perhaps", stacklevel=3
            )


def load_ranges(path: Path) -> Ranges:
    """Ranges of a run; none of one that has no file of them."""
    file = path / RANGES
    if not file.is_file():
        return {}
    try:
        ranges: Ranges = typed(
            parsed(bytes(read(file).data)), dict[str, tuple[float, ...]], "ranges"
        )
        if any(len(bounds) != 4 for name, bounds in ranges.items() if name != "species"):
            raise LoaderError("four numbers are needed of each feature")
        return ranges
    except LoaderError as error:
        raise LoaderError(
            f"{file}: expected what graphattn train writes: {error}. Try: the run's own file."
        ) from None


def unlike(ranges: Ranges, shapes: Prepared, index: int) -> str:
    """Features in which a shape differs from those of training, in words; "" for none."""
    words = []
    rows = _of_file(shapes, index)  # which refuses what are no elements
    if "species" in ranges:
        unseen = sorted({*_species(shapes, index)} - {*ranges["species"]})
        if unseen:
            words.append(
                f"atoms of {', '.join(SYMBOLS[number] for number in unseen)} (none in training)"
            )
    # of shapes in units of their own radius
    if shapes.inputs.scale or shapes.inputs.grid:
        wider = _WIDER
    else:
        wider = 4.0
    for name, (low, middle, high) in rows.items():
        if name not in ranges:
            continue
        least, most, narrowest, widest = ranges[name]
        room = 2 * max(most - least, 1e-3 * max(abs(least), abs(most)))
        if name in (_SPACING, _SCAN):
            is_outside = most > 0 and not least / wider <= middle <= wider * most
        elif name.startswith(_CHANGE):
            is_outside = not least / wider <= high <= wider * most
        else:
            is_shifted = not least - room <= middle <= most + room
            is_outside = (
                is_shifted
                or high - low > 10 * max(widest, room / 2)
                or 20 * (high - low) < narrowest
            )
        if is_outside:
            if low == high:
                got = f"{middle:.3g}"
            else:
                got = f"{low:.3g} to {high:.3g}"
            if name.startswith(_CHANGE) and shapes.inputs.simulation is not None:
                window = shapes.inputs.simulation.window
                changes = _changes(shapes.folder[shapes.numbers[index]], window)
                channel = window.names.index(name.removeprefix(_CHANGE))
                got += f", most from step {int(changes[:, channel].argmax())}"
            words.append(f"{name} {got} (in training {least:.3g} to {most:.3g})")
    return "; ".join(words)


def warn_of(differences: dict[str, str]) -> None:
    """Warn of files with the words of :func:`unlike`, if they have some."""
    differences = {name: words for name, words in differences.items() if words}
    for name, words in list(differences.items())[:_MOST]:
        warnings.warn(
            f"{name} is unlike those of training, in other units perhaps: {words}",
            stacklevel=3,
        )
    if len(differences) > _MOST:
        warnings.warn(
            f"{len(differences) - _MOST:,} more files are unlike those of training",
            stacklevel=3,
        )


def _of_file(shapes: Prepared, index: int) -> dict[str, tuple[float, float, float]]:
    """5 %, 50 % and 95 % quantiles of each feature of a file, and of its spacing."""
    inputs = shapes.inputs
    if inputs.simulation is not None:
        return _of_trajectory(shapes.folder[shapes.numbers[index]], inputs.simulation.window)
    data = shapes.static(index)
    parts = data.x.double().split(data.widths, 1)
    pairs = zip(inputs.features, parts, strict=True)
    # elements are seen or not, whatever their shares
    quantiles = {word: _quantiles(values) for word, values in pairs if word not in OF_ATOMS}
    if isinstance(shapes.folder, Scenes):
        quantiles[_SCAN] = (shapes.folder.spacing(shapes.numbers[index]),) * 3
    elif len(data.x) > 1:
        quantiles[_SPACING] = (spacing(data.levels.levels[0].pos) * (inputs.scale or 1.0),) * 3
    return quantiles


def _species(shapes: Prepared, index: int) -> list[int]:
    """Atomic numbers in a file."""
    numbers: list[int] = shapes.folder[shapes.numbers[index]].z.unique().tolist()
    return numbers


def _quantiles(values: Tensor) -> tuple[float, float, float]:
    """5 %, 50 % and 95 % quantiles of rows of values; of many, some rows."""
    shares = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    if len(values) > _ROWS:  # drawn: every k-th may be the same node at every step
        draw = torch.Generator().manual_seed(0)
        values = values[torch.randint(len(values), (_ROWS,), generator=draw)]
    low, middle, high = torch.quantile(values.double().flatten(), shares).tolist()
    return low, middle, high


def _of_trajectory(trajectory: Trajectory, window: Window) -> dict[str, tuple[float, float, float]]:
    """Quantiles of each channel, the least, middle and largest change in a step, and spacing."""
    channels = dict(zip(window.names, window.states(trajectory).unbind(2), strict=True))
    rows = {name: _quantiles(values.flatten()) for name, values in channels.items()}
    for name, changes in zip(channels, _changes(trajectory, window).unbind(1), strict=True):
        if len(changes):
            low, high = changes.aminmax()
            rows[_CHANGE + name] = (float(low), float(changes.median()), float(high))
    rows |= {name: _quantiles(trajectory.forcing[name].flatten()) for name in window.forcing}
    rows[_SPACING] = (spacing(trajectory.positions(0)),) * 3
    return rows


def _changes(trajectory: Trajectory, window: Window) -> Tensor:
    """Root mean square of the change of each channel in each step (T - 1, C)."""
    return window.states(trajectory).double().diff(dim=0).square().mean(1).sqrt()
