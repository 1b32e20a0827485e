"""One trial: a model trained with every rate, the best of them tested and looked into."""

import math
import time
from typing import Any

import torch

from .arms import Graphs
from .comparison import Comparison, Trial
from .examples import examples_right
from .fitting import Reading, fit, scored
from .metrics import METRICS
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
    metric = comparison.metric
    rates = comparison.training.rates
    seen, held = data.split(trial.seed, trial.examples)
    right, unit = data.standardised(seen)
    targets = right.clone()
    if trial.kind == "shuffled":
        order = torch.randperm(len(seen), generator=torch.Generator().manual_seed(trial.seed + 1))
        targets[seen] = targets[seen[order]]
    read = Reading(data, graphs)
    validation = torch.empty(0, dtype=torch.int64)
    trained_on = seen
    if data.validation is not None:
        validation = data.validation.nonzero().squeeze(-1)
    elif len(rates) > 1:
        cut = len(seen) - max(1, round(_VALIDATION * len(seen)))
        trained_on = seen[:cut]
        validation = seen[cut:]
    fits = [fit(comparison, read, trial, trained_on, targets, rate) for rate in rates]
    best = fits[0]
    tried = {}
    if len(validation):
        found = [scored(one.network, read, targets, validation, metric, unit) for one in fits]
        best = fits[max(range(len(fits)), key=lambda i: goodness(found[i], metric))]
        tried = {f"{one.rate:g}": told[metric] for one, told in zip(fits, found, strict=True)}
    parameters, of_positions = best.network.parameters_apart()
    fitted = scored(best.network, read, targets, trained_on[:_READ_AGAIN], metric, unit)
    groups = {}
    for name, group in (data.groups or {}).items():
        part = group.nonzero().squeeze(-1)
        groups[name] = scored(best.network, read, right, part, metric, unit)
    record = {
        "state": "capped" if best.capped else "done",
        **scored(best.network, read, right, held, metric, unit),
        **examples_right(best.network, read, data, held),
        "probes": probed(
            comparison,
            graphs,
            best.network,
            held,
            along_full=trial.kind == "arm",
            targets=right,
            unit=unit,
        ),
        **{f"train_{name}": value for name, value in fitted.items() if name != "answers"},
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
    if groups:
        record["groups"] = groups
    return record


def goodness(found: dict[str, Any], metric: str) -> tuple[float, float]:
    """By the study's score, then by bits or accuracy; a model that gives no number is the worst."""
    scores = []
    for name in (metric, "bits", "accuracy"):
        value = found.get(name, math.nan)
        if math.isfinite(value):
            scores.append(METRICS[name].sign * value)
        else:
            scores.append(-math.inf)
    if metric == "bits":
        return (scores[0], scores[2])
    return (scores[0], scores[1])
