"""Assertions on a comparison before any trial: what relabelling must leave the same."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import nulls
from ..analysis import receptive_field
from ..errors import ControlError
from .arms import Graphs, is_structured
from .comparison import Comparison, Trial
from .data import METRICS, Data
from .network import CustomModel, CustomNetwork, Network, network_of
from .train import Reading, asked_of, loss_of, scaled, train

_STEPS, _SAMPLES, BOUND, _MOVED = 3, 5, 1e-9, 0.1


def measured(comparison: Comparison) -> dict[str, Any]:
    """Make the asserts that fit the comparison, and return what was measured.

    Raises:
        ControlError: If one does not hold.
    """
    result: dict[str, Any] = {}
    if isinstance(comparison.model, CustomModel):
        result["the same training twice: bit for bit"] = _repeats(comparison)
    first_graphs = next(iter(comparison.graphs.values()))
    if not comparison.data.causal:
        result["relabelled full: bit for bit"] = _relabelled_full(
            comparison, first_graphs.everything(False)
        )
    for name, graphs in comparison.graphs.items():
        if is_structured(graphs, comparison.data.causal):
            for positions in comparison.positions:
                result[f"{name}, positions {positions}, permuted with its nodes"] = _permuted(
                    comparison, graphs, positions
                )
            break
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


def _trained(comparison: Comparison, graphs: Graphs) -> dict[str, Any]:
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


def _numbers(trained: dict[str, Any]) -> tuple[float, ...]:
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
            if inputs.is_floating_point():
                other[0, node] = inputs[0, node] + 1
            else:
                other[0, node] = (inputs[0, node] == 0).long()
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


def _permuted(comparison: Comparison, graphs: Graphs, positions: str) -> float:
    """Largest difference of outputs and gradients after permuting nodes, places and graph alike."""
    small, graphs = _few(comparison.data, graphs)
    torch.manual_seed(0)
    network = network_of(
        comparison.model, comparison.data, comparison.readout, positions, comparison.token
    )
    network = network.double().eval()
    if comparison.readout == "token":
        token = comparison.token
    else:
        token = -1
    nodes = small.num_nodes
    if graphs.layers:
        order = _order(nodes, nodes, token)
        other = graphs.map(lambda graph: graph.relabel(order))
    else:
        sizes = [nodes] * len(small)
        if small.sizes is not None:
            sizes = small.sizes.tolist()
        order = torch.stack([_order(size, nodes, token) for size in sizes])
        pairs = zip(graphs.each, order, strict=True)
        other = Graphs(
            each=tuple(graph.relabel(order[: graph.num_targets]) for graph, order in pairs)
        )
    moved = _moved(small, order.argsort(-1))
    unmoved = torch.arange(small.num_nodes)
    before = _outputs(network, small, graphs, unmoved, unmoved)
    after = _outputs(network, moved, other, order.argsort(-1), order)
    worst = max(float((a - b).abs().max()) for a, b in zip(before, after, strict=True))
    if not worst <= BOUND:
        raise ControlError(
            f"permuting nodes, places and graph alike changed a result by {worst:.2g} (bound "
            f"{BOUND})"
        )
    return worst


def _few(data: Data, graphs: Graphs) -> tuple[Data, Graphs]:
    """A few samples, evenly chosen, in float64, with their graphs."""
    chosen = torch.arange(0, len(data), max(1, len(data) // _SAMPLES))[:_SAMPLES]
    inputs = data.inputs[chosen]
    if data.inputs.is_floating_point():
        inputs = inputs.double()
    small = replace(
        data,
        inputs=inputs,
        targets=data.targets[chosen],
        pos=_rows(data.pos, chosen),
        test=1,
        sizes=_rows(data.sizes, chosen),
        pairs=_rows(data.pairs, chosen),
        asked_edges=_rows(data.asked_edges, chosen),
        validation=None,
        groups=None,
    )
    if graphs.each:
        graphs = replace(graphs, each=tuple(graphs.each[i] for i in chosen.tolist()))
    return small, graphs


def _rows(x: Tensor | None, index: Any) -> Tensor | None:
    """``x[index]``, or None."""
    if x is None:
        return None
    return x[index]


def _order(size: int, nodes: int, token: int) -> Tensor:
    """The new place of each of ``size`` nodes; the one that is read out stays, as does padding."""
    order = torch.arange(nodes)
    free = torch.tensor([node for node in range(size) if node != token], dtype=torch.int64)
    order[free] = free[torch.randperm(len(free), generator=torch.Generator().manual_seed(1))]
    return order


def _moved(data: Data, at: Tensor) -> Data:
    """The samples with the node ``at[n]``, or ``at[sample, n]``, in place n."""
    sample = torch.arange(len(data))[:, None]
    at = at.expand(len(data), -1)
    pos = _rows(data.pos, (sample, at))
    pairs = _rows(data.pairs, (sample, at))
    if pairs is not None:
        pairs = pairs.take_along_dim(at[:, None], 2)
    ends = data.asked_edges
    if ends is not None:
        ends = at.argsort(-1)[sample.unsqueeze(-1), ends]
    inputs = data.inputs[sample, at]
    return replace(data, inputs=inputs, pos=pos, pairs=pairs, asked_edges=ends)


def _outputs(
    network: Network | CustomNetwork, data: Data, graphs: Graphs, places: Tensor, order: Tensor
) -> list[Tensor]:
    """Logits of a few samples in the order of before, and the gradients of all parameters."""
    read = Reading(data, graphs)
    read.places = places
    read.pos = scaled(data, torch.float64)
    logits = read(network, torch.arange(len(data)))
    if network.readout == "node":
        logits = logits[torch.arange(len(data))[:, None], order.expand(len(data), -1)]
    network.zero_grad()
    loss_of(logits, data.targets, asked=asked_of(data)).backward()
    return [logits.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)]
