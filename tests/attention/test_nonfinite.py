"""Whom a NaN or an infinity reaches, and whom not; on both backends."""

import math

import pytest
import torch
from attention_formula import BACKENDS, HEADS, assert_near, biases, gradients, taken, tensors
from graph_table import GRAPHS

import graphattn as ga

INF, NAN = math.inf, math.nan
EXTRAS = ({}, {"return_lse": True})  # SDPA, and the dense product written out
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def run(*args, **kwargs):
    found = ga.attention(*args, **kwargs)
    return found if isinstance(found, torch.Tensor) else found.output


@each_backend
def test_not_even_a_nan_passes_a_removed_edge(backend):
    if backend in ("dense", "tiles"):
        return  # notes say so: test_dense_products_say_so_wherever_it_can_happen
    graph = GRAPHS["listed_random"]()
    inputs = tensors(graph)
    s = int(graph.out_degree.argmax())
    bias = biases(graph).detach()
    bias[graph.source == s] = -INF
    wanted = ga.attention(*inputs, graph, bias, backend=backend)
    grads = gradients(wanted, inputs)
    with torch.no_grad():
        for x in inputs[1:]:
            x[s] = NAN
    found = ga.attention(*inputs, graph, bias, backend=backend)
    assert torch.equal(found, wanted)
    assert all(torch.equal(a, b) for a, b in zip(gradients(found, inputs), grads, strict=True))


@each_backend
@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("bad", [INF, NAN])
def test_a_bad_score_spoils_its_own_row_only(backend, bad, extras):
    graph = GRAPHS["listed_random"]()
    q, k, v = tensors(graph, requires_grad=False)
    bias = biases(graph).detach()
    t = int(graph.target[7])
    wanted = run(q, k, v, graph, bias, backend=backend, **extras)
    bias[7, 2] = bad
    found = run(q, k, v, graph, bias, backend=backend, **extras)
    spoiled = torch.zeros(graph.num_nodes, HEADS, dtype=torch.bool)
    spoiled[t, 2] = True
    assert torch.equal(found.isnan().all(-1), spoiled)
    assert_near(found[~spoiled], wanted[~spoiled])


@each_backend
@pytest.mark.parametrize("extras", EXTRAS)
def test_a_nan_query_spoils_its_own_row_only(backend, extras):
    graph = GRAPHS["listed_random"]()
    q, k, v = tensors(graph, requires_grad=False)
    wanted = run(q, k, v, graph, backend=backend, **extras)
    t = int(graph.in_degree.argmax())
    q[t, 1, 0] = NAN
    found = run(q, k, v, graph, backend=backend, **extras)
    spoiled = torch.zeros(graph.num_nodes, HEADS, dtype=torch.bool)
    spoiled[t, 1] = True
    assert torch.equal(found.isnan().all(-1), spoiled)
    assert torch.equal(found[~spoiled], wanted[~spoiled])


@pytest.mark.sample(4)
@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("bad", [-INF, NAN])
@pytest.mark.parametrize(
    ("name", "backend"),
    taken(["unused_sources", "isolated_targets", "repeated_edges"])
    + [("causal_start", backend) for backend in BACKENDS],
)
def test_a_source_that_no_target_reads_changes_nothing(name, backend, bad, extras):
    graph = ga.graphs.causal(5, 11, align="start") if name == "causal_start" else GRAPHS[name]()
    unused = graph.out_degree == 0
    assert unused.any()
    inputs = tensors(graph)
    wanted = run(*inputs, graph, backend=backend, **extras)
    grads = gradients(wanted, inputs)
    with torch.no_grad():
        for x in inputs[1:]:
            x[unused] = bad
    found = run(*inputs, graph, backend=backend, **extras)
    assert torch.equal(found, wanted)
    for mine, theirs in zip(gradients(found, inputs), grads, strict=True):
        assert torch.equal(mine, theirs)


@each_backend
def test_a_nan_source_spoils_its_readers(backend):
    graph = GRAPHS["listed_random"]()
    inputs = tensors(graph)
    wanted = ga.attention(*inputs, graph, backend=backend)
    grads = gradients(wanted, inputs)
    s = int(graph.out_degree.argmax())
    with torch.no_grad():
        inputs[2][s] = NAN
    found = ga.attention(*inputs, graph, backend=backend)
    readers = graph.contains(torch.arange(graph.num_nodes), s)
    assert found[readers].isnan().all()
    notes = {c.name: c.notes for c in ga.explain(graph).candidates}[backend]
    if backend == "dense":
        note = (
            "a NaN or inf in a source reaches every target in the same dense product, edge or not"
        )
        assert notes[0] == note
        return
    assert notes == ()
    assert torch.equal(found[~readers], wanted[~readers])
    dq = gradients(found, inputs)[0]
    assert torch.equal(dq[~readers], grads[0][~readers])


@each_backend
def test_dense_products_say_so_wherever_it_can_happen(backend):
    full, window = ga.graphs.full(7), ga.graphs.sliding_window(7, 2, causal=True)
    for graph, options, noted in (
        (full, {}, ()),
        (full, {"score_bias": True}, ("dense", "tiles")),
        (window, {}, ("dense",)),
        (window, {"dropout_p": True}, ("dense", "tiles")),
    ):
        asked = ga.explain(graph, dtype=torch.float64, **options)
        notes = {c.name: c.notes for c in asked.candidates}[backend]
        assert bool(notes) == (backend in noted)


@each_backend
@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("bad", [INF, NAN])
def test_nan_in_padding_has_no_effect_on_real_nodes(backend, bad, extras):
    real = GRAPHS["listed_random"]()
    padding = ga.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=5)
    graph = ga.disjoint_union([real, padding])
    n = real.num_nodes
    inputs = tensors(graph)
    outputs = []
    for filling in (0.0, bad):
        with torch.no_grad():
            for x in inputs:
                x[n:] = filling
        output = run(*inputs, graph, backend=backend, **extras)
        outputs.append((output, *torch.autograd.grad(output.square().sum(), inputs)))
    for mine, theirs in zip(*outputs, strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(outputs[1][0][n:], torch.zeros_like(outputs[1][0][n:]))


@each_backend
@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("bad", [INF, NAN])
def test_a_bad_query_whose_edges_are_all_removed(backend, bad, extras):
    graph = GRAPHS["listed_random"]()
    inputs = tensors(graph)
    t = int(graph.in_degree.argmax())
    bias = biases(graph).detach()
    bias[graph.target == t] = -INF
    outputs = []
    for filling in (1.0, bad):
        with torch.no_grad():
            inputs[0][t] = filling
        output = run(*inputs, graph, bias, backend=backend, **extras)
        outputs.append((output, *torch.autograd.grad(output.square().sum(), inputs)))
    for mine, theirs in zip(*outputs, strict=True):
        assert torch.equal(mine, theirs)


@each_backend
@pytest.mark.parametrize("name", ["full", "causal"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_query_that_is_not_finite_is_not_a_row_of_zeros(backend, name, bad):
    graph = getattr(ga.graphs, name)(6)  # torch's SDPA, without a mask, gives such a row 0
    query, key, value = (
        torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(i)) for i in range(3)
    )
    query[2] = bad
    query.requires_grad_()
    output = ga.attention(query, key, value, graph, backend=backend)
    assert output[2].isnan().all()
    assert output[[0, 1, 3, 4, 5]].isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "causal"])
def test_compiled_code_gives_a_nan_for_a_nan_query(name):
    query, key, value = (
        torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(i)) for i in range(3)
    )
    graph = getattr(ga.graphs, name)(6)
    query[2] = NAN
    compiled = torch.compile(
        lambda q: ga.attention(q, key, value, graph, backend="dense"), backend="eager"
    )
    assert compiled(query)[2].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", [ga.graphs.full, ga.graphs.causal])
def test_no_number_of_sources_makes_a_bad_query_a_row_of_zeros(make, dtype):
    """SDPA's short kernels do, for fewer sources than a register holds numbers."""
    for num_sources in (1, 7, 8, 9, 16, 17, 257):
        x = torch.randn(num_sources, 1, 8, dtype=dtype)
        query = x.clone()
        query[-1, 0, 3] = NAN
        assert ga.attention(query, x, x, make(num_sources))[-1].isnan().all(), num_sources
