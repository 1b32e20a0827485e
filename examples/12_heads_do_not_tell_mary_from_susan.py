"""Heads do not tell mary from susan: only positions, types of edges or another graph say who gave roses to whom."""

import torch

import graphattn as ga

SEEDS, WIDTH, GAVE = 3, 16, 1
full, causal = ga.graphs.full(5), ga.graphs.causal(5)


@torch.no_grad()
def told(layer: torch.nn.Module, graph: ga.AttentionGraph, place: object = lambda x: x, **options: object) -> float:
    """How far what "gave" has become is apart in the two sentences."""
    one, other = (layer(place(x), graph, **options)[GAVE] for x in (mary, susan))
    return float((one - other).abs().max())


alike, apart = {}, {}
for seed in range(SEEDS):
    torch.manual_seed(seed)
    names = ("mary", "gave", "roses", "to", "susan")
    word = dict(zip(names, torch.randn(5, WIDTH, dtype=torch.float64), strict=True))
    sentences = ("mary gave roses to susan", "susan gave roses to mary")
    mary, susan = (torch.stack([word[w] for w in text.split()]) for text in sentences)
    for heads in (1, 2, 4, 8):
        deep = ga.models.Encoder(3, WIDTH, heads).double()
        name = f"{heads} heads, three blocks"
        alike.setdefault(name, []).append(told(deep, full))
        apart.setdefault(f"{name}, sinusoidal positions", []).append(told(deep, full, ga.nn.SinusoidalPosition(WIDTH)))
        # On a causal graph "gave" reads the one who gives, and not the one who is given.
        apart.setdefault(f"{name}, causal graph", []).append(told(deep, causal))

    # Edges with a type: who stands before the verb is its subject. The graph is full, and its edges are not all alike.
    typed = ga.nn.GraphAttention(WIDTH, 4, edge_dim=2).double()
    is_subject = (full.source < full.target) & (full.target == GAVE)
    kinds = torch.nn.functional.one_hot(is_subject.long(), 2).double()
    apart.setdefault("types of edges", []).append(told(typed, full, edge_attr=kinds))

print(f'how far "gave" is apart in the two sentences, lowest and highest of {SEEDS} seeds:')
for name, differences in (alike | apart).items():
    print(f"  {name:45} {min(differences):.1e} {max(differences):.1e}")
assert max(map(max, alike.values())) < 1e-12  # equivariant to permutations without positions, whatever the weights
assert min(map(min, apart.values())) > 1e-2
