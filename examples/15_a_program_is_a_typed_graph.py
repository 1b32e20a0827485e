"""A program is a typed graph: every relation between the nodes of its syntax tree has a bias of its
own.

Relations come from anywhere: here from Python's own parser (examples/programs/). Their union is one
graph, whose edges know their relation, as in GREAT (Hellendoorn et al. 2020).
"""

import torch
from programs import program_graphs

import graphattn as ga

torch.manual_seed(0)
SOURCE = """
def mean(values):
    total = 0
    for value in values:
        total = total + value
    return total / len(values)
"""
program = program_graphs(SOURCE)
typed = program.typed
for label, number in zip(typed.names, typed.count().values(), strict=True):
    print(f"{label:17} {number:3} edges")

layer = ga.nn.GraphAttention(embed_dim=32, num_heads=4)
bias = torch.nn.Embedding(typed.num_relations, 4)  # a learned bias for each relation and head
x = torch.randn(len(program.labels), 32)


def output(x):
    return layer(x, typed.graph, score_bias=bias(typed.relation))


definition = program.relations["definition"]
use = max(t for t in definition.target.tolist() if program.labels[t] == "Name total")
(made_at,) = definition.source[definition.target == use].tolist()
print(
    f"node {use} ({program.labels[use]}) reads node {made_at} ({program.labels[made_at]}), its "
    "definition"
)

changed = x.clone()
changed[made_at] += 1.0
moved = (output(changed) != output(x)).any(-1)
assert moved[use], "a use depends on its definition"
readers = set(typed.graph.target[typed.graph.source == made_at].tolist())
assert set(moved.nonzero().flatten().tolist()) == readers | {made_at}, (
    "and nothing else changes but itself"
)

without = ga.graphs.Relations(
    **{
        name: graph
        for name, graph in program.relations.items()
        if name not in ("definition", "last_use")
    }
)
far = layer(changed, without.graph, score_bias=bias.weight[:6][without.relation])
assert torch.equal(
    far[use], layer(x, without.graph, score_bias=bias.weight[:6][without.relation])[use]
)
print(
    f"moving the definition moves {len(readers) + 1} of {len(x)} nodes: those that read it, and "
    "itself"
)
