"""Heads do not tell mary from susan: only positions, types of edges or another graph say who gave roses to whom."""

import torch

import graphattn as ga

torch.manual_seed(0)
width, gave = 16, 1
word = dict(zip(("mary", "gave", "roses", "to", "susan"), torch.randn(5, width, dtype=torch.float64), strict=True))
mary, susan = (
    torch.stack([word[w] for w in text.split()]) for text in ("mary gave roses to susan", "susan gave roses to mary")
)
full, causal = ga.graphs.full(5), ga.graphs.causal(5)


@torch.no_grad()
def told(layer: torch.nn.Module, graph: ga.AttentionGraph, place: object = lambda x: x, **options: object) -> float:
    """How far what "gave" has become is apart in the two sentences."""
    one, other = (layer(place(x), graph, **options)[gave] for x in (mary, susan))
    return float((one - other).abs().max())


differences = {}
for heads in (1, 2, 4, 8):
    deep = ga.models.Encoder(3, width, heads).double()
    differences[f"{heads} heads, three blocks"] = told(deep, full)
alike = len(differences)

differences["with sinusoidal positions"] = told(deep, full, ga.nn.SinusoidalPosition(width))
differences["on a causal graph"] = told(deep, causal)  # "gave" reads the one who gives, and not the one who is given

# Edges with a type: who stands before the verb is its subject. The graph is full, and its edges are not all alike.
typed = ga.nn.GraphAttention(width, 4, edge_dim=2).double()
is_subject = (full.source < full.target) & (full.target == gave)
differences["with types of edges"] = told(
    typed, full, edge_attr=torch.nn.functional.one_hot(is_subject.long(), 2).double()
)

for name, difference in differences.items():
    print(f"{name:26} {difference:.1e}")
values = list(differences.values())
assert max(values[:alike]) < 1e-12  # attention without positions is permutation equivariant, whatever its weights
assert min(values[alike:]) > 1e-2
