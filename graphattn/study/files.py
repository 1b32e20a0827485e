"""Studies as files: ``study()`` in a file of Python, run with the options of the command line."""

import ast
import shlex
import sys
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from typing import Any

from ..errors import OptionError
from .pages.markdown import from_docstring
from .plan import Study
from .runs.running import execute


def study_file(path: str | Path) -> Path:
    """The whole path of a Python file that exists."""
    file = Path(path).resolve()
    if file.suffix != ".py" or not file.is_file():
        raise OptionError(
            f"a study must be a Python file that exists, such as digits/study.py, got {path}; "
            "graphattn study --list examples/studies lists those of a clone"
        )
    return file


def load(path: str | Path) -> Any:
    """The module of a study file, which may import what stands beside it, or in the folder above.

    Raises:
        OptionError: If there is no such file, or it has no ``study()``.
    """
    file = study_file(path)
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    folders = [str(file.parent), str(file.parents[1])]
    sys.path[:] = [
        folders[0],
        *(folder for folder in sys.path if folder not in folders),
        folders[1],
    ]
    # by this name processes of trials import it, too
    module = sys.modules[file.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "study", None)):
        raise OptionError(f"{path} must define study(), which returns study.Study(...)")
    return module


def file_of_command(command: str) -> Path | None:
    """The study file of a command that a report quotes, if it is there from this folder."""
    words = shlex.split(command)
    if words[:2] != ["graphattn", "study"] or len(words) < 3:
        return None
    file = Path(words[2])
    if file.suffix == ".py" and file.is_file():
        return file
    return None


def studies_in(folder: str | Path) -> dict[str, str]:
    """Summaries of the study files in a folder and in the folders in it; no file is run."""
    summaries = {}
    for file in sorted([*Path(folder).glob("*.py"), *Path(folder).glob("*/*.py")]):
        with suppress(OSError, SyntaxError, ValueError):
            tree = ast.parse(file.read_bytes())
            if any(
                isinstance(node, ast.FunctionDef) and node.name == "study" for node in tree.body
            ):
                summary = (ast.get_docstring(tree) or "").partition("\n\n")[0]
                summaries[str(file)] = " ".join(summary.split())
    return summaries


def _check_arms(study: Study, names: list[str], path: str | Path) -> None:
    """Refuse arms that a study file was not asked for, or did not make.

    Raises:
        OptionError: If it ignores the names, or there is no arm of a name.
    """
    arms = {arm for comparison in study.comparisons for arm in comparison.arms}
    others = sorted(arms - {*names})
    if others:
        raise OptionError(
            f"--arms must be what study(names=...) in {path} returns, got {', '.join(others)}, "
            f"too, for {', '.join(names)}; leave arms out of it that are not in names"
        )
    missing = [name for name in names if name not in arms]
    if missing:
        raise OptionError(
            f"--arms: study(names=...) in {path} has no {', '.join(missing)}; it returned "
            f"{', '.join(sorted(arms))}"
        )


def run_file(
    path: str | Path,
    out: str | Path,
    *,
    quick: bool = False,
    seeds: int | None = None,
    arms: list[str] | None = None,
    processes: int | None = None,
    pilot: bool = False,
    baseline: bool | None = None,
    command: str = "",
) -> Any:
    """Run a study file into a folder, or go on with it.

    The file defines ``study(quick, names)``, both optional, which returns a :class:`Study`; or,
    where nothing is to be trained, an object whose ``save(out, command)`` writes a folder and
    returns what the command line prints of it, as a :class:`Report` has it: ``folder``,
    ``brief()``, ``to_dict()`` and ``str()``.

    Args:
        path: The file.
        out: Folder of the results.
        quick: Smaller, as the file says.
        seeds: Seeds; those of the study by default.
        arms: Only these arms, beside their controls; all by default.
        processes: As many as there are cores by default.
        pilot: True for two seeds apart, before the study.
        baseline: True for plain methods on the same splits; of small vectors and tables by default.
        command: As the report quotes it.
    Raises:
        OptionError: If the file has no study, or its study no such option; or the folder holds
            another study; or the study has other arms than ``arms``.
    """
    module = load(path)
    parameters = signature(module.study).parameters
    arguments = {"quick": quick or None, "names": arms}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    for name in arguments.keys() - parameters:
        raise OptionError(
            f"{'--arms' if name == 'names' else '--quick'} requires study({name}=...) in {path}"
        )
    study = module.study(**arguments)
    if not isinstance(study, Study):
        if (seeds, processes, pilot, baseline) != (None, None, False, None):
            raise OptionError(
                f"{path} trains nothing: it has no seeds, processes, pilot or baseline"
            )
        return study.save(out, command)
    if arms is not None:
        _check_arms(study, arms, path)
    study.command = command
    study.quick = quick
    study.about = study.about or from_docstring(module.__doc__)
    if seeds is None:
        seeds = study.seeds
    options: dict[str, Any] = {"processes": processes, "pilot": pilot, "baseline": baseline}
    return execute(study, seeds=seeds, out=out, **options)
