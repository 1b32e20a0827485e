"""Packed batches: shapes up to a budget of points, in a seeded order that can be resumed."""

import signal
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakMethod

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from ..arguments import flag, integers, whole
from ..errors import OptionError
from ..pyg import DataLoader


class Draw(int):
    """The number of a shape, and the seed of what its transform draws."""

    seed: int


#: A function of an order, which gives the shapes of one batch after another and may be iterated
#: once for each epoch, to what makes those batches.
Loader = Callable[[Iterable[list[Draw]]], Iterable[Any]]


class Order:
    """The shapes of the batches that are to come, as their :class:`PointBatches` stand."""

    def __init__(self, following: Callable[[], list[list[Draw]]]) -> None:
        self._following = following

    def __iter__(self) -> Iterator[list[Draw]]:
        return iter(self._following())

    def __len__(self) -> int:
        return len(self._following())


class PointBatches:
    r"""Batches of at most ``points`` points, without padding: ``pos``, PyG's ``batch`` and ``ptr``.

    Args:
        dataset: A :class:`ShapeFolder`, a part of its split, or any ``Dataset`` of ``Data``.
        points: The most of all shapes of a batch together.
        shuffle: A new order in each epoch.
        seed: Of the orders, and of what the transforms of a :class:`ShapeFolder` draw, which
            depends on nothing else but the epoch and the shape: not on the number of workers, nor
            on where training was resumed.
        num_workers: Processes that load; 0 is this one. They live as long as this object, so that
            what a dataset caches in them serves later epochs, too.
        sizes: (len(dataset),) numbers of points, if the dataset is none of the first two.
        share: (process, number of processes) that share each batch: every so many-th of its shapes;
            the first one where it has none for this process.
        loader: What makes batches of their shapes, in place of PyG's ``DataLoader``.
        chances: (len(dataset),) how often a shape is drawn beside the others; an epoch then draws as
            many shapes as there are, some of them several times. By default each is there once.

    Iterating is one epoch, from its first batch; one that was left early is not gone on with. Only
    after ``load_state_dict(state_dict())`` the next one begins behind the last batch.

    Example:
        >>> from torch_geometric.data import Data
        >>> shapes = [Data(pos=torch.rand(size, 3)) for size in (5, 7, 4, 6)]
        >>> batches = PointBatches(shapes, 12, sizes=[5, 7, 4, 6], shuffle=False)
        >>> [batch.ptr.tolist() for batch in batches]
        [[0, 5, 12], [0, 4, 10]]
    """

    def __init__(
        self,
        dataset: Any,
        points: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        num_workers: int = 0,
        sizes: Tensor | list[int] | None = None,
        share: tuple[int, int] = (0, 1),
        loader: Loader | None = None,
        chances: Tensor | None = None,
    ) -> None:
        self.points = whole(points, "points", 1)
        self.seed = whole(seed, "seed", 0)
        self.shuffle = flag(shuffle, "shuffle")
        self.num_workers = whole(num_workers, "num_workers", 0)
        self.share = share
        self.dataset = dataset
        self._numbers = torch.arange(len(dataset))
        while isinstance(self.dataset, Subset):
            self._numbers = torch.as_tensor(self.dataset.indices)[self._numbers]
            self.dataset = self.dataset.dataset
        dataset_sizes = getattr(self.dataset, "sizes", None)
        if sizes is None and dataset_sizes is not None:
            sizes = torch.as_tensor(dataset_sizes)[self._numbers]
        self._sizes = integers(sizes, "sizes", "(len(dataset),)")
        if len(self._sizes) != len(self._numbers) or not len(self._sizes):
            raise OptionError(
                f"sizes must be {len(self._numbers)} numbers, at least one, got {len(self._sizes)}"
            )
        self._chances = chances
        if chances is not None:
            size = len(self._numbers)
            if chances.shape != (size,) or not bool(((chances > 0) & chances.isfinite()).all()):
                raise OptionError(
                    f"chances must be {size} finite numbers above 0, got {chances.tolist()}"
                )
        big = int(self._sizes.argmax())
        if int(self._sizes[big]) > self.points:
            if hasattr(self.dataset, "name"):
                name = self.dataset.name(int(self._numbers[big]))
            else:
                name = f"shape {big}"
            raise OptionError(
                f"points must be at least {int(self._sizes[big])}, those of {name}, got "
                f"{self.points}"
            )
        self.epoch = 0
        self.position = 0
        self._resumed = False
        self._loader: Iterable[Any] | None = None
        self._new_loader = loader

    def __len__(self) -> int:
        return len(self.plan())

    def plan(self) -> list[list[Draw]]:
        """The shapes of each batch of this epoch."""
        draw = torch.Generator().manual_seed(mixed(self.seed, self.epoch))
        if self._chances is not None:
            order = _drawn(self._chances, draw)
        elif self.shuffle:
            order = torch.randperm(len(self._sizes), generator=draw)
        else:
            order = torch.arange(len(self._sizes))
        batches: list[list[Draw]] = []
        room = 0
        for size, number in zip(
            self._sizes[order].tolist(), self._numbers[order].tolist(), strict=True
        ):
            if size > room:
                batches.append([])
                room = self.points
            one = Draw(number)
            one.seed = mixed(self.seed, self.epoch, number)
            batches[-1].append(one)
            room -= size
        return batches

    def __iter__(self) -> Iterator[Any]:
        if self.position and not self._resumed:  # the last epoch was left early
            self.epoch = self.epoch + 1
            self.position = 0
        self._resumed = False
        epoch = self.epoch
        start = self.position
        if self._loader is None:
            # its order must not keep this object, and so the workers, alive
            following = WeakMethod(self._following)
            self._loader = self._made_loader(Order(lambda: _called(following)))
        with without_interrupts():  # Ctrl-C reaches workers, too, and is this process's to answer
            batches = iter(self._loader)
        for position, batch in enumerate(batches, start + 1):
            self.epoch = epoch
            self.position = position
            yield batch
        self.epoch = epoch + 1
        self.position = 0

    def _following(self) -> list[list[Draw]]:
        """This process's shapes of each batch of this epoch from the position on."""
        process, number = self.share
        return [batch[process::number] or batch[:1] for batch in self.plan()[self.position :]]

    def _made_loader(self, order: Iterable[list[Draw]]) -> Iterable[Any]:
        if self._new_loader is not None:
            return self._new_loader(order)
        return DataLoader(
            self.dataset,
            batch_sampler=order,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
        )

    def state_dict(self) -> dict[str, int]:
        """The position: of the batch that was yielded last, the next one."""
        return {"epoch": self.epoch, "position": self.position, "of": self._of()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there, if the shapes, the budget and the seed are the same."""
        if state["of"] != self._of():
            raise OptionError(
                "state must be of the same shapes, points, shuffle and seed, got that of others"
            )
        self.epoch = state["epoch"]
        self.position = state["position"]
        self._resumed = True
        if self.position >= len(self):
            self.epoch = self.epoch + 1
            self.position = 0

    def _of(self) -> int:
        identity = torch.cat(
            (self._sizes, self._numbers, torch.tensor([self.points, self.shuffle, self.seed]))
        )
        number = zlib.crc32(identity.numpy().tobytes())
        if self._chances is None:
            return number
        return zlib.crc32(self._chances.double().numpy().tobytes(), number)


def _drawn(chances: Tensor, draw: torch.Generator) -> Tensor:
    """Numbers, as many as there are chances, each about as often as it says, in random order.

    A number is drawn its expected number of times, rounded up or down (systematic sampling).
    """
    size = len(chances)
    ends = (chances.double() / chances.double().sum() * size).cumsum(0)
    marks = torch.arange(size) + torch.rand((), generator=draw, dtype=torch.float64)
    order = torch.searchsorted(ends, marks, right=True).clamp(max=size - 1)
    return order[torch.randperm(size, generator=draw)]


def _called(method: "WeakMethod[Callable[[], list[list[Draw]]]]") -> list[list[Draw]]:
    """The result of a method of an object that is alive."""
    function = method()
    assert function is not None
    return function()


@contextmanager
def without_interrupts() -> Iterator[None]:
    """SIGINT waits, in this thread and for good in the processes that it starts."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def mixed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
