"""A folder of shapes as a data set: labels, classes, checks, splits."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from ..arguments import one_of, whole
from ..errors import LabelError, LoaderError
from ..io.reading import fault
from .depths import Depth, Values, as_of, bits_of_file, decisions, depth_of_folder, values_of
from .files.corners import OF_CORNERS
from .files.curves.lines import is_motion
from .files.reading import warn_of
from .files.words import narrow
from .layouts import CLASSES, FLAT, Item, items_of, number_of
from .seeded import seeded
from .shape import Shape
from .splits import Splits, drawn

#: Of the classification of LAS.
_LAS = (
    *(
        "never classified",
        "unclassified",
        "ground",
        "low vegetation",
        "medium vegetation",
        "high vegetation",
    ),
    *(
        "building",
        "noise",
        "key point",
        "water",
        "rail",
        "road",
        "overlap",
        "wire guard",
        "wire",
        "tower",
    ),
    *("wire connector", "bridge", "high noise"),
)
_STRUCTURE = ("face", "edge_index")
_SEAMS = {"uv", *OF_CORNERS.values()}  # of which a file has one or the other
_ROOM = 1 << 30  # bytes of shapes that stay in memory


class _Survey(NamedTuple):
    """A file as it was when it was first read."""

    stamp: tuple[int, ...]  # sizes and times of change
    points: int
    properties: dict[str, tuple[int, ...]]  # shape of a row, by name
    dropped: int
    unit: str
    doubt: str


class _Beside(NamedTuple):
    """A label in a file whose shape has one by its folder or a table."""

    name: str
    of_points: bool
    varies: bool


class ShapeFolder(Dataset):
    r"""The shapes of a folder, each a ``Data`` with ``y``.

    Args:
        root: A folder in one of these layouts, which ``layout`` says:

            * ``labels.csv`` beside the files: a file and its class on each line; numbers of which
              one is no whole number are what to regress, whole numbers alone are classes;
            * those of ShapeNetPart (with normals), S3DIS, ScanNet and FAUST;
            * a folder for each class, with or without ``train`` and ``test`` in it (ModelNet) or
              above it; of files whose points have labels the folders are read by
              ``task="classify"`` alone;
            * files with a property ``label`` of each point or face (``y`` in a .npz, or of the
              shape), or else ``classification``, as LAS has it, or ``scalar_Classification``, as
              CloudCompare has it. Files of several endings may differ in their properties: those
              that all have are read.
        transform: Called with each shape; PyG's are as good as :mod:`~graphattn.shapes.augment`'s.
        num_classes: Labels must be below it; by default there are as many as the largest label
            says.
        task: What the labels must be for: numbers that could be classes are what to regress, if it
            says so.
        classes: Names that labels are numbered by, such as those of a model, where a class may
            have one shape or none; by default those of the folder, and those of LAS for its
            ``classification``.
        label: The property of each point or face that is the label; by default as above.
        ignore: Values of it that are no label; the other values are then numbered from 0, as
            ``values`` lists them.
        depths: Bits of colours, intensity and near infrared of LAS, such as those of a
            model; by default those that the files need.

    Every file is read once at the beginning, and checked. ``task`` is "classify" (a class for each
    shape, ``y`` (1,)), "segment" (one for each point, ``y`` (N,), where -1 is no label) or
    "regress" (numbers); ``classes`` are the names, ``sizes`` (len,) the numbers of points,
    ``surveyed`` says that a file has a ``classification``. Numbers are float32, integers stay
    integers but for ``pos`` and ``normal``; ``pos`` is float64 where float32 is coarse. LAS does
    not say how many bits its colours, intensity and near infrared have: that follows from the
    values of each file and of all (:mod:`.depths`), and files of fewer bits are scaled to those of
    the others. ``notes`` says so.

    Raises:
        LoaderError: With the file: it cannot be read, has other properties than the first, has no
            label or one out of range, is the only one of its class, is of none of ``classes``, or
            has changed since.

    Example:
        >>> import tempfile, torch, graphattn as ga
        >>> root = Path(tempfile.mkdtemp())
        >>> for name in ("flat", "tall"):
        ...     for number in range(5):
        ...         (root / name).mkdir(exist_ok=True)
        ...         ga.save(ga.shapes.Shape(pos=torch.rand(20 + number, 3)), root / name / f"{number}.ply")
        >>> folder = ShapeFolder(root)
        >>> folder
        ShapeFolder(10 shapes to classify, 20 to 24 points; a folder for each class: flat, tall)
        >>> folder[7]
        Shape(pos=[22, 3], y=[1])
        >>> print(folder.split(seed=3))
        6 train, 2 val, 2 test (drawn by seed 3, each class in these parts)
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        transform: Callable[[Any], Any] | None = None,
        num_classes: int | None = None,
        task: str | None = None,
        classes: Sequence[str] | None = None,
        label: str | None = None,
        ignore: Sequence[int] = (),
        depths: Mapping[str, Depth] | None = None,
    ) -> None:
        if task is not None:
            one_of(task, "task", ("classify", "segment", "regress"))
        self._asked_task = task
        self.root = Path(root)
        self.transform = transform
        self.layout, self.items = items_of(root)
        self.label = label
        self.ignore = tuple(sorted({whole(value, "ignore", 0) for value in ignore}))
        if label is not None:
            self.layout = f"label: {label}"
            self.items = [replace(item, label=None) for item in self.items]
        self._names: dict[int, str] = {}
        is_named = self.layout == CLASSES and any(
            number_of(str(item.label)) is None for item in self.items
        )
        if self._asked_task == "segment" or (self._asked_task == "regress" and is_named):
            self.items = [replace(item, label=None) for item in self.items]  # of points alone
        elif self._asked_task == "regress":
            self.items = [replace(item, label=self._number(item)) for item in self.items]
        named = [item.label for item in self.items if isinstance(item.label, str)]
        self._few = classes is not None  # a class may have one shape
        self.classes: tuple[str, ...] = tuple(classes or sorted(set(named), key=_natural))
        self._read_all()
        unread = self._unread()
        doubts = [(self.name(at), survey.doubt) for at, survey in enumerate(self._surveys)]
        warn_of(doubts, "files")
        every = [survey.properties for survey in self._surveys]
        self._common = {
            name for name in every[0] if all(name in properties for properties in every)
        }
        # that not all endings have
        self.left = sorted({name for properties in every for name in properties} - self._common)
        self.sizes = torch.tensor([survey.points for survey in self._surveys])
        self.depths = self._depths(depths or {})
        bits = {}  # of the properties of LAS in each file
        for name, depth in self.depths.items():
            of_files = [values[name] for values in self._values if name in values]
            bits[name] = [bits_of_file(name, values, depth) for values in of_files]
        self._scaled = {
            name for name, files in bits.items() if set(files) != {self.depths[name].bits}
        }
        notes = [*unread, *decisions(bits, self.depths)]
        dropped = [survey.dropped for survey in self._surveys if survey.dropped]
        if dropped:  # of depth cameras
            notes.append(
                f"left out: {sum(dropped):,} points that are not finite, in {len(dropped):,} files"
            )
        self.notes = (*notes, *self._units())
        if num_classes is not None:
            num_classes = whole(num_classes, "num_classes", 1)
        self.task = self._task(num_classes)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        number = range(len(self))[index]
        shape = self._loaded.get(number) or self._again(number)
        if self.transform is None:
            return shape.clone()
        with seeded(getattr(index, "seed", None)):
            return self.transform(shape.clone())

    def name(self, index: int) -> str:
        """The file of a shape, from ``root``."""
        return self.items[index].path.relative_to(self.root).as_posix()

    def split(self, *, val: float = 0.1, test: float = 0.2, seed: int = 0) -> Splits:
        """Parts for training, validation and testing: the folder's own, or drawn by class."""
        return drawn(self, val, test, seed)

    def present(self, numbers: Iterable[int]) -> np.ndarray:
        """Classes of which some shapes have labels, (shapes, classes) of bool."""
        return self.counts(numbers) > 0

    def counts(self, numbers: Iterable[int]) -> np.ndarray:
        """Labels of each class in some shapes, (shapes, classes)."""
        rows = [
            torch.bincount(self.labels[n] + 1, minlength=len(self.classes) + 1)[1:] for n in numbers
        ]
        if rows:
            return torch.stack(rows).numpy()
        return np.zeros((0, len(self.classes)), np.int64)

    def classes_here(self) -> list[str]:
        """Classes that anything has: names of LAS stand for values that no point may have."""
        if self.task != "segment":
            return list(self.classes)
        return [
            self.classes[at] for at in np.flatnonzero(self.present(range(len(self))).any(axis=0))
        ]

    def __repr__(self) -> str:
        classes = self.classes_here()
        if classes:
            named = f": {_first(classes)}"
        else:
            named = ""
        few = int(self.sizes.min())
        most = int(self.sizes.max())
        return (
            f"ShapeFolder({len(self):,} shapes to {self.task}, {few:,} to {most:,} points; "
            f"{self.layout}{named})"
        )

    def _read_all(self) -> None:
        """Read every file once."""
        self._loaded: dict[int, Shape] = {}
        self._room = _ROOM
        self._coarse = False
        self._surveys: list[_Survey] = []
        self._values: list[dict[str, Values]] = []  # of LAS
        self.labels: list[torch.Tensor] = []
        self._beside: list[_Beside] = []
        self.surveyed = False
        for number, item in enumerate(self.items):
            self._read_first(number, item)
        endings = [item.path.suffix.lower() for item in self.items]
        for ending in (*dict.fromkeys(endings), ""):
            self._check_alike([at for at, own in enumerate(endings) if ending in ("", own)], ending)

    def _unread(self) -> tuple[str, ...]:
        """Choose between labels of shapes, by folder, and labels of points; report the other kind.

        The points' win if no task is asked for, as folders may be sites; a table of labels is
        meant.
        """
        beside = [label for label in self._beside if label.varies]
        if not beside:
            return ()
        if (
            self.layout == CLASSES
            and self._asked_task is None
            and all(label.of_points for label in self._beside)
        ):
            folders = _first(self.classes)
            self.items = [replace(item, label=None) for item in self.items]
            self.layout = FLAT
            self.classes = ()
            self._read_all()
            return (
                f"not read: the folders {folders}, as points have labels; --task classify reads "
                "the folders",
            )
        names = ", ".join(sorted({label.name for label in beside}))
        return (
            f"not read: {names} of points, as {self.layout} says what shapes are; --label NAME "
            "reads it",
        )

    def _beside_label(self, item: Item, shape: Shape) -> "_Beside":
        """The label in a file whose shape has one already."""
        name = self._label_in(shape)
        if item.label is None or not name:
            return _Beside("", False, False)
        values = shape[name]
        sizes = {len(shape.pos)}
        if "face" in shape:
            sizes.add(shape.face.shape[1])
        of_points = tuple(values.shape) in {(size,) for size in sizes - {1}}
        labelled = values
        if not values.is_floating_point():
            labelled = values[values >= 0]
        varies = of_points and len(labelled.unique()) > 1
        return _Beside({"y": "label"}.get(name, name), of_points, varies)

    def _read_first(self, number: int, item: Item) -> None:
        stamp = _stamp(item)
        loaded = item.load()
        self.surveyed |= any(plain_name(name) == "classification" for name in loaded.keys())  # noqa: SIM118
        self._beside.append(self._beside_label(item, loaded))
        shape = self._with_label(item, loaded)
        if shape.pos.dtype not in (torch.float16, torch.float32):
            self._coarse |= narrow(shape.pos.double().numpy(), allow_int=False).dtype == np.float64
        properties = {
            name: tuple(value.shape[1:]) for name, value in shape.items() if name not in _STRUCTURE
        }
        properties |= {name: () for name in _STRUCTURE if name in shape}
        if is_motion(shape):
            properties["joints"] = (int(shape.joint.max()) + 1,)
        survey = _Survey(
            stamp, len(shape.pos), properties, shape.dropped, loaded.unit, loaded.doubt
        )
        self._surveys.append(survey)
        self._values.append(values_of(shape))
        self.labels.append(shape.y)
        size = sum(value.numel() * value.element_size() for value in shape.values())
        if size <= self._room:
            self._loaded[number] = shape
            self._room -= size

    def _check_alike(self, numbers: list[int], ending: str) -> None:
        """Refuse a file whose properties differ from those of most; only common ones of several
        endings, which ``""`` is.
        """
        kinds = {}
        for at in numbers:
            rows = self._surveys[at].properties
            kinds[at] = {name: rows[name] for name in rows.keys() - _SEAMS}
        keys = {at: frozenset(kind.items()) for at, kind in kinds.items()}
        count = Counter(keys.values())
        usual = max(numbers, key=lambda at: count[keys[at]])
        most = kinds[usual]
        for at, kind in kinds.items():
            for name in sorted(kind.keys() | most.keys()):
                is_common = name in kind and name in most
                is_needed = ending or name in _STRUCTURE or is_common
                if is_needed and kind.get(name) != most.get(name):
                    got = f"others: {self._surveys[at].points:,} points {_have(kind, name)}"
                    raise fault(
                        self.items[at].path,
                        f"the properties of {self.name(usual)}",
                        f"{got}, where those of {self.name(usual)} {_have(most, name)}",
                        "write both alike, or leave it out",
                    )

    def _depths(self, chosen: Mapping[str, Depth]) -> dict[str, Depth]:
        """Bits of the properties of LAS that all files have."""
        depths = {}
        for name in sorted({name for values in self._values for name in values}):
            files = [values[name] for values in self._values if name in values]
            depth = chosen.get(name) or depth_of_folder(name, files)
            if depth is not None:
                depths[name] = depth
        return depths

    def _units(self) -> tuple[str, ...]:
        """Units of length, where files say different ones."""
        examples = {
            survey.unit: number for number, survey in enumerate(self._surveys) if survey.unit
        }
        if len(examples) < 2:
            return ()
        files = (f"{self.name(number)} in {unit}" for unit, number in examples.items())
        return (f"lengths differ, as the headers say: {', '.join(files)}",)

    def _label_in(self, shape: Shape) -> str:
        """The property of a file that is its label; "" if it has none."""
        plain = {plain_name(name): name for name in (*shape.keys(), "y", "face_y")}
        usual = ("y", "face_y", plain.get("label", ""))
        names: tuple[str, ...] = (*usual, plain.get("classification", ""))
        if self.label is not None:
            names = (self.label, plain.get(plain_name(self.label), ""))
            if plain_name(self.label) == "label":
                names += usual  # as loaders name it
        return next((name for name in names if name in shape), "")

    def _labelled(self, item: Item, shape: Shape) -> None:
        """Give a shape its ``y`` from its label property, without values that mean no label."""
        label_name = self._label_in(shape)
        if not label_name:
            others = ", ".join(name for name, _ in shape.items() if name not in ("pos", "face"))
            others = others or "none"
            noun = "labels"
            fix = (
                "label='NAME' (--label NAME), a property label, labels.csv, or a folder for each "
                "class (and the folder above them)"
            )
            if self.layout == CLASSES:
                fix = (
                    'task="classify" (--task classify) for the classes of folders, or '
                    "label='NAME' (--label NAME)"
                )
            if self.label is not None:
                noun = f"the property {self.label}"
                fix = "one of these, or no label= (--label), for labels.csv or folders of classes"
            if self._asked_task is not None:
                noun += f" to {self._asked_task}"
            lacking = f"{item.path}: expected {noun}, got none; its properties: {others}"
            raise LabelError(f"{lacking}. Try: {fix}.", lacking)
        if label_name != "y":
            shape.y = shape[label_name]
            del shape[label_name]
        # CloudCompare has whole numbers as floats
        named = label_name not in ("y", "face_y") and self._asked_task != "regress"
        if named and shape.y.is_floating_point():
            # CloudCompare has NaN where a scalar is unknown
            labels = torch.where(shape.y.isnan() & (len(shape.y) > 1), -1.0, shape.y)
            if torch.equal(labels, labels.round()):
                shape.y = labels.long()
        if plain_name(label_name) == "classification" and self._asked_task != "regress":
            self._names = dict(enumerate(_LAS))
        if self.ignore:
            if shape.y.is_floating_point():
                raise fault(
                    item.path, "whole numbers", f"labels {shape.y.dtype}", "leave ignore out"
                )
            y = shape.y.long()
            below = (y.unsqueeze(-1) > torch.tensor(self.ignore)).sum(-1)
            shape.y = torch.where(torch.isin(y, torch.tensor(self.ignore)), -1, y - below)

    @property
    def values(self) -> list[int]:
        """The label of each class in the files."""
        every = range(len(self.classes) + len(self.ignore))
        return [value for value in every if value not in self.ignore][: len(self.classes)]

    def _with_label(self, item: Item, shape: Shape) -> Shape:
        """A shape that was loaded, with its ``y``."""
        if item.label is not None:
            shape.y = torch.tensor(
                [self._number_of(item) if isinstance(item.label, str) else item.label]
            )
        for name, value in item.also.items():
            shape[name] = torch.tensor([value])
        if item.label is None:
            self._labelled(item, shape)
        if shape.y.dtype.is_floating_point:
            shape.y = shape.y.float()
        else:
            shape.y = shape.y.long()
        wild = shape.y[~torch.isfinite(shape.y)]
        if len(wild):
            raise fault(item.path, "finite numbers as labels", wild[0].item(), "repair it")
        return shape

    def _number(self, item: Item) -> float | None:
        """The label of a shape, to regress."""
        number = number_of(str(item.label))
        if item.label is not None and number is None:
            got = f"{item.label!r}"
            raise fault(item.path, "a number to regress", got, 'task="classify"')
        return number

    def _number_of(self, item: Item) -> int:
        if item.label not in self.classes:
            raise fault(
                item.path,
                f"a class of {', '.join(self.classes)}",
                f"{item.label!r}",
                "a folder of the classes that are known",
            )
        return self.classes.index(item.label)

    def _again(self, number: int) -> Shape:
        item = self.items[number]
        if _stamp(item) != self._surveys[number].stamp:
            raise fault(
                item.path,
                "the file that was there",
                "one that has changed since",
                "ShapeFolder(...) again, which reads it anew",
            )
        return self._typed(self._with_label(item, item.load()))

    def _typed(self, shape: Shape) -> Shape:
        as_of(shape, self.depths)
        for name in self.left:
            if name in shape:
                del shape[name]
        for name, value in shape.items():
            if value.dtype.is_floating_point and not (name == "pos" and self._coarse):
                shape[name] = value.float()
            elif name in ("pos", "normal") or (name == "y" and self._floats):
                if name == "pos" and self._coarse:
                    shape[name] = value.double()
                else:
                    shape[name] = value.float()
            elif name in self._scaled:
                shape[name] = value.float()  # as those are that were scaled
            elif name != "y" and value.dtype in (torch.uint16, torch.uint32, torch.uint64):
                shape[name] = value.long()  # torch computes little with these
        if self._coarse:
            shape.pos = shape.pos.double()
        return shape

    def _task(self, num_classes: int | None) -> str:
        """The task of the labels, once they are in range and every class has two shapes."""
        self._floats = self._asked_task == "regress" or any(
            label.dtype.is_floating_point for label in self.labels
        )
        self._loaded = {number: self._typed(shape) for number, shape in self._loaded.items()}
        if self._floats:
            self.labels = [label.float() for label in self.labels]
            return self._checked_task("regress")
        most = num_classes or len(self.classes) or 1 << 16
        for number, label in enumerate(self.labels):
            if int(label.min()) < -1:
                fix = 'task="regress" (--task regress) for numbers, or repair it'
                raise fault(self.items[number].path, "labels from -1", int(label.min()), fix)
            if int(label.max()) >= most:
                got = f"{int(label.max())}"
                advice = "a name for each class, or ignore"
                if num_classes or not self._few:
                    advice = "num_classes"
                raise fault(self.items[number].path, f"labels 0 to {most - 1}", got, advice)
        if not all(len(label) == 1 for label in self.labels):
            largest = max(int(label.max()) for label in self.labels)
            if largest < 0:
                if self.ignore:
                    got = "none but those to ignore"
                else:
                    got = "none but -1"
                raise fault(self.root, "labels from 0", got, "label some points")
            if not self.classes:
                self.classes = tuple(map(str, range(num_classes or largest + 1)))
                self.classes = tuple(self._names.get(value, str(value)) for value in self.values)
            return self._checked_task("segment")
        for number, label in enumerate(self.labels):
            if int(label) < 0:
                raise fault(self.items[number].path, "a class from 0", int(label), "leave it out")
        count = Counter(int(label) for label in self.labels)
        self.classes = self.classes or tuple(map(str, range(num_classes or max(count) + 1)))
        for number, label in enumerate(self.labels):
            if count[int(label)] < 2 and not self._few:
                raise fault(
                    self.items[number].path,
                    "two shapes or more of each class",
                    f"only this one of {self.classes[int(label)]!r}",
                    "add another, or leave the class out",
                )
        return self._checked_task("classify")

    def _checked_task(self, task: str) -> str:
        if self._asked_task not in (None, task):
            got = {
                "classify": "a class of each shape",
                "segment": "a class of each point",
                "regress": "numbers",
            }[task]
            raise fault(self.items[0].path, f"labels to {self._asked_task}", got, f"task={task!r}")
        return task


def _have(properties: dict[str, tuple[int, ...]], name: str) -> str:
    """The property in words, with the shape of its rows."""
    if name not in properties:
        return f"have no {name}"
    return " ".join(("have", name, *(f"({size} numbers)" for size in properties[name])))


def plain_name(name: str) -> str:
    """The name of a property without CloudCompare's prefix: ``label`` for ``scalar_Label``."""
    return name.removeprefix("scalar_").lower()


def _natural(name: str) -> tuple[Any, ...]:
    """2 before 10."""
    if name.isdecimal():
        return (0, int(name), name)
    return (1, 0, name)


def _stamp(item: Item) -> tuple[int, ...]:
    if item.path.is_file():
        paths = [item.path]
    elif item.path.is_dir():
        paths = sorted(item.path.rglob("*.txt"))
    else:
        paths = [item.path]
    try:
        return tuple(
            number for path in paths for number in (path.stat().st_size, path.stat().st_mtime_ns)
        )
    except OSError as error:
        raise LoaderError(
            f"{item.path}: expected a file, got: {error.strerror}. Try: check the list that names "
            "it."
        ) from None


def _first(classes: Sequence[str]) -> str:
    """The names of at most nine classes."""
    names = ", ".join(classes[:9])
    if len(classes) > 9:
        return f"{names}, ..."
    return names
