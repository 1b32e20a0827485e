"""Context makes the meaning: a word alone has one, and a bag of words has no order.

"Flies" is a verb after "time", an insect after "fruit". Can its vector depend on that?
A graph decides: it says which words a word may read. Two tasks on four graphs.
"""

# %%
# Words, places, one block of attention; the answer is read off one word's vector
# -------------------------------------------------------------------------------
from itertools import permutations, product

import matplotlib.pyplot as plt
import torch
from torch import nn

import graphattn as ga


class Reader(nn.Module):
    def __init__(self, words, length, placed):
        super().__init__()
        self.word, self.answer = nn.Embedding(words, 24), nn.Linear(24, 2)
        self.place = ga.nn.LearnedPosition(length, 24) if placed else nn.Identity()
        self.encoder = ga.models.Encoder(1, 24, 2)

    def forward(self, text, graph, at):
        return self.encoder(self.place(self.word(text)), graph)[:, at]


# %%
# "Flies" needs context: is the second word a verb or a noun?
# -----------------------------------------------------------
rules = ("time,arrow,plane flies,soars like an eagle,arrow",
         "fruit,cave,horse flies,moths like a banana,lamp")  # fmt: skip
texts = [t for rule in rules for t in product(*(w.split(",") for w in rule.split()))]
words = sorted({word for text in texts for word in text})
corpus = torch.tensor([[words.index(word) for word in text] for text in texts])
is_noun, flies = torch.arange(24) // 12, corpus[:, 1] == words.index("flies")

# %%
# Entailment needs order: from "dog sees cat" follows "cat seen by dog"
# ---------------------------------------------------------------------
# "Dog seen by cat" has the same words and does not (as SNLI asks, Bowman et al. 2015).
names = list(permutations(range(6), 2))
pairs = [(one, 6, two, 7, one, 8, two) for one, two in names]  # sees, full stop, by
pairs += [(one, 6, two, 7, two, 8, one) for one, two in names]
pairs, follows = torch.tensor(pairs), torch.arange(60) // 30


def learned(model, graph, at, text, label):
    adam = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(150):
        answer = model.answer(model(text, graph, at))
        adam.zero_grad()
        nn.functional.cross_entropy(answer, label).backward()
        adam.step()
    return (answer.argmax(1) == label).float()


arms = {"alone": ga.graphs.self_loops, "full, no places": ga.graphs.full}
arms["window of 3"] = lambda n: ga.graphs.sliding_window(n, 3, causal=False)
arms["full"] = ga.graphs.full
(_, axes), shares = plt.subplots(1, 5, figsize=(13, 2.8), layout="constrained"), {}
for axis, (name, make) in zip(axes, arms.items(), strict=False):
    torch.manual_seed(0)
    model, judge = (
        Reader(*size, "no" not in name) for size in ((len(words), 5), (9, 7))
    )
    noun = learned(model, make(5), 1, corpus, is_noun)[flies]
    entails = learned(judge, make(7), 6, pairs, follows)
    shares[name] = [round(float(right.mean()), 1) for right in (noun, entails)]
    vectors = model(corpus[flies], make(5), 1).detach()  # of "flies", twelve times
    flat = (vectors - vectors.mean(0)) @ torch.pca_lowrank(vectors, 2)[2]
    axis.scatter(*flat.T, c=is_noun[flies], cmap="coolwarm")
    axis.set(title=f'"flies", {name}', xlim=(-8, 8), ylim=(-8, 8))
print(shares)
assert list(shares.values()) == [[0.5, 0.5], [1.0, 0.5], [1.0, 0.5], [1.0, 1.0]]
axes[4].imshow(list(shares.values()), cmap="Blues", vmin=0.3, vmax=1.2, aspect="auto")
axes[4].set(title="right: .5 light, 1 dark", yticks=range(4), yticklabels=arms)
axes[4].set_xticks((0, 1), ('"flies"', "entailment"))
