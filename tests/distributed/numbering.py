"""Run by :mod:`ranks`: layers whose normalisation reads numbers of nodes, beside one process."""

import json
import sys

import torch
import torch.distributed as dist

import graphattn as ga
from graphattn.distributed import shard

RANK, WORLD = dist.get_rank(), dist.get_world_size()
C = 24


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def edges(T, S, number):
    generator = torch.Generator().manual_seed(1)
    ends = [torch.randint(n, (number,), generator=generator) for n in (S, T)]
    return ga.from_edge_index(torch.stack(ends), S, T, duplicates="keep")


def by_numbers(score, target, num_targets, source):
    """Weights that depend on every number of nodes, which the function overwrites."""
    factor = (target + 2) / (source + 1) / num_targets
    weights = torch.exp(score) * factor[:, None]
    rows = target.clone()
    shape = (*score.shape[:-2], num_targets, score.shape[-1])
    total = weights.new_zeros(shape).index_add(-2, rows, weights)
    result = weights / total.index_select(-2, rows).sqrt()
    target.zero_(), source.zero_()
    return result


def by_features(score, target, num_targets, edge_attr):
    return score * edge_attr.sum(-1, keepdim=True) / (target[:, None] + num_targets)


GRAPHS = {
    "square": lambda: ga.graphs.sliding_window(41, 7, causal=True),
    "cross": lambda: edges(31, 47, 211),
    "no edges": lambda: edges(31, 47, 0),
}
LAYERS = {
    "rows of x": lambda: ga.nn.GraphAttention(C, 4, normalize=by_numbers),
    "keys and values": lambda: ga.nn.GraphAttention(C, 4, num_kv_heads=1, normalize=by_numbers),
    "edge features": lambda: ga.nn.GraphAttention(C, 4, edge_dim=5, normalize=by_features),
}


def compare(plan, graph, layer, backend):
    """Rows of own targets and gradients of rows and parameters, beside those of one process."""
    name = f"numbers: {plan}, {graph}, {layer}, {backend}"
    graph = GRAPHS[graph]()
    torch.manual_seed(3)
    layer = LAYERS[layer]().double()
    T = graph.num_targets
    S = graph.num_sources
    parts = [torch.arange(n) * 5 % 7 % WORLD for n in (T, S)]
    named = {"source_partition": parts[1]} if T != S else {}
    asked = {"plan": "halo", "overlap": True} if plan == "overlap" else {"plan": plan}
    mine = shard(graph, partition=parts[0], **named, **asked)
    x = random(2, T, C, seed=4)
    context = random(2, S, C, seed=5)
    towards = random(2, T, C, seed=6)
    attr = random(graph.num_edges, 5, seed=7) if layer.edge_dim else None

    def run(where, backend, rows, context, attr, towards):
        leaves = [y.clone().requires_grad_() for y in (rows, context)]
        layer.backend = "auto" if backend == "observed" else backend
        hook = layer.register_message_forward_hook(lambda *_: None)
        if backend != "observed":
            hook.remove()
        output = layer(leaves[0], where, context=leaves[1], edge_attr=attr)
        hook.remove()
        grads = torch.autograd.grad(output, (*leaves, *layer.parameters()), towards)
        return output.detach(), list(grads)

    output, grads = run(graph, "edges", x, context, attr, towards)
    own = None if attr is None else attr[mine.edges]
    rows = [x[:, mine.owned], context[:, mine.owned_sources]]
    here, own_grads = run(mine, backend, *rows, own, towards[:, mine.owned])
    for part in own_grads[2:]:
        dist.all_reduce(part)
    wanted = [grads[0][:, mine.owned], grads[1][:, mine.owned_sources], *grads[2:]]
    errors = [float((a - b).abs().max()) for a, b in zip(own_grads, wanted, strict=True)]
    apart = float((here - output[:, mine.owned]).abs().max())
    facts = torch.tensor([apart, max(errors)], dtype=torch.float64)
    dist.all_reduce(facts, op=dist.ReduceOp.MAX)
    if RANK == 0:
        moved = max(float(x.abs().max()) for x in grads)
        told = {"output": float(facts[0]), "loss": 0.0, "gradient": float(facts[1])}
        print(json.dumps({"name": name, **told, "moved": moved}), flush=True)


some = "some" in sys.argv
for plan in ("halo", "overlap"):
    for graph in GRAPHS:
        for layer in LAYERS:
            for backend in ("edges", "message_passing", "observed"):
                if backend == "observed" and layer == "keys and values":
                    continue  # refused
                usual = backend == "edges" and graph == "cross"
                if not some or usual or (plan == "halo" and graph != "no edges"):
                    compare(plan, graph, layer, backend)
if RANK == 0:
    print(json.dumps({"done": True}), flush=True)
