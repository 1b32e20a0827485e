"""A study of your own takes twenty lines: neighbours tell what all pairs cannot, for PyG's
GraphConv, too.

Do two ones stand side by side? All pairs count the ones, and so does a random graph of as many
edges.
"""

import tempfile

import torch
from torch_geometric.nn import GraphConv

import graphattn as ga
from graphattn import study


class Net(torch.nn.Module):
    def __init__(self, data):
        super().__init__()
        self.conv, self.head = GraphConv(1, 16), torch.nn.Linear(16, data.classes)

    # (..., N, F) and a graph for each layer: logits (..., N, classes)
    def forward(self, inputs, graphs, places, pos):
        return self.head(self.conv(inputs, graphs[0].edge_index).relu())


bits = torch.rand(1000, 12, generator=torch.Generator().manual_seed(0)) < 0.25
data = study.Data(bits.unsqueeze(-1).float(), (bits[:, 1:] & bits[:, :-1]).any(1).long(), test=300)
with tempfile.TemporaryDirectory() as folder:
    report = study.run(
        {"neighbours": ga.graphs.sliding_window(12, 3, causal=False)},
        data,
        model=study.CustomModel(Net, layers=1),
        budgets=study.Budget(steps=250),
        training=study.Training(rate=5e-2),
        controls=("full", "rewired"),
        claims=[study.Claim("neighbours", "full", because="all pairs count the ones")],
        seeds=2,
        out=folder,
    )
for row in report.rows:
    print(f"{row.arm}: {row.interval}, chance {data.chance:.3f}")
print(
    f"a module of {next(iter(report.records.of_key.values()))['parameters']} parameters, the same "
    "for all arms"
)

ours, controls = report.row("neighbours"), (report.row("full"), report.row("rewired neighbours"))
assert all(min(report.differences(ours, control)) > 0.1 for control in controls)
