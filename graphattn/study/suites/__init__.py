"""Studies that come with the library: one file each, which reads like the methods section of a paper."""

import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...arguments import flag, one_of
from ...errors import OptionError, need_extra

if TYPE_CHECKING:
    from ..claims import Claim
    from ..comparison import Comparison
    from ..data import Data
    from ..report import Report
    from .untrained import Findings

#: By name, in reading order; a suite is the file of its name.
SUITES = (
    *("theory", "lra_audit", "recall", "digits", "points"),
    *("associative", "listops", "text", "over_squashing", "atlas"),
)


def suite(name: str) -> Any:
    """The file of a suite."""
    return import_module(f".{one_of(name, 'suite', SUITES)}", __name__)


def suites() -> dict[str, str]:
    """Names of all suites with their first lines."""
    return {name: (suite(name).__doc__ or "").strip().splitlines()[0] for name in SUITES}


def run_suite(
    name: str,
    out: str | Path,
    *,
    quick: bool = False,
    seeds: int | None = None,
    arms: list[str] | None = None,
    processes: int | None = None,
    command: str = "",
) -> "Report | Findings":
    """Run a suite into a folder, or go on with it.

    Args:
        name: Of the suite.
        out: Folder of the results.
        quick: Smaller: fewer cells, budgets or seeds, as the suite's page says.
        seeds: Seeds; the suite's own number by default.
        arms: Only these arms, beside their controls; all by default.
        processes: As many as there are cores by default.
        command: As the report quotes it.
    Raises:
        OptionError: If there is no such suite or arm, or the folder holds another study.
    """
    module = suite(name)
    if hasattr(module, "measure"):
        if quick or any(given is not None for given in (seeds, arms, processes)):
            raise OptionError(f"{name} trains nothing and takes seconds: it has no quick, seeds, arms or processes")
        start = time.process_time()
        found = module.measure()
        return found.save(out, name, command, round(time.process_time() - start, 1))
    from ..running import execute, folder_of

    folder_of(name, out)  # refused before the data are made
    study = module.study(flag(quick, "quick"), arms)
    study.command, study.quick = command, quick
    seeds = (module.QUICK_SEEDS if quick else module.SEEDS) if seeds is None else seeds
    return execute(study, seeds=seeds, out=out, processes=processes)


def chosen(arms: dict[str, Any], names: list[str] | None) -> dict[str, Any]:
    """Some of a suite's arms.

    Raises:
        OptionError: If there is none of a name.
    """
    unknown = [name for name in names or () if name not in arms]
    if unknown or names == []:
        raise OptionError(f"arms: no {', '.join(unknown) or 'arm was named'}; there are {', '.join(arms)}")
    return {name: arm for name, arm in arms.items() if names is None or name in names}


def forest(trees: int = 200) -> Any:
    """A plain classifier.

    Raises:
        MissingExtraError: If scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError as error:
        raise need_extra("scikit-learn", "study") from error
    return RandomForestClassifier(trees, random_state=0)


def scores_of(methods: dict[str, tuple[Any, Any]], data: "Data", seeds: int = 3) -> dict[str, float]:
    """Of plain classifiers on the same data, by name: the features of each sample, and what is fitted to them."""
    label, scores = data.targets.numpy(), dict.fromkeys(methods, 0.0)
    for seed in range(seeds):
        train, test = (x.numpy() for x in data.split(seed, None))
        for name, (x, model) in methods.items():
            scores[name] += model.fit(x[train], label[train]).score(x[test], label[test]) / seeds
    return scores


def possible(claims: "list[Claim]", comparisons: "list[Comparison]") -> "list[Claim]":
    """Those whose arms were chosen."""
    arms = {name: set(comparison.kinds) for comparison in comparisons for name in (None, comparison.name)}
    return [claim for claim in claims if {claim.better, claim.worse} <= arms.get(claim.comparison, set())]


def summary_of(report: "Report") -> list[str]:
    """What a suite says at the top of its report."""
    from ..markdown import from_docstring

    name = report.plan["study"]
    if name not in SUITES:
        return []
    module = suite(name)
    return [from_docstring(module.__doc__), *(module.summary(report) if hasattr(module, "summary") else [])]


def figure_of(report: "Report") -> Any:
    """The suite's own figure, or None."""
    name = report.plan["study"]
    return suite(name).figure(report) if name in SUITES and hasattr(suite(name), "figure") else None
