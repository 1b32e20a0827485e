"""The trials of a comparison: batches that the budget of each arm allows, and keys."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from ..analysis.flops import flops
from ..backends.request import Request
from ..errors import OptionError
from ..operands import Inputs, counting
from ..versions import version_of
from .arms import Graphs
from .comparison import Budget, Comparison, Trial, short_hash
from .data import Data
from .network import CustomModel, CustomNetwork, Network, network_of, syntax_of
from .train import Reading, fit

_ROUNDS, _STEPS, _SAMPLES = 5, 10, 64
_READ, _WRITTEN = (
    ("index", "index_select", "gather"),
    ("index_add", "index_put", "scatter", "scatter_add", "scatter_reduce"),
)


def measured(comparison: Comparison, equal: str) -> dict[str, dict[str, float]]:
    """Costs by positions and arm, measured once and cached by the comparison."""
    costs = comparison.costs.setdefault(equal, {})
    arms = [name for name, (kind, _) in comparison.kinds.items() if kind != "shuffled"]
    for positions in comparison.positions:
        of_arms = costs.setdefault(positions, {})
        missing = {name: comparison.graphs_of(name) for name in arms if name not in of_arms}
        if missing and equal == "operations":
            of_arms |= {name: operations(comparison, graphs) for name, graphs in missing.items()}
        elif missing:
            of_arms |= seconds(comparison, missing, positions)
    return costs


def operations(comparison: Comparison, graphs: Graphs) -> float:
    """Operations of a forward pass, a mean over samples; a backward pass takes twice as many.

    Those of :class:`Model` are of its encoder, by :func:`graphattn.analysis.flops`; a
    :class:`CustomModel` is called: products count as in ``torch.utils.flop_counter``, attention of
    this library by its edges, ``2 E H (D + D_v)``, whichever backend runs it, and every number that
    is gathered or scattered by an index, as PyG's layers do along edges, is an operation.

    Raises:
        OptionError: If a module calls operators that are not torch's, and have no formula there.
    """
    if isinstance(comparison.model, CustomModel):
        return _of_calls(comparison, graphs)
    model = comparison.model
    stacks = graphs.possible().some(_SAMPLES)
    stacks = [layers if len(layers) == model.layers else layers * model.layers for layers in stacks]
    return mean(flops(list(s), model.width, model.heads, hidden=model.hidden).total for s in stacks)


def _of_calls(comparison: Comparison, graphs: Graphs) -> float:
    """Operations of a user's module, on the samples of a few batches."""
    data, read = comparison.data, Reading(comparison.data, graphs)
    samples = torch.arange(0, len(data), max(1, len(data) // _SAMPLES))[:_SAMPLES]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        network = network_of(
            comparison.model, data, comparison.readout, comparison.positions[0], comparison.token
        )
        work = _Operations()
        before = counting.set(work.by_edges)
        try:
            for chosen in samples.split(comparison.training.batch):
                arguments = (data.inputs[chosen], *read.given(chosen))
                with work:
                    network(*arguments)
        finally:
            counting.reset(before)
    return work.total / len(samples)


class _Operations(TorchDispatchMode):
    """A counter of what torch runs.

    torch's own counts sparse products as dense ones, and no operation of attention on a CPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0

    @contextmanager
    def by_edges(self, edges: int, inputs: Inputs) -> Iterator[None]:
        """A call of attention, in place of what its backend runs."""
        total = self.total
        yield
        self.total = total + 2 * edges * Request.of(inputs).floats_per_pair

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        output = function(*args, **(kwargs or {}))
        name = function._overloadpacket.__name__.rstrip("_")
        tensors = [x for x in tree_leaves(args) if isinstance(x, Tensor)]
        sparse = [x for x in tensors if x.layout != torch.strided]
        if sparse and "mm" in name:
            self.total += 2 * sparse[0]._nnz() * output.shape[-1]
        elif function._overloadpacket in flop_registry:
            self.total += flop_registry[function._overloadpacket](
                *args, **(kwargs or {}), out_val=output
            )
        elif name.startswith("_scaled_dot_product"):
            self.total += sdpa_flop_count(*(x.shape for x in tensors[:3]))
        elif name in _READ:
            self.total += output.numel()
        elif name in _WRITTEN:
            self.total += max(x.numel() for x in tensors[1:])
        elif function.namespace not in ("aten", "prim", "prims", "graphattn"):
            raise OptionError(
                "equal operations are counted of torch's operators and this library's, got "
                f"{function}; register a formula by "
                "torch.utils.flop_counter.register_flop_formula, or give equal='time'"
            )
        return output


def seconds(comparison: Comparison, arms: dict[str, Graphs], positions: str) -> dict[str, float]:
    """CPU seconds of a training step on one thread: the median over rounds of all arms."""
    step_times: dict[str, list[float]] = {name: [] for name in arms}
    data = comparison.data
    threads = torch.get_num_threads()
    examples = data.split(0, None)[0]
    rate = comparison.training.rates[0]
    to_the_end = copy(comparison)
    to_the_end.training = replace(comparison.training, stop=None)
    trial = Trial(comparison.name, "", "arm", "", positions, None, _STEPS, 0, 0, "")
    try:
        torch.set_num_threads(1)
        for number in range(_ROUNDS + 1):  # the first one compiles
            for name, graphs in arms.items():
                clock = _Clock(data, graphs)
                fit(to_the_end, clock, trial, examples, data.targets, rate)
                step_times[name] += [clock.step()] * (number > 0)
    finally:
        torch.set_num_threads(threads)
    return {name: median(times) for name, times in step_times.items()}


class _Clock(Reading):
    """The start of each training step, so that only steps are timed."""

    def __init__(self, data: Data, graphs: Graphs) -> None:
        super().__init__(data, graphs)
        self.begun: list[float] = []

    def __call__(self, network: Network | CustomNetwork, chosen: Tensor) -> Tensor:
        self.begun.append(time.process_time())
        return super().__call__(network, chosen)

    def step(self) -> float:
        """Seconds from one step to the next; the first, which allocates, is left out."""
        return (self.begun[-1] - self.begun[1]) / (len(self.begun) - 2)


_CODE = ("data.py", "network.py", "train.py")
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
