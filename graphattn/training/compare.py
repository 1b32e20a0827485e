"""Several runs side by side: settings, scores, and differences over the shapes all held out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import OptionError
from ..io.reading import PathLike, fault, read
from ..io.schema import parsed
from ..statistics.paired import difference
from .run import RESULT, Run


def compare(runs: Sequence[PathLike]) -> list[dict[str, Any]]:
    """Model and score of each run, and its difference from the first one, shape by shape.

    Args:
        runs: Folders of trained runs of one task.

    Returns:
        For each ``run``, ``model``, ``reads``, ``epochs``, ``unfinished`` ("3 of 10 epochs", or ""),
        ``metric``, ``score``, ``shapes`` that it shares with the first run, and their mean
        ``difference`` with its 95 % interval ``low``, ``high``.

    Raises:
        OptionError: If they are fewer than two, of different tasks or labels, or have held out
            nothing.
        LoaderError: If one has no result yet.
    """
    trained_runs = [Run.load(path) for path in runs]
    if len(trained_runs) < 2:
        raise OptionError(f"runs must be two or more, got {len(trained_runs)}")
    first = trained_runs[0]
    rows: list[dict[str, Any]] = []
    results = [_result(run.path) for run in trained_runs]
    for run, result in zip(trained_runs, results, strict=True):
        if (run.task.name, run.task.classes) != (first.task.name, first.task.classes):
            raise OptionError(
                f"runs must be of one task and its classes, got {first.path} and {run.path}"
            )
        _of_the_same_labels(run, first)
        if result.get("part") != "test":
            reason = "its scores are of shapes that it was trained or chosen on"
            raise OptionError(f"runs must have held out shapes (--test), got {run.path}: {reason}")
        metric = run.task.metric
        row: dict[str, Any] = {
            "run": str(run.path),
            "model": run.model,
            "reads": ", ".join(run.inputs.features),
        }
        row |= {"epochs": run.schedule.epochs, "unfinished": run.unfinished}
        row |= {"metric": metric, "score": result["scores"][metric]}
        names = [
            name
            for name in result["each"]
            if name in results[0]["each"] and run.files[name] == first.files[name]
        ]
        row["shapes"] = len(names)
        if run is not first and names:
            pairs = torch.tensor(
                [(result["each"][name], results[0]["each"][name]) for name in names],
                dtype=torch.float64,
            )
            if metric == "r2":  # each is over the variance of the labels that its run held out
                pairs[:, 0] = 1 - (1 - pairs[:, 0]) * _variance(result) / _variance(results[0])
            row |= difference(pairs[:, 0] - pairs[:, 1], run.task.bounds)._asdict() | {
                "shapes": len(names)
            }
            row["difference"] = row.pop("mean")
        rows.append(row)
    return rows


def _of_the_same_labels(run: Run, first: Run) -> None:
    """Refuse a run that learned another property, or left out other values of it.

    A property may have a name in one run and be the usual one in the other: files whose digests
    agree have the same labels.
    """
    if (run.label, run.ignore) == (first.label, first.ignore):
        return
    if all(run.files.get(name) == digest for name, digest in first.files.items()):
        return
    words = []
    for one in (first, run):
        if one.ignore:
            ignored = f" without {', '.join(map(str, one.ignore))}"
        else:
            ignored = ""
        words.append(f"{one.label or 'the usual label'}{ignored} in {one.path}")
    raise OptionError(f"runs must be trained on the same labels, got {' and '.join(words)}")


def _variance(result: dict[str, Any]) -> float:
    """Variance of the labels that a run held out."""
    unexplained = 1 - result["scores"]["r2"]
    if unexplained:
        return float(result["scores"]["rmse"] ** 2 / unexplained)
    return 1.0


def _result(path: Path) -> dict[str, Any]:
    if not (path / RESULT).is_file():
        raise fault(
            path,
            "a run that has ended",
            f"none with {RESULT}",
            "graphattn train --resume, with --finish for the best epoch so far",
        )
    result: dict[str, Any] = parsed(bytes(read(path / RESULT).data))
    if not isinstance(result, dict) or not isinstance(result.get("each"), dict):
        raise fault(path / RESULT, "scores of each shape", "none", "train anew")
    return result
