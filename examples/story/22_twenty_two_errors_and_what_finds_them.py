"""Twenty-two errors and what finds them: names, edges, numbers, shapes, counterexamples.

Five texts stand behind this library (A to E in ``tests/claims/README.md``, which has a
test for each of their claims). Here are their errors: what is said, what is right, and
what finds it. Texts like these are everywhere, and so are the errors. The output below
was printed when this page was made; a table at the end sums it up.
"""

# %%
# By name
# -------
# * "Q K^T / D" (E). Right: over the *root* of the width of a head.
# * "Softmax of K Q^T goes over columns" (C, D). So it does where rows are keys; with
#   rows as queries, as here, it goes over the sources of each row.
# * "softmax(E, dim=1)", of scores (H, N, N). Right: ``dim=-1``. Axis 1 is that of the
#   sources for one head, (N, N); with a heads' axis before it, it is that of queries.
# * "The dot product is the cosine of the angle". It is that times both lengths: who
#   leaves them out has other scores, all of them between -1 and 1.
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

import graphattn as ga
from graphattn.errors import ShapeError

torch.manual_seed(0)
N, C = 8, 8
causal, full = ga.graphs.causal(N), ga.graphs.full(N)
found = {}  # what is said: what finds it


def wrong(root=0.5, axis=-1, unit=False, inside=False, transposed=False):
    """Attention written out, softmax(Q K^T / D ** root + M) V, with one thing wrong."""

    def attend(query, key, value):
        # (H, N, D)
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        factor, M = query.shape[-1] ** -root, torch.full((N, N), -torch.inf).triu(1)
        M = M.nan_to_num(neginf=-10.0) * factor if inside else M
        if unit:
            query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
        scores = query @ key.mT * factor + M.to(query)
        if transposed:
            weights = torch.softmax(scores.mT, axis).mT  # K Q^T, and back
        else:
            weights = torch.softmax(scores, axis)
        return (weights.nan_to_num() @ value).transpose(0, 1)

    return attend


assert ga.verify(wrong(), causal).ok  # nothing is wrong yet
assert ga.verify(wrong(transposed=True, axis=-2), causal).ok  # keys x queries: columns
for said, changed, words in (
    ("Q K^T / D", {"root": 1}, "scale 1 / D, not 1 / sqrt(D)"),
    ("columns of Q K^T", {"axis": -2}, "softmax over the wrong axis"),
    ("dim=1 of (H, N, N)", {"axis": 1}, "softmax over the wrong axis"),
    ("a cosine is a dot product", {"unit": True}, "cosines in place of products"),
):
    named = ga.verify(wrong(**changed), causal).diagnosis.split("; ")[-1]
    print(f"{said}: {named}")
    assert words in named
    found[said] = f"verify: {words}"

# %%
# * "The upper triangle is masked with its diagonal" (C), and a causal picture without
#   self-loops (A). Right: the strict triangle is masked, for a token reads itself.
audit = ga.audit(causal.mask().tril(-1), causal)
print(audit)
assert audit.diagnosis == ("self-loops missing",)
found["the diagonal is masked"] = f"audit: {audit.diagnosis[0]}"
found["a picture without self-loops"] = f"audit: {audit.diagnosis[0]}"

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
found["q_4 and q_5 read k_6"] = "audit: edges 5 -> 3, 5 -> 4"
figure, axis = plt.subplots(figsize=(3, 3), layout="constrained")
axis.imshow(causal.mask(), cmap="Blues", vmax=1.3)
axis.plot([5, 5], [3, 4], "rX", markersize=12)
axis.set(title="the two edges too many", xlabel="read", ylabel="reader")

# %%
# By a measurement
# ----------------
# "softmax((Q K^T + M) / sqrt(d))" (B). Right: M is added after scaling. Minus infinity
# stays what it is; a mask of -10 becomes weaker, and ``verify`` measures what is left.
named = ga.verify(wrong(inside=True), causal).diagnosis.split("; ")[-1]
print(named)
assert "added to the scores of missing edges" in named
found["(Q K^T + M) / sqrt(d)"] = "verify: the number that M has become"

# %%
# "The embeddings of later tokens are set to -inf". Right: their *scores* are. A product
# with minus infinity is infinite or NaN, and softmax hands that to every reader.
padding = ga.from_mask((torch.arange(N) < 5).expand(N, N))


def masked(x):
    return x.masked_fill(torch.arange(N)[:, None, None] >= 5, -torch.inf)


def embeddings(query, key, value):
    return ga.attention(query, masked(key), masked(value), full)


named = ga.verify(embeddings, padding).diagnosis.split("; ")[-1]
print(named)
assert "NaN or infinite" in named
query, key, value = torch.randn(3, N, 2, 4)
nodes = ga.analysis.find_nonfinite(query, masked(key), value, full)
print(nodes[0])
assert [(node.what, node.number) for node in nodes] == [("key", s) for s in (5, 6, 7)]
found["embeddings of -inf"] = "find_nonfinite: the nodes"

# %%
# By a shape
# ----------
# * "Q = X W is 16 x 8", of a W that is 8 x 4 (D). Right: 16 x 4.
# * "Keys and queries come from the encoder" (C). Right: keys and values.
# * "The encoder's attention matrix is passed on" (B). Right: its output vectors. If
#   there are as many tokens as channels, the shapes agree, and no check finds it.
# * "X has width d_k, and W is d_k x d_model". Right: X has width d_model, W is
#   d_model x d_k, one for each head: a head is narrower, and all are as wide as X.
# * "Y^T = W X^T, with W = softmax(X X^T)". Right: Y = W X, for rows of W belong to
#   tokens. W X^T is N x N times C x N: if C is N, no shape finds it, but ``verify``.
layer, decoder = ga.nn.GraphAttention(C, 2), ga.models.Decoder(1, C, 2)
Q, K, x, memory = torch.randn(16, 1, C), torch.randn(16, 1, 4), *torch.randn(2, 16, C)
narrow = x[:N, :4]
calls = {
    "Q is 16 x 8": lambda: ga.attention(Q, K, K, ga.graphs.full(16)),
    "keys and queries of the encoder": lambda: layer(
        memory[:6], ga.graphs.cross(4, 6), context=x[:4]
    ),
    "a matrix is passed on": lambda: decoder(
        x[:4], ga.graphs.causal(4), torch.rand(6, 6)
    ),
    "X of width d_k": lambda: layer(narrow, full),
    "Y^T = W X^T": lambda: torch.softmax(narrow @ narrow.T, -1) @ narrow.T,
}
for said, call in calls.items():
    try:
        call()
    except (ShapeError, RuntimeError) as error:  # torch's is a RuntimeError
        print(f"{said}: {error}")
        found[said] = "an error about a shape"
assert set(calls) <= set(found)
assert layer.q_proj.weight.T.shape == (C, 2 * 4)  # W of two heads, each d_model x d_k


def square(query, key, value):  # one head, as wide as there are tokens
    return (torch.softmax(query @ key.T * C**-0.5, -1) @ value.T).T


def one_head(query, key, value):
    return square(query[:, 0], key[:, 0], value[:, 0])[:, None]


assert not ga.verify(one_head, full, heads=1, head_dim=C, value_dim=N).ok

# %%
# By the same weights elsewhere
# -----------------------------
# "x + LN(SA(x))". The first transformer has LN(x + SA(x)), which is post-norm, and GPT-2
# x + SA(LN(x)), pre-norm. Loaded with the same weights, torch's layer and this block
# agree in both, and the formula agrees with neither. (Swin V2 has it, on purpose.)
off = {}
for first in (False, True):
    theirs = nn.TransformerEncoderLayer(C, 2, 16, norm_first=first, batch_first=True)
    block = ga.nn.TransformerBlock.from_torch(theirs.eval())
    expected = theirs(x[None])[0]
    assert torch.allclose(block(x, ga.graphs.full(16)), expected, atol=1e-5)
    y = x + block.attention_norm(block.attention(x, ga.graphs.full(16)))
    y = y + block.feed_forward_norm(block.feed_forward(y))
    off["pre-norm" if first else "post-norm"] = float(
        (y - expected).detach().abs().max()
    )
print({name: f"off by {number:.1f}" for name, number in off.items()})
assert min(off.values()) > 0.5
found["x + LN(SA(x))"] = "torch's layer with the same weights"

# %%
# By a count
# ----------
# "Self-attention has no parameters", beside a W. That of softmax(X X^T) X has none: its
# W is made of X. With projections, 4 C (C + 1) numbers are learned, and W is not one.
plain = ga.attention(*[x[:, None]] * 3, ga.graphs.full(16), scale=1.0)[:, 0]
assert torch.allclose(plain, torch.softmax(x @ x.T, -1) @ x, atol=1e-5)
count = sum(p.numel() for p in layer.parameters())
print(f"a layer of {C} channels: {count} parameters")
assert count == 4 * C * (C + 1)
found["no parameters, and a W"] = f"a count: {count}"

# %%
# By a counterexample
# -------------------
# * "The diagonal of softmax(X X^T) is largest" (C): of vectors of equal norm only.
short = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
assert torch.softmax(short @ short.T, -1)[0].argmax() == 1
found["the diagonal is largest"] = "a vector twice as long"

# %%
# * "Correlation is cosine" (C): of centred data only.
a, b = torch.tensor([1.0, 2, 3]), torch.tensor([3.0, 2, 1])
assert torch.corrcoef(torch.stack((a, b)))[0, 1] < -0.99
assert torch.cosine_similarity(a, b, 0) > 0.7
found["correlation is cosine"] = "1, 2, 3 and 3, 2, 1"

# %%
# * "Several heads tell who gave roses to whom" (C): without positions every head is
#   equivariant, so that "gave" is the same if Mary and Susan change places.
words, swapped = torch.randn(5, C), [4, 1, 2, 3, 0]  # mary gave roses to susan
gave = [layer(x, ga.graphs.full(5))[1] for x in (words, words[swapped])]
assert torch.allclose(*gave, atol=1e-6)
found["heads tell Mary from Susan"] = "the two names swapped"

# %%
# * "Layer norm goes across channels and space" (B): over the features of one token, so
#   that a token's norm does not depend on another token.
norm, moved = nn.LayerNorm(C), words * torch.tensor([[1.0], [1], [9], [1], [1]])
assert torch.equal(norm(moved)[:2], norm(words)[:2])
found["layer norm goes across space"] = "another token, moved"

# %%
# * "BERT learns sentence entailment". It learns next-sentence prediction: did B stand
#   after A? What stands next need not follow from A, and what follows may stand later.
text = ["dog sees cat", "cat runs", "cat seen by dog"]


def meaning(sentence):
    agent, _, patient = sentence.partition(" sees ")
    if " seen by " in sentence:
        patient, _, agent = sentence.partition(" seen by ")
    return agent, patient


pairs = [(0, 1), (1, 2), (0, 2)]
is_next = [second == first + 1 for first, second in pairs]
entailed = [meaning(text[first]) == meaning(text[second]) for first, second in pairs]
print(list(zip(pairs, is_next, entailed, strict=True)))
assert not any(one == other for one, other in zip(is_next, entailed, strict=True))
found["sentence entailment"] = "a next sentence that is not entailed"

# %%
# * "W = X_i^T X_j", and no update (A). Right: s_i becomes the sign of sum_j W_ij s_j, W
#   being X^T X / P - I: a pattern of which some spins are turned comes back.
patterns = torch.randn(3, 64).sign()
turned = patterns[0].clone()
turned[:5] *= -1
W = patterns.T @ patterns / 3 - torch.eye(64)
stored = ga.models.Hopfield.from_patterns(patterns)
assert torch.equal((W @ turned).sign(), stored.step(turned))
assert torch.equal(stored.step(turned), patterns[0])
found["W = X_i^T X_j, no update"] = "a pattern that must come back"

# %%
# All of them
# -----------
# Most need no trained model and no data: a graph to compare with, and a few numbers.
for number, (said, by) in enumerate(found.items(), 1):
    print(f"{number:2} {said:32} {by}")
assert len(found) == 22
