"""Assertions on a comparison before any trial: what relabelling must leave the same."""

import math

import torch

from .. import nulls
from ..analysis import receptive_field
from ..errors import ControlError
from .arms import Graphs
from .comparison import Comparison, Trial
from .data import METRICS
from .network import CustomModel, CustomNetwork
from .records import Entry
from .train import Reading, train

_STEPS, _SAMPLES, BOUND, _MOVED = 3, 5, 1e-9, 0.1


def measured(comparison: Comparison) -> Entry:
    """Make the asserts that fit the comparison, and return what was measured.

    Raises:
        ControlError: If one does not hold.
    """
    result: Entry = {}
    if isinstance(comparison.model, CustomModel):
        result["the same training twice: bit for bit"] = _repeats(comparison)
    first_graphs = next(iter(comparison.graphs.values()))
    if not comparison.data.causal:
        result["relabelled full: bit for bit"] = _relabelled_full(
            comparison, first_graphs.everything(False)
        )
    if isinstance(comparison.model, CustomModel):
        name, graphs = next(iter(comparison.graphs.items()))
        result[f"{name}: nodes in reach are read, and no others"] = _reads_its_graph_alone(
            comparison, name, graphs
        )
    return result


def _relabelled_full(comparison: Comparison, graphs: Graphs) -> bool:
    """Training steps along a full graph, and along the same one relabelled: the same bits."""
    before = _trained(comparison, graphs)
    after = _trained(comparison, graphs.map(nulls.permuted))
    if not math.isfinite(before["loss"]):
        raise ControlError(
            f"the loss is {before['loss']} after {_STEPS} steps along all pairs; lower the rate of "
            f"training, {comparison.training.rate}, or look for what is no number in the module"
        )
    if _numbers(before) != _numbers(after):
        raise ControlError(
            f"relabelling a full graph changed the loss from {before['loss']!r} to "
            f"{after['loss']!r}"
        )
    return True


def _trained(comparison: Comparison, graphs: Graphs) -> Entry:
    """Some steps of training."""
    trial = Trial(
        *(
            comparison.name,
            "full",
            "full",
            "full",
            comparison.positions[0],
            comparison.budgets[0].examples,
        ),
        *(_STEPS, 0, 0, ""),
    )
    return train(comparison, graphs, trial)


def _numbers(trained: Entry) -> tuple[float, ...]:
    """The loss and the scores of some steps."""
    return (trained["loss"], *(trained[name] for name in METRICS if name in trained))


def _repeats(comparison: Comparison) -> bool:
    """A user's module trained twice from one seed: the same bits, so that the study repeats."""
    first, second = (_trained(comparison, next(iter(comparison.graphs.values()))) for _ in range(2))
    # of numbers or not
    if repr(_numbers(first)) != repr(_numbers(second)):
        raise ControlError(
            f"the module, trained twice from one seed, gives the loss {first['loss']!r} and then "
            f"{second['loss']!r}; let it draw from torch's generator alone, and keep nothing from "
            "one call, or one module, to the next"
        )
    return True


def _reads_its_graph_alone(comparison: Comparison, name: str, graphs: Graphs) -> bool:
    """A user's module in float64, with one node of a sample changed.

    The logits must stay the same where its layers do not reach from the node, and change in some
    place that they do.

    At the start a gate of zeros may stand before what reads the graph, so the parameters are moved
    from there.
    """
    data = comparison.data
    model = comparison.model
    assert isinstance(model, CustomModel)
    torch.manual_seed(0)
    network = CustomNetwork(model, data, comparison.readout, comparison.token).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(_MOVED * torch.randn_like(parameter))
    layers, places, pos, mask, *_ = Reading(data, graphs).given(torch.tensor([0]))
    stack = list(layers)
    if len(stack) == 1:
        stack = stack * model.layers
    field = receptive_field(stack, residual=True).graphs[-1]
    nodes = torch.arange(stack[0].num_targets)
    if pos is not None:
        pos = pos.double()
    inputs = data.inputs[:1]
    if inputs.is_floating_point():
        inputs = inputs.double()
    L = f"{model.layers} layer{'s' * (model.layers > 1)} of {name}"
    readers = 0
    moving = 0
    with torch.no_grad():
        before = network.of_nodes(inputs, layers, places, pos, mask).flatten(0, -2)
        for node in nodes[:: max(1, len(nodes) // _SAMPLES)].tolist() + nodes[-1:].tolist():
            other = inputs.clone()
            other[0, node] = (inputs[0, node] == 0).to(inputs.dtype)
            moved = network.of_nodes(other, layers, places, pos, mask).flatten(0, -2) - before
            reads = field.contains(nodes, torch.full_like(nodes, node))
            wrong = (moved.abs().amax(-1) > BOUND) & ~reads
            if bool(wrong.any()):
                raise ControlError(
                    f"the module reads more than its graphs: node {int(wrong.nonzero()[0])} "
                    f"depends on node {node} of sample 0, that {L} do not reach; give CustomModel "
                    "the layers that it has, or mend the module"
                )
            others = reads & (nodes != node)
            readers += int(others.sum())
            moving += int((moved != 0).any(-1)[others].sum())  # NaN moves, too
    if readers and not moving:
        raise ControlError(
            "the module reads nothing along its graphs: no node of sample 0 depends on another one "
            f"that {L} reach, so that all arms are one; let it use the graphs that it is given"
        )
    return True
