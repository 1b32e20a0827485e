"""Folders of real shapes that packages carry, for ``examples/acceptance.py``.

``pip install --no-deps geomstats aeon`` brings cells, hands, leaves, arrowheads and motions; their
files are read without the packages. Molecules are ASE's, digits scikit-learn's.
"""

import importlib.util
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from ase.data.g2 import data as g2
from sklearn.datasets import load_digits

import graphattn as ga

# geomstats.datasets.utils.load_hands
_BONES = ((0, 1), (0, 2), *((i, i + 1) for i in (2, 3, 4)))
_BONES += tuple(
    bone for i in (6, 10, 14, 18) for bone in ((1, i), (i, i + 1), (i + 1, i + 2), (i + 2, i + 3))
)


def _data(package: str) -> Path:
    """The folder of the data sets in an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is missing: pip install --no-deps {package}")
    return Path(spec.origin).parent / "datasets" / "data"


def _curves(folder: Path, curves: Iterable[tuple[str, np.ndarray]], closed: bool) -> None:
    """A table for each curve (N, 2 or 3), in a folder of its class."""
    for number, (name, pos) in enumerate(curves):
        pos = pos[np.append(True, (pos[1:] != pos[:-1]).any(1))]
        if closed and (pos[0] == pos[-1]).all():
            pos = pos[:-1]
        x, y, *z = pos.T
        z = (*z, np.zeros(len(pos)))[0]
        order = np.arange(len(pos))
        table = np.column_stack((x, y, z, order, np.full(len(pos), int(closed))))
        (folder / name).mkdir(parents=True, exist_ok=True)
        header = "x,y,z,order,closed"
        path = folder / name / f"{number:04}.csv"
        np.savetxt(path, table, "%.9g", ",", header=header, comments="")


def cells(folder: Path, seed: int) -> None:
    """650 outlines of bone cancer cells without a drug and with two (geomstats, Clelia Fournier)."""
    root = _data("geomstats") / "cells"
    outlines = [block for block in (root / "cells.txt").read_text().split("\n\n") if block.strip()]
    drugs = (root / "treatments.txt").read_text().split()
    pos = (np.array(block.split(), float).reshape(-1, 2) for block in outlines)
    _curves(folder, zip(drugs, pos, strict=True), closed=True)


def hands(folder: Path, seed: int) -> None:
    """52 hands of 22 joints, open or grabbing (geomstats, of SHREC 2017)."""
    root = _data("geomstats") / "hands"
    pos = np.loadtxt(root / "hands.txt").reshape(-1, 22, 3)
    names = (root / "labels.txt").read_text().split()
    lines = "".join(f"l {a + 1} {b + 1}\n" for a, b in _BONES)
    for number, (name, joints) in enumerate(zip(names, pos, strict=True)):
        path = folder / f"class{float(name):.0f}" / f"{number:02}.obj"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"v {x} {y} {z}\n" for x, y, z in joints) + lines)


def _series(name: str) -> list[tuple[str, np.ndarray]]:
    """Labels and series (dimensions, T) of aeon's copy of a data set of the UCR archive."""
    cases = []
    for part in ("TRAIN", "TEST"):
        text = (_data("aeon") / name / f"{name}_{part}.ts").read_text("utf-8")
        for line in text.split("@data\n")[1].split():
            *dimensions, label = line.split(":")
            cases.append((label, np.array([row.split(",") for row in dimensions], float)))
    return cases


def _outlines(name: str, folder: Path, seed: int) -> None:
    """Every fourth point of outlines, whose distances from the centre are a series."""
    curves = []
    for label, series in _series(name):
        radius = np.maximum(3 + series[0], 0.05)  # of mean 0 and deviation 1
        angle = np.linspace(0, 2 * np.pi, len(radius), endpoint=False)
        pos = np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1)
        curves.append((f"class{label}", pos[::4]))
    _curves(folder, curves, closed=True)


leaves = partial(_outlines, "OSULeaf")  # 442 of six species, Gandhi 2002
arrowheads = partial(_outlines, "ArrowHead")  # 211 of three kinds, Ye and Keogh 2009


def motions(folder: Path, seed: int) -> None:
    """80 paths of the acceleration of a smart watch in ten seconds of four activities (aeon)."""
    curves = [(label, series[:3].T) for label, series in _series("BasicMotions")]
    _curves(folder, curves, closed=False)


def molecules(folder: Path, seed: int) -> None:
    """Molecules of G2/97 of two atoms or more, with their enthalpy of formation in kcal/mol."""
    folder.mkdir(parents=True)
    for name, facts in g2.items():
        if len(facts["positions"]) > 1:
            atoms = Atoms(facts["symbols"], facts["positions"])
            atoms.info["enthalpy"] = facts["enthalpy"]
            atoms.write(folder / f"{name}.extxyz")


def digits(folder: Path, seed: int) -> None:
    """500 handwritten digits: the inked ones of 8 x 8 pixels, with the ink as their height."""
    images, labels = load_digits(return_X_y=True)
    for number, (image, label) in enumerate(zip(images[:500], labels[:500], strict=True)):
        ink = torch.from_numpy(image).view(8, 8) / 16
        row, column = ink.nonzero(as_tuple=True)
        pos = torch.stack((column / 8, -row / 8, ink[row, column] / 8), 1).float()
        path = folder / f"digit{label}" / f"{number:03}.ply"
        path.parent.mkdir(parents=True, exist_ok=True)
        ga.save(ga.shapes.Shape(pos=pos), path)
