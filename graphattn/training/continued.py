"""The run of a folder in which the same command was started before."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..arguments import device
from ..errors import OptionError
from ..io.reading import PathLike
from ..io.schema import parsed, written
from ..shapes import ShapeFolder
from .chosen import check_labels, patience_of
from .options import Schedule
from .reading.data import digests
from .reading.inputs import in_words_of_today
from .reading.ranges import RANGES
from .run import STARTED, Run

#: Settings of the loop that may be others when a run goes on; patience follows the epochs.
MAY_CHANGE = ("epochs", "patience", "workers", "device", "seconds")
OF_THE_LOOP = {field.name for field in fields(Schedule)}
_MOST = 8  # differences that are named
_LONG = 40  # letters of a value that is quoted


def begun(out: PathLike) -> Run | None:
    """The run of a folder, if something of it is trained."""
    path = Path(out)
    is_begun = any((path / name).is_file() for name in STARTED)
    if is_begun and (path / "run.json").exists():
        return Run.load(path)
    return None


def same_settings(before: Run, shapes: ShapeFolder, settings: Mapping[str, Any]) -> Run:
    """A run as it was, with the shapes that are there now and the settings that are given."""
    check_labels(shapes, before.task.readout, before.inputs.elements)
    new = {name: value for name, value in settings.items() if value is not None}
    if "epochs" in new:
        new = {"patience": patience_of(new["epochs"]), **new}
    schedule = replace(before.schedule, **new)
    device(schedule.device, numbers=True)
    return replace(before, folder=shapes.root, schedule=schedule, files=digests(shapes))


def continued(run: Run, option_names: Collection[str]) -> Run:
    """The run that goes on in the folder of this one, which is written if none has begun there.

    Of the settings that may change it keeps its own, but those in ``option_names``; patience
    follows epochs.

    Raises:
        OptionError: If that run has other settings or files, with what differs, or no ``run.json``.
    """
    is_written = (run.path / "run.json").exists()
    begun_files = [name for name in STARTED if (run.path / name).is_file()]
    if begun_files and not is_written:
        raise OptionError(
            f"out: {run.path} holds {' and '.join(begun_files)} of a run without its run.json; name "
            "another folder, or put run.json back"
        )
    if not begun_files:
        (run.path / RANGES).unlink(missing_ok=True)  # of files that may have changed
        run.save()
        return run
    before = Run.load(run.path)
    differences = list(_differences(run, before))
    if differences:
        words = "; ".join(differences[:_MOST])
        if len(differences) > _MOST:
            words += f"; and {len(differences) - _MOST:,} more"
        raise OptionError(
            f"out: {run.path} holds a run that differs: {words}; name another folder, or give "
            "the same options"
        )
    names = [name for name in MAY_CHANGE if name in option_names]
    if "epochs" in option_names:
        names.append("patience")
    schedule = {name: getattr(run.schedule, name) for name in names}
    return changed(replace(before, folder=run.folder), **schedule)


def changed(run: Run, **schedule: Any) -> Run:
    """The run with some settings of its loop changed, in its folder, too, and where its shapes are."""
    new = replace(run, schedule=replace(run.schedule, **schedule))
    before = Run.load(run.path)
    if (new.schedule, new.folder.resolve()) != (before.schedule, before.folder):
        new.write()
    return new


def _differences(run: Run, before: Run) -> Iterator[str]:
    """Settings and files of two runs that differ, in words."""
    new = _settings(run)
    old = _settings(before)
    is_drawn_anew = run.files.keys() != before.files.keys() or new["seed"] != old["seed"]
    for name in dict.fromkeys((*old, *new)):
        if new.get(name) == old.get(name):
            continue
        if name.startswith("split ") and is_drawn_anew:
            continue
        if name.startswith("files "):
            # the difference between two folders in a file
            if name not in old:
                change = "is new"
            elif name not in new:
                change = "is gone"
            else:
                change = "has changed"
            yield f"{name.removeprefix('files ')} {change}"
            continue
        words = [_quoted(settings.get(name)) for settings in (old, new)]
        if words[0] == words[1]:
            yield name
        else:
            yield f"{name} is {words[0]} there, {words[1]} here"


def _settings(run: Run) -> dict[str, Any]:
    """Settings by name, as a file holds them, without what may change or follows from others."""
    record: dict[str, Any] = parsed(in_words_of_today(written(run.record())).encode())
    settings: dict[str, Any] = {}
    for name, value in record.items():
        if name in ("folder", "versions", "said", "features"):
            continue
        if not isinstance(value, dict):
            settings[name] = value
            continue
        for key, inner in value.items():
            if name == "files":
                settings[f"files {key}"] = inner
            elif name != "schedule":
                settings[f"{name} {key}"] = inner
            elif key not in MAY_CHANGE:
                settings[key] = inner
    return settings


def _quoted(value: Any) -> str:
    if isinstance(value, list) and len(str(value)) > _LONG:
        return f"{len(value):,} others"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    if value is None or value == "":
        return "none"
    return str(value)[:_LONG]
