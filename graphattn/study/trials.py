"""The trials of a comparison: batches that the budget of each arm allows, and keys."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from ..analysis.flops import flops
from ..versions import version_of
from .arms import Graphs
from .comparison import Budget, Comparison, Trial, short_hash
from .network import Model, syntax_of

_SAMPLES = 64  # whose operations are counted, evenly chosen


def operations(comparison: Comparison, graphs: Graphs) -> float:
    """Operations of a forward pass of the encoder, a mean over samples."""
    model = comparison.model
    assert isinstance(model, Model)
    stacks = graphs.possible().some(model.layers, _SAMPLES)
    return mean(flops(list(s), model.width, model.heads, hidden=model.hidden).total for s in stacks)


_CODE = ("data.py", "network.py", "train.py")
"""Code that a result depends on, beside versions: its statements, whatever their layout."""
_PACKAGES = ("torch", "llvmlite")


def steps_of(comparison: Comparison) -> dict[tuple[str, Budget], int]:
    """Batches by arm and budget: of equal operations all spend as much as the costliest."""
    steps: dict[tuple[str, Budget], int] = {}
    for budget in comparison.budgets:
        steps |= {(name, budget): budget.steps for name in comparison.kinds}
        if budget.equal != "operations":
            continue
        costs = {
            name: operations(comparison, comparison.graphs_of(name)) for name in comparison.kinds
        }
        for name, cost in costs.items():
            steps[name, budget] = round(budget.steps * max(costs.values()) / cost)
    return steps


def trials_of(comparison: Comparison, seeds: int, first: int = 0) -> Iterator[Trial]:
    """Every trial from seed ``first`` on, by seed, so that an interrupted study has pairs."""
    base = [comparison.identity(), _versions()]
    steps_by_arm = steps_of(comparison)
    for seed in range(first, first + seeds):
        for name, (kind, of) in comparison.kinds.items():
            budgets = list(enumerate(comparison.budgets))
            is_shuffled = kind == "shuffled"
            if is_shuffled:
                budgets = budgets[-1:]
            for draw in range(comparison.draws_of(name)):
                edges = comparison.edges_of(name, seed, draw)
                for positions in comparison.positions:
                    for number, budget in budgets:
                        steps = steps_by_arm[name, budget]
                        examples = budget.examples
                        what = [edges, positions, examples, steps, seed, is_shuffled]
                        key = short_hash([*base, *what])
                        arguments = (positions, examples, steps, seed, draw, key, number)
                        yield Trial(comparison.name, name, kind, of, *arguments)


def _versions() -> list[str | None]:
    """Versions of the packages that compute, and a hash of the code that trains, in its syntax."""
    folder = Path(__file__).parent
    code = "\n".join(syntax_of((folder / name).read_text(encoding="utf-8")) for name in _CODE)
    digest = hashlib.sha256(code.encode()).hexdigest()
    return [*(version_of(name) for name in _PACKAGES), digest]
