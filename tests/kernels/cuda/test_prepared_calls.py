"""A call on CUDA whose graph is known asks the device for nothing: no number, no size, no copy to
the host.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graphattn import graphs
from graphattn.backends.inputs import inputs_of
from graphattn.backends.tiles import flex as tiles_flex
from graphattn.kernels.cuda import row_work
from graphattn.plans import block_lists
from graphattn.plans.grouped import by_source, by_target

WAITS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "unique_dim",
    "_unique2",
    "item",
    "equal",
    "is_nonzero",
}


class Watch(TorchDispatchMode):
    """The operations that make a host wait for its device, as they are called."""

    def __init__(self):
        super().__init__()
        self.calls, self.waits = 0, []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name, self.calls = operation.overloadpacket.__name__, self.calls + 1
        self.waits += [name] * (name in WAITS)
        return operation(*args, **(kwargs or {}))


def watched(call):
    """What the second of two calls waits for."""
    first = Watch()
    with first:
        call()
    again = Watch()
    with again:
        call()
    assert again.calls > 5
    return first.waits, again.waits


def test_the_edge_kernels(monkeypatch):
    edges_triton = pytest.importorskip("graphattn.kernels.softmax.passes")
    attention_triton = pytest.importorskip("graphattn.kernels.softmax.gpu")
    launches = pytest.importorskip("graphattn.kernels.cuda.launches")
    for module in (launches, edges_triton):
        monkeypatch.setattr(module, "launch_rows", lambda *_: None)
    monkeypatch.setattr(attention_triton, "_launch", lambda *_: None)
    monkeypatch.setattr(row_work, "PIECE", 16)
    graph = graphs.random_neighbours(60, 7) | graphs.global_tokens(60, [3])
    node, layout = torch.randn(1, 60, 4, 8), (*by_target(graph), *by_source(graph))
    bias, features = (
        torch.zeros(1, graph.num_edges, 4),
        (torch.zeros(1, graph.num_edges, 3), torch.zeros(4, 8, 3)),
    )
    given = (node, node, node, bias, *features, *layout, 0.4, 1.7, 0.3, "both", torch.tensor(5))

    def call():
        output, lse, alpha, *kept = attention_triton.forward(*given, True, True)
        attention_triton.backward(*given, *kept, output, lse, alpha)

    before, after = watched(call)
    assert before  # how long rows are
    assert after == []


def test_tiles_by_flex_attention(monkeypatch):
    def nothing(scale, cap, lse, *kind):
        return lambda query, key, value, mask: (query + key.sum() + value.sum(), query.sum(-1))

    monkeypatch.setattr(tiles_flex, "compiled", nothing)
    for name, value in (("SIDE", 32), ("SHORT", 1), ("LONG", 1)):
        monkeypatch.setattr(block_lists, name, value)
    monkeypatch.setattr(tiles_flex, "SIDE", 32)
    graph = graphs.sliding_window(331, 33, causal=False) | graphs.global_tokens(331, [5, 200])
    nodes = [torch.randn(331, 2, 16, requires_grad=True) for _ in range(3)]

    def call():
        inputs = inputs_of(*nodes, graph)
        output = tiles_flex.flex_run(graph, inputs, True, None).output
        torch.autograd.grad(output.sum(), nodes)

    assert watched(call)[1] == []
    assert block_lists.block_lists(graph).pieces is not None
