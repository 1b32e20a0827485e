"""Parts of a folder for training, validation and testing."""

import json
from itertools import chain, pairwise
from typing import Any

import numpy as np
from torch.utils.data import Subset

from ..arguments import real, whole
from ..io.reading import fault
from ..io.writing import save_page

_ORDERS = 16  # that are drawn of scenes, of which the one with the most equal parts is taken


class Splits(dict[str, Subset]):
    """Parts of a folder by name, which can be written down and said."""

    said: str

    def __init__(self, folder: Any, parts: dict[str, list[int]], description: str) -> None:
        super().__init__({name: Subset(folder, numbers) for name, numbers in parts.items()})
        self.folder = folder
        self.said = description

    def save(self, path: Any) -> None:
        """Write the names of the files of each part, as JSON."""
        names = {name: [self.folder.name(i) for i in part.indices] for name, part in self.items()}
        save_page(path, json.dumps({"said": self.said, "files": names}, indent=1))

    def __str__(self) -> str:
        return f"{', '.join(f'{len(part):,} {name}' for name, part in self.items())} ({self.said})"


def drawn(folder: Any, val: float, test: float, seed: int) -> Splits:
    """Parts that the folder names, and others drawn from the rest, class by class."""
    shares = {"test": real(test, "test"), "val": real(val, "val")}
    if min(shares.values()) < 0 or sum(shares.values()) >= 1:
        raise fault(
            "val and test", "shares from 0 with a sum below 1", f"{val} and {test}", "0.1 and 0.2"
        )
    parts: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    for number, item in enumerate(folder.items):
        parts[item.split or "train"].append(number)
    drawn_shares = {part: share for part, share in shares.items() if share and not parts[part]}
    if parts["test"]:
        drawn_shares = {part: share for part, share in drawn_shares.items() if part == "val"}
    if parts["val"] or parts["test"]:
        source = "as the folder says"
    else:
        source = ""
    draw = np.random.default_rng(whole(seed, "seed", 0))
    pool = parts["train"]
    groups: Any = []
    if drawn_shares:
        parts["train"] = []
        if folder.task != "classify":
            groups = [pool]
        else:
            label = [int(folder.labels[number]) for number in pool]
            groups = [
                [
                    n
                    for n, shape_label in zip(pool, label, strict=True)
                    if shape_label == class_number
                ]
                for class_number in sorted(set(label))
            ]
    for group in groups:
        order = draw.permutation(group).tolist()
        sizes = {}
        left = len(order)
        for part, share in drawn_shares.items():
            sizes[part] = min(max(round(share * len(order)), 1), left - 1)
            left -= sizes[part]
        if folder.task == "segment":
            orders = [order, *(draw.permutation(order).tolist() for _ in range(_ORDERS - 1))]
            order = _most_equal(folder, orders, list(sizes.values()))
            order = _with_classes(order, list(sizes.values()), folder.present(order))
        at = 0
        for part, count in sizes.items():
            parts[part] += order[at : at + count]
            at += count
        parts["train"] += order[at:]
    if source:
        method = f"{' and '.join(drawn_shares)} drawn by seed {seed}"
    else:
        method = f"drawn by seed {seed}"
    if folder.task not in ("regress", "simulate"):
        every = folder.present(range(len(folder))).any(0)
        lack = {
            part: int((every & ~folder.present(parts[part]).any(0)).sum())
            for part in (*drawn_shares, "train")
        }
        less = [
            f"{part} without {count} of {int(every.sum())} classes"
            for part, count in lack.items()
            if count
        ]
        method += ", " + (", ".join(less) or "each class in these parts")
    text = "; ".join(part for part in (source, method if drawn_shares else "") if part)
    return Splits(
        folder,
        {name: sorted(numbers) for name, numbers in parts.items()},
        text or "all to train on",
    )


def _most_equal(folder: Any, orders: list[list[int]], sizes: list[int]) -> list[int]:
    """The order whose parts lack the fewest classes and have the most equal shares of each.

    The first of several alike.
    """
    count = folder.counts(orders[0])
    total = count.sum(0)
    row = {number: at for at, number in enumerate(orders[0])}
    ends = np.cumsum([0, *sizes, len(orders[0]) - sum(sizes)])

    def unequal(order: list[int]) -> tuple[int, float]:
        of_shapes = count[[row[number] for number in order]]
        parts = np.stack([of_shapes[a:b].sum(0) for a, b in pairwise(ends)])[:, total > 0]
        share = parts / total[total > 0]
        expected = np.diff(ends)[:, None] / len(order)
        return int((parts == 0).sum()), round(float(abs(share - expected).sum()), 9)

    return min(orders, key=unequal)


def _with_classes(order: list[int], sizes: list[int], present: np.ndarray) -> list[int]:
    """The shapes in an order whose parts, of these sizes, have each class where they can.

    An order that is so already stays as it is. Else the rest, to train on, gets each class first,
    and then the last part, by which epochs are chosen.
    """
    rest = len(order) - sum(sizes)
    ends = np.cumsum([0, *sizes, rest])
    if all(present[a:b].any(0).sum() == present.any(0).sum() for a, b in pairwise(ends)):
        return order
    left = np.ones(len(order), bool)

    def taken(size: int, *, few: bool = False) -> list[int]:
        """Shapes that add the most classes; ``few`` of them are as many as do."""
        part: list[int] = []
        while len(part) < size:
            gain = (present & ~present[part].any(0)).sum(1)
            best = int((left * (1 + gain)).argmax())  # the first of those alike
            if few and gain[best] == 0:
                break
            part.append(best)
            left[best] = False
        return part

    train = taken(rest, few=True)
    parts = [taken(size) for size in sizes[::-1]][::-1]
    return [order[at] for at in (*chain.from_iterable(parts), *train, *np.flatnonzero(left))]
