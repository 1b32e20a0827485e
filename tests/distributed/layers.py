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
from graphattn.kernels.cuda import row_work
from graphattn.plans.grouped import by_target

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
    """Output, loss and gradients; edge features are relative positions, made here or by a single
    layer.
    """
    given, pos = {}, graph.scatter(POS) if hasattr(graph, "scatter") else POS
    if "edge_dim=3" in repr(layer):
        is_layer = isinstance(layer, ga.nn.GraphAttention)
        given = (
            {"positions": pos} if is_layer else {"edge_attr": ga.nn.relative_positions(graph, pos)}
        )
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
    errors = [
        float((grads[key] - g / WORLD).abs().max()) for key, g in parts.items() if g is not None
    ]
    apart = everywhere(
        float((here - mine.scatter(output)).abs().max()), float((average - loss).abs()), max(errors)
    )
    name = name if graph is GRAPH else f"{name}, graphs of heads"
    told(f"{name}, {plan}", output=apart[0], loss=apart[1], gradient=apart[2], moved=moved)


class Rows(nn.Module):
    """Rows of own targets, ``function(module, graph, own, pos)``; ``own`` takes a tensor's rows of
    own nodes.
    """

    def __init__(self, function, module=None, graph=GRAPH):
        super().__init__()
        self.function, self.module, self.graph = function, module, graph

    def forward(self, where, own, pos):
        return self.function(self.module, where, own, pos)


def biased(function, module=None, graph=GRAPH):
    """Attention whose scores are a bias (E, H or 1) alone, on values that are positions."""

    def attend(module, where, own, pos):
        nodes = pos.unsqueeze(1).expand(-1, 4, -1)
        return ga.attention(
            nodes, nodes, nodes, where, score_bias=function(module, where, own, pos)
        )

    return Rows(attend, module, graph)


NUMBERS = torch.arange(N).flip(0) * 3 % 31
GRID, TOKENS = ga.graphs.grid_neighbourhood((8, 13), 3, causal=False), torch.arange(N) * 7 % 11
TORUS = ga.graphs.circulant(N, (1, 5, N - 1, N - 5))
FACES = torch.stack((torch.arange(N), (torch.arange(N) + 1) % N, (torch.arange(N) + 5) % N), 1)
OF_GRAPHS = {
    "alibi": lambda: biased(lambda bias, g, own, pos: bias(g), ga.nn.ALiBi(4)),
    "t5": lambda: biased(lambda bias, g, own, pos: bias(g), ga.nn.T5Bias(4)),
    "alibi of positions": lambda: biased(
        lambda bias, g, own, pos: bias(g, own(NUMBERS)), ga.nn.ALiBi(4)
    ),
    "swin": lambda: biased(lambda bias, g, own, pos: bias(g), ga.nn.SwinBias((3, 3), 4), GRID),
    "swin v2": lambda: biased(
        lambda bias, g, own, pos: bias(g, (8, 13)), ga.nn.SwinV2Bias((3, 3), 4), GRID
    ),
    "shortest paths": lambda: biased(
        lambda bias, g, own, pos: bias(g, TORUS), ga.nn.ShortestPathBias(4)
    ),
    "edge table": lambda: biased(
        lambda bias, g, own, pos: bias(g, getattr(g, "_whole_graph", g).source % 3),
        ga.nn.EdgeTypeBias(3, 4),
    ),
    "offsets": lambda: biased(lambda bias, g, own, pos: bias(g, pos), ga.nn.OffsetBias(4)),
    "contextual": lambda: biased(
        lambda bias, g, own, pos: bias(g, *[own(X[:, 4:20]).unflatten(1, (4, 4))] * 2, pos),
        ga.nn.ContextualTable(4, 4, 5, step=0.1),
    ),
    "walks": lambda: biased(lambda _, g, own, pos: ga.nn.relative_walk_pe(TORUS, 4, g)),
    "geometry": lambda: biased(
        lambda _, g, own, pos: ga.nn.edge_geometry(
            g,
            pos,
            features=("distance", "pair", "frame"),
            normals=own(nn.functional.normalize(X[:, :3])),
        ).sum(1, True)
    ),
    "edges of a mesh": lambda: biased(
        lambda _, g, own, pos: ga.nn.mesh_edge_geometry(POS, FACES, g)[:, :1],
        None,
        ga.graphs.mesh_vertices(FACES, N),
    ),
    "frames": lambda: Rows(
        lambda _, g, own, pos: ga.nn.local_frames(g, pos, own(nn.functional.normalize(X[:, :3])))
    ),
    "pca": lambda: Rows(lambda _, g, own, pos: ga.nn.local_pca(g, pos)[1]),
    "gpt": lambda: Rows(
        lambda model, g, own, pos: model(own(TOKENS), g), ga.models.GPT(11, 8, 4, 2, max_len=N)
    ),
    "gpt of alibi": lambda: Rows(
        lambda model, g, own, pos: model(own(TOKENS), g, lengths=torch.tensor(N - 20)),
        ga.models.GPT(11, 8, 4, 2, score_bias=ga.nn.ALiBi(4)),
    ),
    "bert": lambda: Rows(
        lambda model, g, own, pos: model(own(TOKENS), g), ga.models.BERT(11, 8, 4, 2, max_len=N)
    ),
}


def compare_of_graphs(name, plan):
    """Rows of own targets, and the gradients of positions and parameters, beside those of one
    process.
    """
    torch.manual_seed(6)
    case = OF_GRAPHS[name]().double()
    T, backward = case.graph.num_targets, torch.Generator().manual_seed(7)
    mine, pos = (
        shard(case.graph, plan=plan, heads=4, partition=torch.arange(T) * 5 % 7 % WORLD),
        POS.repeat(2, 1)[:T],
    )

    def run(where, own):
        leaf = own(pos).clone().requires_grad_()
        output = case(where, own, leaf)
        grad = (
            own(
                torch.randn(
                    T, *output.shape[1:], generator=backward.manual_seed(7), dtype=torch.float64
                )
            )
            / T
        )
        return output.detach(), torch.autograd.grad(
            output, [leaf, *case.parameters()], grad, allow_unused=True, materialize_grads=True
        )

    (output, grads), (here, parts) = run(case.graph, lambda x: x), run(mine, mine.scatter)
    for part in parts[1:]:
        dist.all_reduce(part)
    wanted = [mine.scatter(grads[0]), *grads[1:]]
    errors = [
        float((a - b).abs().max()) if a.numel() else 0.0 for a, b in zip(parts, wanted, strict=True)
    ]
    apart = everywhere(
        float((here - mine.scatter(output)).abs().amax()) if here.numel() else 0.0, max(errors)
    )
    moved = max(float(g.abs().max()) for g in grads)
    told(f"{name}, {plan}", output=apart[0], loss=0.0, gradient=apart[1], moved=moved)


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
    for plan in ("halo", "queries") if every else ("halo",):
        if plan == "queries" and name in (
            "sink",
            "sparsemax",
            "additive",
            "subtraction",
        ):
            continue  # refused
        compare(name, plan)
for name in (
    ("narrow rows of x", "rotary", "sink", "three blocks", "edge features") if WORLD < 3 else ()
):
    compare(name, "heads")
for plan in ("auto", "queries"):
    compare("three blocks", plan, ga.PerHead((GRAPH, ga.graphs.sliding_window(N, 9, causal=True))))


def overlapped(name):
    """Outputs and gradients with overlap beside those without: equal bits, and to rounding."""
    torch.manual_seed(3)
    layer, found = LAYERS[name]().double(), []
    for overlap in (False, True):
        mine = shard(GRAPH, partition="rcb", pos=POS, plan="halo", overlap=overlap)
        x = mine.scatter(X).requires_grad_()
        output = layer(x, mine)
        found.append(
            (output, *torch.autograd.grad(output, (x, *layer.parameters()), mine.scatter(Y)))
        )
    errors = [float((a - b).abs().max()) for a, b in zip(*found, strict=True) if a.numel()]
    told(
        f"overlap of {name}",
        **dict(zip(("bits", "gradient"), everywhere(errors[0], max(errors)), strict=True)),
    )


overlapped("narrow rows of x"), overlapped("keys and values, grouped"), overlapped("three blocks")
for name in OF_GRAPHS:
    for plan in (
        ("halo", "heads", "queries")
        if "some" not in sys.argv or name == "contextual"
        else ("halo",)
    ):
        if plan != "heads" or 4 % WORLD == 0:
            compare_of_graphs(name, plan)


@torch.no_grad()
def grow(model, x, plan, **caches):
    """Tokens in turns, whose keys stay in the caches of their owners: the greatest error."""
    part, wanted, error = torch.arange(12) % WORLD, model(x[:12], ga.graphs.causal(12)), 0.0
    for first, last in ((0, 6), (6, 7), (7, 12)):
        rows = ga.graphs.causal(last).subgraph(targets=range(first, last))
        mine = shard(rows, partition=part[first:last], source_partition=part[:last], plan=plan)
        output = model(x[first:last][mine.owned], mine, **caches)
        error += float((output - wanted[first:last][mine.owned]).abs().sum())
    return error


torch.manual_seed(4)
growing = [
    grow(LAYERS["rotary"]().double(), X, plan, cache=ga.nn.KeyValueCache())
    for plan in ("halo", "queries")
]
for options in ({"max_len": 12}, {"score_bias": ga.nn.ALiBi(4)}):
    model = ga.models.GPT(11, 8, 4, 2, **options).double()
    growing.append(grow(model, TOKENS, "halo", caches=model.begin(1, 12)))
told("caches", apart=everywhere(*growing))


def cut(ptr, order, nodes):
    """The rows of edges as Triton cuts them: the node, the part of its edges, and those processed
    at once.
    """
    work, first = (
        row_work.schedule(ptr, order),
        dict(zip(nodes.tolist(), ptr.tolist(), strict=False)),
    )
    parts = [*work.whole_rows, *(() if work.hubs is None else work.hubs[:1])]
    every = [
        (part.block, *numbers)
        for part in parts
        for numbers in zip(*(x.tolist() for x in part[1:]), strict=True)
    ]
    node = nodes.tolist()
    return {
        (node[row], start - first[node[row]], stop - first[node[row]], block)
        for block, row, start, stop in every
    }


row_work.PIECE = 4
hubs = ga.from_edge_index(
    [[*range(100), *range(1, 40)], [0] * 100 + [t // 6 + 1 for t in range(1, 40)]], num_nodes=N
)
mine = shard(hubs, partition=(torch.arange(N) > 0).long() * (WORLD - 1))  # the hub is alone
own, every = (
    cut(x[0], x[3], y)
    for x, y in ((mine._by_target, mine.owned), (by_target(hubs), torch.arange(N)))
)
alone = cut(mine._by_target[0].clone(), mine._by_target[3], mine.owned)
wrong, control = everywhere(len(own - every), len(alone - every))
told("pieces", wrong=wrong, control=control)

seed = torch.Generator().manual_seed(int(RANK == WORLD - 1))
other = ga.graphs.knn(torch.rand(N, 3, generator=seed), 5)
refusal("another graph", lambda: shard(other))
refusal(
    "another rule",
    lambda: shard(ga.graphs.sliding_window(N, 5 + 2 * (RANK == WORLD - 1), causal=True)),
)
refusal(
    "another partition", lambda: shard(GRAPH, partition=torch.arange(N).roll(RANK) * WORLD // N)
)
refusal("turned points", lambda: shard(ga.graphs.hierarchy(POS.roll(RANK, 1))))
refusal("another plan", lambda: shard(GRAPH, plan="heads" if RANK else "halo"))
mine = shard(GRAPH, plan="heads", heads=12)
refusal(
    "weights by heads",
    lambda: ga.attention(*[torch.randn(mine.num_targets, 12, 2)] * 3, mine, return_weights=True),
)
mine = shard(GRAPH, plan="queries")
call = partial(ga.attention, *[torch.randn(mine.num_targets, 12, 2)] * 3, mine, return_weights=True)
refusal("weights by queries", call)
own = shard(GRAPH, partition="rcb", pos=POS)
given = own.scatter(X).unflatten(1, (4, 6))
alpha = ga.attention(given, given, given, own, return_weights=True).weights.alpha
whole = X.unflatten(1, (4, 6))
wanted = ga.attention(
    whole, whole, whole, GRAPH, backend="edges", return_weights=True
).weights.alpha[own.edges]
told(
    "weights",
    apart=everywhere(float((alpha - wanted).abs().max()))[0],
    edges=own.num_edges,
    report=str(own),
)
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
told(
    "files",
    apart=everywhere(float((output - mine.scatter(wanted)).abs().max()))[0],
    edges=int(own_edges),
)
for plan in ("halo", "queries"):
    mine = shard(GRAPH, partition="rcb", pos=POS, plan=plan)
    torch.manual_seed(5)
    wanted = ga.attention(whole, whole, whole.flip(0), GRAPH, backend="edges", dropout_p=0.3)
    torch.manual_seed(5 + RANK)  # the first process's seed counts
    output = ga.attention(
        mine.scatter(whole), mine.scatter(whole), mine.scatter(whole.flip(0)), mine, dropout_p=0.3
    )
    kept = ga.attention(whole, whole, whole.flip(0), GRAPH, backend="edges")
    apart = everywhere(
        float((output - mine.scatter(wanted)).abs().max()), -float((wanted - kept).abs().max())
    )
    told(f"dropout, {plan}", apart=apart[0], dropped=-apart[1])
few, size = ga.graphs.cross(7, N), {"heads": 12, "head_dim": 2, "dtype": torch.float64}
for plan in ("halo", "heads", "queries", "auto"):
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
