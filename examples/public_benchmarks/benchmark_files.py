"""Readers of public benchmarks from files that are there: nothing is downloaded.

Graphs are read by PyG's own datasets (LRGB: Dwivedi et al. 2022; ZINC: Dwivedi et al. 2023), which
unpickle: read only files that you trust. Sequences (Long Range Arena: Tay et al. 2021) are read
from the released archive's layout.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.datasets import ZINC, LRGBDataset

from graphattn.errors import LoaderError

SPLITS = ("train", "val", "test")
LISTOPS = {
    token: number
    for number, token in enumerate([*"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]"], 1)
}


class Sequences(NamedTuple):
    """Samples of tokens, 1 and up, of their own lengths, and the class of each."""

    tokens: list[Tensor]
    labels: Tensor


def need(root: Path, names: list[str], source: str) -> None:
    """Refuse a folder that lacks files.

    Raises:
        LoaderError: With their names, and where they are published.
    """
    missing = [name for name in names if not (root / name).exists()]
    if missing:
        raise LoaderError(
            f"{root}: expected {', '.join(missing)}, which are published at {source}; nothing is "
            "downloaded"
        )


def lrgb(root: str | Path, name: str) -> dict[str, list[Data]]:
    """``"PascalVOC-SP"``, ``"Peptides-func"`` or ``"Peptides-struct"``, from
    ``root/NAME/raw/train.pickle`` or ``.pt``.

    Nodes have features x (N, 14) or the integers of 9 properties of atoms; edges (E, 2) or (E, 3),
    as floats.
    """
    ending, folder = ("pickle" if name.lower().endswith("-sp") else "pt"), f"{name.lower()}/raw"
    need(
        Path(root),
        [f"{folder}/{split}.{ending}" for split in SPLITS],
        LRGBDataset.urls[name.lower()],
    )
    return {
        split: [_floats(data) for data in LRGBDataset(str(root), name, split)] for split in SPLITS
    }


def zinc(root: str | Path) -> dict[str, list[Data]]:
    """The subset of 12,000 molecules, from ``root/raw/train.pickle``, ``train.index``, ...

    Nodes have the kind of their atom, x (N, 1); edges the kind of their bond, one of 4, as (E, 4).
    """
    need(
        Path(root),
        [f"raw/{split}.{ending}" for split in SPLITS for ending in ("pickle", "index")],
        ZINC.url,
    )
    every = {split: list(ZINC(str(root), subset=True, split=split)) for split in SPLITS}
    for data in (data for of_split in every.values() for data in of_split):
        data.edge_attr = F.one_hot(data.edge_attr, 4).float()
    return every


def _floats(data: Data) -> Data:
    data.edge_attr = data.edge_attr.float()
    return data


def listops(root: str | Path, length: int = 2_000) -> dict[str, Sequences]:
    """ListOps from ``root/basic_train.tsv``, ...: a header, then an expression and its value,
    without parentheses.
    """
    need(Path(root), [f"basic_{split}.tsv" for split in SPLITS], ARENA)
    return {split: _listops(Path(root) / f"basic_{split}.tsv", length) for split in SPLITS}


def _listops(path: Path, length: int) -> Sequences:
    tokens, labels = [], []
    for number, line in enumerate(path.read_text("utf-8").splitlines()[1:], 2):
        source, _, target = line.partition("\t")
        words = source.replace("(", " ").replace(")", " ").split()
        if not target.strip().isdigit() or not set(words) <= LISTOPS.keys():
            raise LoaderError(
                f"{path}, line {number}: expected an expression, a tab and its value, got "
                f"{line[:60]!r}"
            )
        tokens.append(torch.tensor([LISTOPS[word] for word in words[:length]], dtype=torch.uint8))
        labels.append(int(target))
    return Sequences(tokens, torch.tensor(labels))


def imdb(root: str | Path, length: int = 4_000) -> dict[str, Sequences]:
    """Reviews as bytes, from ``root/train/pos/*.txt``, ``train/neg``, ``test/pos``, ``test/neg``.

    As the arena has it, the test set is the validation set, too.
    """
    need(
        Path(root),
        [f"{split}/{kind}" for split in ("train", "test") for kind in ("neg", "pos")],
        "ai.stanford.edu",
    )
    every = {split: _reviews(Path(root) / split, length) for split in ("train", "test")}
    return {"train": every["train"], "val": every["test"], "test": every["test"]}


def _reviews(folder: Path, length: int) -> Sequences:
    files = [
        (path, label)
        for label, kind in enumerate(("neg", "pos"))
        for path in sorted((folder / kind).glob("*.txt"))
    ]
    texts = [
        np.frombuffer(path.read_bytes()[:length], np.uint8).astype(np.int16) + 1
        for path, _ in files
    ]
    return Sequences(
        [torch.from_numpy(text) for text in texts], torch.tensor([label for _, label in files])
    )


def pathfinder(root: str | Path) -> dict[str, Sequences]:
    """Pixels row by row, from the folder of a difficulty, ``root/imgs/0/sample_0.png`` and
    ``root/metadata/*.npy``.

    These are text, ``imgs/0 sample_0.png 0 1 ...``, whose fourth word is the label. 80 % train, 10
    % validate and 10 % test, in the order of the files.
    """
    need(Path(root), ["metadata", "imgs"], ARENA)
    every = list(_pixels(Path(root)))
    cuts = [0, round(0.8 * len(every)), round(0.9 * len(every)), len(every)]
    parts = [every[first:last] for first, last in pairwise(cuts)]
    made = [
        Sequences([x for x, _ in part], torch.tensor([label for _, label in part]))
        for part in parts
    ]
    return dict(zip(SPLITS, made, strict=True))


def _pixels(root: Path) -> Iterator[tuple[Tensor, int]]:
    from PIL import Image

    for path in sorted((root / "metadata").glob("*.npy"), key=lambda path: int(path.stem)):
        for line in path.read_text("utf-8").splitlines():
            words = line.split(" ")
            if len(words) < 4 or words[3] not in ("0", "1"):
                raise LoaderError(
                    f"{path}: expected a folder, a file, a number and a label, got {line[:60]!r}"
                )
            with Image.open(root / words[0] / words[1]) as image:
                yield (
                    torch.from_numpy(np.asarray(image.convert("L"), np.int16).flatten() + 1),
                    int(words[3]),
                )


ARENA = "github.com/google-research/long-range-arena (lra_release.gz)"
