"""What training on points and meshes reaches, and what edges buy:
``python examples/acceptance.py RUNS``.

Seven folders of real shapes and ten tasks on generated ones, three seeds of each, seed by seed.
Beside every model a perceptron without edges and the same model on degree-matched random graphs, or
a random forest and layers of PyG, on the same shapes for as many epochs. On real shapes ``best``
answers: a network, the forest or their mean, as shapes that are not held out choose. Everything is
kept in the folder RUNS: killed at any moment, the same command goes on. After every task and seed a
table and its numbers are written to ``--out``.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import generated_shapes as shapes
import real_shapes
import torch
from torch_geometric.nn import (
    MLP,
    EdgeConv,
    PointTransformerConv,
    global_max_pool,
    global_mean_pool,
)

import graphattn as ga
from graphattn.bench.machine import machine
from graphattn.io.writing import save_page
from graphattn.statistics.paired import difference
from graphattn.study.records import Records, held
from graphattn.training.evaluate import evaluated
from graphattn.training.reading.scenes import prepared
from graphattn.training.run import Run
from graphattn.training.running.loop import TrainingState

HERE = Path(__file__).parent
CONTROLS = ("perceptron", "random")
FEWEST = 3  # values that have an interval


@dataclass(frozen=True)
class Task:
    """Shapes, how they are trained on, and what is wanted; ``sign`` is -1 where less is better.

    Where nothing else is wanted, it is the best of the forest and PyG's layers.
    """

    words: str
    metric: str
    wanted: float | None = None
    make: Callable[..., None] | None = None
    many: dict[str, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    beside: Callable[[Path, Any], dict[str, float]] = lambda folder, result: {}
    sign: int = 1


def relative_error(prediction: torch.Tensor, label: torch.Tensor) -> float:
    """Of distances, from their logarithms; the mark has none."""
    return float((torch.exp(prediction - label) - 1).abs()[label != 0].mean())


def shortest_paths(folder: Path, result: Any) -> dict[str, float]:
    """Dijkstra along edges, divided by a constant of the meshes that were trained on."""
    train, test = (
        [ga.load(path) for path in sorted((folder / part).glob("*.ply"))]
        for part in ("train", "test")
    )
    longer = torch.cat([(mesh.edges - mesh.y)[mesh.mark == 0] for mesh in train]).median()
    edges, label = (torch.cat([mesh[name] for mesh in test]) for name in ("edges", "y"))
    return {
        "Dijkstra": relative_error(edges, label),
        "Dijkstra / constant": relative_error(edges - longer, label),
    }


def cotangents(folder: Path, result: Any) -> dict[str, float]:
    """R2 of the cotangent formula (Meyer et al. 2003), with a third of each face as a vertex's
    area.
    """
    made, labels = [], []
    for path in sorted((folder / "test").glob("*.ply")):
        mesh = ga.load(path)
        pos, faces = mesh.pos.double(), mesh.face.T
        graph = ga.graphs.mesh_vertices(faces, len(pos))
        weight = ga.nn.mesh_edge_geometry(pos, faces, graph)[:, 2:]
        pull = torch.zeros_like(pos).index_add_(
            0, graph.target, weight * (pos[graph.target] - pos[graph.source])
        )
        a, b, c = pos[faces].unbind(1)
        third = torch.linalg.cross(b - a, c - a).norm(dim=1).repeat_interleave(3) / 6
        area = torch.zeros(len(pos), dtype=pos.dtype).index_add_(0, faces.flatten(), third)
        made.append((pull * ga.nn.mesh_normals(pos, faces)).sum(1) / (2 * area))
        labels.append(mesh.y)
    return {"cotangent formula": result.task.scores(torch.cat(made), torch.cat(labels))["r2"]}


class Peer(torch.nn.Module):
    """Three layers of PyG, ``EdgeConv`` or ``PointTransformerConv``, on the features and the first
    graph of a run.
    """

    def __init__(
        self, kind: str, features: int, out_dim: int, readout: str, width: int = 64
    ) -> None:
        super().__init__()
        self.edge, self.readout = kind == "EdgeConv", readout
        wide = (features + 3, width, width)
        self.layers = torch.nn.ModuleList(
            EdgeConv(MLP([2 * each, width, width], norm=None))
            if self.edge
            else PointTransformerConv(each, width)
            for each in wide
        )
        self.head = MLP([3 * width * (2 if readout == "shape" else 1), 128, out_dim], norm=None)

    def forward(self, x: torch.Tensor, shape: ga.graphs.Hierarchy) -> torch.Tensor:
        """Outputs for points, or for shapes."""
        level = shape.levels[0]
        edges, made = level.graphs[0].edge_index, []
        x = torch.cat((level.pos, x), 1)
        for layer in self.layers:
            x = (layer(x, edges) if self.edge else layer(x, level.pos, edges)).relu()
            made.append(x)
        x = torch.cat(made, 1)
        if self.readout == "shape":
            x = torch.cat([pool(x, level.batch) for pool in (global_mean_pool, global_max_pool)], 1)
        return self.head(x)


def peers(folder: Path, result: Any, budget: bool = False) -> dict[str, float]:
    """Scores of PyG's layers, trained as the model was: split, features, batches, epochs and rates;
    by a ``budget`` as many epochs as take the model's CPU time.
    """
    run = Run.load(folder.parent / "run")
    shapes = run.read_folder(folder)
    number, scores = {shapes.name(i): i for i in range(len(shapes))}, {}
    parts = {name: [number[file] for file in files] for name, files in run.split.items()}
    turned = tuple(dict.fromkeys((*run.augment, "rotation")))  # they read positions
    train, val = (
        prepared(run.inputs, shapes, parts["train"], turned),
        prepared(run.inputs, shapes, parts["val"]),
    )

    def trained(model: torch.nn.Module, epochs: int) -> float:
        """CPU seconds."""
        start, how = time.process_time(), replace(run.schedule, epochs=epochs)
        TrainingState(model, run.task, how, train, val).run(None, lambda progress: None)
        return time.process_time() - start

    def peer(kind: str) -> Peer:
        torch.manual_seed(run.schedule.seed)
        return Peer(kind, run.features, run.task.out_dim, run.task.readout)

    # the first reads files
    own = min(trained(run.trained_model(), 1) for _ in range(2)) if budget else 0.0
    for kind in ("EdgeConv", "PointTransformerConv"):
        many = run.schedule.epochs
        if budget:
            many = min(many, max(1, round(many * own / trained(peer(kind), 1))))
        model = peer(kind)
        trained(model, many)
        found = evaluated(model, run, shapes, parts["test"], "test")
        scores[f"PyG {kind}" + ", as much CPU time" * budget] = float(found.scores[run.task.metric])
    return scores


def candidates(folder: Path, result: Any) -> dict[str, float]:
    """Scores of those among which ``best`` chose, and of PyG's layers."""
    return {**result.choice["scores"], **peers(folder, result)}


def wanted_of(task: Task, record: dict[str, Any]) -> float:
    """What a seed should reach."""
    if task.wanted is not None:
        return task.wanted
    return max(score for name, score in record["beside"].items() if name not in OF_BEST)


OF_BEST = ("network", "mean")  # of candidates, those that are ours
FOREST = {"control": ("perceptron", "forest")}
CURVES = {"model": "best-curve", "control": ()}
REAL = {
    "cells": ("outlines of 650 cells, three treatments", CURVES),
    "leaves": ("outlines of 442 leaves, six species", CURVES),
    "arrowheads": ("outlines of 211 arrowheads, three kinds", CURVES),
    "motions": ("80 motions of a watch, four activities", CURVES),
    "hands": ("52 skeletons of hands, open or grabbing", CURVES),
    "digits": ("500 handwritten digits as points", {"model": "best", "control": ()}),
}
MOLECULES = {"model": "best", "control": (), "task": "regress", "label": "enthalpy"}
TASKS = {
    **{
        name: Task(
            words,
            "accuracy",
            make=getattr(real_shapes, name),
            options=options,
            beside=candidates,
        )
        for name, (words, options) in REAL.items()
    },
    "molecules": Task(
        "enthalpy of 148 molecules",
        "r2",
        make=real_shapes.molecules,
        options=MOLECULES,
        beside=candidates,
    ),
    "curvature": Task(
        "curvature at vertices of meshes",
        "r2",
        0.95,
        make=shapes.curvature,
        many={"each": 80, "test": 20},
        options={"epochs": 30},
        beside=cotangents,
    ),
    "elevation": Task("elevation between samples of a map", "below IDW", 0.2),
    "relief": Task(
        "local relief of meshes, three kinds",
        "accuracy",
        0.95,
        make=shapes.relief,
        many={"each": 30, "test": 20},
        options={"model": "mesh", "epochs": 20},
    ),
    "parts": Task(
        "parts of clouds: box, cylinder, ball",
        "miou",
        0.85,
        make=shapes.parts,
        many={"each": 320, "test": 80},
    ),
    "classes": Task(
        "clouds of ten families",
        "accuracy",
        0.95,
        make=shapes.classes,
        many={"each": 40, "test": 20},
    ),
    "others": Task(
        "clouds of eight other families",
        "accuracy",
        0.9,
        make=shapes.others,
        many={"each": 40, "test": 10},
    ),
    "geodesic": Task(
        "geodesic distances on tubes",
        "relative error",
        0.04,
        make=shapes.geodesic,
        many={"each": 60, "test": 20, "rings": 30, "around": 10},
        options={
            "model": "unet",
            "features": ("mark", "straight", "distance", "outward", "spread"),
        },
        beside=shortest_paths,
        sign=-1,
    ),
    "defects": Task(
        "damaged meshes of six machine parts",
        "accuracy",
        0.95,
        make=shapes.defects,
        many={"each": 36, "test": 18},
        options=FOREST,
        beside=peers,
    ),
    "scenes": Task(
        "LiDAR scans, classes of points",
        "miou",
        0.8,
        make=shapes.scenes,
        many={"each": 28, "test": 12},
        options=FOREST,
        beside=partial(peers, budget=True),
    ),
    "heat": Task(
        "heat that a vertex spreads on meshes",
        "r2",
        0.8,
        make=shapes.heat,
        many={"each": 60, "test": 20},
        options={**FOREST, "features": ("constant", "mark")},
        beside=peers,
    ),
}


def score(task: Task, result: Any) -> float:
    """Of all shapes together."""
    if task.sign > 0:
        return float(result.scores[task.metric])
    return relative_error(torch.cat(result.predictions), torch.cat(result.labels))


def each(task: Task, result: Any) -> torch.Tensor:
    """Of each shape."""
    if task.sign > 0:
        return result.task.each(result.predictions, result.labels).double()
    return torch.tensor(
        [relative_error(*pair) for pair in zip(result.predictions, result.labels, strict=True)]
    )


def trained(task: Task, folder: Path, seed: int) -> dict[str, Any]:
    """A record of a seed, from files that are made once and a run that goes on where it was
    left.
    """
    data, run = folder / "shapes", folder / "run"
    if not data.exists():
        assert task.make is not None
        unfinished = folder / f"shapes.{time.time_ns()}"
        task.make(unfinished, seed=seed, **task.many)
        unfinished.rename(data)
    start, ends = time.process_time(), {}

    def on_epoch(line: dict[str, Any]) -> None:
        ends[line["phase"]] = time.process_time() - start

    if (run / "run.json").exists():
        result = ga.training.resume(run, data, on_epoch=on_epoch)
    else:
        how = {"patience": 0, "control": CONTROLS, **task.options}  # all of them for as many epochs
        result = ga.training.train(data, run, seed=seed, on_epoch=on_epoch, **how)
    # of the model and the folds that choose, not of its controls; since the last start
    model_s = max((end for phase, end in ends.items() if "control" not in phase), default=None)
    own = each(task, result)
    return {
        "score": score(task, result),
        "controls": {name: score(task, other) for name, other in result.controls.items()},
        "differences": {
            name: (own - each(task, other)).tolist() for name, other in result.controls.items()
        },
        "beside": task.beside(data, result),
        "epochs": len((run / "log.jsonl").read_text("utf-8").splitlines()),
        "model_s": model_s,
    }


def elevation(folder: Path, seed: int) -> dict[str, Any]:
    """A record of the example of elevations."""
    folder.mkdir(parents=True, exist_ok=True)
    (script,) = HERE.glob("21_*.py")
    command = [sys.executable, script, "--seed", str(seed), "--json", folder / "errors.json"]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)  # its assert is not ours
    errors = json.loads((folder / "errors.json").read_text("utf-8"))
    idw, rbf, ours, redrawn = errors.values()
    return {
        "score": 1 - ours / idw,
        "controls": {"random": 1 - redrawn / idw},
        "differences": {},
        "beside": {"cubic RBF": 1 - rbf / idw},
        "epochs": None,
        "model_s": None,
    }


def mean_of(values: list[float]) -> dict[str, float | int | None]:
    """With its interval, which few values have not."""
    found = difference(torch.tensor(values, dtype=torch.float64))
    low = None
    high = None
    if len(values) >= FEWEST:
        low = found.low
        high = found.high
    return {"mean": found.mean, "low": low, "high": high, "seeds": len(values)}


def told(name: str, task: Task, records: list[dict[str, Any]]) -> dict[str, Any]:
    """What the seeds that are there say together; differences are the model's score less the
    control's.
    """
    row: dict[str, Any] = {
        "task": name,
        "metric": task.metric,
        "wanted": task.wanted,
        "seeds": len(records),
    }
    if not records:
        return row
    scores = [record["score"] for record in records]
    row |= {"score": mean_of(scores), "of_seeds": scores, "epochs": records[0]["epochs"]}
    row |= {"cpu_s": [record["cpu_s"] for record in records]}
    row["model_s"] = [record["model_s"] for record in records if record.get("model_s")]
    row |= {"machines": [record["machine"] for record in records if "machine" in record]}
    row["reached"] = sum(
        task.sign * (record["score"] - wanted_of(task, record)) >= 0 for record in records
    )
    row["controls"] = {
        control: {
            "score": mean_of([record["controls"][control] for record in records]),
            "over_seeds": mean_of(
                [record["score"] - record["controls"][control] for record in records]
            ),
            "over_shapes": mean_of(
                [x for record in records for x in record["differences"].get(control, ())]
            )
            if control in records[0]["differences"]
            else None,
        }
        for control in records[0]["controls"]
    }
    row["beside"] = {
        key: mean_of([record["beside"][key] for record in records]) for key in records[0]["beside"]
    }
    return row


def shown(one: dict[str, Any] | None) -> str:
    """A mean with its interval, where there is one."""
    if one is None:
        return ""
    return f"{one['mean']:.3f}" + (
        "" if one["low"] is None else f" [{one['low']:.3f}, {one['high']:.3f}]"
    )


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """A line of means for each task that has run: ours, what others reach, and minutes."""
    lines = [
        "| shapes | score | ours | network alone | forest | PyG | formula | random edges | no edges "
        "| minutes |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        if not row["seeds"]:
            continue
        task = TASKS[row["task"]]
        ours = row["score"]["mean"]
        means = {key: one["mean"] for key, one in row["beside"].items()}
        means |= {key: one["score"]["mean"] for key, one in row["controls"].items()}
        named = {key: means.pop(key, None) for key in (*OF_BEST, "forest", *CONTROLS)}
        pyg = {key: means.pop(key) for key in list(means) if key.startswith("PyG")}
        others = [named["forest"], _best(task, pyg), _best(task, means)]
        others += [named["random"], named["perceptron"]]
        cells = [named["network"], *others]
        shown_cells = ["" if mean is None else f"{mean:.3f}" for mean in cells]
        first = f"{ours:.3f}"
        if all(task.sign * (ours - mean) >= 0 for mean in others if mean is not None):
            first = f"**{first}**"
        seconds = row.get("model_s") or row["cpu_s"]
        minutes = f"{mean_of(seconds)['mean'] / 60:.1f}"
        words = f"{task.words} ({row['task']})"
        line = " | ".join((words, task.metric, first, *shown_cells, minutes))
        lines.append(f"| {line} |")
    return lines


def _best(task: Task, means: dict[str, float]) -> float | None:
    """The best of several means."""
    return max(means.values(), key=lambda mean: task.sign * mean, default=None)


def places(rows: list[dict[str, Any]]) -> list[str]:
    """Machines and days of the rows."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        for facts in row.get("machines", ()):
            where = (
                f"{facts['processor']}, {facts['cores']} cores, torch {facts['versions']['torch']}"
            )
            found.setdefault(where, []).append((row["task"], facts["date"][:10]))
        if row["seeds"] and not row.get("machines"):
            found.setdefault("a machine that was not kept", []).append((row["task"], ""))
    lines = []
    for where, pairs in found.items():
        tasks, days = (list(dict.fromkeys(each)) for each in zip(*pairs, strict=True))
        lines.append(
            f"* {', '.join(tasks)}: {where}, {' to '.join(sorted({min(days), max(days)}))}".rstrip(
                ", "
            )
        )
    return lines


def table(rows: list[dict[str, Any]], seeds: int) -> str:
    """Markdown."""
    lines = [
        "# What training on points and meshes reaches",
        "",
        "`python examples/acceptance.py RUNS`: means over seeds, on shapes that are held out; less is "
        "better of a relative",
        "error, else more; bold is what no other column but the network alone exceeds. On the real "
        "shapes, which stand first, `best`",
        "answers: a network, a forest or their mean. Forest: scikit-learn's, on covariances, heights "
        "and histograms. PyG: the better",
        "one of its `EdgeConv` and `PointTransformerConv`, on the same features and first graph for as "
        "many epochs (on scenes for as",
        "much CPU time). Formula: cotangents, cubic RBF, shortest paths. Random edges: the same model "
        "on random graphs of the same",
        "degrees; no edges: a perceptron. Minutes are of our model on one core, of `best` with its folds, "
        "of the map with its",
        "control.",
        "",
        *summary(rows),
        "",
        "With 95 % t intervals. A difference is the model's score less the control's, paired over "
        "seeds, and over all held-out shapes.",
        "",
        "| task | wanted | reached by | score | control | its score | over seeds | over shapes | "
        "beside |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        least = "<=" if TASKS[row["task"]].sign < 0 else ">="
        wanted = row["wanted"]
        if wanted is None:
            wanted = "the best beside"
        first = f"| {row['task']} | {row['metric']} {least} {wanted}"
        if not row["seeds"]:
            lines.append(f"{first} | not run | | | | | | |")
            continue
        lines_of_task = [
            f"{first} | {row['reached']} of {row['seeds']} seeds | {shown(row['score'])}"
        ]
        lines_of_task += ["| | | | "] * (len(row["controls"]) - 1)
        beside = ", ".join(f"{key} {shown(one)}" for key, one in row["beside"].items())
        if not row["controls"]:
            lines.append(f"{lines_of_task[0]} | | | | | {beside} |")
            continue
        for start, (name, one) in zip(lines_of_task, row["controls"].items(), strict=True):
            cells = (
                name,
                shown(one["score"]),
                shown(one["over_seeds"]),
                shown(one["over_shapes"]),
                beside,
            )
            lines.append(f"{start} | {' | '.join(cells)} |")
            beside = ""
    lines += ["", *places(rows)]
    short = [f"{row['task']} {row['seeds']} of {seeds}" for row in rows if row["seeds"] < seeds]
    last = f"Not all seeds have run yet: {', '.join(short)}." if short else "All seeds have run."
    return "\n".join([*lines, "", last, ""])


def report(records: Records, out: Path, seeds: int) -> str:
    """Write what is there, of all tasks; of those that have no record here what was written
    before.
    """
    rows = [
        told(
            name,
            task,
            [records.of_key[key] for n in range(seeds) if records.done(key := f"{name} {n}")],
        )
        for name, task in TASKS.items()
    ]
    if (out / "acceptance.json").is_file():
        before = {
            row["task"]: row
            for row in json.loads((out / "acceptance.json").read_text("utf-8"))["rows"]
        }
        rows = [row if row["seeds"] else before.get(row["task"], row) for row in rows]
    text = table(rows, seeds)
    save_page(
        out / "acceptance.json",
        json.dumps({"seeds": seeds, "rows": rows}, indent=1, allow_nan=False),
    )
    save_page(out / "acceptance.md", text)
    return text


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, seed by seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--out", type=Path, default=HERE / "benchmarks")
    asked = parser.parse_args(arguments)
    for folder in (asked.runs, asked.out):
        folder.mkdir(parents=True, exist_ok=True)
    with held(asked.runs):
        records = Records(
            asked.runs, lambda line: "" if {"key", "state"} <= set(line) else "no run"
        )
        for seed in range(asked.seeds):
            for name in asked.tasks:
                key, task, folder = f"{name} {seed}", TASKS[name], asked.runs / name / str(seed)
                if records.done(key):
                    continue
                where, start = machine("cpu"), sum(os.times()[:4])
                record = trained(task, folder, seed) if task.make else elevation(folder, seed)
                cpu = round(sum(os.times()[:4]) - start, 1)  # since the command's last start
                records.append(
                    {"key": key, "state": "done", "cpu_s": cpu, "machine": where, **record}
                )
                report(records, asked.out, asked.seeds)
                print(
                    f"{key}: {task.metric} {record['score']:.3f}, {record['controls']}, {cpu} CPU "
                    "s",
                    flush=True,
                )
        print(report(records, asked.out, asked.seeds))


if __name__ == "__main__":
    main()
