"""Asserts on a comparison, made before any trial: relabelling changes nothing that it must not change."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import ControlError
from ..questions import receptive_field
from .arms import Graphs
from .comparison import Budget, Comparison, Trial
from .controls import everything, is_structured
from .data import Data
from .network import Network
from .own import Own, OwnNetwork, network_of
from .trial import Reading, loss_of, scaled, train

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
    if isinstance(comparison.model, Own):
        name, graphs = next(iter(comparison.graphs.items()))
        result[f"{name}: nodes beyond reach change nothing"] = _reads_its_graph_alone(comparison, name, graphs)
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


def _reads_its_graph_alone(comparison: Comparison, name: str, graphs: Graphs) -> bool:
    """Of a user's module in float64, after a node of a sample was changed: the same logits where its layers do not
    reach from there."""
    data, model = comparison.data, comparison.model
    assert isinstance(model, Own)
    torch.manual_seed(0)
    network = OwnNetwork(model, data, comparison.readout, comparison.token).double().eval()
    layers, places, pos, kept, _ = Reading(data, graphs).given(torch.tensor([0]))
    stack = list(layers) * (model.layers if len(layers) == 1 else 1)
    field, nodes = receptive_field(stack, residual=True).graphs[-1], torch.arange(stack[0].num_targets)
    pos, inputs = None if pos is None else pos.double(), data.inputs[:1]
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    with torch.no_grad():
        before = network.of_nodes(inputs, layers, places, pos, kept).flatten(0, -2)
        for node in nodes[:: max(1, len(nodes) // _SAMPLES)].tolist() + nodes[-1:].tolist():
            other = inputs.clone()
            other[0, node] = inputs[0, node] + 1 if inputs.is_floating_point() else (inputs[0, node] == 0).long()
            moved = network.of_nodes(other, layers, places, pos, kept).flatten(0, -2) - before
            wrong = (moved.abs().amax(-1) > BOUND) & ~field.contains(nodes, torch.full_like(nodes, node))
            if bool(wrong.any()):
                L = f"{model.layers} layer{'s' * (model.layers > 1)}"
                raise ControlError(
                    f"the module reads more than its graphs: node {int(wrong.nonzero()[0])} depends on node {node} of "
                    f"sample 0, that {L} of {name} do not reach; give Own the layers that it has, or mend the module"
                )
    return True


def _permuted(comparison: Comparison, graphs: Graphs, positions: str) -> float:
    """The largest difference of outputs and gradients in float64 after nodes, places and graph are permuted alike."""
    data = comparison.data
    double = data.inputs[:_SAMPLES].double() if data.inputs.is_floating_point() else data.inputs[:_SAMPLES]
    pos = None if data.pos is None else data.pos[:_SAMPLES].double()
    pairs = None if data.pairs is None else data.pairs[:_SAMPLES]
    small = replace(data, inputs=double, targets=data.targets[:_SAMPLES], pos=pos, test=1, sizes=None, pairs=pairs)
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(1))
    back = order.argsort()
    torch.manual_seed(0)
    network = network_of(comparison.model, data, comparison.readout, positions, comparison.token).double().eval()
    answers = []
    for moved in (False, True):
        at = back if moved else torch.arange(data.num_nodes)
        there = replace(
            small,
            inputs=double[:, at],
            pos=None if pos is None else pos[:, at],
            pairs=None if pairs is None else pairs[:, at][:, :, at],
        )
        network.token = int(order[comparison.token]) if moved else comparison.token
        other = graphs.map(lambda graph: graph.relabel(order)) if moved else graphs
        answers.append(_outputs(network, there, other, at, order if moved else at))
    worst = max(float((a - b).abs().max()) for a, b in zip(*answers, strict=True))
    if not worst <= BOUND:
        raise ControlError(f"permuting nodes, places and graph alike changed a result by {worst:.2g} (bound {BOUND})")
    return worst


def _outputs(network: Network | OwnNetwork, data: Data, graphs: Graphs, places: Tensor, order: Tensor) -> list[Tensor]:
    """Logits of a few samples in the order of before, and the gradients of all parameters."""
    read = Reading(data, graphs)
    read.places, read.pos = places, scaled(data, torch.float64)
    logits = read(network, torch.arange(len(data)))
    logits = logits[:, order] if network.readout == "node" else logits
    network.zero_grad()
    loss_of(logits, data.targets).backward()
    return [logits.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)]
