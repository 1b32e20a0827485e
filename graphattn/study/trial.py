"""One trial: a model trained with every rate, the best of them tested and looked into."""

import math
import time
from typing import Any

import torch

from .arms import Graphs
from .comparison import Comparison, Trial
from .fitting import Reading, fit, scored
from .probes import probed

_VALIDATION = 0.2  # share of the training examples by which one of several rates is chosen
_READ_AGAIN = 1_024  # training examples, at most, on which accuracy in training is measured


def train(comparison: Comparison, graphs: Graphs, trial: Trial) -> dict[str, Any]:
    """Train and test a model: the numbers of a record, equal for equal arguments on one thread.

    Of several rates the best one on the last fifth of the training examples is taken; the others
    are trained on.
    """
    start = time.process_time()
    data = comparison.data
    rates = comparison.training.rates
    seen, held = data.split(trial.seed, trial.examples)
    targets = data.targets.clone()
    if trial.kind == "shuffled":
        order = torch.randperm(len(seen), generator=torch.Generator().manual_seed(trial.seed + 1))
        targets[seen] = targets[seen[order]]
    read = Reading(data, graphs)
    if len(rates) == 1:
        trained_on = seen
        best = fit(comparison, read, trial, trained_on, targets, rates[0])
        tried = {}
    else:
        cut = len(seen) - max(1, round(_VALIDATION * len(seen)))
        trained_on = seen[:cut]
        fits = [fit(comparison, read, trial, trained_on, targets, rate) for rate in rates]
        found = [scored(one.network, read, targets, seen[cut:]) for one in fits]
        best = fits[max(range(len(fits)), key=lambda i: goodness(found[i], comparison.metric))]
        tried = {
            f"{one.rate:g}": told[comparison.metric] for one, told in zip(fits, found, strict=True)
        }
    parameters, of_positions = best.network.parameters_apart()
    fitted = scored(best.network, read, targets, trained_on[:_READ_AGAIN])
    return {
        "state": "capped" if best.capped else "done",
        **scored(best.network, read, data.targets, held),
        "probes": probed(comparison, graphs, best.network, held, along_full=trial.kind == "arm"),
        "train_accuracy": fitted["accuracy"],
        "train_bits": fitted["bits"],
        "loss": best.loss,
        "curve": best.curve,
        "steps_taken": best.steps,
        "rate": best.rate,
        "validation": tried,
        "initial": best.initial,
        "parameters": parameters,
        "position_parameters": of_positions,
        "cpu_s": round(time.process_time() - start, 2),
    }


def goodness(found: dict[str, Any], metric: str) -> tuple[float, float]:
    """By the study's score, then by bits; a model that gives no number is the worst."""
    if math.isfinite(found["bits"]):
        bits = -found["bits"]
    else:
        bits = -math.inf
    if metric == "accuracy":
        return (found["accuracy"], bits)
    return (bits, found["accuracy"])
