"""Scans that never lose to their own forest: ``python examples/scans.py WORK``.

``--model best`` beside the forest of the same product, on the same split, over three seeds: eight
tiles of a real labelled scan, eight of another (ground against the rest), eight generated tiles a
seed, and twelve generated LiDAR scans a seed (36 in all). The real ones ship in the source release
of laspy, which is fetched from PyPI into WORK; ``--sets twins scenes`` need no network. What is
there already is not trained again. The choice of ``best`` is made on the validation part; scores
are those of the test part.
"""

import argparse
import hashlib
import json
import tarfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import generated_shapes as shapes
import numpy as np
import torch

import graphattn as ga
from graphattn.io.writing import save_page
from graphattn.statistics.paired import difference
from graphattn.training.evaluate import evaluated
from graphattn.training.models.best import SHARES
from graphattn.training.run import Run

RELEASE = "laspy-2.7.0"
URL = (
    "https://files.pythonhosted.org/packages/9c/5d/"
    f"5a540ac25dcc57fa77691363bb753363b192a3759aefef4b40e1250ddb17/{RELEASE}.tar.gz"
)
SHA256 = "f56feb5445e75d6ff12ee814aab6a35339290e75264ff277c6bf553f3025a3f5"


def fetched(work: Path, name: str) -> Path:
    """A file of the tests of laspy, fetched once.

    Raises:
        ValueError: If the release is another than was looked at.
    """
    path = work / name
    if path.exists():
        return path
    work.mkdir(parents=True, exist_ok=True)
    archive = work / f"{RELEASE}.tar.gz"
    if not archive.exists():
        with urllib.request.urlopen(URL, timeout=60) as answer:
            data = answer.read()
        if hashlib.sha256(data).hexdigest() != SHA256:
            raise ValueError(f"{URL}: expected sha256 {SHA256}, got another file")
        archive.write_bytes(data)
    with tarfile.open(archive) as release:
        member = release.extractfile(f"{RELEASE}/tests/data/{name}")
        assert member is not None
        path.write_bytes(member.read())
    return path


def cut(work: Path, name: str, folder: Path, seed: int) -> None:
    """Eight tiles of a scan, four along x and two along y, with every dimension."""
    import laspy

    scan = laspy.read(fetched(work, name))
    folder.mkdir(parents=True)
    column = _part(np.asarray(scan.x), 4)
    row = _part(np.asarray(scan.y), 2)
    for number in range(8):
        tile = laspy.LasData(scan.header)
        tile.points = scan.points[2 * column + row == number]
        tile.write(folder / f"{number}.las")


def _part(values: np.ndarray, parts: int) -> np.ndarray:
    """The part, of equal lengths, that each value is in."""
    share = (values - values.min()) / np.ptp(values)
    return np.minimum((share * parts).astype(int), parts - 1)


@dataclass(frozen=True)
class Scans:
    """A folder for each seed, and how it is trained on."""

    make: Callable[..., None]
    options: dict[str, Any] = field(default_factory=dict)


def sets_in(work: Path) -> dict[str, Scans]:
    """The sets of scans by name."""
    return {
        "tile": Scans(
            partial(cut, work, "file_with_both_wkt_and_geotiff_vlrs.las"),
            {"ignore": [7]},  # 25 points of noise
        ),
        "autzen": Scans(partial(cut, work, "autzen_trim.laz"), {"epochs": 12}),
        "twins": Scans(lambda folder, seed: shapes.tiles(folder, each=8, seed=seed)),
        "scenes": Scans(
            lambda folder, seed: shapes.scenes(folder, each=14, test=12, seed=seed), {"epochs": 10}
        ),
    }


def of_parts(run_folder: Path) -> dict[str, float]:
    """Mean IoU of each candidate on the test part."""
    run = Run.load(run_folder).here()
    model: Any = run.trained_model()
    folder = run.read_folder(run.folder)
    numbers = [i for i in range(len(folder)) if folder.name(i) in set(run.split["test"])]
    scores = {}
    for name, share in SHARES.items():
        model.share.fill_(share)
        scores[name] = evaluated(model, run, folder, numbers, "test").scores["miou"]
    return scores


def record(scans: Scans, folder: Path, seed: int) -> dict[str, Any]:
    """Scores of a seed, kept in its folder."""
    path = folder / "record.json"
    if path.exists():
        kept: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return kept
    data = folder / "shapes"
    if not data.exists():
        unfinished = folder / f"shapes.{time.time_ns()}"
        scans.make(unfinished, seed=seed)
        unfinished.rename(data)
    run = folder / "run"
    start = time.process_time()
    if (run / "run.json").exists():
        result = ga.training.resume(run, data)
    else:
        how = {"model": "best", "control": ("forest",), **scans.options}
        result = ga.training.train(data, run, seed=seed, **how)
    each = [
        result.task.each(one.predictions, one.labels) for one in (result, result.controls["forest"])
    ]
    made = {
        "best": result.scores["miou"],
        "forest": result.controls["forest"].scores["miou"],
        "differences": (each[0] - each[1]).tolist(),
        "choice": result.choice,
        "test": of_parts(run),
        "cpu_s": round(time.process_time() - start, 1),
    }
    save_page(path, json.dumps(made, indent=1))
    return made


def row(name: str, records: list[dict[str, Any]]) -> str:
    """A line of the table."""
    best, forest = (torch.tensor([one[arm] for one in records]) for arm in ("best", "forest"))
    network = torch.tensor([one["test"]["the network"] for one in records])
    both = torch.tensor([one["test"]["the mean of both"] for one in records])
    means = [f"{float(values.mean()):.3f}" for values in (best, forest, network, both)]
    over_seeds = difference(best - forest)
    over_scans = difference(torch.tensor([x for one in records for x in one["differences"]]))
    chosen = ", ".join(one["choice"]["name"].removeprefix("the ") for one in records)
    holds = "yes"
    if over_seeds.is_negative:
        holds = "no"
    seconds = sum(one["cpu_s"] for one in records)
    cells = [name, *means, str(over_seeds), str(over_scans), holds, chosen, f"{seconds:.0f}"]
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| scans | best | its forest | network | mean of both | best less forest, over seeds | "
    "over scans | never below | chosen | CPU s |\n|---|---|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Train what is not trained yet, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("--sets", nargs="+", help="all by default")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    sets = sets_in(asked.work)
    names = asked.sets or list(sets)
    odd = [name for name in names if name not in sets]
    if odd:
        parser.error(f"--sets must be some of {', '.join(sets)}, got {odd[0]}")
    print(HEAD, flush=True)
    for name in names:
        folders = {seed: asked.work / name / str(seed) for seed in range(asked.seeds)}
        records = [record(sets[name], folder, seed) for seed, folder in folders.items()]
        print(row(name, records), flush=True)


if __name__ == "__main__":
    main()
