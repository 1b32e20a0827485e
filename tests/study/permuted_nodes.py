"""Networks of a study in float64, with nodes, places and graph permuted alike."""

from dataclasses import replace

import torch

from graphattn.study.arms import Graphs
from graphattn.study.network import network_of
from graphattn.study.train import Reading, asked_of, loss_of, scaled

_SAMPLES = 5


def permuted(comparison, graphs, positions):
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
    return worst


def _few(data, graphs):
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


def _rows(x, index):
    """``x[index]``, or None."""
    if x is None:
        return None
    return x[index]


def _order(size, nodes, token):
    """The new place of each of ``size`` nodes; the one that is read out stays, as does padding."""
    order = torch.arange(nodes)
    free = torch.tensor([node for node in range(size) if node != token], dtype=torch.int64)
    order[free] = free[torch.randperm(len(free), generator=torch.Generator().manual_seed(1))]
    return order


def _moved(data, at):
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


def _outputs(network, data, graphs, places, order):
    """Logits of a few samples in the order of before, and the gradients of all parameters."""
    read = Reading(data, graphs)
    read.places = places
    read.pos = scaled(data, torch.float64)
    logits = read(network, torch.arange(len(data)))
    if network.readout == "node":
        logits = logits[torch.arange(len(data))[:, None], order.expand(len(data), -1)]
    network.zero_grad()
    mask = asked_of(data, data.targets)
    loss_of(logits[mask], data.targets[mask]).backward()
    return [logits.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)]
