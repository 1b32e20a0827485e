"""Dot products are cheaper than additive scores of the same complexity: they are matrix products, the others are not.

Both take time in proportion to the number of edges times the width, but a matrix product does that work many times
faster. Edge by edge both also keep numbers of every edge and channel; the kernel of additive scores keeps one an edge.
"""

import time

import torch

import graphattn as ga

WIDTH = 32
torch.manual_seed(0)
torch.set_num_threads(1)


def milliseconds(layer: torch.nn.Module, x: torch.Tensor, graph: ga.AttentionGraph) -> float:
    """The faster of two passes forward and backward."""
    times = []
    for _ in range(2):
        start = time.thread_time()
        layer(x, graph).sum().backward()
        times.append(time.thread_time() - start)
    return 1e3 * min(times)


def megabytes(layer: torch.nn.Module, x: torch.Tensor, graph: ga.AttentionGraph) -> float:
    """What the forward pass keeps for the backward pass."""
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _output = layer(x, graph)  # alive, so that no storage takes the place of another
    return sum(kept.values()) / 1e6


layers = {
    "additive, edge by edge": ga.nn.GraphAttention(WIDTH, 1, score="additive", backend="message_passing"),
    "additive": ga.nn.GraphAttention(WIDTH, 1, score="additive"),
    "dot, edge by edge": ga.nn.GraphAttention(WIDTH, 1, score="dot", backend="message_passing"),
    "dot, matrix products": ga.nn.GraphAttention(WIDTH, 1, score="dot", backend="dense"),
}
print(" " * 9 + "".join(f"{name:>24}" for name in layers))
kept, took = {}, {}
for nodes in (128, 256, 512):
    graph, x = ga.graphs.full(nodes), torch.randn(nodes, WIDTH)
    for name, layer in layers.items():
        kept[name, nodes], took[name, nodes] = megabytes(layer, x, graph), milliseconds(layer, x, graph)
    cells = (f"{took[name, nodes]:.1f} ms, {kept[name, nodes]:.1f} MB" for name in layers)
    print(f"N = {nodes:5}" + "".join(f"{cell:>24}" for cell in cells))
ratio = took["additive", 512] / took["dot, matrix products", 512]
print(f"at N = 512 the additive score takes {ratio:.0f} times as long as matrix products, here and now")

for name in ("additive", "additive, edge by edge", "dot, edge by edge"):
    assert 3.5 < kept[name, 512] / kept[name, 256] < 4.5  # four times as many edges
assert 0.5 < kept["additive, edge by edge", 512] / kept["dot, edge by edge", 512] < 2.0
assert kept["additive", 512] < kept["additive, edge by edge", 512] / 5
assert kept["dot, matrix products", 512] < kept["additive", 512] / 5
