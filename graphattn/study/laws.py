"""Facts about a study before its trials: reach, ceilings, covariates, plain methods."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..analysis import facts, flops, receptive_field, universality
from ..analysis.paths.walks import walk
from ..errors import GraphError, OptionError, need_extra
from ..laws.ceilings import Answers, best_score, numbered
from ..laws.colours import codes_of, means, mixed, refine, union
from ..laws.reach import reached
from ..statistics.intervals import SHARES, Interval, interval
from .arms import DRAWN, REWIRED, Graphs, invariants, unchanged
from .comparison import Comparison
from .data import (
    CLASSES,
    FIT_METRIC,
    LABELS,
    METRICS,
    VALUES,
    Data,
    Scores,
    macro_f1,
    of_labels,
    of_values,
)
from .network import CustomModel, Layers, Model, Network
from .records import Entry
from .train import scaled

_AT_ONCE = 1 << 21  # edges, in all samples, whose colours are refined together
_VISITS = 1 << 25  # of edges, in all samples of a layer, that are refined


def predicted(comparison: Comparison, name: str) -> Entry:
    """Reach, ceiling and covariates of an arm.

    Of rewirings those of seed 0; of samples' own graphs means of a few; of layers that differ the
    mean of their edges, and degrees and the spectrum of the first; of a choice those of all edges
    that may be chosen.
    """
    kind, of = comparison.kinds[name]
    of_arm = comparison.graphs_of(name)
    graphs = of_arm.possible()
    samples = [_of_stack(comparison, stack) for stack in graphs.some(comparison.model.layers)]
    mean = {key: _mean([sample[key] for sample in samples]) for key in samples[0]}
    share, law = _reached(comparison, graphs)
    ceiling: float | None = None
    data = comparison.data
    if kind == "shuffled":
        ceiling = data.chance
        if data.of != "sample" and data.kind != VALUES:  # labels stay at their places
            is_asked = data.asked.numpy()
            answers = Answers(is_asked.nonzero()[1], data.targets.numpy()[is_asked])
            ceiling = best_score("accuracy", answers)
        law = "labels of the training set are shuffled: chance"
    elif law and comparison.metric == "accuracy":
        ceiling = _ceiling(comparison, share)
    bag = _is_bag(comparison, graphs)
    of_first_drawing = None  # samples whose graph a rewiring leaves as it is
    if kind in REWIRED:
        of_first_drawing = unchanged(comparison.graphs[of], graphs)
    colours: dict[str, Scores] = {"colours": {}}
    if kind != "shuffled":
        colours = ceilings(comparison, of_arm)
    return {
        "kind": kind,
        "of": of,
        **mean,
        "keeps": _keeps(comparison, name, graphs),
        "unchanged": of_first_drawing,
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
    layers = comparison.model.layers
    pairs = zip(comparison.graphs[of].some(layers), graphs.some(layers), strict=True)
    properties = [
        invariants(before[0], after[0], kind == "permuted", layers) for before, after in pairs
    ]
    return [word for word in properties[0] if all(word in words for words in properties)]


def with_draws(comparison: Comparison, name: str, prediction: Entry, seeds: Iterable[int]) -> Entry:
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


def _of_stack(comparison: Comparison, stack: Layers) -> Entry:
    """Numbers that are means over samples."""
    graph = stack[0]
    model = comparison.model
    field = receptive_field(list(stack), residual=True).sizes[-1].double()
    graph_facts = facts(graph)
    layers_needed = None  # until the readout depends on all that it ever will
    if comparison.readout == "token" and len(set(stack)) == 1:
        layers_needed = int(walk(graph).backward(comparison.token).max())
    elif len(set(stack)) == 1:
        with suppress(GraphError):
            layers_needed = graph_facts.hops
    least, most = graph_facts.conductance or (None, None)
    operations = None
    if isinstance(model, Model):
        operations = flops(list(stack), model.width, model.heads, hidden=model.hidden).total
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
        "operations": operations,
    }


def _reached(comparison: Comparison, graphs: Graphs) -> tuple[float, str]:
    """The share of what answers need that the readout depends on, and the law of its ceiling.

    Where needs are known, the share of answers that have all of theirs. Where nodes answer and no
    needs are known, 1.
    """
    data = comparison.data
    shares = []
    law = ""
    for layers in graphs.some(comparison.model.layers):
        stack = list(layers)
        if data.needs is not None and comparison.readout != "mean":
            law = "a zero Jacobian: an answer beyond the receptive field is a guess"
            questions = (torch.arange(data.num_nodes) == comparison.token).long()
            if data.of == "node":
                questions = data.asked.sum(0)
            shares.append(reached(stack, data.needs, questions))
        elif comparison.readout == "token":
            field = receptive_field(stack, residual=True).graphs[-1]
            shares.append(int(field.in_degree[comparison.token]) / field.num_sources)
        else:
            shares.append(1.0)
    return fmean(shares), law


def guess_nats(data: Data) -> float:
    """Loss of a guess that knows the shares of the classes, and nothing of a sample.

    Cross-entropy in nats, of labels its mean; of values the variance in their deviations, 1.
    """
    if data.kind == VALUES:
        return 1.0
    targets = data.targets[data.asked].numpy()
    one_colour = np.zeros(len(targets), dtype=np.int64)
    return best_score("bits", Answers(one_colour, targets)) * math.log(2)


def ceilings(comparison: Comparison, graphs: Graphs) -> dict[str, Scores]:
    """The best score that a model along an arm's graphs can have, where it is not perfect.

    Answers of one colour (:func:`graphattn.laws.colours`) are one, so that no model scores better
    than the best function of colours: on what is held out, by the study's score ("colours"), and on
    training examples, by the one that says whether a run fitted ("colours_in_training"). A test that
    is drawn anew is taken from all samples, and the ceiling is that of all; of scores by which less
    is better it is the least. Of many samples some are looked at, evenly chosen.

    None of edges that are chosen, as a choice counts sources, nor of a user's module, which is given
    places and may read them.

    Returns:
        Ceilings by positions, of both.
    """
    held: Scores = {}
    trained: Scores = {}
    if not isinstance(comparison.model, Model) or graphs.chooses:
        return {"colours": held, "colours_in_training": trained}
    data = comparison.data
    test = data.test
    if not isinstance(test, torch.Tensor):
        test = torch.ones(len(data), dtype=torch.bool)
    edges = max(graph.num_edges for graph in (graphs.layers or graphs.few().each))
    most = max(1, _VISITS // max(1, edges))
    for positions in comparison.positions:
        colours = Colours(comparison, graphs, positions)
        answers = _answers(colours, data, test, most)
        _note(held, positions, comparison.metric, answers)
        if comparison.metric == "bits":
            continue  # no level is known from which a run fits
        if isinstance(data.test, torch.Tensor):
            part = ~test
            if data.validation is not None:
                part = part & ~data.validation
            answers = _answers(colours, data, part, most)
        _note(trained, positions, FIT_METRIC[data.kind], answers)
    return {"colours": held, "colours_in_training": trained}


def _note(best_scores: Scores, positions: str, metric: str, answers: Answers) -> None:
    """Add the best score unless it is that of a model that knows all answers."""
    best = best_score(metric, answers)
    if best != best_score(metric, answers.known()):
        best_scores[positions] = best


def _answers(colours: "Colours", data: Data, part: Tensor, most: int) -> Answers:
    """Answers of some samples, evenly chosen if they are more than ``most``."""
    samples = part.nonzero().squeeze(-1)
    samples = samples[:: -(-len(samples) // most)]
    is_asked = data.asked[samples].numpy()
    targets = data.targets[samples].numpy()[is_asked]
    return Answers(numbered(colours.of_answers(samples)[is_asked]), targets)


class Colours:
    """Colours of what the model of a comparison reads out along the graphs of an arm.

    Places are colours where they are learned; the classes of edges are those of the model's tables
    or rotations. A sample's colour is the distribution of its nodes' (readout "mean"), an edge's
    that of both of its ends.
    """

    def __init__(self, comparison: Comparison, graphs: Graphs, positions: str) -> None:
        self.comparison = comparison
        self.positions = positions
        self.graphs = graphs
        edges = max(graph.num_edges for graph in (graphs.layers or graphs.few().each))
        self.at_once = max(1, _AT_ONCE // max(1, edges))
        self.pos = scaled(comparison.data)
        model: Any = comparison.model
        with torch.random.fork_rng(devices=[]):
            self.network = Network(
                model, comparison.data, comparison.readout, positions, comparison.token
            )

    def of_answers(self, samples: Tensor) -> np.ndarray:
        """Colours (S,), or (S, N) of nodes and (S, E) of edges that are asked.

        Samples whose answers are settled before the last layer keep the colours of before it: those
        with a colour of which all answers are the same.
        """
        nodes = first_colours(self.comparison.data, samples, self.positions)
        result = self._read_out(nodes, samples)
        unsettled = torch.from_numpy(_unsettled(result, self.comparison.data, samples))
        unsettled = unsettled.nonzero().squeeze(-1)
        for part in unsettled.split(self.at_once):
            if len(part):
                of_nodes = self._refined(nodes[part.numpy()], samples[part])
                result[part.numpy()] = self._read_out(of_nodes, samples[part])
        return result

    def _refined(self, nodes: np.ndarray, chosen: Tensor) -> np.ndarray:
        """Colours (S, N) after the layers; 0 of padding."""
        data = self.comparison.data
        layers = self.graphs.layers
        places = torch.arange(data.num_nodes)
        pos, pairs = (None if x is None else x[chosen] for x in (self.pos, data.pairs))
        mask = None
        flat = nodes
        if not layers:  # samples with graphs of their own, side by side in one
            layers = (union([self.graphs.each[i] for i in chosen.tolist()]),)
            mask = data.there(chosen)
            places = places.expand(mask.shape)[mask]
            flat = nodes[mask.numpy()][None]
            if pos is not None:
                pos = pos[mask]
        if len(layers) == 1:
            layers = layers * self.comparison.model.layers
        flat = refine(flat, layers, lambda graph: self._classes(graph, places, pos, mask, pairs))
        if mask is None:
            return flat
        result = np.zeros_like(nodes)
        result[mask.numpy()] = flat[0]
        return result

    def _classes(self, graph: Any, places: Tensor, *where: Any) -> np.ndarray:
        """Class of each edge, (E,) or (S, E), as the model's tables or rotations have it."""
        back = (places[graph.target] - places[graph.source]).numpy()
        if self.positions == "rotary":
            return back
        if self.positions == "alibi":
            return np.abs(back)
        if len(self.network.tables):
            with torch.no_grad():
                return self.network._values(graph, places, *where).numpy()
        return np.zeros(len(graph.source), dtype=np.int64)

    def _read_out(self, nodes: np.ndarray, samples: Tensor) -> np.ndarray:
        """Colours of what is read out of nodes (S, N)."""
        readout = self.comparison.readout
        if readout == "mean":
            return means(nodes, self.comparison.data.there(samples).numpy())
        if readout == "token":
            return nodes[:, self.comparison.token].copy()
        if readout == "node":
            return nodes.copy()
        edges: Any = self.comparison.data.asked_edges
        ends = edges[samples].numpy()
        target = np.take_along_axis(nodes, ends[..., 0], 1)
        source = np.take_along_axis(nodes, ends[..., 1], 1)
        return mixed(mixed(target) + source)


def first_colours(data: Data, samples: Tensor, positions: str = "none") -> np.ndarray:
    """Colours of nodes (S, N) by their inputs, and places where they are learned; 0 of padding."""
    inputs = data.inputs[samples].numpy()
    codes = codes_of(inputs.reshape(inputs.shape[0] * inputs.shape[1], -1))
    codes = codes.reshape(inputs.shape[:2])
    if positions == "learned":
        # a token has the hash of its number, too: token 1 at place 0 is not token 0 at place 1
        codes = mixed(mixed(codes) + mixed(np.arange(data.num_nodes, dtype=np.uint64)))
    return codes * data.there(samples).numpy()


def _unsettled(colours: np.ndarray, data: Data, samples: Tensor) -> np.ndarray:
    """True for samples with a colour of which answers differ, (S,)."""
    is_asked = data.asked[samples].numpy()
    colour = numbered(colours[is_asked])
    answers = numbered(codes_of(data.targets[samples].numpy()[is_asked]))
    of_pairs, _ = np.unique(np.stack((colour, answers)), axis=1)
    result = np.zeros(is_asked.shape, dtype=bool)
    result[is_asked] = (np.bincount(of_pairs) > 1)[colour]
    return result.reshape(len(samples), -1).max(1)


def copies(comparison: Comparison) -> dict[str, int]:
    """Held-out samples (of seed 0) that are copies of training samples, and distinct samples.

    Samples are alike whose inputs, places, pairs, graphs and asked nodes are.
    """
    data = comparison.data
    parts = [data.inputs, data.pos, data.pairs, data.asked_edges, data.sizes, data.asked]
    codes = [codes_of(part.reshape(len(data), -1).numpy()) for part in parts if part is not None]
    of_graphs = [
        [hash(graph.edge_index.numpy().tobytes()) for graph in graphs.each]
        for graphs in comparison.graphs.values()
        if graphs.each
    ]
    codes += [np.array(hashes).astype(np.uint64) for hashes in of_graphs]
    rows = codes_of(np.stack(codes, axis=1))
    train, held = (rows[part.numpy()] for part in data.split(0, None))
    return {"copies": int(np.isin(held, train).sum()), "distinct": len(np.unique(rows))}


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
    all_pairs = next(iter(comparison.graphs.values())).everything(comparison.data.causal).digest()
    return next((name for name, edges in comparison.edges.items() if edges == all_pairs), None)


def warnings_of(comparison: Comparison, plan: dict[str, Entry]) -> list[str]:
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


FOREST = "forest"
LINEAR = {
    CLASSES: "logistic regression",
    LABELS: "logistic regression",
    VALUES: "ridge regression",
}
"""Linear methods by kind of targets."""
_LARGEST = 1_000_000  # numbers of a training set, by default
_WIDEST = 4_096  # columns of tokens by place
_TREES = 200
_ITERATIONS = 1_000
_PENALTIES = np.logspace(-3, 4, 15)  # of ridge regression, of which leaving one out takes the best


def methods(data: Data) -> tuple[str, str]:
    """Names of the methods for a kind of targets."""
    return LINEAR[data.kind], FOREST


def can_have_baseline(readout: str, metric: str) -> bool:
    """True if plain methods can answer: a target of each sample, and a score other than bits.

    A forest is certain of what it has not seen, which bits do not forgive.
    """
    return readout in ("mean", "token") and metric != "bits"


def check_baseline(comparisons: Sequence[Comparison], baseline: bool | None) -> None:
    """Refuse plain methods that are asked for where no comparison can have them.

    Raises:
        OptionError: If there is none with a target of each sample and a score other than bits.
        MissingExtraError: If scikit-learn is not installed.
    """
    if not baseline:
        return
    if not any(can_have_baseline(of.readout, of.metric) for of in comparisons):
        settings = ", ".join(f"{of.readout!r} and {of.metric} in {of.name}" for of in comparisons)
        raise OptionError(
            "baseline needs a comparison with a target of each sample and a metric other than "
            f"bits, got readout {settings}; leave it out, and give scores of your own as "
            "Study(baselines={comparison: {method: score}})"
        )
    if find_spec("sklearn") is None:
        raise need_extra("scikit-learn", "study")


def has_baseline(comparison: Comparison, baseline: bool | None) -> bool:
    """True if plain methods are to run: where they can and are asked for, or on small tables."""
    if baseline is False or not can_have_baseline(comparison.readout, comparison.metric):
        return False
    if baseline:
        return True
    data = comparison.data
    numbers = data.inputs[0].numel() * len(data)
    is_table = data.inputs.is_floating_point() and data.sizes is None
    return is_table and numbers <= _LARGEST and find_spec("sklearn") is not None


def scores(comparison: Comparison, seeds: range) -> dict[str, Scores]:
    """The study's score by method and seed, trained on the examples of the last budget."""
    data = comparison.data
    features = features_of(data)
    targets = data.targets.numpy()
    by_method: dict[str, Scores] = {name: {} for name in methods(data)}
    for seed in seeds:
        split = data.split(seed, comparison.budgets[-1].examples)
        train, test = (part.numpy() for part in split)
        for name in by_method:
            guesses = _guesses(name, seed, features[train], targets[train], features[test])
            by_method[name][str(seed)] = _score(comparison.metric, guesses, data.targets[test])
    return by_method


def interval_of(metric: str, by_seed: Scores) -> Interval | None:
    """The interval of a method's scores; a share's stays within 0 and 1."""
    bounds = None
    if METRICS[metric].is_share:
        bounds = SHARES
    return interval([*by_seed.values()], bounds)


def features_of(data: Data) -> np.ndarray:
    """A row of numbers for each sample: its features, or counts of its tokens and each place's.

    Padding is 0, and no token; of many places and tokens, the counts of tokens alone.
    """
    inputs = data.inputs
    mask = data.there()
    if inputs.is_floating_point():
        return inputs.masked_fill(~mask.unsqueeze(-1), 0).flatten(1).numpy()
    tokens = int(inputs.max()) + 1
    counts = torch.zeros(len(data), tokens).scatter_add_(1, inputs, mask.float())
    if tokens * data.num_nodes > _WIDEST:
        return counts.numpy()
    places = torch.nn.functional.one_hot(inputs, tokens) * mask.unsqueeze(-1)
    return torch.cat((counts, places.flatten(1)), 1).numpy()


def _guesses(
    name: str, seed: int, features: np.ndarray, targets: np.ndarray, test: np.ndarray
) -> np.ndarray:
    """Classes or numbers (M, K) of test samples; of labels probabilities less 1/2.

    Each column of the targets has a method of its own; one that is constant is a guess.
    """
    from sklearn import ensemble, linear_model
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    method: Any
    if targets.dtype.kind == "f":
        method = linear_model.RidgeCV(alphas=_PENALTIES)
        if name == FOREST:
            method = ensemble.RandomForestRegressor(_TREES, random_state=seed)
    elif name == FOREST:
        method = ensemble.RandomForestClassifier(_TREES, random_state=seed)
    else:
        method = linear_model.LogisticRegression(max_iter=_ITERATIONS)
    is_label = targets.dtype == bool
    columns = []
    for column in targets.reshape(len(targets), -1).T:
        if (column == column[0]).all():
            columns.append(np.full(len(test), column[0] - 0.5 * is_label))
            continue
        fitted = make_pipeline(StandardScaler(), method).fit(features, column)
        columns.append(fitted.predict_proba(test)[:, 1] - 0.5 if is_label else fitted.predict(test))
    return np.stack(columns, axis=1)


def _score(metric: str, guesses: np.ndarray, targets: Tensor) -> float:
    """The score by which the arms are compared."""
    predicted = torch.from_numpy(guesses)
    if targets.is_floating_point():
        return of_values(predicted, targets, torch.ones(targets.shape[1]))[metric]
    if targets.dtype == torch.bool:
        return of_labels(predicted, targets)[metric]
    classes = predicted.squeeze(1)
    if metric == "macro_f1":
        return macro_f1(classes, targets)
    return float((classes == targets).double().mean())
