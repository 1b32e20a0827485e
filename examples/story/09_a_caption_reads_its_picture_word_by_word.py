"""A caption reads its picture word by word: through one vector a long picture is lost.

Networks wrote captions (Vinyals et al. 2015) and translations (Sutskever et al. 2014)
from one vector; of long sources it holds too little. If each word may read every part,
it learns which is its own (Bahdanau et al. 2015; of pictures, Xu et al. 2015).
"""

# %%
# One model, and two graphs between its encoder and its decoder
# -------------------------------------------------------------
# The source is an empty part, node 0, and a row of digits, encoded at once. The caption
# names the digits from right to left; a word reads the words before it, and of the
# source either node 0 (label to sequence) or every part (sequence to sequence).
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import graphattn as ga

BEGIN, SHORT, LONG, C = 10, 2, 8, 32
vector = ga.from_rule(lambda t, s: s == 0, LONG, LONG + 1)
betweens = {"one vector": vector, "every part": ga.graphs.cross(LONG, LONG + 1)}
images, labels = map(torch.tensor, load_digits(return_X_y=True))


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.head = nn.Linear(64, C), nn.Linear(C, 10)
        self.word, self.place = nn.Embedding(11, C), ga.nn.LearnedPosition(LONG + 1, C)
        nn.init.normal_(self.place.weight, std=0.5)
        encoder, decoder = ga.models.Encoder(1, C, 2), ga.models.Decoder(1, C, 1)
        self.model = ga.models.EncoderDecoder(encoder, decoder)

    def forward(self, source, words, between):  # logits of the next words (B, N, 10)
        x, y = self.place(self.part(source)), self.place(self.word(words))
        sizes = {"targets": range(y.shape[1]), "sources": range(x.shape[1])}
        graphs = ga.graphs.full(...), ga.graphs.causal(...), between.subgraph(**sizes)
        return self.head(self.model(x, y, *graphs))


def examples(n, batch, *numbers):
    some = torch.randint(*numbers, (batch, n))
    source = F.pad(images[some].float() / 8 - 1, (0, 0, 1, 0))
    return source, F.pad(labels[some].flip(1), (1, 0), value=BEGIN)


# %%
# Trained alike; then digits never seen are read at once, and captions written by word.
(_, axes), right = plt.subplots(1, 5, figsize=(12, 2.7), layout="constrained"), {}
for name, between in betweens.items():
    for n in (SHORT, LONG):
        torch.manual_seed(0)
        net = Captioner()
        adam = torch.optim.Adam(net.parameters(), 5e-3)
        for _ in range(200):
            source, words = examples(n, 32, 0, 1500)
            adam.zero_grad()
            found = net(source, words[:, :-1], between).transpose(1, 2)
            F.cross_entropy(found, words[:, 1:]).backward()
            adam.step()
        source, words = examples(n, 300, 1500, 1797)
        said = words[:, :1]
        with torch.no_grad(), ga.nn.record_weights(net) as weights:
            while said.shape != words.shape:
                next_word = net(source, said, between)[:, -1:].argmax(-1)
                said = torch.cat((said, next_word), 1)
        right[name, n] = float((said == words)[:, 1:].float().mean())
        print(f"{name}, {n} digits: {right[name, n]:.0%} of the words are right")
assert right["one vector", SHORT] > right["one vector", LONG] + 0.2
assert right["every part", LONG] > 0.75
alignment = weights["model.decoder.layers.0.cross_attention"].dense()[:, 0].mean(0)
drawn = {"encoder": ga.graphs.full(9), "decoder": ga.graphs.causal(8)} | betweens
drawn = {name: graph.mask() for name, graph in drawn.items()} | {"learned": alignment}
for axis, name in zip(axes, drawn, strict=True):
    axis.imshow(drawn[name], cmap="Blues", vmin=0)
    axis.set(title=name, xlabel="read", ylabel="reader")
assert alignment.argmax(-1).equal(torch.arange(LONG, 0, -1))  # the digit to be named
