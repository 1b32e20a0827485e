"""Shapes of a folder as a model reads them: made once, kept, turned in training, and packed."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ...graphs import Hierarchy
from ...graphs.points.cloud_cache import _bytes
from ...io.reading import fault
from ...pyg import Batch, Compose, Data, RandomJitter
from ...shapes import (
    PointBatches,
    RandomDrop,
    RandomMirror,
    RandomRotation,
    RandomStretch,
    Trajectory,
)
from ...shapes.seeded import seeded
from .elements import count_of
from .inputs import ShapeInputs
from .placing import radius_of

#: Changes of a shape in training. Those that are rigid leave its graphs as they are.
RIGID: dict[str, Callable[[], Any]] = {"rotation": RandomRotation, "mirror": RandomMirror}
OTHERS: dict[str, Callable[[], Any]] = {
    "stretch": RandomStretch,
    "drop": lambda: RandomDrop(0.3),
    "jitter": lambda: RandomJitter(0.005),
}
_LEAST_DRAWN = 0.5  # chance of a block beside that of a usual one
_MOST_DRAWN = 4.0
_KEPT = 2 << 30  # bytes of shapes that stay in memory


class StillBatch(NamedTuple):
    """Packed shapes that do not change, on the device of a model."""

    x: Tensor
    levels: Hierarchy
    y: Tensor | None
    sizes: list[int]  # points of each shape


class Prepared(Dataset):
    """The shapes of a folder, or some of them, as a model reads them.

    Args:
        folder: A :class:`~graphattn.shapes.ShapeFolder`, or a list of shapes.
        numbers: Which of them.
        inputs: What is read.
        augment: Words of :data:`RIGID` and :data:`OTHERS`; none where nothing is learned.
        like: Another one of the same inputs, whose shapes are shared.
    """

    def __init__(
        self,
        folder: Any,
        numbers: list[int],
        inputs: ShapeInputs,
        augment: tuple[str, ...] = (),
        like: "Prepared | None" = None,
    ) -> None:
        self.folder = folder
        self.numbers = numbers
        self.inputs = inputs
        # cells of a grid are others when a shape is turned
        fixed = () if inputs.patch else tuple(RIGID)
        changes = RIGID | OTHERS
        if inputs.upward:  # which stays where it is
            axis = "xyz".index(inputs.upward)
            changes |= {
                "rotation": lambda: RandomRotation(axis),
                "mirror": lambda: RandomMirror((axis + 1) % 3),
            }
        self.rigid = [changes[word]() for word in augment if word in fixed]
        self.others = Compose([changes[word]() for word in augment if word not in fixed])
        self._kept: dict[int, Data] = {} if like is None else like._kept
        self._packed: dict[tuple[int, str, int], StillBatch] = {}
        self._room: list[int] = [_KEPT] if like is None else like._room
        sizes = torch.as_tensor(folder.sizes)[torch.tensor(numbers, dtype=torch.int64)]
        if inputs.elements:
            sizes = torch.tensor(
                [count_of(folder[number], inputs.elements) for number in numbers], dtype=torch.int64
            )
        limit = inputs.sample
        if limit:
            self.sizes = sizes.clamp(max=limit)
        else:
            self.sizes = sizes
        if limit and numbers and "face" in folder[numbers[0]]:
            self.sizes = torch.full_like(sizes, limit)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Data:
        number = self.numbers[index]
        with seeded(getattr(index, "seed", None)):
            if self.others.transforms:
                # jitter and the like are in units of the radius
                shape = self.folder[number]
                radius = radius_of(shape.pos).clamp(min=1e-30)
                shape.pos = shape.pos / radius
                shape = self.others(shape)
                shape.pos = shape.pos * radius
                data = self.inputs(shape, self.name(index))
            else:
                data = self.static(index)
            for turn in self.rigid:
                data = self.inputs.turned(data, turn.matrix())
        return data

    def static(self, index: int) -> Data:
        """The shape as it is, made once where there is room."""
        number = self.numbers[index]
        data = self._kept.get(number)
        if data is None:
            data = self.inputs(self.folder[number], self.name(index))
            if self._has_room(_bytes(data.levels) + data.x.nbytes):
                self._kept[number] = data
        return data

    def _has_room(self, size: int) -> bool:
        """True, and so many bytes are taken, if as many are left."""
        if size > self._room[0]:
            return False
        self._room[0] -= size
        return True

    def keep_nothing(self) -> None:
        """Hold no shape in memory: each is read once."""
        self._room = [0]

    def share_memory(self, number: int) -> None:
        """Leave room in memory for so many processes that hold shapes."""
        self._room = [self._room[0] // number]

    def name(self, index: int) -> str:
        """The file of a shape."""
        return str(self.folder.name(self.numbers[index]))

    def chances(self, weights: tuple[float, ...]) -> Tensor | None:
        """Weight of each scene or block in draws: the mean weight of its labels, from 1/2 to 4.

        ``None`` where classes have no weights, and of shapes that are no scenes: each once.
        """
        if not (weights and self.inputs.grid):
            return None
        weight = torch.tensor(weights, dtype=torch.float64)
        means = [weight[label[label >= 0]].sum() / max(1, len(label)) for label in self.labels()]
        return torch.stack(means).clamp(_LEAST_DRAWN, _MOST_DRAWN)

    def labels(self) -> list[Tensor]:
        """``y`` of each shape."""
        labels = self.folder.labels  # of windows, each computed
        return [labels[number] for number in self.numbers]

    def batches(self, points: int, **options: Any) -> PointBatches:
        """Packed batches of at most ``points`` points, or of one shape that is larger."""
        most = max(points, int(self.sizes.max()))
        return PointBatches(self, most, **{"shuffle": False, **options})

    def still(self, points: int, device: torch.device | str) -> Iterator[StillBatch]:
        """Packed batches of the shapes as they are, on a device.

        A batch is packed once where there is room, and keeps the plans of its graphs: so that what
        a validation part takes beside the model is taken in the first epoch alone.
        """
        for number, shapes in enumerate(self.batches(points).plan()):
            key = (points, str(device), number)
            batch = self._packed.get(key)
            if batch is None:
                packed = Batch.from_data_list([self.static(int(shape)) for shape in shapes])
                batch = StillBatch(*joined(packed, device), packed.ptr.diff().tolist())
                if self._has_room(_bytes(batch.levels) + batch.x.nbytes):
                    self._packed[key] = batch
            yield batch


class OneShape:
    """A shape or a trajectory in the place of a folder."""

    def __init__(self, shape: Any, name: str) -> None:
        self._shape = shape
        self._name = name
        self.sizes = [shape.pos.shape[-2]]
        self.labels = [torch.full((self.sizes[0],), -1)]

    def __getitem__(self, index: int) -> Any:
        return self._shape

    def name(self, index: int) -> str:
        """Its file."""
        return self._name


def joined(batch: Any, device: torch.device | str) -> tuple[Tensor, Hierarchy, Tensor | None]:
    """Features, levels and labels of a packed batch."""
    levels = Hierarchy.join(batch.levels).to(device)
    return batch.x.to(device), levels, None if batch.y is None else batch.y.to(device)


def digests(folder: Any) -> dict[str, str]:
    """Digests of the files of a folder, 16 letters each."""
    file_digests = {}
    for number in range(len(folder)):
        shape = folder[number]
        digest = hashlib.blake2b(digest_size=8)
        if isinstance(shape, Trajectory):
            shape = shape.tensors()
        for name in sorted(shape.keys()):
            value = shape[name]
            if isinstance(value, Tensor):
                digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(np.ascontiguousarray(value.numpy()).tobytes())
        file_digests[folder.name(number)] = digest.hexdigest()
    return file_digests


def same_files(folder: Any, expected: dict[str, str]) -> None:
    """Refuse a folder whose files are not those that training began with."""
    current = digests(folder)
    for name in sorted({*current, *expected}):
        if current.get(name) != expected.get(name):
            fix = "bring it back, or train anew in another folder"
            if name not in current:
                got = "none"
            elif name not in expected:
                got = "a new one"
                fix = "take it out of the folder, or train anew in another"
            else:
                got = "one that has changed since"
            raise fault(folder.root / name, "the file that training began with", got, fix)
