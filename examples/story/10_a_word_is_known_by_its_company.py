"""A word is known by its company: the mean of its neighbours predicts it.

Words in the same contexts have similar meanings (the distributional hypothesis: Harris
1954; "the company it keeps", Firth 1957). CBOW makes vectors of that: the mean of the
words around a place predicts the word there (Mikolov et al. 2013). It is attention with
a constant score, on a window without its centre.
"""

# %%
# The graph: two words before, two after, and not the word itself
# ---------------------------------------------------------------
# A scale of 0 makes every score the same, so that softmax is a mean.
import re
from collections import Counter
from pydoc_data.topics import topics  # the text: Python's own language reference

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

import graphattn as ga

N, C = 512, 32
with_centre = ga.graphs.sliding_window(N, 5, causal=False)
around = with_centre.without_self_loops()
print(around.subgraph(range(8)))


def mean(x, graph):  # (..., N, C) to the mean, at each node, of what it reads
    x = x.unsqueeze(-2)  # one head
    return ga.attention(x, x, x, graph, scale=0.0).squeeze(-2)


x = torch.randn(N, C)
assert torch.allclose(mean(x, around)[9], x[[7, 8, 10, 11]].mean(0), atol=1e-6)

# %%
# Vectors of the words that occur 30 times or more
# ------------------------------------------------
text = re.findall("[a-z]+", " ".join(topics.values()).lower())
words = ["?"] + [word for word, n in Counter(text).most_common() if n >= 30]
number = {word: i for i, word in enumerate(words)}
codes = torch.tensor([number.get(w, 0) for w in text[: len(text) // N * N]]).view(-1, N)
alike = [g.split() for g in ("may can must should", "is was are has", "the a an its")]


def share(found):
    """Of the two nearest words to each of these, the share in its own group."""
    near = {w: (found @ found[number[w]]).topk(3).indices[1:] for g in alike for w in g}
    return sum(words[i] in g for g in alike for w in g for i in near[w]) / 2 / len(near)


vectors, shares = {}, {}
for name, graph in {"neighbours": around, "with the word itself": with_centre}.items():
    torch.manual_seed(0)
    word, answer = nn.Embedding(len(words), C), nn.Linear(C, len(words))
    adam = torch.optim.Adam([*word.parameters(), *answer.parameters()], 2e-2)
    for _ in range(150):
        some = codes[torch.randint(len(codes), (8,))]
        adam.zero_grad()
        loss = F.cross_entropy(answer(mean(word(some), graph)).mT, some)
        loss.backward()
        adam.step()
    vectors[name] = F.normalize(word.weight.detach() - word.weight.detach().mean(0))
    shares[name] = share(vectors[name])
    print(f"{name}: loss {loss.item():.2f}, alike {shares[name]:.0%}")
assert shares["neighbours"] > 0.35 > 0.1 > shares["with the word itself"]

# %%
# A word that reads itself is easy to predict, and its vector says nothing of others.
_, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for axis, (name, found) in zip(axes, vectors.items(), strict=True):
    axis.set_title(name)
    places = [found[[number[word] for word in group]] for group in alike]
    plane = torch.pca_lowrank(torch.cat(places), 2)[2]
    for group, place in zip(alike, places, strict=True):
        axis.plot(*(place @ plane).T, "o")
        for word, point in zip(group, (place @ plane).tolist(), strict=True):
            axis.annotate(word, point, xytext=(4, 4), textcoords="offset points")
