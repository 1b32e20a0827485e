"""Four processes share one mesh: twenty steps of training are those of one process.

A torus of 20,000 vertices is cut by recursive coordinate bisection. Each process attends on its own
vertices, receives the rows of the few others that these read, and DDP averages the gradients; the
loss is a mean over all vertices. On a cluster the same lines run under
``torchrun --nproc_per_node 8 train.py``, after ``init_process_group("nccl")``.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing import start_processes
from torch.nn.parallel import DistributedDataParallel

import graphattn as ga

ROUND, ALONG, STEPS, PROCESSES = 100, 200, 20, 4
VERTICES = ROUND * ALONG


def torus():
    """Positions (N, 3), and the graph in which a vertex reads itself and the six around it."""
    place = torch.arange(VERTICES)
    i, j = place // ROUND, place % ROUND
    u, v = 2 * torch.pi * i / ALONG, 2 * torch.pi * j / ROUND
    pos = torch.stack(((3 + v.cos()) * u.cos(), (3 + v.cos()) * u.sin(), v.sin()), 1).double()
    steps = ((0, 0), (0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1))
    near = torch.stack([(i + a) % ALONG * ROUND + (j + b) % ROUND for a, b in steps], 1)
    return pos, ga.from_edge_index(
        torch.stack((near.flatten(), place.repeat_interleave(7))), num_nodes=VERTICES
    )


class Network(nn.Module):
    """A number for each vertex, of its position."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 16), nn.Linear(16, 1)
        self.encoder = ga.models.Encoder(2, 16, 4, hidden=32)

    def forward(self, pos, graph):
        return self.last(self.encoder(self.first(pos), graph)).squeeze(-1)


def train(network, pos, graph, label, mean):
    """The loss of every step."""
    optimizer, losses = torch.optim.AdamW(network.parameters(), 1e-2), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = mean((network(pos, graph) - label) ** 2)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def problem():
    """Positions, graph, label and a network, the same in every process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pos, graph = torus()
    return pos, graph, (2 * pos).sin().prod(1), Network().double()


def work(rank, folder):
    """One of the processes."""
    where = {"init_method": f"file://{folder}/rendezvous", "rank": rank, "world_size": PROCESSES}
    dist.init_process_group("gloo", **where)
    pos, graph, label, network = problem()
    shard = ga.distributed.shard(
        graph, partition="rcb", pos=pos, heads=4, head_dim=4, dtype=pos.dtype
    )
    pos, label = shard.scatter(pos), shard.scatter(label)
    losses = train(
        DistributedDataParallel(network), pos, shard, label, lambda x: ga.distributed.mean(x, shard)
    )
    if rank == 0:
        print(shard.report)
        torch.save({"losses": losses, "network": network.state_dict()}, f"{folder}/result.pt")
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo aborts at exit now and then


folder = tempfile.mkdtemp()
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
start_processes(work, (folder,), PROCESSES, start_method="fork")
shared = torch.load(f"{folder}/result.pt")
pos, graph, label, network = problem()
losses = train(network, pos, graph, label, torch.mean)
apart = max(abs(a - b) for a, b in zip(losses, shared["losses"], strict=True))
drift = max(
    float((shared["network"][name] - p).abs().max()) for name, p in network.state_dict().items()
)
print(
    f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; losses differ by {apart:.0e}, parameters by "
    f"{drift:.0e}"
)

assert losses[-1] < 0.7 * losses[0]
assert max(apart, drift) < 1e-9
