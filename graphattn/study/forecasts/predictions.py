"""Predictions: what the graphs of an arm say before anything is trained."""

import math
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from statistics import fmean
from typing import Any

import torch

from ...analysis import facts, flops, receptive_field, universality
from ...analysis.paths.walks import walk
from ...errors import GraphError, OptionError
from ...graph import AttentionGraph
from ..arms import Graphs
from ..comparison import Comparison
from ..controls import DRAWN, REWIRED, everything, invariants, unchanged
from ..costs import operations
from ..data import NOT_ASKED, Data
from ..metrics import CLASSES, LABELS, VALUES
from ..network import Model
from ..own import CustomModel
from .ceilings import ceilings

Layers = tuple[AttentionGraph, ...]
_SAMPLES = 64  # of which homophily is counted, at least
_PAIRS = 20_000_000  # of samples' edges, of which it is counted at most: a second


def predicted(comparison: Comparison, name: str) -> dict[str, Any]:
    """Reach, ceiling and covariates of an arm.

    Of rewirings those of seed 0; of samples' own graphs means of a few; of layers that differ the
    mean of their edges, and degrees and the spectrum of the first; of a choice those of all edges
    that may be chosen.
    """
    kind, of = comparison.kinds[name]
    of_arm = comparison.graphs_of(name)
    graphs = of_arm.possible()
    samples = [_of_layers(comparison, layers) for layers in graphs.some()]
    mean = {key: _mean([sample[key] for sample in samples]) for key in samples[0]}
    if isinstance(comparison.model, CustomModel):
        with suppress(OptionError):  # operators that cannot be counted
            mean["operations"] = operations(comparison, graphs)
    share, law = _reached(comparison, graphs)
    ceiling: float | None = None
    if kind == "shuffled":
        ceiling = _by_place(comparison.data)
        law = "labels of the training set are shuffled: chance"
    elif law and comparison.metric == "accuracy":
        ceiling = _ceiling(comparison, share)
    bag = _is_bag(comparison, graphs)
    colours: dict[str, dict[str, float]] = {"colours": {}}
    if kind != "shuffled":
        colours = ceilings(comparison, of_arm)
    return {
        "kind": kind,
        "of": of,
        **mean,
        "keeps": _keeps(comparison, name, graphs),
        "unchanged": _unchanged(comparison, name, graphs),
        "reached": share,
        "ceiling": ceiling,
        "law": law,
        "bag": bag,
        **colours,
    }


def _keeps(comparison: Comparison, name: str, graphs: Graphs) -> list[str] | None:
    """Properties that a drawn control has in common with its arm; None of other arms."""
    kind, of = comparison.kinds[name]
    if kind not in DRAWN:
        return None
    pairs = zip(comparison.graphs[of].some(), graphs.some(), strict=True)
    layers = comparison.model.layers
    properties = [
        invariants(before[0], after[0], kind == "permuted", layers) for before, after in pairs
    ]
    return [word for word in properties[0] if all(word in words for words in properties)]


def _unchanged(comparison: Comparison, name: str, graphs: Graphs) -> int | None:
    """Samples whose graph the first drawing leaves as it is; None of other arms than rewirings."""
    kind, of = comparison.kinds[name]
    if kind not in REWIRED:
        return None
    return unchanged(comparison.graphs[of], graphs)


def with_draws(
    comparison: Comparison, name: str, prediction: dict[str, Any], seeds: Iterable[int]
) -> dict[str, Any]:
    """The predictions of an arm; of a drawn control that a law bounds, with those of each draw.

    The reach and the ceiling of such a control are means over the draws of each seed.
    """
    kind, of = comparison.kinds[name]
    is_drawn = kind in DRAWN and name not in comparison.graphs
    if not is_drawn or prediction["ceiling"] is None:
        return prediction
    shares = []
    for seed in seeds:
        draws = [
            comparison.drawn(kind, of, seed, draw, few=True)
            for draw in range(comparison.draws_of(name))
        ]
        shares.append([_reached(comparison, graphs)[0] for graphs in draws])
    reached = fmean(chain(*shares))
    ceilings = [[_ceiling(comparison, share) for share in of_seed] for of_seed in shares]
    return {
        **prediction,
        "reached": reached,
        "ceiling": _ceiling(comparison, reached),
        "ceilings": ceilings,
    }


def _ceiling(comparison: Comparison, share: float) -> float:
    """The score of a model that guesses where it lacks what an answer needs."""
    return share + (1 - share) * comparison.data.chance


def _mean(values: list[Any]) -> Any:
    if any(value is None for value in values):
        return None
    if isinstance(values[0], bool):
        return all(values)
    return round(sum(values) / len(values), 6)


def _of_layers(comparison: Comparison, layers: Layers) -> dict[str, Any]:
    """Numbers that are means over samples."""
    graph = layers[0]
    model = comparison.model
    if len(layers) == model.layers:
        stack = layers
    else:
        stack = layers * model.layers
    field = receptive_field(list(stack), residual=True).sizes[-1].double()
    graph_facts = facts(graph)
    layers_needed = None
    if len(set(stack)) == 1:
        layers_needed = _layers_needed(comparison, graph)
    least, most = graph_facts.conductance or (None, None)
    return {
        "nodes": graph.num_targets,
        "edges": sum(layer.num_edges for layer in stack) / len(stack),
        "degree_least": int(graph.in_degree.min()),
        "degree_most": int(graph.in_degree.max()),
        "depends_on_least": int(field.min()),
        "depends_on_mean": float(field.mean()),
        "depends_on_most": int(field.max()),
        "layers_needed": layers_needed,
        "spectral_gap": graph_facts.spectral_gap,
        "conductance_least": least,
        "conductance_most": most,
        "mean_resistance": graph_facts.mean_resistance,
        "roots": graph_facts.roots,
        "strong_components": graph_facts.strong_components,
        "universal": universality(list(dict.fromkeys(stack))).universal,
        "homophily": _homophily(comparison, graph),
        "operations": _operations(model, list(stack)),
    }


def _operations(model: Model | CustomModel, stack: list[AttentionGraph]) -> int | None:
    if isinstance(model, CustomModel):
        return None
    return flops(stack, model.width, model.heads, hidden=model.hidden).total


def _layers_needed(comparison: Comparison, graph: AttentionGraph) -> int | None:
    """Layers until the readout depends on all that it ever will, if they are all of this graph."""
    if comparison.readout == "token":
        return int(walk(graph).backward(comparison.token).max())
    try:
        return facts(graph).hops
    except GraphError:
        return None


def _homophily(comparison: Comparison, graph: AttentionGraph) -> float | None:
    """The share of edges, except self-loops, whose ends have the same target, in all samples.

    Of many samples or edges, in every second sample, or third, and so on. None where not every node
    has a target.
    """
    data = comparison.data
    most = max(_SAMPLES, _PAIRS // max(1, graph.num_edges))
    targets = data.targets[:: math.ceil(len(data) / most)]
    if not data.of_nodes or data.kind != CLASSES or graph.num_targets != comparison.data.num_nodes:
        return None
    source, target = graph.edge_index.cpu()
    a = targets[:, source]
    b = targets[:, target]
    mask = (a != NOT_ASKED) & (b != NOT_ASKED) & (source != target)
    if bool(mask.any()):
        return float((a == b)[mask].double().mean())
    return None


def _reached(comparison: Comparison, graphs: Graphs) -> tuple[float, str]:
    """The share of what answers need that the readout depends on, and the law of its ceiling.

    Where needs are known, the share of answers that have all of theirs. Where nodes answer and no
    needs are known, 1.
    """
    data = comparison.data
    L = comparison.model.layers
    shares = []
    law = ""
    for layers in graphs.some():
        stack = list(layers)
        if len(stack) != L:
            stack = stack * L
        field = receptive_field(stack, residual=True).graphs[-1]
        if data.needs is not None and comparison.readout != "mean":
            needs = data.needs
            law = "a zero Jacobian: an answer beyond the receptive field is a guess"
            is_token = torch.arange(data.num_nodes) == comparison.token
            if data.of_nodes:
                questions = data.asked.sum(0)
            else:
                questions = is_token.long()
            # no padding of this sample
            inside = (needs.target < field.num_targets) & (needs.source < field.num_targets)
            target = needs.target[inside]
            source = needs.source[inside]
            lacking = target[~field.contains(target, source)].unique()
            shares.append(1 - float(questions[lacking].sum() / questions.sum()))
        elif comparison.readout == "token":
            shares.append(int(field.in_degree[comparison.token]) / field.num_sources)
        else:
            shares.append(1.0)
    return sum(shares) / len(shares), law


def guess_nats(data: Data) -> float:
    """Loss of a guess that knows the shares of the classes, and nothing of a sample.

    Cross-entropy in nats, of labels its mean; of values the variance in their deviations, 1.
    """
    if data.kind == VALUES:
        return 1.0
    if data.kind == LABELS:
        label_shares = data.targets[data.asked].double().mean(0)
        return float(
            (torch.special.entr(label_shares) + torch.special.entr(1 - label_shares)).mean()
        )
    shares = data.targets[data.targets != NOT_ASKED].bincount().double()
    return float(-torch.special.xlogy(shares / shares.sum(), shares / shares.sum()).sum())


def _by_place(data: Data) -> float:
    """Chance; where nodes answer, of a guess by place: shuffled labels stay at their places."""
    if data.of == "sample" or data.kind == VALUES:
        return data.chance
    if data.kind == LABELS:
        shares = (data.targets & data.asked.unsqueeze(-1)).double().sum(0)
        shares = shares / data.asked.sum(0).clamp(min=1).unsqueeze(-1)
        best = torch.maximum(shares, 1 - shares).mean(-1)
        return float((best * data.asked.sum(0)).sum() / data.asked.sum())
    by_node = [column[column != NOT_ASKED].bincount(minlength=1) for column in data.targets.t()]
    return float(sum(counts.max() for counts in by_node) / sum(counts.sum() for counts in by_node))


def _is_bag(comparison: Comparison, graphs: Graphs) -> bool:
    """True if no order of the nodes can be learned without positions.

    Every node reads all, or only itself, and the readout is their mean. A user's module is given
    places, and may read them.
    """
    if comparison.readout != "mean" or isinstance(comparison.model, CustomModel):
        return False
    distinct = dict.fromkeys(graphs.layers + graphs.each)
    return all(
        g.num_edges == g.num_targets**2 or g.num_edges == g.num_targets == g._num_loops()
        for g in distinct
    )


def reference(comparison: Comparison) -> str | None:
    """The arm or control of all pairs, the baseline of the others; None without one."""
    for name, (kind, _) in comparison.kinds.items():
        if kind == "full":
            return name
    all_pairs = everything(next(iter(comparison.graphs.values())), comparison.data.causal).digest()
    return next((name for name, edges in comparison.edges.items() if edges == all_pairs), None)


def warnings_of(comparison: Comparison, plan: dict[str, dict[str, Any]]) -> list[str]:
    """Controls that do not exist, and readouts that cannot depend on all that is asked.

    The latter with the theorem; it may be the point.
    """
    L = comparison.model.layers
    missing = [f"{comparison.name}, {name}: {why}" for name, why in comparison.missing.items()]
    return missing + [
        f"{comparison.name}, {name}: after {L} layer{'s' * (L > 1)} its readout depends on "
        f"{arm['reached']:.1%} of what it may need; of the rest the Jacobian is zero, whatever is "
        "trained"
        for name, arm in plan.items()
        if arm["kind"] == "arm" and arm["reached"] < 1
    ]
