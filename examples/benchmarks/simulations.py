"""What a processor buys in a learned simulation, at equal CPU time:
``python examples/benchmarks/simulations.py --out DIR``.

Twenty flows of advection and diffusion, each on its own triangle mesh with holes, sixteen to train
on. All arms are one :class:`graphattn.models.Simulator` with the same inputs, statistics, noise,
batches and seconds of one core, and differ in the processor alone: a ``MeshTransformer`` along the
edges of the mesh, with and without noise, and along random edges of the same degrees; layers of this
library and of PyG in one frame; a MeshGraphNet, whose edges are updated too, as PyG's and
physicsnemo's blocks do it; and a linear stencil, fitted. Errors are over those of "nothing changes",
of four held-out flows.
"""

import argparse
import json
import math
import sys
import time
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch_geometric.nn import MLP, TransformerConv

import graphattn as ga
from graphattn.models import MeshTransformer, Simulator, Window
from graphattn.models.points.standard import measure
from graphattn.nulls import same_in_degrees
from graphattn.training.models.stencil import Stencil, fitted

sys.path.append(str(Path(__file__).parents[1]))
from flows import flow

STEPS, TRAIN = 51, 16
BATCH, RATE = 4, 3e-3
LEADS = (1, 5, 10, 20, 50)


class Layers(nn.Module):
    """Layers of attention between an encoder and a decoder, which read edges encoded once."""

    def __init__(self, features, out_dim, make, width=16, depth=4):
        super().__init__()
        self.encoder = MLP([features, width, width], norm=None)
        self.edges = MLP([3, width, width], norm=None)
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


class MeshGraphNet(nn.Module):
    """Pfaff et al. 2021: edges from both ends, nodes from the sum of their edges, both residual."""

    def __init__(self, features, out_dim, width=16, depth=4):
        super().__init__()
        self.encoder = perceptron(features, width)
        self.edge_encoder = perceptron(3, width)
        self.of_edges = nn.ModuleList(perceptron(3 * width, width) for _ in range(depth))
        self.of_nodes = nn.ModuleList(perceptron(2 * width, width) for _ in range(depth))
        self.decoder = MLP([width, width, width, out_dim], norm=None, act="relu")

    def forward(self, x, shape):
        (source, target), edges = edges_of(shape)
        x = self.encoder(x)
        edges = self.edge_encoder(edges)
        for of_edges, of_nodes in zip(self.of_edges, self.of_nodes, strict=True):
            edges = edges + of_edges(torch.cat((x[target], x[source], edges), 1))
            total = torch.zeros_like(x).index_add(0, target, edges)
            x = x + of_nodes(torch.cat((x, total), 1))
        return self.decoder(x)


def perceptron(before, width):
    return nn.Sequential(MLP([before, width, width, width], norm=None), nn.LayerNorm(width))


def edges_of(shape):
    """Edges, and their offset and length in units of the mean length."""
    level = shape.levels[0]
    edge_index = level.graph.edge_index
    offset = level.pos[edge_index[0]] - level.pos[edge_index[1]]
    length = offset.norm(dim=1, keepdim=True)
    return edge_index, torch.cat((offset, length), 1) / length.mean()


OURS = partial(
    MeshTransformer, embed_dim=16, num_layers=4, spectrum=0, axes=2, edges=("offset", "distance")
)
ARMS = {
    "MeshTransformer": (OURS, 0.3),
    "MeshTransformer, no noise": (OURS, 0.0),
    "MeshTransformer, random edges": (OURS, 0.3),
    "GraphAttention, edges encoded once": (
        partial(Layers, make=lambda width: ga.nn.GraphAttention(width, 4, edge_dim=width)),
        0.3,
    ),
    "PyG TransformerConv, edges encoded once": (
        partial(Layers, make=lambda width: TransformerConv(width, width // 4, 4, edge_dim=width)),
        0.3,
    ),
    "MeshGraphNet": (MeshGraphNet, 0.3),
    "linear stencil": (partial(Stencil, axes=2), 0.0),
}


def levels_of(arm, number, one):
    graph = one.graph()
    if arm.endswith("random edges"):
        graph = same_in_degrees(graph, number)
    return ga.graphs.hierarchy(one.pos, graph=graph)


def trained(arm, seed, flows, seconds):
    """The simulator of an arm after so many seconds of one core, and its number of steps."""
    make, noise = ARMS[arm]
    window = Window.of(flows[:TRAIN])
    torch.manual_seed(seed)
    model = Simulator(make, window, noise=noise)
    levels = [levels_of(arm, number, one) for number, one in enumerate(flows)]
    rows = [(number, step) for number in range(TRAIN) for step in range(STEPS - 1)]

    def batch(picks):
        parts = [window(flows[number], step) for number, step in picks]
        shape = ga.graphs.Hierarchy.join([levels[number] for number, _ in picks])
        return *map(torch.cat, zip(*parts, strict=True)), shape

    if arm == "linear stencil":
        return fitted(model, map(packed(batch), rows)), levels, 0
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
    return model, levels, steps


def packed(batch):
    def one(row):
        x, y, shape = batch([row])
        return argparse.Namespace(x=x, y=y, levels=[shape])

    return one


@torch.no_grad()
def errors(model, flows, levels):
    """Errors over those of "nothing changes" by lead time, and drift of mass, of held-out flows."""
    squares = torch.zeros(2, STEPS - 1)
    drifts = []
    for one, shape in zip(flows[TRAIN:], levels[TRAIN:], strict=True):
        x, truth = model.window(one, 0, STEPS - 1)
        states = model.eval()(x, shape)
        for row, state in enumerate((states, truth[:, 1:2])):
            squares[row] += (state - truth[:, 2:]).square().sum((0, 2))
        mass = one.weights("area") @ states[..., 0].double()
        before = one.weights("area") @ truth[:, 1, 0].double()
        drifts.append(float((mass[-1] / before - 1).abs()))
    return (squares[0] / squares[1]).sqrt().tolist(), max(drifts)


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--seconds", type=float, default=75.0)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--arms", nargs="*", default=list(ARMS))
    given = options.parse_args()
    torch.set_num_threads(1)
    flows = [flow(seed, STEPS) for seed in range(20)]
    given.out.mkdir(parents=True, exist_ok=True)
    for arm in given.arms:
        for seed in range(given.seeds if arm != "linear stencil" else 1):
            path = given.out / f"{arm}, seed {seed}.json"
            if path.exists():
                continue
            model, levels, steps = trained(arm, seed, flows, given.seconds)
            error, drift = errors(model, flows, levels)
            size = sum(p.numel() for p in model.parameters())
            record = {"arm": arm, "steps": steps, "size": size, "error": error, "drift": drift}
            path.write_text(json.dumps(record))
    print(f"| arm | parameters | steps | {' | '.join(f'{k}' for k in LEADS)} | drift of mass |")
    print(f"|---|{'--:|' * (len(LEADS) + 3)}")
    for arm in ARMS:
        records = [json.loads(path.read_text()) for path in sorted(given.out.glob(f"{arm}, s*"))]
        if records:
            cells = [
                f"{records[0]['size']:,}",
                f"{sum(r['steps'] for r in records) // len(records):,}",
            ]
            for lead in LEADS:
                values = [record["error"][lead - 1] for record in records]
                cells.append(f"{sum(values) / len(values):.3f}")
            cells.append(f"{max(record['drift'] for record in records):.1%}")
            print(f"| {arm} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
