"""What a processor and its graph buy in a learned simulation, at equal CPU time:
``python examples/benchmarks/simulations.py --task mesh --out DIR``.

All arms of a task are one :class:`graphattn.models.Simulator` with the same inputs, statistics,
batches and seconds of one core, and differ in the processor, its graph and the noise alone. Twenty
trajectories, sixteen to train on; errors are over those of "nothing changes", of the four held out.

* mesh: advection and diffusion, each on its own triangle mesh with holes. A ``MeshTransformer`` along
  the edges of the mesh, with and without noise, and along random edges of the same degrees; layers of
  this library and of PyG in one frame; a ``MeshGraphNet``, whose edges are updated too; and a linear
  stencil, fitted.
* sphere: a tracer in the winds of moving whirls, on latitudes and longitudes. Neighbours in degrees;
  those on the sphere, with edges to the east, north and up, by two weights of the loss; an icosphere.
* grains: soft discs between walls, whose graph is made anew at every step, with noise and without.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.nn import MLP, TransformerConv

import graphattn as ga
from graphattn.models import EncodeProcessDecode, MeshGraphNet, MeshTransformer, Simulator, Window
from graphattn.models.points.standard import measure
from graphattn.nulls import same_in_degrees
from graphattn.training.models.stencil import Stencil, fitted
from graphattn.training.rollout import predicted_states

sys.path.append(str(Path(__file__).parents[1]))
from flows import flow, grains, whirls

TRAIN, TEST = 16, 4
BATCH, RATE = 4, 3e-3


class Layers(nn.Module):
    """Layers of attention between an encoder and a decoder, which read edges encoded once."""

    def __init__(self, features, out_dim, make, width=16, depth=4, axes=2):
        super().__init__()
        self.encoder = MLP([features, width, width], norm=None)
        self.edges = MLP([axes + 1, width, width], norm=None)
        self.layers = nn.ModuleList(make(width) for _ in range(depth))
        self.perceptrons = nn.ModuleList(
            MLP([width, 2 * width, width], norm=None) for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.decoder = MLP([width, width, out_dim], norm=None)

    def forward(self, x, shape):
        edge_index, edges = edges_of(shape)
        edges = self.edges(edges)
        x = self.encoder(x)
        for number, layer in enumerate(self.layers):
            y = self.norms[2 * number](x)
            if isinstance(layer, TransformerConv):
                x = x + layer(y, edge_index, edges)
            else:
                x = x + layer(y, shape.levels[0].graph, edge_attr=edges)
            x = x + self.perceptrons[number](self.norms[2 * number + 1](x))
        return self.decoder(x)


def edges_of(shape):
    """Edges, and their offset and length in units of the mean length."""
    level = shape.levels[0]
    edges = ga.nn.edge_geometry(level.graph, level.pos)
    return level.graph.edge_index, edges / edges[:, -1].mean()


@dataclass
class Arm:
    """A processor, and its levels for the number of a trajectory and positions of its nodes."""

    processor: Callable
    levels: Callable
    noise: float = 0.3
    window: dict[str, Any] = field(default_factory=dict)


@dataclass
class Task:
    """Trajectories by number, arms, and lead times of the table."""

    make: Callable
    arms: dict[str, Arm]
    leads: tuple[int, ...]
    window: dict[str, Any] = field(default_factory=dict)


def along_mesh(number, one, pos):
    return ga.graphs.hierarchy(pos, graph=one.graph())


def at_random(number, one, pos):
    return ga.graphs.hierarchy(pos, graph=same_in_degrees(one.graph(), number))


def in_degrees(number, one, pos):
    lat, lon = pos[:, 2].asin().rad2deg(), torch.atan2(pos[:, 1], pos[:, 0]).rad2deg() % 360
    degrees = torch.stack((lat, lon), 1)
    return ga.graphs.hierarchy(degrees, graph=ga.graphs.knn(degrees / 360, 8))


def on_sphere(number, one, pos):
    return ga.graphs.hierarchy(pos, graph=ga.graphs.radius(pos, 0.2))


def on_icosphere(number, one, pos):
    mesh = ga.shapes.icosphere_mesh(3)
    return ga.graphs.hierarchy(
        pos,
        coarse=(mesh.pos, ga.graphs.icosphere(3)),
        graph=ga.graphs.knn(..., 8),
        down=ga.graphs.radius(..., 0.2),
        up=ga.graphs.containing(..., mesh.faces),
    )


def near(number, one, pos):
    cell = {"cell": torch.eye(2), "pbc": (True, False)}
    return ga.graphs.hierarchy(pos, graph=ga.graphs.radius(pos, 0.15, **cell))


FLAT = {"spectrum": 0, "axes": 2, "edges": ("offset", "distance")}
MESH = partial(MeshTransformer, embed_dim=16, num_layers=4, **FLAT)
DEGREES = partial(MeshTransformer, embed_dim=32, num_layers=3, **FLAT)
COMPASS = partial(MeshTransformer, embed_dim=32, num_layers=3, spectrum=0, edges=("compass",))
ICOSPHERE = partial(EncodeProcessDecode, embed_dim=32, num_layers=3, edges=("compass",))
PARTICLES = partial(MeshTransformer, embed_dim=32, num_layers=3, **FLAT)
OURS = partial(Layers, make=lambda width: ga.nn.GraphAttention(width, 4, edge_dim=width))
GRAPH_NET = partial(MeshGraphNet, axes=2)
PYG = partial(Layers, make=lambda width: TransformerConv(width, width // 4, 4, edge_dim=width))
WIDE = {"width": 32, "depth": 3}
BY_AREA = {"weight": "latitude"}
TASKS = {
    "mesh": Task(
        partial(flow, steps=51),
        {
            "MeshTransformer": Arm(MESH, along_mesh),
            "MeshTransformer, no noise": Arm(MESH, along_mesh, 0.0),
            "MeshTransformer, random edges": Arm(MESH, at_random),
            "GraphAttention, edges encoded once": Arm(OURS, along_mesh),
            "PyG TransformerConv, edges encoded once": Arm(PYG, along_mesh),
            "MeshGraphNet": Arm(partial(GRAPH_NET, embed_dim=16, num_layers=4), along_mesh),
            "linear stencil": Arm(partial(Stencil, axes=2), along_mesh, 0.0),
        },
        (1, 5, 10, 20, 50),
    ),
    "sphere": Task(
        whirls,
        {
            "neighbours in degrees": Arm(DEGREES, in_degrees, 0.1),
            "within 0.2, compass": Arm(COMPASS, on_sphere, 0.1),
            "within 0.2, compass, by latitude": Arm(COMPASS, on_sphere, 0.1, BY_AREA),
            "icosphere, compass": Arm(ICOSPHERE, on_icosphere, 0.1),
            "icosphere, compass, by latitude": Arm(ICOSPHERE, on_icosphere, 0.1, BY_AREA),
            "linear stencil": Arm(partial(Stencil, axes=3), on_sphere, 0.0),
        },
        (1, 5, 10, 30),
    ),
    "grains": Task(
        grains,
        {
            "MeshTransformer": Arm(PARTICLES, near, 0.03),
            "MeshTransformer, no noise": Arm(PARTICLES, near, 0.0),
            "GraphAttention, edges encoded once": Arm(partial(OURS, **WIDE), near, 0.03),
            "MeshGraphNet": Arm(partial(GRAPH_NET, embed_dim=32, num_layers=3), near, 0.03),
            "MeshGraphNet, no noise": Arm(
                partial(GRAPH_NET, embed_dim=32, num_layers=3), near, 0.0
            ),
            "linear stencil": Arm(partial(Stencil, axes=2), near, 0.0),
        },
        (1, 5, 20, 40, 58),
        {"history": 3, "predict": "acceleration"},
    ),
}


def trained(arm, seed, flows, seconds, **options):
    """The simulator of an arm after so many seconds of one core, and its number of steps."""
    window = Window.of(flows[:TRAIN], **options)
    torch.manual_seed(seed)
    model = Simulator(arm.processor, window, noise=arm.noise)
    first = window.history - 1
    rows = [
        (number, step) for number in range(TRAIN) for step in range(first, flows[0].num_steps - 1)
    ]
    known = {}

    def levels(number, step):
        key = number, step * (flows[number].pos.dim() == 3)
        if key not in known:
            known[key] = arm.levels(number, flows[number], flows[number].positions(step))
        return known[key]

    def batch(picks):
        parts = [window(flows[number], step) for number, step in picks]
        shape = ga.graphs.Hierarchy.join([levels(*pick) for pick in picks])
        return *map(torch.cat, zip(*parts, strict=True)), shape

    if isinstance(model.processor, Stencil):
        return fitted(model, map(packed(batch), rows)), 0
    x, _, shape = batch(rows[:: len(rows) // 16])
    measure(model, x, shape)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.02, fused=True)
    model.train()
    begin = time.process_time()
    steps = 0
    while (done := (time.process_time() - begin) / seconds) < 1:
        rate = RATE * min(1, 0.04 + done / 0.1) * (1 + math.cos(math.pi * done)) / 2
        for group in optimizer.param_groups:
            group["lr"] = rate
        x, y, shape = batch([rows[i] for i in torch.randint(len(rows), (BATCH,)).tolist()])
        optimizer.zero_grad()
        window.loss(model(x, shape), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
    return model, steps


def packed(batch):
    def one(row):
        x, y, shape = batch([row])
        return argparse.Namespace(x=x, y=y, levels=[shape])

    return one


def errors(model, arm, flows):
    """Errors over those of "nothing changes" by lead time of held-out flows, and what else counts.

    On the sphere errors are by area, and those of the last step beyond 60 degrees and elsewhere,
    too; of grains those of the grains. Drift is that of the integral of the field.
    """
    last = flows[0].num_steps - model.window.history
    parts = {"all": 0, "poles": 0, "elsewhere": 0}
    drifts = [0.0]
    for number, one in enumerate(flows[TRAIN:], TRAIN):
        levels = partial(arm.levels, number)
        states, _ = predicted_states(model, one, last, levels)
        truth = model.window.states(one)[model.window.history - 1 :]
        states = torch.cat((truth[:1], states))
        states = states[torch.arange(last + 1).clamp(max=len(states) - 1)]
        weights = (one.kinds != 1).double() if one.kinds is not None else one.weights("none")
        masks = {"all": torch.ones_like(weights)}
        if one.forcing:
            weights = one.weights("latitude")
            is_polar = one.pos[:, 2].abs() > math.sin(math.pi / 3)
            masks |= {"poles": is_polar.double(), "elsewhere": 1 - is_polar.double()}
        if one.cells or one.forcing:
            area = one.weights("area" if one.cells else "latitude")
            mass = states[..., 0].double() @ area
            drifts.append(float((mass[-1] / mass[0] - 1).abs()))
        pairs = torch.stack((states - truth, truth[:1] - truth))[:, 1:]
        squares = pairs.double().square().sum(3)  # of the model and of no change, (2, K, N)
        for name, mask in masks.items():
            parts[name] = parts[name] + squares @ (weights * mask)
    record = {"drift": max(drifts)}
    for name, squares in parts.items():
        if isinstance(squares, torch.Tensor):
            record[name] = (squares[0] / squares[1]).sqrt().tolist()
    return record


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    options.add_argument("--task", choices=TASKS, default="mesh")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--seconds", type=float, default=75.0)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--arms", nargs="*")
    given = options.parse_args()
    torch.set_num_threads(1)
    task = TASKS[given.task]
    flows = [task.make(seed) for seed in range(TRAIN + TEST)]
    out = given.out / given.task
    out.mkdir(parents=True, exist_ok=True)
    for name in given.arms or task.arms:
        arm = task.arms[name]
        for seed in range(given.seeds):
            path = out / f"{name}, seed {seed}.json"
            if path.exists() or ("stencil" in name and seed):
                continue
            window = task.window | arm.window
            model, steps = trained(arm, seed, flows, given.seconds, **window)
            size = sum(p.numel() for p in model.parameters())
            record = {"steps": steps, "size": size, **errors(model, arm, flows)}
            path.write_text(json.dumps(record))
    rest = ["drift"]
    if given.task == "sphere":
        rest = ["poles", "elsewhere", "drift"]
    print(f"| arm | parameters | steps | {' | '.join(map(str, (*task.leads, *rest)))} |")
    print(f"|---|{'--:|' * (len(task.leads) + len(rest) + 2)}")
    for name in task.arms:
        records = [json.loads(path.read_text()) for path in sorted(out.glob(f"{name}, s*"))]
        if not records:
            continue

        def mean(values):
            return f"{sum(values) / len(values):.3f}".removeprefix("0")

        cells = [f"{records[0]['size']:,}", f"{sum(r['steps'] for r in records) // len(records):,}"]
        cells += [mean([record["all"][lead - 1] for record in records]) for lead in task.leads]
        cells += [mean([record[part][-1] for record in records]) for part in rest[:-1]]
        cells.append(f"{max(record['drift'] for record in records):.1%}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
