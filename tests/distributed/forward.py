"""Run by :mod:`ranks`: attention on a shared graph beside that of one process, for a table of
cases.
"""

import json
import sys

import torch
import torch.distributed as dist

import graphattn as ga
from graphattn.distributed import shard

RANK, WORLD = dist.get_rank(), dist.get_world_size()
N = 211


def seeded(seed):
    return torch.Generator().manual_seed(seed)


POS = torch.rand(N, 3, generator=seeded(0), dtype=torch.float64)


def powers():
    w = (N * torch.rand(9 * N, generator=seeded(1)) ** 3).long().clamp(max=N - 1)
    return torch.stack((w, torch.randint(N, (9 * N,), generator=seeded(2))))


def torus(a):
    i = torch.arange(a * a)
    r, c = i // a, i % a
    steps = ((0, 0), (0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1))
    near = torch.stack([(r + dr) % a * a + (c + dc) % a for dr, dc in steps], 1).flatten()
    return torch.stack((near, i.repeat_interleave(7)))[
        :, torch.randperm(7 * a * a, generator=seeded(3))
    ]


FAMILIES = {
    "knn": lambda: ga.graphs.knn(POS, 7),
    "mesh": lambda: ga.from_edge_index(torus(13), num_nodes=169),
    "power law": lambda: ga.from_edge_index(powers(), N, N, duplicates="merge"),
    "its reverse": lambda: ga.from_edge_index(powers().flip(0), N, N, duplicates="merge"),
    "repeated edges": lambda: ga.from_edge_index(powers(), N, N, duplicates="keep"),
    "causal window": lambda: ga.graphs.sliding_window(N, 19, causal=True),
    "random digraph": lambda: ga.from_edge_index(
        torch.randint(N, (2, 1500), generator=seeded(4)), N, N, duplicates="merge"
    ),
    "cross": lambda: ga.from_edge_index(
        torch.stack(
            (
                torch.randint(89, (700,), generator=seeded(5)),
                torch.randint(N, (700,), generator=seeded(6)),
            )
        ),
        89,
        N,
        duplicates="merge",
    ),
    "no edges": lambda: ga.from_edge_index(torch.empty(2, 0, dtype=torch.long), N, N),
}
PARTITIONS = {
    "contiguous": lambda n: "contiguous",
    "scattered": lambda n: (torch.arange(n) * WORLD // n)[torch.randperm(n, generator=seeded(7))],
    "uneven": lambda n: torch.searchsorted(
        torch.tensor([0.6, 0.9, 0.97]), torch.arange(n) / n
    ).clamp(max=WORLD - 1),
    "all but one empty": lambda n: torch.full((n,), WORLD - 1),
}
OPTIONS = {
    "float64": (torch.float64, {}),
    "float32, grouped, bias": (torch.float32, {"kv": 4, "bias": True}),
    "bfloat16, grouped, softcap": (torch.bfloat16, {"kv": 4, "softcap": 5.0}),
    "float64, grouped, bias, softcap, D_v, batch": (
        torch.float64,
        {"kv": 4, "bias": True, "dv": 11, "softcap": 3.0, "scale": 0.4, "lead": (2,)},
    ),
}
BOUND = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 0.3}


def compare(graph, how, plan, dtype, kv=12, bias=False, dv=13, lead=(), **numbers):
    """Bitwise forward, greatest error of gradients, and the number of rows whose gradient is not
    0.
    """
    H, T, S, E = 12, graph.num_targets, graph.num_sources, graph.num_edges

    def random(seed, *shape):
        return torch.randn(*lead, *shape, generator=seeded(seed), dtype=torch.float64).to(dtype)

    q, k, v = random(8, T, H, 13), random(9, S, kv, 13), random(10, S, kv, dv)
    given = [q, k, v] + [random(11, E, H).to(torch.promote_types(dtype, torch.float32))] * bias
    grad = random(12, T, H, dv)
    asked = {"plan": "halo", "overlap": True} if plan == "overlap" else {"plan": plan}
    mine = shard(graph, partition=how, heads=H, kv_heads=kv, **asked)
    assert mine.report.plan == asked["plan"]
    here = (mine.owned, mine.owned_sources, mine.owned_sources, mine.edges)

    def run(where, leaves, grad):
        leaves = [x.clone().requires_grad_() for x in leaves]
        named = dict(numbers, score_bias=leaves[3] if bias else None)
        output = ga.attention(*leaves[:3], where, backend="edges", **named)
        return output, torch.autograd.grad(output, leaves, grad)

    wanted, grads = run(graph, given, grad)
    rows = [x.index_select(len(lead), i) for x, i in zip(given, here, strict=False)]
    output, own = run(mine, rows, grad.index_select(len(lead), mine.owned))
    own = list(own)
    if plan == "heads" and bias:
        dist.all_reduce(own[3])  # each holds the gradient of its heads
    wanted_here = [x.index_select(len(lead), i) for x, i in zip(grads, here, strict=False)]
    errors = [
        float((a - b).abs().max()) if a.numel() else 0.0
        for a, b in zip(own, wanted_here, strict=True)
    ]
    there = wanted.index_select(len(lead), mine.owned)
    same = torch.equal(output, there)
    whole = torch.equal(mine.gather(output, len(lead)), wanted)
    if plan == "queries":  # merged: equal to rounding
        apart = float((output - there).abs().max()) if output.numel() else 0.0
        same = whole = (
            apart <= {torch.float64: 1e-12, torch.float32: 5e-6, torch.bfloat16: 0.05}[dtype]
        )
    facts = torch.tensor([float(same and whole), -max(errors), float(grads[1].abs().max())])
    dist.all_reduce(facts, op=dist.ReduceOp.MIN)
    return bool(facts[0]), -float(facts[1]) <= BOUND[dtype], -float(facts[1]), float(facts[2])


def main(families, partitions, plans):
    for family in families:
        graph = FAMILIES[family]()
        for partition in partitions:
            for plan in plans:
                if plan == "heads" and 4 % WORLD:
                    continue
                for option, (dtype, named) in OPTIONS.items():
                    how = PARTITIONS[partition](graph.num_targets)
                    same, close, error, largest = compare(graph, how, plan, dtype, **named)
                    name = f"{family}, {partition}, {plan}, {option}"
                    row = {
                        "name": name,
                        "bitwise": same,
                        "close": close,
                        "error": error,
                        "gradient": largest,
                    }
                    if RANK == 0:
                        print(json.dumps(row), flush=True)


some = sys.argv[1:] == ["some"]
main(
    ["its reverse", "causal window"] if some else FAMILIES,
    ["scattered"] if some else PARTITIONS,
    ["halo", "overlap", "heads", "queries"],
)
if RANK == 0:
    print(json.dumps({"done": True}), flush=True)
