"""Public benchmarks on any device: arms that differ in the graph, and in what belongs to it, over
several seeds.

    python examples/public_benchmarks/train.py --list
    python examples/public_benchmarks/train.py zinc --root data/zinc --arms edges gps exphormer grit
    --device cuda

The files are read where they are; ``--list`` names them. A line of JSON for each arm and seed goes
to ``--out``; what is there already is not trained again. Reported is the test score at the best
validation score, and the difference to the first arm, paired by seed, with its 95 % t interval. No
published number is reproduced: widths, depths and rates are the same for every arm, and untuned.
``graphattn study`` is for classes on a CPU, bit for bit; this is for what is larger, and for
regression.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import benchmark_files as files
import torch
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Batch
from torch_geometric.nn import GINEConv

import graphattn as ga
from graphattn import graphs
from graphattn.models import Encoder, GraphTransformer
from graphattn.statistics.intervals import interval


class Task(NamedTuple):
    """A benchmark.

    Args:
        read: From a folder its splits.
        out: Outputs.
        loss: Of outputs and targets.
        score: The metric, of outputs and targets; higher is better.
        metric: Its name.
        inputs: Kinds of tokens or of atoms, or the width of features.
        layout: The files.
        edge_dim: Width of the features of edges; 0 for sequences.
        readout: "mean" or "node".
    """

    read: Callable[[str], dict[str, Any]]
    out: int
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], float]
    metric: str
    inputs: int
    layout: str
    edge_dim: int = 0
    readout: str = "mean"


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.argmax(-1) == targets).double().mean())


def less_error(outputs: Tensor, targets: Tensor) -> float:
    return -float((outputs - targets).abs().mean())


def precision(outputs: Tensor, targets: Tensor) -> float:
    """Mean over the labels that some sample has and some lacks."""
    both = [i for i in range(targets.shape[1]) if 0 < targets[:, i].sum() < len(targets)]
    return float(average_precision_score(targets[:, both], outputs[:, both])) if both else 0.0


def macro_f1(outputs: Tensor, targets: Tensor) -> float:
    return float(f1_score(targets, outputs.argmax(-1), average="macro"))


def several(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs))


LRGB = "{0}/raw/train.{1}, val.{1}, test.{1}"
TASKS = {
    "zinc": Task(
        files.zinc, 1, F.l1_loss, less_error, "- MAE", 28, "raw/train.pickle, train.index, val.pickle, ...", edge_dim=4
    ),
    "peptides-func": Task(
        lambda root: files.lrgb(root, "Peptides-func"), 10, several, precision, "AP", 128,
        LRGB.format("peptides-func", "pt"), edge_dim=3,
    ),
    "peptides-struct": Task(
        lambda root: files.lrgb(root, "Peptides-struct"), 11, F.l1_loss, less_error, "- MAE", 128,
        LRGB.format("peptides-struct", "pt"), edge_dim=3,
    ),
    "pascalvoc-sp": Task(
        lambda root: files.lrgb(root, "PascalVOC-SP"), 21, F.cross_entropy, macro_f1, "macro F1", 14,
        LRGB.format("pascalvoc-sp", "pickle"), edge_dim=2, readout="node",
    ),
    "listops": Task(
        files.listops, 10, F.cross_entropy, accuracy, "accuracy", 16, "basic_train.tsv, basic_val.tsv, basic_test.tsv"
    ),
    "imdb": Task(files.imdb, 2, F.cross_entropy, accuracy, "accuracy", 257, "train/pos/*.txt, train/neg, test/pos"),
    "pathfinder": Task(
        files.pathfinder, 2, F.cross_entropy, accuracy, "accuracy", 257, "metadata/*.npy and imgs/ of one difficulty"
    ),
}  # fmt: skip
OF_GRAPHS, OF_SEQUENCES = (
    ("edges", "full", "gps", "exphormer", "grit"),
    ("full", "window", "routed", "blocks"),
)


class Atoms(nn.Module):
    """The sum of an embedding of each property of an atom, (..., P) to (..., C)."""

    def __init__(self, kinds: int, embed_dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(16 * kinds, embed_dim)  # at most 16 properties
        self.kinds = kinds

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x.long() + self.kinds * torch.arange(x.shape[-1], device=x.device)).sum(
            -2
        )


class OfGraphs(nn.Module):
    """A transformer on batches of graphs, by the name of its arm."""

    def __init__(self, task: Task, arm: str, width: int, layers: int) -> None:
        super().__init__()
        self.arm, made = arm, {"encoding_dim": 16, "readout": task.readout, "out_dim": task.out}
        if arm in ("gps", "exphormer"):
            made["local"] = lambda: GINEConv(nn.Linear(width, width), edge_dim=task.edge_dim)
        made |= {"exphormer": {"virtual_nodes": 1}, "grit": {"relative_walks": 16}}.get(arm, {})
        made |= {"edge_dim": task.edge_dim} if arm == "edges" else {}
        kinds = (
            nn.Linear(task.inputs, width) if task.readout == "node" else Atoms(task.inputs, width)
        )
        self.model = GraphTransformer(kinds, width, 4, layers, **made)

    def forward(self, batch: Batch) -> Tensor:
        edges, arm = ga.from_pyg(batch), self.arm
        if arm == "exphormer":
            sizes = batch.ptr.diff().tolist()
            graph = edges | ga.disjoint_union([graphs.expander(n, 3) for n in sizes]).to(
                edges.device
            )
        else:
            graph = edges if arm == "edges" else graphs.documents(batch.batch, causal=False)
        given = {"local_attr": batch.edge_attr} if arm in ("gps", "exphormer") else {}
        given |= {"edge_attr": batch.edge_attr} if arm == "edges" else {}
        return self.model(batch.x, edges, graph, batch=batch.batch, **given)


class OfSequences(nn.Module):
    """An encoder on tokens, the mean of its outputs, and a linear head."""

    def __init__(self, task: Task, arm: str, width: int, layers: int) -> None:
        super().__init__()
        self.arm, head_dim = arm, width // 4
        own = graphs.block_local(..., 32, causal=True)
        self.patterns = {
            "full": graphs.full(...),
            "window": graphs.sliding_window(..., 65, causal=False),
            "routed": graphs.routed(..., torch.randn(16, head_dim)),
            "blocks": graphs.top_k(..., 3, blocks=32, within=graphs.causal(...) - own) | own,
        }
        self.embedding = nn.Embedding(task.inputs, width, padding_idx=0)
        self.encoder = Encoder(layers, width, 4, rotary=ga.nn.Rotary(head_dim))
        self.head = nn.Linear(width, task.out)

    def forward(self, tokens: list[Tensor]) -> Tensor:
        graph, sizes = self.patterns[self.arm], [len(each) for each in tokens]
        if graph.on_content:  # each sequence by itself, as each chooses its own edges
            read = [self.encoder(self.embedding(each.int()), graph).mean(0) for each in tokens]
            return self.head(torch.stack(read))
        places = torch.cat([torch.arange(n, device=tokens[0].device) for n in sizes])
        packed = ga.disjoint_union([graph(n) for n in sizes])
        x = self.encoder(self.embedding(torch.cat(tokens).int()), packed, positions=places)
        return self.head(torch.stack([part.mean(0) for part in x.split(sizes)]))


def batches(data: Any, size: int, device: str, order: Tensor | None = None) -> Any:
    """Inputs and targets of a few samples at a time."""
    graphs_of = isinstance(data, list)
    count = len(data) if graphs_of else len(data.tokens)
    for some in (torch.arange(count) if order is None else order).split(size):
        if graphs_of:
            batch = Batch.from_data_list([data[i] for i in some.tolist()]).to(device)
            yield batch, batch.y
        else:
            yield [data.tokens[i].to(device) for i in some.tolist()], data.labels[some].to(device)


def outputs_of(model: nn.Module, inputs: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
    outputs = model(inputs)
    return (outputs.squeeze(-1), targets.view(-1)) if outputs.shape[-1] == 1 else (outputs, targets)


def trained(
    task: Task, data: dict[str, Any], arm: str, seed: int, options: argparse.Namespace
) -> dict[str, Any]:
    """The test score at the best validation score."""
    torch.manual_seed(seed)
    start, made = time.perf_counter(), OfGraphs if task.edge_dim else OfSequences
    model = made(task, arm, options.width, options.layers).to(options.device)
    count = len(data["train"]) if task.edge_dim else len(data["train"].tokens)
    steps = options.epochs * math.ceil(count / options.batch)
    optimizer = torch.optim.AdamW(model.parameters(), options.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.rate, total_steps=max(2, steps)
    )
    best = {"val": -math.inf, "test": math.nan}
    for _ in range(options.epochs):
        model.train()
        for inputs, targets in batches(
            data["train"], options.batch, options.device, torch.randperm(count)
        ):
            loss = task.loss(*outputs_of(model, inputs, targets))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        scores = {}
        model.eval()
        with torch.no_grad():
            for split in ("val", "test"):
                parts = [
                    outputs_of(model, *given)
                    for given in batches(data[split], options.batch, options.device)
                ]
                scores[split] = task.score(
                    *(torch.cat(each).cpu() for each in zip(*parts, strict=True))
                )
        best = scores if scores["val"] > best["val"] else best
    parameters = sum(p.numel() for p in model.parameters())
    return {**best, "parameters": parameters, "seconds": round(time.perf_counter() - start, 1)}


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", nargs="?", choices=TASKS)
    parser.add_argument("--list", action="store_true", help="name tasks, arms and files, and end")
    parser.add_argument("--root", help="the folder of the files")
    parser.add_argument(
        "--arms", nargs="+", help="all by default; the others are compared with the first"
    )
    parser.add_argument("--out", type=Path, default=Path("runs.jsonl"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, value in (("seeds", 4), ("epochs", 100), ("batch", 32), ("width", 64), ("layers", 4)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=1e-3)
    options = parser.parse_args(given)
    if options.list or options.task is None:
        for name, task in TASKS.items():
            print(
                f"{name}: {task.metric}; "
                f"{', '.join(OF_GRAPHS if task.edge_dim else OF_SEQUENCES)}; {task.layout}"
            )
        return
    task = TASKS[options.task]
    known = OF_GRAPHS if task.edge_dim else OF_SEQUENCES
    arms = options.arms or list(known)
    if options.root is None or not set(arms) <= set(known):
        parser.error(f"--root is needed, and --arms of {', '.join(known)}")
    data = task.read(options.root)
    lines = options.out.read_text("utf-8").splitlines() if options.out.exists() else []
    keys = ("task", "epochs", "batch", "width", "layers", "rate")
    asked = {name: getattr(options, name) for name in keys}
    found = [
        line for line in map(json.loads, lines) if {name: line[name] for name in keys} == asked
    ]
    scores = {(line["arm"], line["seed"]): line["test"] for line in found}
    for seed in range(options.seeds):
        for arm in arms:
            if (arm, seed) not in scores:
                line = {
                    **asked,
                    "arm": arm,
                    "seed": seed,
                    **trained(task, data, arm, seed, options),
                }
                with options.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                scores[arm, seed] = line["test"]
    for arm in arms:
        of_arm = [scores[arm, seed] for seed in range(options.seeds)]
        apart = [scores[arm, seed] - scores[arms[0], seed] for seed in range(options.seeds)]
        told = (
            f"; {interval(apart)} above {arms[0]}" if arm != arms[0] and options.seeds > 1 else ""
        )
        print(f"{options.task}, {arm}: {task.metric} {sum(of_arm) / len(of_arm):.4f}{told}")


if __name__ == "__main__":
    main()
