"""A gap is filled from both sides: a cloze model tells who was tired, and what was wide.

BERT learns by gaps: some words are hidden, the others predict them (Devlin et al. 2019,
after the cloze of Taylor 1953). Its graph is full, as what decides may come later.
"""

# %%
# Crossings; what flies; "bears", which are animals or a verb
# -----------------------------------------------------------
# "It" may be named; of the animal at the street that is never shown.
from itertools import chain, product

import matplotlib.pyplot as plt
import torch
from torch.nn import functional as F

import graphattn as ga

WHY = {"tired": 0, "weak": 0, "old": 0, "wide": 1, "steep": 1, "long": 1}


def crossing(animal, place, why, named=True):
    it = f"the {(animal, place)[WHY[why]]}" if named else "it"
    return f"the {animal} didn't cross the {place} because {it} was too {why}"


rules = ("animal,dog,horse,child,cow,fox,goose,toad "
         "street,river,bridge,field,road,lawn,lake,yard " + ",".join(WHY),
         "time,plane flies like an arrow,eagle", "fruit,cave flies like a banana,lamp",
         "bears,dogs,cats that bears,dogs,cats fear,chase bear,fear bears,dogs",
         "the bear,dog,cat bears,fears,chases bears,dogs,cats")  # fmt: skip
every, *rest = ([*product(*(c.split(",") for c in r.split()))] for r in rules)
kinds = [[crossing(*t) for t in every if t[:2] != ("animal", "street")]]
kinds += [[crossing(*t, named=False) for t in every]]
kinds += [[" ".join(text) for text in texts] for texts in rest]
texts = list(chain.from_iterable(kinds))
words = ["", "?", *sorted({word for text in texts for word in text.split()})]


def codes(texts):  # (B, N), padded with 0
    rows = [torch.tensor([words.index(w) for w in text.split()]) for text in texts]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def read(text):  # logits, and weights (B, 8, N, N) of the heads of both layers
    with torch.no_grad(), ga.analysis.record_weights(model) as weights:
        logits = model(text, lengths=(text > 0).sum(1))
    return logits, torch.cat([layer.dense() for layer in weights.values()], 1)


torch.manual_seed(0)
share = torch.tensor([(6 if k is kinds[0] else 1) / len(k) for k in kinds for _ in k])
corpus = codes(texts)
model = ga.models.BERT(len(words), 32, 4, 2, max_len=13, masked_head=True)
adam = torch.optim.Adam(model.parameters(), 3e-3)
for _ in range(1000):
    text = corpus[share.multinomial(64, replacement=True)]
    hidden = (torch.rand(text.shape) < 0.2) & (text > 0)
    gaps = model(text.masked_fill(hidden, 1), lengths=(text > 0).sum(1))[hidden]
    adam.zero_grad()
    F.cross_entropy(gaps, text[hidden]).backward()
    adam.step()
# %%
# From the gap a head reads what is meant; "it", which is never asked, reads both
# -------------------------------------------------------------------------------
# The head is found on these six. Others call it the head view: ``view="lines"`` here.
new, meant = codes([crossing("animal", "street", w) for w in WHY]), [1] * 3 + [5] * 3
logits, heads = read(gap := new.index_fill(1, torch.tensor(8), 1))
right = float((logits[:, 8].argmax(-1) == new[:, 8]).float().mean())
head = int((onto := heads[range(6), :, 8, meant].mean(0)).argmax())
it = read(codes([crossing("animal", "street", w, False) for w in WHY]))[1][:, head, 7]
its = [float(it[range(6), at].mean()) for at in (meant, meant[::-1])]
print(f"right {right:.0%}, of two nouns; read by {onto[head]:.2f}; by 'it':", its)
assert right > 0.8 > 0.5 < onto[head]
parts = plt.figure(figsize=(13, 4)).subfigures(1, 3)
flies = codes(["time flies like an arrow"])
drawn = [(gap[0], heads[0]), (gap[3], heads[3]), (flies[0], read(flies)[1][0])]
for part, (row, weights) in zip(parts, drawn, strict=True):
    how = {"view": "lines", "heads": [head], "tokens": [words[i] for i in row]}
    ga.plot(weights, figure=part, caption=False, title=False, legend=False, **how)
