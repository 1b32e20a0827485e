"""Parts of a folder for training, validation and testing."""

import json
from typing import Any

import numpy as np
from torch.utils.data import Subset

from ..arguments import real, whole
from ..convert.files._replace import save_page
from ..errors import LoaderError


class Splits(dict[str, Subset]):
    """Parts of a folder by name, which can be written down and said."""

    said: str

    def __init__(self, folder: Any, parts: dict[str, list[int]], said: str) -> None:
        super().__init__({name: Subset(folder, numbers) for name, numbers in parts.items()})
        self.folder, self.said = folder, said

    def save(self, path: Any) -> None:
        """Write the names of the files of each part, as JSON."""
        names = {name: [self.folder.name(i) for i in part.indices] for name, part in self.items()}
        save_page(path, json.dumps({"said": self.said, "files": names}, indent=1))

    def __str__(self) -> str:
        return f"{', '.join(f'{len(part):,} {name}' for name, part in self.items())} ({self.said})"


def drawn(folder: Any, val: float, test: float, seed: int) -> Splits:
    """Those parts that the folder says, and others drawn from the rest, class by class."""
    shares = {"test": real(test, "test"), "val": real(val, "val")}
    if min(shares.values()) < 0 or sum(shares.values()) >= 1:
        got = f"{val} and {test}"
        raise LoaderError(f"val and test: expected shares from 0 with a sum below 1, got {got}. Try: 0.1 and 0.2.")
    parts: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    for number, item in enumerate(folder.items):
        parts[item.split or "train"].append(number)
    asked = {part: share for part, share in shares.items() if share and not parts[part]}
    asked = asked if not parts["test"] else {part: share for part, share in asked.items() if part == "val"}
    said = "as the folder says" if parts["val"] or parts["test"] else ""
    draw, pool = np.random.default_rng(whole(seed, "seed", 0)), parts["train"]
    if asked:
        parts["train"] = []
    for group in _groups(folder, pool) if asked else []:
        order, at = draw.permutation(group).tolist(), 0
        for part, share in asked.items():
            many = min(max(round(share * len(order)), 1), len(order) - at - 1)
            parts[part] += order[at : at + many]
            at += many
        parts["train"] += order[at:]
    how = f"{' and '.join(asked)} drawn by seed {seed}" if said else f"drawn by seed {seed}"
    if folder.task == "classify":
        every = {int(label) for label in folder.labels}
        lack = {part: every - {int(folder.labels[number]) for number in parts[part]} for part in (*asked, "train")}
        less = [f"{part} without {len(lack[part])} of {len(every)} classes" for part in lack if lack[part]]
        how += ", " + (", ".join(less) or "each class in these parts")
    text = "; ".join(part for part in (said, how if asked else "") if part)
    return Splits(folder, {name: sorted(numbers) for name, numbers in parts.items()}, text or "all to train on")


def _groups(folder: Any, numbers: list[int]) -> list[list[int]]:
    if folder.task != "classify":
        return [numbers]
    label = [int(folder.labels[number]) for number in numbers]
    return [[n for n, own in zip(numbers, label, strict=True) if own == each] for each in sorted(set(label))]
