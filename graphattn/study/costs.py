"""What a step of each arm costs, for budgets of equal operations or time: known before anything is trained."""

import time
from copy import copy
from dataclasses import replace
from statistics import mean, median

import torch
from torch import Tensor

from ..analyse import flops
from .arms import Graphs
from .comparison import Comparison, Trial
from .data import Data
from .network import Model, Network
from .own import OwnNetwork
from .trial import Reading, fit

_ROUNDS, _STEPS, _SAMPLES = 5, 10, 64


def measured(comparison: Comparison, equal: str) -> dict[str, dict[str, float]]:
    """Costs by positions and arm, kept by the comparison: what is known already is not measured again."""
    known = comparison.costs.setdefault(equal, {})
    arms = [name for name, (kind, _) in comparison.kinds.items() if kind != "shuffled"]
    for positions in comparison.positions:
        of_arms = known.setdefault(positions, {})
        missing = {
            name: comparison.graphs.get(name) or comparison.rewiring(comparison.kinds[name][1], 0, 0)
            for name in arms
            if name not in of_arms
        }
        if missing and equal == "operations":
            of_arms |= {name: operations(comparison, graphs) for name, graphs in missing.items()}
        elif missing:
            of_arms |= seconds(comparison, missing, positions)
    return known


def operations(comparison: Comparison, graphs: Graphs) -> float:
    """Operations of a forward pass through the encoder, a mean over samples, by :func:`graphattn.analyse.flops`.

    A backward pass takes twice as many, of every arm.
    """
    model, stacks = comparison.model, graphs.possible().some(_SAMPLES)
    assert isinstance(model, Model)
    stacks = [layers if len(layers) == model.layers else layers * model.layers for layers in stacks]
    return mean(flops(list(s), model.width, model.heads, hidden=model.hidden).total for s in stacks)


def seconds(comparison: Comparison, arms: dict[str, Graphs], positions: str) -> dict[str, float]:
    """CPU seconds of a training step on one thread: the median of rounds in which every arm takes its turn."""
    taken: dict[str, list[float]] = {name: [] for name in arms}
    data, threads = comparison.data, torch.get_num_threads()
    seen, rate = data.split(0, None)[0], comparison.training.rates[0]
    to_the_end = copy(comparison)
    to_the_end.training = replace(comparison.training, stop=None)
    trial = Trial(comparison.name, "", "arm", "", positions, None, _STEPS, 0, 0, "")
    try:
        torch.set_num_threads(1)
        for number in range(_ROUNDS + 1):  # the first one compiles
            for name, graphs in arms.items():
                clock = _Clock(data, graphs)
                fit(to_the_end, clock, trial, seen, data.targets, rate)
                taken[name] += [clock.step()] * (number > 0)
    finally:
        torch.set_num_threads(threads)
    return {name: median(times) for name, times in taken.items()}


class _Clock(Reading):
    """Knows when each step of a training began, so that building the model and what it ends with are not counted."""

    def __init__(self, data: Data, graphs: Graphs) -> None:
        super().__init__(data, graphs)
        self.begun: list[float] = []

    def __call__(self, network: Network | OwnNetwork, chosen: Tensor) -> Tensor:
        self.begun.append(time.process_time())
        return super().__call__(network, chosen)

    def step(self) -> float:
        """Seconds from one step to the next; the first, which allocates, is left out."""
        return (self.begun[-1] - self.begun[1]) / (len(self.begun) - 2)
