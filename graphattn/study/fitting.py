"""A model trained along the graphs of an arm with one rate, and what it then names rightly."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .arms import Graphs
from .comparison import Comparison, Trial
from .data import NOT_ASKED, Data
from .metrics import CLASSES, LABELS, VALUES, macro_f1, of_labels, of_values
from .network import Network, union
from .own import CustomNetwork, network_of

_MEMORY = 0.2  # share of the latest loss in the running mean
_AT_ONCE = 128  # samples of an evaluation
_POINTS = 20  # of a curve, at most


class Reading:
    """The batches of a trial, as the network takes them."""

    def __init__(self, data: Data, graphs: Graphs) -> None:
        self.data = data
        self.graphs = graphs
        self.places = torch.arange(data.num_nodes)
        self.pos = scaled(data)

    def __call__(self, network: Network | CustomNetwork, chosen: Tensor) -> Tensor:
        """Logits of some samples."""
        return network(self.data.inputs[chosen], *self.given(chosen))

    def given(self, chosen: Tensor) -> tuple[Any, ...]:
        """Arguments of a network on some samples, after their inputs."""
        data = self.data
        layers = self.graphs.layers
        kept = None
        if not layers:
            layers = (union([self.graphs.each[i] for i in chosen.tolist()]),)
            if data.sizes is None:
                sizes = torch.full((len(chosen),), data.num_nodes)
            else:
                sizes = data.sizes[chosen]
            kept = torch.arange(data.num_nodes) < sizes.unsqueeze(-1)
        by_sample = (self.pos, data.pairs, data.asked_edges)
        pos, pairs, ends = (None if x is None else x[chosen] for x in by_sample)
        return layers, self.places, pos, kept, pairs, ends


def scaled(data: Data, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """Places of each sample in its root mean square radius, without its padding."""
    if data.pos is None:
        return None
    if data.sizes is None:
        sizes = torch.full((len(data),), data.num_nodes)
    else:
        sizes = data.sizes
    there = (torch.arange(data.num_nodes) < sizes[:, None]).unsqueeze(-1)
    pos = data.pos.to(dtype) * there
    count = sizes.view(-1, 1, 1)
    centred = (pos - pos.sum(-2, keepdim=True) / count) * there
    return centred / (centred.square().sum((-2, -1), keepdim=True) / count).sqrt().clamp(min=1e-9)


def loss_of(
    logits: Tensor, targets: Tensor, reduction: str = "mean", asked: Tensor | None = None
) -> Tensor:
    """Loss where something is asked: cross-entropy in nats, of labels their mean; squared error."""
    if asked is not None:
        logits = logits[asked]
        targets = targets[asked]
        if targets.is_floating_point():
            loss = nn.functional.mse_loss(logits, targets.to(logits.dtype), reduction="none")
        else:
            loss = nn.functional.binary_cross_entropy_with_logits(
                logits, targets.to(logits.dtype), reduction="none"
            )
        of_answers = loss.mean(-1)
        if reduction == "sum":
            return of_answers.sum()
        return of_answers.mean()
    return nn.functional.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=NOT_ASKED, reduction=reduction
    )


def optimizer_of(
    network: Network | CustomNetwork, training: Any, steps: int
) -> tuple[torch.optim.Optimizer, Any]:
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

    network: Network | CustomNetwork
    rate: float
    initial: str
    loss: float
    steps: int
    capped: bool
    curve: list[list[float]]


class Curve:
    """Loss and accuracy of training batches: means over as many stretches as a curve has points."""

    def __init__(self, steps: int) -> None:
        self.stretch = -(-steps // _POINTS)
        self.points: list[list[float]] = []
        self.loss = 0.0
        self.right = 0.0
        self.batches = 0

    def add(self, step: int, loss: float, right: float) -> None:
        """Take a batch in, and end a stretch with its last batch."""
        self.loss += loss
        self.right += right
        self.batches += 1
        if step % self.stretch == 0:
            self.end(step)

    def end(self, step: int) -> list[list[float]]:
        """All points, ``[step, loss, accuracy]``, with one of the batches since the last."""
        if self.batches:
            loss = self.loss / self.batches
            right = self.right / self.batches
            self.points.append([step, round(loss, 5), round(right, 4)])
            self.loss = 0.0
            self.right = 0.0
            self.batches = 0
        return self.points


def share_right(logits: Tensor, targets: Tensor, asked: Tensor | None, loss: float) -> float:
    """The share of answers that are right, of those asked; of values R2; of labels NaN.

    Of labels most are right where few hold, so that a curve would say nothing.
    """
    if asked is not None:
        if targets.is_floating_point():
            return 1.0 - loss
        return math.nan
    asked = targets != NOT_ASKED
    right = (logits.argmax(-1) == targets) & asked
    return float(right.sum()) / max(1, int(asked.sum()))


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
    curve = Curve(trial.steps)
    masked = asked_of(comparison.data)
    for steps in range(1, trial.steps + 1):
        chosen = seen[torch.randint(len(seen), (training.batch,), generator=random)]
        logits = read(network, chosen)
        some = None
        if masked is not None:
            some = masked[chosen]
        loss = loss_of(logits, targets[chosen], asked=some)
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
        curve.add(steps, latest, share_right(logits.detach(), targets[chosen], some, latest))
        if training.stop is not None and mean <= training.stop:
            break
    capped = training.stop is not None and not mean <= training.stop
    return Fit(network, rate, initial, mean, steps, capped, curve.end(steps))


def asked_of(data: Data) -> Tensor | None:
    """True where labels and values are asked; None of classes, whose targets say so."""
    if data.kind == CLASSES:
        return None
    return data.asked


def scored(
    network: Network | CustomNetwork,
    read: Reading,
    targets: Tensor,
    held: Tensor,
    metric: str = "accuracy",
    unit: Tensor | None = None,
) -> dict[str, Any]:
    """Scores on what was held out, and how many answers there were.

    Of classes accuracy and bits per answer, and macro F1 if it is the study's; of labels AP, too;
    of values MAE, of which ``unit`` is a deviation, and R2.
    """
    right = nats = asked = 0.0
    guesses = []
    answers = []
    masked = asked_of(read.data)
    with torch.no_grad():
        network.eval()
        for some in held.split(_AT_ONCE):
            logits = read(network, some)
            wanted = targets[some]
            if masked is not None:
                there = masked[some]
                nats += float(loss_of(logits, wanted, "sum", there))
                asked += float(there.sum())
                guesses.append(logits[there])
                answers.append(wanted[there])
                continue
            right += float((logits.argmax(-1) == wanted).sum())
            nats += float(loss_of(logits, wanted, "sum"))
            asked += float((wanted != NOT_ASKED).sum())
            if metric == "macro_f1":
                guesses.append(logits.argmax(-1)[wanted != NOT_ASKED])
                answers.append(wanted[wanted != NOT_ASKED])
    bits = nats / asked / math.log(2)
    if read.data.kind == VALUES:
        assert unit is not None
        scores = of_values(torch.cat(guesses), torch.cat(answers), unit)
        return {**scores, "answers": int(asked)}
    if read.data.kind == LABELS:
        scores = of_labels(torch.cat(guesses), torch.cat(answers))
        return {**scores, "bits": bits, "answers": int(asked)}
    scores = {"accuracy": right / asked, "bits": bits}
    if metric == "macro_f1":
        scores["macro_f1"] = macro_f1(torch.cat(guesses), torch.cat(answers))
    return {**scores, "answers": int(asked)}
