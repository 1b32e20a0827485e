"""What ``graphattn train``, ``evaluate`` and ``predict`` do: options into arguments, progress, words."""

import json as words
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import OptionError
from .output import console, document, encodable, is_terminal, one_line, say


def train(folder: str | None, out: str | None, resume: str | None, options: dict[str, Any], json: bool) -> None:
    """Begin a run, or go on with one."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch reads it at import: idle threads sleep, not spin
    from .. import training

    chosen = {name: value for name, value in options.items() if value is not None}
    if resume is not None:
        wrong = [name for name in chosen if name != "device"] + ["out"] * (out is not None)
        if wrong:
            raise OptionError(
                f"--resume goes on with what the run says; --{wrong[0].replace('_', '-')} is for a new one"
            )
        with _told(json) as tell:
            result = training.resume(resume, folder, tell=tell, **chosen)
    else:
        if folder is None or out is None:
            raise OptionError("train needs a FOLDER of shapes and --out RUN, or --resume RUN")
        for name in ("features", "augment", "control"):
            if name in chosen:
                chosen[name] = tuple(word for word in chosen[name].split(",") if word)
        if "model_options" in chosen:
            chosen["model_options"] = _object(chosen["model_options"])
        with _told(json) as tell:
            result = training.train(folder, out, tell=tell, **chosen)
    if json:
        document({"command": "train", "run": resume or out, **result.to_dict()})


def evaluate(run: str, folder: str | None, json: bool) -> None:
    """Scores on a folder."""
    from .. import training

    result = training.evaluate(run, folder)
    if json:
        document({"command": "evaluate", "run": run, **result.to_dict()})
        return
    say(str(result))
    for name, value in (result.scores.get("iou") or {}).items():
        say(f"  {one_line(name)}: {'not there' if value is None else f'{value:.3f}'}")


def predict(run: str, files: list[str], out: str, json: bool) -> None:
    """Coloured files and a table."""
    from .. import training

    lines = training.predict(run, files, out)
    if json:
        document({"command": "predict", "run": run, "files": lines})
        return
    for line in lines:
        what = f"{line['points']:,} points" if "points" in line else one_line(str(line["prediction"]))
        share = f" ({line['probability']:.0%})" if "probability" in line else ""
        say(f"{one_line(line['file'])}: {what}{share} -> {one_line(line['ply'])}")


def _object(text: str) -> dict[str, Any]:
    try:
        made = words.loads(text)
    except ValueError:
        made = None
    if not isinstance(made, dict):
        raise OptionError(f"--model-options must be a JSON object, such as '{{\"widths\": [64, 64]}}', got {text!r}")
    return made


@contextmanager
def _told(json: bool) -> Iterator[Callable[[Any], None]]:
    """What a run says: lines on stdout, a bar with the time left on a terminal."""
    lines = (lambda text: None) if json else say
    if not is_terminal():
        yield _plain(lines)
        return
    import sys

    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True, redirect_stdout=True) as bar:
        tasks: dict[str, Any] = {}

        def tell(progress: Any) -> None:
            if progress.phase in ("begin", "end"):
                lines(progress.words)
                return
            if progress.phase not in tasks:
                tasks[progress.phase] = bar.add_task(progress.phase, total=1.0)
            text = encodable(progress.words, "utf-8") or None
            bar.update(tasks[progress.phase], completed=progress.done, description=text)

        yield tell


def _plain(lines: Callable[[str], None]) -> Callable[[Any], None]:
    """A line for each epoch, with the time left."""
    began: dict[str, tuple[float, float]] = {}

    def tell(progress: Any) -> None:
        if progress.phase in ("begin", "end"):
            lines(progress.words)
            return
        start, first = began.setdefault(progress.phase, (time.monotonic(), progress.done))
        if progress.epoch is not None and progress.phase == "training":
            passed, part = time.monotonic() - start, progress.done - first
            left = passed / part * (1 - progress.done) if part > 0 else 0.0
            lines(f"{progress.words}, {int(left) // 60}:{int(left) % 60:02} left")

    return tell
