"""torch.compile gives what eager gives, without a graph break on dense, for any batch and any
graph.
"""

import pytest
import torch
from attention_formula import asked, assert_near, biases, formula, gradients, tensors
from graph_table import GRAPHS

import graphattn as ga

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]


def call(q, k, v, graph, bias=None, **options):
    found = ga.attention(q, k, v, graph, bias, **options)
    if isinstance(found, torch.Tensor):
        return found
    if found.weights is None:
        return found.output, found.lse
    return found.output, found.weights.alpha, found.lse


OPTIONS = {
    "plain": {},
    "everything": {
        "scale": -0.3,
        "softcap": 1.7,
        "bias": True,
        "return_weights": True,
        "return_lse": True,
    },
}


@pytest.mark.parametrize(
    ("backend", "name", "options"),
    [("dense", name, "plain") for name in ("isolated_targets", "causal")]  # a mask, fused
    + [("dense", "unused_sources", "everything"), ("tiles", "isolated_targets", "everything")],
)
def test_dense_products_compile_whole(backend, name, options):
    graph, options = GRAPHS[name](), {**asked(backend, OPTIONS[options]), "backend": backend}
    inputs = [*tensors(graph, (2,))] + [biases(graph)] * options.pop("bias", False)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    split = (*inputs[:3], graph, *inputs[3:])
    wanted, found = call(*split, **options), compiled(*split, **options)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for mine, theirs in pairs:
        assert_near(mine, theirs)
    if isinstance(wanted, tuple):
        found, wanted = found[0], wanted[0]
    for mine, theirs in zip(gradients(found, inputs), gradients(wanted, inputs), strict=True):
        assert_near(mine, theirs)


def test_message_passing_is_right_when_compiled():
    graph = GRAPHS["listed_bipartite"]()
    inputs = (*tensors(graph, (2,)), biases(graph))
    compiled = torch.compile(
        lambda q, k, v, b: call(q + 0, k, v, graph, b, backend="message_passing") * 1,
        backend="aot_eager",
    )
    found, wanted = compiled(*inputs), formula(*inputs[:3], graph, inputs[3])[0]
    assert_near(found, wanted)
    for mine, theirs in zip(gradients(found, inputs), gradients(wanted, inputs), strict=True):
        assert_near(mine, theirs)


@pytest.mark.parametrize(
    ("options", "dynamic"),
    [({"scale": 0.5, "dropout_p": 0.0}, True), ({"softcap": 2.0, "return_lse": True}, None)],
)
def test_one_program_for_every_batch(options, dynamic):
    graph, programs = GRAPHS["listed_bipartite"](), []

    def counting(module, example):
        programs.append(module)
        return module

    def first(q, k, v):
        found = ga.attention(q, k, v, graph, backend="dense", **options)
        return found if isinstance(found, torch.Tensor) else found.output

    compiled = torch.compile(first, backend=counting, fullgraph=True, dynamic=dynamic)
    for batch in (2, 3, 5, 7):
        inputs = tensors(graph, (batch,), requires_grad=False)
        assert_near(compiled(*inputs), first(*inputs))
    assert len(programs) <= 2  # the first call's sizes, then any


@pytest.mark.parametrize("backend", ["dense", "tiles", "message_passing"])
def test_a_new_graph_is_a_new_program(backend):
    """Graphs alike in sizes and counts, some alive at once and some collected: never one's edges
    for another.
    """
    made = torch.Generator().manual_seed(3)

    def graph():
        edges = torch.randperm(13 * 13, generator=made)[:41]
        return ga.from_edge_index(torch.stack((edges % 13, edges // 13)), num_nodes=13)

    compiled = torch.compile(lambda q, k, v, g: call(q, k, v, g, backend=backend), backend="eager")
    alive = graph()
    q, k, v = tensors(alive, requires_grad=False)
    for g in (alive, graph(), graph(), alive):
        assert_near(compiled(q, k, v, g), formula(q, k, v, g)[0])


@pytest.mark.parametrize("backend", ["edges", "dense"])
def test_new_graphs_are_no_new_programs_where_attention_is_left_out(backend):
    made, programs = torch.Generator().manual_seed(5), []
    attend = torch.compiler.disable(call)

    def counting(module, example):
        programs.append(module)
        return module

    compiled = torch.compile(
        lambda q, k, v, g: attend(q + 1, k, v, g, backend=backend) * 2, backend=counting
    )
    inputs = [
        torch.randn(13, 2, 3, generator=made, dtype=torch.float64, requires_grad=True)
        for _ in "qkv"
    ]
    q, k, v = inputs
    for _ in range(5):
        edges = torch.randperm(13 * 13, generator=made)[:41]
        graph = ga.from_edge_index(torch.stack((edges % 13, edges // 13)), num_nodes=13)
        found, wanted = compiled(q, k, v, graph), formula(q + 1, k, v, graph)[0] * 2
        assert_near(found, wanted)
        for mine, theirs in zip(gradients(found, inputs), gradients(wanted, inputs), strict=True):
            assert_near(mine, theirs)
    assert len(programs) == 2  # before attention, and after it


def test_new_edges_of_one_shape_are_inputs_of_one_program():
    made, programs = torch.Generator().manual_seed(5), []

    def counting(module, example):
        programs.append(module)
        return module

    compiled = torch.compile(call, backend=counting, fullgraph=True)
    for _ in range(4):
        edges = torch.randperm(13 * 13, generator=made)[:41]
        graph = ga.from_edge_index(torch.stack((edges % 13, edges // 13)), num_nodes=13)
        inputs = *tensors(graph, (2,)), biases(graph)
        found, wanted = (
            compiled(*inputs[:3], ga.nn.EdgeTensors(graph), inputs[3]),
            formula(*inputs[:3], graph, inputs[3]),
        )
        assert_near(found, wanted[0])
        for mine, theirs in zip(
            gradients(found, inputs), gradients(wanted[0], inputs), strict=True
        ):
            assert_near(mine, theirs)
    assert len(programs) == 1


def test_a_graph_kept_by_a_module_may_be_exchanged():
    class Holder(torch.nn.Module):
        def __init__(self, graph):
            super().__init__()
            self.graph = graph

        def forward(self, q, k, v):
            return ga.attention(q, k, v, self.graph, backend="dense")

    graphs = [GRAPHS["listed_random"](), GRAPHS["listed_random"]().reverse()]
    holder = Holder(graphs[0])
    compiled = torch.compile(holder, backend="aot_eager", fullgraph=True)
    inputs = tensors(graphs[0], requires_grad=False)
    for holder.graph in (*graphs, graphs[0]):
        assert_near(compiled(*inputs), formula(*inputs, holder.graph)[0])


def test_auto_compiles():
    graph = GRAPHS["full"]()
    inputs = tensors(graph, (2,))
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    assert_near(compiled(*inputs, graph), formula(*inputs, graph)[0])


def test_errors_are_still_ours():
    graph = GRAPHS["full"]()
    q, k, v = tensors(graph)
    with pytest.raises(Exception, match="query has 10 nodes"):
        torch.compile(call, backend="aot_eager")(q[1:], k, v, graph)


def test_export():
    graph = GRAPHS["isolated_targets"]()
    layer = ga.nn.GraphAttention(12, 3)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, context):
            return self.layer(x, graph, context=context)

    x, context = torch.randn(13, 12), torch.randn(11, 12)
    exported = torch.export.export(Model(), (x, context), strict=True)
    assert_near(exported.module()(x + 1, context), layer(x + 1, graph, context=context), 1e-6)


def test_inductor():
    graph = GRAPHS["longformer"]()
    inputs = tensors(graph, (2,), dtype=torch.float32)
    compiled = torch.compile(call, fullgraph=True)
    found, wanted = compiled(*inputs, graph, softcap=3.0), call(*inputs, graph, softcap=3.0)
    tolerance = 8 * torch.finfo(torch.float32).eps
    assert_near(found, wanted, tolerance)
    for mine, theirs in zip(gradients(found, inputs), gradients(wanted, inputs), strict=True):
        assert_near(mine, theirs, tolerance)
