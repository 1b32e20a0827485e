"""From the last word to the first it is one hop: a recurrent network takes one a word.

The shorter the path between two positions, the easier it is to learn how one depends on
the other (Vaswani et al. 2017, section 4). The path is counted on the graph, and the
gradient measured along it; then each network learns to remember the first bit. Dilated
layers take log n hops: the gradient arrives, but 200 steps are too few for five layers.
"""

# %%
# Counted: layers until the last token depends on the first
# ---------------------------------------------------------
import matplotlib.pyplot as plt
import torch
from torch import nn

import graphattn as ga

LENGTHS, window = (4, 8, 16, 32), ga.graphs.sliding_window
SPARSE = [window(..., 2, causal=True, dilation=2**k) for k in range(5)]
for n in LENGTHS:
    chain = ga.from_rule(lambda t, s: s == t - 1, n)  # a state reads the one before
    graphs = chain, window(n, 3, causal=False), ga.graphs.full(n)
    assert [ga.analysis.hops(graph).layers for graph in graphs] == [n - 1, n - 1, 1]
    assert ga.analysis.reach([d(n) for d in SPARSE[: n.bit_length() - 1]]).mask()[-1, 0]

# %%
# Measured: what of the first token's gradient arrives
# ----------------------------------------------------


class Net(nn.Module):
    def __init__(self, inner, graphs=None):
        super().__init__()
        self.inner, self.graphs = inner, graphs
        self.place = ga.nn.SinusoidalPosition(16)

    def forward(self, x):
        if self.graphs is None:
            return self.inner(x)[0][..., -1, :]
        return self.inner(self.place(x), self.graphs)[..., -1, :]


def gradient(net, n):
    x = torch.randn(32, n, 16, requires_grad=True)
    (found,) = torch.autograd.grad(net(x).sin().sum(), x)
    return float(found[:, 0].norm() / found[:, -1].norm())


def learned(net, n, steps=200):
    word, answer = nn.Embedding(2, 16), nn.Linear(16, 2)
    adam = torch.optim.Adam(nn.ModuleList([net, word, answer]).parameters(), 1e-2)
    for _ in range(steps):
        bits = torch.randint(2, (32, n))
        adam.zero_grad()
        nn.functional.cross_entropy(answer(net(word(bits))), bits[:, 0]).backward()
        adam.step()
    bits = torch.randint(2, (500, n))
    return float((answer(net(word(bits))).argmax(-1) == bits[:, 0]).float().mean())


torch.manual_seed(0)
kinds = {
    "RNN": lambda: Net(nn.RNN(16, 16, batch_first=True)),
    "both ways": lambda: Net(nn.RNN(16, 8, batch_first=True, bidirectional=True)),
    "LSTM": lambda: Net(nn.LSTM(16, 16, batch_first=True)),
    "dilated": lambda: Net(ga.models.Encoder(5, 16, 2), SPARSE),
    "attention": lambda: Net(ga.models.Encoder(1, 16, 2), ga.graphs.causal(...)),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for name, make in kinds.items():
    fades = [gradient(make(), n) for n in LENGTHS]
    learns = [learned(make(), n) for n in LENGTHS]
    left.semilogy(LENGTHS, fades, "o-", label=name)
    right.plot(LENGTHS, learns, "o-")
    print(f"{name:9} gradient {fades[-1]:.0e}, right {learns[-1]:.2f} at 32 tokens")
    assert fades[-1] > 1e-3 if name in ("dilated", "attention") else fades[-1] < 1e-4
    assert learns[-1] > 0.95 if name == "attention" else learns[-1] < 0.8
left.set(xlabel="tokens", title="gradient at the first token / the last")
right.set(xlabel="tokens", title="share of first bits named")
left.legend()
