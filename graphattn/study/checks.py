"""Asserts on a comparison, made before any trial: relabelling changes nothing that it must not change."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import ControlError
from .arms import Graphs
from .comparison import Budget, Comparison, Trial
from .controls import everything, is_structured
from .network import Network
from .trial import Reading, loss_of, train

_STEPS, _SAMPLES, BOUND = 3, 5, 1e-9


def check(comparison: Comparison) -> dict[str, Any]:
    """Make the asserts that fit the comparison, and return what was measured.

    Raises:
        ControlError: If one does not hold.
    """
    result: dict[str, Any] = {}
    some = next(iter(comparison.graphs.values()))
    if some.layers and not comparison.data.causal:
        result["relabelled full: bit for bit"] = _relabelled_full(comparison, everything(some, False))
    for name, graphs in comparison.graphs.items():
        if graphs.layers and is_structured(graphs, comparison.data.causal):
            for positions in comparison.positions:
                result[f"{name}, positions {positions}, permuted with its nodes"] = _permuted(
                    comparison, graphs, positions
                )
            break
    return result


def _relabelled_full(comparison: Comparison, graphs: Graphs) -> bool:
    """Some steps of training along a full graph, and along the same one relabelled: the same bits."""
    order = torch.randperm(comparison.data.num_nodes, generator=torch.Generator().manual_seed(0))
    other = graphs.map(lambda graph: graph.relabel(order))
    budget = replace(comparison.budgets[0], steps=_STEPS) if comparison.budgets else Budget(steps=_STEPS)
    given = (comparison.positions[0], budget.examples, budget.steps, 0, 0, "")
    trial = Trial(comparison.name, "full", "full", "full", *given)
    ours, theirs = train(comparison, graphs, trial), train(comparison, other, trial)
    if (ours["loss"], ours["bits"]) != (theirs["loss"], theirs["bits"]):
        raise ControlError(f"relabelling a full graph changed the loss from {ours['loss']!r} to {theirs['loss']!r}")
    return True


def _permuted(comparison: Comparison, graphs: Graphs, positions: str) -> float:
    """The largest difference of outputs and gradients in float64 after nodes, places and graph are permuted alike."""
    data = comparison.data
    double = data.inputs[:_SAMPLES].double() if data.inputs.is_floating_point() else data.inputs[:_SAMPLES]
    pos = None if data.pos is None else data.pos[:_SAMPLES].double()
    small = replace(data, inputs=double, targets=data.targets[:_SAMPLES], pos=pos, test=1, sizes=None)
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(1))
    back = order.argsort()
    torch.manual_seed(0)
    network = Network(comparison.model, data, comparison.readout, positions, comparison.token).double().eval()
    answers = []
    for moved in (False, True):
        at = back if moved else torch.arange(data.num_nodes)
        there = replace(small, inputs=double[:, at], pos=None if pos is None else pos[:, at])
        network.token = int(order[comparison.token]) if moved else comparison.token
        other = graphs.map(lambda graph: graph.relabel(order)) if moved else graphs
        answers.append(_outputs(network, comparison, there, other, at, order if moved else at))
    worst = max(float((a - b).abs().max()) for a, b in zip(*answers, strict=True))
    if not worst <= BOUND:
        raise ControlError(f"permuting nodes, places and graph alike changed a result by {worst:.2g} (bound {BOUND})")
    return worst


def _outputs(
    network: Network, comparison: Comparison, data: Any, graphs: Graphs, places: Tensor, order: Tensor
) -> list[Tensor]:
    """Logits of a few samples in the order of before, and the gradients of all parameters."""
    shallow = object.__new__(Comparison)
    shallow.__dict__.update(comparison.__getstate__() | {"data": data})
    read = Reading(shallow, graphs)
    read.places = places
    if data.pos is not None and read.pos is not None:
        read.pos = read.pos.double()
    logits = read(network, torch.arange(len(data.inputs)))
    logits = logits[:, order] if comparison.readout == "node" else logits
    network.zero_grad()
    loss_of(logits, data.targets).backward()
    return [logits.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)]
