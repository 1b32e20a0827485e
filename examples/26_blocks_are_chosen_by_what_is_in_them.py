"""Blocks are chosen by what is in them: MoBA and Native Sparse Attention as graphs, equal to plain
loops.

MoBA (Lu et al. 2025): a query reads its own block so far, and the earlier blocks whose mean key has
the highest product with it. Native Sparse Attention (Yuan et al. 2025, section 3) adds three
branches by gates of the query's token: blocks compressed to a key and a value each; the blocks that
the compressed attention of a group of heads weighs most, beside the first and the own one; and a
window. Each branch has its own keys and values. *Here* the blocks that are compressed are those
that are chosen (l = l' = d in the paper, where its weights need no mapping), and a linear map
compresses them.
"""

import torch
from torch import nn

import graphattn as ga
from graphattn.graphs import block_local, causal, sinks, sliding_window, top_k

BLOCK, BEST, WINDOW, HEADS, GROUPS, WIDTH = 4, 2, 5, 4, 2, 3
OWN = block_local(..., BLOCK, causal=True)
MOBA = top_k(..., BEST, blocks=BLOCK, within=causal(...) - OWN) | OWN


class NativeSparseAttention(nn.Module):
    """(B, N, C) to (B, N, C), causal; N is a multiple of the block."""

    def __init__(self) -> None:
        super().__init__()
        C, D = HEADS * WIDTH, WIDTH
        # keys and values of three branches
        self.query, self.keys = nn.Linear(C, C), nn.Linear(C, 6 * GROUPS * D)
        self.compress = nn.ModuleList(nn.Linear(BLOCK * D, D) for _ in range(2))
        self.gate = nn.Linear(C, 3 * HEADS)

    def operands(self, x):
        """The query; keys and values of compressed blocks (B, N / BLOCK, GROUPS, D), of tokens for
        the choice and of tokens for the window; and gates (B, N, HEADS, 3)."""
        keys = self.keys(x).unflatten(-1, (6, GROUPS, WIDTH)).unbind(-3)
        blocks = [y.unflatten(1, (-1, BLOCK)).transpose(2, 3).flatten(-2) for y in keys[:2]]
        short = [linear(block) for linear, block in zip(self.compress, blocks, strict=True)]
        query = self.query(x).unflatten(-1, (HEADS, WIDTH))
        return (
            query,
            short,
            keys[2:4],
            keys[4:],
            torch.sigmoid(self.gate(x)).unflatten(-1, (HEADS, 3)),
        )

    def forward(self, x, chosen=None):
        """Three calls of attention on three graphs, added by the gates."""
        query, short, tokens, near, gates = self.operands(x)
        N = x.shape[1]
        ended = ga.from_rule(lambda t, block: BLOCK * (block + 1) <= t + 1, N, N // BLOCK)
        compressed = ga.attention(query, *short, ended, return_weights=True)
        # a group of heads chooses together
        weights = compressed.weights.dense().unflatten(1, (GROUPS, -1)).sum(2)
        first_and_own = OWN | sinks(..., BLOCK)
        others = top_k(
            ...,
            BEST,
            blocks=BLOCK,
            within=causal(...) - first_and_own,
            score=lambda query, key: weights,
        )
        selected = ga.attention(
            query, *tokens, others | first_and_own if chosen is None else chosen
        )
        window = ga.attention(query, *near, sliding_window(..., WINDOW, causal=True))
        branches = torch.stack((compressed.output, selected, window), -1)
        return (branches * gates.unsqueeze(-2)).sum(-1).flatten(-2)


def attend(query, keys, values):
    """Plain softmax attention of one query (D,) over a list of vectors; nothing to read gives 0."""
    weights = (
        torch.stack([query @ key / WIDTH**0.5 for key in keys]).softmax(0)
        if keys
        else torch.zeros(0)
    )
    return sum((w * value for w, value in zip(weights, values, strict=True)), 0 * query)


def moba_loop(query, key, value):
    out = torch.zeros_like(query)
    for b, t, h in torch.cartesian_prod(*map(torch.arange, query.shape[:3])).tolist():
        k, v, own = key[b, :, h * GROUPS // HEADS], value[b, :, h * GROUPS // HEADS], t // BLOCK
        score = [query[b, t, h] @ k[BLOCK * i : BLOCK * i + BLOCK].mean(0) for i in range(own)]
        best = sorted(range(own), key=lambda i, score=score: -score[i])[:BEST]
        reads = [s for s in range(t + 1) if s // BLOCK in (own, *best)]
        out[b, t, h] = attend(query[b, t, h], [k[s] for s in reads], [v[s] for s in reads])
    return out


def sparse_loop(layer, x):
    query, short, tokens, near, gates = layer.operands(x)
    out, share = torch.zeros_like(query), HEADS // GROUPS
    for b, t, g in torch.cartesian_prod(*map(torch.arange, (*x.shape[:2], GROUPS))).tolist():
        heads, own, ended = range(g * share, (g + 1) * share), t // BLOCK, (t + 1) // BLOCK
        keys = short[0][b, :ended, g]
        weight = sum(torch.softmax(keys @ query[b, t, h] / WIDTH**0.5, 0) for h in heads).tolist()
        best = sorted(range(1, own), key=lambda i, weight=weight: -weight[i])[:BEST]
        reads = [s for s in range(t + 1) if s // BLOCK in (0, own, *best)]
        last = range(max(0, t - WINDOW + 1), t + 1)
        for h in heads:
            for i, (pair, places) in enumerate(
                ((short, range(ended)), (tokens, reads), (near, last))
            ):
                read = ([y[b, s, g] for s in places] for y in pair)
                out[b, t, h] = out[b, t, h] + gates[b, t, h, i] * attend(query[b, t, h], *read)
    return out.flatten(-2)


torch.manual_seed(0)
N = 24
query, key, value = (
    torch.randn(2, N, n, WIDTH).double().requires_grad_() for n in (HEADS, GROUPS, GROUPS)
)
layer, x = (
    NativeSparseAttention().double(),
    torch.randn(2, N, HEADS * WIDTH).double().requires_grad_(),
)
parameters = [x, *layer.parameters()]
for name, found, loop, inputs in (
    (
        "MoBA",
        ga.attention(query, key, value, MOBA),
        moba_loop(query, key, value),
        [query, key, value],
    ),
    ("Native Sparse Attention", layer(x), sparse_loop(layer, x), parameters),
):
    gradients = [torch.autograd.grad(y.sin().sum(), inputs) for y in (found, loop)]
    pairs = zip((found, *gradients[0]), (loop, *gradients[1]), strict=True)
    apart = max(float((a - b).detach().abs().max()) for a, b in pairs)
    print(f"{name}: output and gradients are within {apart:.0e} of a plain loop's")
    assert apart < 1e-12
    # gates and compression learn, too
    assert all(float(y.abs().max()) > 1e-3 for y in gradients[0] if y.dim() > 1)

graph = MOBA(N)
print(
    f"of {ga.graphs.causal(N).num_edges} pairs, each head reads "
    f"{graph.edges(query, key).num_edges // (2 * HEADS)}"
)
assert not ga.leaks([graph])
with torch.no_grad():
    later = x.clone()
    later[:, 16:] += 1
    # no output depends on a later token
    assert torch.allclose(layer(later)[:, :16], layer(x)[:, :16], atol=1e-12)
    weights = ga.attention(query, key, value, MOBA, return_weights=True).weights.dense()[0, 0, -1]
    block = int(weights[: N - BLOCK].view(-1, BLOCK).sum(-1).argmax())
    less = MOBA - ga.from_mask((torch.arange(N) // BLOCK == block).expand(N, N))
    change = (ga.attention(query, key, value, less) - ga.attention(query, key, value, MOBA))[
        0, -1, 0
    ].norm()
    print(
        f"without block {block}, which the last token chose, the output of head 0 moves by "
        f"{float(change):.2f}"
    )
    assert change > 0.01
