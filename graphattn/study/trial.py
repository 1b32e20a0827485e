"""One trial: a model trained along the graphs of an arm, and what it then names rightly."""

import math
import time
from typing import Any

import torch
from torch import Tensor, nn

from ..graph import AttentionGraph
from .arms import Graphs
from .comparison import Comparison, Trial
from .data import NOT_ASKED
from .network import Network, union

_MEMORY = 0.2  # share of the latest loss in the running mean
_AT_ONCE = 128  # samples of an evaluation


class Reading:
    """The batches of a trial, as the network takes them."""

    def __init__(self, comparison: Comparison, graphs: Graphs) -> None:
        self.data, self.graphs = comparison.data, graphs
        self.places = torch.arange(self.data.num_nodes)
        self.pos = None if self.data.pos is None else scaled(self.data.pos)

    def __call__(self, network: Network, chosen: Tensor) -> Tensor:
        """Logits of some samples."""
        data, layers, kept = self.data, self.graphs.layers, None
        pos = None if self.pos is None else self.pos[chosen]
        if not layers:
            layers = (union([self.graphs.each[i] for i in chosen.tolist()]),)
            sizes = torch.full((len(chosen),), data.num_nodes) if data.sizes is None else data.sizes[chosen]
            kept = self.places < sizes.unsqueeze(-1)
        elif pos is not None and network.positions == "distance":
            return torch.cat([self._one(network, i, layers) for i in chosen])
        return network(data.inputs[chosen], layers, self.places, pos, kept)

    def _one(self, network: Network, index: Tensor, layers: tuple[AttentionGraph, ...]) -> Tensor:
        """A sample by itself: distances along one graph differ from sample to sample."""
        pos = None if self.pos is None else self.pos[index : index + 1][0]
        return network(self.data.inputs[index : index + 1], layers, self.places, pos)


def scaled(pos: Tensor) -> Tensor:
    """Places of each sample in its root mean square radius."""
    centred = pos.float() - pos.float().mean(-2, keepdim=True)
    return centred / centred.square().sum(-1, keepdim=True).mean(-2, keepdim=True).sqrt().clamp(min=1e-9)


def loss_of(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy in nats where something is asked."""
    return nn.functional.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=NOT_ASKED, reduction=reduction
    )


def optimizer_of(network: Network, training: Any, steps: int) -> tuple[torch.optim.Optimizer, Any]:
    """AdamW, tables with a rate of their own, and its schedule."""
    tables = list(network.tables.parameters())
    own = {id(p) for p in tables}
    groups: list[dict[str, Any]] = [{"params": [p for p in network.parameters() if id(p) not in own]}]
    if tables:
        groups.append({"params": tables, "lr": training.table_rate or training.rate, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups, training.rate, weight_decay=training.weight_decay, fused=True)
    if training.schedule == "one-cycle":
        rates = [group["lr"] for group in optimizer.param_groups]
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=max(2, steps))
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / training.warmup))


def train(comparison: Comparison, graphs: Graphs, trial: Trial) -> dict[str, Any]:
    """Train and test: the numbers of a record. The same arguments give the same numbers on one thread."""
    start = time.process_time()
    data, training = comparison.data, comparison.training
    seen, held = data.split(trial.seed, trial.examples)
    targets = data.targets.clone()
    if trial.kind == "shuffled":
        order = torch.randperm(len(seen), generator=torch.Generator().manual_seed(trial.seed + 1))
        targets[seen] = targets[seen[order]]
    torch.manual_seed(trial.seed)
    network = Network(comparison.model, data, comparison.readout, trial.positions, comparison.token)
    initial, (parameters, position_parameters) = network.digest(), network.parameters_apart()
    optimizer, schedule = optimizer_of(network, training, trial.steps)
    read, random = Reading(comparison, graphs), torch.Generator().manual_seed(trial.seed)
    mean, steps = math.nan, 0
    for steps in range(1, trial.steps + 1):
        chosen = seen[torch.randint(len(seen), (training.batch,), generator=random)]
        loss = loss_of(read(network, chosen), targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), training.clip)
        optimizer.step()
        schedule.step()
        latest = float(loss.detach())
        mean = latest if steps == 1 else mean + _MEMORY * (latest - mean)
        if training.stop is not None and mean <= training.stop:
            break
    capped = training.stop is not None and mean > training.stop
    from .probes import probed

    return {
        "state": "capped" if capped else "done",
        **scored(network, read, data.targets, held),
        "probes": probed(comparison, graphs, network, held, along_full=trial.kind == "arm"),
        "loss": mean,
        "steps_taken": steps,
        "initial": initial,
        "parameters": parameters,
        "position_parameters": position_parameters,
        "cpu_s": round(time.process_time() - start, 2),
    }


def scored(network: Network, read: Reading, targets: Tensor, held: Tensor) -> dict[str, Any]:
    """Accuracy and bits per answer on what was held out, and how many answers there were."""
    right = nats = asked = 0.0
    with torch.no_grad():
        network.eval()
        for some in held.split(_AT_ONCE):
            logits, wanted = read(network, some), targets[some]
            right += float((logits.argmax(-1) == wanted).sum())
            nats += float(loss_of(logits, wanted, "sum"))
            asked += float((wanted != NOT_ASKED).sum())
    return {"accuracy": right / asked, "bits": nats / asked / math.log(2), "answers": int(asked)}
