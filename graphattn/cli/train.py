"""What ``graphattn train``, ``evaluate`` and ``predict`` do: options into arguments, progress, words."""

import json as words
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import OptionError
from .output import document, encodable, one_line, say


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
        many = [f"{line[token]:,} {token}" for token in ("points", "faces", "edges") if token in line]
        what = many[0] if many else one_line(str(line["prediction"]))
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
    """What a run says: lines on stdout; a bar with the time left on a terminal, elsewhere a line for each epoch."""
    from ..training.progress import Pace, bars

    lines, pace = (lambda text: None) if json else say, Pace()
    with bars() as update:

        def tell(progress: Any) -> None:
            if progress.phase in ("begin", "end"):
                lines(progress.words)
            elif update is not None:
                update(progress.phase, progress.done, encodable(progress.words, "utf-8"))
            else:
                left = pace.left(progress.phase, progress.done)
                if progress.epoch is not None and progress.phase == "training":
                    lines(f"{progress.words}, {left}")

        yield tell
