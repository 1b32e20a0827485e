"""A caption reads its picture word by word: through one vector a long picture is lost.

Networks wrote captions (Vinyals et al. 2015) and translations (Sutskever et al. 2014)
from one vector; of long sources it holds too little. If each word may read every part,
it learns which is its own (Bahdanau et al. 2015; of pictures, Xu et al. 2015).
"""

# %%
# One model, and two graphs between its encoder and its decoder
# -------------------------------------------------------------
# The source is an empty part, node 0, and a row of digits, encoded at once. The caption
# begins with an empty word and names the digits; a word reads the words before it, and
# of the source either node 0 (label to sequence) or every part (sequence to sequence).
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import graphattn as ga

EMPTY, SHORT, LONG, C = 10, 2, 8, 32
full, causal = ga.graphs.full(LONG + 1), ga.graphs.causal(LONG + 1)
vector = ga.from_rule(lambda t, s: s == 0, LONG + 1)
images, labels = map(torch.tensor, load_digits(return_X_y=True))
images[0], labels[0] = 0, EMPTY  # number 0 is the empty part


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.encoder = nn.Linear(64, C), ga.models.Encoder(1, C, 2)
        self.head, self.decoder = nn.Linear(C, 10), ga.models.Decoder(1, C, 1)
        self.word, self.place = nn.Embedding(11, C), nn.Embedding(LONG + 1, C)

    def reading(self, numbers, between):  # a model of the captions of these images
        x = self.part(images[numbers].float() / 8 - 1)
        x = self.encoder(x + self.place.weight[: x.shape[1]], ga.graphs.full(...))
        return ga.models.DecoderWithMemory(self, x, between.subgraph(range(x.shape[1])))

    def decode(self, words, memory, graph, between, caches=None):  # logits (B, N, 10)
        written = caches[0].length if caches else 0
        y = self.word(words) + self.place.weight[written:][: words.shape[1]]
        return self.head(self.decoder(y, graph, memory, between, caches=caches))


def surprise(model, words):  # -log p of a word, given the source and the words before
    logits = model(words, ga.graphs.causal(...))[:, :-1]
    return nn.functional.cross_entropy(logits.mT, words[:, 1:])


(_, axes), right = plt.subplots(1, 5, figsize=(12, 2.7), layout="constrained"), {}
for name, between in (("one vector", vector), ("every part", full)):
    for n in (SHORT, LONG):
        torch.manual_seed(0)
        new = nn.functional.pad(torch.randint(1500, 1797, (300, n)), (1, 0))
        net = Captioner()
        adam = torch.optim.Adam(net.parameters(), 5e-3)
        for some in nn.functional.pad(torch.randint(1, 1500, (200, 32, n)), (1, 0)):
            adam.zero_grad()
            surprise(net.reading(some, between), labels[some]).backward()
            adam.step()
        with torch.no_grad(), ga.analysis.record_weights(net) as weights:
            for beams in (4, 1):  # the best of four may be likelier, and no truer
                how = {"max_new_tokens": n, "strategy": "beam", "num_beams": beams}
                model = net.reading(new, between)
                said = ga.models.generate(model, labels[new[:, :1]], **how)
                share = (said == labels[new])[:, 1:].float().mean()
                right[name, n, beams] = float(share), float(surprise(model, said))
for kind, (share, unsure) in right.items():  # each: what is read, digits, beams
    print(*kind, f"{share:.0%} of the words right, -log p of what is said {unsure:.3f}")
assert right["one vector", SHORT, 1][0] > right["one vector", LONG, 1][0] + 0.2
assert right["every part", LONG, 1][0] > 0.75
assert right["one vector", LONG, 4][1] < right["one vector", LONG, 1][1]
alignment = weights["decoder.layers.0.cross_attention"].dense()[:, 0, :-1].mean(0)
drawn = {"encoder": full, "decoder": causal, "one vector": vector, "every part": full}
drawn = {name: graph.mask() for name, graph in drawn.items()} | {"learned": alignment}
for axis, name in zip(axes, drawn, strict=True):
    axis.imshow(drawn[name], cmap="Blues", vmin=0)
    axis.set(title=name, xlabel="read", ylabel="reader")
assert alignment.argmax(-1).equal(torch.arange(LONG) + 1)  # the digit to be named
