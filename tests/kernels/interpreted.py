"""The Triton kernels in Triton's interpreter, on tensors of the CPU: what they give beside plain
operations.

A process of its own: Triton decides at its import whether it interprets. It says one JSON object:
for each case the error of each output and gradient, over the largest that
:mod:`graphattn.exactness.bounds` allows.
"""

import json
import os
import sys
import time
from typing import Any

if __name__ == "__main__":  # pytest imports every file for its doctests, in a process that compiles
    os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
from graph_table import GRAPHS
from torch import Tensor

import graphattn as ga
from graphattn.distributed.own import edges_into, local_edges
from graphattn.exactness.bounds import bound, difference, size
from graphattn.kernels.additive import gpu as additive_triton
from graphattn.kernels.additive import operator as edge_additive
from graphattn.kernels.arrays import dtype_of_sums
from graphattn.kernels.cuda import bytes_moved as bytes_model
from graphattn.kernels.cuda import launches, row_work
from graphattn.kernels.pairs import operator as edge_pairs
from graphattn.kernels.softmax import gpu as attention_triton
from graphattn.kernels.softmax import operator as edges_op
from graphattn.kernels.softmax import passes as edges_triton
from graphattn.kernels.softmax.call import SoftmaxCall
from graphattn.kernels.tiles import gpu as compacted_triton
from graphattn.plans import compacted as plans_compacted
from graphattn.plans.grouped import by_source, by_target

torch.set_num_threads(1)
SMALL = ga.from_edge_index([[0, 2, 0, 3, 5, 6, 4, 1, 0, 2, 3, 4], [1, 1, 1, 0, 1, 1, 4, 1, 2, 2, 4, 2]], num_sources=7,
                           num_targets=5, duplicates="keep")  # fmt: skip


def as_index():
    """Let the interpreter of Triton 3.6 count in loops with numpy 2.5, which makes no number of an
    array (1,).

    Triton 3.7 does so itself.
    """
    from triton.runtime import interpreter

    before = interpreter._patch_lang_tensor

    def patched_tensor(tensor, scope):
        before(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched_tensor


def with_bfloat16() -> None:
    """Let the interpreter multiply matrices of bfloat16, which it takes for integers."""
    from triton.runtime import interpreter

    before = interpreter.InterpreterBuilder.create_dot

    def widened(x: Any) -> Any:
        if x.dtype.scalar != interpreter.tl.bfloat16:
            return x
        bits = x.data.view(np.uint16).astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), interpreter.tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return before(self, widened(a), widened(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


ON_CPU = {"forward": edges_op._forward, "backward": edges_op._gradients}
NAMES = (
    "output",
    "lse",
    "weights",
    "query",
    "key",
    "value",
    "bias",
    "attr",
    "projection",
)


def operands(graph, dtype, heads, widths, features, bias, batch=1):
    """Nodes, and what a call has beside them, in the dtype of their sums."""
    draw = torch.Generator().manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)

    (T, S, E), (H, kv) = (graph.num_targets, graph.num_sources, graph.num_edges), heads
    nodes = [
        randn(batch, T, H, widths[0]),
        randn(batch, S, kv, widths[0]),
        randn(batch, S, kv, widths[1]),
    ]
    rest = [None, None, None]
    if bias:
        rest[0] = randn(batch, E, H)
        rest[0][:, 1::5], rest[0][:, ::7, 1:] = -torch.inf, -torch.inf
    if features:
        rest[1:] = [randn(batch, E, features), randn(H, widths[0], features)]
    return [*nodes, *rest]


def found(run, graph, given, options, keep):
    """Outputs, and the gradients of a random mix of them."""
    SoftmaxCall.keeps_weights = keep
    arguments = (*given, *by_target(graph), *by_source(graph), *options)
    outputs = run["forward"](*arguments, True, True)
    draw = torch.Generator().manual_seed(1)
    mix = [
        torch.randn(x.shape, generator=draw, dtype=torch.float64).to(x.dtype) for x in outputs[:3]
    ]
    return *outputs[:3], *run["backward"](*arguments, *outputs[3:], *mix)


def case(graph=SMALL, dtype=torch.float64, heads=(3, 3), widths=(5, 7), features=0, bias=False, cap=0.0, drop=0.0,
         keep=True, batch=1, edge_to="both", of_edges=None):  # fmt: skip
    """Error over bound of each quantity that there is."""
    if features and edge_to != "key":
        widths = (widths[1], widths[1])
    given = operands(graph, dtype, heads, widths, features, bias, batch)
    if of_edges is not None:  # bias and features of another dtype than nodes
        given[3:5] = [x.to(of_edges) for x in given[3:5]]
    wide = [x if x is None else x.double() for x in given]
    options = (0.4, cap, drop, edge_to, torch.tensor(2**62 + 5))
    triton = {"forward": attention_triton.forward, "backward": attention_triton.backward}
    ours, cpu = (found(run, graph, given, options, keep and not cap) for run in (triton, ON_CPU))
    again = found(triton, graph, given, options, keep and not cap)
    assert all(torch.equal(x, y) for x, y in zip(ours, again, strict=True)), "other bits"
    exact = found(ON_CPU, graph, wide, options, False)
    assert graph is not SMALL or all(size(z) > 0 for z in exact if z.numel())
    shares = {}
    for i, (name, x, y, z) in enumerate(zip(NAMES, ours, cpu, exact, strict=True)):
        assert (x.shape, x.dtype) == (y.shape, y.dtype), (name, x.shape, y.shape, x.dtype, y.dtype)
        scale = (
            1.0
            if name == "weights"
            else max(1.0 if name == "lse" else 1e-30, size(z if i < 3 else exact[5]))
        )
        allowed = bound(dtype, difference(y, z) / scale, gradient=i >= 3)
        shares |= {name: difference(x, z) / scale / allowed} if x.numel() else {}
    return shares


def rows_of_a_program():
    """0 where a program that walks several rows gives the bits of one for each; the last walks
    fewer.
    """
    given = operands(SMALL, torch.float32, (4, 2), (7, 7), 3, True, 2)
    options, shares = (0.4, 1.7, 0.3, "both", torch.tensor(5)), {}
    run = {"forward": attention_triton.forward, "backward": attention_triton.backward}

    def results(each):
        with_rows = lambda: patched(  # noqa: E731
            launches, "ROWS", each, lambda: found(run, SMALL, given, options, False)
        )
        return patched(launches, "ENOUGH", 1, with_rows)

    for cut in (row_work.PIECE, 2):
        one, some = (patched(row_work, "PIECE", cut, lambda n=n: results(n)) for n in (1, 2))
        for name, x, y in zip(NAMES, one, some, strict=True):
            shares[f"{name}, pieces of {cut}"] = 2.0 * (not torch.equal(x, y))
    return shares


def pairs(dtype=torch.float64):
    """The two operators and softmax, each with its derivative, with removed edges and grouped
    heads.
    """
    draw = torch.Generator().manual_seed(0)
    graph, layout = SMALL, ga.backends.scored._layout(SMALL)[2:]
    x, y = (torch.randn(2, n, h, 5, generator=draw, dtype=dtype) for n, h in ((5, 6), (7, 3)))
    wide = dtype_of_sums(x)
    score, slope = torch.randn(2, 2, graph.num_edges, 6, generator=draw, dtype=wide)
    levels, removed = torch.randn(2, 5, 6, generator=draw, dtype=wide), score[:1] > 1
    calls = {
        "edge_products": (x, y, None, *layout),
        "edge_sum": (score, y, 3, False, removed, *layout),
        "edge_weights": (score, *layout[:4]),
        "edge_weights_backward": (score.abs(), slope, levels, *layout[:4]),
    }
    shares = {}
    for name, given in calls.items():
        shares[name] = _apart(
            getattr(edges_triton, name)(*given), getattr(edge_pairs, name)(*given)
        )
    back = (score, x, 3, True, removed, *layout)
    shares["edge_sum to sources"] = _apart(edges_triton.edge_sum(*back), edge_pairs.edge_sum(*back))
    return shares


def additive(dtype=torch.float64, slope=float("nan"), features=True, sizes=(2, 2, 5), groups=1):
    """Additive scores and their gradients, with edges that get nothing though a NaN is at their
    end.
    """
    draw, layout, shares = (
        torch.Generator().manual_seed(0),
        ga.backends.scored._layout(SMALL)[2:],
        {},
    )
    shapes = (
        (1, 5, sizes[0], sizes[2]),
        (1, 7, groups, sizes[2]),
        (1, SMALL.num_edges, sizes[0], sizes[2]),
        sizes,
    )
    given = [torch.randn(shape, generator=draw, dtype=dtype) for shape in shapes]
    given[2] = given[2] if features else None
    wide = torch.promote_types(dtype, torch.float32)
    grad = torch.randn(1, SMALL.num_edges, sizes[0] * sizes[1], generator=draw, dtype=wide)
    grad[:, SMALL.source == 3] = 0.0

    def results(kernels, dtype):
        x, y, z, weight = (a if a is None else a.to(dtype) for a in given)
        passed = grad.to(torch.promote_types(dtype, wide))
        score = kernels.edge_additive(x, y, z, weight, slope, *layout)
        y = y.index_fill(1, torch.tensor(3), torch.nan)
        return score, *kernels.edge_additive_backward(x, y, z, weight, slope, *layout, passed)

    each = (
        results(additive_triton, dtype),
        results(edge_additive, wide),  # the CPU's operator takes no halves
        results(edge_additive, torch.float64),
    )
    for name, ours, cpu, exact in zip(("scores", "x", "y", "z", "weight"), *each, strict=True):
        assert ours.shape == cpu.shape, name
        assert ours.dtype == (wide if name == "scores" else dtype), name
        if exact.numel():
            narrow = wide if name == "scores" else dtype
            allowed = bound(narrow, difference(cpu, exact) / size(exact), gradient=True)
            shares[name] = difference(ours, exact) / size(exact) / allowed
    return shares


def bytes_moved(dtype=torch.float16, heads=(6, 3), features=0, bias=False, keep=True):
    """What the model says that the kernels move, beside what they do; 0 where it is the same to the
    byte.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    graph = ga.from_edge_index(SMALL.edge_index, num_sources=7, num_targets=5, duplicates="merge")
    count = {"load": 0, "store": 0}
    weight = range(0)
    before = {name: getattr(InterpreterBuilder, f"create_masked_{name}") for name in count}

    def counted(name):
        def run(self, pointers, *rest):
            mask = rest[1 if name == "store" else 0].data
            wanted = sum(at not in weight for at in set(pointers.data[mask].tolist()))
            count[name] += wanted * pointers.get_element_ty().primitive_bitwidth // 8
            return before[name](self, pointers, *rest)

        return run

    def measured(run, *arguments):
        count.update(load=0, store=0)
        for name in count:
            setattr(InterpreterBuilder, f"create_masked_{name}", counted(name))
        try:
            return run(*arguments), dict(count)
        finally:
            for name, run in before.items():
                setattr(InterpreterBuilder, f"create_masked_{name}", run)

    width = 7 if features else 5
    given = operands(graph, dtype, heads, (width, 7), features, False, 2)
    if bias:
        given[3] = torch.zeros(1, graph.num_edges, heads[0], dtype=dtype)
    if features:
        turned = given[5].transpose(1, 2).contiguous()
        weight = range(turned.data_ptr(), turned.data_ptr() + turned.nbytes)
        given[5] = turned.transpose(1, 2)  # the kernels read it where it is
    SoftmaxCall.keeps_weights = keep
    arguments = (*given, *by_target(graph), *by_source(graph), 0.4, 0.0, 0.0, "both", None)
    _, moved = measured(attention_triton.forward, *arguments, False, True)
    wide = dtype_of_sums(given[0]).itemsize
    sizes = bytes_model.Sizes(
        2, 5, 7, graph.num_edges, *heads, width, 7, dtype.itemsize, wide, features, bias
    )
    wanted = bytes_model.forward(sizes, lse=True, keeps_weights=keep)
    return {
        "loads": abs(moved["load"] - wanted.loaded),
        "stores": abs(moved["store"] - wanted.stored),
    }


def _apart(ours, wanted):
    ours, wanted = (x if isinstance(x, tuple) else (x,) for x in (ours, wanted))
    return max(
        difference(a, b) / max(1.0, size(b)) / bound(a.dtype, 0.0, gradient=False)
        for a, b in zip(ours, wanted, strict=True)
    )


def front_door():
    """``attention`` as a user calls it, on the operators' own autograd, beside the dense
    backend.
    """
    edges_op.edge_attention.register_kernel("cpu")(attention_triton.forward)
    edges_op.edge_attention_backward.register_kernel("cpu")(attention_triton.backward)
    edges_op.nothing_watches = lambda *_: False
    draw = torch.Generator().manual_seed(0)
    nodes = [
        torch.randn(n, 2, 5, generator=draw, dtype=torch.float64).requires_grad_()
        for n in (5, 7, 7)
    ]
    graph = ga.from_edge_index(SMALL.edge_index, num_sources=7, num_targets=5, duplicates="merge")

    def results(backend):
        output = ga.attention(*nodes, graph, backend=backend)
        return output, *torch.autograd.grad(output.sin().sum(), nodes)

    shares = zip(
        ("output", "query", "key", "value"), results("edges"), results("dense"), strict=True
    )
    return {name: difference(a, b) / 1e-12 for name, a, b in shares}


def parts():
    """0 where a part of a graph has the bits of the whole, cut as that is; the control is cut by
    its own degrees.
    """
    degree, draw = torch.tensor([100, 12, 3, 15, 0, 20, 2, 11]), torch.Generator().manual_seed(0)
    source = torch.cat([torch.randperm(101, generator=draw)[:size] for size in degree])
    graph = ga.from_edge_index(
        torch.stack((source, torch.repeat_interleave(degree))), num_sources=101, num_targets=8
    )
    given = operands(graph, torch.float32, (2, 2), (5, 7), 0, False)
    options, owned = (0.4, 0.0, 0.0, "both", None, False, True), torch.arange(1, 8)
    whole = attention_triton.forward(*given, *by_target(graph), *by_source(graph), *options)
    shares = {}
    for name, degrees in (("whole", row_work.Degrees.of(degree)), ("control", None)):
        own = edges_into(graph, owned)._replace(degrees=degrees)
        local = local_edges(own, own.source, 101, torch.device("cpu"))[1]
        layout = *local._by_target, *local._by_source
        output, lse, *_ = attention_triton.forward(
            given[0][:, owned], *given[1:], *layout, *options
        )
        same = torch.equal(output, whole[0][:, owned]) and torch.equal(lse, whole[1][:, owned])
        shares[name] = 2.0 * (same == (degrees is None))
    return shares


def far_apart():
    """Nodes, and heads, more than 2**31 numbers away; memory that nobody touches is not there."""
    memory = torch.empty(3 * 2**30 + 7, dtype=torch.float16)
    ends = torch.tensor([[3], [0]])
    shares = {}
    for axis, sizes in (("nodes", (1, 4, 1, 4)), ("heads", (1, 1, 4, 4))):
        strides = [0, 4, 4, 1]
        strides[sizes.index(4)] = 2**30 + 1
        far = memory.as_strided(sizes, strides)
        far[:, -1:, -1:] = 1.0
        graph = ga.from_edge_index(ends[:, : sizes[1]] % sizes[1], sizes[1], 1)
        query = torch.full((1, 1, sizes[2], 4), 0.5, dtype=torch.float16)
        layout = (*by_target(graph), *by_source(graph))
        given = (query, far, far, None, None, None, *layout, 0.4, 0.0, 0.0, "both", None)
        output, lse, *_ = attention_triton.forward(*given, False, True)
        tables = (*plans_compacted.tiles_of_targets(graph), 0, *(None,) * 7, 0.4, 0.0, 0.0, None)
        of_tiles, lse_of_tiles = compacted_triton.forward(query, far, far, None, *tables)
        features = query.new_empty((1, sizes[1], sizes[2], 1), dtype=torch.float32)
        weight = query.new_ones(sizes[2], 1, 4)
        attention_triton.project(far, weight, features, None, None)
        shares |= {
            f"output, {axis}": difference(output[:, -1:, -1:], torch.ones(1)),
            f"lse, {axis}": abs(float(lse[0, -1, -1]) - 0.8) / 1e-6,
            f"output of tiles, {axis}": difference(of_tiles[:, -1:, -1:], torch.ones(1)),
            f"lse of tiles, {axis}": abs(float(lse_of_tiles[0, -1, -1]) - 0.8) / 1e-6,
            f"projected, {axis}": abs(float(features[0, -1, -1]) - 4.0),
        }
    return shares


EVERYTHING = {"heads": (6, 3), "features": 3, "bias": True, "cap": 1.7, "drop": 0.3}
CASES = {
    "plain": lambda: case(),
    "everything": lambda: case(**EVERYTHING, batch=2),
    "weights are computed again": lambda: case(bias=True, features=2, keep=False),
    "hubs in pieces": lambda: in_pieces(lambda: case(**EVERYTHING)),
    "features of keys": lambda: case(features=3, edge_to="key", cap=1.7, bias=True),
    "features of values": lambda: case(features=3, edge_to="value", bias=True, drop=0.3, batch=2),
    "halves of edges": lambda: case(dtype=torch.float32, features=3, bias=True, of_edges=torch.float16),
    "features in bfloat16": lambda: case(
        dtype=torch.bfloat16, heads=(6, 3), widths=(24, 40), features=17, bias=True, batch=2
    ),
    "many features": lambda: case(heads=(2, 2), widths=(5, 133), features=67),
    "features of hubs' keys": lambda: in_pieces(lambda: case(features=3, edge_to="key")),
    "features of hubs' values": lambda: in_pieces(lambda: case(features=3, edge_to="value")),
    "hubs in pieces, weights kept": lambda: in_pieces(lambda: case(drop=0.3, bias=True)),
    "pairs": pairs,
    "pairs of halves": lambda: pairs(torch.bfloat16),
    "parts": lambda: patched(row_work, "PIECE", 8, parts),
    "pairs, hubs in pieces": lambda: in_pieces(pairs),
    "rows of a program": rows_of_a_program,
    "all rows in a program": lambda: patched(launches, "ENOUGH", 1, lambda: case(**EVERYTHING, batch=2)),
    "pairs, all rows in a program": lambda: patched(launches, "ENOUGH", 1, lambda: in_pieces(pairs)),
    "additive": additive,
    "additive in float16": lambda: additive(torch.float16),
    "additive in float16, hubs in pieces": lambda: in_pieces(
        lambda: additive(torch.float16, 0.2, False, (1, 3, 13))
    ),
    "bytes moved": bytes_moved,
    "bytes moved, everything": lambda: bytes_moved(torch.float32, (4, 4), features=3, bias=True, keep=False),
    "bytes moved, halves": lambda: bytes_moved(torch.bfloat16, (4, 4), features=3, bias=True),
    "additive, hubs in pieces": lambda: in_pieces(lambda: additive(torch.float32, 0.2, False, (1, 3, 13))),
    "edges in blocks": lambda: patched(launches, "HELD", 16, lambda: case(**EVERYTHING)),
    "heads in blocks": lambda: patched(
        launches, "NUMBERS", 16, lambda: case(heads=(6, 3), features=3, bias=True)
    ),
    "float32": lambda: case(dtype=torch.float32, bias=True, drop=0.3),
    "float16": lambda: case(dtype=torch.float16, heads=(6, 3), bias=True, features=2),
    "bfloat16": lambda: case(dtype=torch.bfloat16, cap=1.7),
    "far apart": far_apart,
    **{graph: lambda graph=graph: case(GRAPHS[graph](), bias=True) for graph in
       ("isolated_targets", "no_edges", "one_node", "zero_nodes", "zero_targets", "zero_sources")},
    "front door": front_door,
}  # fmt: skip


def patched(module, name, value, run):
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        return run()
    finally:
        setattr(module, name, before)


def in_pieces(run):
    def cut():
        assert row_work.schedule(*by_target(SMALL)[::3]).hubs is not None
        return run()

    return patched(row_work, "PIECE", 2, cut)


if __name__ == "__main__":
    as_index()
    with_bfloat16()
    chosen = sys.argv[1:] or list(CASES)
    start = time.process_time()
    told = {}
    for name in chosen:
        told[name] = CASES[name]()
        print(name, f"{time.process_time() - start:.1f} s", file=sys.stderr)
    print(json.dumps(told))
