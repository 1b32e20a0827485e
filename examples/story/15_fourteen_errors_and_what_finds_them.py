"""Fourteen errors and what finds them: names, edges, numbers, shapes, counterexamples.

Five texts stand behind this library (A to E in ``tests/claims/README.md``, which has a
test for each of their claims). Here are their fourteen errors, and what finds each. The
output below was printed when this page was made.
"""

# %%
# By name
# -------
# * "Q K^T / D" (E). Right: over the *root* of the width of a head.
# * "Softmax of K Q^T goes over columns" (C, D). So it does where rows are keys; with
#   rows as queries, as here, it goes over the sources of each row.
# * "The upper triangle is masked with its diagonal" (C), and a causal picture without
#   self-loops (A). Right: the strict triangle is masked, for a token reads itself.
import matplotlib.pyplot as plt
import torch
from torch import nn

import graphattn as ga
from graphattn.errors import ShapeError

torch.manual_seed(0)
causal = ga.graphs.causal(8)


def wrong(root=0.5, axis=-1, inside=False):
    """Attention written out, softmax(Q K^T / D ** root + M) V, with one thing wrong."""

    def attend(query, key, value):
        # (H, N, D)
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        factor, M = query.shape[-1] ** -root, torch.full((8, 8), -torch.inf).triu(1)
        M = M.nan_to_num(neginf=-10.0) * factor if inside else M
        weights = torch.softmax(query @ key.mT * factor + M.to(query), axis)
        return (weights.nan_to_num() @ value).transpose(0, 1)

    return attend


assert ga.verify(wrong(), causal).ok  # nothing is wrong yet
for changed in ({"root": 1}, {"axis": -2}):
    named = ga.verify(wrong(**changed), causal).diagnosis.split("; ")[-1]
    print(f"{changed}: {named}")
    assert "scale 1 / D" in named or "softmax over the wrong axis" in named
audit = ga.audit(causal.mask().tril(-1), causal)
print(audit)
assert audit.diagnosis == ("self-loops missing",)

# %%
# By the edges
# ------------
# A causal table in which q_4 and q_5 read k_6 (D): both are the future. No mistake that
# ``audit`` knows makes just that: it has no name for it, and lists the edges.
table = causal.mask().clone()
table[[3, 4], 5] = True  # counted from 0
audit = ga.audit(table, causal)
print(audit)
assert not audit.diagnosis
assert "5 -> 3, 5 -> 4" in str(audit)
figure, axis = plt.subplots(figsize=(3, 3), layout="constrained")
axis.imshow(causal.mask(), cmap="Blues", vmax=1.3)
axis.plot([5, 5], [3, 4], "rX", markersize=12)
axis.set(title="the two edges too many", xlabel="read", ylabel="reader")

# %%
# By a measurement
# ----------------
# "softmax((Q K^T + M) / sqrt(d))" (B). Right: M is added after scaling. Minus infinity
# stays what it is; a mask of -10 becomes weaker, and ``verify`` measures what is left.
found = ga.verify(wrong(inside=True), causal)
print(found.diagnosis.split("; ")[-1])
assert "added to the scores of missing edges" in found.diagnosis

# %%
# By a shape
# ----------
# * "Q = X W is 16 x 8", of a W that is 8 x 4 (D). Right: 16 x 4.
# * "Keys and queries come from the encoder" (C). Right: keys and values.
# * "The encoder's attention matrix is passed on" (B). Right: its output vectors. If
#   there are as many tokens as channels, the shapes agree, and no check finds it.
layer, decoder = ga.nn.GraphAttention(8, 2), ga.models.Decoder(1, 8, 2)
Q, K, x, memory = torch.randn(16, 1, 8), torch.randn(16, 1, 4), *torch.randn(2, 16, 8)
calls = {
    "Q of 16 x 8": lambda: ga.attention(Q, K, K, ga.graphs.full(16)),
    "keys and queries of the encoder": lambda: layer(
        memory[:6], ga.graphs.cross(4, 6), context=x[:4]
    ),
    "matrix passed on": lambda: decoder(x[:4], ga.graphs.causal(4), torch.rand(6, 6)),
}
for name, call in calls.items():
    try:
        call()
        raise AssertionError(name)
    except ShapeError as error:
        print(f"{name}: {error}")

# %%
# By a counterexample
# -------------------
# * "The diagonal of softmax(X X^T) is largest" (C): of vectors of equal norm only.
short = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
assert torch.softmax(short @ short.T, -1)[0].argmax() == 1

# %%
# * "Correlation is cosine" (C): of centred data only.
a, b = torch.tensor([1.0, 2, 3]), torch.tensor([3.0, 2, 1])
assert torch.corrcoef(torch.stack((a, b)))[0, 1] < -0.99
assert torch.cosine_similarity(a, b, 0) > 0.7

# %%
# * "Several heads tell who gave roses to whom" (C): without positions every head is
#   equivariant, so that "gave" is the same if Mary and Susan change places.
words, swapped = torch.randn(5, 8), [4, 1, 2, 3, 0]  # mary gave roses to susan
gave = [layer(x, ga.graphs.full(5))[1] for x in (words, words[swapped])]
assert torch.allclose(*gave, atol=1e-6)

# %%
# * "Layer norm goes across channels and space" (B): over the features of one token, so
#   that a token's norm does not depend on another token.
norm, moved = nn.LayerNorm(8), words * torch.tensor([[1.0], [1], [9], [1], [1]])
assert torch.equal(norm(moved)[:2], norm(words)[:2])

# %%
# * "W = X_i^T X_j", and no update (A). Right: s_i becomes the sign of sum_j W_ij s_j, W
#   being X^T X / P - I: a pattern of which some spins are turned comes back.
patterns = torch.randn(3, 64).sign()
turned = patterns[0].clone()
turned[:5] *= -1
W = patterns.T @ patterns / 3 - torch.eye(64)
assert torch.equal(
    (W @ turned).sign(), ga.models.Hopfield.from_patterns(patterns).step(turned)
)
memory = ga.models.Hopfield.from_patterns(patterns)
assert torch.equal((W @ turned).sign(), memory.step(turned))
assert torch.equal(memory.step(turned), patterns[0])
