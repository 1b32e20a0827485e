"""Run by :mod:`ranks`: layers and losses on a shared graph beside one process, and refusals."""

import json
import sys
import tempfile
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from traffic import Traffic

import graphattn as ga
from graphattn.distributed import EdgeFiles, knn_parts, mean, shard, sync_batch_norms
from graphattn.distributed.paper import on_paper as paper
from graphattn.errors import GraphAttnError

RANK, WORLD = dist.get_rank(), dist.get_world_size()
N, C = 103, 24
POS = torch.rand(N, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
X = torch.randn(N, C, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.randn(N, C, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
GRAPH = ga.graphs.knn(POS, 5)


def told(name, **facts):
    if RANK == 0:
        print(json.dumps({"name": name, **facts}), flush=True)


def everywhere(*numbers):
    """The greatest of each number among the processes."""
    facts = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(facts, op=dist.ReduceOp.MAX)
    return facts.tolist()


class Three(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.blocks = nn.ModuleList(ga.nn.TransformerBlock(C, 4, **options) for _ in range(3))

    def forward(self, x, graph, **given):
        for block in self.blocks:
            x = block(x, graph, **given)
        return x


LAYERS = {
    "narrow rows of x": lambda: ga.nn.GraphAttention(C, 4),
    "keys and values, grouped": lambda: ga.nn.GraphAttention(C, 4, num_kv_heads=1),
    "rotary": lambda: ga.nn.GraphAttention(C, 4, rotary=ga.nn.Rotary(6)),
    "sink": lambda: ga.nn.GraphAttention(C, 4, normalize="sink"),
    "sparsemax": lambda: ga.nn.GraphAttention(C, 4, num_kv_heads=1, normalize="sparsemax"),
    "additive": lambda: ga.nn.GraphAttention(C, 4, num_kv_heads=1, score="additive"),
    "subtraction": lambda: ga.nn.GraphAttention(C, 4, score="subtraction", edge_dim=3),
    "edge features": lambda: ga.nn.GraphAttention(C, 4, num_kv_heads=2, edge_dim=3),
    "batch norms": lambda: sync_batch_norms(ga.models.GPSBlock(C, 4)),
    "three blocks": Three,
    "three blocks of edge features": lambda: Three(edge_dim=3, num_kv_heads=2),
}


def run(layer, graph, x, y, weight, average):
    """Output, loss and gradients; edge features are relative positions, made here or by a single layer."""
    given, pos = {}, graph.scatter(POS) if hasattr(graph, "scatter") else POS
    if "edge_dim=3" in repr(layer):
        is_layer = isinstance(layer, ga.nn.GraphAttention)
        given = {"positions": pos} if is_layer else {"edge_attr": ga.nn.relative_positions(graph, pos)}
    output = layer(x, graph, **given)
    loss = average((output - y) ** 2, weight)
    loss.backward()
    return output.detach(), loss.detach(), {name: p.grad for name, p in layer.named_parameters()}


def weighted(x, weight):
    return (x.mean(1) * weight).sum() / weight.sum()


def compare(name, plan, graph=GRAPH):
    torch.manual_seed(3)
    layer = LAYERS[name]().double()
    mine = shard(graph, partition="rcb", pos=POS, plan=plan, heads=4)
    weight = (torch.arange(N) % 3 > 0).double()
    output, loss, grads = run(layer, graph, X, Y, weight, weighted)
    layer.zero_grad()
    own = [mine.scatter(x) for x in (X, Y, weight)]
    here, average, parts = run(layer, mine, *own, lambda x, w: mean(x, mine, w))
    for grad in parts.values():
        if grad is not None:
            dist.all_reduce(grad)  # as DDP does
    moved = max(float(g.abs().max()) for g in grads.values() if g is not None)
    errors = [float((grads[key] - g / WORLD).abs().max()) for key, g in parts.items() if g is not None]
    apart = everywhere(float((here - mine.scatter(output)).abs().max()), float((average - loss).abs()), max(errors))
    name = name if graph is GRAPH else f"{name}, graphs of heads"
    told(f"{name}, {plan}", output=apart[0], loss=apart[1], gradient=apart[2], moved=moved)


def refusal(name, call):
    try:
        call()
        words = "nothing was raised"
    except (GraphAttnError, RuntimeError) as error:
        words = f"{type(error).__name__}: {error}"
    every = [None] * WORLD
    dist.all_gather_object(every, words)
    told(name, words=every)


for name in LAYERS:
    every = name == "three blocks" or "some" not in sys.argv
    for plan in ("halo", "gather", "stream", "queries") if every else ("halo",):
        if plan in ("stream", "queries") and name in ("sink", "sparsemax", "additive", "subtraction"):
            continue  # refused
        compare(name, plan)
for name in ("narrow rows of x", "rotary", "sink", "three blocks", "edge features") if WORLD < 3 else ():
    compare(name, "heads")
for plan in ("auto", "stream"):
    compare("three blocks", plan, ga.PerHead((GRAPH, ga.graphs.sliding_window(N, 9))))


def grow(plan):
    """Tokens in turns, whose keys stay in the caches of their owners: the greatest error."""
    torch.manual_seed(4)
    layer, cache, graph = LAYERS["rotary"]().double(), ga.nn.KeyValueCache(), ga.graphs.causal(12)
    part, wanted, error = torch.arange(12) % WORLD, layer(X[:12], graph), 0.0
    for first, last in ((0, 6), (6, 7), (7, 12)):
        rows = ga.graphs.causal(last).subgraph(targets=range(first, last))
        mine = shard(rows, partition=part[first:last], source_partition=part[:last], plan=plan)
        output = layer(X[first:last][mine.owned], mine, cache=cache)
        error += float((output - wanted[first:last][mine.owned]).abs().sum())
    return error


told("caches", apart=everywhere(grow("halo"), grow("queries")))

seed = torch.Generator().manual_seed(int(RANK == WORLD - 1))
other = ga.graphs.knn(torch.rand(N, 3, generator=seed), 5)
refusal("another graph", lambda: shard(other))
refusal("another rule", lambda: shard(ga.graphs.sliding_window(N, 5 + 2 * (RANK == WORLD - 1))))
refusal("another partition", lambda: shard(GRAPH, partition=torch.arange(N).roll(RANK) * WORLD // N))
refusal("another plan", lambda: shard(GRAPH, plan="gather" if RANK else "halo"))
mine = shard(GRAPH, plan="heads", heads=12)
refusal(
    "weights by heads", lambda: ga.attention(*[torch.randn(mine.num_targets, 12, 2)] * 3, mine, return_weights=True)
)
for plan in ("stream", "queries"):
    mine = shard(GRAPH, plan=plan)
    call = partial(ga.attention, *[torch.randn(mine.num_targets, 12, 2)] * 3, mine, return_weights=True)
    refusal(f"weights by {plan}", call)
own = shard(GRAPH, partition="rcb", pos=POS)
given = own.scatter(X).unflatten(1, (4, 6))
alpha = ga.attention(given, given, given, own, return_weights=True).weights.alpha
whole = X.unflatten(1, (4, 6))
wanted = ga.attention(whole, whole, whole, GRAPH, backend="edges", return_weights=True).weights.alpha[own.edges]
told("weights", apart=everywhere(float((alpha - wanted).abs().max()))[0], edges=own.num_edges, report=str(own))
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
if RANK == 0:
    knn_parts(POS.numpy(), 5, f"{folder[0]}/edges", parts=7)
dist.barrier()
mine = shard(EdgeFiles(f"{folder[0]}/edges"))
wanted = ga.attention(whole, whole, whole.flip(0), GRAPH, backend="edges")
output = ga.attention(mine.scatter(whole), mine.scatter(whole), mine.scatter(whole.flip(0)), mine)
own_edges = torch.tensor(float(mine.num_edges))
dist.all_reduce(own_edges)
told("files", apart=everywhere(float((output - mine.scatter(wanted)).abs().max()))[0], edges=int(own_edges))
for plan in ("halo", "gather", "queries"):
    mine = shard(GRAPH, partition="rcb", pos=POS, plan=plan)
    torch.manual_seed(5)
    wanted = ga.attention(whole, whole, whole.flip(0), GRAPH, backend="edges", dropout_p=0.3)
    torch.manual_seed(5 + RANK)  # the first process's seed counts
    output = ga.attention(mine.scatter(whole), mine.scatter(whole), mine.scatter(whole.flip(0)), mine, dropout_p=0.3)
    kept = ga.attention(whole, whole, whole.flip(0), GRAPH, backend="edges")
    apart = everywhere(float((output - mine.scatter(wanted)).abs().max()), -float((wanted - kept).abs().max()))
    told(f"dropout, {plan}", apart=apart[0], dropped=-apart[1])
few, size = ga.graphs.cross(7, N), {"heads": 12, "head_dim": 2, "dtype": torch.float64}
for plan in ("halo", "gather", "heads", "stream", "queries", "auto"):
    graph, how = (few, {}) if plan == "auto" else (GRAPH, {"partition": "rcb", "pos": POS})
    mine = shard(graph, plan=plan, **how, **size)
    rows, q = X[mine.owned_sources].unflatten(1, (12, 2)), Y[mine.owned].unflatten(1, (12, 2))
    with torch.no_grad(), Traffic() as traffic:
        output = ga.attention(q, rows, rows.clone(), mine)
    planned = int(mine.report.bytes_per_layer[RANK])
    on_paper = paper(graph, WORLD, mine.report.rows, **how)
    both = zip(vars(on_paper.counts).values(), vars(mine.report.counts).values(), strict=True)
    same = all(torch.equal(x, y) for x, y in both if x is not None)
    same = same and (plan != "auto" or on_paper.plan == mine.report.plan)
    rows = [x.unflatten(1, (12, 2)) for x in (Y[: graph.num_targets], X, X)]
    error = float((output - ga.attention(*rows, graph, backend="edges")[mine.owned]).abs().max())
    apart = everywhere(abs(traffic.received - planned), 1 - same, -traffic.received, error)
    named = {"plan": mine.report.plan, "calls": traffic.calls, "output": apart[3]}
    told(f"bytes, {plan}", apart=apart[0], paper=apart[1], least=-apart[2], **named)
if RANK == 0:
    print(json.dumps({"done": True}), flush=True)
