"""A layer that keeps a symmetry needs no turned copies: flat clusters teach it forces in any plane.

Clusters of atoms lie in the plane z = 0, with forces of Morse's potential. Two networks learn the
forces on them: attention on scalars and vectors, and convolutions of PyG that read the components of
relative positions. ``verify`` tells them apart before any training, and names what breaks. On
clusters that are turned out of the plane the one makes the error that it made in the plane, to
1e-10; the other is further off than no answer at all.
"""

import torch
from torch import nn
from torch_geometric.nn import PointNetConv

import graphattn as ga

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
REACH, ATOMS, STEPS = 2.0, 7, 300
RECIPE = ga.graphs.radius(..., r=REACH)


def clusters(number):
    """Positions of clusters side by side, a batch, and forces: slopes of (1 - exp(1.2 - r))^2."""
    side = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0)) * 1.2
    pos = torch.cat([side[torch.randperm(9)[:ATOMS]] for _ in range(number)])
    pos = torch.cat((pos + 0.15 * torch.randn_like(pos), torch.zeros(len(pos), 1)), 1)
    batch = torch.arange(number).repeat_interleave(ATOMS)
    pos.requires_grad_()
    r = ga.nn.edge_geometry(RECIPE(pos, batch), pos, features=("distance",))
    energy = (1 - torch.exp(1.2 - r)).square().sum() / 2  # each pair is two edges
    return pos.detach(), batch, -torch.autograd.grad(energy, pos)[0]


class Equivariant(nn.Module):
    """Scalars and vectors of atoms; the answer is one of the vectors."""

    def __init__(self, width=8):
        super().__init__()
        self.start = nn.Parameter(torch.ones(width))
        options = {"cutoff": REACH, "num_radial": 12}
        self.first = ga.nn.EquivariantAttention(width, 2, **options)
        self.second = ga.nn.EquivariantAttention(width, 2, **options)
        self.leave = nn.Linear(width, 1, bias=False)

    def forward(self, graph, pos):
        x, v = self.first(self.start.expand(len(pos), -1), graph, pos)
        _, more = self.second(nn.functional.silu(x), graph, pos, v)
        return self.leave((v + more).transpose(1, 2))[..., 0]


class Components(nn.Module):
    """PointNet's convolution twice: networks of the components of relative positions, summed."""

    def __init__(self, width=48):
        super().__init__()
        self.first = PointNetConv(self.network(3, width), aggr="sum", add_self_loops=False)
        self.second = PointNetConv(self.network(width + 3, width), aggr="sum", add_self_loops=False)
        self.leave = nn.Linear(width, 3)

    @staticmethod
    def network(enter, width):
        hidden = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        return nn.Sequential(nn.Linear(enter, width), nn.SiLU(), hidden)

    def forward(self, graph, pos):
        x = nn.functional.silu(self.first(None, pos, graph.edge_index))
        return self.leave(self.second(x, pos, graph.edge_index))


def error(model, pos, batch, forces):
    """Error of the forces, a part of their size."""
    off = model(RECIPE(pos, batch), pos) - forces
    return off.square().mean().sqrt() / forces.square().mean().sqrt()


def learned(model, pos, batch, forces):
    graph = RECIPE(pos, batch)
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        loss = (model(graph, pos) - forces).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


train = clusters(100)
pos, batch, forces = clusters(20)
turn = torch.linalg.qr(torch.randn(3, 3))[0]
some = torch.randn(9, 3)

print("forces of clusters          flat    turned   symmetric before training")
errors = {}
for model in (Equivariant(), Components()):
    name = type(model).__name__
    report = ga.verify(model, RECIPE, pos=some, symmetry="all", output="vectors")
    learned(model, *train)
    with torch.no_grad():
        flat = error(model, pos, batch, forces)
        turned = error(model, pos @ turn, batch, forces @ turn)
    errors[name] = flat, turned
    why = "yes"
    if not report.ok:
        (cause,) = report.causes
        why = f"no: {', '.join(report.broken)} by {cause.kind} ({cause.input})"
    print(f"{name:20}{flat:12.1%}{turned:10.1%}   {why}")

flat, turned = errors["Equivariant"]
assert abs(flat - turned) < 1e-10
assert flat < 0.3
in_plane, out_of_plane = errors["Components"]
assert in_plane < 0.9 < 1.0 < out_of_plane
