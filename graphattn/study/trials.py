"""The trials of a comparison, each with as many batches as the budget of its arm allows."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from ..versions import version_of
from .comparison import Budget, Comparison, Trial, short_hash
from .costs import measured
from .syntax import syntax_of

_CODE = ("data.py", "metrics.py", "network.py", "own.py", "fitting.py", "trial.py")
"""Code that a result depends on, beside versions: its statements, whatever their layout."""
_PACKAGES = ("torch", "llvmlite")


def steps_of(comparison: Comparison, arm: str, positions: str, budget: Budget) -> int:
    """Batches of an arm, so that all spend as much as the costliest."""
    if budget.equal == "steps":
        return budget.steps
    costs = measured(comparison, budget.equal)[positions]
    return round(budget.steps * max(costs.values()) / costs[comparison.read_by(arm)])


def trials_of(comparison: Comparison, seeds: int, first: int = 0) -> Iterator[Trial]:
    """Every trial from seed ``first`` on, by seed, so that an interrupted study has pairs."""
    base = [comparison.identity(), _versions()]
    for seed in range(first, first + seeds):
        for name, (kind, of) in comparison.kinds.items():
            budgets = _budgets_of(comparison, name, kind)
            for draw in range(comparison.draws_of(name)):
                edges = comparison.edges_of(name, seed, draw)
                for positions in comparison.positions:
                    for number, budget in budgets:
                        steps = steps_of(comparison, name, positions, budget)
                        key_values = [
                            *base,
                            edges,
                            positions,
                            budget.examples,
                            steps,
                            seed,
                            kind == "shuffled",
                        ]
                        arguments = (positions, budget.examples, steps, seed, draw)
                        key = short_hash(key_values)
                        yield Trial(comparison.name, name, kind, of, *arguments, key, number)


def _budgets_of(comparison: Comparison, name: str, kind: str) -> list[tuple[int, Budget]]:
    """Budgets of an arm by number: of shuffled labels the study's last one alone."""
    numbered = list(enumerate(comparison.budgets))
    if kind == "shuffled":
        return numbered[comparison.own_budgets - 1 : comparison.own_budgets]
    return [
        (number, budget)
        for number, budget in numbered
        if name in comparison.alone.get(number, {name})
    ]


def _versions() -> list[str | None]:
    """Versions of the packages that compute, and a hash of the code that trains, in its syntax."""
    folder = Path(__file__).parent
    code = "\n".join(syntax_of((folder / name).read_text(encoding="utf-8")) for name in _CODE)
    digest = hashlib.sha256(code.encode()).hexdigest()
    return [*(version_of(name) for name in _PACKAGES), digest]
