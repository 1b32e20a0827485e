"""Run by :mod:`ranks`: each way to break an exchange, and what the comparison with one process says
of it.
"""

import json
from contextlib import contextmanager
from itertools import product
from unittest.mock import patch

import torch
import torch.distributed as dist

import graphattn as ga
from graphattn.distributed import exchange, mean, queries, shard, shards
from graphattn.errors import ProcessError

RANK, N = dist.get_rank(), 97
GRAPH = ga.graphs.knn(torch.rand(N, 3, generator=torch.Generator().manual_seed(0)), 7)
X = [
    torch.randn(N, 2, 5, generator=torch.Generator().manual_seed(s), dtype=torch.float64)
    for s in (1, 2, 3, 4)
]
asked = exchange.RequestedRows.__call__


def dropped(self, x):
    rows = asked(self, x)
    return torch.cat((rows[:-1], torch.zeros_like(rows[-1:])))


def swapped(self, x):
    slots = self.slots
    node = slots.node.clone()
    node[:2] = node[[1, 0]]
    with patch.object(self, "slots", slots._replace(node=node)):
        return asked(self, x)


def unscattered(self, x):
    return asked(self, x.detach())


def averaged(self, x):
    rows = asked(self, x)
    if rows.requires_grad:
        rows.register_hook(lambda grad: grad / 2)
    return rows


merge = queries.merged


def evenly(run, parts, output, lse):
    return merge(run, parts, output, torch.zeros_like(lse))


@contextmanager
def as_it_is():
    yield


def local_mean(per_node, mine):
    return per_node.mean()


MUTANTS = {
    "none": as_it_is,
    "a row dropped": lambda: patch.object(exchange.RequestedRows, "__call__", dropped),
    "two rows swapped": lambda: patch.object(exchange.RequestedRows, "__call__", swapped),
    "gradient not scattered": lambda: patch.object(exchange.RequestedRows, "__call__", unscattered),
    "a mean for a sum": lambda: patch.object(exchange.RequestedRows, "__call__", averaged),
    "no fingerprint": lambda: patch.object(shards, "agree", lambda *_: None),
    "parts merged evenly": lambda: patch.object(queries, "merged", evenly),
}


def run(where, leaves, grad):
    leaves = [x.clone().requires_grad_() for x in leaves]
    output = ga.attention(*leaves, where, backend="edges")
    return output.detach(), torch.autograd.grad(output, leaves, grad, materialize_grads=True)


wanted, grads = run(GRAPH, X[:3], X[3])
for (name, mutant), plan in product(MUTANTS.items(), ("halo", "queries")):
    with mutant():
        mine = shard(GRAPH, plan=plan, partition=torch.arange(N) * 7 % 10 % 2)
        output, own = run(mine, [mine.scatter(x) for x in X[:3]], mine.scatter(X[3]))
        error = max(
            float((a - mine.scatter(b)).abs().max()) for a, b in zip(own, grads, strict=True)
        )
        try:
            other = ga.graphs.knn(
                torch.rand(N, 3, generator=torch.Generator().manual_seed(RANK)), 7
            )
            shard(other)
            refused = 0.0
        except ProcessError:
            refused = 1.0
    apart, most = float((output - mine.scatter(wanted)).abs().max()), 1e-12 * (plan == "queries")
    facts = torch.tensor([float(apart <= most), float(error < 1e-12), refused])
    dist.all_reduce(facts, op=dist.ReduceOp.MIN)
    if RANK == 0:
        print(json.dumps({"name": f"{plan}, {name}", "verdict": facts.tolist()}), flush=True)
uneven = shard(GRAPH, partition=(torch.arange(N) > 20).long())
values = torch.arange(N).double()
told = (
    float(mean(uneven.scatter(values), uneven)),
    float(local_mean(uneven.scatter(values), uneven)),
)
if RANK == 0:
    print(json.dumps({"name": "mean", "verdict": told}), flush=True)
    print(json.dumps({"done": True}), flush=True)
