"""A compiled layer, and one under DistributedDataParallel, gives what the plain one gives."""

import pytest
import torch
from attention_formula import assert_near
from graph_table import GRAPHS
from torch.nn.parallel import DistributedDataParallel

import graphattn as ga
from graphattn.errors import GraphError, GraphIndexError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]

C, H = 12, 3


def case(**options):
    torch.manual_seed(0)
    return ga.nn.GraphAttention(C, H, **options), GRAPHS["listed_random"](), torch.randn(2, 17, C)


def gradients(layer, output):
    return torch.autograd.grad(output.float().square().sum(), list(layer.parameters()))


@pytest.mark.parametrize("narrow", [False, True])
def test_a_layer_compiles_whole(narrow):
    layer, graph, x = case(num_kv_heads=1, root_weight=True, backend="dense")
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        found, weights = compiled(x, graph, return_weights=True)
        wanted, plain = layer(x, graph, return_weights=True)
    assert isinstance(weights, ga.EdgeWeights)
    assert weights.graph is graph
    assert_near(weights.alpha, plain.alpha, 1e-6)
    assert_near(found, wanted, 1e-2 if narrow else 1e-6)
    found, wanted = (
        torch.cat([g.flatten() for g in gradients(layer, output)]) for output in (found, wanted)
    )
    assert_near(found, wanted, 2e-2 if narrow else 1e-5)


def test_a_layer_with_edge_features():
    layer, graph, x = case(edge_dim=5)
    edge_attr = torch.randn(graph.num_edges, 5)
    compiled = torch.compile(layer, backend="aot_eager")
    found, wanted = (f(x, graph, edge_attr=edge_attr) for f in (compiled, layer))
    assert_near(found, wanted, 1e-6)
    for mine, theirs in zip(gradients(layer, found), gradients(layer, wanted), strict=True):
        assert_near(mine, theirs, 1e-5)


@pytest.mark.parametrize("backend", ["auto", "edges", "dense"])
def test_another_edge_index_at_every_call(backend):
    """One program, in one piece where edges may be its inputs; checked at every call."""
    whole = backend != "dense"
    options = {"edge_dim": 3} if whole else {}
    layer, graph, x = case(backend=backend, **options)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=whole, dynamic=True)
    for first in range(3):  # unlike in number, too
        edge_index = graph.edge_index[:, first : 37 + 2 * first]
        features = {"edge_attr": torch.randn(edge_index.shape[1], 3)} if whole else {}
        listed = ga.from_edge_index(edge_index, num_nodes=17)
        found = compiled(x, edge_index, **features)
        wanted = layer(x, listed, **features)
        assert_near(found, wanted, 1e-6)
        for mine, theirs in zip(gradients(layer, found), gradients(layer, wanted), strict=True):
            assert_near(mine, theirs, 1e-5)
    features = {name: value[:2] for name, value in features.items()}
    with pytest.raises(GraphError, match="edges 0 and 1 are both 0 -> 1"):
        compiled(x, torch.tensor([[0, 0], [1, 1]]), **features)
    with pytest.raises(GraphIndexError, match="edge 1: source 17 is outside"):
        compiled(x, torch.tensor([[0, 17], [1, 1]]), **features)


def test_layers_on_one_graph_share_a_program():
    _, graph, x = case()
    programs, x = [], x.requires_grad_()

    def counted(module, example):
        programs.append(module)
        return module

    for _ in range(10):
        layer = ga.nn.GraphAttention(C, H, dropout=0.1)
        x = torch.compile(layer, fullgraph=True, backend=counted)(x, graph)
    assert len(programs) == 1


def test_layers_and_the_operator_count_their_own_programs():
    layer, graph, x = case()
    query = torch.randn(17, H, 4)
    block = ga.nn.TransformerBlock(C, H)
    with torch._dynamo.config.patch(recompile_limit=1):
        for call, inputs in ((layer, (x,)), (block, (x,)), (ga.attention, (query,) * 3)):
            compiled = torch.compile(call, backend="eager", fullgraph=True)
            torch.testing.assert_close(compiled(*inputs, graph), call(*inputs, graph))


def test_a_lazy_layer_is_called_before_it_compiles_whole():
    layer, (_, graph, x) = ga.nn.GraphAttention(C, H, qdim=-1, kdim=-1, vdim=-1), case()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="make it before compiling"):
        compiled(x, graph)
    expected = layer(x, graph)
    torch.testing.assert_close(compiled(x, graph), expected)


def test_a_pattern_beside_a_cache_that_grows():
    """Its graph is made by Python that torch.compile must not follow; where programs are too many,
    plain code runs.
    """
    layer, _, x = case(backend="dense")
    x, pattern = x[:, :7], ga.graphs.causal(..., ...)
    cache, programs = ga.nn.KeyValueCache(), []
    compiled = torch.compile(layer, backend=lambda module, example: programs.append(1) or module)
    with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=2):
        found = [compiled(part, pattern, cache=cache) for part in x.split((4, 1, 1, 1), 1)]
    assert_near(torch.cat(found, 1), layer(x, pattern), 1e-6)
    assert len(programs) == 2  # one for each length


def test_a_pattern_in_sizes_that_change():
    layer, pattern = ga.nn.GraphAttention(8, 2), ga.graphs.sliding_window(..., 3, causal=True)
    compiled = torch.compile(lambda x: layer(x, pattern), backend="eager", fullgraph=True)
    for size in (5, 7, 11):
        x = torch.randn(size, 8)
        torch.testing.assert_close(compiled(x), layer(x, pattern))


@pytest.mark.parametrize("size", [5, ...])
def test_a_graph_that_is_made_inside_breaks_the_program_in_two(size):
    layer, x = ga.nn.GraphAttention(8, 2), torch.randn(5, 8)

    def call(x):
        return layer(x, ga.graphs.causal(size))

    torch.testing.assert_close(torch.compile(call, backend="eager")(x), call(x))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="make it outside and pass it in"):
        torch.compile(call, backend="eager", fullgraph=True)(x)


def test_distributed_data_parallel_in_one_process(tmp_path):
    layer, graph, x = case()
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        DistributedDataParallel(layer)(x, graph).square().sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    for parameter, wanted in zip(
        layer.parameters(), gradients(layer, layer(x, graph)), strict=True
    ):
        assert_near(parameter.grad, wanted, 1e-6)
