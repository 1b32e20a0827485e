"""Bit depths of values in 16-bit LAS fields: colours of 8 or 16, intensities of 8, 12 or 16.

A file does not say how many it uses. They follow from its largest value, and from the other files
of its folder: a dark tile of 16 bits may have no value above 255.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ..arguments import positive, whole
from ..errors import OptionError

#: Bits that a property of LAS may use.
DEPTHS = {"color": (8, 16), "nir": (8, 16), "intensity": (8, 12, 16)}
_BRIGHT = 0.95  # quantile by which files are compared: the largest value may be one mirror's
_SOME = 100_000  # points that it is taken of


@dataclass(frozen=True)
class Depth:
    """Bits of a property in a folder, and a bright value as a share of the largest one."""

    bits: int
    typical: float

    def __post_init__(self) -> None:
        whole(self.bits, "bits", 1)
        positive(self.typical, "typical")
        if self.bits > 16:
            raise OptionError(f"bits must be at most 16, got {self.bits}")


class Values(NamedTuple):
    """The largest and a bright value of a property of one file, in its own numbers."""

    largest: float
    bright: float


def values_of(shape: Any) -> dict[str, Values]:
    """Values of the properties whose bits a LAS file leaves open."""
    values = {}
    for name, bits in shape.depths.items():
        if name not in shape:
            continue  # it is the label
        scale = 1
        if name == "color":
            scale = top(bits)  # loaded from 0 to 1
        column = shape[name].numpy().reshape(-1)
        sample = column[:: 1 + len(column) // _SOME].astype(np.float64)
        largest = float(column.max())
        bright = float(np.quantile(sample, _BRIGHT))
        values[name] = Values(round(scale * largest), scale * bright)
    return values


def top(bits: int) -> int:
    """The largest number of so many bits."""
    return (1 << bits) - 1


def fewest(largest: float, name: str) -> int:
    """The fewest bits that hold a value.

    Example:
        >>> fewest(255, "color"), fewest(300, "color"), fewest(300, "intensity")
        (8, 16, 12)
    """
    return next(bits for bits in DEPTHS[name] if largest <= top(bits))


def depth_of_folder(name: str, files: list[Values]) -> Depth | None:
    """The bits for every value of a folder, and a bright value of its files; None if all are 0."""
    bits = max(fewest(file.largest, name) for file in files)
    bright = [
        file.bright / top(bits)
        for file in files
        if file.bright and fewest(file.largest, name) == bits
    ]
    if not bright:
        return None
    return Depth(bits, median(bright))


def bits_of_file(name: str, file: Values, folder: Depth) -> int:
    """Bits of one file: those that make it about as bright as the folder.

    Fewer bits than the folder's are taken only if the file uses half of what they hold.

    Example:
        >>> folder = Depth(16, 0.5)
        >>> [bits_of_file("color", Values(*pair), folder) for pair in ((250, 130), (70, 40), (60_000, 9_000))]
        [8, 16, 16]
    """
    least = fewest(file.largest, name)
    likely = []
    for bits in DEPTHS[name]:
        filled = 2 * file.largest > top(bits)
        if bits >= least and (bits >= folder.bits or filled):
            likely.append(bits)
    if not file.bright:
        return likely[-1]
    return min(likely, key=lambda bits: abs(math.log(file.bright / top(bits) / folder.typical)))


def factor(name: str, read: int, bits: int, folder: Depth) -> float:
    """The factor for the numbers of a file that were read as ``read`` bits, but have ``bits``."""
    if name == "color":
        return top(read) / top(bits)
    return top(folder.bits) / top(bits)


def decisions(chosen: Mapping[str, list[int]], folder: Mapping[str, Depth]) -> tuple[str, ...]:
    """The decision in words, of the bits of each file.

    Example:
        >>> decisions({"intensity": [8, 12, 12]}, {"intensity": Depth(12, 0.5)})
        ('intensity of LAS: 8 bits in 1 file, 12 bits in 2 files; all as of 12 bits',)
    """
    lines = []
    for name, files in chosen.items():
        counts = []
        for bits in sorted(set(files)):
            count = files.count(bits)
            counts.append(f"{bits} bits in {count:,} file{'s' * (count > 1)}")
        line = f"{name} of LAS: {', '.join(counts)}"
        if name == "color":
            line += "; from 0 to 1"
        elif len(counts) > 1:
            line += f"; all as of {folder[name].bits} bits"
        lines.append(line)
    return tuple(lines)


def as_of(shape: Any, folders: Mapping[str, Depth]) -> tuple[str, ...]:
    """Scale a shape that was loaded to the bits of a folder, and say which other bits it has."""
    lines = []
    for name, file in values_of(shape).items():
        if name not in folders:
            continue
        folder = folders[name]
        bits = bits_of_file(name, file, folder)
        scale = factor(name, shape.depths[name], bits, folder)
        if scale != 1:
            shape[name] = (shape[name].double() * scale).float()
            lines.append(
                f"{name} is taken as of {bits} bits, those that it was compared with as of "
                f"{folder.bits}"
            )
    return tuple(lines)
