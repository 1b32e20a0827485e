"""Measurements of what a trained model does with its graph, on a few samples that were held out."""

import math
from typing import Any

import torch
from torch import Tensor

from ..analysis.recording import record_weights
from .arms import Graphs
from .comparison import Comparison
from .controls import everything
from .fitting import Reading, scored
from .network import Network
from .own import CustomNetwork

_SAMPLES = 32


def probed(
    comparison: Comparison,
    graphs: Graphs,
    network: Network | CustomNetwork,
    held: Tensor,
    *,
    along_full: bool,
    targets: Tensor | None = None,
    unit: Tensor | None = None,
) -> dict[str, Any]:
    """Numbers of one trained model; of values with its standardised targets and their unit.

    Returns:
        ``entropy`` (bits) and ``distance`` (places) of attention, the mean over heads and targets
        of each layer; ``spread``: the distance of the tokens to their mean after each layer, over
        their norm (1 is no collapse); ``effective_nodes``: how many nodes the gradient of the
        readout is spread over, (sum g)^2 / sum g^2; and ``along_full``: the score along all pairs,
        a graph that it was not trained on; of a user's module this alone.
    """
    result: dict[str, Any] = {}
    if isinstance(network, Network):
        result = _inside(comparison, graphs, network, held[:_SAMPLES])
    if along_full:
        if targets is None:
            targets = comparison.data.targets
        other = Reading(comparison.data, everything(graphs, comparison.data.causal))
        metric = comparison.metric
        result["along_full"] = scored(network, other, targets, held, metric, unit)[metric]
    return result


def _inside(
    comparison: Comparison, graphs: Graphs, network: Network, samples: Tensor
) -> dict[str, Any]:
    """Measurements within the layers."""
    read = Reading(comparison.data, graphs)
    states = []
    layers: Any = network.encoder.layers
    hooks = [layer.register_forward_hook(lambda *call: states.append(call[2])) for layer in layers]
    with torch.no_grad(), record_weights(network.encoder) as weights:
        read(network, samples)
    for hook in hooks:
        hook.remove()
    result: dict[str, Any] = {"entropy": [], "distance": []}
    for layer_weights in weights.values():
        # (B, E, H), or (E, H)
        alpha = layer_weights.alpha
        graph = layer_weights.graph
        rows = alpha.shape[:-2].numel() * alpha.shape[-1] * max(1, graph.target.unique().numel())
        bits = -(alpha * alpha.clamp(min=1e-30).log2()).sum()
        distance = (graph.target - graph.source).abs().unsqueeze(-1)
        result["entropy"].append(float(bits / rows))
        result["distance"].append(float((alpha * distance).sum() / rows))
    mask = read.given(samples)[3]
    if mask is None:
        sizes = [x.shape[-2] for x in states[:1]]
    else:
        sizes = mask.sum(-1).tolist()
    result["spread"] = [spread(x, sizes) for x in states]
    result["effective_nodes"] = effective_nodes(comparison, network, read, samples)
    return result


def spread(x: Tensor, sizes: list[int]) -> float:
    """Distance of nodes (..., N, C) from the mean of their sample, over their norm.

    Samples side by side have ``sizes``.
    """
    deviations = [part - part.mean(-2, keepdim=True) for part in x.split(sizes, -2)]
    return float(torch.cat(deviations, -2).norm() / x.norm())


def effective_nodes(
    comparison: Comparison, network: Network, read: Reading, samples: Tensor
) -> float:
    """The participation number of the readout's gradient over the nodes.

    Of the last node, or edge, where all are read out.
    """
    embedded: list[Tensor] = []

    def keep(module: Any, args: Any, output: Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    hook = network.embedding.register_forward_hook(keep)
    logits = read(network, samples)
    hook.remove()
    if comparison.readout in ("node", "edge"):
        answer = logits[:, -1]
    else:
        answer = logits
    answer.amax(-1).sum().backward()
    size = torch.cat([x.grad for x in embedded if x.grad is not None]).norm(dim=-1)  # (B, N)
    network.zero_grad()
    number = float((size.sum(-1).square() / size.square().sum(-1)).nanmean())
    if math.isfinite(number):
        return number
    return 0.0
