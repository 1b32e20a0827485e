"""One trial: a model trained with every rate, the best of them tested and looked into."""

import base64
import math
import time
import zlib
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..analysis.recording import record_weights
from .arms import Graphs
from .comparison import Comparison, Trial
from .data import CLASSES, LABELS, METRICS, NOT_ASKED, VALUES, Data, macro_f1, of_labels, of_values
from .network import Network, Readout, network_of, union
from .records import Entry

_MEMORY = 0.2  # share of the latest loss in the running mean
_AT_ONCE = 128  # samples of an evaluation
_POINTS = 20  # of a curve, at most
_SAMPLES = 32  # that are looked into
_VALIDATION = 0.2  # share of the training examples by which one of several rates is chosen
_READ_AGAIN = 1_024  # training examples, at most, on which accuracy in training is measured


def examples_right(network: Any, read: Any, data: Data, held: Tensor) -> dict[str, str]:
    """Right answers of each held-out sample, in the order of samples, where all seeds share them.

    Where each seed draws its own, the interval over seeds is of the test set, too, and nothing is
    recorded; nor is it of targets that are no classes.
    """
    if not isinstance(data.test, Tensor) or data.kind != CLASSES:
        return {}
    held = held.sort().values
    network.eval()
    with torch.no_grad():
        guesses = [read(network, some).argmax(-1) for some in held.split(_AT_ONCE)]
    # what is not asked is -100, no class, and never right
    marks = (torch.cat(guesses) == data.targets[held], data.asked[held])
    counts = torch.stack([mark.reshape(len(held), -1).sum(1) for mark in marks])
    numbers = counts.numpy().astype("<u2")
    return {"examples_right": base64.b64encode(zlib.compress(numbers.tobytes(), 9)).decode()}


class Reading:
    """The batches of a trial, as the network takes them."""

    def __init__(self, data: Data, graphs: Graphs) -> None:
        self.data = data
        self.graphs = graphs
        self.places = torch.arange(data.num_nodes)
        self.pos = scaled(data)

    def __call__(self, network: Readout, chosen: Tensor) -> Tensor:
        """Logits of some samples."""
        return network(self.data.inputs[chosen], *self.given(chosen))

    def given(self, chosen: Tensor) -> tuple[Any, ...]:
        """Arguments of a network on some samples, after their inputs."""
        data = self.data
        layers = self.graphs.layers
        kept = None
        if not layers:
            layers = (union([self.graphs.each[i] for i in chosen.tolist()]),)
            kept = data.there(chosen)
        by_sample = (self.pos, data.pairs, data.asked_edges)
        pos, pairs, ends = (None if x is None else x[chosen] for x in by_sample)
        return layers, self.places, pos, kept, pairs, ends


def scaled(data: Data, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """Places of each sample in its root mean square radius, without its padding."""
    if data.pos is None:
        return None
    there = data.there().unsqueeze(-1)
    pos = data.pos.to(dtype) * there
    count = data.nodes.view(-1, 1, 1)
    centred = (pos - pos.sum(-2, keepdim=True) / count) * there
    return centred / (centred.square().sum((-2, -1), keepdim=True) / count).sqrt().clamp(min=1e-9)


def loss_of(logits: Tensor, answers: Tensor) -> Tensor:
    """Mean loss of answers: cross-entropy in nats, of values squared error."""
    if answers.dtype == torch.int64:
        return nn.functional.cross_entropy(logits, answers)
    numbers = answers.to(logits.dtype)
    if answers.is_floating_point():
        return nn.functional.mse_loss(logits, numbers)
    return nn.functional.binary_cross_entropy_with_logits(logits, numbers)


def optimizer_of(network: Readout, training: Any, steps: int) -> tuple[torch.optim.Optimizer, Any]:
    """AdamW, tables with a rate of their own, and its schedule."""
    tables = list(network.tables.parameters())
    own = {id(p) for p in tables}
    groups: list[dict[str, Any]] = [
        {"params": [p for p in network.parameters() if id(p) not in own]}
    ]
    if tables:
        groups.append(
            {"params": tables, "lr": training.table_rate or training.rate, "weight_decay": 0.0}
        )
    optimizer = torch.optim.AdamW(
        groups, training.rate, weight_decay=training.weight_decay, fused=True
    )
    if training.schedule == "one-cycle":
        rates = [group["lr"] for group in optimizer.param_groups]
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(
            optimizer, rates, total_steps=max(2, steps)
        )
    return optimizer, torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min(1.0, (i + 1) / training.warmup)
    )


@dataclass(frozen=True, eq=False)
class Fit:
    """A model that was trained with one rate."""

    network: Readout
    rate: float
    initial: str
    loss: float
    steps: int
    capped: bool
    curve: list[list[float]]


def curve_points(batches: list[tuple[float, float]], steps: int) -> list[list[float]]:
    """Points ``[step, loss, accuracy]``: means of stretches of training batches, 20 at most.

    Args:
        batches: Loss and accuracy of each batch.
        steps: Batches that were planned.
    """
    stretch = -(-steps // _POINTS)
    points = []
    for start in range(0, len(batches), stretch):
        part = torch.tensor(batches[start : start + stretch], dtype=torch.float64)
        loss, right = part.mean(0).tolist()
        points.append([start + len(part), round(loss, 5), round(right, 4)])
    return points


def share_right(logits: Tensor, answers: Tensor, loss: float) -> float:
    """The share of answers that are right; of values R2; of labels NaN.

    Of labels most are right where few hold, so that a curve would say nothing.
    """
    if answers.is_floating_point():
        return 1.0 - loss
    if answers.dtype == torch.bool:
        return math.nan
    return float((logits.argmax(-1) == answers).double().mean())


def fit(
    comparison: Comparison, read: Reading, trial: Trial, seen: Tensor, targets: Tensor, rate: float
) -> Fit:
    """Train from the state and along the batches that the seed gives."""
    training = replace(comparison.training, rate=rate)
    torch.manual_seed(trial.seed)
    network = network_of(
        comparison.model, comparison.data, comparison.readout, trial.positions, comparison.token
    )
    initial = network.digest()
    random = torch.Generator().manual_seed(trial.seed)
    optimizer, schedule = optimizer_of(network, training, trial.steps)
    parameters = list(network.parameters())
    mean = math.nan
    steps = 0
    batches = []
    is_asked = asked_of(comparison.data, targets)
    for steps in range(1, trial.steps + 1):
        chosen = seen[torch.randint(len(seen), (training.batch,), generator=random)]
        mask = is_asked[chosen]
        logits = read(network, chosen)[mask]
        answers = targets[chosen][mask]
        loss = loss_of(logits, answers)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, training.clip)
        optimizer.step()
        schedule.step()
        latest = float(loss.detach())
        if steps == 1:
            mean = latest
        else:
            mean = mean + _MEMORY * (latest - mean)
        batches.append((latest, share_right(logits.detach(), answers, latest)))
        if training.stop is not None and mean <= training.stop:
            break
    capped = training.stop is not None and not mean <= training.stop
    return Fit(network, rate, initial, mean, steps, capped, curve_points(batches, trial.steps))


def asked_of(data: Data, targets: Tensor) -> Tensor:
    """True where something is asked; of classes the targets, which may be shuffled, say so."""
    if data.kind == CLASSES:
        return targets != NOT_ASKED
    return data.asked


def scored(
    network: Readout,
    read: Reading,
    targets: Tensor,
    held: Tensor,
    metric: str = "accuracy",
    unit: Tensor | None = None,
) -> Entry:
    """Scores on what was held out, and how many answers there were.

    Of classes accuracy and bits per answer, and macro F1 if it is the study's; of labels AP, too;
    of values MAE, of which ``unit`` is a deviation, and R2.
    """
    data = read.data
    is_asked = asked_of(data, targets)
    network.eval()
    with torch.no_grad():
        parts = [read(network, some)[is_asked[some]] for some in held.split(_AT_ONCE)]
    logits = torch.cat(parts)
    answers = targets[held][is_asked[held]]
    if data.kind == VALUES:
        assert unit is not None
        return {**of_values(logits, answers, unit), "answers": len(answers)}
    if data.kind == LABELS:
        scores = of_labels(logits, answers)
    else:
        guesses = logits.argmax(-1)
        scores = {"accuracy": float((guesses == answers).double().mean())}
        if metric == "macro_f1":
            scores["macro_f1"] = macro_f1(guesses, answers)
    bits = float(loss_of(logits, answers)) / math.log(2)
    return {**scores, "bits": bits, "answers": len(answers)}


def probed(
    comparison: Comparison,
    graphs: Graphs,
    network: Readout,
    held: Tensor,
    *,
    along_full: bool,
    targets: Tensor | None = None,
    unit: Tensor | None = None,
) -> Entry:
    """Numbers of one trained model; of values with its standardised targets and their unit.

    Returns:
        ``entropy`` (bits) and ``distance`` (places) of attention, the mean over heads and targets
        of each layer; ``spread``: the distance of the tokens to their mean after each layer, over
        their norm (1 is no collapse); ``effective_nodes``: how many nodes the gradient of the
        readout is spread over, (sum g)^2 / sum g^2; and ``along_full``: the score along all pairs,
        a graph that it was not trained on; of a user's module this alone.
    """
    result: Entry = {}
    if isinstance(network, Network):
        result = _inside(comparison, graphs, network, held[:_SAMPLES])
    if along_full:
        if targets is None:
            targets = comparison.data.targets
        other = Reading(comparison.data, graphs.everything(comparison.data.causal))
        metric = comparison.metric
        result["along_full"] = scored(network, other, targets, held, metric, unit)[metric]
    return result


def _inside(comparison: Comparison, graphs: Graphs, network: Network, samples: Tensor) -> Entry:
    """Measurements within the layers."""
    read = Reading(comparison.data, graphs)
    states = []
    layers: Any = network.encoder.layers
    hooks = [layer.register_forward_hook(lambda *call: states.append(call[2])) for layer in layers]
    with torch.no_grad(), record_weights(network.encoder) as weights:
        read(network, samples)
    for hook in hooks:
        hook.remove()
    result: Entry = {"entropy": [], "distance": []}
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

    Of the last node, or edge, that is asked, where all are read out.
    """
    embedded: list[Tensor] = []

    def keep(module: Any, args: Any, output: Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    hook = network.embedding.register_forward_hook(keep)
    logits = read(network, samples)
    hook.remove()
    answer = logits
    if comparison.readout in ("node", "edge"):
        asked = comparison.data.asked[samples]
        last = asked.shape[1] - 1 - asked.flip(1).int().argmax(1)
        answer = logits[torch.arange(len(samples)), last]
    answer.amax(-1).sum().backward()
    size = torch.cat([x.grad for x in embedded if x.grad is not None]).norm(dim=-1)  # (B, N)
    network.zero_grad()
    number = float((size.sum(-1).square() / size.square().sum(-1)).nanmean())
    if math.isfinite(number):
        return number
    return 0.0


def train(comparison: Comparison, graphs: Graphs, trial: Trial) -> Entry:
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


def goodness(found: Entry, metric: str) -> tuple[float, float]:
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
