"""Folder layouts of the field's data sets: where shapes and their labels are."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..errors import LoaderError
from ..io.reading import fault
from .files import load
from .files.raw import READERS
from .files.reading import read_raw, shape_of
from .files.text import ENDINGS as TEXT
from .shape import Shape

CLASSES = "a folder for each class"
FLAT = "files with labels"
_SPLITS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
_PARTS = "x y z nx ny nz label"


@dataclass(frozen=True)
class Item:
    """A shape of a folder."""

    path: Path
    label: str | float | None = None  # of the whole shape; None: the file has labels
    split: str = ""  # that the folder says
    columns: str = ""  # of a text file
    also: dict[str, int] = field(default_factory=dict)  # more numbers of the whole shape
    read: Callable[["Item"], Shape] | None = None

    def load(self) -> Shape:
        """The shape as its file, or files, have it."""
        if self.read:
            return self.read(self)
        try:
            return shape_of(read_raw(self.path, columns=self.columns), self.path)
        except LoaderError as error:
            raise LoaderError(f"{error} Or move it out of the folder, if it is no shape.") from None


def _files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.iterdir() if path.suffix.lower() in READERS and path.is_file()
    )


def _folders(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(".") and not _is_of_ours(path)
    )


def _is_of_ours(folder: Path) -> bool:
    """True for a run of training, and for the answers of one: what lies there is no data."""
    return any((folder / name).is_file() for name in ("run.json", "predictions.csv"))


def _text(path: Path) -> str:
    """A table or a list of names."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise fault(path, "a text in UTF-8", error, "save it as UTF-8") from None


def table(root: Path) -> list[Item] | None:
    """``labels.csv``: a name of a file and a label, a class or a number, on each line."""
    path = root / "labels.csv"
    if not path.is_file():
        return None
    try:
        lines = _text(path).splitlines()
        # then commas are decimal
        if all(";" in line for line in lines if line.strip()):
            between = ";"
        else:
            between = ","
        rows = [
            (number, row)
            for number, row in enumerate(csv.reader(lines, delimiter=between), 1)
            if row
        ]
    except csv.Error as error:
        raise fault(path, "a table of commas", error, "save it as CSV again") from None
    items = []
    labelled = set[Path]()
    # names of columns
    named = bool(rows) and Path(rows[0][1][0].strip()).suffix.lower() not in READERS
    for number, row in rows[named:]:
        cells = [cell.strip() for cell in row]
        if len(cells) != 2 or not cells[1]:
            raise fault(
                f"{path}, line {number}",
                "a file and its label",
                f"{','.join(row)[:80]!r}",
                "fill it",
            )
        file = root / cells[0]
        if (
            ".." in Path(cells[0]).parts
            or Path(cells[0]).is_absolute()
            or not file.is_file()
            or file in labelled
        ):
            if file not in labelled:
                got = "none of this name in the folder"
            else:
                got = "a second label for it"
            raise fault(
                f"{path}, line {number}", f"a file {cells[0][:80]}", got, "correct the line"
            )
        labelled.add(file)
        decimal = between == ";" and re.fullmatch(r"[+-]?\d+,\d+", cells[1])
        if decimal:
            label = cells[1].replace(",", ".")
        else:
            label = cells[1]
        items.append(Item(file, label))
    missing = sorted({path_ for path_ in _below(root) if path_ != path} - labelled)
    if missing:
        raise fault(path, "a label for each file", f"none for {missing[0]}", "add a line for it")
    numbers = [number_of(str(item.label)) for item in items]
    if all(number is not None for number in numbers) and any(
        not number.is_integer() for number in numbers if number is not None
    ):
        return [Item(item.path, number) for item, number in zip(items, numbers, strict=True)]
    return items


def number_of(text: str) -> float | None:
    """The number that a text is, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def _below(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        inside = path.relative_to(root).parents
        hidden = any(part.name.startswith(".") or _is_of_ours(root / part) for part in inside[:-1])
        if path.suffix.lower() in READERS and path.is_file() and not hidden:
            yield path


def _complete(root: Path, items: list[Item]) -> list[Item] | None:
    """The items, if no other shape lies beside them; texts of another ending may be lists."""
    endings = {item.path.suffix.lower() for item in items} | (READERS.keys() - TEXT)
    left = sorted(
        {path for path in _below(root) if path.suffix.lower() in endings}
        - {item.path for item in items}
    )
    left = [path for path in left if path.parent != root or path.suffix.lower() not in TEXT]
    if items and left:
        raise fault(
            left[0],
            "all files in a folder for each class, all in folders train and test, or all in one",
            "this one elsewhere",
            "move it",
        )
    return items or None


def shapenet_part(root: Path) -> list[Item] | None:
    """ShapeNetPart with normals: a folder per category, a text file per shape, splits in JSON."""
    names = root / "synsetoffset2category.txt"
    lists = root / "train_test_split"
    if not (names.is_file() and lists.is_dir()):
        return None
    categories = [line.split() for line in _text(names).splitlines() if line.strip()]
    if any(len(words) != 2 for words in categories):
        raise fault(names, "lines of a name and a synset", "others", "get it again")
    numbers = {synset: number for number, (_, synset) in enumerate(categories)}
    items = []
    for split in ("train", "val", "test"):
        path = lists / f"shuffled_{split}_file_list.json"
        try:
            if path.is_file():
                entries = json.loads(_text(path))
            else:
                entries = []
            parts = [Path(entry).parts[-2:] for entry in entries]
            also = [{"category": numbers[synset]} for synset, _ in parts]
        except (ValueError, KeyError, TypeError) as error:
            raise fault(path, "names synset/shape", f"{error!r}", "get it again") from None
        for (synset, name), more in zip(parts, also, strict=True):
            items.append(Item(root / synset / f"{name}.txt", None, split, _PARTS, more))
    return items


def s3dis(root: Path) -> list[Item] | None:
    """S3DIS: rooms in areas, a text file per object in ``Annotations``; Area_5 is for testing."""
    rooms = sorted(path.parent for path in root.glob("Area_*/*/Annotations") if path.is_dir())
    names = sorted(
        {
            path.name.rpartition("_")[0]
            for room in rooms
            for path in (room / "Annotations").glob("*_*.txt")
        }
    )

    def read(item: Item) -> Shape:
        objects = sorted((item.path / "Annotations").glob("*_*.txt"))
        parts = [load(path, columns="x y z r g b") for path in objects]
        if not parts:
            raise fault(item.path / "Annotations", "files of objects", "none", "get it again")
        label = [
            torch.full((len(p.pos),), names.index(o.name.rpartition("_")[0]))
            for p, o in zip(parts, objects, strict=True)
        ]
        pos, color = (torch.cat([part[name] for part in parts]) for name in ("pos", "color"))
        return Shape(pos=pos, color=color, y=torch.cat(label))

    return [
        Item(room, None, "test" if room.parent.name == "Area_5" else "train", read=read)
        for room in rooms
    ] or None


def scannet(root: Path) -> list[Item] | None:
    """ScanNet: a mesh and a labelled mesh per scene; lists of training and validation scenes."""
    meshes = sorted(root.glob("**/scene*_vh_clean_2.ply"))
    split = {
        name: kind
        for kind in ("train", "val", "test")
        for path in root.glob(f"**/scannetv2_{kind}.txt")
        for name in _text(path).split()
    }

    def read(item: Item) -> Shape:
        labels = item.path.with_name(item.path.name.replace("_2.ply", "_2.labels.ply"))
        shape = load(item.path)
        other = load(labels)
        if "y" not in other or len(other.y) != len(shape.pos):
            if "y" in other:
                got = f"{len(other.y)}"
            else:
                got = "none"
            raise fault(labels, f"{len(shape.pos)} labels, as vertices", got, "get it again")
        shape.y = other.y
        return shape

    scenes = [(path, path.name.split("_vh")[0]) for path in meshes]
    return [Item(path, None, split.get(scene, ""), read=read) for path, scene in scenes] or None


def faust(root: Path) -> list[Item] | None:
    """FAUST: ``tr_reg_000.ply`` to 099, ten people in ten poses, the label; 80 for training."""
    files = sorted(path for path in root.glob("**/tr_reg_*.ply"))
    matches = [(path, re.fullmatch(r"tr_reg_(\d{3})", path.stem)) for path in files]
    return [
        Item(
            path,
            f"pose_{int(number[1]) % 10}",
            "train" if int(number[1]) < 80 else "test",
            "",
            {"subject": int(number[1]) // 10},
        )
        for path, number in matches
        if number
    ] or None


def classes(root: Path) -> list[Item] | None:
    """A folder per class, with files, or with ``train`` and ``test`` inside or above it."""
    items = []
    for first in _folders(root):
        split = _SPLITS.get(first.name.lower(), "")
        for folder in _folders(first) if split else [first]:
            items += [Item(path, folder.name, split) for path in _files(folder)]
            for inner in [] if split else _folders(folder):
                if inner.name.lower() in _SPLITS:
                    items += [
                        Item(path, folder.name, _SPLITS[inner.name.lower()])
                        for path in _files(inner)
                    ]
    return _complete(root, items)


def flat(root: Path) -> list[Item] | None:
    """Files that have their labels themselves; in folders ``train`` and ``test``, or all in one."""
    items = [Item(path) for path in _files(root)]
    for inner in _folders(root):
        if inner.name.lower() in _SPLITS:
            items += [Item(path, None, _SPLITS[inner.name.lower()]) for path in _files(inner)]
    return _complete(root, items)


LAYOUTS: dict[str, Callable[[Path], list[Item] | None]] = {
    "labels.csv": table,
    "ShapeNetPart": shapenet_part,
    "S3DIS": s3dis,
    "ScanNet": scannet,
    "FAUST": faust,
    CLASSES: classes,
    FLAT: flat,
}


def folder_of(root: Any) -> Path:
    """The path of a folder that exists."""
    path = Path(root)
    if path.is_dir():
        return path
    if path.exists():
        got = "a file"
        fix = "its folder; one file is for ga.load, or graphattn predict"
    else:
        got = "one that does not exist"
        fix = "another path"
    raise fault(root, "a folder of shapes", got, fix)


def items_of(root: Any) -> tuple[str, list[Item]]:
    """The name of the first layout that a folder has, and its shapes."""
    path = folder_of(root)
    for name, layout in LAYOUTS.items():
        items = layout(path)
        if items:
            return name, items
    raise fault(
        root,
        f"files {', '.join(sorted(READERS))}, in a folder for each class or with labels",
        "none",
        "load one of its files by itself; or task='simulate' (--task simulate), of fields over time",
    )
