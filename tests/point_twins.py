"""Neighbourhoods in plain torch, for the twins of models of points."""

import torch


def nearest(pos, queries, k):
    """(T, k): by distance, then index."""
    squared = (queries[:, None] - pos).square().sum(-1)
    return torch.sort(squared, dim=1, stable=True).indices[:, :k]


def farthest(pos, count):
    """Greedy, from the point farthest from the mean."""
    chosen = [int((pos - pos.mean(0)).square().sum(1).argmax())]
    while len(chosen) < count:
        chosen.append(int((pos[:, None] - pos[chosen]).square().sum(-1).amin(1).argmax()))
    return torch.tensor(chosen)


def interpolated(x, pos, queries, k=3):
    """Inverse squared distances of the k nearest."""
    near = nearest(pos, queries, k)
    squared = (queries[:, None] - pos[near]).square().sum(-1)
    weights = 1 / squared.clamp(min=1e-300)
    return ((weights / weights.sum(1, keepdim=True))[..., None] * x[near]).sum(1)


class State:
    """Parameters of a module by name, and the formulas that read them."""

    def __init__(self, module, prefix=""):
        self.tensors, self.prefix = module.state_dict(), prefix

    def __truediv__(self, name):
        inner = State.__new__(State)
        inner.tensors, inner.prefix = self.tensors, f"{self.prefix}{name}."
        return inner

    def get(self, name):
        return self.tensors.get(f"{self.prefix}{name}")

    def linear(self, x):
        y = x @ self.get("weight").T
        return y if self.get("bias") is None else y + self.get("bias")

    def norm(self, x, eps=1e-5):
        centred = x - x.mean(-1, keepdim=True)
        y = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
        return y * self.get("weight") + self.get("bias")

    def perceptron(self, x):
        return (self / "2").linear((self / "0").linear(x).relu())


def perceptron(state, x):
    return (state / "last").linear(torch.nn.functional.gelu((state / "first").linear(x)))


def read(state, edges, y, x, near, here, there, heads=2):
    """Attention on edges, whose encoding joins key and value; ``near`` (T, k) are the sources of
    each target.
    """
    offset = here[:, None] - there[near]
    made = perceptron(
        edges / "perceptron", torch.cat((offset, offset.norm(dim=-1, keepdim=True)), -1)
    )
    extra = made @ state.get("edge_proj.weight").T
    q, k, v = (
        (state / f"{name}_proj").linear(part) for name, part in zip("qkv", (y, x, x), strict=True)
    )
    split = (heads, q.shape[-1] // heads)
    q, k, v = (
        q.unflatten(-1, split),
        (k[near] + extra).unflatten(-1, split),
        (v[near] + extra).unflatten(-1, split),
    )
    weight = (torch.einsum("thd,tkhd->tkh", q, k) * split[1] ** -0.5).softmax(1)
    return (state / "out_proj").linear(torch.einsum("tkh,tkhd->thd", weight, v).flatten(1))


def block(state, x, pos, near):
    inner = state / "block"
    y = (inner / "attention_norm").norm(x)
    x = x + read(inner / "attention", state / "edges", y, y, near, pos, pos)
    y = (inner / "feed_forward_norm").norm(x)
    hidden = torch.nn.functional.gelu((inner / "feed_forward" / "up").linear(y))
    return x + (inner / "feed_forward" / "down").linear(hidden)


def between(state, y, x, near, here, there):
    targets, sources = (state / "norm").norm(y), (state / "source_norm").norm(x)
    return y + read(state / "attention", state / "edges", targets, sources, near, here, there)
